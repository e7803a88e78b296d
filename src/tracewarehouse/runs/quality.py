"""Rules of `data_quality` that only a whole run can break: its ranks, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tracewarehouse.exact_text import rank_list
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank, RunVersion


@dataclass(frozen=True)
class Fired:
    """A rule that fired, as a row of `data_quality`; rank None means the run."""

    run_id: str
    rank: int | None
    rule: str
    severity: str
    rows: int
    affected_ns: int | None
    example: str


def run_rules(selected: Iterable[SelectedRun]) -> list[Fired]:
    """What fired in the chosen runs. A run is judged whole, then what concerns other ranks is left out."""
    return [
        fired
        for each in selected
        for fired in _of_run(each.version)
        if fired.rank is None or fired.rank in each.ranks
    ]


def usual(values: Iterable[object]) -> int | None:
    """The number that occurs most, on a tie the one that comes first; None where there is none."""
    counts = Counter(value for value in values if isinstance(value, int))
    return counts.most_common(1)[0][0] if counts else None


def world_size(version: RunVersion) -> int | None:
    """The world size that most ranks name, on a tie the one that the lowest of them names."""
    return usual(rank.facts.get("world_size") for rank in version.by_rank)


def expected_ranks(version: RunVersion) -> int | None:
    """How many ranks were announced at ingest, else the world size."""
    return version.expected_ranks or world_size(version)


def _of_run(version: RunVersion) -> Iterator[Fired]:
    yield from _ranks_missing(version)
    yield from _world_size_differs(version)
    yield from _time_base_differs(version)
    yield from _rank_conflict(version)


def _ranks_missing(version: RunVersion) -> Iterator[Fired]:
    expected = expected_ranks(version)
    missing = set(range(expected or 0)) - set(version.ranks)
    if missing:
        example = f"ranks {rank_list(missing)} of {expected}"
        yield Fired(version.run, None, "ranks_missing", "warning", len(missing), None, example)


def _world_size_differs(version: RunVersion) -> Iterator[Fired]:
    most = world_size(version)
    for rank in version.by_rank:
        own = rank.facts.get("world_size")
        if isinstance(own, int) and own != most:
            yield _fired(rank, "world_size_differs", "warning", f"world size {own}, elsewhere {most}")


def _time_base_differs(version: RunVersion) -> Iterator[Fired]:
    """Bases are added to the times, so another base does no harm unless the windows lie apart.

    The times of a memory timeline have no base.
    """
    ranks = [rank for rank in version.by_rank if rank.main.format != "memory_timeline"]
    most = usual(rank.facts.get("base_time_ns") for rank in ranks)
    others = [rank for rank in ranks if rank.facts.get("base_time_ns") == most]
    for rank in ranks:
        own = rank.facts.get("base_time_ns")
        if isinstance(own, int) and own != most:
            severity = "info" if any(_meet(rank, other) for other in others) else "warning"
            yield _fired(rank, "time_base_differs", severity, f"base {own} ns, elsewhere {most} ns")


def _meet(one: Rank, other: Rank) -> bool:
    spans_ns = [(rank.facts.get("start_ns"), rank.facts.get("end_ns")) for rank in (one, other)]
    times = [time for span in spans_ns for time in span if isinstance(time, int)]
    return len(times) == 4 and times[0] <= times[3] and times[2] <= times[1]


def _rank_conflict(version: RunVersion) -> Iterator[Fired]:
    for rank in version.by_rank:
        said = _rank_in_file(rank)
        if said is not None and said != rank.rank:
            yield _fired(rank, "rank_conflict", "warning", f"the file says rank {said}")


def _rank_in_file(rank: Rank) -> int | None:
    said = rank.facts.get("rank_in_file")
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _fired(rank: Rank, rule: str, severity: str, example: str) -> Fired:
    return Fired(rank.run, rank.rank, rule, severity, 1, None, example)
