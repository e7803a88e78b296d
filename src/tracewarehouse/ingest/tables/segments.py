"""Table `device_segments`: the time of a rank in segments of one step and one GPU activity or idle cause.

Of the activities that run, those of the first kind in `_BY_PRIORITY` count, and of these the one that started
first. The rank is idle where none runs. A gap has up to four parts, by the earliest launch of any activity
that is pending when the gap ends: the host, until the call begins (a blocking call that the launching thread
was in, then the data loader, then the thread itself); the call, until it returns; the usual latency of the
recording; and the rest, in which the activity was queued. A gap inside a graph launch has none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.ingest.tables.kernels import KINDS
from tracewarehouse.ingest.tables.model import (
    LOADER,
    LaunchState,
    are_repeated,
    begin_group,
    bigint_column,
    encoded_texts,
    flags,
    id_column,
    last_before,
    last_so_far,
    start_and_end,
    thread_numbers,
)

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.kernels import Classes, StreamIdle
    from tracewarehouse.ingest.tables.model import Calls, Flags, Launches, Numbers, Positions, Rows, Times


_BY_PRIORITY: Final = ("computation", "communication", "memory", "other")
_CAUSES: Final = (
    "host", "dataloader", "sync", "call", "latency", "queued", "graph", "unknown", "outside",
)  # fmt: skip
_HOST, _DATA, _SYNC, _CALL, _LATENCY, _QUEUED, _GRAPH, _UNKNOWN, _OUTSIDE = range(len(_CAUSES))
_FIRST: Final = np.iinfo(np.int64).min
_LAST: Final = np.iinfo(np.int64).max


class _Intervals(Struct, frozen=True):
    """Intervals on threads, by thread, start and row; `latest` is the one up to each that ends last."""

    rows: Rows
    thread: Numbers
    start_ns: Times
    end_ns: Times
    latest: Positions

    @classmethod
    def of(cls, columns: Columns, rows: Rows) -> _Intervals:
        """The slices with these rows."""
        start, end = start_and_end(columns, rows)
        thread = thread_numbers(columns, rows)
        order = np.lexsort((rows, start, thread))
        rows, thread, start, end = rows[order], thread[order], start[order], end[order]
        # Of equal ends the shortest interval counts, of equal intervals the first.
        by_end = np.lexsort((-np.arange(len(rows)), -start, end))
        return cls(rows, thread, start, end, last_so_far(by_end, begin_group(thread)))

    def latest_at(self, thread: Numbers, at_ns: Times) -> Positions:
        """Of the intervals of each thread that start by each time, the one that ends last; -1 for none."""
        found = last_before(self.thread, self.start_ns, thread, at_ns)
        return np.where(found >= 0, np.append(self.latest, -1)[found], -1)


class _Gaps(Struct, frozen=True):
    """Times between activities; `after` is the index of the activity that ends each."""

    start_ns: Times
    end_ns: Times
    after: Positions

    def selected(self, which: Flags) -> _Gaps:
        """Some of the gaps."""
        return _Gaps(self.start_ns[which], self.end_ns[which], self.after[which])


def device_segments(
    columns: Columns,
    calls: Calls,
    launches: Launches,
    classes: Classes,
    is_sync: Flags,
    streams: StreamIdle,
    steps: pa.Table,
) -> pa.Table:
    """Table `device_segments` of a rank; `is_sync` marks the calls that wait, `steps` is its table."""
    end = launches.end_ns
    idle_ns, causes, waits, after, gap_ns = _idle(columns, calls, launches, streams, is_sync, classes.is_copy)
    layers = [_layer(launches, end, classes.kind == KINDS.index(name)) for name in _BY_PRIORITY]
    step, step_start = _periods(steps, len(end) > 0)
    edges = [each for _, *times in layers for each in times]
    last = end.max(initial=_FIRST)
    at = np.sort(np.concatenate([*edges, step_start, idle_ns, [last]]))
    begins = at[:-1] < at[1:]
    at, until = at[:-1][begins], at[1:][begins]
    owner, kinds = np.full(len(at), -1, np.int32), np.full(len(at), len(_BY_PRIORITY), np.int8)
    for number, (rows, starts, ends) in reversed(list(enumerate(layers))):
        found = _last(starts, at)
        runs = np.append(ends, _FIRST)[found] > at
        owner[runs], kinds[runs] = rows[found[runs]], number
    step = np.append(step, -1)[_last(step_start, at)]
    part = np.where((owner < 0) & (at < last), _last(idle_ns, at), -1)
    cause = np.where(owner < 0, np.append(causes, _OUTSIDE)[part], -1)
    return pa.table(
        {
            "start_ns": bigint_column(at),
            "segment_ns": bigint_column(until - at),
            "step": id_column(step),
            "kind": encoded_texts(kinds, (*_BY_PRIORITY, "idle")),
            "kernel_id": id_column(owner),
            "cause": encoded_texts(cause, _CAUSES),
            "wait_id": id_column(np.append(waits, -1)[part]),
            "after_id": id_column(np.append(after, -1)[part]),
            "gap_ns": bigint_column(np.append(gap_ns, 0)[part], part >= 0),
        }
    )


def _last(starts: Times, at: Times) -> Positions:
    """The position of the last start by each time, -1 for none; both ascend."""
    return np.searchsorted(starts, at, side="right") - 1


def _periods(steps: pa.Table, has_activity: bool) -> tuple[Numbers, Times]:
    """The step from each time on, -1 after the last one's period; none on a rank without GPU activity."""
    step, start, period = (steps.column(name).to_numpy() for name in ("step", "period_start_ns", "period_ns"))
    order = np.argsort(start, kind="stable")
    order = order[(period[order] > 0) & has_activity]
    if not len(order):
        return step[order], start[order]
    end = (start + period)[order].max(keepdims=True)
    return np.append(step[order], -1), np.append(start[order], end)


