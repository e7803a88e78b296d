"""What the truth remembers of a rank: calls, GPU rows, steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracewarehouse.simulation.faults import Planted
from tracewarehouse.simulation.parts import Frame


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
    state: str = "known"


@dataclass
class Step:
    """A profiler step: its host span, and that of the GPU rows launched in it."""

    number: int
    start_ns: int
    end_ns: int = 0


@dataclass(frozen=True)
class Window:
    """What the profiler recorded, in ns of the run: host rows between the two, GPU rows from the first on."""

    from_ns: int
    to_ns: int
    skipped: int

    @classmethod
    def of(cls, planted: Planted, rank: int) -> Window:
        """The window of a rank."""
        cut, early = planted.ever("truncated-window", rank), planted.ever("before-window", rank)
        to_ns = round(cut.number("to_ms") * 1_000_000) if cut else 0
        return cls(
            round(cut.number("from_ms") * 1_000_000) if cut else 0,
            to_ns or 1 << 62,
            round(early.number("count")) if early else 0,
        )


@dataclass
class Open:
    """A slice that has begun; `late` if it did so before the recording (or after it)."""

    frame: Frame
    start_ns: int
    into: list[str] | None
    slot: int
    index: int
    external: int
    python: int
    parent: int
    late: bool
    gpu: list[int] = field(default_factory=list)
