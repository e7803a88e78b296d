"""Recorded calls, GPU activities and steps of a rank, its clock and its profiling window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from tracewarehouse.simulation.job import Frame, Job
from tracewarehouse.simulation.kernels import Faults


class Call(Struct):
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


class GpuActivity(Struct):
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


class Step(Struct):
    """A profiler step on the host."""

    number: int
    start_ns: int
    end_ns: int = 0


class Window(Struct, frozen=True):
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


class RankClock(Struct, frozen=True):
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


class OpenSlice(Struct):
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


Span = tuple[int, int]


def decode_annotation(job: Job) -> str:
    """How a serving engine marks a step in which each sequence of the batch gets one token."""
    query, key = job.batch, job.batch * job.sequence
    sums = f"sq{query}sk{key}sqsq{query}sqsk{key}"
    return f"execute_{query}_context_0(sq0sk0sqsq0sqsk0)_generation_{query}({sums})"


def expected_steps(
    job: Job, rank: int, rows: Iterable[GpuActivity], steps: Iterable[Step], hosts: Sequence[Span]
) -> list[tuple[Any, ...]]:
    """A row per annotation of a step; everything that a profiler step launches is launched within it."""
    if not hosts:
        return []
    spans: dict[int | None, Span] = {}
    for row in rows:
        first, last = spans.get(row.step, (row.start_ns, row.end_ns))
        spans[row.step] = min(first, row.start_ns), max(last, row.end_ns)
    counts = (job.batch, job.batch, job.batch, job.batch * job.sequence)
    return [
        (rank, "decode", *counts, host[1] - host[0], span[1] - span[0] if span else None)
        for step, host in zip(steps, hosts, strict=False)
        for span in [spans.get(step.number)]
    ]
