"""What a profiler's window holds: from when to when, what is missing of it, and slices that have begun."""

from __future__ import annotations

from dataclasses import dataclass, field

from tracewarehouse.simulation.parts import Frame
from tracewarehouse.simulation.planted import Planted


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
