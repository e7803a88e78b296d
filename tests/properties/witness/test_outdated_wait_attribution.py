"""Blame is of all ranks of a run: once another rank is ingested, it is out of date, as if there were none."""

from __future__ import annotations

from pathlib import Path

import pytest

import sketch
import tracewarehouse as tw
from tracewarehouse.warehouse import Warehouse

DP = '"Collective name"=allreduce "Process Group Name"=dp "Group size"=2 Seq=0'
PP = '"Process Group Name"=pp "Group size"=2 Seq=0'
TRACE = f"""
a 0 gpu s20 ncclDevKernel_SendRecv 100 160 "Collective name"=recv {PP}
a 0 gpu s20 ncclDevKernel_AllReduce 260 10 {DP}
a 1 gpu s7 gemm 100 150
a 1 gpu s20 ncclDevKernel_SendRecv 250 10 "Collective name"=send {PP}
a 2 gpu s20 ncclDevKernel_AllReduce 110 160 {DP}
a 3 gpu s7 gemm 0 10
"""


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A run whose wait_attribution is computed before its last rank is ingested."""
    folder = tmp_path_factory.mktemp("outdated")
    *first, last = sketch.write(TRACE, folder / "traces")
    wh = tw.open(folder / "w")
    wh.ingest(*first)
    wh.derive("wait_attribution", "a")
    assert (2, 1) in pairs(wh)
    wh.ingest(last)
    return wh


def pairs(wh: Warehouse) -> set[tuple[int, int]]:
    """The waiting ranks, each with the rank it waits for."""
    return {(row["rank"], row["for_rank"]) for row in wh.analyze("wait_matrix").rows()}


def test_outdated_wait_attribution_is_left_out(wh: Warehouse) -> None:
    """Rank 2 waits for rank 0, which waited for rank 1: attribution knows that rank 2 waits for rank 1."""
    assert wh.query("FROM wait_attribution").rows()
    assert pairs(wh) == {(0, 1), (2, 0)}


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The same simulated ranks as three runs: with attribution, with one that is out of date, and without."""
    folder = tmp_path_factory.mktemp("states")
    settings = {"ranks": 8, "tensor": 2, "steps": 4, "layers": 2, "hidden": 256, "sequence": 128}
    slow = ["slow-rank:rank=1,what=compute,factor=2", "slow-rank:rank=2,what=host,factor=2"]
    files = sorted(
        Path(each) for each in tw.simulate(folder / "job", seed=5, injections=slow, **settings).files
    )
    wh = tw.open(folder / "w")
    for run in ("current", "without"):
        wh.ingest(*files, run=run)
    wh.ingest(*files[:-1], run="outdated")
    for run in ("current", "outdated"):
        wh.derive("wait_attribution", run)
    wh.ingest(files[-1], run="outdated")
    return wh


@pytest.mark.parametrize("name", ["slow_rank", "stragglers", "wait_matrix"])
def test_outdated_wait_attribution_is_no_blame(states: Warehouse, name: str) -> None:
    assert len(states.query("SELECT DISTINCT run_id FROM wait_attribution").rows()) == 2
    rows = {
        run: [row for row in states.analyze(name).rows() if row["run_id"] == run]
        for run in ("current", "outdated", "without")
    }
    alone = {run: states.select(runs=[run]).analyze(name).rows() for run in rows}
    assert rows == alone
    without, outdated = ([{**row, "run_id": ""} for row in rows[run]] for run in ("without", "outdated"))
    assert outdated == without and len(rows["current"]) > 0
    assert [{**row, "run_id": ""} for row in rows["current"]] != without
