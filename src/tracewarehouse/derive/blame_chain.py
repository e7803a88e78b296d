"""Hands the waits at collectives on along the chain of ranks that were themselves late because they waited.

A rank is excused only for waiting that it did in excess of the rank that waits for it: ranks in a pipeline
wait by design, and their counterparts wait as long. A wait that computation hides does not excuse a rank
(`waits`). All lists of work are arrays; a level of the chain is one step, so the cost is that of sorting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tracewarehouse.derive.intervals import expand
from tracewarehouse.derive.waits import NO_STREAM, PartnerWaits, Queries, Waits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

MOST_HANDS = 12  # how often a wait is handed on at most
NO_RANK = -1
_BATCH = 200_000  # waits that are handed on together; bounds memory


@dataclass(frozen=True)
class Mates:
    """Which ranks share a group that synchronizes; a rank is a mate of itself."""

    groups: NDArray[np.uint8]  # the groups of each rank, as bits
    lowest_other: Integers  # the lowest other mate of each rank, or NO_RANK

    @classmethod
    def of(cls, ranks: int, group: Integers, rank: Integers) -> Mates:
        """The mates by membership in groups, which are numbered from 0."""
        members = np.unique(group * ranks + rank)
        group, rank = members // ranks, members % ranks
        member = np.zeros((ranks, int(group.max(initial=-1)) + 1), dtype=bool)
        member[rank, group] = True
        # The lowest rank of its group, for itself the second lowest.
        first = np.searchsorted(group, np.arange(member.shape[1]))
        low, second = (np.append(rank, [ranks, ranks])[first[group] + place] for place in range(2))
        second = np.where(np.append(group, [-1, -1])[first[group] + 1] == group, second, ranks)
        lowest = np.full(ranks, ranks, dtype=np.int64)
        np.minimum.at(lowest, rank, np.where(low == rank, second, low))
        return cls(np.packbits(member, axis=1), np.where(lowest < ranks, lowest, NO_RANK))

    def share(self, one: Integers, other: Integers) -> Flags:
        """Whether two ranks share a group, for pairs of ranks."""
        return np.asarray((one == other) | np.any(self.groups[one] & self.groups[other], axis=1))


@dataclass(frozen=True)
class Tasks:
    """Waits that are to be charged to `late`, or handed on by comparison with `other`."""

    root: Integers  # the wait at a collective that each is a part of
    late: Integers
    other: Integers  # who waited, or its counterpart; NO_RANK if there is none
    late_stream: Integers  # where each of both arrived at a collective
    other_stream: Integers
    from_ns: Integers
    late_to_ns: Integers
    other_to_ns: Integers
    amount_ns: Integers
    certain: Flags
    cause_from_ns: Integers  # since when both ranks are compared to find the cause

    def __len__(self) -> int:
        return len(self.root)

    def merged(self) -> Tasks:
        """Parts of a wait that reached the same comparison on several ways, as one.

        What one rank waited in excess of another one is then handed on once, and the number of parts does
        not multiply with each hand.
        """
        keys = [column for name, column in vars(self).items() if name != "amount_ns"]
        order = np.lexsort(keys)
        is_new = np.ones(len(order), dtype=bool)
        is_new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        first = np.flatnonzero(is_new)
        if len(first) == len(order):
            return self
        amount = np.add.reduceat(self.amount_ns[order], first)
        return replace(self[order[first]], amount_ns=amount)

    def __getitem__(self, index: Integers | Flags | slice) -> Tasks:
        return Tasks(*(column[index] for column in vars(self).values()))


@dataclass(frozen=True)
class Charged:
    """Waits that stay with a rank after `depth` hands."""

    tasks: Tasks
    depth: int
    wait_ns: Integers
    late_waits_ns: Integers  # what the rank itself waited for others
    other_waits_ns: Integers


@dataclass(frozen=True)
class Chain:
    """What a wait is handed on by: all waits, and which ranks do the same work."""

    waits: Waits
    mates: Mates
    ranks: int

    def charge(self, tasks: Tasks) -> Iterator[Charged]:
        """Each part of each wait with the rank it stays with. The parts of a wait add up to it."""
        for first in range(0, len(tasks), _BATCH):
            level = tasks[slice(first, first + _BATCH)]
            for depth in range(MOST_HANDS + 1):
                if not len(level):
                    break
                charged, level = self._level(level, depth)
                yield charged

    def _level(self, tasks: Tasks, depth: int) -> tuple[Charged, Tasks]:
        late = self._waits(tasks.late, tasks.late_stream, tasks.from_ns, tasks.late_to_ns)
        has_waits = np.zeros(len(tasks), dtype=bool)
        has_waits[late.query] = True
        # Without waits of the late rank nothing is compared: those of the other one need no search.
        compared = np.where(has_waits, tasks.other, NO_RANK)
        other = self._waits(compared, tasks.other_stream, tasks.from_ns, tasks.other_to_ns)
        excess = _Excess.of(self, tasks, late, other)
        most = np.minimum(tasks.amount_ns, excess.total_ns) if depth < MOST_HANDS else 0 * tasks.amount_ns
        charged = Charged(
            tasks,
            depth,
            tasks.amount_ns - most,
            _sums(late.query, late.wait_ns, len(tasks)),
            _sums(other.query, other.wait_ns, len(tasks)),
        )
        return charged, excess.handed_on(tasks, most, self.mates).merged()

    def _waits(self, rank: Integers, stream: Integers, from_ns: Integers, to_ns: Integers) -> PartnerWaits:
        return self.waits.by_partner(Queries(rank, stream, from_ns, to_ns), self.ranks)


@dataclass(frozen=True)
class _Excess:
    """By task and partner of its late rank: the waiting in excess of that for the partner's counterpart."""

    task: Integers
    partner: Integers
    excess_ns: Integers
    end_ns: Integers
    stream: Integers
    certain: Flags
    counterpart: Integers  # or NO_RANK
    counterpart_end_ns: Integers
    counterpart_stream: Integers
    tasks: int

    @classmethod
    def of(cls, chain: Chain, tasks: Tasks, late: PartnerWaits, other: PartnerWaits) -> _Excess:
        """Only where there is any."""
        found = _counterparts(chain, late, other)
        known = found >= 0
        rank, waited_ns, end_ns, stream = (
            np.where(known, column[found], nothing) if len(column) else np.full(len(found), nothing)
            for column, nothing in (
                (other.partner, NO_RANK),
                (other.wait_ns, 0),
                (other.end_ns, 0),
                (other.stream, NO_STREAM),
            )
        )
        excess = late.wait_ns - waited_ns
        kept = excess > 0
        return cls(
            late.query[kept],
            late.partner[kept],
            excess[kept],
            late.end_ns[kept],
            late.stream[kept],
            late.certain[kept],
            rank[kept],
            np.where(known, end_ns, tasks.other_to_ns[late.query])[kept],
            stream[kept],
            len(tasks),
        )

    @cached_property
    def total_ns(self) -> Integers:
        """The sum of each task."""
        return _sums(self.task, self.excess_ns, self.tasks)

    def handed_on(self, tasks: Tasks, amount_ns: Integers, mates: Mates) -> Tasks:
        """The amounts, split in proportion to the excess; the last partner of a task gets the remainder."""
        total, amount = self.total_ns[self.task], amount_ns[self.task]
        part = _share(amount, self.excess_ns, total)
        is_last = np.append(self.task[1:] != self.task[:-1], True)[: len(self.task)]
        part[is_last] = 0
        part[is_last] = (amount_ns - _sums(self.task, part, self.tasks))[self.task[is_last]]
        kept = part > 0
        task = self.task[kept]
        partner, counterpart = self.partner[kept], self.counterpart[kept]
        return Tasks(
            tasks.root[task],
            partner,
            np.where(counterpart == NO_RANK, mates.lowest_other[partner], counterpart),
            self.stream[kept],
            self.counterpart_stream[kept],
            tasks.from_ns[task],
            self.end_ns[kept],
            self.counterpart_end_ns[kept],
            part[kept],
            tasks.certain[task] & self.certain[kept],
            tasks.cause_from_ns[task],
        )


