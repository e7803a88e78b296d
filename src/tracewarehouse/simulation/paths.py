"""Time along the critical path to a point in time, by cause, and the waits that each rank causes.

A path is one integer with three sums of ns, so that updating it is one addition; the rest is host time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

COMPUTE_SHIFT, WAIT_SHIFT = 64, 128  # bits; data has the lowest ones
CAUSES = ("data", "host", "compute", "communication")

Parts = tuple[int, int, int, int]  # ns by cause


def earlier(path: int, ns: int) -> int:
    """The path to a time `ns` earlier, on a stream that computed throughout."""
    return path - (min(ns, path >> COMPUTE_SHIFT & (1 << COMPUTE_SHIFT) - 1) << COMPUTE_SHIFT)


def parts(path: int, at_ns: int) -> Parts:
    """Time up to a point in time, by cause."""
    low = (1 << COMPUTE_SHIFT) - 1
    data, compute, waited = path & low, path >> COMPUTE_SHIFT & low, path >> WAIT_SHIFT
    return data, at_ns - data - compute - waited, compute, waited


@dataclass
class _PendingCollective:
    """A collective before all its ranks have arrived: the last arrival so far, and sums over ranks."""

    ranks: int = 0
    waited_ns: int = 0
    least_ns: int = 0
    rank: int = -1
    last: Parts = (0, 0, 0, 0)
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


class WaitAttribution:
    """Attributes waits at collectives to the last rank, by cause since the previous collective."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, int], _PendingCollective] = defaultdict(_PendingCollective)
        self.counts: dict[int, int] = defaultdict(int)
        self.caused: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def add(self, rank: int, group: str, number: int, size: int, wait_ns: int, since: Parts) -> None:
        """Adds a rank's wait at a collective; the rank with the shortest wait arrived last."""
        pending = self.open[group, number]
        if pending.ranks == 0 or wait_ns < pending.least_ns:
            pending.rank, pending.least_ns, pending.last = rank, wait_ns, since
        pending.ranks += 1
        pending.waited_ns += wait_ns
        for cause, ns in enumerate(since):
            pending.sums[cause] += ns
        if pending.ranks == size:
            self._close(self.open.pop((group, number)))

    def _close(self, pending: _PendingCollective) -> None:
        self.counts[pending.rank] += 1
        caused = self.caused[pending.rank]
        for cause, ns in enumerate(pending.last):
            caused[cause] += pending.ranks * ns - pending.sums[cause]

    def rows(self) -> list[tuple[object, ...]]:
        """(rank, collectives at which it was last, wait caused in ns, the same by cause, main cause)."""
        worst = sorted(self.counts, key=lambda rank: (-sum(self.caused[rank]), rank))
        return [self._row(rank) for rank in worst]

    def _row(self, rank: int) -> tuple[object, ...]:
        caused = self.caused[rank]
        main = CAUSES[caused.index(max(caused))] if any(caused) else None
        return (rank, self.counts[rank], sum(caused), *caused, main)
