"""Wait attribution of a run: waits at collectives by the rank that caused them, and why.

A rank is excused only for waiting that it did in excess of the rank that waits for it: ranks in a pipeline
wait by design, and their counterparts wait as long. A wait that computation hides does not excuse a rank
(`waits`). All lists of work are arrays; a level of the chain is one step, so the cost is that of sorting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse.derive.critical_path import Derived, DerivedRows, publish_tables
from tracewarehouse.derive.waits import (
    NO_STEP,
    NO_STREAM,
    Activities,
    Arrivals,
    Inputs,
    PartnerWaits,
    Queries,
    Union,
    Waits,
    at,
    expand,
    is_new,
)
from tracewarehouse.errors import TwError
from tracewarehouse.ingest import resources
from tracewarehouse.query.connections import BATCH_EVENTS, ConnectionPool, event_count
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.readable import is_derived
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


QUANTILE = 0.99
_LEAST_STEPS = 3
_DRAWS = 1_000
_SEED = 0
_MOST_CELLS = 4_000_000  # draws that are held at once


def enough_steps(steps: int, ranks: int) -> bool:
    """Whether chance can be ruled out: one rank rarely gets the largest part of every step at random.

    Two steps are never enough: they follow each other, and what makes a rank late in one is felt in the next.
    """
    return steps >= _LEAST_STEPS and ranks ** (1 - steps) <= 1 - QUANTILE


def largest_share(step: Integers, rank: Integers, wait_ns: Integers, ranks: int) -> float | None:
    """The 99 % quantile of the largest share of one rank, if the attribution of each step is dealt at random.

    None without attribution. In each step the ranks are permuted, so that a rank that is late in many steps
    exceeds the quantile. The numbers of ranks make no difference. Among many ranks hardly any is first in two
    steps at random; but a rank that is late in one step often is a little late in the next one too, so the
    result is at least the share of a rank that is first in the two steps with the most.
    """
    total = int(wait_ns.sum())
    if not total:
        return None
    steps, row = np.unique(step, return_inverse=True)
    attribution = np.zeros((len(steps), ranks))
    np.add.at(attribution, (row, rank), wait_ns)
    attribution.sort(axis=1)
    largest_of_step = attribution[:, -1]
    draw = np.random.default_rng(_SEED)
    at_once = max(1, _MOST_CELLS // ranks)
    largest = []
    for first in range(0, _DRAWS, at_once):
        sums = np.zeros((min(at_once, _DRAWS - first), ranks))
        for of_step in attribution:
            sums += draw.permuted(np.broadcast_to(of_step, sums.shape), axis=1)
        largest.append(sums.max(axis=1))
    by_chance = np.quantile(np.concatenate(largest), QUANTILE, method="higher")
    first_in_two = np.sort(largest_of_step)[-2:].sum()
    return float(max(by_chance, first_in_two) / total)


MOST_HANDS = 12  # how often a wait is handed on at most
NO_RANK = -1
_BATCH = 200_000  # waits that are handed on together; bounds memory


class PartnerRanks(Struct, frozen=True):
    """Which ranks share a group that synchronizes; a rank is a mate of itself."""

    groups: NDArray[np.uint8]  # the groups of each rank, as bits
    lowest_other: Integers  # the lowest other mate of each rank, or NO_RANK

    @classmethod
    def of(cls, ranks: int, group: Integers, rank: Integers) -> PartnerRanks:
        """The mates by membership in groups, which are numbered from 0."""
        members = np.unique(group * ranks + rank)
        group, rank = members // ranks, members % ranks
        member = np.zeros((ranks, int(group.max(initial=-1)) + 1), dtype=bool)
        member[rank, group] = True
        # The lowest rank of its group, for itself the second lowest.
        first = np.searchsorted(group, np.arange(member.shape[1]))
        low, second = (np.append(rank, [ranks, ranks])[first[group] + offset] for offset in range(2))
        second = np.where(np.append(group, [-1, -1])[first[group] + 1] == group, second, ranks)
        lowest = np.full(ranks, ranks, dtype=np.int64)
        np.minimum.at(lowest, rank, np.where(low == rank, second, low))
        return cls(np.packbits(member, axis=1), np.where(lowest < ranks, lowest, NO_RANK))

    def share(self, one: Integers, other: Integers) -> Flags:
        """Whether two ranks share a group, for pairs of ranks."""
        return np.asarray((one == other) | np.any(self.groups[one] & self.groups[other], axis=1))


class Tasks(Struct, frozen=True):
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
        keys = [column for name, column in asdict(self).items() if name != "amount_ns"]
        order = np.lexsort(keys)
        first = np.flatnonzero(is_new([key[order] for key in keys]))
        if len(first) == len(order):
            return self
        amount = np.add.reduceat(self.amount_ns[order], first)
        return replace(self[order[first]], amount_ns=amount)

    def __getitem__(self, index: Integers | Flags | slice) -> Tasks:
        return Tasks(*(column[index] for column in asdict(self).values()))


class AttributedWaits(Struct, frozen=True):
    """Waits that stay with a rank after `depth` hands."""

    tasks: Tasks
    depth: int
    wait_ns: Integers
    late_waits_ns: Integers  # what the rank itself waited for others
    other_waits_ns: Integers


class Chain(Struct, frozen=True):
    """What a wait is handed on by: all waits, and which ranks do the same work."""

    waits: Waits
    mates: PartnerRanks
    ranks: int

    def charge(self, tasks: Tasks) -> Iterator[AttributedWaits]:
        """Each part of each wait with the rank it stays with. The parts of a wait add up to it."""
        for first in range(0, len(tasks), _BATCH):
            level = tasks[slice(first, first + _BATCH)]
            for depth in range(MOST_HANDS + 1):
                if not len(level):
                    break
                charged, level = self._level(level, depth)
                yield charged

    def _level(self, tasks: Tasks, depth: int) -> tuple[AttributedWaits, Tasks]:
        late = self._waits(tasks.late, tasks.late_stream, tasks.from_ns, tasks.late_to_ns)
        has_waits = np.zeros(len(tasks), dtype=bool)
        has_waits[late.query] = True
        # Without waits of the late rank nothing is compared: those of the other one need no search.
        compared = np.where(has_waits, tasks.other, NO_RANK)
        other = self._waits(compared, tasks.other_stream, tasks.from_ns, tasks.other_to_ns)
        excess = _Excess.of(self, tasks, late, other)
        limit_ns = excess.total_ns if depth < MOST_HANDS else 0 * tasks.amount_ns
        handed_ns = np.minimum(tasks.amount_ns, limit_ns)
        charged = AttributedWaits(
            tasks,
            depth,
            tasks.amount_ns - handed_ns,
            _sums(late.query, late.wait_ns, len(tasks)),
            _sums(other.query, other.wait_ns, len(tasks)),
        )
        return charged, excess.handed_on(tasks, handed_ns, self.mates).merged()

    def _waits(self, rank: Integers, stream: Integers, from_ns: Integers, to_ns: Integers) -> PartnerWaits:
        return self.waits.by_partner(Queries(rank, stream, from_ns, to_ns), self.ranks)


class _Excess(Struct, frozen=True, dict=True):
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
        counterpart_rows = _counterparts(chain, late, other)
        is_known = counterpart_rows >= 0
        rank, waited_ns, end_ns, stream = (
            np.where(is_known, column[counterpart_rows], nothing)
            if len(column)
            else np.full(len(counterpart_rows), nothing)
            for column, nothing in (
                (other.partner, NO_RANK),
                (other.wait_ns, 0),
                (other.end_ns, 0),
                (other.stream, NO_STREAM),
            )
        )
        excess = late.wait_ns - waited_ns
        is_excess = excess > 0
        return cls(
            late.query[is_excess],
            late.partner[is_excess],
            excess[is_excess],
            late.end_ns[is_excess],
            late.stream[is_excess],
            late.certain[is_excess],
            rank[is_excess],
            np.where(is_known, end_ns, tasks.other_to_ns[late.query])[is_excess],
            stream[is_excess],
            len(tasks),
        )

    @cached_property
    def total_ns(self) -> Integers:
        """The sum of each task."""
        return _sums(self.task, self.excess_ns, self.tasks)

    def handed_on(self, tasks: Tasks, amount_ns: Integers, mates: PartnerRanks) -> Tasks:
        """The amounts, split in proportion to the excess; the last partner of a task gets the remainder."""
        total, amount = self.total_ns[self.task], amount_ns[self.task]
        part_ns = _share(amount, self.excess_ns, total)
        is_last = np.append(self.task[1:] != self.task[:-1], True)[: len(self.task)]
        part_ns[is_last] = 0
        part_ns[is_last] = (amount_ns - _sums(self.task, part_ns, self.tasks))[self.task[is_last]]
        has_part = part_ns > 0
        task = self.task[has_part]
        partner, counterpart = self.partner[has_part], self.counterpart[has_part]
        return Tasks(
            tasks.root[task],
            partner,
            np.where(counterpart == NO_RANK, mates.lowest_other[partner], counterpart),
            self.stream[has_part],
            self.counterpart_stream[has_part],
            tasks.from_ns[task],
            self.end_ns[has_part],
            self.counterpart_end_ns[has_part],
            part_ns[has_part],
            tasks.certain[task] & self.certain[has_part],
            tasks.cause_from_ns[task],
        )


def _counterparts(chain: Chain, late: PartnerWaits, other: PartnerWaits) -> Integers:
    """For each row of `late` the row of `other` that it is compared with, or -1.

    It is the wait for the same partner, else the longest for a mate of the partner, else none.
    """
    keys, wanted_keys = other.query * chain.ranks + other.partner, late.query * chain.ranks + late.partner
    candidate = np.searchsorted(keys, wanted_keys)
    same = np.zeros(len(wanted_keys), dtype=bool)
    inside = candidate < len(keys)
    same[inside] = keys[candidate[inside]] == wanted_keys[inside]
    rows = np.where(same, candidate, -1)
    (unmatched,) = np.nonzero(~same)
    first = np.searchsorted(other.query, late.query[unmatched], side="left")
    owner, index = expand(first, np.searchsorted(other.query, late.query[unmatched], side="right") - first)
    mates = chain.mates.share(late.partner[unmatched][owner], other.partner[index])
    owner, index = owner[mates], index[mates]
    order = np.lexsort((other.partner[index], -other.wait_ns[index], owner))
    owner, index = owner[order], index[order]
    best = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    rows[unmatched[owner[best]]] = index[best]
    return rows


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
        remainder = amount * part - quotient * total
    return quotient + np.floor_divide(remainder, total)


HOST = "host"
# What counts where several go on at once, first to last; the rest of the time is the host's.
_ON_GPU = ("computation", "communication", "copies", "data")
_ON_HOST = ("data", "communication", "computation")
CAUSES = (*_ON_GPU, HOST)


class Causes(Struct, frozen=True):
    """How long a rank did what, as unions of kinds: each adds one kind to those before it."""

    on_gpu: NDArray[np.bool_]
    gpu: tuple[Union, ...]
    host: tuple[Union, ...]

    @classmethod
    def of(cls, span: int, activities: Activities, on_gpu: NDArray[np.bool_]) -> Causes:
        """The causes of a run."""
        return cls(
            on_gpu,
            _unions(span, activities, on_gpu, _ON_GPU),
            _unions(span, activities, ~on_gpu, _ON_HOST),
        )

    @property
    def computation(self) -> Union:
        """When the GPUs of ranks computed; nothing for ranks without GPU activities."""
        return self.gpu[_ON_GPU.index("computation")]

    def name(self, charged: AttributedWaits) -> Integers:
        """The index in CAUSES of what each charged rank did longest in excess of the other one."""
        tasks = charged.tasks
        late = self._times(tasks.late, tasks.cause_from_ns, tasks.late_to_ns)
        other = self._times(np.maximum(tasks.other, 0), tasks.cause_from_ns, tasks.other_to_ns)
        other[:, tasks.other < 0] = 0
        # Waiting for others is not what a rank is charged for.
        communication = CAUSES.index("communication")
        late[communication] -= charged.late_waits_ns
        other[communication] -= charged.other_waits_ns
        longest: Integers = np.argmax(late - other, axis=0)
        return longest

    def _times(self, rank: Integers, from_ns: Integers, to_ns: Integers) -> Integers:
        """Time by cause and task."""
        to_ns = np.maximum(from_ns, to_ns)
        times_ns = np.zeros((len(CAUSES), len(rank)), dtype=np.int64)
        for kinds, unions, is_here in (
            (_ON_GPU, self.gpu, self.on_gpu[rank]),
            (_ON_HOST, self.host, ~self.on_gpu[rank]),
        ):
            before = np.zeros(int(is_here.sum()), dtype=np.int64)
            for kind, union in zip(kinds, unions, strict=True):
                until = union.within(rank[is_here], from_ns[is_here], to_ns[is_here])
                times_ns[CAUSES.index(kind), is_here] = until - before
                before = until
            times_ns[CAUSES.index(HOST), is_here] = (to_ns - from_ns)[is_here] - before
        return times_ns


def _unions(
    span: int, activities: Activities, ranks: NDArray[np.bool_], kinds: tuple[str, ...]
) -> tuple[Union, ...]:
    is_here = ranks[activities.rank]
    rank, start, end, kind = (
        column[is_here]
        for column in (activities.rank, activities.start_ns, activities.end_ns, activities.kind)
    )
    unions = []
    for count in range(1, len(kinds) + 1):
        is_kind = np.isin(kind, kinds[:count])
        unions.append(Union.of(span, rank[is_kind], start[is_kind], end[is_kind]))
    return tuple(unions)


# A rank that enters a collective so soon after another one had queued both: its work between them was done
# before, so that the comparison that finds the cause begins before both.
_QUEUED_NS = 10_000


class WaitAttribution(Struct, frozen=True):
    """The parts of all waits: instances and ranks are numbers of the inputs, the cause an index in CAUSES."""

    instance: Integers
    waiter: Integers
    attributed: Integers
    depth: Integers
    cause: Integers
    certain: Flags
    step: Integers
    wait_ns: Integers


def compute(inputs: Inputs) -> WaitAttribution:
    """Charges each wait at a synchronizing collective to the ranks that caused it."""
    arrivals = inputs.arrivals
    roots = _roots(arrivals)
    causes = Causes.of(arrivals.span_ns, inputs.activities, inputs.on_gpu)
    synchronized, ranks = arrivals.synchronizes, len(inputs.ranks)
    mates = PartnerRanks.of(ranks, arrivals.rank_set[synchronized], arrivals.rank[synchronized])
    chain = Chain(Waits.of(arrivals, causes.computation), mates, ranks)
    parts = [_grouped(_part(arrivals, charged, causes)) for charged in chain.charge(roots)]
    attribution = _grouped(_joined(parts))
    # The parts of each collective add up to the waits of its ranks.
    unexplained_ns = np.zeros(arrivals.instances, dtype=np.int64)
    np.add.at(unexplained_ns, arrivals.instance[synchronized], arrivals.wait_ns[synchronized])
    np.subtract.at(unexplained_ns, attribution.instance, attribution.wait_ns)
    if unexplained_ns.any():
        raise TwError("the parts of waits do not add up", "internal error; please report it")
    return attribution


def _roots(arrivals: Arrivals) -> Tasks:
    """The waits of other ranks for the last one, since the last collective of the same ranks ended."""
    is_last = arrivals.rank == arrivals.last
    row_of_last = np.zeros(arrivals.instances, dtype=np.int64)
    row_of_last[arrivals.instance[is_last]] = np.flatnonzero(is_last)
    (root,) = np.nonzero(arrivals.synchronizes & ~is_last & (arrivals.wait_ns > 0))
    instance = arrivals.instance[root]
    late = row_of_last[instance]
    ends = _Ends.of(arrivals)
    return Tasks(
        root,
        arrivals.rank[late],
        arrivals.rank[root],
        arrivals.stream[late],
        arrivals.stream[root],
        ends.before(instance),
        arrivals.start_ns[late],
        arrivals.start_ns[root],
        arrivals.wait_ns[root],
        np.ones(len(root), dtype=bool),
        ends.until(instance, arrivals.start_ns[root] - _QUEUED_NS),
    )


class _Ends(Struct, frozen=True):
    """When collectives ended on their last rank, ordered by set of ranks and start."""

    span: int
    rank_set: Integers  # of each instance
    place: Integers  # of each instance in the order
    ended_ns: Integers  # in the order
    reached: Integers  # set of ranks and latest end so far, in the order

    @classmethod
    def of(cls, arrivals: Arrivals) -> _Ends:
        ended, rank_set, place = (np.zeros(arrivals.instances, dtype=np.int64) for _ in range(3))
        np.maximum.at(ended, arrivals.instance, arrivals.start_ns + arrivals.dur_ns)
        rank_set[arrivals.instance] = arrivals.rank_set
        order = np.argsort(rank_set, kind="stable")
        place[order] = np.arange(len(order))
        reached = np.maximum.accumulate(at(arrivals.span_ns, rank_set[order], ended[order]))
        return cls(arrivals.span_ns, rank_set, place, ended[order], reached)

    def before(self, instance: Integers) -> Integers:
        """The end of the collective of the same ranks before each one; 0 for the first."""
        return self._end(instance, self.place[instance] - 1)

    def until(self, instance: Integers, time_ns: Integers) -> Integers:
        """The end of the last collective of the same ranks that had ended by a time; 0 if none had."""
        point = at(self.span, self.rank_set[instance], time_ns)
        return self._end(instance, np.searchsorted(self.reached, point, side="right") - 1)

    def _end(self, instance: Integers, place: Integers) -> Integers:
        known = np.maximum(place, 0)
        same = self.reached[known] // self.span == self.rank_set[instance]
        return np.where((place >= 0) & same, self.ended_ns[known], 0)


def _part(arrivals: Arrivals, charged: AttributedWaits, causes: Causes) -> WaitAttribution:
    stays_here = charged.wait_ns > 0
    tasks = charged.tasks[stays_here]
    stays = AttributedWaits(
        tasks,
        charged.depth,
        charged.wait_ns[stays_here],
        charged.late_waits_ns[stays_here],
        charged.other_waits_ns[stays_here],
    )
    return WaitAttribution(
        arrivals.instance[tasks.root],
        arrivals.rank[tasks.root],
        tasks.late,
        np.full(len(tasks), charged.depth),
        causes.name(stays),
        tasks.certain,
        arrivals.step[tasks.root],
        stays.wait_ns,
    )


def _joined(parts: Sequence[WaitAttribution]) -> WaitAttribution:
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return WaitAttribution(
            nothing, nothing, nothing, nothing, nothing, nothing.astype(bool), nothing, nothing
        )
    return WaitAttribution(
        *(np.concatenate(columns) for columns in zip(*(asdict(part).values() for part in parts), strict=True))
    )


def _grouped(attribution: WaitAttribution) -> WaitAttribution:
    """One row per charged rank, collective, waiter, depth, cause and certainty, in this order."""
    keys = (
        attribution.certain,
        attribution.cause,
        attribution.depth,
        attribution.waiter,
        attribution.instance,
        attribution.attributed,
    )
    order = np.lexsort(keys)
    if not len(order):
        return attribution
    first = np.flatnonzero(is_new([key[order] for key in keys]))
    columns = {name: column[order][first] for name, column in asdict(attribution).items()}
    return WaitAttribution(**{**columns, "wait_ns": np.add.reduceat(attribution.wait_ns[order], first)})


def _attribution_rows(inputs: Inputs, attribution: WaitAttribution) -> Mapping[int, pa.Table]:
    # Collectives in the order of their keys, causes by name: as texts sort.
    by_key = np.argsort(np.argsort(inputs.instances))
    by_name = np.argsort(np.argsort(CAUSES))
    order = np.lexsort(
        (
            attribution.certain,
            by_name[attribution.cause],
            attribution.depth,
            attribution.waiter,
            by_key[attribution.instance],
            attribution.attributed,
        )
    )
    columns = {name: column[order] for name, column in asdict(attribution).items()}
    edges = np.searchsorted(columns["attributed"], np.arange(len(inputs.ranks) + 1))
    keys, causes = pa.array(inputs.instances, pa.string()), pa.array(CAUSES, pa.string())
    by_rank = {}
    for number, (start, end) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        rows = {name: column[start:end] for name, column in columns.items()}
        by_rank[int(inputs.ranks[number])] = pa.table(
            {
                "waiter_rank": pa.array(inputs.ranks[rows["waiter"]], pa.int32()),
                "instance_id": pa.DictionaryArray.from_arrays(pa.array(rows["instance"], pa.int32()), keys),
                "step": pa.array(rows["step"], pa.int64(), mask=rows["step"] == NO_STEP),
                "depth": pa.array(rows["depth"], pa.int64()),
                "cause": pa.DictionaryArray.from_arrays(pa.array(rows["cause"], pa.int32()), causes),
                "certain": pa.array(rows["certain"]),
                "wait_ns": pa.array(rows["wait_ns"], pa.int64()),
            }
        )
    return by_rank


def _basis_rows(inputs: Inputs, attribution: WaitAttribution) -> Mapping[int, pa.Table]:
    in_step = attribution.step != NO_STEP
    step, ranks = attribution.step[in_step], len(inputs.ranks)
    share_by_chance = largest_share(
        step, attribution.attributed[in_step], attribution.wait_ns[in_step], ranks
    )
    enough = enough_steps(len(np.unique(step)), ranks)
    rows = pa.table({name: pa.array(column) for name, column in inputs.basis.items()})
    rows = rows.append_column("null_p99", pa.array([share_by_chance] * len(rows), pa.float64()))
    rows = rows.append_column("enough_steps", pa.array([enough] * len(rows)))
    ranked = enumerate(rows["rank"].to_pylist())
    return {rank: rows.slice(row, 1).drop_columns(["rank"]) for row, rank in ranked}


NAME = "wait_attribution"
# Larger runs do not share the connections of analyses, and have less memory before DuckDB writes to disk:
# enough for 1,024 ranks with 2,000 collectives each.
_MEMORY_BYTES = 1 << 30


def derive_wait_attribution(selection: Selection, selected: SelectedRun) -> Derived:
    """Derives the attribution of a run, unless it is stored and current. Raises TwError."""
    if is_derived(selection.catalog, selected, NAME):
        return Derived(selected.run, dict.fromkeys(selected.ranks, ()), None)
    version = publish_tables(
        selection.store, selection.catalog, selected, NAME, wait_attribution_tables(selection, selected)
    )
    return Derived(selected.run, dict.fromkeys(selected.ranks, ()), version.number if version else None)


def wait_attribution_tables(selection: Selection, selected: SelectedRun) -> DerivedRows:
    """The attribution of a run. Raises TwError."""
    if event_count((selected,)) <= BATCH_EVENTS:
        inputs = Inputs.read(selection.pool, selected)
    else:
        limit = min(_MEMORY_BYTES, resources.memory_bytes(1))
        with closing(ConnectionPool(selection.store, selection.catalog, memory_bytes=limit)) as pool:
            inputs = Inputs.read(pool, selected)
    attribution = compute(inputs)
    fact: dict[str, Json] = {"ranks": selected.version.source}
    if not len(attribution.wait_ns):
        fact["nothing"] = inputs.why_nothing()
    tables = {
        "wait_attribution": _attribution_rows(inputs, attribution),
        "wait_attribution_basis": _basis_rows(inputs, attribution),
    }
    return tables, dict.fromkeys(selected.ranks, fact)