def _counterparts(chain: Chain, late: PartnerWaits, other: PartnerWaits) -> Integers:
    """For each row of `late` the row of `other` that it is compared with, or -1.

    It is the wait for the same partner, else the longest for a mate of the partner, else none.
    """
    keys, wanted = other.query * chain.ranks + other.partner, late.query * chain.ranks + late.partner
    place = np.searchsorted(keys, wanted)
    same = np.zeros(len(wanted), dtype=bool)
    inside = place < len(keys)
    same[inside] = keys[place[inside]] == wanted[inside]
    found = np.where(same, place, -1)
    (rest,) = np.nonzero(~same)
    first = np.searchsorted(other.query, late.query[rest], side="left")
    owner, index = expand(first, np.searchsorted(other.query, late.query[rest], side="right") - first)
    mates = chain.mates.share(late.partner[rest][owner], other.partner[index])
    owner, index = owner[mates], index[mates]
    order = np.lexsort((other.partner[index], -other.wait_ns[index], owner))
    owner, index = owner[order], index[order]
    best = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    found[rest[owner[best]]] = index[best]
    return found


def _sums(group: Integers, values: Integers, groups: int) -> Integers:
    """The sum of each group, exactly."""
    sums = np.zeros(groups, dtype=np.int64)
    np.add.at(sums, group, values)
    return sums


def _share(amount: Integers, part: Integers, total: Integers) -> Integers:
    """amount * part // total without overflow, for part <= total: a float estimate, then corrected."""
    quotient: Integers = np.floor(amount.astype(np.float64) * part / total).astype(np.int64)
    # The products wrap around, but their difference is small.
    with np.errstate(over="ignore"):
        rest = amount * part - quotient * total
    return quotient + np.floor_divide(rest, total)
