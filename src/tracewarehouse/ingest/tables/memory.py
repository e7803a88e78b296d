"""The table `memory_events`: allocations and frees as the profiler marks them, and the operator of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.events import SLAB_ROWS
from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken
from tracewarehouse.ingest.tables.rows import threads
from tracewarehouse.ingest.tables.search import last_before, last_reaching

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Nesting

    Positions = NDArray[np.int64]

MARK: Final = "[memory]"
_ANNOTATION: Final = "user_annotation"
_OPERATOR: Final = "cpu_op"
_COLUMNS: Final = (
    "ts_ns", "pid", "tid", "device_type", "device", "address", "bytes", "total_allocated_bytes",
    "total_reserved_bytes", "event_index", "step",
)  # fmt: skip


def rows_of(columns: Columns) -> Positions:
    """The rows of allocations and frees: instants of the name `[memory]`."""
    return np.flatnonzero(columns.codes("ph").is_one_of(["i", "I"]) & columns.codes("name").is_one_of([MARK]))


def memory_events(columns: Columns, nesting: Nesting) -> pa.Table:
    """The table as a whole; see `find_allocations`."""
    found = find_allocations(columns, nesting)
    return pa.concat_tables(allocation_slabs(columns, *found), promote_options="permissive")


def find_allocations(columns: Columns, nesting: Nesting) -> tuple[Positions, Positions]:
    """Every allocation and free with its operator, -1 for none, by time and then in the order of the file.

    Those without a time come last.

    `op_id` is the innermost operator that is open at its time on its thread: of the slice that started last
    by then and the operators around it the last one that ends after it. Needs the column that steps add.
    """
    rows = rows_of(columns)
    times = columns.ints("ts_ns")
    rows = rows[np.lexsort((rows, times.values[rows], ~times.valid[rows]))]
    return rows, _operators(columns, nesting, rows)


def allocation_slabs(
    columns: Columns, rows: Positions, operators: Positions, slab_rows: int = SLAB_ROWS
) -> Iterator[pa.Table]:
    """The table in slabs, at least one."""
    for low in range(0, max(len(rows), 1), slab_rows):
        some = rows[low : low + slab_rows]
        found = taken(columns, some, {name: name for name in _COLUMNS})
        found |= {"event_id": numbers(some), "op_id": rows_or_null(operators[low : low + slab_rows])}
        yield pa.table({name: found[name] for name in ("event_id", *_COLUMNS[:-1], "op_id", "step")})


def _operators(columns: Columns, nesting: Nesting, rows: Positions) -> Positions:
    """The row of the operator of each allocation; -1 where none is open."""
    times = columns.ints("ts_ns")
    found = np.full(len(rows), -1, np.int64)
    asked = np.flatnonzero(times.valid[rows] & (threads(columns, rows) >= 0))
    if not len(asked):
        return found
    latest = _latest_slices(columns, nesting, rows[asked])
    asked, latest = asked[latest >= 0], latest[latest >= 0]
    found[asked] = _open_operators(columns, nesting, latest, times.values[rows[asked]])
    return found


def _latest_slices(columns: Columns, nesting: Nesting, rows: Positions) -> Positions:
    """The place in the nesting of the slice, no annotation, that started last by the time of each row."""
    times, thread = columns.ints("ts_ns").values, threads(columns, rows)
    annotated = columns.codes("category").is_one_of([_ANNOTATION])[nesting.rows]
    places = np.flatnonzero(np.isin(threads(columns, nesting.rows), thread) & ~annotated)
    slices = nesting.rows[places]
    # In the order of nesting the innermost of slices that start together comes last.
    found = last_before(threads(columns, slices), times[slices], thread, times[rows])
    return np.append(places, -1)[found]


def _open_operators(columns: Columns, nesting: Nesting, latest: Positions, ts_ns: Positions) -> Positions:
    """The row of the last operator up to each place of the nesting, in its lane, that ends after the time."""
    lane = np.searchsorted(nesting.lanes, latest, side="right")
    lanes, last = np.unique(lane), nesting.lanes
    places = np.concatenate([np.arange(last[one - 1], last[one]) for one in lanes.tolist()] or [latest])
    places = places[columns.codes("category").is_one_of([_OPERATOR])[nesting.rows[places]]]
    rows = nesting.rows[places]
    ends = columns.ints("ts_ns").values[rows] + columns.ints("dur_ns").values[rows]
    found = last_reaching(ends, np.searchsorted(places, latest, side="right"), ts_ns)
    there = found >= 0
    there[there] = np.searchsorted(nesting.lanes, places[found[there]], side="right") == lane[there]
    return np.where(there, np.append(rows, -1)[found], -1)
