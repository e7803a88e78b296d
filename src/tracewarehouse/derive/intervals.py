"""Intervals of many ranks in one array: unions, time within them, and look-ups by rank and time.

A rank and a time are one integer, `rank * span + time`, so that a search or a running maximum over all ranks
is one operation. Times are ns from the start of the run, below `span`; ranks are numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]


def at(span: int, rank: Integers, time_ns: Integers) -> Integers:
    """Rank and time as one integer; times outside the run are moved to its edge."""
    return rank * span + np.clip(time_ns, 0, span - 1)


def expand(first: Integers, count: Integers) -> tuple[Integers, Integers]:
    """For ranges of indexes: the number of the range and the index, for each index in each range."""
    count = np.maximum(count, 0)
    owner = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, np.repeat(first, count) + within


@dataclass(frozen=True)
class Union:
    """The union of intervals of each rank: disjoint, sorted, with the length of all earlier ones."""

    span: int
    start: Integers
    length: Integers
    before: Integers

    @classmethod
    def of(cls, span: int, rank: Integers, start_ns: Integers, end_ns: Integers) -> Union:
        """The union of these intervals."""
        first, last = at(span, rank, start_ns), at(span, rank, end_ns)
        order = np.argsort(first, kind="stable")
        first, reached = first[order], np.maximum.accumulate(last[order])
        is_new = np.ones(len(first), dtype=bool)
        is_new[1:] = first[1:] > reached[:-1]
        start = first[is_new]
        ends = np.flatnonzero(np.append(is_new[1:], True)) if len(first) else np.zeros(0, dtype=np.int64)
        length = reached[ends] - start
        return cls(span, start, length, np.cumsum(length) - length)

    def within(self, rank: Integers, from_ns: Integers, to_ns: Integers) -> Integers:
        """The time of the union between two times of a rank."""
        if not len(self.start):
            return np.zeros(len(rank), dtype=np.int64)
        until = self._until(at(self.span, rank, np.maximum(from_ns, to_ns)))
        return until - self._until(at(self.span, rank, from_ns))

    def _until(self, point: Integers) -> Integers:
        index = np.searchsorted(self.start, point, side="right") - 1
        known = np.maximum(index, 0)
        part = np.minimum(point - self.start[known], self.length[known])
        return np.where(index < 0, 0, self.before[known] + part)
