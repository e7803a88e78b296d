"""Data-quality rules that compare the ranks of a run with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tracewarehouse.exact_text import rank_list
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank, RunVersion

# Formats that add to a rank, and a memory timeline: their times have no base.
_WITHOUT_BASE = ("memory_timeline", "memory_snapshot", "flight_recorder", "nsight_compute", "execution_trace")


@dataclass(frozen=True)
class QualityIssue:
    """A row of `data_quality`; rank None means the run."""

    run_id: str
    rank: int | None
    rule: str
    severity: str
    rows: int
    affected_ns: int | None
    example: str


def run_issues(selected: Iterable[SelectedRun]) -> list[QualityIssue]:
    """The issues of the selected runs and ranks. Rules always compare all ranks of a run."""
    return [
        issue
        for each in selected
        for issue in _issues(each.version)
        if issue.rank is None or issue.rank in each.ranks
    ]


def most_frequent(values: Iterable[object]) -> int | None:
    """The most frequent integer, ties by first occurrence; None without integers."""
    counts = Counter(value for value in values if isinstance(value, int))
    return counts.most_common(1)[0][0] if counts else None


def world_size(version: RunVersion) -> int | None:
    """The world size that most ranks record, ties by the lowest rank."""
    return most_frequent(rank.facts.get("world_size") for rank in version.by_rank)


def expected_ranks(version: RunVersion) -> int | None:
    """The number of ranks announced at ingest, else the world size."""
    return version.expected_ranks or world_size(version)


def _issues(version: RunVersion) -> Iterator[QualityIssue]:
    yield from _ranks_missing(version)
    yield from _world_size_differs(version)
    yield from _time_base_differs(version)
    yield from _rank_conflict(version)


def _ranks_missing(version: RunVersion) -> Iterator[QualityIssue]:
    expected = expected_ranks(version)
    missing = set(range(expected or 0)) - set(version.ranks)
    if missing:
        are = "rank {} of {} is missing" if len(missing) == 1 else "ranks {} of {} are missing"
        example = are.format(rank_list(missing), expected)
        yield QualityIssue(version.run, None, "ranks_missing", "warning", len(missing), None, example)


def _world_size_differs(version: RunVersion) -> Iterator[QualityIssue]:
    most = world_size(version)
    for rank in version.by_rank:
        own = rank.facts.get("world_size")
        if isinstance(own, int) and own != most:
            example = f"world size {own}, most ranks have {most}"
            yield _rank_issue(rank, "world_size_differs", "warning", example)


def _time_base_differs(version: RunVersion) -> Iterator[QualityIssue]:
    """The base is added to all times, so another one matters only if the profiling windows do not overlap.

    Times of files without activities have no base.
    """
    ranks = [rank for rank in version.by_rank if rank.main.format not in _WITHOUT_BASE]
    most = most_frequent(rank.facts.get("base_time_ns") for rank in ranks)
    others = [rank for rank in ranks if rank.facts.get("base_time_ns") == most]
    for rank in ranks:
        own = rank.facts.get("base_time_ns")
        if isinstance(own, int) and own != most:
            severity = "info" if any(_overlap(rank, other) for other in others) else "warning"
            example = f"base {own} ns, most ranks have {most} ns"
            yield _rank_issue(rank, "time_base_differs", severity, example)


def _overlap(one: Rank, other: Rank) -> bool:
    """Whether the profiling windows of two ranks overlap."""
    windows_ns = [(rank.facts.get("start_ns"), rank.facts.get("end_ns")) for rank in (one, other)]
    times = [time for window in windows_ns for time in window if isinstance(time, int)]
    return len(times) == 4 and times[0] <= times[3] and times[2] <= times[1]


def _rank_conflict(version: RunVersion) -> Iterator[QualityIssue]:
    for rank in version.by_rank:
        in_file = _rank_in_file(rank)
        if in_file is not None and in_file != rank.rank:
            yield _rank_issue(rank, "rank_conflict", "warning", f"the file says rank {in_file}")


def _rank_in_file(rank: Rank) -> int | None:
    found = rank.facts.get("rank_in_file")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _rank_issue(rank: Rank, rule: str, severity: str, example: str) -> QualityIssue:
    return QualityIssue(rank.run, rank.rank, rule, severity, 1, None, example)
