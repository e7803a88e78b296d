"""Writes a simulated job: one trace file per rank, and truth.json with the expected results.

Streams are first in, first out and the host is sequential, so an activity starts at the latest of its
dependencies: its launch, the previous activity of the stream, events, and for a collective the last rank.
"""

from __future__ import annotations

import gzip
import json
from array import array
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property, partial
from os import PathLike
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any

from msgspec import Struct

from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.simulation.capture import (
    capture_file_name,
    closing,
    expected_nodes,
    file_name,
    head,
    names,
    tail,
    write_capture,
)
from tracewarehouse.simulation.job import (
    COMPUTE,
    FIRST_STEP,
    Api,
    Collective,
    Event,
    Frame,
    Graph,
    Injection,
    Job,
    Kernel,
    Memory,
    Op,
    Operand,
    Spend,
)
from tracewarehouse.simulation.kernels import (
    ONE,
    TABLE,
    Faults,
    Group,
    Groups,
    Model,
    Noise,
    Rendezvous,
    Variant,
    scaled,
)
from tracewarehouse.simulation.record import Recorder
from tracewarehouse.simulation.steps import step_tape
from tracewarehouse.simulation.truth import (
    CAUSES,
    COMPUTE_SHIFT,
    SECTIONS,
    WAIT_SHIFT,
    Parts,
    Row,
    WaitAttribution,
    earlier,
    parts,
)

GAP_NS = 250  # between two calls of the host
GRAPH_GAP_NS = 700  # between two nodes of a graph


class JobState:
    """State that all ranks of a job share."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.faults = Faults(job)
        self.model = Model(job)
        self.tape = cache(partial(step_tape, self.model))
        self.noise = Noise(job)
        self.groups = Groups(job)
        self.rendezvous = Rendezvous(job, self.faults)
        self.ends = array("q", bytes(8 * job.ranks))  # end of each rank's last step
        kernels = self.model.kernels
        self.record_api = kernels.api("cudaEventRecord", "hipEventRecord", 135, 30, 1_200)
        self.wait_api = kernels.api("cudaStreamWaitEvent", "hipStreamWaitEvent", 147, 140, 900)
        self.sync_api = kernels.api("cudaStreamSynchronize", "hipStreamSynchronize", 131, 138, 1_500)
        self.lag_api = kernels.api("cudaEventSynchronize", "hipEventSynchronize", 137, 32, 1_500)
        self.graph_api = kernels.api("cudaGraphLaunch", "hipGraphLaunch", 311, 330, 14_000)

    @cached_property
    def queues(self) -> bool:
        """Whether a stream's queue can be full: the host is at most two steps ahead."""
        steps = range(self.job.steps if self.faults.all else 1)
        ranks = [(self.job.coordinates(rank)[0], rank) for rank in range(self.job.ranks)]
        variants = {self.faults.variant(*rank, step) for rank in ranks for step in steps}
        launches = [sum(op is Op.LAUNCH for op, _ in self.tape(variant)) for variant in variants]
        return 2 * max(launches) > self.job.queue_limit


Arrival = tuple[Group, int]


