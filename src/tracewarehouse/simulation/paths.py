"""Why a moment came when it did: the time along the chain of what had to be waited for, by cause.

A path is a whole number that holds three sums of ns at once, so that keeping the books is an addition; what
is left of a moment is time of the host.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

COMPUTE_PLACE, WAIT_PLACE = 64, 128  # data lies lowest
CAUSES = ("data", "host", "compute", "communication")

Parts = tuple[int, int, int, int]  # ns by cause


def earlier(path: int, ns: int) -> int:
    """The path to a moment so much earlier, on a stream that computed all the while."""
    return path - (min(ns, path >> COMPUTE_PLACE & (1 << COMPUTE_PLACE) - 1) << COMPUTE_PLACE)


def parts(path: int, at_ns: int) -> Parts:
    """What the time up to a moment went into."""
    low = (1 << COMPUTE_PLACE) - 1
    data, compute, waited = path & low, path >> COMPUTE_PLACE & low, path >> WAIT_PLACE
    return data, at_ns - data - compute - waited, compute, waited


@dataclass
class _Meeting:
    """A collective while its ranks come in: who came last so far, and what all came to."""

    ranks: int = 0
    waited_ns: int = 0
    least_ns: int = 0
    rank: int = -1
    last: Parts = (0, 0, 0, 0)
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


class Waits:
    """Who keeps whom waiting, and why: what the last rank spent more than the others since they last met."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, int], _Meeting] = defaultdict(_Meeting)
        self.counts: dict[int, int] = defaultdict(int)
        self.caused: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def take(self, rank: int, group: str, number: int, size: int, wait_ns: int, since: Parts) -> None:
        """A rank's wait at a collective, and what it did since its group met; who waits least came last."""
        met = self.open[group, number]
        if met.ranks == 0 or wait_ns < met.least_ns:
            met.rank, met.least_ns, met.last = rank, wait_ns, since
        met.ranks += 1
        met.waited_ns += wait_ns
        for place, ns in enumerate(since):
            met.sums[place] += ns
        if met.ranks == size:
            self._close(self.open.pop((group, number)))

    def _close(self, met: _Meeting) -> None:
        self.counts[met.rank] += 1
        caused = self.caused[met.rank]
        for place, ns in enumerate(met.last):
            caused[place] += met.ranks * ns - met.sums[place]

    def rows(self) -> list[tuple[object, ...]]:
        """(rank, collectives it came last to, ns that others waited then, these by cause, the main cause)."""
        worst = sorted(self.counts, key=lambda rank: (-sum(self.caused[rank]), rank))
        return [self._row(rank) for rank in worst]

    def _row(self, rank: int) -> tuple[object, ...]:
        caused = self.caused[rank]
        main = CAUSES[caused.index(max(caused))] if any(caused) else None
        return (rank, self.counts[rank], sum(caused), *caused, main)
