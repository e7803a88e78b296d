"""Compaction keeps rows and identities, races lose nothing, and `clean` deletes what it replaced."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from cli_runner import tw
from storage_sources import TABLES, commit, seen, staged, table, versions_of
from tracewarehouse import upkeep
from tracewarehouse.errors import UnknownName, WarehouseError
from tracewarehouse.storage import compact as compaction
from tracewarehouse.storage.clean import clean, kept_versions
from tracewarehouse.storage.compact import compact, plan
from tracewarehouse.storage.model import Changes, Compacted, RunVersion, Staged, StagedTable
from tracewarehouse.storage.pack import ROW_GROUP_ROWS
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

RANKS = 8


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run of ranks that were committed one by one: a file per table and rank."""
    store = Store.open_or_create(tmp_path / "warehouse")
    for rank in range(RANKS):
        store.publish("run", Changes(sources=(commit(store, rank, content=f"c{rank}"),)))
    return store


def newest(store: Store) -> RunVersion:
    found = store.newest("run")
    assert found is not None
    return found


def data(store: Store) -> list[Path]:
    return sorted((store.folder / "data").rglob("*.parquet"))


def test_small_files_become_one_per_table_with_the_same_rows(store: Store) -> None:
    before, version = {name: seen(store, table=name) for name in TABLES}, newest(store)
    dry = compact(store, "run", dry_run=True)
    assert (dry.files_before, dry.files_after, dry.bytes_after) == (RANKS * 2, 2, None)
    assert newest(store).number == RANKS
    done = compact(store, "run")
    assert (done.files_before, done.files_after, done.skipped_ranks) == (RANKS * 2, 2, ())
    after = newest(store)
    assert {name: seen(store, table=name) for name in TABLES} == before
    assert (after.source, after.ranks) == (version.source, version.ranks)
    assert [(one.uid, one.facts, one.committed_at) for one in after.sources] == [
        (one.uid, one.facts, one.committed_at) for one in version.sources
    ]
    assert store.headers(after.sources) == {one.name: '{"a": 1}' for one in after.sources}
    assert isinstance(after.compacted, dict) and after.compacted["target_bytes"] == 128_000_000
    assert store.verify() == []
    assert compact(store, "run").version == after.number, "nothing is left to do"


def test_clean_deletes_the_replaced_files(store: Store) -> None:
    """The versions of fewer ranks have other rows, so they stay for `keep_versions_s`."""
    compact(store, "run")
    held = {file.path for one in newest(store).sources for file in one.files}
    clean(store, -1)
    assert set(store.versions("run")) == {*range(1, RANKS), RANKS + 1, RANKS + 2}
    assert store.get("run", RANKS + 2).kept_from == RANKS + 2
    clean(store, -1, keep_versions_s=-1)
    assert store.versions("run") == (RANKS + 2,)
    assert {path.relative_to(store.folder).as_posix() for path in data(store)} == held
    assert store.verify() == []
    assert len(list((store.folder / "_tw/commits/run").iterdir())) == 1


