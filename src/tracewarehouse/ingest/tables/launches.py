"""Calls of the GPU runtime, the GPU activities that they launched, and synchronizations.

These are the tables `runtime`, `correlations` and `syncs`.

A GPU activity and its call share a correlation id. If several calls share one, the outermost counts (a driver
call inside a runtime call is part of it); of several outermost ones the last that started before the GPU
activity, else the first after it. A call farther away than `MAX_LAUNCH_DISTANCE_NS` did not launch it. A GPU
activity without an id is linked by its flow (`calls_by_flow`).

In a file that was merged from several processes, calls of different processes have the same ids. A GPU
activity does not say its process: each stream belongs to the process whose calls are near its activities in
the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tracewarehouse.ingest.tables.events import calls_by_flow
from tracewarehouse.ingest.tables.model import (
    Calls,
    Launches,
    LaunchState,
    Via,
    are_repeated,
    bigint_column,
    categories_with_role,
    encoded_texts,
    flags,
    group_numbers,
    has_role,
    id_column,
    is_slice,
    last_before,
    last_of,
    latest_before,
    pairing_ids,
    selected_columns,
    start_and_end,
    used_texts,
)

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import (
        Attribution,
        Flags,
        Nesting,
        Numbers,
        Positions,
        Rows,
        Small,
        Times,
    )


# 28 hours: a clock was not set, and the distance is not a duration.
MAX_LAUNCH_DISTANCE_NS: Final = 100_000_000_000_000
# A stream belongs to a process if it has this share of its activities.
_CLEAR_SHARE: Final = 0.9
_VIA: Final = tuple(via.name.lower() for via in Via)
_SYNC_COLUMNS: Final = (
    "device", "stream", "ts_ns", "dur_ns", "correlation", "wait_on_stream", "wait_on_event",
    "wait_on_correlation", "step",
)  # fmt: skip


def find_calls(columns: Columns, rules: Rules, nesting: Nesting) -> Calls:
    """All slices of host threads that are calls of a GPU runtime or driver."""
    runtime = categories_with_role(rules, "runtime")
    positions = np.flatnonzero(columns.is_one_of("category", runtime, nesting.rows)).astype(np.int32)
    positions = positions[np.argsort(nesting.rows[positions], kind="stable")]
    rows = nesting.rows[positions]
    pre, post = positions + np.int32(1), nesting.post[positions]
    return Calls(rows, *start_and_end(columns, rows), pre, post, pairing_ids(columns, rows))


def find_launches(columns: Columns, rules: Rules, nesting: Nesting, calls: Calls) -> Launches:
    """Each slice with the role `device`, and its launch."""
    rows = np.flatnonzero(is_slice(columns) & has_role(columns, rules, "device")).astype(np.int32)
    ts = columns.ints("ts_ns", rows).values
    ids = pairing_ids(columns, rows)
    paired = ids.valid
    call, via = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int8)
    own_calls, own_ids = _ids_within_processes(columns, calls, rows[paired], ids.values[paired])
    call[paired] = _by_correlation(own_calls, own_ids, ts[paired])
    via[call >= 0] = Via.CORRELATION
    unlinked = np.flatnonzero(~paired)
    if unlinked.size:
        call[unlinked] = calls_by_flow(columns, nesting, calls, rows[unlinked], ts[unlinked])
        via[unlinked[call[unlinked] >= 0]] = Via.FLOW
    return _linked(columns, calls, rows, ts, call, via)


def _ids_within_processes(columns: Columns, calls: Calls, rows: Rows, ids: Times) -> tuple[Calls, Times]:
    """The calls, and the ids of GPU activities, with other ids where several processes use the same ones."""
    with_id = np.flatnonzero(calls.correlation.valid)
    process = columns.codes("pid", calls.rows[with_id]).codes
    if not len(rows) or not len(with_id) or (process == process[0]).all():
        return calls, ids
    call_ids = calls.correlation.values[with_id]
    order = np.argsort(call_ids, kind="stable")
    call_ids, process = call_ids[order], process[order]
    differs = (call_ids[1:] == call_ids[:-1]) & (process[1:] != process[:-1])
    if not differs.any():
        return calls, ids
    nearest = _nearest_in_file(call_ids, calls.rows[with_id[order]], ids, rows)
    there = np.flatnonzero(nearest >= 0)
    owner = np.full(len(rows), -1, np.int64)
    if there.size:
        owner[there] = _owners(columns, rows[there], process[nearest[there]])
    numbers = group_numbers(np.concatenate((call_ids, ids)), np.concatenate((process, owner)))
    values = calls.correlation.values.copy()
    values[with_id[order]] = numbers[: len(order)]
    links = type(calls.correlation)(values, calls.correlation.valid)
    return replace(calls, correlation=links), numbers[len(order) :]


def _nearest_in_file(call_ids: Times, call_rows: Rows, ids: Times, rows: Rows) -> Times:
    """The position of the nearest call with the id of each activity, -1 for none; calls are in order."""
    distinct, first = np.unique(call_ids, return_index=True)
    number = np.minimum(np.searchsorted(distinct, ids), len(distinct) - 1)
    there = distinct[number] == ids
    call_number = np.repeat(np.arange(len(distinct)), np.diff(np.append(first, len(call_ids))))
    key = number.astype(np.int64) << 32 | rows
    after = np.searchsorted(call_number.astype(np.int64) << 32 | call_rows, key)
    low, high = first[number], np.append(first[1:], len(call_ids))[number] - 1
    before, after = np.clip(after - 1, low, high), np.clip(after, low, high)
    is_before = np.abs(rows - call_rows[before]) <= np.abs(call_rows[after] - rows)
    return np.where(there, np.where(is_before, before, after), -1)


def _owners(columns: Columns, rows: Rows, process: Positions) -> Numbers:
    """The process of each activity: that of most activities of its stream, if they are nearly all of them."""
    device, stream = _or_minus_one(columns.ints("device", rows)), _or_minus_one(columns.ints("stream", rows))
    lane = group_numbers(stream, device, columns.codes("pid", rows).codes, columns.rank_index(rows))
    pair = group_numbers(lane, process)
    _, first, count = np.unique(pair, return_index=True, return_counts=True)
    order = np.lexsort((count, lane[first]))
    most = order[np.append(np.flatnonzero(np.diff(lane[first[order]])), len(order) - 1)]
    is_clear = count[most] >= _CLEAR_SHARE * np.bincount(lane)
    found: Numbers = np.where(is_clear[lane], process[first[most]][lane], process)
    return found


def _linked(columns: Columns, calls: Calls, rows: Rows, ts: Times, call: Times, via: Small) -> Launches:
    """GPU activities with what is known of their launches; `call` is an index into `calls`, -1 for none."""
    known = call >= 0
    device, stream = _or_minus_one(columns.ints("device", rows)), _or_minus_one(columns.ints("stream", rows))
    runtime, call_ts = np.full(len(rows), -1, np.int32), np.zeros(len(rows), np.int64)
    runtime[known], call_ts[known] = calls.rows[call[known]], calls.ts_ns[call[known]]
    words = columns.words("name")
    graph = flags(pc.match_substring(words, "GraphLaunch"))
    is_graph = np.zeros(len(rows), np.bool_)
    is_graph[known] = columns.where("name", graph, runtime[known])
    state = np.where(known, LaunchState.KNOWN, LaunchState.MISSING).astype(np.int8)
    dur = columns.ints("dur_ns", rows).values
    found = Launches(rows, device, stream, ts, dur, runtime, call_ts, state, is_graph, via)
    if not known.all():
        _put_before_window(columns, found, known)
    return found


def _or_minus_one(found: Ints) -> Times:
    return np.where(found.valid, found.values, -1)


def _put_before_window(columns: Columns, launches: Launches, known: Flags) -> None:
    """Puts the state of GPU activities before the first one of their stream with a known launch."""
    lane, ts = launches.lanes(columns), launches.ts_ns
    first = np.full(int(lane.max()) + 1, np.iinfo(np.int64).min)
    first[lane[known]] = np.iinfo(np.int64).max
    np.minimum.at(first, lane[known], ts[known])
    launches.state[~known & (ts < first[lane])] = LaunchState.BEFORE_WINDOW


def _by_correlation(calls: Calls, ids: Times, ts: Times) -> Times:
    """The index in `calls` of the launch of GPU activities with these ids and starts, -1 for none."""
    if not len(ids) or not len(calls.rows):
        return np.full(len(ids), -1, np.int64)
    order = outermost_calls(calls)
    call_ids, call_ts = calls.correlation.values[order], calls.ts_ns[order]
    if not order.size:
        return np.full(len(ids), -1, np.int64)
    first = np.minimum(np.searchsorted(call_ids, ids), len(order) - 1)
    there = call_ids[first] == ids
    last = _last_at(call_ids, call_ts, ids, ts, first)
    found = np.full(len(ids), -1, np.int64)
    # The first call after counts only if no earlier one is near enough; an earlier one overwrites it below.
    after = np.minimum(last + 1, len(order) - 1)
    has_call = there & (last + 1 < len(order)) & (call_ids[after] == ids) & _near(ts, call_ts[after])
    found[has_call] = order[after[has_call]]
    has_call = there & (last >= first) & _near(ts, call_ts[last])
    found[has_call] = order[last[has_call]]
    return found


def _last_at(call_ids: Times, call_ts: Times, ids: Times, ts: Times, first: Times) -> Times:
    """The position of each id's last call that started by the time; one before its first call if none did."""
    last = np.where(call_ts[first] <= ts, first, first - 1)
    shared = are_repeated(call_ids)
    several = np.flatnonzero(shared[first] & (call_ids[first] == ids))
    if several.size:
        items = np.flatnonzero(shared)
        position = last_before(call_ids[items], call_ts[items], ids[several], ts[several])
        last[several] = np.where(position >= 0, items[position], first[several] - 1)
    return last


