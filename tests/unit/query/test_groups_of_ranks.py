"""Analyses by groups of ranks, and as map and reduce, have the rows of the whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sketch
import tracewarehouse as tw
from conftest import ROOT, deep
from object_store import BUCKET, s3_server
from tracewarehouse import engines
from tracewarehouse.engines import LocalEngine
from tracewarehouse.errors import WarehouseError
from tracewarehouse.query import connections, distributed
from tracewarehouse.query.connections import is_by_rank
from tracewarehouse.query.distributed import Spread, Wanted, mapped_views, rows_of
from tracewarehouse.query.relations import Dependencies
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.readable import with_capabilities
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.warehouse import Warehouse

CATALOG = Warehouse("nowhere").catalog
BY_RANK = {
    each.name for each in CATALOG.analyses() if is_by_rank(each, Dependencies.of(CATALOG, [each]).contracts)
}
MAPPED = {each.name for each in CATALOG.analyses() if mapped_views(CATALOG, each)}
# They read stored tables alone, or compare ranks of tables: they run by run.
WHOLE = {"recording", "straggler_causes"}
# No rank has what they need: snapshots of the allocator, hardware counters.
NO_DATA = {
    "cupti_counters",
    "fragmentation",
    "kernel_limits",
    "memory_by_category",
    "memory_category_curve",
    "oom_explained",
    "snapshot_allocations",
    "snapshot_curve",
    "snapshot_fragmentation",
    "snapshot_oom",
    "snapshot_peak",
}
# Sampled GPU metrics and an execution trace.
SAMPLED = """
sampled RANK call t1 cudaLaunchKernel 150 20 id=11
sampled RANK gpu s7 gemm 200 400 id=11
sampled RANK count "SMs Active [Throughput %]" 40 300
sampled RANK count "SMs Active [Throughput %]" 6RANK 500
"""
SAMPLED += "".join(
    f"sampled RANK op t1 aten::{name} {100 * at} 50 id={at}\nsampled RANK node {at} 0 aten::{name}\n"
    for at, name in enumerate(("mm", "add", "mul", "relu", "view"), start=1)
)
SAMPLE = ("temporal_breakdown", "host_bound", "stragglers", "slow_collectives", "quality")
OTHERS = sorted((BY_RANK | MAPPED | WHOLE) - set(SAMPLE))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A job with tensor and data parallelism, a slow rank and shifted clocks, with derived tables.

    And two small runs with what the simulator does not write.
    """
    folder = tmp_path_factory.mktemp("spread")
    tw.simulate(
        folder / "job",
        ranks=4,
        tensor=2,
        steps=3,
        layers=1,
        hidden=256,
        sequence=256,
        counters=True,
        injections=["slow-rank:rank=1,what=compute,factor=2", "clock:rank=2,offset_us=1500.25,drift_ppm=30"],
    )
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "job", jobs=1)
    warehouse.ingest(ROOT / "tests" / "data" / "flight-recorder", run="flight")
    sketch.write("".join(SAMPLED.replace("RANK", rank) for rank in "01"), folder)
    warehouse.ingest(folder / "sampled", jobs=1)
    for name in ("critical_path", "wait_attribution"):
        warehouse.derive(name, "job")
    return tw.open(folder / "warehouse").select(["job", "flight", "sampled"])


@pytest.fixture(scope="module")
def spread(simulated: Warehouse) -> Iterator[Spread]:
    with LocalEngine(1) as engine:
        yield Spread(simulated.store, CATALOG, Level.FOOTER, engine, part_events=1)


def test_every_analysis_that_can_be_spread_is_known() -> None:
    names = {each.name for each in CATALOG.analyses() if each.scope != "fleet"}
    assert not BY_RANK & MAPPED
    assert names - BY_RANK - MAPPED == WHOLE


def wanted(warehouse: Warehouse, name: str) -> Wanted:
    contract = CATALOG.get(name, kind="analysis")
    return Wanted(contract, {}, with_capabilities(contract, warehouse.selected()).selected)


@pytest.mark.parametrize("name", [*SAMPLE, *deep(*OTHERS)])
def test_merged_equals_whole(spread: Spread, simulated: Warehouse, name: str) -> None:
    one, whole = wanted(simulated, name), simulated.analyze(name)
    if name in NO_DATA:
        assert not one.selected and not len(whole)
    else:
        spread.compute([one])
        assert rows_of(spread.known[one.key]).equals(whole.table)


