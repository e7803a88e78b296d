"""Tables of events: `events`, `annotations`, `counters`, `memory_events` and `flows`.

A flow links a start to one or more steps or ends; they share id and category. A GPU activity without a
correlation id is linked by a flow of category ac2g that ends at its device, stream and start: of several the
one that begins last, of those the first in the file. Its launch is the innermost call on the thread of the
flow's start that contains the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.model import (
    bigint_column,
    flags,
    group_numbers,
    id_column,
    indexed_texts,
    is_known,
    is_slice,
    last_before,
    last_of,
    last_reaching,
    latest_on_thread,
    schemas,
    selected_columns,
    slabs,
    start_and_end,
    text_codes,
    thread_numbers,
)
from tracewarehouse.ingest.tables.nesting import OPERATOR_CATEGORY, host_lanes, lane_times, on_known_threads

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Flags, Nesting, Numbers, Positions, Rows, Times
    from tracewarehouse.ingest.tables.nesting import LaneTimes, NestingInterval

    _FindOperators = Callable[[Columns, Nesting, NestingInterval, LaneTimes], Rows]


_EVENT_COLUMNS: Final = (
    "ph", "category", "raw_category", "name", "pid", "tid", "ts_ns", "dur_ns", "ts_text", "dur_text", "step",
    "depth", "parent_id", "pre", "post", "crosses", "correlation", "external_id", "stream", "device", "bytes",
    "sequence_number", "forward_thread", "python_id", "python_parent_id", "module_id", "shapes", "dtypes",
    "flow_id", "end_id", "args", "extra",
)  # fmt: skip
SLAB_ROWS: Final = 122_880
# The category of annotations of a process that belongs to no rank.
OF_PROCESS: Final = "process_annotation"
_ANNOTATION_COLUMNS: Final = (
    "name", "pid", "tid", "device", "stream", "ts_ns", "dur_ns", "step", "external_id", "shapes", "dtypes",
    "depth", "parent_id", "pre", "post", "crosses",
)  # fmt: skip
# DuckDB reads the JSON, so that a number means the same here as in a query over `events`.
_COUNTER_VALUES: Final = """
SELECT DISTINCT
  event_id,
  name,
  series,
  pid,
  tid,
  ts_ns,
  TRY_CAST(json_extract_string(args, pointer) AS DOUBLE) AS value
