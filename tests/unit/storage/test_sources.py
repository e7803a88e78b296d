"""Several sources of a rank side by side, files that are packed already, and commits that are made twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from storage_sources import commit, seen, staged
from tracewarehouse.storage.model import Changes, RankSource, Scan, Staged, StagedTable
from tracewarehouse.storage.store import Store

TIMELINE = {"memory_timeline": 7}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open_or_create(tmp_path / "warehouse")


def publish(store: Store, *sources: RankSource, **said: Any) -> set[str]:
    done = store.publish("run", Changes(sources=sources, **said))
    return set(done.outcome.values())


def rows(store: Store, table: str) -> int:
    version = store.newest("run")
    assert version is not None
    return sum(pq.read_metadata(store.path(scan.path)).num_rows for scan in version.scan_plan(table))


def test_sources_of_other_tables_exist_side_by_side(store: Store) -> None:
    trace, timeline = commit(store, 0), commit(store, 0, content="m", tables=TIMELINE)
    assert publish(store, trace) == {"added"}
    assert publish(store, timeline) == {"added"}
    version = store.newest("run")
    assert version is not None
    assert {one.name for one in version.sources} == {trace.name, timeline.name}
    assert (version.ranks, len(version.by_rank)) == ((0,), 1)
    assert version.by_rank[0].main == trace
    assert (rows(store, "events"), rows(store, "memory_timeline")) == (40, 7)
    assert store.verify() == []


def test_findings_about_the_source_make_no_conflict(store: Store) -> None:
    both = {"data_quality": 1}
    trace = commit(store, 0, tables={"events": 5} | both)
    timeline = commit(store, 0, content="m", tables=TIMELINE | both)
    assert publish(store, trace, timeline) == {"added"}
    assert rows(store, "data_quality") == 2


def test_sources_of_a_rank_that_are_committed_together_share_no_file(store: Store) -> None:
    with store.staging() as folder:
        both = (("a", "events"), ("m", "memory_timeline"))
        made = [
            staged(folder, rank, content=name, tables={"data_quality": 3, table: 2})
            for rank in (0, 1)
            for name, table in both
        ]
        sources = store.commit(made)
    publish(store, *sources)
    paths = [{file.path for file in one.files if file.table == "data_quality"} for one in sources]
    assert paths[0] == paths[2] and paths[1] == paths[3] and paths[0] != paths[1]
    publish(store, commit(store, 0, content="b", tables={"events": 1}), replace=True)
    version = store.newest("run")
    assert version is not None
    assert Scan(next(iter(paths[0])), (1,), 1) in version.scan_plan("data_quality")
    assert store.verify() == []


def test_a_common_table_is_a_conflict_unless_it_is_to_be_replaced(store: Store) -> None:
    trace, timeline = commit(store, 0), commit(store, 0, content="m", tables=TIMELINE)
    publish(store, trace, timeline)
    other = commit(store, 0, content="b", tables={"events": 1} | TIMELINE)
    assert publish(store, other) == {"conflict"}
    assert publish(store, other, replace=True) == {"replaced"}
    version = store.newest("run")
    assert version is not None and version.sources == (other,)


def test_a_source_without_rows_has_no_neighbor(store: Store) -> None:
    publish(store, commit(store, 0, tables={}))
    assert publish(store, commit(store, 0, content="b")) == {"conflict"}


def test_digest_and_part_say_which_source_it_is(store: Store) -> None:
    one = commit(store, 0, part="pid 1", tables={"events": 4})
    other = commit(store, 0, part="pid 2", tables=TIMELINE)
    assert one.digest == other.digest
    assert publish(store, one, other) == {"added"}
    assert publish(store, commit(store, 0, part="pid 2", tables=TIMELINE)) == {"same"}


@pytest.mark.parametrize(
    ("change", "came"),
    [
        ({"definitions": {"events": 2, "kernels": 1}}, "replaced"),
        ({"definitions": {"events": 1, "kernels": 1, "steps": 1}}, "replaced"),
        ({"definitions": {"events": 1}}, "same"),
        ({"format": "nsys"}, "replaced"),
        ({"format_version": 2}, "replaced"),
    ],
)
def test_another_way_to_read_it_replaces_a_source(store: Store, change: dict[str, Any], came: str) -> None:
    publish(store, commit(store, 0))
    with store.staging() as folder:
        made = replace(staged(folder, 0), uid="f" * 16, **change)
        assert publish(store, store.commit([made])[0]) == {came}


def test_the_hash_behind_results_moves_with_what_was_read_and_not_with_the_commit(store: Store) -> None:
    def source(*sources: RankSource) -> str:
        publish(store, *sources, replace=True)
        version = store.newest("run")
        assert version is not None
        return version.source

    first = source(commit(store, 0))
    assert source(commit(store, 0, content="b")) != first
    assert source(commit(store, 0)) == first
    assert source(commit(store, 0, reader=2)) != first


def test_a_waiting_run_counts_ranks_and_not_sources(store: Store) -> None:
    publish(store, commit(store, 0), expected_ranks=2)
    assert publish(store, commit(store, 0, content="m", tables=TIMELINE), expected_ranks=2) == {"pending"}
    assert publish(store, commit(store, 1), expected_ranks=2) == {"added"}
    version = store.newest("run")
    assert version is not None and len(version.sources) == 3


# Packed before they are committed


def packed(folder: Path, ranks: tuple[int, ...], rows: int = 5) -> list[Staged]:
    """Ranks whose events are in one file."""
    path = folder / "packed.parquet"
    columns = {"run_id": ["run"] * rows * len(ranks), "rank": [one for one in ranks for _ in range(rows)]}
    pq.write_table(pa.table(columns | {"name": ["a"] * rows * len(ranks)}), path)
    table = StagedTable("events", 1, path, rows, rows * len(ranks), ranks)
    return [replace(staged(folder, rank, tables={}), tables=(table,)) for rank in ranks]


def test_a_packed_file_is_committed_as_it_is(store: Store) -> None:
    with store.staging() as folder:
        made = packed(folder, (3, 4, 7))
        data = made[0].tables[0].path.read_bytes()
        sources = store.commit(made)
    (path,) = {file.path for one in sources for file in one.files}
    assert store.path(path).read_bytes() == data
    assert len({one.commit for one in sources}) == 1
    assert sources[0].commit.startswith("000003-000007-")
    (file,) = sources[1].files
    assert (file.rows, file.file_rows, file.file_ranks) == (5, 15, 3)
    assert (file.first_rank, file.last_rank) == (3, 7)
    publish(store, *sources)
    assert seen(store) == {rank: ["a"] * 5 for rank in (3, 4, 7)}
    assert store.verify() == []


def test_a_packed_file_of_more_than_a_commits_ranks_stays_with_one(store: Store) -> None:
    with store.staging() as folder:
        sources = store.commit(packed(folder, tuple(range(70)), rows=1))
    assert len({one.commit for one in sources}) == 1


def test_a_packed_file_that_is_not_what_was_announced_is_refused(store: Store) -> None:
    with store.staging() as folder:
        made = packed(folder, (0, 1))
        with pytest.raises(ValueError, match="rows of ranks"):
            store.commit(made[:1])
    assert not (store.folder / "data").exists()


# Committed twice


def test_a_task_that_runs_twice_gives_the_commit_of_the_first_time(store: Store) -> None:
    with store.staging() as folder:
        first = store.commit([staged(folder, rank) for rank in (0, 1)])
    with store.staging() as folder:
        again = store.commit([staged(folder, rank) for rank in (0, 1, 70)][:2])
    assert again == first
    assert len(list((store.folder / "_tw" / "commits" / "run").iterdir())) == 1


@pytest.mark.parametrize("why", ["published", "waiting", "file gone", "other rows"])
def test_a_commit_that_cannot_be_used_again_is_made_again(store: Store, why: str) -> None:
    first = commit(store, 0)
    if why == "published":
        publish(store, first)
    if why == "waiting":
        publish(store, first, expected_ranks=2)
    if why == "file gone":
        store.path(first.files[0].path).unlink()
    tables = {"events": 39, "kernels": 12} if why == "other rows" else None
    assert commit(store, 0, tables=tables).name != first.name


def test_everything_left_is_found_by_one_look(store: Store) -> None:
    with store.staging() as folder:
        left = store.commit([staged(folder, rank) for rank in range(3)])
    publish(store, commit(store, 9))
    assert store.unpublished("run") == left
    publish(store, *left)
    assert store.unpublished("run") == ()


def test_the_header_is_in_the_commit_alone(store: Store) -> None:
    source = commit(store, 0)
    publish(store, source)
    assert store.headers([source]) == {source.name: '{"a": 1}'}
    assert b'{\\"a\\": 1}' not in store.path("_tw/versions/run/000001.json").read_bytes()
    assert "header" not in source.facts
