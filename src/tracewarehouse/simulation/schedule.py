"""One rank's time: host, streams and collectives, worked out in the order in which the host acts.

Streams are first in, first out, and the host acts in one order, so every start is the latest of what it waits
for: the call, the row before it on the stream, the events, and for a collective the last rank.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator
from functools import cached_property
from typing import Any

from tracewarehouse.simulation.faults import ONE, TABLE, Noise, Planted, scaled
from tracewarehouse.simulation.groups import Group, Groups, Meetings
from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.kernels import Model
from tracewarehouse.simulation.parts import (
    COMPUTE,
    FIRST_STEP,
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
from tracewarehouse.simulation.paths import COMPUTE_PLACE, WAIT_PLACE, Parts, earlier, parts
from tracewarehouse.simulation.record import Recorder
from tracewarehouse.simulation.steps import Tapes

GAP_NS = 250  # between two things the host does
MORE_LAUNCHES = 16  # what may be planted in one step and not in another
GRAPH_GAP_NS = 700  # between two nodes of a graph


class Setting:
    """What all ranks of a job share."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.planted = Planted(job)
        self.model = Model(job)
        self.tapes = Tapes(self.model)
        self.noise = Noise(job)
        self.groups = Groups(job)
        self.meetings = Meetings(job, self.planted)
        self.ends = array("q", bytes(8 * job.ranks))  # when each rank's last step is over
        kernels = self.model.kernels
        self.record_api = kernels.api("cudaEventRecord", "hipEventRecord", 135, 30, 1_200)
        self.wait_api = kernels.api("cudaStreamWaitEvent", "hipStreamWaitEvent", 147, 140, 900)
        self.sync_api = kernels.api("cudaStreamSynchronize", "hipStreamSynchronize", 131, 138, 1_500)
        self.lag_api = kernels.api("cudaEventSynchronize", "hipEventSynchronize", 137, 32, 1_500)
        self.graph_api = kernels.api("cudaGraphLaunch", "hipGraphLaunch", 311, 330, 14_000)

    @cached_property
    def queues(self) -> bool:
        """Whether a stream's queue can ever be full: the host is never more than two steps ahead."""
        stages = [self.planted.variant(stage, 0, 0) for stage in range(self.job.pipeline)]
        launches = [sum(what is Do.LAUNCH for what, _ in self.tapes.of(stage)) for stage in stages]
        return 2 * max(launches) + MORE_LAUNCHES > self.job.queue_limit


Arrival = tuple[Group, int]