class RankSimulator:
    """Runs the program of a rank; with a recorder, its trace is recorded."""

    def __init__(self, state: JobState, rank: int, out: Recorder | None = None) -> None:
        self.state, self.rank, self.out = state, rank, out
        self.stage = state.job.coordinates(rank)[0]
        self.now = self.path = 0
        self.paths: dict[str, int] = {}
        self.previous: dict[str, Parts] = {}
        self.tails: dict[str, int] = {}
        self.events: dict[str, tuple[int, int, int]] = {}
        self.seen: dict[str, int] = {}
        self.turn = rank * 131 % TABLE
        self.host = self.gpu = ONE
        self.wait_factor = 1.0
        self.stall = self.graph_gap_ns = self.loading_ns = 0
        self.kernels: dict[str, int] = {}
        self.queue = Queue(state.job.queue_limit) if state.queues else None
        self.loader = Loader(state.job.workers)

    def run(self) -> Generator[Arrival]:
        """Runs all steps; at each collective yields its group and the arrival of this rank."""
        handlers: tuple[Callable[[Any], None], ...] = (
            self.begin, self.end, self.launch, self.end, self.record, self.wait,
            self.sync, self.spend, self.memory, self.thread, self.end,
        )  # fmt: skip
        for step in range(self.state.job.steps):
            variant = self._start(step)
            for op, operand in self.state.tape(variant):
                if op is Op.COLLECTIVE:
                    yield from self._collective(operand)
                elif op is Op.GRAPH:
                    yield from self._graph(operand)
                else:
                    handlers[op](operand)
            # Waits for the end of the previous step: the host runs at most one step ahead of the GPU.
            self.record(Event(f"step {step % 2}", COMPUTE))
            before = self.events.get(f"step {(step + 1) % 2}")
            if before is not None:
                self._block(self.state.lag_api, "Event Sync", COMPUTE, *before)
            if self.out is not None:
                self.out.end_step(self.now)
        self.state.ends[self.rank] = self.now

    def _start(self, step: int) -> Variant:
        faults, rank = self.state.faults, self.rank
        noise = self.state.noise.step(step)
        self.host = scaled(noise * faults.factor("host", rank, step))
        compute = noise * faults.compute_factor(rank, step)
        self.gpu = scaled(compute)
        self.kernels = {
            key: scaled(compute * factor) for key, factor in faults.kernel_factors(rank, step).items()
        }
        self.kernels["copy"] = scaled(compute * faults.factor("copies", rank, step))
        self.wait_factor = noise * faults.factor("data", rank, step)
        self.stall = faults.additional("dataloader-stall", rank, step)
        self.graph_gap_ns = faults.additional("graph-gap", rank, step)
        self.loading_ns = 0 if step else faults.additional("startup", rank, step)
        self.variant = faults.variant(self.stage, rank, step)
        self.now += GAP_NS
        if self.out is not None:
            self.out.begin_step(step + FIRST_STEP, self.now)
            self._charge(self.out, step)
        return self.variant

    def _charge(self, out: Recorder, step: int) -> None:
        """What makes this rank alone slow costs additional computation, here without the noise of kernels."""
        faults = self.state.faults
        for kind in ("slow-rank", "slow-kernel", "more-work"):
            if any(fault.rank == self.rank for fault in faults.of(kind, self.rank, step)):
                lost = self._computation_ns(faults, step) - self._computation_ns(faults.without(kind), step)
                out.truth.lose(kind, round(lost))

    def _computation_ns(self, faults: Faults, step: int) -> float:
        """The usual time of the kernels of a step with these faults."""
        factors = faults.kernel_factors(self.rank, step)
        ns = 0.0
        for _, operand in self.state.tape(faults.variant(self.stage, self.rank, step)):
            for kernel in operand.nodes if isinstance(operand, Graph) else [operand]:
                if isinstance(kernel, Kernel) and kernel.kind == "computation":
                    ns += kernel.ns * factors.get(kernel.key, 1.0)
        return ns * self.state.noise.step(step) * faults.compute_factor(self.rank, step)

    def begin(self, frame: Frame) -> None:
        """Begins a host slice."""
        self.now += frame.lead_ns * self.host >> 20
        if self.out is not None:
            self.out.begin(frame, self.now)

    def end(self, frame: Frame) -> None:
        """Ends the innermost slice."""
        self.now += 350 * self.host >> 20
        if self.out is not None:
            self.out.end(self.now)

    def spend(self, spend: Spend) -> None:
        """Spends host time."""
        if spend.what == "data":
            waits = self.loader.wait_ns(self.now, round(spend.ns * self.wait_factor) + self.stall)
            self.now += waits
            self.path += waits
        else:
            spent_ns = spend.ns * self.host >> 20
            self.now += spent_ns
            if self.out is not None and spend.what != "host":
                self.out.truth.lose(spend.what, spent_ns)

    def memory(self, memory: Memory) -> None:
        """An allocation or a release."""
        self.now += 120
        if self.out is not None:
            self.out.memory(memory, self.now)

    def thread(self, name: str) -> None:
        """Switches to another host thread."""
        self.now += 6_000 * self.host >> 20
        if self.out is not None:
            self.out.thread(name)

    def _call(self, api: Api) -> int:
        """A runtime call; returns its start, `now` is its end."""
        start = self.now + GAP_NS
        self.now = start + (api.ns * self.host >> 20)
        return start

    def launch(self, kernel: Kernel) -> None:
        """Launches a kernel, memcpy or memset on the compute stream."""
        start = self._call(kernel.api)
        length = self._length(kernel)
        loading_ns = self.loading_ns if kernel.category == "kernel" else 0
        if loading_ns:
            self.now, self.loading_ns = self.now + loading_ns, 0
            if self.out is not None:
                self.out.truth.lose("startup", loading_ns)
        begins, path = self._first_start(COMPUTE, start + loading_ns, kernel.early_ns)
        if self.queue is not None:
            room = self.queue.room_at(self.now)
            if room > self.now:  # the launch blocks while the queue of the stream is full
                self.now, self.path = room, earlier(self.paths[COMPUTE], self.tails[COMPUTE] - room)
            self.queue.add(begins)
        ends = begins + length
        if ends >= self.tails.get(COMPUTE, 0):
            self.tails[COMPUTE], self.paths[COMPUTE] = ends, path + (length << COMPUTE_SHIFT)
        if self.out is not None:
            self.out.launch(kernel, COMPUTE, start, self.now, begins, ends)

    def _first_start(self, stream: str, start: int, early_ns: int = 0) -> tuple[int, int]:
        """When the work of a call that began at `start` can start on a stream, and the path to it."""
        arrives, free = start + (self.now - start) * 3 // 5 + 900, self.tails.get(stream, 0) - early_ns
        return (free, self.paths[stream]) if arrives < free else (arrives, self.path)

    def _length(self, kernel: Kernel) -> int:
        self.turn = turn = (self.turn + 1) % TABLE
        own_ns = kernel.ns * self.kernels.get(kernel.key, self.gpu) >> 20
        return own_ns * self.state.noise.table[turn] >> 20

    def _collective(self, operand: Operand) -> Generator[Arrival]:
        assert isinstance(operand, Collective)
        start = self._call(operand.kernel.api)
        arrives, path = self._first_start(operand.scope, start)
        group, ends = yield from self._join_collective(operand, arrives, path)
        self.tails[operand.scope] = ends
        self.paths[operand.scope] = path + (ends - arrives << WAIT_SHIFT)
        if self.out is not None:
            self.out.launch(operand.kernel, operand.scope, start, self.now, arrives, ends, group, operand)

    def _join_collective(
        self, operand: Collective, arrives: int, path: int
    ) -> Generator[Arrival, None, tuple[Group, int]]:
        """Waits for the other ranks; returns the group and the end of the collective."""
        group = self.state.groups.of(self.rank, operand.scope, operand.edge)
        number = self.seen.get(group.name, 0)
        self.seen[group.name] = number + 1
        yield group, arrives
        last_ns = self.state.rendezvous.last(group, number)
        ends = last_ns + self.state.rendezvous.transfer_ns(group, operand, number)
        if self.out is not None:
            # Time since the previous collective of the group, by cause.
            data, host, compute, waited = self.previous.get(group.name, (0, 0, 0, 0))
            reached = parts(path, arrives)
            since = reached[0] - data, reached[1] - host, reached[2] - compute, reached[3] - waited
            self.out.collective(operand, group, number, arrives, last_ns, ends, since)
            self.previous[group.name] = parts(path + (ends - arrives << WAIT_SHIFT), ends)
        return group, ends

    def _graph(self, operand: Operand) -> Generator[Arrival]:
        """A captured graph: one launch, its nodes in sequence."""
        assert isinstance(operand, Graph)
        start = self._call(self.state.graph_api)
        start_ns, path = self._first_start(COMPUTE, start)
        if self.out is not None:
            self.out.graph(self.state.graph_api, operand, start, self.now)
        for node, member in enumerate(operand.nodes):
            if isinstance(member, Collective):
                group, ends = yield from self._join_collective(member, start_ns, path)
                path += ends - start_ns << WAIT_SHIFT
                self._node(member.kernel, node, start_ns, ends, group, member)
            else:
                ends = start_ns + self._length(member)
                path += ends - start_ns << COMPUTE_SHIFT
                self._node(member, node, start_ns, ends, None, None)
            self.tails[COMPUTE], self.paths[COMPUTE] = ends, path
            start_ns = ends + GRAPH_GAP_NS
            if node == len(operand.nodes) // 2:
                start_ns += self.graph_gap_ns

    def _node(self, kernel: Kernel, node: int, begins: int, ends: int, group: Group | None,
              collective: Collective | None) -> None:  # fmt: skip
        if self.out is not None:
            self.out.node(kernel, node, begins, ends, group, collective)

    def record(self, event: Event) -> None:
        """Records an event on a stream; it is reached once all previous work is done."""
        start = self._call(self.state.record_api)
        correlation = 0
        if self.out is not None:
            correlation = self.out.call(self.state.record_api, start, self.now)
        tail = self.tails.get(event.stream, 0)
        reached = (tail, self.paths[event.stream]) if tail > start else (start, self.path)
        self.events[event.name] = (*reached, correlation)

    def wait(self, event: Event) -> None:
        """Lets a stream wait for an event."""
        start = self._call(self.state.wait_api)
        reached_ns, path, marked = self.events.get(event.name, (0, 0, 0))
        if reached_ns > self.tails.get(event.waiter, 0):
            self.tails[event.waiter], self.paths[event.waiter] = reached_ns, path
        if self.out is not None:
            between = event.waiter, event.stream
            self.out.sync(self.state.wait_api, "Stream Wait Event", *between, start, self.now, marked)

    def sync(self, stream: str) -> None:
        """Lets the host wait for a stream."""
        until = self.tails.get(stream, 0), self.paths.get(stream, 0)
        called_ns = self.now + GAP_NS
        self._block(self.state.sync_api, "Stream Sync", stream, *until, 0)
        if self.out is not None and self.variant.is_blocked:
            self.out.truth.lose("host-blocked", self.now - called_ns)

    def _block(self, api: Api, kind: str, stream: str, until: int, path: int, marked: int) -> None:
        start = self._call(api)
        if until + 1_000 > self.now:
            self.now, self.path = until + 1_000, path
        if self.out is not None:
            waits = stream if kind == "Event Sync" else None
            self.out.sync(api, kind, stream, waits, start, self.now, marked)


