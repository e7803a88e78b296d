"""The right answers about one rank, from what the scheduler did: never from SQL, never from the trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.intervals import Span, gaps, overlapped, split, stream_overlaps
from tracewarehouse.simulation.job import Job
from tracewarehouse.simulation.parts import Collective, Kernel

Row = tuple[object, ...]

# Section → its columns; those named like an analysis have the columns of that analysis.
SECTIONS: dict[str, tuple[str, ...]] = {
    "temporal_breakdown": (
        "rank", "device", "window_ns", "busy_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns",
        "other_ns", "idle_ns",
    ),
    "comm_comp_overlap": ("rank", "device", "comm_ns", "overlap_ns", "exposed_ns"),
    "kernel_summary": (
        "rank", "device", "kind", "name", "count", "sum_ns", "min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns",
    ),
    "launch_stats": (
        "rank", "kernel_id", "runtime_id", "api", "name", "kind", "device", "stream", "call_ns", "kernel_ns",
        "return_to_start_ns", "call_to_start_ns",
    ),
    "coverage": (
        "rank", "device", "gpu_ns", "linked_ns", "before_window_ns", "missing_ns", "with_op_ns",
    ),
    "quality": ("rank", "rule", "rows", "ns_affected"),
    "step_summary": ("rank", "step", "host_ns", "device_ns", "period_ns", "partial"),
    "idle_breakdown": ("rank", "device", "cause", "idle_ns", "count"),
    "stream_idle": ("rank", "device", "stream", "cause", "idle_ns", "count"),
    "queue_length": ("rank", "device", "stream", "launched", "longest", "queued_ns"),
    "collectives": ("rank", "group", "number", "name", "bytes", "ranks", "wait_ns", "transfer_ns", "dur_ns"),
    "memory_peak": ("rank", "device", "peak_bytes", "end_bytes"),
}  # fmt: skip


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
    state: str = "linked"


@dataclass
class Step:
    """A profiler step: its host span, and that of the GPU rows launched in it."""

    number: int
    start_ns: int
    end_ns: int = 0


class RankTruth:
    """Keeps the books of one rank."""

    def __init__(self, job: Job, rank: int) -> None:
        self.rank, self.device = rank, rank % job.ranks_per_node
        self.rows: list[GpuRow] = []
        self.waiting = 0
        self.steps: list[Step] = []
        self.open_step: Step | None = None
        self.first_host: int | None = None
        self.last_host = 0
        self.losers: list[Call] = []
        self.findings: dict[str, list[int | None]] = defaultdict(list)
        self.collective_rows: list[Row] = []
        self.allocated = self.peak = 0

    def step_begins(self, number: int | None, start_ns: int) -> None:
        """A step's mark; None where the profiler did not keep it."""
        self.open_step = None if number is None else Step(number, start_ns)

    def step_ends(self, end_ns: int) -> None:
        """The end of the mark."""
        if self.open_step is not None:
            self.open_step.end_ns = end_ns
            self.steps.append(self.open_step)

    def host(self, start_ns: int, end_ns: int) -> None:
        """A slice of the host that was kept."""
        if self.first_host is None or start_ns < self.first_host:
            self.first_host = start_ns
        if end_ns > self.last_host:
            self.last_host = end_ns

    def found(self, rule: str, ns: int | None) -> None:
        """Something that `data_quality` should find."""
        self.findings[rule].append(ns)

    def memory(self, allocated: int) -> None:
        """Bytes in use after an allocation or a release."""
        self.allocated, self.peak = allocated, max(self.peak, allocated)

    def lost(self, call: Call) -> None:
        """A GPU row that the profiler lost."""
        self.losers.append(call)

    def kernel(self, kernel: Kernel, stream: int, call: Call, at: int, start_ns: int, end_ns: int) -> None:
        """A GPU row that was kept, at its place among the step's GPU texts."""
        step = self.open_step.number if self.open_step is not None and call.at is not None else None
        call.rows += 1
        self.rows.append(GpuRow(at, call, kernel.name, kernel.kind, stream, start_ns, end_ns, step))

    def placed(self, base: int) -> None:
        """From here on in the file stand the GPU texts since the last time: places become event ids."""
        for row in self.rows[self.waiting :]:
            row.event_id += base
            if row.call.at is not None and row.call.event_id is None:
                row.call.event_id = base + row.call.at
        for call in self.losers:
            if call.at is not None and call.event_id is None:
                call.event_id = base + call.at
        self.waiting = len(self.rows)

    def collective(self, part: Collective, group: Group, number: int, wait_ns: int, transfer_ns: int,
                   length_ns: int) -> None:  # fmt: skip
        """A collective of this rank: how long it waited for the last one, and how long the transfer took."""
        self.collective_rows.append(
            (
                self.rank,
                group.name,
                number,
                part.name,
                part.bytes,
                group.size,
                wait_ns,
                transfer_ns,
                length_ns,
            )
        )

    def sections(self) -> Iterator[tuple[str, list[Row]]]:
        """Each section's rows."""
        self._judge()
        yield "temporal_breakdown", self._breakdown()
        yield "comm_comp_overlap", self._overlap()
        yield "kernel_summary", self._summary()
        yield "launch_stats", [self._launch(row) for row in self.rows]
        yield "coverage", self._coverage()
        yield "quality", self._quality()
        yield "step_summary", self._steps()
        yield "idle_breakdown", self._idle()
        yield "stream_idle", self._stream_idle()
        yield "queue_length", self._queues()
        yield "collectives", self.collective_rows
        yield "memory_peak", [(self.rank, self.device, self.peak, self.allocated)]

    def _judge(self) -> None:
        """Which rows without a launch were launched before the recording began."""
        first: dict[int, int] = {}
        for row in self.rows:
            if row.call.at is not None:
                first[row.stream] = min(first.get(row.stream, row.start_ns), row.start_ns)
        for row in self.rows:
            if row.call.at is None:
                early = row.stream in first and row.start_ns < first[row.stream]
                row.state = "before_window" if early else "missing"

    def _spans(self, *kinds: str) -> list[Span]:
        return [(row.start_ns, row.end_ns) for row in self.rows if row.kind in kinds]

    def _by_stream(self) -> dict[int, list[GpuRow]]:
        streams: dict[int, list[GpuRow]] = defaultdict(list)
        for row in sorted(self.rows, key=lambda row: (row.start_ns, row.end_ns, row.event_id)):
            streams[row.stream].append(row)
        return streams

    def _breakdown(self) -> list[Row]:
        if not self.rows:
            return []
        computation, communication = self._spans("computation"), self._spans("communication")
        compute, comm, memory = split(computation, communication, self._spans("memory"))
        window = max(row.end_ns for row in self.rows) - min(row.start_ns for row in self.rows)
        busy = compute + comm + memory
        return [(self.rank, self.device, window, busy, compute, comm, memory, 0, window - busy)]

    def _overlap(self) -> list[Row]:
        if not self.rows:
            return []
        total, both = overlapped(self._spans("communication"), self._spans("computation"))
        return [(self.rank, self.device, total, both, total - both)]

    def _summary(self) -> list[Row]:
        lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row in self.rows:
            lengths[row.kind, row.name].append(row.end_ns - row.start_ns)
        return [(self.rank, self.device, *key, *_statistics(each)) for key, each in sorted(lengths.items())]

    def _launch(self, row: GpuRow) -> Row:
        call, known = row.call, row.call.at is not None
        return (
            self.rank, row.event_id, call.event_id if known else None, call.api if known else None, row.name,
            row.kind, self.device, row.stream, call.end_ns - call.start_ns if known else None,
            row.end_ns - row.start_ns, row.start_ns - call.end_ns if known else None,
            row.start_ns - call.start_ns if known else None,
        )  # fmt: skip

    def _coverage(self) -> list[Row]:
        if not self.rows:
            return []
        sums: dict[str, int] = defaultdict(int)
        for row in self.rows:
            length = row.end_ns - row.start_ns
            sums["all"] += length
            sums[row.state] += length
            sums["op"] += length if row.state == "linked" and row.call.in_op else 0
        keys = ("all", "linked", "before_window", "missing", "op")
        return [(self.rank, self.device, *(sums[key] for key in keys))]

    def _quality(self) -> list[Row]:
        found = {rule: list(times) for rule, times in self.findings.items()}
        for row in self.rows:
            if row.state != "linked":
                rule = "before_window" if row.state == "before_window" else "missing_launch"
                found.setdefault(rule, []).append(row.end_ns - row.start_ns)
        alone = {call.correlation: call for call in self.losers if call.at is not None and not call.rows}
        if alone:
            found["launch_without_gpu_row"] = [call.end_ns - call.start_ns for call in alone.values()]
        over = [
            ns
            for rows in self._by_stream().values()
            for ns in stream_overlaps([(row.start_ns, row.end_ns) for row in rows])
        ]
        if over:
            found["stream_overlap"] = list(over)
        return [(self.rank, rule, len(times), _sum(times)) for rule, times in sorted(found.items())]

    def _steps(self) -> list[Row]:
        spans: dict[int, list[GpuRow]] = defaultdict(list)
        for row in self.rows:
            if row.step is not None:
                spans[row.step].append(row)
        rows: list[Row] = []
        before: int | None = None
        for step in self.steps:
            launched = spans[step.number]
            starts = min((row.start_ns for row in launched), default=None)
            ends = max((row.end_ns for row in launched), default=None)
            done = max(before or 0, step.start_ns, step.end_ns if ends is None else ends)
            length = None if starts is None or ends is None else ends - starts
            period = done - (step.start_ns if before is None else before)
            partial = self._at_edge(step, starts, ends)
            rows.append((self.rank, step.number, step.end_ns - step.start_ns, length, period, partial))
            before = done
        return rows

    def _at_edge(self, step: Step, starts: int | None, ends: int | None) -> bool:
        """Whether the step touches the first or last moment of the host's or the GPU's rows."""
        if step.start_ns <= (self.first_host or 0) or step.end_ns >= self.last_host:
            return True
        if starts is None or ends is None:
            return False
        first = min(row.start_ns for row in self.rows)
        last = max(row.end_ns for row in self.rows)
        return starts <= first or ends >= last

    def _idle(self) -> list[Row]:
        rows = sorted(self.rows, key=lambda row: (row.start_ns, row.end_ns, row.event_id))
        return [(self.rank, self.device, *found) for found in _causes(rows)]

    def _stream_idle(self) -> list[Row]:
        streams = sorted(self._by_stream().items())
        return [
            (self.rank, self.device, stream, *found) for stream, rows in streams for found in _causes(rows)
        ]

    def _queues(self) -> list[Row]:
        """Rows launched and not begun, by stream: how many, the most at once, and their waits added up."""
        answer: list[Row] = []
        for stream, rows in sorted(self._by_stream().items()):
            linked = [row for row in rows if row.call.at is not None]
            turns = [(row.call.start_ns, 0) for row in linked] + [(row.start_ns, 1) for row in linked]
            length = longest = 0
            for _, began in sorted(turns):
                length += -1 if began else 1
                longest = max(longest, length)
            waits = sum(row.start_ns - row.call.start_ns for row in linked)
            answer.append((self.rank, self.device, stream, len(linked), longest, waits))
        return answer


def _sum(times: list[int | None]) -> int | None:
    known = [ns for ns in times if ns is not None]
    return sum(known) if known else None


def _statistics(lengths: list[int]) -> tuple[int, ...]:
    ordered = sorted(lengths)
    # The smallest value that so many of 100 do not exceed.
    quantiles = (ordered[-(-len(ordered) * part // 100) - 1] for part in (50, 95, 99))
    return (len(ordered), sum(ordered), ordered[0], *quantiles, ordered[-1])


def _causes(rows: list[GpuRow]) -> list[tuple[str, int, int]]:
    """Idle time by cause: (cause, ns, gaps), of rows in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for at, began, length in gaps([(row.start_ns, row.end_ns) for row in rows]):
        call = rows[at].call
        if call.at is not None and call.start_ns > began:
            cause = "host_wait"
        else:
            cause = "kernel_wait" if length < 30_000 else "other"
        found[cause].append(length)
    return [(cause, sum(lengths), len(lengths)) for cause, lengths in sorted(found.items())]
