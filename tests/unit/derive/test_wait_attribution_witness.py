"""Blame of random runs against a recursion in plain Python that follows the definition literally."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from conftest import deep
from tracewarehouse.derive.wait_attribution import compute
from tracewarehouse.derive.waits import NO_STEP, Activities, Arrivals, Inputs

MOST_HANDS = 12
Computed = list[tuple[int, int, int]]  # rank, start, end


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
    stream: int


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
            stream = draw.choice([0, 0, 7, 20])
            rows.append(Row(instance, rank, starts[rank], end - starts[rank], wait, last, kind, stream))
    return rows


def random_computed(seed: int, rows: list[Row]) -> Computed:
    """What ranks compute at random times, on some of them nothing."""
    draw = Random(f"computed {seed}")
    ranks, until = max(row.rank for row in rows) + 1, max(row.start + row.dur for row in rows)
    found = []
    for rank in range(ranks):
        for _ in range(draw.choice([0, 5, 20])):
            start = draw.randint(0, until)
            found.append((rank, start, min(start + draw.randint(1, 60), until)))
    return found


def numbered(rows: list[Row]) -> list[Row]:
    """The rows with instances numbered by their first start, then number; time from the first one."""
    first: dict[int, int] = {}
    for row in rows:
        first[row.instance] = min(first.get(row.instance, row.start), row.start)
    order = {each: number for number, each in enumerate(sorted(first, key=lambda each: (first[each], each)))}
    zero = min(first.values())
    found = [replace(row, instance=order[row.instance], start=row.start - zero) for row in rows]
    return sorted(found, key=lambda row: (row.instance, row.rank))


@dataclass(frozen=True)
class Waited:
    """How long a rank waited for another one, the latest end, and the stream on which that one came then."""

    length: int
    latest: int
    stream: int
    certain: bool


def covered(busy: list[tuple[int, int]], begin: int, finish: int) -> int:
    """The time between two times in which at least one interval goes on."""
    edges = sorted({begin, finish, *(time for each in busy for time in each if begin < time < finish)})
    parts = zip(edges[:-1], edges[1:], strict=True)
    return sum(until - since for since, until in parts if any(start <= since < end for start, end in busy))


def witness(rows: list[Row], computed: Computed) -> Counter[tuple[int, int, int, int, bool]]:
    """(instance, waiter, attributed, depth, certain) → ns, by the definition."""
    members: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        members[row.instance].append(row)
    stream = {(row.instance, row.rank): row.stream for row in rows}
    waits: dict[int, list[Row]] = defaultdict(list)
    mates: dict[int, set[int]] = defaultdict(set)
    for of_instance in members.values():
        for row in of_instance:
            if row.rank != row.last and row.wait > 0:
                waits[row.rank].append(row)
            if row.kind == "sync":
                mates[row.rank] |= {other.rank for other in of_instance}
    found: Counter[tuple[int, int, int, int, bool]] = Counter()

    def by_partner(rank: int | None, own_stream: int | None, since: int, until: int) -> dict[int, Waited]:
        partners: dict[int, Waited] = {}
        for wait in waits[rank] if rank is not None else ():
            begin, finish = max(wait.start, since), min(wait.start + wait.wait, until)
            busy = [(start, end) for each, start, end in computed if each == rank]
            length = finish - begin
            # On the same stream a wait delays what is queued, whatever the rank computes.
            if length > 0 and wait.stream != own_stream:
                left = min(wait.start + wait.dur, until)
                length = min(length, left - begin - covered(busy, begin, left))
            if length > 0:
                before = partners.get(wait.last, Waited(0, 0, 0, True))
                latest, arrived_on = max(
                    (before.latest, before.stream), (finish, stream[wait.instance, wait.last])
                )
                certain = before.certain and wait.kind != "possible"
                partners[wait.last] = Waited(before.length + length, latest, arrived_on, certain)
        return partners

    def counterpart(partner: int, other: dict[int, Waited]) -> int | None:
        if partner in other:
            return partner
        candidates = [rank for rank in other if rank in mates[partner]]
        return min(candidates, key=lambda rank: (-other[rank].length, rank), default=None)

    def give(root: Row, since: int, arrived: int) -> None:
        """Hands a wait on, hand by hand; parts that reach the same comparison are summed."""
        streams = stream[root.instance, root.last], root.stream
        level = {(root.last, root.rank, *streams, arrived, root.start, True): root.wait}
        for depth in range(MOST_HANDS + 1):
            after: Counter[tuple[int, int | None, int, int | None, int, int, bool]] = Counter()
            for (late, other, on, other_on, late_end, other_end, sure), amount in level.items():
                own, theirs = (
                    by_partner(late, on, since, late_end),
                    by_partner(other, other_on, since, other_end),
                )
                excess: dict[int, tuple[int, int | None]] = {}
                for partner in sorted(own):
                    compared = counterpart(partner, theirs)
                    more = own[partner].length - (theirs[compared].length if compared is not None else 0)
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
                        against = min(mates[partner] - {partner}, default=None)
                        against_on, end = None, other_end
                    else:
                        against, against_on = compared, theirs[compared].stream
                        end = theirs[compared].latest
                    found_by = own[partner]
                    if part:
                        key = partner, against, found_by.stream, against_on, found_by.latest, end
                        after[*key, sure and found_by.certain] += part
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


def inputs(rows: list[Row], computed: Computed) -> Inputs:
    """The rows and computation as arrays."""
    sets = {key: n for n, key in enumerate(sorted({members(rows, row.instance) for row in rows}))}
    columns = {
        "instance": [row.instance for row in rows],
        "rank_set": [sets[members(rows, row.instance)] for row in rows],
        "rank": [row.rank for row in rows],
        "stream": [row.stream for row in rows],
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
    rank, start, end = np.array(computed, dtype=np.int64).reshape(-1, 3).T
    ranks = np.arange(max(row.rank for row in rows) + 1)
    names = np.array([f"{number:06d}" for number in range(arrivals.instances)], dtype=object)
    activities = Activities(rank, np.full(len(rank), "computation"), start, end)
    return Inputs(ranks, names, arrivals, activities, np.isin(ranks, rank), {})


def members(rows: list[Row], instance: int) -> tuple[int, ...]:
    return tuple(row.rank for row in rows if row.instance == instance)


def wait_attribution(rows: list[Row], computed: Computed) -> Counter[tuple[int, int, int, int, bool]]:
    """The same as `witness` says, as the program finds it."""
    reported = compute(inputs(rows, computed))
    found: Counter[tuple[int, int, int, int, bool]] = Counter()
    for instance, waiter, attributed, depth, certain, ns in zip(
        reported.instance,
        reported.waiter,
        reported.attributed,
        reported.depth,
        reported.certain,
        reported.wait_ns,
        strict=True,
    ):
        found[int(instance), int(waiter), int(attributed), int(depth), bool(certain)] += int(ns)
    return found


def random_run(seed: int) -> tuple[list[Row], Computed]:
    """Rows and computation of a random run."""
    rows = numbered(random_rows(seed))
    return rows, random_computed(seed, rows)


@pytest.mark.parametrize("seed", [*range(12), *deep(*range(12, 60))])
def test_every_part_is_the_witness_s(seed: int) -> None:
    rows, computed = random_run(seed)
    assert wait_attribution(rows, computed) == witness(rows, computed)


def test_the_random_runs_hand_on_deeply_and_uncertainly() -> None:
    found = [part for seed in (26, 27, 28, 29) for part in witness(*random_run(seed))]
    assert max(depth for *_, depth, _ in found) >= 6
    assert {certain for *_, certain in found} == {True, False}


def test_computation_and_streams_decide_what_is_handed_on() -> None:
    rows, computed = random_run(1)
    found = witness(rows, computed)
    assert found != witness(rows, [])
    assert found != witness([replace(row, stream=7) for row in rows], computed)
    assert found != witness([replace(row, dur=row.wait) for row in rows], computed)


@pytest.mark.parametrize("seed", [*range(5), *deep(*range(5, 20))])
def test_longer_times_change_nothing_but_lengths(seed: int) -> None:
    """Products of two long times do not fit into 64 bits."""
    factor = 10**9
    rows = numbered(random_rows(seed))
    longer = [
        replace(row, start=row.start * factor, dur=row.dur * factor, wait=row.wait * factor) for row in rows
    ]
    assert wait_attribution(longer, []) == witness(longer, [])