def resolve_collectives(state: JobState) -> None:
    """Simulates all ranks together, without recording, to find the last arrival at each collective."""
    waiting: dict[str, list[Generator[Arrival]]] = {}
    for rank in range(state.job.ranks):
        ready = [RankSimulator(state, rank).run()]
        while ready:
            run = ready.pop()
            arrival = next(run, None)
            if arrival is None:
                continue
            group, at_ns = arrival
            waiting.setdefault(group.name, []).append(run)
            if state.rendezvous.arrive(group, at_ns):
                ready += waiting.pop(group.name)
    assert not waiting, "deadlock: ranks wait for each other"


PREFETCH_FACTOR = 2  # batches that a worker loads ahead, as in PyTorch
HANDOVER_NS = 20_000  # from the queue of a worker to the training thread


class Loader:
    """A data loader whose workers load batches in turn; without workers, the training thread loads them."""

    __slots__ = ("ready", "consumed")

    def __init__(self, workers: int) -> None:
        self.ready = [0] * workers
        self.consumed = [0] * PREFETCH_FACTOR * workers

    def wait_ns(self, at_ns: int, load_ns: int) -> int:
        """How long the training thread waits for a batch requested at `at_ns`."""
        if not self.ready:
            return load_ns
        # Its worker starts once its last batch is loaded and there is space for another one.
        loaded = max(self.ready.pop(0), self.consumed.pop(0)) + load_ns
        self.ready.append(loaded)
        wait = max(loaded - at_ns, 0) + HANDOVER_NS
        self.consumed.append(at_ns + wait)
        return wait


