"""Capture traces of simulated graphs: `capture_rankN.json.gz`, and the expected origin of replayed kernels.

Rank 0 captures one more launch than is replayed; the last of several ranks captures its graph twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tracewarehouse.simulation.event_text import Text
from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.header import head, tail
from tracewarehouse.simulation.instructions import Api, Collective, Frame, Graph, Kernel, Op
from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.recording import GpuActivity

Row = tuple[Any, ...]
_BEFORE_NS: Final = 10_000_000_000  # the capture comes so long before the run
_CALL_NS: Final = 4_000
_MODULE: Final = "nn.Module: "


@dataclass(frozen=True)
class Origin:
    """A captured launch: its event, and the innermost operator and the modules enclosing it."""

    event_id: int
    op_name: str | None
    module_path: str | None


@dataclass
class _Recorder:
    """Writes the events of captures in their order; an event's id is its position."""

    text: Text
    now_ns: int
    amd: bool
    events: list[dict[str, Any]] = field(default_factory=list)
    stack: list[Frame] = field(default_factory=list)
    open_ids: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)

    def capture(self, graph: Graph, extra: Kernel | None) -> None:
        """One capture of the graph, with a launch after half of its nodes that is not replayed."""
        prefix = "hip" if self.amd else "cuda"
        self.origins.clear()
        self._call(Api(f"{prefix}StreamBeginCapture", 300, _CALL_NS))
        half = len(graph.nodes) // 2
        for op, operand in graph.lines:
            if op is Op.BEGIN and isinstance(operand, Frame):
                self._begin(operand)
            elif op is Op.END:
                self._end()
            elif isinstance(operand, Kernel | Collective):
                if len(self.origins) == half and extra is not None:
                    self._launch(extra)
                kernel = operand.kernel if isinstance(operand, Collective) else operand
                self.origins.append(self._launch(kernel))
        self._call(Api(f"{prefix}StreamEndCapture", 301, _CALL_NS))

    def _event(self, category: str, name: str, args: dict[str, Any]) -> int:
        place = {"pid": self.text.pid, "tid": self.text.threads["main"]}
        times = {"ts": self.now_ns, "dur": 0}
        self.events.append({"ph": "X", "cat": category, "name": name, **place, **times, "args": args})
        return len(self.events) - 1

    def _begin(self, frame: Frame) -> None:
        shapes = {} if frame.shapes is None else {"Input Dims": frame.shapes}
        self.open_ids.append(self._event(frame.category, frame.name, shapes))
        self.stack.append(frame)
        self.now_ns += frame.lead_ns

    def _end(self) -> None:
        frame, event = self.stack.pop(), self.events[self.open_ids.pop()]
        self.now_ns += frame.tail_ns
        event["dur"] = self.now_ns - event["ts"]

    def _call(self, api: Api, kernel: Kernel | None = None) -> int:
        args: dict[str, Any] = {"correlation": len(self.events) + 1}
        if self.amd and kernel is not None and kernel.category == "kernel":
            args["kernel"] = kernel.name
        event_id = self._event(api.category, api.name, args)
        self.now_ns += api.ns
        self.events[event_id]["dur"] = api.ns
        return event_id

    def _launch(self, kernel: Kernel) -> Origin:
        ops = [frame.name for frame in self.stack if frame.category == "cpu_op"]
        modules = [frame.name for frame in self.stack if frame.name.startswith(_MODULE)]
        event_id = self._call(kernel.api, kernel)
        return Origin(event_id, ops[-1] if ops else None, " > ".join(modules) or None)

    def texts(self) -> Iterator[str]:
        """The events as JSON, with times as the trace format writes them."""
        for event in self.events:
            ts, dur = self.text.time(event["ts"]), self.text.length(event["dur"])
            yield "\n  " + json.dumps({**event, "ts": 0, "dur": 0}).replace(
                '"ts": 0, "dur": 0', f'"ts": {ts}, "dur": {dur}', 1
            )


def capture_file_name(rank: int) -> str:
    """The file name of a rank's capture."""
    return f"capture_rank{rank}.json.gz"


def write_capture(
    job: Job, rank: int, groups: list[Group], graph: Graph, write: Callable[[str], None]
) -> tuple[Origin, ...]:
    """Writes the capture trace of a rank; returns the origin of each node of its graph."""
    text = Text(job, rank)
    recorder = _Recorder(text, job.start_ns - _BEFORE_NS, job.machine.vendor == "amd")
    first = next(node for node in graph.nodes if isinstance(node, Kernel))
    extra = Kernel("captured", "captured_only", "kernel", "computation", 1_000, first.api)
    for _ in range(_captures(job, rank)):
        recorder.capture(graph, extra if rank == 0 else None)
    write(head(job, rank, groups))
    write(",".join(recorder.texts()))
    write(tail(job, rank))
    return tuple(recorder.origins)


def _captures(job: Job, rank: int) -> int:
    return 2 if rank and rank == job.ranks - 1 else 1


def expected_nodes(job: Job, rank: int, rows: list[GpuActivity], origins: tuple[Origin, ...]) -> list[Row]:
    """Rows of the section `graph_nodes`: what is known of each replayed activity."""
    amd, twice = job.machine.vendor == "amd", _captures(job, rank) > 1
    found: list[Row] = []
    for row in rows:
        if row.node is None:
            continue
        if row.call.rows < len(origins) or rank == 0:
            how = "aligned" if amd else None
        else:
            how = "same_list" if amd else "by_order"
        origin = origins[row.node]
        known = (origin.op_name, origin.module_path) if how else (None, None)
        launch = origin.event_id if how and not twice else None
        place = None if how is None else amd and not twice
        found.append((rank, row.event_id, how, place, launch, *known))
    return found