class Clock:
    """A rank that acts; with a recorder it also leaves its trace."""

    __slots__ = (
        "events",
        "gpu",
        "host",
        "kernels",
        "loader",
        "now",
        "met",
        "out",
        "path",
        "paths",
        "queue",
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
        self.now = self.path = 0
        self.paths: dict[str, int] = {}
        self.met: dict[str, Parts] = {}
        self.tails: dict[str, int] = {}
        self.events: dict[str, tuple[int, int, int]] = {}
        self.seen: dict[str, int] = {}
        self.turn = rank * 131 % TABLE
        self.host = self.gpu = ONE
        self.wait_factor = 1.0
        self.stall = 0
        self.kernels: dict[str, int] = {}
        self.queue = Queue(setting.job.queue_limit) if setting.queues else None
        self.loader = Loader(setting.job.workers)

    def run(self) -> Generator[Arrival]:
        """All steps. Yields each collective's group and when this rank came; goes on when all are there."""
        handlers: tuple[Callable[[Any], None], ...] = (
            self.begin, self.end, self.launch, self.end, self.record, self.wait,
            self.sync, self.spend, self.memory, self.thread, self.end,
        )  # fmt: skip
        for step in range(self.setting.job.steps):
            variant = self._start(step)
            for what, part in self.setting.tapes.of(variant):
                if what is Do.COLLECTIVE:
                    yield from self._collective(part)
                elif what is Do.GRAPH:
                    yield from self._graph(part)
                else:
                    handlers[what](part)
            self._finish(step)
        self.setting.ends[self.rank] = self.now

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
            self._block(self.setting.lag_api, "Event Sync", COMPUTE, *before)
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
            waits = self.loader.waits(self.now, round(spend.ns * self.wait_factor) + self.stall)
            self.now += waits
            self.path += waits
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
        begins, path = start + (self.now - start) * 3 // 5 + 900, self.path
        if begins < tail - kernel.early_ns:
            begins, path = tail - kernel.early_ns, self.paths[COMPUTE]
        if self.queue is not None:
            self._wait_for_room(self.queue, begins)
        ends = begins + length
        if ends >= tail:
            self.tails[COMPUTE], self.paths[COMPUTE] = ends, path + (length << COMPUTE_PLACE)
        if self.out is not None:
            self.out.launch(kernel, COMPUTE, start, self.now, begins, ends)

    def _wait_for_room(self, queue: Queue, begins: int) -> None:
        """Where too many rows wait for the stream, the call blocks until one of them begins."""
        room = queue.room_at(self.now)
        if room > self.now:
            self.now, self.path = room, earlier(self.paths[COMPUTE], self.tails[COMPUTE] - room)
        queue.add(begins)

    def _length(self, kernel: Kernel) -> int:
        self.turn = turn = (self.turn + 1) % TABLE
        own = kernel.ns * self.kernels.get(kernel.key, self.gpu) >> 20
        return own * self.setting.noise.table[turn] >> 20

    def _collective(self, part: Part) -> Generator[Arrival]:
        assert isinstance(part, Collective)
        start = self._call(part.kernel.api)
        arrives, path = start + (self.now - start) * 3 // 5 + 900, self.path
        if arrives < self.tails.get(part.scope, 0):
            arrives, path = self.tails[part.scope], self.paths[part.scope]
        group, ends = yield from self._meet(part, arrives, path)
        self.tails[part.scope] = ends
        self.paths[part.scope] = path + (ends - arrives << WAIT_PLACE)
        if self.out is not None:
            self.out.launch(part.kernel, part.scope, start, self.now, arrives, ends, group, part)

    def _meet(self, part: Collective, arrives: int, path: int) -> Generator[Arrival, None, tuple[Group, int]]:
        """Waits for the other ranks: returns the group and the end."""
        group = self.setting.groups.of(self.rank, part.scope, part.edge)
        number = self.seen.get(group.name, 0)
        self.seen[group.name] = number + 1
        yield group, arrives
        last = self.setting.meetings.last(group, number)
        ends = last + self.setting.meetings.transfer_ns(group, part, number)
        if self.out is not None:
            self.out.meeting(part, group, number, arrives, last, ends, self._since(group, arrives, path))
            self.met[group.name] = parts(path + (ends - arrives << WAIT_PLACE), ends)
        return group, ends

    def _since(self, group: Group, arrives: int, path: int) -> Parts:
        """What the time since the group last met went into."""
        data, host, compute, waited = self.met.get(group.name, (0, 0, 0, 0))
        now = parts(path, arrives)
        return now[0] - data, now[1] - host, now[2] - compute, now[3] - waited

    def _graph(self, part: Part) -> Generator[Arrival]:
        """A captured graph: one call, its nodes one after the other."""
        assert isinstance(part, Graph)
        start = self._call(self.setting.graph_api)
        at, path = start + (self.now - start) * 3 // 5 + 900, self.path
        if at < self.tails.get(COMPUTE, 0):
            at, path = self.tails[COMPUTE], self.paths[COMPUTE]
        if self.out is not None:
            self.out.graph(self.setting.graph_api, part, start, self.now)
        for node, piece in enumerate(part.nodes):
            if isinstance(piece, Collective):
                group, ends = yield from self._meet(piece, at, path)
                path += ends - at << WAIT_PLACE
                self._node(piece.kernel, node, at, ends, group, piece)
            else:
                ends = at + self._length(piece)
                path += ends - at << COMPUTE_PLACE
                self._node(piece, node, at, ends, None, None)
            at = ends + GRAPH_GAP_NS
        self.tails[COMPUTE], self.paths[COMPUTE] = at - GRAPH_GAP_NS, path

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
        tail = self.tails.get(event.stream, 0)
        reached = (tail, self.paths[event.stream]) if tail > start else (start, self.path)
        self.events[event.name] = (*reached, correlation)

    def wait(self, event: Event) -> None:
        """Lets a stream wait for a mark."""
        start = self._call(self.setting.wait_api)
        at, path, marked = self.events.get(event.name, (0, 0, 0))
        if at > self.tails.get(event.waiter, 0):
            self.tails[event.waiter], self.paths[event.waiter] = at, path
        if self.out is not None:
            self.out.stream_wait(self.setting.wait_api, event, start, self.now, marked)

    def sync(self, stream: str) -> None:
        """The host waits until a stream is done."""
        until = self.tails.get(stream, 0), self.paths.get(stream, 0)
        self._block(self.setting.sync_api, "Stream Sync", stream, *until, 0)

    def _block(self, api: Api, kind: str, stream: str, until: int, path: int, marked: int) -> None:
        start = self._call(api)
        if until + 1_000 > self.now:
            self.now, self.path = until + 1_000, path
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


AHEAD = 2  # batches that a worker makes before one of its own is taken, as torch's prefetch_factor
HANDOVER_NS = 20_000  # from a worker's queue to the training thread


class Loader:
    """Batches in turn from so many workers; without any, the training thread makes them itself."""

    __slots__ = ("ready", "taken")

    def __init__(self, workers: int) -> None:
        self.ready = [0] * workers
        self.taken = [0] * AHEAD * workers

    def waits(self, at_ns: int, makes_ns: int) -> int:
        """How long the training thread waits for the batch it asks for then, which takes so long to make."""
        if not self.ready:
            return makes_ns
        # Its worker begins once its last batch is made, and once there is room for another one.
        made = max(self.ready.pop(0), self.taken.pop(0)) + makes_ns
        self.ready.append(made)
        waits = max(made - at_ns, 0) + HANDOVER_NS
        self.taken.append(at_ns + waits)
        return waits


class Queue:
    """When the rows begin that were launched to a stream; small, for all ranks have one at the same time."""

    __slots__ = ("first", "limit", "starts")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.starts = array("q")
        self.first = 0

    def room_at(self, now_ns: int) -> int:
        """When there is room for one more: now, or when the first of those that wait begins."""
        starts, first = self.starts, self.first
        while first < len(starts) and starts[first] <= now_ns:
            first += 1
        if first > 32:
            del starts[:first]
            first = 0
        self.first = first
        return starts[first] if len(starts) - first >= self.limit else now_ns

    def add(self, begins_ns: int) -> None:
        """A row that begins then, after all before it."""
        self.starts.append(begins_ns)
