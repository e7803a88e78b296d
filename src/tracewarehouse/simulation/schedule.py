"""One rank's time: host, streams and collectives, worked out in the order in which the host acts.

Streams are first in, first out, and the host acts in one order, so every start is the latest of what it waits
for: the call, the row before it on the stream, the events, and for a collective the last rank.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tracewarehouse.simulation.groups import Group, Groups, Meetings
from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.model import Model
from tracewarehouse.simulation.noise import ONE, TABLE, Noise, scaled
from tracewarehouse.simulation.parts import (
    COMPUTE,
    Api,
    Collective,
    Do,
    Event,
    Frame,
    Graph,
    Kernel,
    Memory,
    Part,
    Spend,
)
from tracewarehouse.simulation.planted import Planted
from tracewarehouse.simulation.record import Recorder

FIRST_STEP = 1  # the number of the first ProfilerStep
GAP_NS = 250  # between two things the host does
GRAPH_GAP_NS = 700  # between two nodes of a graph


class Setting:
    """What all ranks of a job share."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.planted = Planted(job)
        self.model = Model(job)
        self.noise = Noise(job)
        self.groups = Groups(job)
        self.meetings = Meetings(job, self.planted)
        kernels = self.model.kernels
        self.record_api = kernels.api("cudaEventRecord", "hipEventRecord", 135, 30, 1_200)
        self.wait_api = kernels.api("cudaStreamWaitEvent", "hipStreamWaitEvent", 147, 140, 900)
        self.sync_api = kernels.api("cudaStreamSynchronize", "hipStreamSynchronize", 131, 138, 1_500)
        self.lag_api = kernels.api("cudaEventSynchronize", "hipEventSynchronize", 137, 32, 1_500)
        self.graph_api = kernels.api("cudaGraphLaunch", "hipGraphLaunch", 311, 330, 14_000)


Arrival = tuple[Group, int]


