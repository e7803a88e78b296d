"""Every element of the file's event array, with its place in the tree of its thread and its step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.made import numbers, taken

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns

_COLUMNS: Final = (
    "ph", "category", "raw_category", "name", "pid", "tid", "ts_ns", "dur_ns", "ts_text", "dur_text", "step",
    "depth", "parent_id", "pre", "post", "crosses", "correlation", "external_id", "stream", "device", "bytes",
    "sequence_number", "forward_thread", "python_id", "python_parent_id", "module_id", "shapes", "dtypes",
    "flow_id", "end_id", "args", "extra",
)  # fmt: skip
SLAB_ROWS: Final = 122_880


def events(columns: Columns, slab_rows: int = SLAB_ROWS) -> Iterator[pa.Table]:
    """Table `events` in slabs (at least one), in the order of rows.

    Needs the columns that nesting and steps add.
    """
    for low in range(0, max(columns.rows, 1), slab_rows):
        part = slice(low, min(low + slab_rows, columns.rows))
        ids = numbers(np.arange(part.start, part.stop))
        yield pa.table({"event_id": ids, **taken(columns, part, {name: name for name in _COLUMNS})})
