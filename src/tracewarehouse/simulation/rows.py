"""What the truth remembers of a rank: calls, GPU rows, steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Call:
    """A call of the runtime: `at` is its place among the step's GPU texts, None where it was not kept."""

    api: str
    start_ns: int
    end_ns: int
    at: int | None
    in_op: bool
    external: int
    correlation: int
    rows: int = 0
    event_id: int | None = None


@dataclass
class GpuRow:
    """A GPU row that was kept."""

    event_id: int
    call: Call
    name: str
    kind: str
    stream: int
    start_ns: int
    end_ns: int
    step: int | None
    group: str | None = None
    state: str = "linked"


@dataclass
class Step:
    """A profiler step: its host span, and that of the GPU rows launched in it."""

    number: int
    start_ns: int
    end_ns: int = 0
