"""Tables of another version, rebuilt from stored events: nothing is lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from conftest import ROOT
from ingesting import files_under, take, write
from later_release import newer as newer
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck import engine
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.rebuild import (
    READ,
    Rebuild,
    stored_files,
    uid_of,
    upgrade,
)
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.simulation.allocator import MIB, Allocator, frames
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.store import Store


def rows(store: Store, version: RunVersion, table: str, number: int) -> list[tuple[object, ...]]:
    con = engine.connect()
    found: list[tuple[object, ...]] = []
    for scan in version.scan_plan(table, number):
        assert scan.ranks is None
        path = str(store.path(scan.path))
        sql = "SELECT rank, name FROM read_parquet(?, hive_partitioning = false) ORDER BY ALL"
        found += con.execute(sql, [path]).fetchall()
    con.close()
    return sorted(found, key=str)


def test_a_table_of_another_version_is_stored_beside_the_old_one(tmp_path: Path, newer: Catalog) -> None:
    write(tmp_path / "job", range(3))
    take(tmp_path / "wh", tmp_path / "job")
    store = Store.open(tmp_path / "wh")
    before = store.newest("job")
    assert before is not None
    assert upgrade(store, newer, ["job"]) == (("runtime@2 was rebuilt for job",), {})
    after = store.newest("job")
    assert after is not None and after.number == 2
    assert after.summary.tables["runtime"] == (1, 2)
    assert rows(store, after, "runtime", 2) == [
        (rank, "cudaLaunchKernel") for rank in range(3) for _ in range(3)
    ]
    for table in before.summary.tables:
        assert after.scan_plan(table, 1) == before.scan_plan(table, 1)
    assert store.verify() == []
    assert [source.facts["tables"]["runtime"] for source in after.sources] == [[1, 2]] * 3  # type: ignore[index]

    files = files_under(tmp_path / "wh")
    assert upgrade(store, newer, ["job"]) == ((), {})
    assert files_under(tmp_path / "wh") == files
    assert store.get("job", 1) == before


def test_the_same_trace_is_unchanged_after_an_upgrade(tmp_path: Path, newer: Catalog) -> None:
    write(tmp_path / "job")
    take(tmp_path / "wh", tmp_path / "job")
    upgrade(Store.open(tmp_path / "wh"), newer, ["job"])
    assert [file.state for file in take(tmp_path / "wh", tmp_path / "job").files] == ["same"]


def test_a_snapshot_is_rebuilt_from_its_tables(tmp_path: Path) -> None:
    device = Allocator(64 * MIB)
    device.malloc(3 * MIB, frames(("/env/torch/x.py", 1, "x"), ("train.py", 2, "step")))
    device.dump(tmp_path / "job_rank3.pickle")
    take(tmp_path / "wh", tmp_path / "job_rank3.pickle", run="job")
    store, catalog = Store.open(tmp_path / "wh"), Catalog.load()
    before = store.newest("job")
    assert before is not None
    (source,) = before.sources
    files = {table: stored_files(store, catalog, before, source, table) for table in READ}
    (tmp_path / "again").mkdir()
    staged = RankFiles(catalog, tmp_path / "again", False)
    task = Rebuild(source, "{}", files, tmp_path, catalog.folder)
    facts = task.build(rules_of(catalog.folder), partial(staged.add, "job", (3,)), tmp_path)
    assert {name: facts[name] for name in ("snapshot", "start_ns", "events")} == {
        name: source.facts[name] for name in ("snapshot", "start_ns", "events")
    }
    made = {table.table: table.rows for table in staged.staged("job")[3]}
    assert made == {file.table: file.rows for file in source.files}
    assert {"snapshot_events", "snapshot_segments", "snapshot_blocks", "snapshot_frames"} <= made.keys()


def test_a_rebuilt_table_equals_the_table_of_an_ingest(tmp_path: Path) -> None:
    write(tmp_path / "job", range(2))
    take(tmp_path / "wh", tmp_path / "job")
    store, catalog = Store.open(tmp_path / "wh"), Catalog.load()
    before = store.newest("job")
    assert before is not None
    stored = [contract for contract in catalog.tables() if contract.name in ("kernels", "runtime", "steps")]
    forgotten = {contract.name for contract in stored}

    for source in before.sources:
        task = Rebuild(
            source=source,
            header="{}",
            stored={table: stored_files(store, catalog, before, source, table) for table in READ},
            wanted=tuple(contract.ref for contract in stored),
            folder=tmp_path / f"again{source.rank}",
            sql=catalog.folder,
        )
        made = task.run(lambda *_: None)
        assert {table.table for table in made.tables} == forgotten
        con = engine.connect()
        for table in made.tables:
            (scan,) = before.scan_plan(table.table, table.version, [source.rank])
            both = [str(store.path(scan.path)), str(table.path)]
            for one, other in (both, both[::-1]):
                ranked = "FROM read_parquet(?, hive_partitioning = false) WHERE rank = ?"
                sql = f"SELECT count(*) FROM ({ranked} EXCEPT ALL {ranked})"
                assert con.execute(sql, [one, source.rank, other, source.rank]).fetchone() == (0,)
        con.close()


def test_a_rebuilt_rank_keeps_its_time_unit(tmp_path: Path) -> None:
    trace = ROOT / "tests" / "data" / "torch-cpu" / "threads.json.gz"
    take(tmp_path / "wh", trace, run="in-ns", time_unit="ns")
    store, catalog = Store.open(tmp_path / "wh"), Catalog.load()
    before = store.newest("in-ns")
    assert before is not None
    (source,) = before.sources
    files = {table: stored_files(store, catalog, before, source, table) for table in READ}
    header = store.headers([source])[source.name]
    staged = Rebuild(source, header, files, tmp_path / "again", catalog.folder).run(lambda *_: None)
    assert staged.facts["time_unit"] == "ns"
    assert staged.uid == source.uid != uid_of(source, {}, source.definitions)
