"""Waits of the host or of a stream that the profiler recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.ids import pairs
from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken
from tracewarehouse.ingest.tables.rows import slices

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Calls, Rows

_COLUMNS: Final = ("device", "stream", "ts_ns", "dur_ns", "correlation")
_WAITED_FOR: Final = ("wait_on_stream", "wait_on_event", "wait_on_correlation", "step")


def syncs(columns: Columns, calls: Calls) -> pa.Table:
    """Table `syncs`: slices of the category cuda_sync, and the first call that shares their id."""
    selected = slices(columns) & columns.is_one_of("category", ("cuda_sync",))
    rows = np.flatnonzero(selected).astype(np.int32)
    kind = pc.coalesce(columns.texts("sync_kind", rows), columns.texts("name", rows))
    return pa.table(
        {
            "event_id": numbers(rows),
            "kind": kind,
            **taken(columns, rows, {name: name for name in _COLUMNS}),
            "runtime_id": rows_or_null(_first_calls(columns, rows, calls)),
            **taken(columns, rows, {name: name for name in _WAITED_FOR}),
        }
    )


def _first_calls(columns: Columns, rows: Rows, calls: Calls) -> Rows:
    """The row of the first call with each row's correlation, -1 without one."""
    found = np.full(len(rows), -1, np.int32)
    ids = columns.ints("correlation", rows)
    asked = np.flatnonzero(pairs(ids))
    paired = pairs(calls.correlation)
    if not asked.size or not paired.any():
        return found
    call_ids = calls.correlation.values[paired]
    order = np.lexsort((calls.rows[paired], calls.ts_ns[paired], call_ids))
    call_ids = call_ids[order]
    place = np.minimum(np.searchsorted(call_ids, ids.values[asked]), len(order) - 1)
    there = call_ids[place] == ids.values[asked]
    found[asked[there]] = calls.rows[paired][order[place[there]]]
    return found
