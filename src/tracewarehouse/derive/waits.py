"""Waits of ranks for other ranks: collectives, activities and steps of all ranks of a run, as arrays.

Ranks are numbered from 0 in ascending order, collectives by their start on aligned clocks. Times are ns on
aligned clocks since the first start, separately for each set of ranks with a common clock, and below `span`.
A rank and a time are one integer, `rank * span + time`, so that a search or a running maximum over all ranks
is one operation.

A wait that the rank's own computation hides, in a send say, delays nothing, unless it moves the transfer
beyond that computation. On the same stream it delays what is queued behind it, whatever the rank computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.duck.engine import Connection
from tracewarehouse.query.connections import ConnectionPool
from tracewarehouse.query.relations import dependencies
from tracewarehouse.runs.selection import SelectedRun

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Columns = dict[str, NDArray[Any]]


def at(span: int, rank: Integers, time_ns: Integers) -> Integers:
    """Rank and time as one integer; times outside the run are moved to its edge."""
    return rank * span + np.clip(time_ns, 0, span - 1)


def expand(first: Integers, count: Integers) -> tuple[Integers, Integers]:
    """For ranges of indexes: the number of the range and the index, for each index in each range."""
    count = np.maximum(count, 0)
    owner = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, np.repeat(first, count) + within


def is_new(columns: Sequence[NDArray[Any]]) -> Flags:
    """For each row of sorted columns, whether it differs from the row before."""
    differs = np.ones(len(columns[0]), dtype=bool)
    differs[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return differs


class Union(Struct, frozen=True):
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
        interval = np.maximum(index, 0)
        within_ns = np.minimum(point - self.start[interval], self.length[interval])
        return np.where(index < 0, 0, self.before[interval] + within_ns)


NO_STREAM = -1
_MOST_ROWS = 4_000_000  # waits that are looked at together; bounds memory


class Queries(Struct, frozen=True):
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
        is_first = is_new(columns)
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.cumsum(is_first) - 1
        return Queries(*(column[is_first] for column in columns)), place


class PartnerWaits(Struct, frozen=True):
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
        _, *columns = (column[index] for column in asdict(self).values())
        return PartnerWaits(owner, *columns)


class Waits(Struct, frozen=True):
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
        distinct_queries, place = queries.distinct()
        batches = list(self._parts(distinct_queries, ranks))
        joined = (
            np.concatenate([getattr(batch, name) for batch in batches])
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
        is_wait = length > 0
        query, index, end, length = query[is_wait], index[is_wait], end[is_wait], length[is_wait]
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
        (elsewhere,) = np.nonzero((length > 0) & (self.stream[index] != wanted.stream[query]))
        rank, begin = self.rank[index[elsewhere]], begin[elsewhere]
        left_ns = np.minimum(self.left_ns[index[elsewhere]], wanted.to_ns[query[elsewhere]])
        exposed = left_ns - begin - self.computation.within(rank, begin, left_ns)
        length[elsewhere] = np.minimum(length[elsewhere], exposed)
        return length


NO_STEP = -(1 << 62)  # outside of all steps

_ARRIVALS = """
SELECT
  rank, stream, instance_id, waits_for_all, step, last_rank,
  reference_rank, aligned_start_ns, dur_ns, wait_ns,
  coalesce(wait_ns, pair_wait_ns, possible_wait_ns, 0) AS any_wait_ns,
  possible_wait_ns IS NOT NULL AS is_possible,
  start_ns - aligned_start_ns AS offset_ns,
  period.period_ns
FROM collective_arrivals
LEFT JOIN (SELECT rank, sum(period_ns)::BIGINT AS period_ns FROM steps GROUP BY rank) AS period USING (rank)
"""
_INSTANCES = """
SELECT
  instance_id,
  row_number() OVER (ORDER BY start_ns, instance_id) - 1 AS number,
  dense_rank() OVER (ORDER BY ranks) - 1 AS rank_set,
  first_ns
FROM (
  SELECT
    instance_id,
    min(aligned_start_ns) AS start_ns,
    list(rank ORDER BY rank) AS ranks,
    -- The first start of all ranks with this common clock.
    min(min(aligned_start_ns)) OVER (PARTITION BY any_value(reference_rank)) AS first_ns
  FROM arrival
  WHERE reference_rank IS NOT NULL
  GROUP BY instance_id
) AS instance
"""
_ROWS = """
SELECT
  instance.number AS instance,
  instance.rank_set,
  arrival.rank,
  coalesce(arrival.stream, $no_stream) AS stream,
  arrival.last_rank,
  arrival.waits_for_all,
  arrival.is_possible,
  coalesce(arrival.step, $no_step) AS step,
  arrival.aligned_start_ns - instance.first_ns AS start_ns,
  arrival.dur_ns,
  arrival.any_wait_ns AS wait_ns,
  instance.first_ns + arrival.offset_ns AS zero_ns
FROM arrival
JOIN instance ON instance.instance_id = arrival.instance_id
WHERE arrival.last_rank IS NOT NULL
ORDER BY instance.number, arrival.rank
"""
_BASIS = """
SELECT
  rank,
  any_value(period_ns) AS period_ns,
  coalesce(sum(wait_ns) FILTER (reference_rank IS NOT NULL), 0)::BIGINT AS wait_ns,
  coalesce(sum(wait_ns) FILTER (reference_rank IS NULL), 0)::BIGINT AS not_charged_ns,
  coalesce(sum(any_wait_ns) FILTER (is_possible), 0)::BIGINT AS possible_wait_ns,
  count(*) FILTER (waits_for_all AND instance_id IS NULL) AS unmatched,
  coalesce(sum(dur_ns) FILTER (waits_for_all AND instance_id IS NULL), 0)::BIGINT AS unmatched_ns