def _layer(launches: Launches, end: Times, selected: Flags) -> tuple[Rows, Times, Times]:
    """The selected activities by start, with the time of each in which no earlier one of them runs."""
    index = np.flatnonzero(selected)
    index = index[np.argsort(launches.ts_ns[index], kind="stable")]
    start, end = launches.ts_ns[index], end[index]
    start[1:] = np.maximum(start[1:], np.maximum.accumulate(end)[:-1])
    kept = end > start
    return launches.rows[index[kept]], start[kept], end[kept]


def _idle(
    columns: Columns, calls: Calls, launches: Launches, streams: StreamIdle, is_sync: Flags, is_copy: Flags
) -> tuple[Times, Numbers, Rows, Rows, Times]:
    """Idle time in order of start: cause, blocking call (-1 for none), next activity, and the whole gap."""
    end = launches.end_ns
    gaps, pending, launched_ns, in_graph = _gaps(launches, end)
    call = np.searchsorted(calls.rows, launches.runtime)
    return_ns = np.append(calls.end_ns, _FIRST)[np.where(launches.runtime >= 0, call, -1)]
    is_lost = (launches.state[gaps.after] == LaunchState.MISSING) & (launched_ns > gaps.start_ns)
    # When the call begins, when it returns, and when the activity usually starts, within each gap.
    starts = return_ns[pending] + _usual_latency_ns(launches, streams, return_ns)
    edges = [np.clip(each, gaps.start_ns, gaps.end_ns) for each in (launched_ns, return_ns[pending], starts)]
    edges = [np.where(is_lost | in_graph, gaps.start_ns, each) for each in edges]
    late = edges[0] > gaps.start_ns
    copies = np.flatnonzero(is_copy & (launches.runtime >= 0))
    call_of_copy = call[copies]
    call_of_copy = call_of_copy[end[copies] <= calls.end_ns[call_of_copy]]
    is_blocking = is_sync.copy()
    is_blocking[call_of_copy] = True
    host = _Gaps(gaps.start_ns[late], edges[0][late], pending[late])
    at, gap, cause, wait = _late_parts(
        columns, launches, host, _Intervals.of(columns, calls.rows[is_blocking])
    )
    of_late = np.flatnonzero(late)
    last_cause = np.select([in_graph, is_lost], [_GRAPH, _UNKNOWN], _QUEUED)
    parts = [(at, of_late[gap], cause, wait)]
    ends = [*edges[1:], gaps.end_ns]
    causes = [np.full_like(last_cause, _CALL), np.full_like(last_cause, _LATENCY), last_cause]
    for from_ns, until_ns, part in zip(edges, ends, causes, strict=True):
        some = np.flatnonzero(until_ns > from_ns)
        parts.append((from_ns[some], some, part[some], np.full(len(some), -1, np.int32)))
    start, gap, cause, wait = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(start, kind="stable")
    gap = gap[order]
    after = launches.rows[gaps.after[gap]]
    return start[order], cause[order], wait[order], after, (gaps.end_ns - gaps.start_ns)[gap]