def test_a_row_group_holds_several_small_ranks_and_a_large_rank_several_groups(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    rows = {0: 10, 1: ROW_GROUP_ROWS + 5, 2: 7, 3: 9}
    for rank, count in rows.items():
        store.publish("run", Changes(sources=(commit(store, rank, tables={"events": count}),)))
    compact(store, "run")
    (path,) = {file.path for one in newest(store).sources for file in one.files}
    with pq.ParquetFile(store.path(path)) as file:
        groups = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
        ranks = file.read(columns=["rank"]).column("rank").to_pylist()
    assert groups == [ROW_GROUP_ROWS, 31]
    assert ranks == sorted(ranks)
    assert {rank: len(each) for rank, each in seen(store).items()} == rows


def test_large_files_stay_unless_ranks_in_them_were_replaced(store: Store) -> None:
    size = max(file.bytes for one in newest(store).sources for file in one.files)
    assert plan(newest(store), 2 * size).files, "smaller files are grouped"
    smallest = min(file.bytes for one in newest(store).sources for file in one.files)
    assert plan(newest(store), 2 * smallest).files == ()
    compact(store, "run")
    store.publish("run", Changes(sources=(commit(store, 3, content="new"),), replace=True))
    found = plan(newest(store), 2)
    assert len(found.files) == 2 * RANKS - 2, "one file per rank and table, but for the new one"


def test_two_sources_of_a_rank_stay_apart(store: Store) -> None:
    with store.staging() as folder:
        one = staged(folder, 3, content="snapshot", part="memory", tables={"data_quality": 5})
        other = staged(folder, 4, content="snapshot", part="memory", tables={"data_quality": 6})
        store.publish("run", Changes(sources=store.commit([one])))
        store.publish("run", Changes(sources=store.commit([other])))
    before = seen(store, table="data_quality"), seen(store)
    compact(store, "run")
    assert (seen(store, table="data_quality"), seen(store)) == before
    assert store.verify() == []


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Calls `act` after a compaction has written its files, before it publishes."""
    write = compaction._commit

    def written(*arguments: object) -> object:
        done = write(*arguments)  # type: ignore[arg-type]
        act()
        return done

    monkeypatch.setattr(compaction, "_commit", written)


def test_a_rank_that_is_replaced_meanwhile_keeps_its_new_content(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace() -> None:
        store.publish("run", Changes(sources=(commit(store, 2, content="new"),), replace=True))

    between(monkeypatch, replace)
    assert compact(store, "run").skipped_ranks == (2,)
    assert set(seen(store)[2]) == {"new"}
    assert set(seen(store)[3]) == {"c3"}
    assert store.verify() == []
    clean(store, -1, keep_versions_s=-1)
    assert store.verify() == []


def test_a_table_that_is_derived_meanwhile_survives(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old = newest(store).sources[5]

    def derive() -> None:
        with store.staging() as folder:
            new = table(folder, "critical_path", "run", 5, 9, "derived")
            store.publish("run", Changes(sources=store.commit([_with(old, new)]), rebuilt=True))

    between(monkeypatch, derive)
    assert compact(store, "run").skipped_ranks == (5,)
    assert len(seen(store, table="critical_path")[5]) == 9
    monkeypatch.undo()
    assert compact(store, "run").skipped_ranks == ()
    assert len(seen(store, table="critical_path")[5]) == 9
    derive()
    assert len(seen(store, table="critical_path")[5]) == 9


def _with(source: object, new: StagedTable) -> Staged:
    return compaction.staged_again(source, "{}", [new], ())  # type: ignore[arg-type]


def test_a_damaged_file_gets_no_new_checksum(store: Store) -> None:
    path = data(store)[3]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(WarehouseError, match="run run is damaged: .*checksum differs"):
        compact(store, "run")
    assert newest(store).number == RANKS


def test_a_missing_run_is_named(store: Store) -> None:
    with pytest.raises(UnknownName):
        compact(store, "other")


def test_a_run_that_is_removed_meanwhile_stops_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        store.publish("other", Changes(sources=(commit(store, rank, run="other", content=f"o{rank}"),)))

    def removed(of: Store, run: str, *args: Any) -> Compacted:
        if run == "run":
            store.remove("run")
        return compact(of, run, *args)

    monkeypatch.setattr(upkeep, "compact", removed)
    assert [each.run for each in Warehouse(store.folder).compact()] == ["other"]


def test_the_command(store: Store) -> None:
    where = ("-w", store.folder)
    assert tw("compact", "--dry-run", *where).out.startswith("would compact run: 16 files to 2, ")
    assert tw("compact", "run", *where).out.startswith("compacted run: 16 files to 2, ")
    assert tw("compact", *where).out == "nothing to compact\n"
    (row,) = json.loads(tw("compact", "--json", *where).out)["result"]
    assert row["files_after"] == 2
    assert tw("compact", "--target", "0", *where).code == 1
    assert "old versions" in tw("clean", "--grace", "0s", "--keep-versions", "0s", *where).out
    assert len(data(store)) == 2


# Which versions a clean keeps


def rules(acknowledged: tuple[str, ...] = (), *, days: float = 30) -> tuple[Any, ...]:
    now = datetime.now(UTC)
    return now + timedelta(seconds=1), now - timedelta(days=days), acknowledged


def test_versions_replaced_lately_stay(store: Store) -> None:
    history = versions_of(store)
    assert kept_versions(history, *rules()) == {*range(1, RANKS + 1)}
    assert kept_versions(history, *rules(days=-1)) == {RANKS}


def test_a_label_keeps_nothing(store: Store) -> None:
    store.relabel("run", {"team": "a"})
    store.relabel("run", {"team": "b"})
    assert kept_versions(versions_of(store), *rules()) == {*range(1, RANKS), RANKS + 2}
    grace = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) - timedelta(days=30)
    assert kept_versions(versions_of(store), *grace) == {*range(1, RANKS + 3)}


def test_the_last_version_of_an_acknowledged_content_stays(store: Store) -> None:
    source = store.get("run", 3).source
    store.acknowledge(
        layout_key(source), {"metric": "step_time", "run": "run", "source": source, "why": "new driver"}
    )
    assert kept_versions(versions_of(store), *rules((source,), days=-1)) == {3, RANKS}
    clean(store, -1, keep_versions_s=-1)
    assert store.versions("run") == (3, RANKS, RANKS + 1)
    assert store.verify() == []
    assert store.get("run", 3).ranks == (0, 1, 2)


def layout_key(source: str) -> str:
    from tracewarehouse.storage.layout import acknowledgement_key

    return acknowledgement_key("step_time", "run", source)


def test_the_newest_removal_stays_for_its_number(store: Store) -> None:
    store.remove("run")
    store.publish("run", Changes(sources=(commit(store, 0),)))
    assert kept_versions(versions_of(store), *rules(days=-1)) == {RANKS + 1, RANKS + 2}


def test_a_killed_clean_is_completed_by_the_next(store: Store) -> None:
    """The version that says so is there, and only some versions are deleted: their absence is not damage."""

    number = RANKS + 1
    store.put(replace(newest(store), number=number, kept_from=number))
    for gone in (1, 2, 5):
        (store.folder / f"_tw/versions/run/{gone:06d}.json").unlink()
    assert Store.open(store.folder).verify() == []
    clean(store, -1, keep_versions_s=-1)
    assert store.versions("run") == (number,)
    assert store.verify() == []
