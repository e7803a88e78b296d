"""Process groups, and the duration of their collectives."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

from tracewarehouse.simulation.job import DATA, STAGE, TENSOR, Collective, Job
from tracewarehouse.simulation.kernels import Faults

LATENCY_NS = 9_000  # of a collective of any size


@dataclass(frozen=True)
class Group:
    """Ranks that communicate, in order; injections use `name`."""

    name: str
    scope: str
    ranks: tuple[int, ...]
    number: int

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)


def expert_split(job: Job, collective: Collective, group: Group) -> tuple[int, ...]:
    """Elements that each rank sends to each rank of the group, in order; empty if all get the same.

    With an imbalance, the experts of some ranks get more tokens in each all-to-all.
    """
    factors = [(each.rank, each.number("factor")) for each in job.injections if each.kind == "imbalance"]
    if collective.name != "all_to_all" or not factors:
        return ()
    weights = [math.prod(factor for rank, factor in factors if rank == member) for member in group.ranks]
    shares = [int(collective.in_elements * weight / sum(weights)) for weight in weights]
    return (*shares[:-1], collective.in_elements - sum(shares[:-1]))


def message_bytes(job: Job, collective: Collective, group: Group) -> int:
    """The message size; of an uneven all-to-all the most that a rank sends to or receives from others."""
    split = expert_split(job, collective, group)
    if not split:
        return collective.bytes
    most = max(max(sum(split) - own, (group.size - 1) * own) for own in split)
    return most * collective.bytes // collective.in_elements


class Groups:
    """All process groups of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._by_key: dict[tuple[str, tuple[int, ...]], Group] = {}
        self._of_rank: dict[tuple[int, str, int], Group] = {}

    def of(self, rank: int, scope: str, edge: int = 0) -> Group:
        """The group of a rank for a scope; `edge` is the lower stage of a pair."""
        key = (rank, scope, edge)
        group = self._of_rank.get(key)
        if group is None:
            group = self._of_rank[key] = self._find(rank, scope, edge)
        return group

    def names(self) -> list[str]:
        """The names of all groups that communicate."""
        job = self.job
        counts = {
            TENSOR: job.pipeline * job.data if job.tensor > 1 else 0,
            DATA: job.pipeline * job.tensor if job.data > 1 else 0,
            STAGE: (job.pipeline - 1) * job.data * job.tensor,
        }
        return [f"{scope}{number}" for scope, count in counts.items() for number in range(count)]

    def forget(self, rank: int) -> None:
        """Drops cached groups of a finished rank, so that memory does not grow with the number of ranks."""
        for key in [key for key in self._of_rank if key[0] == rank]:
            del self._of_rank[key]

    def all_of(self, rank: int) -> list[Group]:
        """The groups of a rank."""
        job, groups = self.job, []
        if job.tensor > 1:
            groups.append(self.of(rank, TENSOR))
        if job.data > 1:
            groups.append(self.of(rank, DATA))
        stage = job.coordinates(rank)[0]
        if stage > 0:
            groups.append(self.of(rank, STAGE, stage - 1))
        if stage < job.pipeline - 1:
            groups.append(self.of(rank, STAGE, stage))
        return groups

    def _find(self, rank: int, scope: str, edge: int) -> Group:
        job = self.job
        stage, copy, part = job.coordinates(rank)
        if scope == TENSOR:
            number = stage * job.data + copy
            ranks = tuple(job.rank_at(stage, copy, each) for each in range(job.tensor))
        elif scope == DATA:
            number = stage * job.tensor + part
            ranks = tuple(job.rank_at(stage, each, part) for each in range(job.data))
        else:
            number = (edge * job.data + copy) * job.tensor + part
            ranks = (job.rank_at(edge, copy, part), job.rank_at(edge + 1, copy, part))
        key = (scope, ranks)
        if key not in self._by_key:
            self._by_key[key] = Group(f"{scope}{number}", scope, ranks, number)
        return self._by_key[key]


class Rendezvous:
    """Arrival of the last rank at each collective, and the duration of its transfer."""

    def __init__(self, job: Job, faults: Faults) -> None:
        self.job, self.faults = job, faults
        self._last: dict[str, array[int]] = {}
        self._open: dict[str, tuple[int, int]] = {}
        self._transfers: dict[tuple[str, Collective], int] = {}
        self._has_long = any(fault.kind == "long-collective" for fault in faults.all)

    def arrive(self, group: Group, at_ns: int) -> bool:
        """Adds an arrival at the group's next collective; returns whether it was the last one."""
        count, last = self._open.get(group.name, (0, 0))
        count, last = count + 1, max(last, at_ns)
        if count < group.size:
            self._open[group.name] = (count, last)
            return False
        self._open.pop(group.name, None)
        self._last.setdefault(group.name, array("q")).append(last)
        return True

    def count(self, group: str) -> int:
        """Number of collectives of a group."""
        return len(self._last.get(group, ()))

    def last(self, group: Group, number: int) -> int:
        """Time at which the last rank arrived at the n-th collective of a group."""
        return self._last[group.name][number]

    def transfer_ns(self, group: Group, collective: Collective, number: int) -> int:
        """Duration of the n-th collective of a group after the last arrival."""
        key = (group.name, collective)
        if key not in self._transfers:
            job, size = self.job, group.size
            nodes = {rank // job.ranks_per_node for rank in group.ranks}
            bytes_per_ns = job.link_bytes_per_ns if len(nodes) == 1 else job.network_gb_per_s
            share = 1.0 if expert_split(job, collective, group) else _share(collective.name, size)
            moved = message_bytes(job, collective, group) * share / bytes_per_ns
            slowed_ns = (LATENCY_NS + moved) * self.faults.link_factor(group.name)
            self._transfers[key] = round(slowed_ns)
        longer_ns = self.faults.longer_ns(group.name, number) if self._has_long else 0
        return self._transfers[key] + longer_ns


def _share(name: str, size: int) -> float:
    """Share of the message that crosses a link, by the usual convention of each collective."""
    if name == "allreduce":
        return 2 * (size - 1) / size
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (size - 1) / size
    return 1.0
