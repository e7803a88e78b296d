"""`verify` finds every kind of damage; `clean` deletes unreachable files only."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from storage_sources import commit, seen, staged
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import results, verify
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.model import Changes, StagedTable
from tracewarehouse.storage.results import Recorded, write_result
from tracewarehouse.storage.store import Store

DAY_S = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A warehouse with two versions of one run: ranks 0 and 1 packed, then rank 1 replaced."""
    store = Store.open_or_create(tmp_path / "warehouse")
    with store.staging() as folder:
        sources = store.commit([staged(folder, rank) for rank in (0, 1)])
    store.publish("run", Changes(sources=sources))
    store.publish("run", Changes(sources=(commit(store, 1, content="b"),), replace=True))
    return store


def data(store: Store) -> list[Path]:
    return sorted((store.folder / "data").rglob("*.parquet"))


def commits(store: Store) -> list[Path]:
    return sorted((store.folder / "_tw" / "commits").rglob("*.json"))


def flip(path: Path) -> None:
    """One bit of one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda store: data(store)[0].unlink(), "file missing"),
        (lambda store: shorten(data(store)[0]), "bytes,"),
        (lambda store: flip(data(store)[0]), "checksum differs"),
        (lambda store: commits(store)[0].unlink(), "commit missing"),
        (lambda store: commits(store)[0].write_text("{"), "damaged commit"),
        (lambda store: shorten(store.folder / "_tw/versions/run/000002.json"), "damaged version"),
        (lambda store: (store.folder / "_tw/versions/run/000001.json").write_bytes(b""), "damaged version"),
    ],
)
def test_verify_finds_damage(store: Store, damage: Callable[[Store], None], what: str) -> None:
    assert store.verify() == []
    damage(store)
    found = store.verify()
    assert [problem for problem in found if what in problem.what], found
    assert all(problem.run == "run" for problem in found)


def test_verify_finds_a_missing_version_and_a_strange_one(store: Store) -> None:
    folder = store.folder / "_tw" / "versions" / "run"
    shutil.copy(folder / "000002.json", folder / "000004.json")
    assert {(problem.path, problem.what) for problem in store.verify()} == {
        ("_tw/versions/run/000003.json", "version missing"),
        ("_tw/versions/run/000004.json", "says it is run@v2"),
    }


def test_a_damaged_version_is_reported_to_readers(store: Store) -> None:
    shorten(store.folder / "_tw/versions/run/000002.json")
    with pytest.raises(WarehouseError, match=r"000002\.json: damaged version"):
        Store.open(store.folder).newest("run")
    assert Store.open(store.folder).get("run", 1).ranks == (0, 1)


def test_foreign_files_are_ignored(store: Store) -> None:
    for name in ("_tw/versions/.DS_Store", "_tw/versions/run/000009.json~", "_tw/commits/run/Thumbs.db"):
        (store.folder / name).write_text("x")
    (store.folder / "_tw" / "versions" / "Not A Run").mkdir()
    assert store.runs() == ("run",)
    assert store.versions("run") == (1, 2)
    assert store.verify() == []
    clean(store, -1)
    assert set(seen(store)) == {0, 1}


def age(store: Store, seconds: float) -> None:
    """Makes all files older."""
    then = time.time() - seconds
    for path in store.folder.rglob("*"):
        os.utime(path, (then, then))


def tree(store: Store) -> set[str]:
    return {str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()}


def test_clean_keeps_every_version_of_a_present_run(store: Store) -> None:
    age(store, 2 * DAY_S)
    before = tree(store)
    assert clean(store, DAY_S).files == 0
    assert tree(store) == before
    assert store.get("run", 1).ranks == (0, 1)


def test_clean_deletes_old_orphans_and_keeps_young_ones(store: Store) -> None:
    published = tree(store)
    commit(store, 5)
    stray = store.folder / "data" / "events" / "run" / "000009-dead-beef.parquet"
    stray.write_bytes(b"cut short")
    (store.folder / "_tw" / "staging" / "dead" / "deeper").mkdir(parents=True)
    (store.folder / "_tw" / "staging" / "dead" / "deeper" / "half.parquet").write_bytes(b"half")
    (store.folder / "_tw" / "staging" / "x.tmp").write_bytes(b"half")
    littered = tree(store)
    assert clean(store, DAY_S).files == 0
    assert tree(store) == littered
    age(store, 2 * DAY_S)
    young = commit(store, 6)
    report = clean(store, DAY_S)
    assert report.files == 6
    assert report.bytes > 0
    kept = {f"_tw/commits/run/{young.commit}", *(file.path for file in young.files)}
    assert tree(store) == published | kept
    assert store.verify() == []


def test_clean_keeps_results_inbox_and_the_shell_file(store: Store) -> None:
    for name in ("results/gpu_busy@1/run/x.parquet", "inbox/run/rank0.json.gz", "warehouse.duckdb"):
        (store.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (store.folder / name).write_bytes(b"x")
    age(store, 2 * DAY_S)
    assert clean(store, DAY_S).files == 0


def test_clean_keeps_what_waits_and_deletes_the_first_form_of_its_commit(store: Store) -> None:
    source = commit(store, 0, run="slow")
    store.publish("slow", Changes(sources=(source,), expected_ranks=2))
    age(store, 2 * DAY_S)
    assert clean(store, DAY_S).files == 1
    assert not (store.folder / "_tw/commits/slow" / source.commit).exists()
    store.publish("slow", Changes(sources=(commit(store, 1, run="slow"),), expected_ranks=2))
    assert set(seen(store, "slow")) == {0, 1}
    assert not (store.folder / "_tw/index/waiting/slow.json").exists()
    sources = store.head("slow").sources
    assert store.headers(sources).keys() == {one.name for one in sources}
    assert clean(store, DAY_S).files == 0
    assert store.verify() == []


def test_a_removed_run_is_deleted_after_its_grace_period_and_its_numbers_are_not_reused(store: Store) -> None:
    store.remove("run")
    age(store, 2 * DAY_S)
    clean(store, DAY_S)
    assert store.get("run", 1).ranks == (0, 1)
    report = clean(store, -1)
    assert report.versions == 2
    # The newest version says first that earlier ones are gone; the removal before it goes with the next call.
    assert tree(store) == {
        "_tw/warehouse.json",
        "_tw/versions/run/000003.json",
        "_tw/versions/run/000004.json",
        "_tw/index/runs/run.json",
    }
    assert store.get("run", 4).kept_from == 4
    assert store.verify() == []
    assert clean(store, -1).versions == 1
    assert store.versions("run") == (4,)
    store.publish("run", Changes(sources=(commit(store, 0),)))
    assert store.versions("run") == (4, 5)
    assert store.verify() == []


def test_results_that_a_clean_deleted_are_not_missed_when_the_content_comes_back(store: Store) -> None:
    """One list names results of two runs, and an acknowledgement is listed beside them."""
    source = store.publish("other", Changes(sources=(commit(store, 0, run="other"),))).newest.source
    files = {}
    with store.staging() as folder:
        for run, content in (("run", store.head("run").source), ("other", source)):
            recorded = Recorded("step_summary", 1, run, "f" * 16, "0" * 8, content)
            write_result(folder / run, recorded, pa.table({"run_id": [run]}), {}, {})
            files[recorded] = folder / run
        store.keep_results(files)
    (of_run,) = (key for key in results.listed(store.objects) if "/run/" in key)
    store.remove("other")
    clean(store, -1)
    assert results.listed(store.objects) == {of_run}
    store.publish("other", Changes(sources=(commit(store, 0, run="other"),)))
    assert store.head("other").source == source
    assert store.verify() == []
    (store.folder / of_run).unlink()
    clean(store, -1)
    assert [problem.path for problem in store.verify()] == [of_run]


def test_what_a_clean_deletes_while_verify_reads_is_no_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The versions were read before the removal, the files are looked at after it."""
    looks = []

    def stored_faults(*arguments: Any) -> Any:
        if not looks:
            store.remove("run")
            clean(store, -1)
        looks.append(faults(*arguments))
        return looks[-1]

    faults = verify.stored_faults
    monkeypatch.setattr(verify, "stored_faults", stored_faults)
    assert store.verify() == []
    assert set(looks[0].values()) == {"file missing"}


def test_a_table_name_never_becomes_a_path(store: Store) -> None:
    with store.staging() as folder:
        made = staged(folder, 0)
        hostile = StagedTable("../../x", 1, made.tables[0].path, made.tables[0].rows)
        with pytest.raises(ValueError, match="invalid table name"):
            store.commit([replace(made, tables=(hostile,))])
