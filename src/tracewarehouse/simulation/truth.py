"""What is recorded of a rank, and its expected results, from the schedule, not from SQL or the trace.

A path is one integer with three sums of ns, so that updating it is one addition; the rest is host time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from msgspec import Struct, field

from tracewarehouse.simulation.job import OF_WINDOW, RULES, Frame, Job, Kernel
from tracewarehouse.simulation.kernels import Faults, Group

COMPUTE_SHIFT, WAIT_SHIFT = 64, 128  # bits; data has the lowest ones
CAUSES = ("data", "host", "compute", "communication")

Parts = tuple[int, int, int, int]  # ns by cause


def earlier(path: int, ns: int) -> int:
    """The path to a time `ns` earlier, on a stream that computed throughout."""
    return path - (min(ns, path >> COMPUTE_SHIFT & (1 << COMPUTE_SHIFT) - 1) << COMPUTE_SHIFT)


def parts(path: int, at_ns: int) -> Parts:
    """Time up to a point in time, by cause."""
    low = (1 << COMPUTE_SHIFT) - 1
    data, compute, waited = path & low, path >> COMPUTE_SHIFT & low, path >> WAIT_SHIFT
    return data, at_ns - data - compute - waited, compute, waited


class _PendingCollective(Struct):
    """A collective before all its ranks have arrived: the last arrival so far, and sums over ranks."""

    ranks: int = 0
    least_ns: int = 0
    rank: int = -1
    last: Parts = (0, 0, 0, 0)
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])


class WaitAttribution:
    """Attributes waits at collectives to the last rank, by cause since the previous collective."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, int], _PendingCollective] = defaultdict(_PendingCollective)
        self.counts: dict[int, int] = defaultdict(int)
        self.caused: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def add(self, rank: int, group: str, number: int, size: int, wait_ns: int, since: Parts) -> None:
        """Adds a rank's wait at a collective; the rank with the shortest wait arrived last."""
        pending = self.open[group, number]
        if pending.ranks == 0 or wait_ns < pending.least_ns:
            pending.rank, pending.least_ns, pending.last = rank, wait_ns, since
        pending.ranks += 1
        for cause, ns in enumerate(since):
            pending.sums[cause] += ns
        if pending.ranks == size:
            del self.open[group, number]
            self.counts[pending.rank] += 1
            caused = self.caused[pending.rank]
            for cause, ns in enumerate(pending.last):
                caused[cause] += size * ns - pending.sums[cause]

    def rows(self) -> list[tuple[object, ...]]:
        """(rank, collectives at which it was last, wait caused in ns, the same by cause, main cause)."""
        rows: list[tuple[object, ...]] = []
        for rank in sorted(self.counts, key=lambda rank: (-sum(self.caused[rank]), rank)):
            caused = self.caused[rank]
            main = CAUSES[caused.index(max(caused))] if any(caused) else None
            rows.append((rank, self.counts[rank], sum(caused), *caused, main))
        return rows


KINDS = ("computation", "communication", "memory", "other")
# Thresholds of outliers: duration of a call, delay of its activity.
LONG_CALL_NS, LONG_DELAY_NS = 50_000, 100_000


def classes(spans: Mapping[str, list[Span]]) -> Iterator[tuple[str, int]]:
    """Time by the set of kinds that run concurrently, as (class, ns): a sweep over all edges."""
    edges: list[tuple[int, str, int]] = []
    for kind, rows in spans.items():
        edges += [(start, kind, 1) for start, _ in rows] + [(end, kind, -1) for _, end in rows]
    running: dict[str, int] = defaultdict(int)
    ns_by_class: dict[str, int] = defaultdict(int)
    before = 0
    for time_ns, kind, change in sorted(edges):
        name = "+".join(running_kind for running_kind in KINDS if running[running_kind])
        ns_by_class[name] += time_ns - before if name else 0
        running[kind] += change
        before = time_ns
    yield from sorted((name, ns) for name, ns in ns_by_class.items() if ns)


