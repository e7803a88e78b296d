"""The table `memory_events`: allocations and frees as the profiler marks them, and the operator of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.events import SLAB_ROWS
from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken
from tracewarehouse.ingest.tables.search import last_reaching
from tracewarehouse.ingest.tables.stretches import OPERATOR_CATEGORY, host_lanes, moments, told_apart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Nesting
    from tracewarehouse.ingest.tables.stretches import Moments, Stretch

    Positions = NDArray[np.integer[Any]]

MARK: Final = "[memory]"
_COLUMNS: Final = (
    "ts_ns", "pid", "tid", "device_type", "device", "address", "bytes", "total_allocated_bytes",
    "total_reserved_bytes", "event_index", "step",
)  # fmt: skip


def rows_of(columns: Columns) -> Positions:
    """The rows of allocations and frees: instants of the name `[memory]`."""
    selected = columns.is_one_of("ph", ["i", "I"]) & columns.is_one_of("name", [MARK])
    return np.flatnonzero(selected).astype(np.int32)


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
    times = columns.ints("ts_ns", rows)
    rows = rows[np.lexsort((rows, times.values, ~times.valid))]
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
    found = np.full(len(rows), -1, np.int32)
    times = columns.ints("ts_ns", rows)
    asked = np.flatnonzero(times.valid)
    allocations = moments(host_lanes(columns, nesting, rows[asked]), times.values[asked])
    del times
    for stretch, some in allocations.within(columns, nesting):
        latest = _latest_slices(columns, nesting, stretch, some)
        found[asked[some.number]] = _open_operators(columns, nesting, stretch, some, latest)
    return found


def _latest_slices(columns: Columns, nesting: Nesting, stretch: Stretch, some: Moments) -> Positions:
    """The place of the slice that started last by each moment, -1 for none."""
    places = told_apart(columns, nesting, stretch.places)
    at = some.latest(nesting, places, columns.ints("ts_ns", nesting.rows[places]).values)
    latest = np.append(places, -1)[at]
    lane = int(np.searchsorted(nesting.lanes, stretch.low, side="right")) - 1
    lost = (latest < 0) & (some.lane == lane)
    if lost.any():
        # The first slices of the stretch lack a process or thread: an earlier one counts.
        before = told_apart(columns, nesting, np.arange(nesting.lanes[lane], stretch.low))
        latest[lost] = before[-1] if before.size else -1
    return latest


def _open_operators(
    columns: Columns, nesting: Nesting, stretch: Stretch, some: Moments, latest: Positions
) -> Positions:
    """The row of the last operator up to each place of the nesting, in its lane, that ends after the time."""
    is_operator = columns.is_one_of("category", [OPERATOR_CATEGORY], nesting.rows[stretch.places])
    places = stretch.places[is_operator]
    rows = nesting.rows[places]
    ends = columns.ints("ts_ns", rows).values + columns.ints("dur_ns", rows).values
    found = last_reaching(ends, np.searchsorted(places, latest, side="right"), some.ts_ns)
    there = (found >= 0) & (latest >= 0)
    there[there] = places[found[there]] >= nesting.lanes[some.lane[there]]
    return np.where(there, np.append(rows, np.int32(-1))[found], np.int32(-1))