def _near(one: Times, other: Times) -> Flags:
    """Whether two times are at most `MAX_LAUNCH_DISTANCE_NS` apart; exact beyond 63 bits."""
    distance = np.where(one > other, one - other, other - one).view(np.uint64)
    return distance <= np.uint64(MAX_LAUNCH_DISTANCE_NS)


def outermost_calls(calls: Calls) -> Times:
    """Indexes of calls by id and start, without those that end no later than an earlier one with their id."""
    with_id = np.flatnonzero(calls.correlation.valid)
    ids = calls.correlation.values[with_id]
    order = with_id[np.argsort(ids, kind="stable")]
    ids = calls.correlation.values[order]
    positions = np.flatnonzero(are_repeated(ids))
    if not positions.size:
        return order
    some = order[positions]
    # ~ reverses the order like -, but without overflow.
    some = some[np.lexsort((some, ~calls.end_ns[some], calls.ts_ns[some], ids[positions]))]
    order[positions] = some
    kept = np.ones(len(order), np.bool_)
    earlier_end, has_earlier = latest_before(ids[positions], calls.end_ns[some])
    kept[positions] = ~has_earlier | (calls.end_ns[some] > earlier_end)
    return order[kept]


def have_id_of_launched(columns: Columns, calls: Calls, launches: Launches) -> Flags:
    """Whether each call has the id of a GPU activity with a launch: then it is that launch, or inside it."""
    ids = pairing_ids(columns, launches.rows[launches.runtime >= 0])
    found: Flags = np.isin(calls.correlation.values, ids.values[ids.valid]) & calls.correlation.valid
    return found