class Launch(Struct):
    """A call with its GPU activities; without a call, all activities of that state."""

    state: str
    api: str | None
    call_ns: int = 0
    rows: int = 0
    gpu_ns: int = 0
    delay_ns: int | None = None

    def row(self, length_ns: int, delay_ns: int | None) -> None:
        """Adds a GPU activity and its delay after the return of the call."""
        self.rows, self.gpu_ns = self.rows + 1, self.gpu_ns + length_ns
        if delay_ns is not None and (self.delay_ns is None or delay_ns < self.delay_ns):
            self.delay_ns = delay_ns


def launch_sums(launches: list[Launch]) -> Iterator[tuple[object, ...]]:
    """Launch statistics by function: state, function, counts and sums."""
    sums_by_api: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0] * 7)
    for launch in launches:
        called, is_long = launch.api is not None, launch.call_ns > LONG_CALL_NS
        short = called and not is_long and launch.rows > 0 and launch.gpu_ns < launch.call_ns
        delayed = launch.delay_ns is not None and launch.delay_ns > LONG_DELAY_NS
        values = (called, launch.rows, short, is_long, delayed, launch.call_ns, launch.gpu_ns)
        sums = sums_by_api[launch.state, launch.api]
        for index, value in enumerate(values):
            sums[index] += value
    yield from ((*key, *sums) for key, sums in sums_by_api.items())


SHARES = (50, 95, 99)


def queue(waits: list[tuple[int, int]]) -> tuple[int | None, ...]:
    """Queue statistics: span, total wait, time not empty, maximum, percentiles by change and by time."""
    if not waits:
        return (None,) * (4 + 2 * len(SHARES))
    changes = sorted([(launched, 0) for launched, _ in waits] + [(started, 1) for _, started in waits])
    by_change, by_time = Counter[int](), Counter[int]()
    length, before = 0, changes[0][0]
    for time_ns, is_start in changes:
        by_time[length] += time_ns - before
        length += -1 if is_start else 1
        by_change[length] += 1
        before = time_ns
    span_ns = changes[-1][0] - changes[0][0]
    waited = sum(started - launched for launched, started in waits)
    lengths = (*_percentiles(by_change), *_percentiles(by_time))
    return (span_ns, waited, span_ns - by_time[0], max(by_change), *lengths)


def _percentiles(weights: Counter[int]) -> list[int | None]:
    """Weighted percentiles: the smallest value whose cumulative weight reaches the share."""
    total = weights.total()
    if not total:
        return [None] * len(SHARES)
    values = sorted(weights)
    up_to = list(accumulate(weights[value] for value in values))
    return [values[bisect_left(up_to, share * total, key=lambda part: 100 * part)] for share in SHARES]


Span = tuple[int, int]


def merged(spans: list[Span]) -> list[Span]:
    """The union as sorted, disjoint spans."""
    union: list[Span] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def total(spans: list[Span]) -> int:
    """Length of the union."""
    return sum(end - start for start, end in merged(spans))


def split(first: list[Span], second: list[Span], third: list[Span]) -> tuple[int, int, int]:
    """Length of the first, of the second without the first, of the third without both."""
    first_ns, both_ns, all_ns = total(first), total(first + second), total(first + second + third)
    return first_ns, both_ns - first_ns, all_ns - both_ns


def overlapped(spans: list[Span], others: list[Span]) -> tuple[int, int]:
    """Length of the union of the spans, and of its overlap with the others."""
    length = total(spans)
    return length, length + total(others) - total(spans + others)


def gaps(spans: list[Span]) -> Iterator[tuple[int, int, int]]:
    """Each gap as (index of the span that ends it, start, length); spans sorted by start and end."""
    reached: int | None = None
    for index, (start, end) in enumerate(spans):
        if reached is not None and start > reached:
            yield index, reached, start - reached
        reached = end if reached is None else max(reached, end)


def stream_overlaps(spans: list[Span]) -> Iterator[int]:
    """Overlap of each span with earlier ones; spans sorted by start and end."""
    reached: int | None = None
    for start, end in spans:
        if reached is not None and reached > start:
            yield min(reached, end) - start
        reached = end if reached is None else max(reached, end)


