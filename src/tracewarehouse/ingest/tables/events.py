"""Tables whose rows are activities of one sort: events, annotations, counters and memory_events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.nesting import OPERATOR_CATEGORY, host_lanes, lane_times, on_known_threads
from tracewarehouse.ingest.tables.rows import bigint_column, id_column, is_slice, selected_columns
from tracewarehouse.ingest.tables.search import last_reaching

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Nesting
    from tracewarehouse.ingest.tables.nesting import LaneTimes, NestingInterval

    Positions = NDArray[np.integer[Any]]


_EVENT_COLUMNS: Final = (
    "ph", "category", "raw_category", "name", "pid", "tid", "ts_ns", "dur_ns", "ts_text", "dur_text", "step",
    "depth", "parent_id", "pre", "post", "crosses", "correlation", "external_id", "stream", "device", "bytes",
    "sequence_number", "forward_thread", "python_id", "python_parent_id", "module_id", "shapes", "dtypes",
    "flow_id", "end_id", "args", "extra",
)  # fmt: skip
SLAB_ROWS: Final = 122_880
_ANNOTATION_COLUMNS: Final = (
    "pid", "tid", "device", "stream", "ts_ns", "dur_ns", "step", "external_id", "shapes", "dtypes",
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
COUNTERS_SCHEMA: Final = pa.schema(
    {
        "event_id": pa.int64(),
        "name": pa.string(),
        "series": pa.string(),
        "pid": pa.string(),
        "tid": pa.string(),
        "ts_ns": pa.int64(),
        "value": pa.float64(),
    }
)
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
        yield pa.table(
            {"event_id": ids, **selected_columns(columns, part, {name: name for name in _EVENT_COLUMNS})}
        )


def annotation_table(columns: Columns) -> pa.Table:
    """Table `annotations`: slices of the categories user_annotation and gpu_user_annotation."""
    named = columns.is_one_of("category", ("user_annotation", "gpu_user_annotation"))
    rows = np.flatnonzero(is_slice(columns) & named).astype(np.int32)
    return pa.table(
        {
            "event_id": bigint_column(rows),
            **selected_columns(columns, rows, {"name": "name"}),
            "on_gpu": pa.array(columns.is_one_of("category", ("gpu_user_annotation",), rows)),
            **selected_columns(columns, rows, {name: name for name in _ANNOTATION_COLUMNS}),
        }
    )


def counters(columns: Columns, rules: Rules) -> pa.Table:
    """Table `counters`: a row per argument of every row of phase C, sorted by name, argument and time.

    `value` is null if it is not a number. If an object repeats a key, its first value counts.
    """
    rows = np.flatnonzero(columns.is_one_of("ph", ["C"]))
    if not len(rows):
        return COUNTERS_SCHEMA.empty_table()
    times = columns.ints("ts_ns", rows)
    texts = {name: columns.texts(name, rows) for name in ("name", "pid", "tid", "args")}
    given = pa.table(
        {"event_id": rows, "ts_ns": pa.array(times.values, mask=~times.valid)}
        | {name: array.cast(pa.string()) for name, array in texts.items()}
    )
    return rules.query(_COUNTER_VALUES, given).cast(COUNTERS_SCHEMA)


def samples_gpu(counted: pa.Table, rules: Rules) -> bool:
    """Whether a table of counters has sampled GPU metrics, by their names."""
    names = counted.column("name").unique().to_pylist()
    return any(any(rules.matches(pattern, names)) for pattern in rules.gpu_metric_patterns)


def _memory_rows(columns: Columns) -> Positions:
    """The rows of allocations and frees: instant events with the name `[memory]`."""
    selected = columns.is_one_of("ph", ["i", "I"]) & columns.is_one_of("name", [MEMORY_EVENT_NAME])
    return np.flatnonzero(selected).astype(np.int32)


def memory_events(columns: Columns, nesting: Nesting) -> pa.Table:
    """The whole table `memory_events`; see `find_allocations`."""
    found = find_allocations(columns, nesting)
    return pa.concat_tables(allocation_slabs(columns, *found), promote_options="permissive")


def find_allocations(columns: Columns, nesting: Nesting) -> tuple[Positions, Positions]:
    """The rows of all allocations and frees and of their operators, -1 for none.

    They are sorted by time, then by row; rows without a time come last. The operator is the innermost one
    that is open on the thread at that time: among the slice that started last and its ancestors, the last
    operator that ends later. Needs the column that steps add.
    """
    rows = _memory_rows(columns)
    times = columns.ints("ts_ns", rows)
    rows = rows[np.lexsort((rows, times.values, ~times.valid))]
    return rows, _operators(columns, nesting, rows)


def allocation_slabs(
    columns: Columns, rows: Positions, operators: Positions, slab_rows: int = SLAB_ROWS
) -> Iterator[pa.Table]:
    """Table `memory_events` in slabs, at least one."""
    for low in range(0, max(len(rows), 1), slab_rows):
        part = rows[low : low + slab_rows]
        found = selected_columns(columns, part, {name: name for name in _MEMORY_COLUMNS})
        found |= {"event_id": bigint_column(part), "op_id": id_column(operators[low : low + slab_rows])}
        yield pa.table({name: found[name] for name in ("event_id", *_MEMORY_COLUMNS[:-1], "op_id", "step")})


def _operators(columns: Columns, nesting: Nesting, rows: Positions) -> Positions:
    """The row of each allocation's operator; -1 if none is open."""
    found = np.full(len(rows), -1, np.int32)
    ts_ns = columns.ints("ts_ns", rows)
    wanted = np.flatnonzero(ts_ns.valid)
    allocations = lane_times(host_lanes(columns, nesting, rows[wanted]), ts_ns.values[wanted])
    del ts_ns
    for interval, times in allocations.within(columns, nesting):
        latest = _latest_slices(columns, nesting, interval, times)
        found[wanted[times.number]] = _open_operators(columns, nesting, interval, times, latest)
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


def _open_operators(
    columns: Columns, nesting: Nesting, interval: NestingInterval, times: LaneTimes, latest: Positions
) -> Positions:
    """The row of the last operator up to each position, in its lane, that ends after the time."""
    is_operator = columns.is_one_of("category", [OPERATOR_CATEGORY], nesting.rows[interval.positions])
    positions = interval.positions[is_operator]
    rows = nesting.rows[positions]
    ends = columns.ints("ts_ns", rows).values + columns.ints("dur_ns", rows).values
    found = last_reaching(ends, np.searchsorted(positions, latest, side="right"), times.ts_ns)
    there = (found >= 0) & (latest >= 0)
    there[there] = positions[found[there]] >= nesting.lanes[times.lane[there]]
    return np.where(there, np.append(rows, np.int32(-1))[found], np.int32(-1))
