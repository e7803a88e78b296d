"""Recorded calls, GPU activities and steps of a rank, its clock and its profiling window."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracewarehouse.simulation.faults import Faults
from tracewarehouse.simulation.instructions import Frame


@dataclass
class Call:
    """A runtime call; `at` is its index among the GPU texts of the step, None if it was not recorded."""

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
class GpuActivity:
    """A recorded GPU activity."""

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
    node: int | None = None


@dataclass
class Step:
    """A profiler step on the host."""

    number: int
    start_ns: int
    end_ns: int = 0


@dataclass(frozen=True)
class Window:
    """The profiling window in ns of the run; GPU activities may end after it."""

    from_ns: int
    to_ns: int
    skipped: int

    @classmethod
    def of(cls, faults: Faults, rank: int) -> Window:
        """The window of a rank."""
        cut, early = faults.ever("truncated-window", rank), faults.ever("before-window", rank)
        to_ns = round(cut.number("to_ms") * 1_000_000) if cut else 0
        return cls(
            round(cut.number("from_ms") * 1_000_000) if cut else 0,
            to_ns or 1 << 62,
            round(early.number("count")) if early else 0,
        )


@dataclass(frozen=True)
class RankClock:
    """The clock of a rank: `drift` in parts per 10^9, `step_ns` is the resolution of its trace format."""

    start_ns: int
    offset_ns: int
    drift: int
    step_ns: int

    def local_ns(self, at_ns: int) -> int:
        """A time of the run by this clock, in ns since the epoch."""
        local = self.start_ns + at_ns + self.offset_at(at_ns)
        return local - local % self.step_ns

    def offset_at(self, at_ns: int) -> int:
        """The offset at a time of the run, in ns."""
        return self.offset_ns + at_ns * self.drift // 1_000_000_000


@dataclass
class OpenSlice:
    """A slice that has begun; `unrecorded` if it began outside the profiling window."""

    frame: Frame
    start_ns: int
    texts: list[str] | None
    slot: int
    index: int
    external: int
    python: int
    parent: int
    unrecorded: bool
    gpu: list[int] = field(default_factory=list)
