"""Stretches of time that someone named: on a host thread, and the profiler's copies on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.made import numbers, taken
from tracewarehouse.ingest.tables.rows import slices

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns

_COLUMNS: Final = (
    "pid", "tid", "device", "stream", "ts_ns", "dur_ns", "step", "external_id", "shapes", "dtypes",
    "depth", "parent_id", "pre", "post", "crosses",
)  # fmt: skip


def annotation_table(columns: Columns) -> pa.Table:
    """Table `annotations`: slices of the categories user_annotation and gpu_user_annotation."""
    named = columns.is_one_of("category", ("user_annotation", "gpu_user_annotation"))
    rows = np.flatnonzero(slices(columns) & named).astype(np.int32)
    return pa.table(
        {
            "event_id": numbers(rows),
            **taken(columns, rows, {"name": "name"}),
            "on_gpu": pa.array(columns.is_one_of("category", ("gpu_user_annotation",), rows)),
            **taken(columns, rows, {name: name for name in _COLUMNS}),
        }
    )
