"""Waits of ranks for other ranks, and how long a rank waited for each of them between two times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracewarehouse.derive.intervals import at, expand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_MOST_ROWS = 4_000_000  # waits that are looked at together; bounds memory


@dataclass(frozen=True)
class Queries:
    """Between which times the waits of a rank are wanted; a rank below 0 has none."""

    rank: Integers
    from_ns: Integers
    to_ns: Integers

    def distinct(self) -> tuple[Queries, Integers]:
        """Each query once, and for every query its place among them."""
        order = np.lexsort((self.to_ns, self.from_ns, self.rank))
        columns = [column[order] for column in (self.rank, self.from_ns, self.to_ns)]
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
    certain: Flags

    def per(self, place: Integers) -> PartnerWaits:
        """The waits of distinct queries for all queries; `place` as in `Queries.distinct`."""
        first = np.searchsorted(self.query, place, side="left")
        owner, index = expand(first, np.searchsorted(self.query, place, side="right") - first)
        return PartnerWaits(
            owner, self.partner[index], self.wait_ns[index], self.end_ns[index], self.certain[index]
        )


@dataclass(frozen=True)
class Waits:
    """All waits of all ranks, by rank and start."""

    span: int
    rank: Integers
    start_ns: Integers
    end_ns: Integers
    partner: Integers
    certain: Flags
    reached: Integers  # rank and latest end so far

    @classmethod
    def of(
        cls,
        span: int,
        rank: Integers,
        start_ns: Integers,
        wait_ns: Integers,
        partner: Integers,
        certain: Flags,
    ) -> Waits:
        """The waits that are longer than 0."""
        order = np.lexsort((start_ns, rank))
        order = order[wait_ns[order] > 0]
        end_ns = (start_ns + wait_ns)[order]
        reached = np.maximum.accumulate(at(span, rank[order], end_ns))
        return cls(span, rank[order], start_ns[order], end_ns, partner[order], certain[order], reached)

    def by_partner(self, queries: Queries, ranks: int) -> PartnerWaits:
        """How long each rank waited for each partner between two times; `ranks` is the number of ranks."""
        wanted, place = queries.distinct()
        parts = list(self._parts(wanted, ranks))
        joined = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("query", "partner", "wait_ns", "end_ns", "certain")
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
        kept = end > begin
        query, index, begin, end = query[kept], index[kept], begin[kept], end[kept]
        key = query * ranks + self.partner[index]
        order = np.argsort(key, kind="stable")
        key, length, end, certain = key[order], (end - begin)[order], end[order], self.certain[index][order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
        if not len(first):
            return PartnerWaits(first, first, first, first, np.zeros(0, dtype=bool))
        return PartnerWaits(
            key[first] // ranks,
            key[first] % ranks,
            np.add.reduceat(length, first),
            np.maximum.reduceat(end, first),
            np.logical_and.reduceat(certain, first),
        )
