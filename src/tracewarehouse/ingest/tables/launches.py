"""Which call launched each GPU row.

A GPU row and its call share a correlation id. Of calls that share one the outermost counts (a driver call
within a runtime call is part of it); of several of those the last that started before the GPU row, else the
first after it. A call farther from the GPU row than `FARTHEST_NS` did not launch it. A GPU row without an id
is linked by its flow arrow (`flow_launches`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.flow_launches import calls_by_flow
from tracewarehouse.ingest.tables.ids import pairs
from tracewarehouse.ingest.tables.model import Calls, Launches, LaunchState, Via
from tracewarehouse.ingest.tables.rows import categories, slices, with_role
from tracewarehouse.ingest.tables.search import group_numbers, last_before

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Nesting, Rows, Small, Times

# 28 hours: a clock was not set, and what lies between is no time.
FARTHEST_NS: Final = 100_000_000_000_000


def find_calls(columns: Columns, rules: Rules, nesting: Nesting) -> Calls:
    """All slices of a host thread that are calls of a GPU runtime or driver."""
    runtime = categories(rules, "runtime")
    places = np.flatnonzero(columns.is_one_of("category", runtime, nesting.rows)).astype(np.int32)
    places = places[np.argsort(nesting.rows[places], kind="stable")]
    rows = nesting.rows[places]
    ts = columns.ints("ts_ns", rows).values
    end = ts + columns.ints("dur_ns", rows).values
    return Calls(rows, ts, end, places + np.int32(1), nesting.post[places], columns.ints("correlation", rows))


def find_launches(columns: Columns, rules: Rules, nesting: Nesting, calls: Calls) -> Launches:
    """Each slice with the role `device`, and its call."""
    rows = np.flatnonzero(slices(columns) & with_role(columns, rules, "device")).astype(np.int32)
    ts = columns.ints("ts_ns", rows).values
    ids = columns.ints("correlation", rows)
    paired = pairs(ids)
    call, via = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int8)
    call[paired] = _by_correlation(calls, ids.values[paired], ts[paired])
    via[call >= 0] = Via.CORRELATION
    lost = np.flatnonzero(~paired)
    if lost.size:
        call[lost] = calls_by_flow(columns, nesting, calls, rows[lost], ts[lost])
        via[lost[call[lost] >= 0]] = Via.FLOW
    return _linked(columns, calls, rows, ts, call, via)


def _linked(columns: Columns, calls: Calls, rows: Rows, ts: Times, call: Times, via: Small) -> Launches:
    """GPU rows with what is known of their calls; `call` is a position in `calls`, -1 for none."""
    known = call >= 0
    device, stream = _or_minus_one(columns.ints("device", rows)), _or_minus_one(columns.ints("stream", rows))
    runtime, call_ts = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
    runtime[known], call_ts[known] = calls.rows[call[known]], calls.ts_ns[call[known]]
    words = columns.words("name")
    graph = pc.match_substring(words, "GraphLaunch").to_numpy(zero_copy_only=False).astype(np.bool_)
    is_graph = np.zeros(len(rows), np.bool_)
    is_graph[known] = columns.where("name", graph, runtime[known])
    state = _states(device, stream, ts, known)
    return Launches(rows, device, stream, ts, runtime, call_ts, state, is_graph, via)


def _or_minus_one(found: Ints) -> Times:
    return np.where(found.valid, found.values, -1)


def _states(device: Times, stream: Times, ts: Times, known: Flags) -> Small:
    """Why a GPU row has no call: it starts before the first linked row of its stream, or it is missing."""
    state = np.where(known, LaunchState.KNOWN, LaunchState.MISSING).astype(np.int8)
    if known.all():
        return state
    lane = group_numbers(device, stream)
    first = np.full(int(lane.max()) + 1, np.iinfo(np.int64).min)
    first[lane[known]] = np.iinfo(np.int64).max
    np.minimum.at(first, lane[known], ts[known])
    state[~known & (ts < first[lane])] = LaunchState.BEFORE_WINDOW
    return state


def _by_correlation(calls: Calls, ids: Times, ts: Times) -> Times:
    """The position in `calls` of what launched GPU rows with these ids at these times, -1 for none."""
    if not len(ids) or not len(calls.rows):
        return np.full(len(ids), -1, np.int64)
    order = _outermost(calls)
    call_ids, call_ts = calls.correlation.values[order], calls.ts_ns[order]
    if not order.size:
        return np.full(len(ids), -1, np.int64)
    first = np.minimum(np.searchsorted(call_ids, ids), len(order) - 1)
    there = call_ids[first] == ids
    last = _last_at(call_ids, call_ts, ids, ts, first)
    found = np.full(len(ids), -1, np.int64)
    # The first call after comes into question only where none before is near enough: it is asked for first.
    after = np.minimum(last + 1, len(order) - 1)
    good = there & (last + 1 < len(order)) & (call_ids[after] == ids) & _near(ts, call_ts[after])
    found[good] = order[after[good]]
    good = there & (last >= first) & _near(ts, call_ts[last])
    found[good] = order[last[good]]
    return found


def _last_at(call_ids: Times, call_ts: Times, ids: Times, ts: Times, first: Times) -> Times:
    """The position of the last call of each id that started by the time, one less than the first without."""
    last = np.where(call_ts[first] <= ts, first, first - 1)
    shared = np.zeros(len(call_ids), np.bool_)
    shared[1:] = call_ids[1:] == call_ids[:-1]
    shared[:-1] |= shared[1:]
    several = np.flatnonzero(shared[first] & (call_ids[first] == ids))
    if several.size:
        items = np.flatnonzero(shared)
        place = last_before(call_ids[items], call_ts[items], ids[several], ts[several])
        last[several] = np.where(place >= 0, items[place], first[several] - 1)
    return last


def _near(one: Times, other: Times) -> Flags:
    """Whether two times are no farther apart than a launch can be; exact beyond 63 bits."""
    distance = np.where(one > other, one - other, other - one).view(np.uint64)
    return distance <= np.uint64(FARTHEST_NS)


def _outermost(calls: Calls) -> Times:
    """Positions of calls by id and start, without those that end no later than an earlier one of their id."""
    with_id = np.flatnonzero(pairs(calls.correlation))
    ids = calls.correlation.values[with_id]
    order = with_id[np.argsort(ids, kind="stable")]
    ids = calls.correlation.values[order]
    shared = np.zeros(len(order), np.bool_)
    shared[1:] = ids[1:] == ids[:-1]
    shared[:-1] |= shared[1:]
    places = np.flatnonzero(shared)
    if not places.size:
        return order
    some = order[places]
    # ~ turns an order round, as - does, for every number of 64 bits.
    some = some[np.lexsort((some, ~calls.end_ns[some], calls.ts_ns[some], ids[places]))]
    order[places] = some
    kept = np.ones(len(order), np.bool_)
    kept[places] = _longer_than_earlier(ids[places], calls.end_ns[some])
    return order[kept]


def _longer_than_earlier(groups: Times, ends: Times) -> Flags:
    """Whether each end is later than all before it in its group; groups are together."""
    rank = np.unique(ends, return_inverse=True)[1]
    group = np.cumsum(np.concatenate(([0], groups[1:] != groups[:-1])))
    level = group * (int(rank.max()) + 1) + rank
    highest = np.maximum.accumulate(level)
    found = np.ones(len(ends), np.bool_)
    found[1:] = highest[1:] > highest[:-1]
    return found