FROM arrival
GROUP BY rank
HAVING bool_or(waits_for_all)
ORDER BY rank
"""
_ACTIVITIES = "SELECT rank, kind, start_ns, end_ns, on_gpu FROM rank_activities WHERE kind <> 'step'"


class Arrivals(Struct, frozen=True):
    """A row per collective and rank of it, by both, where all its ranks have a common clock."""

    instance: Integers
    rank_set: Integers  # the same number for collectives of the same ranks
    rank: Integers
    stream: Integers  # NO_STREAM on the host
    last: Integers  # the rank that the others waited for
    synchronizes: Flags
    is_possible: Flags
    step: Integers
    start_ns: Integers
    dur_ns: Integers
    wait_ns: Integers

    @property
    def instances(self) -> int:
        """The number of collectives."""
        return int(self.instance.max(initial=-1)) + 1

    @property
    def span_ns(self) -> int:
        """A time after all others."""
        return int((self.start_ns + self.dur_ns).max(initial=0)) + 1


class Activities(Struct, frozen=True):
    """What ranks did: the kind is computation, communication, copies or data."""

    rank: Integers
    kind: NDArray[Any]
    start_ns: Integers
    end_ns: Integers


class Inputs(Struct, frozen=True):
    """What waits are attributed from. `ranks` and `instances` map its numbers to ranks and collectives."""

    ranks: Integers
    instances: NDArray[Any]
    arrivals: Arrivals
    activities: Activities
    on_gpu: Flags  # rank → whether it has GPU activities
    basis: Columns

    @classmethod
    def read(cls, pool: ConnectionPool, selected: SelectedRun) -> Inputs:
        """Reads a run. Raises WarehouseError if a file is missing."""
        with _reading(pool, selected, "rank_activities", _ACTIVITIES) as (con, sql):
            activities = con.execute(sql).fetchnumpy()
        with _reading(pool, selected, "collective_arrivals", _ARRIVALS) as (con, sql):
            con.execute(f"CREATE TEMP TABLE arrival AS {sql}")
            con.execute(f"CREATE TEMP TABLE instance AS {_INSTANCES}")
            rows = con.execute(_ROWS, {"no_step": NO_STEP, "no_stream": NO_STREAM}).fetchnumpy()
            instances = con.execute("SELECT instance_id FROM instance ORDER BY number").fetchnumpy()
            basis = con.execute(_BASIS).fetchnumpy()
            con.execute("DROP TABLE arrival; DROP TABLE instance")
        ranks = np.array(selected.ranks, dtype=np.int64)
        zero = np.zeros(len(ranks), dtype=np.int64)
        number = np.searchsorted(ranks, rows["rank"])
        zero[number] = rows["zero_ns"]
        has_collectives = np.zeros(len(ranks), dtype=bool)
        has_collectives[number] = True
        # Only ranks that have collectives: without them a rank has no place in time.
        number = np.searchsorted(ranks, activities["rank"])
        is_kept = has_collectives[number]
        number = number[is_kept]
        start, end = (
            activities[name][is_kept].astype(np.int64) - zero[number] for name in ("start_ns", "end_ns")
        )
        return cls(
            ranks,
            instances["instance_id"],
            _arrivals(rows, ranks),
            Activities(number, activities["kind"][is_kept], start, end),
            np.isin(ranks, activities["rank"][activities["on_gpu"].astype(bool)]),
            basis,
        )

    def why_nothing(self) -> str:
        """Why no wait is charged to a rank, for a run without attribution."""
        waits, apart, possible, unmatched = (
            int(self.basis[name].sum())
            for name in ("wait_ns", "not_charged_ns", "possible_wait_ns", "unmatched")
        )
        if waits + apart == 0 and unmatched and not self.arrivals.synchronizes.any():
            return f"no collective is matched with another rank ({unmatched} are not)"
        if apart:
            return "ranks wait for one another, but have no common clock"
        if possible:
            return (
                "ranks may have waited for one another in broadcasts only, which is not charged (wait_matrix)"
            )
        return "no rank waited for another one at a collective"


def _arrivals(rows: Columns, ranks: Integers) -> Arrivals:
    integers = {
        name: rows[name].astype(np.int64)
        for name in ("instance", "rank_set", "stream", "step", "start_ns", "dur_ns", "wait_ns")
    }
    return Arrivals(
        rank=np.searchsorted(ranks, rows["rank"]),
        last=np.searchsorted(ranks, rows["last_rank"]),
        synchronizes=rows["waits_for_all"].astype(bool),
        is_possible=rows["is_possible"].astype(bool),
        **integers,
    )


def _reading(
    pool: ConnectionPool, selected: SelectedRun, view: str, sql: str
) -> AbstractContextManager[tuple[Connection, str]]:
    """A connection, and the SQL over a view and `steps` as it runs there."""
    catalog = pool.catalog
    return pool.with_relations((selected,), dependencies(catalog, map(catalog.get, (view, "steps"))), sql)
