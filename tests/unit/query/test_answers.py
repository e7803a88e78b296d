"""An analysis has the same rows as one statement, over views, and in batches of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import ROOT, deep
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.duck.engine import execute
from tracewarehouse.query import connections
from tracewarehouse.query.connections import connection
from tracewarehouse.warehouse import Warehouse

DATA = ROOT / "tests" / "data"
ANALYSES = [contract.name for contract in Catalog.load().analyses()]
# Findings read other analyses: a few are always tested, and every eighth one of the others.
FINDINGS = [each.name for each in Catalog.load().analyses() if "/findings/" in each.source]
OTHERS = [each for each in ANALYSES if each not in FINDINGS]
RARELY = [*FINDINGS[2:], *[each for at, each in enumerate(OTHERS) if at % 8]]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one with GPUs and two ranks, one with collectives of a host backend and four ranks."""
    folder = tmp_path_factory.mktemp("answers") / "warehouse"
    tw.open(folder).ingest(DATA / "first-steps", DATA / "gloo-cpu", jobs=1)
    return folder


@pytest.fixture(scope="module")
def warehouses(house: Path) -> tuple[Warehouse, Warehouse]:
    """One for queries over all ranks, which keeps views between tests, and one for queries in batches."""
    return tw.open(house), tw.open(house)


@pytest.mark.parametrize("name", [*(each for each in ANALYSES if each not in RARELY), *deep(*RARELY)])
def test_rows_do_not_depend_on_how_they_are_computed(
    warehouses: tuple[Warehouse, Warehouse], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh, in_batches = warehouses
    contract, first = wh.catalog.get(name), wh.analyze(name)
    whole = first.arrow()
    monkeypatch.setattr(connections, "BATCH_EVENTS", 1)
    assert in_batches.analyze(name).arrow().equals(whole)
    if not first.skipped:
        with connection(wh.store, wh.catalog, wh.selected(), [contract]) as con:
            assert execute(con, contract, {}).equals(whole)


def test_many_ranks_are_queried_in_batches(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selected, contract = tw.open(house).selected(), Catalog.load().get("temporal_breakdown")
    assert len(connections.rank_batches(contract, (), selected)) == 1
    monkeypatch.setattr(connections, "BATCH_EVENTS", 1)
    parts = connections.rank_batches(contract, (), selected)
    ranks = [(each.run, rank) for part in parts for each in part for rank in each.ranks]
    assert len(parts) == len(ranks) == sum(len(each.ranks) for each in selected)
    assert sorted(ranks) == ranks
