"""The simulated profiler of a rank: writes events in PyTorch's order and passes them to the truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

from tracewarehouse.simulation.capture import Format, Text
from tracewarehouse.simulation.job import (
    COMPUTE,
    FIRST_STEP,
    Api,
    Collective,
    Frame,
    Graph,
    Job,
    Kernel,
    Memory,
)
from tracewarehouse.simulation.kernels import Faults, Group, message_bytes
from tracewarehouse.simulation.steps import ROOTS
from tracewarehouse.simulation.truth import Call, OpenSlice, Parts, RankClock, RankTruth, Window

ADDRESS = 0x7F1C_0000_0000
PAGE = 2 << 20


class Recorder:
    """Records the events of a rank and writes them after each step."""

    def __init__(self, job: Job, rank: int, faults: Faults, write: Callable[[list[str]], None]) -> None:
        self.text, self.truth = Text(job, rank), RankTruth(job, rank)
        self.window = Window.of(faults, rank)
        self.job, self.write = job, write
        self.clock = RankClock(job.start_ns, *faults.clock(rank), step_ns=1000 if self.text.old else 1)
        self.local_ns = self.clock.local_ns
        if self.window.to_ns < 1 << 62:
            self.truth.end_ns = self.local_ns(self.window.to_ns)
        self.gpu_loss, self.launch_loss = 0.0, 0.0  # shares of GPU activities and launches lost in this step
        self.draw_loss = Random(f"{job.seed}/lost/{rank}").random
        self.faults, self.rank = faults, rank
        self.skipped = self.window.skipped
        self.written = 0
        self.ops: dict[str, list[str]] = {"main": [], "autograd": []}
        self.memories: list[str] = []
        self.python: list[str] = []
        self.gpu: list[str] = []
        self.stack: list[OpenSlice] = []
        self.inner: list[int] = []
        self._inners: dict[str, list[int]] = {"main": self.inner, "autograd": []}
        self.current_thread = "main"
        self.externals = self.indexes = self.correlation = 0
        self.pythons = self.parent = len(ROOTS) if job.stacks else 0
        self.began_ns = self.window.from_ns
        self.base_sequence = self.most_sequence = 0
        self.forwards: dict[int, tuple[int, str]] = {}
        self.allocated = self.reserved = self.leaks = 0
        self.frame_format, self.call_format = cache(self.text.frame), cache(self.text.call)
        self.kernel_format, self.flow_format = cache(self.text.kernel), cache(self.text.flow)
        self.sync_format, self.memory_format = cache(self.text.sync), cache(self.text.memory)
        self.graph_call: Call | None = None
        self.graph_launched: Graph | None = None
        self.message = ""
        self.waits = not self.text.amd and not self.text.old
        self.syncs = self.waits and job.syncs
        self.is_last_step = False  # of a job with captures
        self.busy_ns = self.last_number = self.graph_start_ns = self.prolonged_ns = 0

    def window_ns(self, end_ns: int) -> tuple[int, int]:
        """Start and end of the recording, for a run that ends at `end_ns`."""
        began = self.window.from_ns
        return self.local_ns(began), self.local_ns(max(began, min(end_ns, self.window.to_ns)))

    def _records(self, at_ns: int) -> bool:
        return not self.skipped and self.window.from_ns <= at_ns < self.window.to_ns

    def begin_step(self, number: int, at_ns: int) -> None:
        """Begins a profiler step."""
        self.base_sequence = self.most_sequence
        self.is_last_step = self.job.capture and number - FIRST_STEP == self.job.steps - 1
        self.gpu_loss = self.faults.share("lose-records", self.rank, number - FIRST_STEP)
        self.prolonged_ns = self.faults.additional("malformed-duration", self.rank, number - FIRST_STEP)
        self.launch_loss = self.faults.share("lost-launch", self.rank, number - FIRST_STEP)
        stack = ";".join(reversed(ROOTS)) if self.text.old and self.job.stacks else None
        self.begin(Frame("user_annotation", f"ProfilerStep#{number}", stack=stack), at_ns)
        recorded = self.stack[-1].texts is not None
        self.truth.begin_step(number if recorded else None, self.local_ns(at_ns))

    def end_step(self, at_ns: int) -> None:
        """Ends the step and writes its events."""
        started = self.stack[-1].start_ns
        self.end(at_ns)
        self.truth.end_step(self.local_ns(min(at_ns, self.window.to_ns)))
        if self.job.counters and self._records(at_ns):
            busy = min(self.busy_ns / max(self.local_ns(at_ns) - started, 1), 1.0)
            self.gpu.append(self.text.counter()(self.text.time(self.local_ns(at_ns)), round(busy, 4)))
        self.busy_ns = 0
        self.flush()

    def flush(self) -> None:
        """Writes the events recorded so far; their event ids are known only now."""
        texts = [*filter(None, [*self.ops["main"], *self.ops["autograd"]]), *self.memories]
        texts += filter(None, self.python)
        self.truth.assign_event_ids(self.written + len(texts))
        texts += self.gpu
        self.written += len(texts)
        if texts:
            self.write(texts)
        for written in (*self.ops.values(), self.memories, self.python, self.gpu):
            written.clear()
        self.forwards.clear()

    def begin(self, frame: Frame, at_ns: int) -> None:
        """Begins a host slice."""
        is_python = frame.category == "python_function"
        recorded = self._records(at_ns)
        texts = self.python if is_python else self.ops[self.current_thread] if recorded else None
        start_ns = self.local_ns(at_ns)
        self.indexes += recorded
        opened = OpenSlice(
            frame, start_ns, texts, len(texts or ()), self.indexes, 0, 0, self.parent, not recorded
        )
        if is_python:
            self.pythons += 1
            self.parent = opened.python = self.pythons
        else:
            self.externals += 1
            opened.external = self.externals
            if recorded and (frame.category == "cpu_op" or self.text.old):
                self.inner.append(self.externals)
        if texts is not None:
            texts.append("")
        self.stack.append(opened)
        if recorded and frame.sequence is not None:
            self._link_backward(frame, start_ns)

    def _link_backward(self, frame: Frame, start_ns: int) -> None:
        """Adds flows from a forward operator to its backward one."""
        assert frame.sequence is not None
        number = self.base_sequence + frame.sequence
        self.most_sequence = max(self.most_sequence, number + 1)
        if self.text.old:
            return
        if frame.forward:  # filled if its backward operator is recorded
            self.forwards[number] = (len(self.ops["main"]), self.text.time(start_ns))
            self.ops["main"].append("")
        elif frame.backward and number in self.forwards:
            slot, began = self.forwards.pop(number)
            start, finish = self._flow("s", "fwdbwd", "main"), self._flow("f", "fwdbwd", self.current_thread)
            self.ops["main"][slot] = start(number + 1, began)
            self.ops[self.current_thread].append(finish(number + 1, self.text.time(start_ns)))

    def _flow(self, kind: str, name: str, thread: str) -> Format:
        """One end of a flow on the host."""
        return self.flow_format(kind, name, self.text.pid, self.text.threads[thread])

    def end(self, at_ns: int) -> None:
        """Ends the innermost slice."""
        opened = self.stack.pop()
        frame = opened.frame
        if frame.category == "python_function":
            self.parent = opened.parent
        elif opened.texts is not None and (frame.category == "cpu_op" or self.text.old):
            self.inner.pop()
        if opened.unrecorded:  # the profiler records Python frames that are open when it starts
            if frame.category != "python_function" or self.skipped or at_ns <= self.began_ns:
                return
            if opened.start_ns >= self.local_ns(self.window.to_ns):
                return
            opened.start_ns = self.local_ns(self.began_ns)
        if opened.texts is None:
            return
        finished = at_ns < self.window.to_ns
        end_ns = self.local_ns(at_ns if finished else self.window.to_ns)
        self._write_slice(opened, end_ns, finished)
        if frame.category != "user_annotation" or self.text.old:
            return
        self.truth.annotations[False, frame.name].append((opened.start_ns, end_ns))
        if opened.gpu:
            self.truth.annotations[True, frame.name].append((opened.gpu[0], opened.gpu[1]))
            name = self.text.annotation(frame.name)
            start_ns = opened.gpu[0]
            times = self.text.time(start_ns), self.text.length(opened.gpu[1] - start_ns)
            self.gpu.append(name(*times, opened.external))

    def _write_slice(self, opened: OpenSlice, end_ns: int, finished: bool) -> None:
        frame = opened.frame
        make = self.frame_format(frame, self.current_thread, finished)
        assert opened.texts is not None
        start_ns = opened.start_ns
        id_or_parent: object = opened.external
        number = opened.python
        if opened.python:
            id_or_parent = opened.parent or "null"
        elif frame.sequence is not None:
            number = self.base_sequence + frame.sequence
        opened.texts[opened.slot] = make(
            self.text.time(start_ns),
            self.text.length(end_ns - start_ns),
            id_or_parent,
            number,
            opened.index,
            self.message,
        )

    def thread(self, name: str) -> None:
        """Switches to another thread."""
        self.current_thread, self.inner = name, self._inners[name]

    def memory(self, memory: Memory, at_ns: int) -> None:
        """An allocation or a release."""
        key = memory.key
        if key < 0:
            self.leaks += 1
            key = (1 << 20) + self.leaks
        self.allocated += memory.bytes
        self.reserved = max(self.reserved, -(-self.allocated // PAGE) * PAGE)
        if not self._records(at_ns):
            return
        self.truth.memory(memory.bytes, self.allocated)
        if memory.key < 0:
            self.truth.lose("growing-memory", 0, memory.bytes)
        make = self.memory_format(self.current_thread)
        self.indexes += 1
        time = self.text.time(self.local_ns(at_ns))
        address = ADDRESS + key * PAGE
        self.memories.append(make(time, self.reserved, self.allocated, memory.bytes, address, self.indexes))

    def _record_call(
        self, api: Api, start_ns: int, end_ns: int, kernel: Kernel | None, launches: bool
    ) -> Call:
        """A runtime call; its event is recorded if it is in the profiling window."""
        self.correlation += 1
        recorded = self._records(start_ns)
        if recorded and launches and self.launch_loss:
            recorded = self.draw_loss() >= self.launch_loss
        start, end = self.local_ns(start_ns), self.local_ns(min(end_ns, self.window.to_ns))
        external = self.inner[-1] if self.inner else self.correlation
        index = len(self.gpu) if recorded else None
        call = Call(api.name, start, end, index, bool(self.inner), external, self.correlation)
        if recorded:
            make = self.call_format(api, self.current_thread, kernel)
            began = self.text.time(start)
            self.gpu.append(make(began, self.text.length(end - start), external, self.correlation, began))
        return call

    def call(self, api: Api, start_ns: int, end_ns: int) -> int:
        """A call that launches nothing; returns its correlation id."""
        call = self._record_call(api, start_ns, end_ns, None, False)
        if call.at is not None and self.waits:
            finish = self._flow("f", "ac2g", self.current_thread)
            self.gpu.append(finish(call.correlation, self.text.time(call.start_ns)))
            self.truth.flows_without_start += 1
        return call.correlation

    def sync(self, api: Api, kind: str, stream: str, waits: str | None, start_ns: int, end_ns: int,
             marked: int) -> None:  # fmt: skip
        """The host waits for the GPU, or a stream for an event on the stream `waits`."""
        correlation = self.call(api, start_ns, end_ns)
        if self.syncs and self._records(start_ns):
            make = self.sync_format(kind, stream, waits)
            start, end = self.local_ns(start_ns), self.local_ns(min(end_ns, self.window.to_ns))
            times = self.text.time(start), self.text.length(end - start)
            self.gpu.append(make(*times, correlation, correlation, marked))

    def launch(self, kernel: Kernel, stream: str, start_ns: int, end_ns: int, begins_ns: int, ends_ns: int,
               group: Group | None = None, collective: Collective | None = None) -> None:  # fmt: skip
        """A call and the GPU activity it launches."""
        call = self._record_call(kernel.api, start_ns, end_ns, kernel, True)
        self._launched(call, 1, end_ns)
        self._row(kernel, stream, call, start_ns, begins_ns, ends_ns, group, collective, None)

    def _launched(self, call: Call, activities: int, end_ns: int) -> None:
        """Starts the flow of a launch; the recording starts after the last skipped one."""
        if self.skipped:
            self.skipped = max(self.skipped - activities, 0)
            self.began_ns = end_ns
        if call.at is not None:
            start = self._flow("s", "ac2g", self.current_thread)
            self.gpu.append(start(call.correlation, self.text.time(call.start_ns)))

    def graph(self, api: Api, graph: Graph, start_ns: int, end_ns: int) -> None:
        """The call that launches a graph."""
        self.graph_call, self.graph_launched = self._record_call(api, start_ns, end_ns, None, True), graph
        self.graph_start_ns = start_ns
        self._launched(self.graph_call, len(graph.nodes), end_ns)

    def node(self, kernel: Kernel, node: int, begins_ns: int, ends_ns: int, group: Group | None,
             collective: Collective | None) -> None:  # fmt: skip
        """A GPU activity of the graph."""
        assert self.graph_call is not None and self.graph_launched is not None
        if self.is_last_step and self.graph_launched.is_cut(node):
            return
        self._row(
            kernel, COMPUTE, self.graph_call, self.graph_start_ns, begins_ns, ends_ns, group, collective, node
        )

    def _row(self, kernel: Kernel, stream: str, call: Call, called_ns: int, begins_ns: int, ends_ns: int,
             group: Group | None, collective: Collective | None, node: int | None) -> None:  # fmt: skip
        if called_ns >= self.window.to_ns or (call.at is None and begins_ns < self.window.from_ns):
            return
        if self.gpu_loss and self.draw_loss() < self.gpu_loss:
            self.truth.lost(call)
            return
        start, end = self.local_ns(begins_ns), self.local_ns(ends_ns)
        make = self.kernel_format(kernel, stream, group, collective, node)
        number = self.text.streams[stream]
        # Nodes of a graph have their process group from the capture, except on AMD.
        known_group = None if node is not None and self.text.amd else group
        self.truth.kernel(kernel, number, call, len(self.gpu), start, end, known_group, node)
        began, length = self.text.time(start), end - start
        rate = kernel.bytes / max(length, 1)
        if self.prolonged_ns and node is None and kernel.kind == "computation" and call.at is not None:
            length, self.prolonged_ns = length + self.prolonged_ns, 0
            self.truth.malformed[number] = self.truth.rows[-1]
        self.gpu.append(
            make(began, self.text.length(length), call.external, call.correlation, self.last_number, rate)
        )
        self.gpu.append(self.flow_format("f", "ac2g", self.text.device, number)(call.correlation, began))
        if call.at is None:
            self.truth.flows_without_start += 1
        if stream == COMPUTE:
            self.busy_ns += end - start
            # The GPU copies of open annotations include the activity.
            for opened in self.stack:
                if opened.frame.category == "user_annotation":
                    if opened.gpu:
                        opened.gpu[0], opened.gpu[1] = min(opened.gpu[0], start), max(opened.gpu[1], end)
                    else:
                        opened.gpu = [start, end]

    def collective(self, collective: Collective, group: Group, number: int, arrives_ns: int, last_ns: int,
                ends_ns: int, since: Parts) -> None:  # fmt: skip
        """A collective of this rank; `since` is the time since the previous one of its group, by cause."""
        self.last_number = number
        self.message = self.text.host_message(collective, group).format(None, None, None, None, number)
        size, wait_ns = message_bytes(self.job, collective, group), last_ns - arrives_ns
        identity = (self.rank, group.name, number, collective.name, size, group.size)
        self.truth.collective_rows.append((*identity, wait_ns, ends_ns - last_ns, ends_ns - arrives_ns))
        self.truth.arrivals.append((group.name, number, group.size, wait_ns, since))
        if collective.name == "recv" and any(fault.kind == "slow-stage" for fault in self.faults.all):
            self.truth.lose("slow-stage", wait_ns, size)

    def write_root_frames(self, end_ns: int) -> None:
        """Writes the outermost Python frames of a run that ends at `end_ns`, and the clock at that time."""
        clock = self.clock
        self.truth.clock = (self.rank, clock.offset_ns, clock.drift, clock.offset_at(end_ns))
        if not self.job.stacks or self.text.old:
            return
        start, end = self.window_ns(end_ns)
        for index, name in enumerate(ROOTS):
            make = self.text.frame(Frame("python_function", name), "main")
            times = self.text.time(start), self.text.length(end - start)
            self.python.append(make(*times, index or "null", index + 1, index))
