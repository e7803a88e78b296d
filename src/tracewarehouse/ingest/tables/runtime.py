"""Calls of a GPU runtime, and the GPU rows that they launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.made import numbers, rows_or_null, taken, worded
from tracewarehouse.ingest.tables.model import Via
from tracewarehouse.ingest.tables.rows import local_codes

if TYPE_CHECKING:
    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Flags, Launches, Owners

_VIA: Final = tuple(via.name.lower() for via in Via)


def runtime(columns: Columns, rules: Rules, calls: Calls, launches: Launches, owners: Owners) -> pa.Table:
    """Table `runtime`: each call; whether it launches or waits, by a linked GPU row or by its name."""
    names = columns.arrow("name", calls.rows)
    is_launch, is_sync = _by_name(names, rules)
    is_launch[np.searchsorted(calls.rows, launches.runtime[launches.runtime >= 0])] = True
    return pa.table(
        {
            "event_id": numbers(calls.rows),
            **taken(columns, calls.rows, {"api": "category"}),
            "name": names,
            **taken(columns, calls.rows, {name: name for name in ("correlation", "pid", "tid")}),
            "ts_ns": numbers(calls.ts_ns),
            "dur_ns": numbers(calls.end_ns - calls.ts_ns),
            "is_launch": pa.array(is_launch),
            "is_sync": pa.array(is_sync),
            "op_id": rows_or_null(owners.call_op),
            **taken(columns, calls.rows, {"step": "step"}),
        }
    )


def _by_name(names: pa.Array, rules: Rules) -> tuple[Flags, Flags]:
    """What the name of each call says: it launches, it waits."""
    codes, words = local_codes(names)
    used = np.unique(codes[codes >= 0])
    told = rules.calls(words.take(pa.array(used)).to_pylist()) if used.size else []
    flags = np.zeros((2, len(words) + 1), np.bool_)  # the last stands for no name
    flags[:, used] = np.array(told, np.bool_).reshape(len(used), 2).T
    return flags[0][codes], flags[1][codes]


def correlations(calls: Calls, launches: Launches) -> pa.Table:
    """Table `correlations`: each call and each GPU row that it launched, by call."""
    linked = np.flatnonzero(launches.runtime >= 0)
    linked = linked[np.argsort(launches.runtime[linked], kind="stable")]
    call = np.searchsorted(calls.rows, launches.runtime[linked])
    start = launches.ts_ns[linked]
    return pa.table(
        {
            "runtime_id": numbers(launches.runtime[linked]),
            "kernel_id": numbers(launches.rows[linked]),
            "call_to_start_ns": numbers(start - calls.ts_ns[call]),
            "return_to_start_ns": numbers(start - calls.end_ns[call]),
            "is_graph": pa.array(launches.is_graph[linked]),
            "via": worded(launches.via[linked], _VIA),
        }
    )