Row = tuple[object, ...]

# Section → columns; sections named after an analysis have its columns.
SECTIONS: dict[str, tuple[str, ...]] = {
    "temporal_breakdown": (
        "rank", "device", "window_ns", "busy_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns",
        "other_ns", "idle_ns",
    ),
    "comm_comp_overlap": ("rank", "device", "comm_ns", "overlap_ns", "exposed_ns"),
    "comm_by_group": ("rank", "device", "process_group", "comm_ns", "overlap_ns", "exposed_ns"),
    "kernel_type_breakdown": ("rank", "device", "class", "class_ns"),
    "launch_summary": (
        "rank", "device", "state", "api", "launches", "gpu_activities", "short_kernels", "runtime_outliers",
        "delay_outliers", "call_ns", "gpu_ns",
    ),
    "annotation_breakdown": (
        "rank", "on_gpu", "device", "name", "count", "sum_ns", "union_ns", "min_ns", "p50_ns", "max_ns",
    ),
    "kernel_summary": (
        "rank", "device", "kind", "name", "count", "sum_ns", "min_ns", "p50_ns", "p95_ns", "p99_ns", "max_ns",
    ),
    "launch_stats": (
        "rank", "kernel_id", "runtime_id", "api", "name", "kind", "device", "stream", "call_ns", "kernel_ns",
        "return_to_start_ns", "call_to_start_ns",
    ),
    "coverage": (
        "rank", "device", "gpu_ns", "launch_known_ns", "before_window_ns", "missing_ns", "with_op_ns",
        "graph_ns",
    ),
    "quality": ("rank", "rule", "rows", "affected_ns"),
    "step_summary": ("rank", "step", "host_ns", "device_ns", "period_ns", "partial"),
    "idle_breakdown": ("rank", "device", "cause", "idle_ns", "count"),
    "stream_idle": ("rank", "device", "stream", "cause", "idle_ns", "count"),
    "queue_length_summary": (
        "rank", "device", "stream", "launched", "launch_unknown", "span_ns", "queued_ns", "waiting_ns",
        "max_length", "change_p50", "change_p95", "change_p99", "time_p50", "time_p95", "time_p99",
    ),
    "collectives": ("rank", "group", "number", "name", "bytes", "ranks", "wait_ns", "transfer_ns", "dur_ns"),
    "clocks": ("rank", "offset_ns", "drift_ppb", "end_offset_ns"),
    "inference_steps": (
        "rank", "phase", "requests", "decode_requests", "decode_tokens", "key_tokens", "host_ns", "gpu_ns",
    ),
    "graph_nodes": ("rank", "event_id", "how", "place_known", "capture_launch_id", "op_name", "module_path"),
    "memory_peak": ("rank", "device", "changes", "net_bytes", "peak_bytes", "end_bytes"),
    "faults": ("rank", "kind", "rule", "step", "lost_ns", "bytes"),  # what each costs; only if there are any
}  # fmt: skip