def _usual_latency_ns(launches: Launches, streams: StreamIdle, return_ns: Times) -> int:
    """The median time from the return of a call to the start of its activity on an idle stream; 0 if unknown.

    The stream was idle if all its earlier activities had ended when the call began. Activities that start
    before their calls (clocks are off) do not count.
    """
    to_start_ns = launches.ts_ns - launches.call_ts_ns
    is_idle = streams.is_first | (streams.idle_ns >= to_start_ns)
    some = is_idle & (launches.runtime >= 0) & (to_start_ns > 0)
    latency = np.sort(np.maximum(launches.ts_ns[some] - return_ns[some], 0))
    return int(latency[(len(latency) - 1) // 2]) if len(latency) else 0


def _gaps(launches: Launches, end: Times) -> tuple[_Gaps, Positions, Times, Flags]:
    """The time before each activity in which none runs; of several that start together the first counts.

    The first by end, launch (unknown ones last), stream and position in the file. Also the pending activity
    with the earliest launch, the time of that launch, and whether the gap is inside a graph launch.
    """
    order = np.argsort(launches.ts_ns, kind="stable")
    ts = launches.ts_ns[order]
    tied = np.flatnonzero(are_repeated(ts))
    some = order[tied]
    call = np.where(launches.runtime >= 0, launches.call_ts_ns, _LAST)
    order[tied] = some[np.lexsort((some, launches.stream[some], call[some], end[some], ts[tied]))]
    reached = np.maximum.accumulate(end[order])
    gap = np.flatnonzero(ts[1:] > reached[:-1])
    # What was launched before the recording is pending from its start.
    call[launches.state == LaunchState.BEFORE_WINDOW] = _FIRST
    earliest = np.minimum.accumulate(call[order][::-1])[::-1]
    is_earliest = call[order] == earliest
    position = np.where(is_earliest, np.arange(len(order)), len(order))
    first = np.minimum.accumulate(position[::-1])[::-1]
    gaps = _Gaps(reached[gap], ts[gap + 1], order[gap + 1])
    return gaps, order[first[gap + 1]], earliest[gap + 1], _in_graph(launches, end, gaps)


def _in_graph(launches: Launches, end: Times, gaps: _Gaps) -> Flags:
    """Whether each gap is between two activities of one graph launch; of equal ends the last row counts."""
    found: Flags = launches.is_graph[gaps.after]
    if found.any():
        by_end = np.argsort(end, kind="stable")
        before = by_end[np.searchsorted(end[by_end], gaps.start_ns, side="right") - 1]
        found &= launches.runtime[before] == launches.runtime[gaps.after]
    return found


def _late_parts(
    columns: Columns, launches: Launches, gaps: _Gaps, waits: _Intervals
) -> tuple[Times, Positions, Numbers, Rows]:
    """The parts of gaps up to the launch of `after`: start, gap, cause and the blocking call, -1 for none."""
    thread = thread_numbers(columns, launches.runtime[gaps.after])
    latest = waits.latest_at(thread, gaps.start_ns)
    blocks = (latest >= 0) & (np.append(waits.end_ns, 0)[latest] > gaps.start_ns)
    blocked_ns = np.where(blocks, np.append(waits.end_ns - waits.start_ns, 0)[latest], 0)
    sync_end = gaps.start_ns + blocked_ns
    is_loader = flags(pc.starts_with(columns.words("name"), LOADER))
    rows = np.zeros(0, np.int32)
    if is_loader.any():
        rows = np.flatnonzero(columns.where("name", is_loader) & columns.valid("pre")).astype(np.int32)
    data = _Intervals.of(columns, rows)
    # Parts begin with the gap, after the blocking call, and where the thread's waits for data begin or end.
    inside = np.flatnonzero(sync_end < gaps.end_ns)
    edge = np.concatenate((data.start_ns, data.end_ns))
    around = last_before(thread, gaps.start_ns, np.tile(data.thread, 2), edge)
    held = np.flatnonzero(around >= 0)
    held = held[edge[held] < gaps.end_ns[around[held]]]
    at = np.concatenate((gaps.start_ns, sync_end[inside], edge[held]))
    gap = np.concatenate((np.arange(len(thread)), inside, around[held]))
    order = np.argsort(at, kind="stable")
    order = order[np.append(True, at[order][1:] > at[order][:-1])[: len(order)]]
    at, gap = at[order], gap[order]
    loading = data.latest_at(thread[gap], at)
    loads = np.append(data.end_ns, _FIRST)[loading] > at
    is_sync = sync_end[gap] > at
    cause = np.where(is_sync, _SYNC, np.where(loads, _DATA, _HOST))
    return at, gap, cause, np.where(is_sync, np.append(waits.rows, -1)[latest[gap]], -1).astype(np.int32)