class Clock:
    """A rank that acts; with a recorder it also leaves its trace."""

    __slots__ = (
        "events",
        "gpu",
        "host",
        "kernels",
        "now",
        "out",
        "rank",
        "seen",
        "setting",
        "stage",
        "stall",
        "tails",
        "turn",
        "wait_factor",
    )

    def __init__(self, setting: Setting, rank: int, out: Recorder | None = None) -> None:
        self.setting, self.rank, self.out = setting, rank, out
        self.stage = setting.job.place(rank)[0]
        self.now = 0
        self.tails: dict[str, int] = {}
        self.events: dict[str, tuple[int, int]] = {}
        self.seen: dict[str, int] = {}
        self.turn = rank * 131 % TABLE
        self.host = self.gpu = ONE
        self.wait_factor = 1.0
        self.stall = 0
        self.kernels: dict[str, int] = {}

    def run(self) -> Generator[Arrival]:
        """All steps. Yields each collective's group and when this rank came; goes on when all are there."""
        handlers: tuple[Callable[[Any], None], ...] = (
            self.begin, self.end, self.launch, self.end, self.record, self.wait,
            self.sync, self.spend, self.memory, self.thread, self.end,
        )  # fmt: skip
        for step in range(self.setting.job.steps):
            variant = self._start(step)
            for what, part in self.setting.model.tape(variant):
                if what is Do.COLLECTIVE:
                    yield from self._collective(part)
                elif what is Do.GRAPH:
                    yield from self._graph(part)
                else:
                    handlers[what](part)
            self._finish(step)

    def _start(self, step: int) -> Any:
        planted, rank = self.setting.planted, self.rank
        noise = self.setting.noise.step(step)
        self.host = scaled(noise * planted.factor("host", rank, step))
        compute = noise * planted.factor("compute", rank, step)
        self.gpu = scaled(compute)
        self.kernels = {
            key: scaled(compute * factor) for key, factor in planted.kernel_factors(rank, step).items()
        }
        self.wait_factor = noise * planted.factor("data", rank, step)
        self.stall = planted.stall_ns(rank, step)
        self.now += GAP_NS
        if self.out is not None:
            self.out.step_begins(step + FIRST_STEP, self.now)
        return planted.variant(self.stage, rank, step)

    def _finish(self, step: int) -> None:
        """The host runs at most one step ahead of the GPU: it waits for the end of the step before."""
        self.record(Event(f"step {step % 2}", COMPUTE))
        before = self.events.get(f"step {(step + 1) % 2}")
        if before is not None:
            self._block(self.setting.lag_api, "Event Sync", before[0], COMPUTE, before[1])
        if self.out is not None:
            self.out.step_ends(self.now)

    def begin(self, frame: Frame) -> None:
        """Goes into a slice of the host."""
        self.now += frame.lead_ns * self.host >> 20
        if self.out is not None:
            self.out.begin(frame, self.now)

    def end(self, frame: Frame) -> None:
        """Leaves the innermost slice."""
        self.now += 350 * self.host >> 20
        if self.out is not None:
            self.out.end(self.now)

    def spend(self, spend: Spend) -> None:
        """Time of the host alone."""
        if spend.what == "data":
            self.now += round(spend.ns * self.wait_factor) + self.stall
        else:
            self.now += spend.ns * self.host >> 20

    def memory(self, memory: Memory) -> None:
        """An allocation or what gives it back."""
        self.now += 120
        if self.out is not None:
            self.out.memory(memory, self.now)

    def thread(self, name: str) -> None:
        """Another thread of the host goes on."""
        self.now += 6_000 * self.host >> 20
        if self.out is not None:
            self.out.thread(name)

    def _call(self, api: Api) -> int:
        """A call of the runtime: returns its start, `now` is its end."""
        start = self.now + GAP_NS
        self.now = start + (api.ns * self.host >> 20)
        return start

    def launch(self, kernel: Kernel) -> None:
        """A kernel, copy or set on the stream of the computation."""
        start = self._call(kernel.api)
        length = self._length(kernel)
        tail = self.tails.get(COMPUTE, 0)
        begins = max(start + (self.now - start) * 3 // 5 + 900, tail - kernel.early_ns)
        ends = begins + length
        self.tails[COMPUTE] = max(tail, ends)
        if self.out is not None:
            self.out.launch(kernel, COMPUTE, start, self.now, begins, ends)

    def _length(self, kernel: Kernel) -> int:
        self.turn = turn = (self.turn + 1) % TABLE
        own = kernel.ns * self.kernels.get(kernel.key, self.gpu) >> 20
        return own * self.setting.noise.table[turn] >> 20

    def _collective(self, part: Part) -> Generator[Arrival]:
        assert isinstance(part, Collective)
        start = self._call(part.kernel.api)
        arrives = max(start + (self.now - start) * 3 // 5 + 900, self.tails.get(part.scope, 0))
        group, ends = yield from self._meet(part, arrives)
        self.tails[part.scope] = ends
        if self.out is not None:
            self.out.launch(part.kernel, part.scope, start, self.now, arrives, ends, group, part)

    def _meet(self, part: Collective, arrives: int) -> Generator[Arrival, None, tuple[Group, int]]:
        """Waits for the other ranks: returns the group and the end."""
        group = self.setting.groups.of(self.rank, part.scope, part.edge)
        number = self.seen.get(group.name, 0)
        self.seen[group.name] = number + 1
        yield group, arrives
        last = self.setting.meetings.last(group, number)
        ends = last + self.setting.meetings.transfer_ns(group, part, number)
        if self.out is not None:
            self.out.meeting(part, group, number, arrives, last, ends)
        return group, ends

    def _graph(self, part: Part) -> Generator[Arrival]:
        """A captured graph: one call, its nodes one after the other."""
        assert isinstance(part, Graph)
        start = self._call(self.setting.graph_api)
        at = max(start + (self.now - start) * 3 // 5 + 900, self.tails.get(COMPUTE, 0))
        if self.out is not None:
            self.out.graph(self.setting.graph_api, part, start, self.now)
        for node, piece in enumerate(part.nodes):
            if isinstance(piece, Collective):
                group, ends = yield from self._meet(piece, at)
                self._node(piece.kernel, node, at, ends, group, piece)
            else:
                ends = at + self._length(piece)
                self._node(piece, node, at, ends, None, None)
            at = ends + GRAPH_GAP_NS
        self.tails[COMPUTE] = at - GRAPH_GAP_NS

    def _node(self, kernel: Kernel, node: int, begins: int, ends: int, group: Group | None,
              collective: Collective | None) -> None:  # fmt: skip
        if self.out is not None:
            self.out.node(kernel, node, begins, ends, group, collective)

    def record(self, event: Event) -> None:
        """Marks a stream: the mark is reached when all before it is done."""
        start = self._call(self.setting.record_api)
        correlation = 0
        if self.out is not None:
            correlation = self.out.call(self.setting.record_api, start, self.now)
        self.events[event.name] = (max(self.tails.get(event.stream, 0), start), correlation)

    def wait(self, event: Event) -> None:
        """Lets a stream wait for a mark."""
        start = self._call(self.setting.wait_api)
        at, marked = self.events.get(event.name, (0, 0))
        self.tails[event.waiter] = max(self.tails.get(event.waiter, 0), at)
        if self.out is not None:
            self.out.stream_wait(self.setting.wait_api, event, start, self.now, marked)

    def sync(self, stream: str) -> None:
        """The host waits until a stream is done."""
        self._block(self.setting.sync_api, "Stream Sync", self.tails.get(stream, 0), stream, 0)

    def _block(self, api: Api, kind: str, until: int, stream: str, marked: int) -> None:
        start = self._call(api)
        self.now = max(self.now, until + 1_000)
        if self.out is not None:
            self.out.sync(api, kind, stream, start, self.now, marked)


def meet(setting: Setting) -> None:
    """Runs all ranks without a trace, side by side, to learn when each collective's last rank comes."""
    waiting: dict[str, list[Generator[Arrival]]] = {}
    for rank in range(setting.job.ranks):
        ready = [Clock(setting, rank).run()]
        while ready:
            run = ready.pop()
            arrival = next(run, None)
            if arrival is None:
                continue
            group, at_ns = arrival
            waiting.setdefault(group.name, []).append(run)
            if setting.meetings.arrive(group, at_ns):
                ready += waiting.pop(group.name)
    assert not waiting, "ranks wait for each other"
