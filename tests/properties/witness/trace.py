"""A trace for the brute-force checks, read from the JSON without any code of the package."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from witness.recording import cut

COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
KERNELS = ("kernel", "Kernel")
CALLS = ("cuda_runtime", "cuda_driver", "Runtime", "runtime", "driver")
COMMUNICATION = re.compile(r"nccl|sendrecv|all_?reduce|cross_device_reduce", re.IGNORECASE)
NO_ID = (None, 0, -1)


@dataclass(frozen=True)
class Slice:
    """An event with a start and an end, in ns."""

    event_id: int
    category: str
    name: str
    thread: tuple[Any, Any]
    start: int
    end: int
    args: dict[str, Any] = field(compare=False)

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def correlation(self) -> int | None:
        return self.args.get("correlation")

    @property
    def device(self) -> int:
        return int(self.args["device"])

    @property
    def stream(self) -> int:
        return int(self.args["stream"])

    @property
    def kind(self) -> str:
        if self.category in COPIES:
            return "memory"
        if "Collective name" in self.args or COMMUNICATION.search(self.name):
            return "communication"
        return "computation"


@dataclass(frozen=True)
class Trace:
    """One rank: its slices by kind."""

    gpu: list[Slice]
    calls: list[Slice]
    ops: list[Slice]
    steps: list[Slice]
    notes: list[Slice] = field(default_factory=list)  # including annotations, steps and copies on a GPU
    frames: list[Slice] = field(default_factory=list)  # of Python

    @cached_property
    def calls_by_id(self) -> dict[int | None, list[Slice]]:
        """The host calls of each correlation id, outermost first."""
        found: dict[int | None, list[Slice]] = defaultdict(list)
        for call in sorted(self.calls, key=lambda call: (call.start, -call.end, call.event_id)):
            found[call.correlation].append(call)
        return found

    @cached_property
    def first_linked(self) -> dict[tuple[int, int], int]:
        """The start of the first activity with a launch of each stream."""
        found: dict[tuple[int, int], int] = {}
        for row in self.gpu:
            if self.launch(row) is not None:
                stream = (row.device, row.stream)
                found[stream] = min(row.start, found.get(stream, row.start))
        return found

    def launch(self, row: Slice) -> Slice | None:
        """The outermost host call with the correlation id of the activity."""
        if row.correlation in NO_ID:
            return None
        return next(iter(self.calls_by_id.get(row.correlation, [])), None)

    def launch_state(self, row: Slice) -> str:
        """known, before_window or missing."""
        if self.launch(row) is not None:
            return "known"
        first = self.first_linked.get((row.device, row.stream))
        return "missing" if first is None or row.start >= first else "before_window"

    def op(self, call: Slice | None) -> Slice | None:
        """The innermost operator enclosing the start of the call, on its thread."""
        if call is None:
            return None
        before = [op for op in self.ops if op.thread == call.thread and nesting(op) < nesting(call)]
        return max((op for op in before if op.end > call.start), key=nesting, default=None)

    def step(self, call: Slice | None) -> int | None:
        """The number of the profiler step that contains the start of the call."""
        if call is None:
            return None
        found = [step for step in self.steps if step.start <= call.start < step.end]
        return step_number(found[-1]) if found else None


def nesting(each: Slice) -> tuple[int, int, int]:
    """The order of nested slices of a thread: enclosing slices first."""
    return each.start, -each.length, each.event_id


def step_number(step: Slice) -> int:
    """The N of ProfilerStep#N."""
    return int(step.name.rpartition("#")[2])


def read(path: Path) -> Trace:
    """The slices of a file with exact times, malformed durations of GPU activities cut."""
    data = path.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    top = json.loads(text, parse_float=Decimal)
    base = int(top.get("baseTimeNanoseconds", 0)) if isinstance(top, dict) else 0
    events = top["traceEvents"] if isinstance(top, dict) else top
    by_category: dict[str, list[Slice]] = defaultdict(list)
    for event_id, event in enumerate(events):
        if isinstance(event, dict) and event.get("ph") == "X" and "dur" in event and event["dur"] >= 0:
            by_category[event.get("cat", "")].append(_slice(event_id, event, base))
    trace = Trace(
        gpu=_of(by_category, KERNELS + COPIES),
        calls=_of(by_category, CALLS),
        ops=_of(by_category, ("cpu_op", "Operator")),
        steps=[row for rows in by_category.values() for row in rows if _is_step(row)],
        notes=by_category["user_annotation"] + by_category["gpu_user_annotation"],
        frames=by_category["python_function"],
    )
    return replace(trace, gpu=cut(trace))


def _is_step(row: Slice) -> bool:
    return row.category in ("user_annotation", "Operator") and row.name.startswith("ProfilerStep#")


def _of(by_category: dict[str, list[Slice]], names: Sequence[str]) -> list[Slice]:
    return [row for name in names for row in by_category.get(name, []) if not _is_step(row)]


def _slice(event_id: int, event: dict[str, Any], base: int) -> Slice:
    start = _ns(event["ts"]) + base
    end = _ns(Decimal(event["ts"]) + Decimal(event["dur"])) + base
    thread = (event.get("pid"), event.get("tid"))
    return Slice(event_id, event["cat"], event["name"], thread, start, end, event.get("args") or {})


def _ns(micros: Any) -> int:
    return int((Decimal(micros) * 1000).quantize(Decimal(1), ROUND_HALF_EVEN))


def devices(rows: Iterable[Slice]) -> dict[int, list[Slice]]:
    """The GPU activities of each device."""
    found: dict[int, list[Slice]] = defaultdict(list)
    for row in rows:
        found[row.device].append(row)
    return dict(sorted(found.items()))