def runtime(
    columns: Columns, calls: Calls, launches: Launches, attribution: Attribution, by_name: tuple[Flags, Flags]
) -> pa.Table:
    """Table `runtime`: each call, and whether it launches (by a GPU activity or `by_name`) or waits."""
    is_launch, is_sync = by_name[0].copy(), by_name[1]
    is_launch[np.searchsorted(calls.rows, launches.runtime[launches.runtime >= 0])] = True
    return pa.table(
        {
            "event_id": bigint_column(calls.rows),
            **selected_columns(columns, calls.rows, {"api": "category"}),
            **selected_columns(columns, calls.rows, ("name", "correlation", "pid", "tid", "step")),
            "ts_ns": bigint_column(calls.ts_ns),
            "dur_ns": bigint_column(calls.end_ns - calls.ts_ns),
            "is_launch": pa.array(is_launch),
            "is_sync": pa.array(is_sync),
            "op_id": id_column(attribution.call_op),
        }
    )


def calls_by_name(columns: Columns, rules: Rules, calls: Calls) -> tuple[Flags, Flags]:
    """Whether each call launches, and whether it waits, according to its name."""
    names = columns.codes("name", calls.rows)
    used, texts = used_texts(names)
    flags_of_names = np.zeros((2, len(names.words) + 1), np.bool_)  # the last column is for no name
    flags_of_names[:, used] = np.array(rules.calls(texts), np.bool_).reshape(len(used), 2).T
    return flags_of_names[0][names.codes], flags_of_names[1][names.codes]


def correlations(calls: Calls, launches: Launches) -> pa.Table:
    """Table `correlations`: each call and each GPU activity that it launched, by call."""
    linked = np.flatnonzero(launches.runtime >= 0)
    linked = linked[np.argsort(launches.runtime[linked], kind="stable")]
    call = np.searchsorted(calls.rows, launches.runtime[linked])
    start = launches.ts_ns[linked]
    return pa.table(
        {
            "runtime_id": bigint_column(launches.runtime[linked]),
            "kernel_id": bigint_column(launches.rows[linked]),
            "call_to_start_ns": bigint_column(start - calls.ts_ns[call]),
            "return_to_start_ns": bigint_column(start - calls.end_ns[call]),
            "is_graph": pa.array(launches.is_graph[linked]),
            "via": encoded_texts(launches.via[linked], _VIA),
        }
    )


def syncs(columns: Columns, rules: Rules, calls: Calls) -> pa.Table:
    """Table `syncs`: slices with the role sync, and the first call with the same correlation id."""
    selected = is_slice(columns) & has_role(columns, rules, "sync")
    rows = np.flatnonzero(selected).astype(np.int32)
    kind = pc.coalesce(columns.texts("sync_kind", rows), columns.texts("name", rows))
    return pa.table(
        {
            "event_id": bigint_column(rows),
            "kind": kind,
            **selected_columns(columns, rows, _SYNC_COLUMNS),
            "runtime_id": id_column(_first_calls(columns, rows, calls)),
        }
    )


def _first_calls(columns: Columns, rows: Rows, calls: Calls) -> Rows:
    """The row of the first call with each row's correlation id, -1 for none."""
    ids, with_id = pairing_ids(columns, rows), np.flatnonzero(calls.correlation.valid)
    # In reverse order the first call is the last.
    order = with_id[np.argsort(calls.ts_ns[with_id], kind="stable")[::-1]]
    found = np.where(ids.valid, last_of(calls.correlation.values[order], ids.values), -1)
    return np.append(calls.rows[order], np.int32(-1))[found]