FROM (
  SELECT
    *,
    unnest(json_keys(args)) AS series,
    '/' || replace(replace(series, '~', '~0'), '/', '~1') AS pointer
  FROM given
  WHERE json_type(args) = 'OBJECT'
)
ORDER BY name NULLS LAST, series, ts_ns NULLS LAST, event_id
"""
MEMORY_EVENT_NAME: Final = "[memory]"
_MEMORY_COLUMNS: Final = (
    "ts_ns", "pid", "tid", "device_type", "device", "address", "bytes", "total_allocated_bytes",
    "total_reserved_bytes", "event_index", "step",
)  # fmt: skip


def events(columns: Columns, slab_rows: int = SLAB_ROWS) -> Iterator[pa.Table]:
    """Table `events` in slabs (at least one), in row order: every activity with its nesting and step.

    Needs the columns that nesting and steps add.
    """
    for low in range(0, max(columns.rows, 1), slab_rows):
        part = slice(low, min(low + slab_rows, columns.rows))
        ids = bigint_column(np.arange(part.start, part.stop))
        yield pa.table({"event_id": ids, **selected_columns(columns, part, _EVENT_COLUMNS)})


def annotation_table(columns: Columns) -> pa.Table:
    """Table `annotations`: annotations on the host, on the GPU and of other processes."""
    named = columns.is_one_of("category", ("user_annotation", "gpu_user_annotation", OF_PROCESS))
    rows = np.flatnonzero(is_slice(columns) & named).astype(np.int32)
    return pa.table(
        {
            "event_id": bigint_column(rows),
            "on_gpu": pa.array(columns.is_one_of("category", ("gpu_user_annotation",), rows)),
            **selected_columns(columns, rows, _ANNOTATION_COLUMNS),
            "process": pc.if_else(
                pa.array(columns.is_one_of("category", (OF_PROCESS,), rows)), columns.texts("pid", rows), None
            ),
        }
    )


def counters(columns: Columns, rules: Rules) -> pa.Table:
    """Table `counters`: a row per argument of every row of phase C, sorted by name, argument and time.

    `value` is null if it is not a number. If an object repeats a key, its first value counts.
    """
    rows, schema = np.flatnonzero(columns.is_one_of("ph", ["C"])), schemas(rules)["counters"]
    if not len(rows):
        return schema.empty_table()
    times = columns.ints("ts_ns", rows)
    texts = {name: columns.texts(name, rows) for name in ("name", "pid", "tid", "args")}
    given = pa.table(
        {"event_id": rows, "ts_ns": pa.array(times.values, mask=~times.valid)}
        | {name: array.cast(pa.string()) for name, array in texts.items()}
    )
    return rules.query(_COUNTER_VALUES, given).cast(schema)


def samples_gpu(counted: pa.Table, rules: Rules) -> bool:
    """Whether a table of counters has sampled GPU metrics, by their names."""
    names = counted.column("name").unique().to_pylist()
    return any(any(rules.matches(row["pattern"], names)) for row in rules.rows("gpu_metric_rules"))


def find_allocations(columns: Columns, nesting: Nesting) -> tuple[Positions, Positions]:
    """The rows of all allocations and frees and of their operators, -1 for none.

    They are sorted by time, then by row; rows without a time come last. The operator is the innermost one
    that is open on the thread at that time: among the slice that started last and its ancestors, the last
    operator that ends later. Needs the column that steps add.
    """
    selected = columns.is_one_of("ph", ["i", "I"]) & columns.is_one_of("name", [MEMORY_EVENT_NAME])
    rows = np.flatnonzero(selected).astype(np.int32)
    times = columns.ints("ts_ns", rows)
    rows = rows[np.lexsort((rows, times.values, ~times.valid, columns.rank_index(rows)))]
    ts_ns = columns.ints("ts_ns", rows)
    return rows, _operators(columns, nesting, rows, ts_ns, np.flatnonzero(ts_ns.valid), _open_operators)


def allocation_slabs(columns: Columns, rows: Positions, operators: Positions) -> Iterator[pa.Table]:
    """Table `memory_events` in slabs, at least one."""
    for slab in slabs(max(len(rows), 1), SLAB_ROWS):
        part = rows[slab]
        found = selected_columns(columns, part, _MEMORY_COLUMNS)
        found |= {"event_id": bigint_column(part), "op_id": id_column(operators[slab])}
        yield pa.table(found)


def _operators(
    columns: Columns, nesting: Nesting, rows: Positions, ts_ns: Ints, wanted: Numbers, find: _FindOperators
) -> Rows:
    """The row of the operator that `find` returns for each of the wanted positions in `rows`; else -1."""
    found = np.full(len(rows), -1, np.int32)
    if len(wanted):
        on_lanes = lane_times(host_lanes(columns, nesting, rows[wanted]), ts_ns.values[wanted])
        for interval, times in on_lanes.within(columns, nesting):
            found[wanted[times.number]] = find(columns, nesting, interval, times)
    return found


def _latest_slices(
    columns: Columns, nesting: Nesting, interval: NestingInterval, times: LaneTimes
) -> Positions:
    """The position of the slice that started last by each time, -1 for none."""
    positions = on_known_threads(columns, nesting, interval.positions)
    at = times.latest(nesting, positions, columns.ints("ts_ns", nesting.rows[positions]).values)
    latest = np.append(positions, -1)[at]
    lane = int(np.searchsorted(nesting.lanes, interval.low, side="right")) - 1
    unknown = (latest < 0) & (times.lane == lane)
    if unknown.any():
        # The first slices of the interval lack a process or thread: an earlier one counts.
        before = on_known_threads(columns, nesting, np.arange(nesting.lanes[lane], interval.low))
        latest[unknown] = before[-1] if before.size else -1
    return latest


def _open_operators(columns: Columns, nesting: Nesting, interval: NestingInterval, times: LaneTimes) -> Rows:
    """The row of the last operator up to the latest slice, in its lane, that ends after each time."""
    latest = _latest_slices(columns, nesting, interval, times)
    is_operator = columns.is_one_of("category", [OPERATOR_CATEGORY], nesting.rows[interval.positions])
    positions = interval.positions[is_operator]
    rows = nesting.rows[positions]
    _, ends = start_and_end(columns, rows)
    found = last_reaching(ends, np.searchsorted(positions, latest, side="right"), times.ts_ns)
    there = (found >= 0) & (latest >= 0)
    there[there] = positions[found[there]] >= nesting.lanes[times.lane[there]]
    return np.where(there, np.append(rows, np.int32(-1))[found], np.int32(-1))


def _starting_operators(
    columns: Columns, nesting: Nesting, interval: NestingInterval, times: LaneTimes
) -> Rows:
    """The row of the innermost operator that starts at each time; -1 for none."""
    is_operator = columns.is_one_of("category", [OPERATOR_CATEGORY], nesting.rows[interval.positions])
    positions = on_known_threads(columns, nesting, interval.positions[is_operator])
    starts = columns.ints("ts_ns", nesting.rows[positions]).values
    # In nesting order the innermost of operators with equal starts comes last.
    latest = times.latest(nesting, positions, starts)
    latest[np.append(starts, 0)[latest] != times.ts_ns] = -1
    return np.append(nesting.rows[positions], np.int32(-1))[latest]


# Ids below this are numbers as written; any other text gets a number from here on.
_OTHER: Final = 1 << 38
_PLAIN: Final = "^[0-9]{1,12}$"
_ID_SLAB_ROWS: Final = 1 << 18
ROLES = {"s": "start", "t": "step", "f": "end"}
# Flows from a launch to a GPU activity; `correlations` has these pairs.
LAUNCH_CATEGORY = "ac2g"
# Beyond this number of rows, ids are processed in parts.
_PART_ENDS: Final = 1 << 19
_MAX_PARTS: Final = 127
# Spreads ids over parts.
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def flow_numbers(columns: Columns, rows: Positions) -> Numbers:
    """A number from 0 for each id and category (as in the file), -1 without an id.

    Most ids are digits, so the texts of millions of rows need not be in memory together. Rows without a
    category share a number.
    """
    found = np.empty(len(rows), np.int64)
    other_texts: list[tuple[Numbers, pa.Array]] = []
    for part in slabs(len(rows), _ID_SLAB_ROWS):
        texts = columns.texts("flow_id", rows[part])
        found[part] = _plain(texts)
        other = np.flatnonzero(found[part] == _OTHER)
        if other.size:
            other_texts.append((other + part.start, texts.take(pa.array(other))))
    if other_texts:
        codes, _ = text_codes(pa.concat_arrays([texts for _, texts in other_texts]))
        found[np.concatenate([positions for positions, _ in other_texts])] = codes.astype(np.int64) + _OTHER
    category = columns.codes("raw_category", rows)
    count = len(category.words) + 1
    there = found >= 0
    found *= count
    found += category.codes
    found += 1
    found[~there] = -1
    return columns.apart(found, rows)


def _plain(texts: pa.Array) -> Numbers:
    """The number that each text spells, -1 for null, `_OTHER` for any other text."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        selected = pc.match_substring_regex(texts, _PLAIN)
        numbers = pc.if_else(selected, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    values = pc.fill_null(numbers, _OTHER).to_numpy(zero_copy_only=False).copy()
    # A text such as 007 is not the number 7.
    same = pc.fill_null(pc.equal(numbers.cast(pa.string()), texts), False)
    values[~flags(same)] = _OTHER
    values[(values < 0) | (values > _OTHER)] = _OTHER
    values[np.asarray(texts.is_null())] = -1
    return values  # type: ignore[no-any-return]


class FlowEnds(NamedTuple):
    """Rows that belong to flows. `group` numbers id and category as in the file, -1 without an id."""

    rows: Positions
    is_start: Flags
    group: Numbers
    ts_ns: Ints

    def only(self, some: Positions) -> FlowEnds:
        """The rows at these positions."""
        times = type(self.ts_ns)(self.ts_ns.values[some], self.ts_ns.valid[some])
        return FlowEnds(self.rows[some], self.is_start[some], self.group[some], times)


class FlowRows(NamedTuple):
    """The rows of `flows`, the start of each flow and the slice that each row is bound to; -1 for none."""

    rows: Positions
    start: Positions
    bound: Positions

    @property
    def without_start(self) -> Positions:
        """The rows whose flow has no start in the file."""
        return self.rows[self.start < 0]


def find_flows(columns: Columns, nesting: Nesting) -> FlowRows:
    """Every row of phase s, t or f, in row order.

    `start_id` of a step or end is the last start with its id and category (as in the file) at or before its
    time, else the first after it; of simultaneous starts the first in the file. If no start has a time, or
    the row itself has none, it is the first start in the file. A start is its own start. `slice_id` is the
    innermost operator on the same thread that starts at the same time; null for flows from launches to GPU
    activities.
    """
    rows = np.flatnonzero(columns.is_one_of("ph", ROLES)).astype(np.int32)
    group, ts_ns = flow_numbers(columns, rows), columns.ints("ts_ns", rows)
    start = _all_starts(FlowEnds(rows, columns.is_one_of("ph", ["s"], rows), group, ts_ns))
    del group
    category = columns.codes("category", rows)
    is_bound = (category.codes >= 0) & ~category.is_one_of([LAUNCH_CATEGORY]) & ts_ns.valid
    del category
    bound = _operators(columns, nesting, rows, ts_ns, np.flatnonzero(is_bound), _starting_operators)
    return FlowRows(rows, start, bound)


def flow_slabs(columns: Columns, flow_rows: FlowRows) -> Iterator[pa.Table]:
    """Table `flows` in slabs, at least one."""
    roles = [ROLES.get(word) for word in columns.words("ph").to_pylist()]
    for slab in slabs(max(len(flow_rows.rows), 1), SLAB_ROWS):
        rows, start, bound = (each[slab] for each in flow_rows)
        found = selected_columns(columns, rows, ("category", "flow_id", "name", "pid", "tid"))
        times = columns.ints("ts_ns", rows)
        found |= {
            "event_id": bigint_column(rows),
            "role": indexed_texts(roles, columns.codes("ph", rows).codes),
            "ts_ns": bigint_column(times.values, times.valid),
            "start_id": id_column(start),
            "slice_id": id_column(bound),
        }
        yield pa.table(found)


def _all_starts(ends: FlowEnds) -> Positions:
    """The row of each flow's start, -1 for none; many rows are processed in parts by id."""
    parts = min(len(ends.rows) // _PART_ENDS + 1, _MAX_PARTS)
    if parts == 1:
        return _starts(ends)
    part_of = np.empty(len(ends.rows), np.int8)
    for slab in slabs(len(part_of)):
        part_of[slab] = ((ends.group[slab].view(np.uint64) * _MIX) >> np.uint64(32)) % np.uint64(parts)
    found = np.empty(len(ends.rows), np.int32)
    for part in range(parts):
        for some in _divided(ends.group, np.flatnonzero(part_of == part)):
            if len(some) > _PART_ENDS and (ends.group[some] == ends.group[some[0]]).all():
                found[some] = _starts_of_one(ends, some)
            else:
                found[some] = _starts(ends.only(some))
    return found


def _divided(group: Numbers, some: Positions) -> Iterator[Positions]:
    """The positions of each id of very many rows, and of all others."""
    if len(some) <= 2 * _PART_ENDS:
        yield some
        return
    numbers, counts = np.unique(group[some], return_counts=True)
    frequent = numbers[counts > _PART_ENDS]
    for number in frequent.tolist():
        yield some[group[some] == number]
    yield some[~np.isin(group[some], frequent)]


def _starts_of_one(ends: FlowEnds, some: Positions) -> Positions:
    """Like `_starts`, of rows with one id: little more than the times of its starts is in memory."""
    starts = some[ends.is_start[some]]
    found = np.full(len(some), -1, np.int32)
    if ends.group[some[0]] >= 0 and len(starts):
        found[:] = ends.rows[starts[0]]
        timed = starts[ends.ts_ns.valid[starts]]
        if len(timed):
            _put_nearest(ends, some, timed, found)
    is_start = ends.is_start[some]
    found[is_start] = ends.rows[some[is_start]]
    return found


def _put_nearest(ends: FlowEnds, some: Positions, timed: Positions, found: Positions) -> None:
    """Puts the nearest of the starts with a time for each row with a time."""
    timed = timed[np.argsort(ends.ts_ns.values[timed], kind="stable")]
    times = ends.ts_ns.values[timed]
    for part in slabs(len(some)):
        with_time = np.flatnonzero(ends.ts_ns.valid[some[part]])
        wanted = ends.ts_ns.values[some[part][with_time]]
        before = np.maximum(np.searchsorted(times, wanted, side="right") - 1, 0)
        # Of simultaneous starts the first in the file.
        nearest = timed[np.searchsorted(times, times[before])]
        found[part.start + with_time] = ends.rows[nearest]


def _starts(ends: FlowEnds) -> Positions:
    """The row of each flow's start; -1 for none."""
    found = np.full(len(ends.rows), -1, np.int64)
    wanted = np.flatnonzero(~ends.is_start & (ends.group >= 0))
    starts = np.flatnonzero(ends.is_start & (ends.group >= 0))
    timed, untimed = starts[ends.ts_ns.valid[starts]], starts[~ends.ts_ns.valid[starts]]
    with_time = wanted[ends.ts_ns.valid[wanted]]
    found[with_time] = _nearest(ends, timed, with_time)
    without = with_time[found[with_time] < 0]
    found[without] = _first(ends, untimed, without)
    no_time = wanted[~ends.ts_ns.valid[wanted]]
    found[no_time] = _first(ends, starts, no_time)
    found[ends.is_start] = np.flatnonzero(ends.is_start)
    return np.where(found < 0, np.int32(-1), ends.rows[found])


def _nearest(ends: FlowEnds, starts: Positions, wanted: Positions) -> Positions:
    """The last start at or before each end, else the first after it."""
    group, times = ends.group, ends.ts_ns.values
    # Of simultaneous starts the first in the file: in reverse order it is the last.
    starts = starts[::-1]
    before = last_before(group[starts], times[starts], group[wanted], times[wanted])
    after = last_before(group[starts], ~times[starts], group[wanted], ~times[wanted])
    return np.append(starts, -1)[np.where(before < 0, after, before)]


def _first(ends: FlowEnds, starts: Positions, wanted: Positions) -> Positions:
    """The first start in the file with each end's id."""
    starts = starts[::-1]
    return np.append(starts, -1)[last_of(ends.group[starts], ends.group[wanted])]


def calls_by_flow(columns: Columns, nesting: Nesting, calls: Calls, unlinked: Rows, ts: Times) -> Times:
    """The index in `calls` of the launch of each of these GPU activities without an id, -1 for none."""
    call = np.full(len(unlinked), -1, np.int64)
    if not len(calls.rows):
        return call
    head, tail = _gpu_flows(columns, ts)
    if not head.size:
        return call
    begin = _begins(columns, unlinked, ts, head, tail)
    begins = begin >= 0
    if begins.any():
        call[begins] = _calls_at(columns, nesting, calls, begin[begins])
    return call


def _gpu_flows(columns: Columns, times: Times) -> tuple[Rows, Rows]:
    """The rows of flow ends on a GPU at one of these times, and the row where each of these flows starts.

    All flows of one id start at one row.
    """
    is_head = columns.is_one_of("ph", ("f",)) & columns.is_one_of("category", ("ac2g",))
    heads = np.flatnonzero(is_head & columns.valid("ts_ns")).astype(np.int32)
    heads = heads[np.isin(columns.ints("ts_ns", heads).values, times)]
    empty = np.empty(0, np.int32)
    if not heads.size:
        return empty, empty
    tails = np.flatnonzero(columns.is_one_of("ph", ("s",)) & columns.valid("ts_ns")).astype(np.int32)
    head_key, tail_key = _flow_keys(columns, heads), _flow_keys(columns, tails)
    wanted = np.isin(tail_key, head_key[head_key >= 0])
    tails, tail_key = tails[wanted], tail_key[wanted]
    # The latest of each key (the first of equal times) comes last.
    order = np.lexsort((-np.arange(len(tails)), columns.ints("ts_ns", tails).values))
    found = last_of(tail_key[order], head_key)
    there = found >= 0
    return heads[there], tails[order[found[there]]]


def _flow_keys(columns: Columns, rows: Rows) -> Numbers:
    """A number for each category (as in the file) and id; -1 if either is null."""
    keys = flow_numbers(columns, rows)
    keys[columns.codes("raw_category", rows).codes < 0] = -1
    return keys


def _begins(columns: Columns, unlinked: Rows, ts: Times, head: Rows, tail: Rows) -> Numbers:
    """The row where the flow to each GPU activity starts, -1 for none."""
    threads = thread_numbers(columns, np.concatenate((unlinked, head)))
    times = np.concatenate((ts, columns.ints("ts_ns", head).values))
    key = group_numbers(threads, times)
    by_tail = np.argsort(tail, kind="stable")  # of flows that start together the first in the file
    order = np.lexsort((-np.arange(len(tail)), columns.ints("ts_ns", tail[by_tail]).values))
    best = np.full(int(key.max()) + 1, -1, np.int64)
    best[key[len(unlinked) :][by_tail][order]] = order  # the latest of several wins
    found = best[key[: len(unlinked)]]
    known = (found >= 0) & is_known(threads[: len(unlinked)])
    return np.where(known, tail[by_tail][found], -1)


def _calls_at(columns: Columns, nesting: Nesting, calls: Calls, begin: Numbers) -> Times:
    """The innermost call on the thread of each flow start that contains it, -1 for none."""
    order = np.argsort(calls.pre, kind="stable")
    rows = calls.rows[order]
    times = columns.ints("ts_ns", begin).values
    latest = latest_on_thread(columns, rows, calls.ts_ns[order], begin.astype(np.int32), times)
    call = last_reaching(calls.end_ns[order], latest + 1, times, inclusive=True)
    lane = np.searchsorted(nesting.lanes, calls.pre[order] - 1, side="right")
    same = (call >= 0) & (latest >= 0)
    same[same] = lane[call[same]] == lane[latest[same]]
    return np.where(same, order[call], -1)
