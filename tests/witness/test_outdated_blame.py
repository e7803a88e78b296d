"""Waits blamed on ranks are of all ranks of a run: after another rank is ingested, they are out of date."""

from __future__ import annotations

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
    """A run whose blame is computed before its last rank is ingested."""
    folder = tmp_path_factory.mktemp("outdated")
    *first, last = sketch.write(TRACE, folder / "traces")
    wh = tw.open(folder / "w")
    wh.ingest(*first)
    wh.derive("blame", "a")
    assert (2, 1) in pairs(wh)
    wh.ingest(last)
    return wh


def pairs(wh: Warehouse) -> set[tuple[int, int]]:
    """The waiting ranks, each with the rank it waits for."""
    return {(row["rank"], row["for_rank"]) for row in wh.run("wait_matrix").rows()}


def test_outdated_blame_is_left_out(wh: Warehouse) -> None:
    """Rank 2 waits for rank 0, which waited for rank 1: only blame knows that rank 2 waits for rank 1."""
    assert wh.query("FROM blame").rows()
    assert pairs(wh) == {(0, 1), (2, 0)}
