"""Idle time of devices and streams by cause, by brute force: all activities between all adjacent edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from witness.answers import Row
from witness.recording import is_graph
from witness.trace import Slice, Trace, devices

KERNEL_WAIT_NS = 60  # the random traces have no gap as long as the default
PARTS = ("host", "call", "latency", "queued")


@dataclass(frozen=True)
class Gap:
    """An idle interval from `start` to `end`; without an activity that ends or begins there, it is None."""

    start: int
    end: int
    before: Slice | None
    after: Slice | None


def gaps(trace: Trace, rows: list[Slice], first: int, last: int) -> Iterator[Gap]:
    """The gaps between the activities in a time range."""
    edges = sorted({first, last, *(edge for row in rows for edge in (row.start, row.end))})
    for start, end in zip(edges, edges[1:], strict=False):
        if any(row.start <= start and row.end >= end for row in rows):
            continue
        ending = [row for row in rows if row.end == start]
        beginning = [row for row in rows if row.start == end]
        yield Gap(
            start,
            end,
            max(ending, key=lambda row: row.event_id, default=None),
            min(beginning, key=lambda row: order(trace, row), default=None),
        )


def order(trace: Trace, row: Slice) -> tuple[int, ...]:
    """Order of activities that begin together: shorter, launched earlier (if known), lower stream, file."""
    call = trace.launch(row)
    return (row.end, call is None, call.start if call else 0, row.stream, row.event_id)


@dataclass(frozen=True)
class Launch:
    """The earliest launch of what is pending when a gap ends: the call, and when work usually starts.

    What was launched before the recording has no call, and has started long ago.
    """

    call: Slice | None
    usual: int

    @property
    def edges(self) -> tuple[int, int, int]:
        """When the call begins, when it returns, and when its activity usually starts."""
        if self.call is None:
            return (-1, -1, -1)
        return self.call.start, self.call.end, self.call.end + self.usual


def usual_latency(trace: Trace) -> int:
    """The median time from the return of a call to the start of its activity on a stream without work."""
    found = []
    for row in trace.gpu:
        call = trace.launch(row)
        lane = [each for each in trace.gpu if (each.device, each.stream) == (row.device, row.stream)]
        earlier = [each for each in lane if (each.start, order(trace, each)) < (row.start, order(trace, row))]
        if call is not None and row.start > call.start and all(each.end <= call.start for each in earlier):
            found.append(max(row.start - call.end, 0))
    return sorted(found)[(len(found) - 1) // 2] if found else 0


def pending(trace: Trace, rows: list[Slice], gap: Gap, usual: int) -> Launch | str:
    """The earliest launch of any of the activities that start when the gap ends or later, or its cause."""
    if gap.before and is_graph(call := trace.launch(gap.before)) and call == trace.launch(gap.after):
        return "graph"
    later = [row for row in rows if row.start >= gap.end]
    if any(trace.launch_state(row) == "before_window" for row in later):
        return Launch(None, usual)
    calls = [call for row in later if (call := trace.launch(row))]
    first = min(calls, key=lambda call: (call.start, call.end, call.event_id), default=None)
    if trace.launch_state(gap.after) == "missing" and (first is None or first.start > gap.start):
        return "unknown"
    return Launch(first, usual)


def parts(gap: Gap, launch: Launch | str) -> dict[str, int]:
    """The parts of a gap of a device, in order."""
    if isinstance(launch, str):
        return dict.fromkeys(PARTS, 0)
    edges = [gap.start, *(min(max(edge, gap.start), gap.end) for edge in launch.edges), gap.end]
    return {name: edges[place + 1] - edges[place] for place, name in enumerate(PARTS)}


def cause(trace: Trace, gap: Gap) -> str:
    """HTA's cause of the idle time of a stream."""
    if gap.before is None:
        return "before_first"
    if gap.after is None:
        return "after_last"
    call = trace.launch(gap.after)
    if call is None and trace.launch_state(gap.after) == "missing":
        return "unknown"
    if call is not None and call.start > gap.start:
        return "host_wait"
    return "kernel_wait" if gap.end - gap.start < KERNEL_WAIT_NS else "other"


def lanes(trace: Trace, by_stream: bool) -> Iterator[tuple[Row, list[Slice], list[Gap]]]:
    """The activities and gaps of each device, or of each of its streams within the device's window."""
    for device, rows in devices(trace.gpu).items():
        window = min(row.start for row in rows), max(row.end for row in rows)
        if not by_stream:
            yield {"device": device}, rows, list(gaps(trace, rows, *window))
            continue
        for stream in sorted({row.stream for row in rows}):
            own = [row for row in rows if row.stream == stream]
            yield {"device": device, "stream": stream}, own, list(gaps(trace, own, *window))


def idle_breakdown(trace: Trace) -> list[Row]:
    """Idle time of devices by part."""
    answer, usual = [], usual_latency(trace)
    for lane, rows, found in lanes(trace, by_stream=False):
        lengths: dict[str, list[int]] = defaultdict(list)
        for gap in found:
            launch = pending(trace, rows, gap, usual)
            named = {launch: gap.end - gap.start} if isinstance(launch, str) else parts(gap, launch)
            for name, length in named.items():
                lengths[name] += [length] if length else []
        answer += _sums(lane, lengths)
    return answer


def stream_idle(trace: Trace) -> list[Row]:
    """Idle time of streams by HTA's cause."""
    answer = []
    for lane, _, found in lanes(trace, by_stream=True):
        lengths: dict[str, list[int]] = defaultdict(list)
        for gap in found:
            lengths[cause(trace, gap)].append(gap.end - gap.start)
        answer += _sums(lane, lengths)
    return answer


def _sums(lane: Row, lengths: dict[str, list[int]]) -> list[Row]:
    idle = sum(map(sum, lengths.values()))
    return [
        lane | {"cause": why, "idle_ns": sum(each), "count": len(each), "share": sum(each) / idle}
        for why, each in lengths.items()
        if each
    ]


def idle_intervals(trace: Trace) -> list[Row]:
    """Each gap of devices with its parts, and the activities before and after it."""
    answer, usual = [], usual_latency(trace)
    for lane, rows, found in lanes(trace, by_stream=False):
        for gap in found:
            launch = pending(trace, rows, gap, usual)
            split = parts(gap, launch)
            why = launch if isinstance(launch, str) else max(split, key=lambda name: split[name])
            answer.append(
                lane
                | _interval(trace, gap)
                | {f"{name}_ns": ns for name, ns in split.items()}
                | {"cause": why, "after_stream": gap.after and gap.after.stream}
            )
    return answer


def stream_idle_intervals(trace: Trace) -> list[Row]:
    """Each gap of streams with the activities before and after it, and the launch of the latter."""
    return [
        lane | _interval(trace, gap) | {"cause": cause(trace, gap)}
        for lane, _, found in lanes(trace, by_stream=True)
        for gap in found
    ]


def _interval(trace: Trace, gap: Gap) -> Row:
    call = gap.after and trace.launch(gap.after)
    op = trace.op(call)
    return {
        "start_ns": gap.start,
        "idle_ns": gap.end - gap.start,
        "before_id": gap.before and gap.before.event_id,
        "before_name": gap.before and gap.before.name,
        "after_id": gap.after and gap.after.event_id,
        "after_name": gap.after and gap.after.name,
        "step": trace.step(call),
        "call_id": call and call.event_id,
        "api": call and call.name,
        "launch_delay_ns": call and call.start - gap.start,
        "op_id": op and op.event_id,
        "op_name": op and op.name,
    }
