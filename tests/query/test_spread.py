"""Analyses by groups of ranks, and as map and reduce, have the rows of the whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tracewarehouse as tw
from conftest import ROOT, deep
from tracewarehouse.engines import LocalEngine
from tracewarehouse.query.dependencies import Dependencies
from tracewarehouse.query.rank_batches import is_by_rank
from tracewarehouse.query.spread import Spread, mapped_views
from tracewarehouse.runs.capabilities import with_capabilities
from tracewarehouse.storage.file_check import Level
from tracewarehouse.warehouse import Warehouse

CATALOG = Warehouse("nowhere").catalog
BY_RANK = {
    each.name for each in CATALOG.analyses() if is_by_rank(each, Dependencies.of(CATALOG, [each]).contracts)
}
MAPPED = {each.name for each in CATALOG.analyses() if mapped_views(CATALOG, each)}
# They read stored tables alone, or compare ranks of tables.
WHOLE = {"straggler_causes"}
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
SAMPLE = ("temporal_breakdown", "host_bound", "stragglers", "slow_collectives", "quality")
OTHERS = sorted((BY_RANK | MAPPED) - set(SAMPLE))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A job with tensor and data parallelism, a slow rank and shifted clocks, with derived tables."""
    folder = tmp_path_factory.mktemp("spread")
    tw.simulate(
        folder / "job",
        ranks=4,
        tensor=2,
        steps=3,
        layers=2,
        hidden=256,
        sequence=256,
        counters=True,
        injections=["slow-rank:rank=1,what=compute,factor=2", "clock:rank=2,offset_us=1500.25,drift_ppm=30"],
    )
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "job")
    warehouse.ingest(ROOT / "tests" / "data" / "flight-recorder", run="flight")
    for name in ("critical_path", "blame"):
        warehouse.derive(name, "job")
    return tw.open(folder / "warehouse").select(["job", "flight"])


@pytest.fixture(scope="module")
def spread(simulated: Warehouse) -> Iterator[Spread]:
    with LocalEngine(1) as engine:
        yield Spread(simulated.store, CATALOG, engine, Level.FOOTER, part_events=1)


def test_every_analysis_that_can_be_spread_is_known() -> None:
    names = {each.name for each in CATALOG.analyses()}
    assert not BY_RANK & MAPPED
    assert names - BY_RANK - MAPPED == WHOLE


@pytest.mark.parametrize("name", [*SAMPLE, *deep(*OTHERS)])
def test_merged_equals_whole(spread: Spread, simulated: Warehouse, name: str) -> None:
    contract = CATALOG.get(name, kind="analysis")
    selected = with_capabilities(contract, simulated.selected()).selected
    merged, whole = spread.run(contract, {}, selected), simulated.run(name)
    if name in NO_DATA:
        assert merged is None and not len(whole)
    else:
        assert merged is not None and merged.equals(whole.table)


def test_the_sample_has_rows(simulated: Warehouse) -> None:
    assert all(len(simulated.run(name)) for name in SAMPLE)