class Queue:
    """Start times of activities launched to a stream; small, because all ranks have one at the same time."""

    __slots__ = ("first", "limit", "starts")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.starts = array("q")
        self.first = 0

    def room_at(self, now_ns: int) -> int:
        """When there is space for another launch: now, or when the first waiting activity starts."""
        starts, first = self.starts, self.first
        while first < len(starts) and starts[first] <= now_ns:
            first += 1
        if first > 32:
            del starts[:first]
            first = 0
        self.first = first
        return starts[first] if len(starts) - first >= self.limit else now_ns

    def add(self, begins_ns: int) -> None:
        """Adds an activity that starts at this time, after all previous ones."""
        self.starts.append(begins_ns)


class Simulated(Struct, frozen=True):
    """The files written, the number of events, and the time it took."""

    files: tuple[Path, ...]
    truth: Path
    events: int
    seconds: float


def simulate(
    folder: str | PathLike[str],
    job: Job | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Simulated:
    """Writes the traces of a simulated job, `rankN.json.gz`, and `truth.json` with the expected results.

    The same settings give the same bytes.

    Args:
        folder: A new or empty folder.
        job: A Job; or give its settings by name.
        progress: Called with the numbers of finished and of all ranks.
        settings: Settings of a Job, such as `ranks=8, tensor=2, injections=["slow-rank:rank=3"]`.

    Returns:
        `files`, `truth` (a path), `events` (their number) and `seconds`.

    Raises:
        ParamError: A setting is invalid.
        UnknownName: An injection is unknown.
        TwError: The folder is not empty.

    Example:
        >>> len(tw.simulate("simulated", ranks=2, steps=2, layers=1).files)
        2
    """
    started = perf_counter()
    if job is None:
        injections = settings.get("injections", ())
        parsed = tuple(text if isinstance(text, Injection) else Injection.parse(text) for text in injections)
        job = Job(**{**settings, "injections": parsed})
    state = JobState(job)
    resolve_collectives(state)
    _check_groups(state)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise TwError(f"{target} is not empty", "use a new or empty folder")
    files, events = [], 0
    truth, waits = TruthFile(target), WaitAttribution()
    groups: dict[str, Group] = {}
    try:
        for rank in range(job.ranks):
            written = state.faults.ever("drop-ranks", rank) is None
            count = _write_rank(state, rank, target if written else None, truth, waits)
            groups |= {group.name: group for group in state.groups.all_of(rank)}
            state.groups.forget(rank)
            if written:
                files.append(target / f"rank{rank}.json.gz")
                events += count
            if progress is not None:
                progress(rank + 1, job.ranks)
        facts = _facts(job, state, list(groups.values()), events)
        path = truth.finish(facts, waits.rows(), state.faults.late_ranks())
    finally:
        truth.close()
    return Simulated(tuple(files), path, events, perf_counter() - started)


def _check_groups(state: JobState) -> None:
    """Raises UnknownName or ParamError for an injection into an unknown group or collective."""
    for fault in state.faults.all:
        if "group" not in fault.values:
            continue
        name = fault.text_value("group")
        if name not in state.groups.names():
            raise UnknownName("group", name, state.groups.names(), "a job with one rank has no groups")
        count = state.rendezvous.count(name)
        if "collective" in fault.values and not 0 <= fault.number("collective") < count:
            raise ParamError(f"{name} has no collective {fault.values['collective']}", f"it has {count}")


def _write_rank(
    state: JobState, rank: int, folder: Path | None, truth: TruthFile, waits: WaitAttribution
) -> int:
    discarding = nullcontext(lambda text: len(text))
    with gzip_writer(folder / file_name(rank)) if folder else discarding as write:
        recorder, count = _record(state, rank, write)
    for arrival in recorder.truth.arrivals:
        waits.add(rank, *arrival)
    is_merged = state.faults.ever("merge-files", rank) is not None
    for name, rows in recorder.truth.sections():
        if folder is not None and not is_merged:  # the truth has no analyses of several processes
            truth.add(name, rows)
    graph = recorder.graph_launched
    if folder is not None and state.job.capture and graph is not None:
        with gzip_writer(folder / capture_file_name(rank)) as write:
            origins = write_capture(state.job, rank, state.groups.all_of(rank), graph, write)
        truth.add("graph_nodes", expected_nodes(state.job, rank, recorder.truth.rows, origins))
    return count


def _facts(job: Job, state: JobState, groups: list[Group], events: int) -> dict[str, object]:
    missing = [rank for rank in range(job.ranks) if state.faults.ever("drop-ranks", rank)]
    return {
        "truth": 1,
        "job": job.as_json(),
        "injected": [
            {"kind": fault.kind, "rank": fault.rank, "step": fault.step, **fault.values}
            for fault in job.injections
        ],
        "missing_ranks": missing,
        "events": events,
        "step_factors": [state.noise.step(step) for step in range(job.steps)],
        "run_factor": state.noise.run,
        "groups": [
            {"name": group.name, "scope": group.scope, "ranks": list(group.ranks)} for group in groups
        ],
    }


GZIP_LEVEL = 1  # the fastest; these files are read once or twice


@contextmanager
def gzip_writer(path: Path) -> Iterator[Callable[[str], int]]:
    """Writes text to a gzip file without name and time, for reproducible bytes; it appears once complete."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as raw, gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0) as out:
            yield lambda text: out.write(text.encode())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _record(state: JobState, rank: int, write: Callable[[str], int]) -> tuple[Recorder, int]:
    """Writes the trace of a rank; returns its recorder and event count."""
    job = state.job
    write(head(job, rank, state.groups.all_of(rank)))
    is_first = True

    def write_events(texts: list[str]) -> None:
        nonlocal is_first
        write(("" if is_first else ",") + ",".join(texts))
        is_first = False

    recorder = Recorder(job, rank, state.faults, write_events)
    naming = names(recorder.text, recorder.window_ns(0)[0])
    if job.dialect == "new":
        write_events(naming)
        recorder.written = len(naming)
    ends_ns = state.ends[rank]  # known from resolve_collectives
    recorder.write_root_frames(ends_ns + 500)
    merged = [(rank + 1) % job.ranks] if state.faults.ever("merge-files", rank) else []
    recorders = {rank: recorder}
    recorders |= {other: Recorder(job, other, state.faults, write_events) for other in merged}
    for written_rank, out in recorders.items():
        for _ in RankSimulator(state, written_rank, out).run():
            pass  # all collectives are resolved
        out.flush()
    last_texts = [*([] if job.dialect == "new" else naming)]
    last_texts += closing(recorder.text, *recorder.window_ns(ends_ns + 1_000))
    write_events(last_texts)
    write(tail(job, rank))
    return recorder, sum(out.written for out in recorders.values()) + len(last_texts)


class TruthFile:
    """`truth.json`; the rows of each section are collected in a temporary file until all ranks are done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = {name: TemporaryFile("w+", encoding="utf-8", dir=folder) for name in SECTIONS}  # noqa: SIM115
        self.filled: set[str] = set()

    def add(self, name: str, rows: list[Row]) -> None:
        """Adds rows of a section."""
        if not rows:
            return
        out = self.parts[name]
        out.write(",\n" if name in self.filled else "\n")
        out.write(json.dumps(rows)[1:-1])
        self.filled.add(name)

    def finish(self, facts: dict[str, object], stragglers: list[Row], late: list[tuple[int, str]]) -> Path:
        """Writes all sections into one file."""
        path = self.folder / "truth.json"
        with path.open("w", encoding="utf-8") as out:
            out.write(json.dumps(facts)[:-1] + ', "sections": {\n')
            columns = ["rank", "came_last", "caused_wait_ns", *(f"{cause}_ns" for cause in CAUSES), "cause"]
            rows = ",\n".join(map(json.dumps, stragglers))
            out.write(f'"straggler": {{"columns": {json.dumps(columns)}, "rows": [\n{rows}]}}')
            out.write(f',\n"wait_attribution": {{"columns": ["rank", "cause"], "rows": {json.dumps(late)}}}')
            for name, columns_of in SECTIONS.items():
                if name == "faults" and name not in self.filled:
                    continue
                out.write(f',\n"{name}": {{"columns": {json.dumps(columns_of)}, "rows": [')
                self.parts[name].seek(0)
                copyfileobj(self.parts[name], out)
                out.write("]}")
            out.write("\n}}\n")
        return path

    def close(self) -> None:
        """Deletes the temporary files."""
        for part in self.parts.values():
            part.close()