class RankTruth:
    """Collects the recorded activities of a rank and computes its expected results."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.device = job, rank, rank % job.ranks_per_node
        self.rows: list[GpuActivity] = []
        self.waiting = 0
        self.steps: list[Step] = []
        self.open_step: Step | None = None
        self.lost_in: dict[int | None, list[Call]] = defaultdict(list)  # of lost GPU activities, by step
        self.end_ns: int | None = None  # if the recording stops early
        self.malformed: dict[int, GpuActivity] = {}  # the last activity of a stream, if its duration is
        self.flows_without_start = 0
        self.collective_rows: list[Row] = []
        self.arrivals: list[tuple[str, int, int, int, Parts]] = []  # group, number, size, wait, time since
        self.clock: Row = ()
        self.old, self.amd = job.dialect == "old", job.machine.vendor == "amd"
        self.annotations: dict[tuple[bool, str], list[Span]] = defaultdict(list)
        self.allocated = self.peak = self.net = self.changes = 0
        self.lost_to: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])

    def begin_step(self, number: int | None, start_ns: int) -> None:
        """Begins a step; None if the profiler did not record it."""
        self.open_step = None if number is None else Step(number, start_ns)

    def end_step(self, end_ns: int) -> None:
        """Ends the step."""
        if self.open_step is not None:
            self.open_step.end_ns = end_ns
            self.steps.append(self.open_step)

    def memory(self, change: int, allocated: int) -> None:
        """A recorded allocation or release, and the bytes in use after it."""
        self.changes, self.net = self.changes + 1, self.net + change
        self.allocated, self.peak = allocated, max(self.peak, allocated)

    def kernel(self, kernel: Kernel, stream: int, call: Call, at: int, start_ns: int, end_ns: int,
               group: Group | None, node: int | None) -> None:  # fmt: skip
        """A recorded GPU activity, with its index among the GPU texts of the step; `node`: in a graph."""
        step = self.open_step.number if self.open_step is not None and call.at is not None else None
        call.rows += 1
        has_group = group is not None and not self.old and (call.at is not None or not self.amd)
        group_name = group.name if group is not None and has_group else None
        times = start_ns, end_ns
        if stream in self.malformed:  # it is cut where the next one starts
            self.malformed.pop(stream).end_ns = start_ns
        self.rows.append(GpuActivity(at, call, kernel.name, kernel.kind, stream, *times, step, group_name))
        self.rows[-1].node = node
        if kernel.fault:
            self.lose(kernel.fault, round((end_ns - start_ns) * kernel.lost), kernel.bytes)

    def lose(self, fault: str, ns: int, size: int = 0) -> None:
        """Adds what an injected fault costs in the open step, in time and bytes."""
        if self.open_step is not None and (ns or size):
            rule = RULES.get(fault, fault.replace("-", "_"))
            sums = self.lost_to[fault, rule, self.open_step.number]
            sums[0], sums[1] = sums[0] + ns, sums[1] + size

    def lost(self, call: Call) -> None:
        """A GPU activity that the profiler lost."""
        self.lost_in[self.open_step.number if self.open_step else None].append(call)

    def assign_event_ids(self, base: int) -> None:
        """Turns indexes of pending GPU texts into event ids; they are written from `base` on."""
        for row in self.rows[self.waiting :]:
            row.event_id += base
            if row.call.at is not None and row.call.event_id is None:
                row.call.event_id = base + row.call.at
        for call in chain.from_iterable(self.lost_in.values()):
            if call.at is not None and call.event_id is None:
                call.event_id = base + call.at
        self.waiting = len(self.rows)

    def sections(self) -> Iterator[tuple[str, list[Row]]]:
        """The rows of each section."""
        self._classify_without_launch()
        yield "temporal_breakdown", self._breakdown()
        comm_ns, both_ns = overlapped(self._spans("communication"), self._spans("computation"))
        overlap: Row = (self.rank, self.device, comm_ns, both_ns, comm_ns - both_ns)
        yield "comm_comp_overlap", [overlap] if self.rows else []
        yield "comm_by_group", self._groups()
        spans = {kind: self._spans(kind) for kind in KINDS}
        yield "kernel_type_breakdown", [(self.rank, self.device, *row) for row in classes(spans)]
        yield (
            "launch_summary",
            [
                (self.rank, None if state == "no_gpu_activity" else self.device, state, *sums)
                for state, *sums in launch_sums(self._launches())
            ],
        )
        yield "annotation_breakdown", self._annotations()
        lengths: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row in self.rows:
            lengths[row.kind, row.name].append(row.end_ns - row.start_ns)
        summary = [
            (self.rank, self.device, *key, *_statistics(of_name)) for key, of_name in sorted(lengths.items())
        ]
        yield "kernel_summary", summary
        yield "launch_stats", [self._launch(row) for row in self.rows]
        yield "coverage", self._coverage()
        yield "quality", self._quality()
        yield "step_summary", self._steps()
        hosts = self.annotations.get((False, decode_annotation(self.job)), [])
        yield "inference_steps", expected_steps(self.job, self.rank, self.rows, self.steps, hosts)
        idle = _idle_parts(sorted(self.rows, key=_time_order), self._usual_latency_ns())
        yield "idle_breakdown", [(self.rank, self.device, *row) for row in idle]
        yield "stream_idle", self._stream_idle()
        yield "queue_length_summary", self._queues()
        yield "collectives", self.collective_rows
        yield "clocks", [self.clock]
        totals = (None, None) if self.old else (self.peak, self.allocated)  # old PyTorch has no totals
        memory: Row = (self.rank, self.device, self.changes, self.net, *totals)
        yield "memory_peak", [memory] if self.changes else []
        yield "faults", [(self.rank, *fault, *sums) for fault, sums in sorted(self.lost_to.items())]

    def _classify_without_launch(self) -> None:
        """Classifies activities without a launch: launched before the recording, or launch missing."""
        first_start: dict[int, int] = {}
        for row in self.rows:
            if row.call.at is not None:
                first_start[row.stream] = min(first_start.get(row.stream, row.start_ns), row.start_ns)
        for row in self.rows:
            if row.call.at is None:
                early = row.stream in first_start and row.start_ns < first_start[row.stream]
                row.state = "before_window" if early else "missing"

    def _spans(self, *kinds: str) -> list[Span]:
        return [(row.start_ns, row.end_ns) for row in self.rows if row.kind in kinds]

    def _by_stream(self) -> dict[int, list[GpuActivity]]:
        streams: dict[int, list[GpuActivity]] = defaultdict(list)
        for row in sorted(self.rows, key=_time_order):
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

    def _annotations(self) -> list[Row]:
        """On GPU or host, device, name, count, sum, union, min, median, max."""
        rows: list[Row] = []
        for (on_gpu, name), spans in self.annotations.items():
            lengths = sorted(end - start for start, end in spans)
            middle = lengths[(len(lengths) - 1) // 2]
            sums = (len(lengths), sum(lengths), total(spans), lengths[0], middle, lengths[-1])
            rows.append((self.rank, on_gpu, self.device if on_gpu else None, name, *sums))
        return rows

    def _groups(self) -> list[Row]:
        spans_by_group: dict[str | None, list[Span]] = defaultdict(list)
        for row in self.rows:
            if row.kind == "communication":
                spans_by_group[row.group].append((row.start_ns, row.end_ns))
        computation = self._spans("computation")
        result: list[Row] = []
        for group, spans in spans_by_group.items():
            total, both = overlapped(spans, computation)
            result.append((self.rank, self.device, group, total, both, total - both))
        return result

    def _launches(self) -> list[Launch]:
        launches: dict[int | str, Launch] = {}
        for row in self.rows:
            call = row.call
            if call.at is None:
                launch = launches.setdefault(row.state, Launch(row.state, None))
                launch.row(row.end_ns - row.start_ns, None)
            else:
                new = Launch(row.state, call.api, call.end_ns - call.start_ns)
                launch = launches.setdefault(call.correlation, new)
                launch.row(row.end_ns - row.start_ns, row.start_ns - call.end_ns)
        lone = [Launch("no_gpu_activity", call.api, call.end_ns - call.start_ns) for call in self._alone()]
        return [*launches.values(), *lone]

    def _alone(self) -> list[Call]:
        """Calls of which the profiler lost all rows."""
        calls = {call.correlation: call for call in chain.from_iterable(self.lost_in.values())}
        return [call for call in calls.values() if call.at is not None and not call.rows]

    def _launch(self, row: GpuActivity) -> Row:
        call, is_known = row.call, row.call.at is not None
        return (
            self.rank, row.event_id, call.event_id if is_known else None, call.api if is_known else None,
            row.name, row.kind, self.device, row.stream, call.end_ns - call.start_ns if is_known else None,
            row.end_ns - row.start_ns, row.start_ns - call.end_ns if is_known else None,
            row.start_ns - call.start_ns if is_known else None,
        )  # fmt: skip

    def _coverage(self) -> list[Row]:
        if not self.rows:
            return []
        sums: dict[str, int] = defaultdict(int)
        for row in self.rows:
            length = row.end_ns - row.start_ns
            sums["all"] += length
            sums[row.state] += length
            in_graph = "GraphLaunch" in row.call.api and row.call.rows > 1
            if row.state == "known":
                sums["graph"] += length if in_graph else 0
                sums["op"] += length if row.call.in_op and not in_graph else 0
        keys = ("all", "known", "before_window", "missing", "op", "graph")
        return [(self.rank, self.device, *(sums[key] for key in keys))]

    def _quality(self) -> list[Row]:
        by_rule: dict[str, list[int]] = defaultdict(list)
        for row in self.rows:
            if row.state != "known":
                rule = "before_window" if row.state == "before_window" else "missing_launch"
                by_rule[rule].append(row.end_ns - row.start_ns)
        if alone := self._alone():
            by_rule["launch_without_gpu_activity"] = [call.end_ns - call.start_ns for call in alone]
        for rows in self._by_stream().values():
            overlaps = list(stream_overlaps([(row.start_ns, row.end_ns) for row in rows]))
            if overlaps:
                by_rule["stream_overlap"] += overlaps
        result: list[Row] = [(self.rank, rule, len(times), sum(times)) for rule, times in by_rule.items()]
        if self.flows_without_start:
            result.append((self.rank, "flow_without_start", self.flows_without_start, None))
        return sorted(result, key=lambda row: str(row[1]))

    def _steps(self) -> list[Row]:
        spans: dict[int, list[GpuActivity]] = defaultdict(list)
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
            partial = self._is_partial(step, launched)
            rows.append((self.rank, step.number, step.end_ns - step.start_ns, length, period, partial))
            before = done
        return rows

    def _is_partial(self, step: Step, rows: list[GpuActivity]) -> bool:
        """Whether the recording stops in the step, or more than 1 % of its launches or a node are lost."""
        lost = {call.correlation: call for call in self.lost_in[step.number] if call.at is not None}
        lost_count = sum(not call.rows and "Memset" not in call.api for call in lost.values())
        launched = {row.call.correlation for row in rows if "Memset" not in row.call.api}
        is_lost = 100 * lost_count > len(launched) + lost_count or any(call.rows for call in lost.values())
        is_idle = not rows and any(row.step is None and row.call.at is not None for row in self.rows)
        return step.end_ns == self.end_ns or is_lost or is_idle

    def _usual_latency_ns(self) -> int:
        """The median time from the return of a call to the start of its activity on an idle stream."""
        latencies: list[int] = []
        for rows in self._by_stream().values():
            reached = 0
            for row in rows:
                if row.call.at is not None and reached <= row.call.start_ns < row.start_ns:
                    latencies.append(max(row.start_ns - row.call.end_ns, 0))
                reached = max(reached, row.end_ns)
        return sorted(latencies)[(len(latencies) - 1) // 2] if latencies else 0

    def _stream_idle(self) -> list[Row]:
        """Idle time of each stream, including before its first and after its last activity."""
        first_ns = min((row.start_ns for row in self.rows), default=0)
        last_ns = max((row.end_ns for row in self.rows), default=0)
        result: list[Row] = []
        for stream, rows in sorted(self._by_stream().items()):
            before, after = rows[0].start_ns - first_ns, last_ns - max(row.end_ns for row in rows)
            edges = [("before_first", before, 1), ("after_last", after, 1)]
            causes = [*_idle_causes(rows), *(edge for edge in edges if edge[1])]
            result += [(self.rank, self.device, stream, *idle) for idle in sorted(causes)]
        return result

    def _queues(self) -> list[Row]:
        """Queue statistics of each stream."""
        result: list[Row] = []
        for stream, rows in sorted(self._by_stream().items()):
            waits = [(row.call.start_ns, row.start_ns) for row in rows if row.call.at is not None]
            counts = (len(waits), len(rows) - len(waits))
            result.append((self.rank, self.device, stream, *counts, *queue(waits)))
        return result


def _statistics(lengths: list[int]) -> tuple[int, ...]:
    ordered = sorted(lengths)
    # The smallest value that is not exceeded by the given percentage.
    quantiles = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 95, 99))
    return (len(ordered), sum(ordered), ordered[0], *quantiles, ordered[-1])


def _time_order(row: GpuActivity) -> tuple[int, ...]:
    """Sort key: start, end, then launch time if known."""
    has_call = row.call.at is not None
    called_ns = row.call.start_ns if has_call else 0
    return (row.start_ns, row.end_ns, not has_call, called_ns, row.stream, row.event_id)


_PARTS = ("host", "call", "latency", "queued")


def _idle_parts(rows: list[GpuActivity], usual_ns: int) -> list[tuple[str, int, int]]:
    """Idle time of the device by part as (part, ns, gaps), from the earliest launch of pending activities."""
    unknown = {"before_window": (0, 0), "missing": (1 << 62, 1 << 62)}
    calls = [unknown.get(row.state, (row.call.start_ns, row.call.end_ns)) for row in rows]
    earliest = [*accumulate(reversed(calls), min)][::-1]
    ended = {row.end_ns: row for row in rows}
    gaps_by_part: dict[str, list[int]] = defaultdict(list)
    for index, began, length in gaps([(row.start_ns, row.end_ns) for row in rows]):
        row, (called_ns, returned_ns) = rows[index], earliest[index]
        if "GraphLaunch" in row.call.api and ended[began].call is row.call:
            gaps_by_part["graph"].append(length)
        elif row.state == "missing" and called_ns > began:
            gaps_by_part["unknown"].append(length)
        else:
            edges = [called_ns, returned_ns, returned_ns + usual_ns]
            edges = [began, *(min(max(edge, began), row.start_ns) for edge in edges), row.start_ns]
            for name, (start, end) in zip(_PARTS, pairwise(edges), strict=True):
                gaps_by_part[name] += [end - start] if end > start else []
    return [(part, sum(lengths), len(lengths)) for part, lengths in sorted(gaps_by_part.items()) if lengths]


def _idle_causes(rows: list[GpuActivity]) -> list[tuple[str, int, int]]:
    """Idle time of a stream by HTA's cause as (cause, ns, gaps); rows in time order."""
    gaps_by_cause: dict[str, list[int]] = defaultdict(list)
    for index, began, length in gaps([(row.start_ns, row.end_ns) for row in rows]):
        call = rows[index].call
        if rows[index].state == "missing":
            cause = "unknown"
        elif call.at is not None and call.start_ns > began:
            cause = "host_wait"
        else:
            cause = "kernel_wait" if length < 30_000 else "other"
        gaps_by_cause[cause].append(length)
    return [(cause, sum(lengths), len(lengths)) for cause, lengths in sorted(gaps_by_cause.items())]


# What is recorded: calls, GPU activities and steps of a rank, its clock and its profiling window.


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
        cut, early, skew = (faults.ever(kind, rank) for kind in (*OF_WINDOW, "skew-start"))
        to_ns = round(cut.number("to_ms") * 1_000_000) if cut else 0
        from_ms = (cut.number("from_ms") if cut else 0) + (skew.number("ms") if skew else 0)
        skipped = round(early.number("count")) if early else 0
        return cls(round(from_ms * 1_000_000), to_ns or 1 << 62, skipped)


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
        start, end = spans.get(row.step, (row.start_ns, row.end_ns))
        spans[row.step] = min(start, row.start_ns), max(end, row.end_ns)
    counts = (job.batch, job.batch, job.batch, job.batch * job.sequence)
    return [
        (rank, "decode", *counts, host[1] - host[0], span[1] - span[0] if span else None)
        for step, host in zip(steps, hosts, strict=False)
        for span in [spans.get(step.number)]
    ]
