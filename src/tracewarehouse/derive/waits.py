"""Waits of ranks for other ranks, and how long a rank waited for each of them between two times.

A wait that the rank's own computation hides, in a send say, delays nothing, unless it moves the transfer
beyond that computation. On the same stream it delays what is queued behind it, whatever the rank computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracewarehouse.derive.intervals import Union, at, expand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.derive.blame_inputs import Arrivals

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

NO_STREAM = -1
_MOST_ROWS = 4_000_000  # waits that are looked at together; bounds memory


@dataclass(frozen=True)
class Queries:
    """Between which times the waits of a rank are wanted; a rank below 0 has none.

    Waits on `stream` count as a whole, others as far as the rank did not compute.
    """

    rank: Integers
    stream: Integers
    from_ns: Integers
    to_ns: Integers

    def distinct(self) -> tuple[Queries, Integers]:
        """Each query once, and for every query its place among them."""
        order = np.lexsort((self.to_ns, self.from_ns, self.stream, self.rank))
        columns = [column[order] for column in (self.rank, self.stream, self.from_ns, self.to_ns)]
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.cumsum(is_new) - 1
        return Queries(*(column[is_new] for column in columns)), place


@dataclass(frozen=True)
class PartnerWaits:
    """Waits by query and partner, sorted by both: total length, latest end, and whether all are certain."""

    query: Integers
    partner: Integers
    wait_ns: Integers
    end_ns: Integers
    stream: Integers  # where the partner arrived at the latest end
    certain: Flags

    def per(self, place: Integers) -> PartnerWaits:
        """The waits of distinct queries for all queries; `place` as in `Queries.distinct`."""
        first = np.searchsorted(self.query, place, side="left")
        owner, index = expand(first, np.searchsorted(self.query, place, side="right") - first)
        _, *columns = (column[index] for column in vars(self).values())
        return PartnerWaits(owner, *columns)


@dataclass(frozen=True)
class Waits:
    """All waits of all ranks, by rank and start."""

    span: int
    rank: Integers
    stream: Integers
    start_ns: Integers
    end_ns: Integers
    left_ns: Integers  # when the rank left the collective: after the wait and the transfer
    partner: Integers
    partner_stream: Integers
    certain: Flags
    reached: Integers  # rank and latest end so far
    computation: Union

    @classmethod
    def of(cls, arrivals: Arrivals, computation: Union) -> Waits:
        """The waits of a run that are longer than 0."""
        is_last = arrivals.rank == arrivals.last
        last_stream = np.full(arrivals.instances, NO_STREAM)
        last_stream[arrivals.instance[is_last]] = arrivals.stream[is_last]
        order = np.lexsort((arrivals.start_ns, arrivals.rank))
        order = order[(arrivals.wait_ns > 0)[order] & ~is_last[order]]
        rank, start_ns = arrivals.rank[order], arrivals.start_ns[order]
        end_ns = start_ns + arrivals.wait_ns[order]
        return cls(
            arrivals.span_ns,
            rank,
            arrivals.stream[order],
            start_ns,
            end_ns,
            start_ns + arrivals.dur_ns[order],
            arrivals.last[order],
            last_stream[arrivals.instance[order]],
            ~arrivals.is_possible[order],
            np.maximum.accumulate(at(arrivals.span_ns, rank, end_ns)),
            computation,
        )

    def by_partner(self, queries: Queries, ranks: int) -> PartnerWaits:
        """How long each rank waited for each partner between two times; `ranks` is the number of ranks."""
        wanted, place = queries.distinct()
        parts = list(self._parts(wanted, ranks))
        joined = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("query", "partner", "wait_ns", "end_ns", "stream", "certain")
        )
        return PartnerWaits(*joined).per(place)

    def _parts(self, wanted: Queries, ranks: int) -> Iterator[PartnerWaits]:
        """The waits of distinct queries, some queries at a time."""
        first = np.searchsorted(self.reached, at(self.span, wanted.rank, wanted.from_ns), side="right")
        starts = at(self.span, self.rank, self.start_ns)
        last = np.searchsorted(starts, at(self.span, wanted.rank, wanted.to_ns), side="left")
        count = np.where((wanted.rank >= 0) & (wanted.to_ns > wanted.from_ns), np.maximum(last - first, 0), 0)
        edges = np.searchsorted(np.cumsum(count), np.arange(0, count.sum() + 1, _MOST_ROWS), side="right")
        bounds = np.unique(np.concatenate(([0], edges, [len(count)])))
        for low, high in zip(bounds[:-1], bounds[1:], strict=True):
            owner, index = expand(first[low:high], count[low:high])
            yield self._grouped(wanted, owner + low, index, ranks)
        if len(bounds) < 2:
            yield self._grouped(wanted, *expand(first, count), ranks)

    def _grouped(self, wanted: Queries, query: Integers, index: Integers, ranks: int) -> PartnerWaits:
        begin = np.maximum(self.start_ns[index], wanted.from_ns[query])
        end = np.minimum(self.end_ns[index], wanted.to_ns[query])
        length = self._lengths(wanted, query, index, begin, end)
        kept = length > 0
        query, index, end, length = query[kept], index[kept], end[kept], length[kept]
        key = query * ranks + self.partner[index]
        order = np.lexsort((self.partner_stream[index], end, key))
        key, index, end, length = key[order], index[order], end[order], length[order]
        (first,) = np.nonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
        if not len(first):
            return PartnerWaits(first, first, first, first, first, np.zeros(0, dtype=bool))
        last = np.append(first[1:], len(key)) - 1
        return PartnerWaits(
            key[first] // ranks,
            key[first] % ranks,
            np.add.reduceat(length, first),
            end[last],
            self.partner_stream[index[last]],
            np.logical_and.reduceat(self.certain[index], first),
        )

    def _lengths(
        self, wanted: Queries, query: Integers, index: Integers, begin: Integers, end: Integers
    ) -> Integers:
        """How long waits delayed what came next."""
        length: Integers = end - begin
        (other,) = np.nonzero((length > 0) & (self.stream[index] != wanted.stream[query]))
        rank, begin = self.rank[index[other]], begin[other]
        left = np.minimum(self.left_ns[index[other]], wanted.to_ns[query[other]])
        exposed = left - begin - self.computation.within(rank, begin, left)
        length[other] = np.minimum(length[other], exposed)
        return length
