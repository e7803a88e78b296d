"""Beside a CUDA graph that was recorded as a whole, exposed communication is reported as information."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import tracewarehouse as tw
from nsys_writer import GRAPH_TABLE, SMALL_TABLES
from tracewarehouse.warehouse import Warehouse

PROCESSES: Final = [1 << 48 | (9 + rank) << 24 for rank in (0, 1)]
NAMES: Final = """
INSERT INTO StringIds VALUES
  (0, 'gemm'), (1, 'cudaLaunchKernel_v7000'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL');
"""


def export(path: Path, replays: int) -> Path:
    """Two ranks with half of their time in a collective; the first `replays` replay a graph beside it."""
    with closing(sqlite3.connect(path)) as con, con:
        con.executescript(SMALL_TABLES + GRAPH_TABLE + NAMES)
        for rank, process in enumerate(PROCESSES):
            launch = [(10, 20, process | 11, 5, 1), (20, 30, process | 11, 6, 1)]
            con.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", launch)
            kernels = [(100, 200, rank, 7, 5, process, 0), (200, 300, rank, 9, 6, process, 2)]
            con.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)", kernels)
        replayed = [(200, 300, rank, 7, 8, PROCESSES[rank], 3) for rank in range(replays)]
        con.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, ?, ?, ?)", replayed)
    return path


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Rank 0 of run a replays a graph; rank 1 and both ranks of run b do not."""
    folder = tmp_path_factory.mktemp("replays")
    wh = tw.open(folder / "w")
    for run, replays in (("a", 1), ("b", 0)):
        wh.ingest(export(folder / f"{run}.sqlite", replays), run=run)
    return wh


def test_only_the_rank_with_the_graph_is_uncertain(wh: Warehouse) -> None:
    # The file does not say how large the group is, so that a rank may be missing.
    rows = [row for row in wh.analyze("exposed_comm").rows() if row["subject"] == "unmatched"]
    found = {(row["run_id"], row["rank"]): row["severity"] for row in rows}
    assert found == {("a", 0): "info", ("a", 1): "critical", ("b", 0): "critical", ("b", 1): "critical"}
