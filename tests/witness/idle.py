"""Idle time of devices and streams by cause, by brute force: all activities between all adjacent edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from witness.answers import Row
from witness.trace import Slice, Trace, devices

KERNEL_WAIT_NS = 60  # the random traces have no gap as long as the default


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


def cause(trace: Trace, gap: Gap) -> str:
    """The cause of the idle time."""
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


def lanes(trace: Trace, by_stream: bool) -> Iterator[tuple[Row, list[Gap]]]:
    """The gaps of each device, or of each of its streams within the device's window."""
    for device, rows in devices(trace.gpu).items():
        window = min(row.start for row in rows), max(row.end for row in rows)
        if not by_stream:
            yield {"device": device}, list(gaps(trace, rows, *window))
            continue
        for stream in sorted({row.stream for row in rows}):
            own = [row for row in rows if row.stream == stream]
            yield {"device": device, "stream": stream}, list(gaps(trace, own, *window))


def breakdown(trace: Trace, by_stream: bool) -> list[Row]:
    """Idle time by cause."""
    answer = []
    for lane, found in lanes(trace, by_stream):
        lengths: dict[str, list[int]] = defaultdict(list)
        for gap in found:
            lengths[cause(trace, gap)].append(gap.end - gap.start)
        idle = sum(map(sum, lengths.values()))
        answer += [
            lane | {"cause": why, "idle_ns": sum(each), "count": len(each), "share": sum(each) / idle}
            for why, each in lengths.items()
        ]
    return answer


def intervals(trace: Trace, by_stream: bool) -> list[Row]:
    """Each gap with the activities before and after it, and the launch of the latter."""
    return [
        lane | _interval(trace, gap, by_stream) for lane, found in lanes(trace, by_stream) for gap in found
    ]


def _interval(trace: Trace, gap: Gap, by_stream: bool) -> Row:
    call = gap.after and trace.launch(gap.after)
    op = trace.op(call)
    row = {
        "start_ns": gap.start,
        "idle_ns": gap.end - gap.start,
        "cause": cause(trace, gap),
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
    return row if by_stream else row | {"after_stream": gap.after and gap.after.stream}


def _of(answer: Callable[[Trace, bool], list[Row]], by_stream: bool) -> Callable[[Trace], list[Row]]:
    return lambda trace: answer(trace, by_stream)


idle_breakdown, stream_idle = _of(breakdown, False), _of(breakdown, True)
idle_intervals, stream_idle_intervals = _of(intervals, False), _of(intervals, True)