def test_the_sample_has_rows(simulated: Warehouse) -> None:
    sampled = ("execution_trace", "gpu_metrics")
    assert all(len(simulated.analyze(name)) for name in (*SAMPLE, *sampled))


TOGETHER = ("stragglers", "temporal_breakdown", "straggler_causes", "slow_collectives", "quality")


def tables(selection: Selection) -> list[pa.Table]:
    return [selection.analyze(name).table for name in TOGETHER]


def test_a_worker_has_the_rows_of_announced_analyses(simulated: Warehouse) -> None:
    with LocalEngine(1) as engine:
        spread = simulated.selection.on(engine)
        spread.will_read(map(CATALOG.get, TOGETHER))
        found = spread.in_worker(tables)
    assert spread.spread is not None and len(spread.spread.known) == len(TOGETHER)
    whole = tables(simulated.selection)
    assert [rows.equals(one) for rows, one in zip(found, whole, strict=True)] == [True] * len(whole)


@pytest.mark.deep
def test_findings_are_those_of_one_process(simulated: Warehouse) -> None:
    with LocalEngine(1) as engine:
        whole, spread = simulated.check(), simulated.on(engine).check()
    assert len(whole) and spread.table.equals(whole.table)
    assert (spread.notices, spread.skipped) == (whole.notices, whole.skipped)


@pytest.mark.deep
def test_pages_are_those_of_one_process(simulated: Warehouse) -> None:
    with LocalEngine(2) as engine:
        spread = simulated.on(engine)
        assert "".join(spread.report("job").html()) == "".join(simulated.report("job").html())
        assert "".join(spread.report_runs().html()) == "".join(simulated.report_runs().html())
        changed = spread.diff("job", "sampled").changes().line
        assert changed == simulated.diff("job", "sampled").changes().line


def test_many_rows_are_files_that_are_deleted(
    simulated: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "_INLINE_BYTES", 1)
    monkeypatch.setenv("TW_PARTS", str(tmp_path / "parts"))
    old = tmp_path / "parts" / "old"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    spread = simulated.on(LocalEngine(1))
    assert spread.analyze("temporal_breakdown").table.equals(simulated.analyze("temporal_breakdown").table)
    assert len([*(tmp_path / "parts").glob("*/*")]) == 1 and not old.exists()
    del spread
    assert list((tmp_path / "parts").iterdir()) == []


def test_parts_that_are_not_shared_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WarehouseError, match="it is not here"):
        distributed.GroupRows(path=tmp_path / "absent.parquet").read()
    (tmp_path / "file").touch()
    for name in (str(tmp_path / "file"), "s3://bucket/parts"):
        monkeypatch.setenv("TW_PARTS", name)
        with pytest.raises(WarehouseError, match="TW_PARTS"):
            distributed.parts_folder(on_this_machine=False)


def test_without_a_shared_folder_parts_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TW_PARTS", raising=False)
    assert distributed.parts_folder(on_this_machine=False) is None


@pytest.mark.deep
def test_worker_processes_read_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tw.simulate(tmp_path / "job", ranks=4, tensor=2, steps=2, layers=2, hidden=256, sequence=256)
    with s3_server() as server, LocalEngine(2) as engine:
        for name, value in {**server.environment, "TW_MIRROR": str(tmp_path / "mirror")}.items():
            monkeypatch.setenv(name, value)
        warehouse = tw.open(f"s3://{BUCKET}/engine")
        warehouse.ingest(tmp_path / "job", engine=engine)
        warehouse.derive("critical_path", "job", engine=engine)
        for name in ("temporal_breakdown", "stragglers", "critical_path_breakdown"):
            spread, whole = warehouse.on(engine).analyze(name), warehouse.analyze(name)
            assert len(whole) and spread.table.equals(whole.table)


def test_notices_name_the_engine_that_pays(simulated: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    few = simulated.on("local").analyze("temporal_breakdown").notices
    monkeypatch.setattr(engines, "MANY_EVENTS", 1_000)
    monkeypatch.setattr(connections, "BATCH_EVENTS", 1_000)
    many = simulated.analyze("temporal_breakdown").notices
    assert not any("events are" in line for line in few)
    assert [line for line in many if 'events are many: engine="ray" spreads them' in line]
