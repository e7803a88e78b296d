"""The groups of sources that tasks read."""

from __future__ import annotations

from pathlib import Path

from tracewarehouse.formats.base import Part
from tracewarehouse.formats.kineto.format import KinetoFormat
from tracewarehouse.ingest.build import GROUP_BYTES, GROUP_RANKS, task_groups
from tracewarehouse.ingest.sources import Source, Target, TraceFile


def source(rank: int, text_bytes: int, run: str = "job") -> Source:
    """A source of a rank."""
    file = TraceFile(Path(f"rank{rank}"), named=False)
    return Source(file, KinetoFormat(), Part(), (1, 1), text_bytes, Target(run, rank))


def ranks(groups: list[tuple[Source, ...]]) -> list[list[int]]:
    """The ranks of each group."""
    return [[one.target.rank for one in group] for group in groups]


def test_small_ranks_of_a_run_share_a_task_and_every_process_has_one() -> None:
    sources = [source(rank, 1000) for rank in range(8)]
    assert ranks(task_groups(sources, 1)) == [list(range(8))]
    assert ranks(task_groups(sources, 2)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_task_has_limited_ranks_and_text() -> None:
    many = task_groups([source(rank, 10) for rank in range(2 * GROUP_RANKS + 1)], 1)
    assert sorted(map(len, many)) == [1, GROUP_RANKS, GROUP_RANKS]
    half = GROUP_BYTES // 2 + 1
    assert ranks(task_groups([source(rank, half) for rank in range(3)], 1)) == [[0], [1], [2]]


def test_the_largest_task_comes_first_and_runs_do_not_mix() -> None:
    sources = [source(0, 10, "a"), source(1, GROUP_BYTES * 2, "b"), source(2, 30, ""), source(3, 10, "a")]
    assert ranks(task_groups(sources, 1)) == [[1], [2], [0, 3]]
