"""Blame of a run: waits at collectives by the rank that caused them, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracewarehouse.derive.blame_chain import Chain, Charged, Mates, Tasks
from tracewarehouse.derive.blame_inputs import NO_STEP, Arrivals, Inputs
from tracewarehouse.derive.causes import CAUSES, Causes
from tracewarehouse.derive.chance import enough_steps, largest_share
from tracewarehouse.derive.intervals import Union, at
from tracewarehouse.derive.waits import Waits
from tracewarehouse.errors import TwError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


# A rank that enters a collective so soon after another one had queued both: its work between them was done
# before, so that the comparison that finds the cause begins before both.
_QUEUED_NS = 10_000


@dataclass(frozen=True)
class Blame:
    """The parts of all waits: instances and ranks are numbers of the inputs, the cause an index in CAUSES."""

    instance: Integers
    waiter: Integers
    blamed: Integers
    depth: Integers
    cause: Integers
    certain: Flags
    step: Integers
    wait_ns: Integers


def compute(inputs: Inputs) -> Blame:
    """Charges each wait at a synchronizing collective to the ranks that caused it."""
    arrivals = inputs.arrivals
    roots = _roots(arrivals)
    causes = Causes.of(arrivals.span_ns, inputs.activities, inputs.on_gpu)
    chain = _chain(arrivals, len(inputs.ranks), causes.computation)
    parts = [_grouped(_part(arrivals, charged, causes)) for charged in chain.charge(roots)]
    found = _grouped(_joined(parts))
    _check_sums(found, arrivals)
    return found


def _chain(arrivals: Arrivals, ranks: int, computation: Union) -> Chain:
    synchronized = arrivals.synchronizes
    mates = Mates.of(ranks, arrivals.rank_set[synchronized], arrivals.rank[synchronized])
    return Chain(Waits.of(arrivals, computation), mates, ranks)


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


@dataclass(frozen=True)
class _Ends:
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


def _part(arrivals: Arrivals, charged: Charged, causes: Causes) -> Blame:
    kept = charged.wait_ns > 0
    tasks = charged.tasks[kept]
    stays = Charged(
        tasks, charged.depth, charged.wait_ns[kept], charged.late_waits_ns[kept], charged.other_waits_ns[kept]
    )
    return Blame(
        arrivals.instance[tasks.root],
        arrivals.rank[tasks.root],
        tasks.late,
        np.full(len(tasks), charged.depth),
        causes.name(stays),
        tasks.certain,
        arrivals.step[tasks.root],
        stays.wait_ns,
    )


def _joined(parts: Sequence[Blame]) -> Blame:
    if not parts:
        nothing = np.zeros(0, dtype=np.int64)
        return Blame(nothing, nothing, nothing, nothing, nothing, nothing.astype(bool), nothing, nothing)
    return Blame(
        *(np.concatenate(columns) for columns in zip(*(vars(part).values() for part in parts), strict=True))
    )


def _grouped(blame: Blame) -> Blame:
    """One row per charged rank, collective, waiter, depth, cause and certainty, in this order."""
    keys = (blame.certain, blame.cause, blame.depth, blame.waiter, blame.instance, blame.blamed)
    order = np.lexsort(keys)
    if not len(order):
        return blame
    is_new = np.append(True, np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0))
    first = np.flatnonzero(is_new)
    columns = {name: column[order][first] for name, column in vars(blame).items()}
    return Blame(**{**columns, "wait_ns": np.add.reduceat(blame.wait_ns[order], first)})


def _check_sums(blame: Blame, arrivals: Arrivals) -> None:
    """Raises TwError unless the parts of each collective add up to the waits of its ranks."""
    left = np.zeros(arrivals.instances, dtype=np.int64)
    roots = arrivals.synchronizes
    np.add.at(left, arrivals.instance[roots], arrivals.wait_ns[roots])
    np.subtract.at(left, blame.instance, blame.wait_ns)
    if left.any():
        raise TwError("the parts of waits do not add up", "internal error; please report it")


def tables(inputs: Inputs, blame: Blame) -> dict[str, Mapping[int, pa.Table]]:
    """Table → rank → rows, in the order of its contract."""
    return {"blame": _blame_rows(inputs, blame), "blame_basis": _basis_rows(inputs, blame)}


def _blame_rows(inputs: Inputs, blame: Blame) -> Mapping[int, pa.Table]:
    # Collectives in the order of their keys, causes by name: as texts sort.
    by_key = np.argsort(np.argsort(inputs.instances))
    by_name = np.argsort(np.argsort(CAUSES))
    order = np.lexsort(
        (blame.certain, by_name[blame.cause], blame.depth, blame.waiter, by_key[blame.instance], blame.blamed)
    )
    columns = {name: column[order] for name, column in vars(blame).items()}
    edges = np.searchsorted(columns["blamed"], np.arange(len(inputs.ranks) + 1))
    keys, causes = pa.array(inputs.instances, pa.string()), pa.array(CAUSES, pa.string())
    found = {}
    for number, (first, end) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        rows = {name: column[first:end] for name, column in columns.items()}
        found[int(inputs.ranks[number])] = pa.table(
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
    return found


def _basis_rows(inputs: Inputs, blame: Blame) -> Mapping[int, pa.Table]:
    in_step = blame.step != NO_STEP
    step, ranks = blame.step[in_step], len(inputs.ranks)
    share = largest_share(step, blame.blamed[in_step], blame.wait_ns[in_step], ranks)
    enough = enough_steps(len(np.unique(step)), ranks)
    rows = pa.table({name: pa.array(column) for name, column in inputs.basis.items()})
    rows = rows.append_column("null_p99", pa.array([share] * len(rows), pa.float64()))
    rows = rows.append_column("enough_steps", pa.array([enough] * len(rows)))
    ranked = enumerate(rows["rank"].to_pylist())
    return {rank: rows.slice(row, 1).drop_columns(["rank"]) for row, rank in ranked}
