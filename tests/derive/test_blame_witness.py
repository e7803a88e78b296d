"""Blame of random runs against a recursion in plain Python that follows the definition literally."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from tracewarehouse.derive.blame import compute
from tracewarehouse.derive.blame_inputs import NO_STEP, Activities, Arrivals, Inputs

MOST_HANDS = 12


@dataclass(frozen=True)
class Row:
    """A collective on a rank."""

    instance: int
    rank: int
    start: int
    dur: int
    wait: int
    last: int
    kind: str  # sync, pair or possible


def random_rows(seed: int) -> list[Row]:
    """Collectives of random groups at random times; streams overlap, and several ranks wait at once."""
    draw = Random(seed)
    ranks = draw.randint(2, 7)
    groups = [sorted(draw.sample(range(ranks), draw.randint(2, ranks))) for _ in range(draw.randint(1, 5))]
    rows: list[Row] = []
    now = 0
    for instance in range(draw.randint(3, 40)):
        kind = draw.choice(["sync", "sync", "sync", "pair", "possible"])
        members = sorted(draw.sample(range(ranks), 2)) if kind == "pair" else draw.choice(groups)
        now += draw.randint(0, 30)
        starts = {rank: now + draw.randint(0, 100) for rank in members}
        end = max(starts.values()) + draw.randint(1, 20)
        last = min(members, key=lambda rank: (end - starts[rank], rank))
        for rank in members:
            wait = max(starts.values()) - starts[rank]
            rows.append(Row(instance, rank, starts[rank], end - starts[rank], wait, last, kind))
    return rows


def numbered(rows: list[Row]) -> list[Row]:
    """The rows with instances numbered by their first start, then number; time from the first one."""
    first: dict[int, int] = {}
    for row in rows:
        first[row.instance] = min(first.get(row.instance, row.start), row.start)
    order = {each: number for number, each in enumerate(sorted(first, key=lambda each: (first[each], each)))}
    zero = min(first.values())
    found = [Row(order[r.instance], r.rank, r.start - zero, r.dur, r.wait, r.last, r.kind) for r in rows]
    return sorted(found, key=lambda row: (row.instance, row.rank))


def witness(rows: list[Row]) -> Counter[tuple[int, int, int, int, bool]]:
    """(instance, waiter, blamed, depth, certain) → ns, by the definition."""
    members: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        members[row.instance].append(row)
    waits: dict[int, list[tuple[int, int, int, bool]]] = defaultdict(list)
    mates: dict[int, set[int]] = defaultdict(set)
    for of_instance in members.values():
        for row in of_instance:
            if row.rank != row.last and row.wait > 0:
                waits[row.rank].append((row.start, row.start + row.wait, row.last, row.kind != "possible"))
            if row.kind == "sync":
                mates[row.rank] |= {other.rank for other in of_instance}
    found: Counter[tuple[int, int, int, int, bool]] = Counter()

    def by_partner(rank: int | None, since: int, until: int) -> dict[int, tuple[int, int, bool]]:
        partners: dict[int, tuple[int, int, bool]] = {}
        for start, end, partner, certain in waits[rank] if rank is not None else ():
            begin, finish = max(start, since), min(end, until)
            if finish > begin:
                length, latest, sure = partners.get(partner, (0, 0, True))
                partners[partner] = (length + finish - begin, max(latest, finish), sure and certain)
        return partners

    def counterpart(partner: int, other: dict[int, tuple[int, int, bool]]) -> int | None:
        if partner in other:
            return partner
        candidates = [rank for rank in other if rank in mates[partner]]
        return min(candidates, key=lambda rank: (-other[rank][0], rank), default=None)

    def give(root: Row, since: int, arrived: int) -> None:
        """Hands a wait on, hand by hand; parts that reach the same comparison are summed."""
        level = {(root.last, root.rank, arrived, root.start, True): root.wait}
        for depth in range(MOST_HANDS + 1):
            after: Counter[tuple[int, int | None, int, int, bool]] = Counter()
            for (late, other, late_end, other_end, sure), amount in level.items():
                own, theirs = by_partner(late, since, late_end), by_partner(other, since, other_end)
                excess: dict[int, tuple[int, int | None]] = {}
                for partner in sorted(own):
                    compared = counterpart(partner, theirs)
                    more = own[partner][0] - (theirs[compared][0] if compared is not None else 0)
                    if more > 0:
                        excess[partner] = more, compared
                total = sum(more for more, _ in excess.values())
                handed = min(amount, total) if depth < MOST_HANDS else 0
                found[root.instance, root.rank, late, depth, sure] += amount - handed
                left = handed
                for place, (partner, (more, compared)) in enumerate(excess.items(), 1):
                    part = left if place == len(excess) else handed * more // total
                    left -= part
                    if compared is None:
                        against, end = min(mates[partner] - {partner}, default=None), other_end
                    else:
                        against, end = compared, theirs[compared][1]
                    _, own_end, certain = own[partner]
                    if part:
                        after[partner, against, own_end, end, sure and certain] += part
            level = dict(after)

    before: dict[tuple[int, ...], int] = {}
    for instance in sorted(members):
        of_instance = members[instance]
        key = tuple(row.rank for row in of_instance)
        since = before.get(key, 0)
        before[key] = max(row.start + row.dur for row in of_instance)
        if of_instance[0].kind == "sync":
            arrived = next(row.start for row in of_instance if row.rank == row.last)
            for row in of_instance:
                if row.rank != row.last and row.wait > 0:
                    give(row, since, arrived)
    return +found


def inputs(rows: list[Row]) -> Inputs:
    """The rows as arrays, without activities."""
    sets = {key: n for n, key in enumerate(sorted({members(rows, row.instance) for row in rows}))}
    columns = {
        "instance": [row.instance for row in rows],
        "rank_set": [sets[members(rows, row.instance)] for row in rows],
        "rank": [row.rank for row in rows],
        "last": [row.last for row in rows],
        "step": [NO_STEP] * len(rows),
        "start_ns": [row.start for row in rows],
        "dur_ns": [row.dur for row in rows],
        "wait_ns": [row.wait for row in rows],
    }
    arrivals = Arrivals(
        synchronizes=np.array([row.kind == "sync" for row in rows]),
        is_possible=np.array([row.kind == "possible" for row in rows]),
        **{name: np.array(values, dtype=np.int64) for name, values in columns.items()},
    )
    nothing = np.zeros(0, dtype=np.int64)
    ranks = np.arange(max(row.rank for row in rows) + 1)
    names = np.array([f"{number:06d}" for number in range(arrivals.instances)], dtype=object)
    activities = Activities(nothing, nothing.astype(str), nothing, nothing)
    return Inputs(ranks, names, arrivals, activities, np.zeros(len(ranks), dtype=bool), {})


def members(rows: list[Row], instance: int) -> tuple[int, ...]:
    return tuple(row.rank for row in rows if row.instance == instance)


def blame(rows: list[Row]) -> Counter[tuple[int, int, int, int, bool]]:
    """The same as `witness` says, as the program finds it."""
    reported = compute(inputs(rows))
    found: Counter[tuple[int, int, int, int, bool]] = Counter()
    for instance, waiter, blamed, depth, certain, ns in zip(
        reported.instance,
        reported.waiter,
        reported.blamed,
        reported.depth,
        reported.certain,
        reported.wait_ns,
        strict=True,
    ):
        found[int(instance), int(waiter), int(blamed), int(depth), bool(certain)] += int(ns)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_part_is_the_witness_s(seed: int) -> None:
    rows = numbered(random_rows(seed))
    assert blame(rows) == witness(rows)


def test_the_random_runs_hand_on_deeply_and_uncertainly() -> None:
    found = [part for seed in range(60) for part in witness(numbered(random_rows(seed)))]
    assert max(depth for *_, depth, _ in found) >= 8
    assert {certain for *_, certain in found} == {True, False}


@pytest.mark.parametrize("seed", range(20))
def test_longer_times_change_nothing_but_lengths(seed: int) -> None:
    """Products of two long times do not fit into 64 bits."""
    factor = 10**9
    rows = numbered(random_rows(seed))
    longer = [
        Row(r.instance, r.rank, r.start * factor, r.dur * factor, r.wait * factor, r.last, r.kind)
        for r in rows
    ]
    assert blame(longer) == witness(longer)
