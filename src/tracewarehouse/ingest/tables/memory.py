"""The table `memory_events`: allocations and frees as the profiler marks them, and the operator of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from .asof import last_at_or_before

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ..columns import Columns, Ints
    from .model import Nesting

    Positions = NDArray[np.int64]

MARK: Final = "[memory]"
_ANNOTATION: Final = "user_annotation"
_OPERATOR: Final = "cpu_op"
# Levels that are climbed one by one; deeper trees are climbed in steps that halve.
_CLIMBS: Final = 32
# Column of the table → column of the activities.
_NUMBERS: Final[Mapping[str, str]] = {
    "device_type": "device_type",
    "device": "device",
    "address": "address",
    "bytes": "bytes",
    "total_allocated_bytes": "total_allocated_bytes",
    "total_reserved_bytes": "total_reserved_bytes",
    "event_index": "event_index",
}


def rows_of(columns: Columns) -> Positions:
    """The rows of allocations and frees: instants of the name `[memory]`."""
    return np.flatnonzero(columns.codes("ph").is_one_of(["i", "I"]) & columns.codes("name").is_one_of([MARK]))


def build(columns: Columns, nesting: Nesting, step: Ints) -> pa.Table:
    """Every allocation and free, by time and then in the order of the file; without a time last.

    `op_id` is the innermost operator of its thread that is open at its time: of the slice that started last
    by then, or of those around it, the lowest operator that has not ended. `step` is that of each activity.
    """
    rows = rows_of(columns)
    times = columns.ints("ts_ns")
    rows = rows[np.lexsort((rows, times.values[rows], ~times.valid[rows]))]
    op = _operators(columns, nesting, rows)
    numbers = {name: columns.ints(source, rows) for name, source in _NUMBERS.items()}
    found = {name: pa.array(each.values, mask=~each.valid) for name, each in numbers.items()}
    found |= {
        "event_id": pa.array(rows),
        "ts_ns": pa.array(times.values[rows], mask=~times.valid[rows]),
        "pid": columns.arrow("pid", rows),
        "tid": columns.arrow("tid", rows),
        "op_id": pa.array(op, mask=op < 0),
        "step": pa.array(step.values[rows], mask=~step.valid[rows]),
    }
    order = ("event_id", "ts_ns", "pid", "tid", *_NUMBERS, "op_id", "step")
    return pa.table({name: found[name] for name in order})


def _operators(columns: Columns, nesting: Nesting, rows: Positions) -> Positions:
    """The row of the operator of each allocation; -1 where none is open."""
    pid, tid, times = columns.codes("pid"), columns.codes("tid"), columns.ints("ts_ns")
    asked = np.flatnonzero(times.valid[rows] & (pid.codes[rows] >= 0) & (tid.codes[rows] >= 0))
    found = np.full(len(rows), -1, np.int64)
    if not len(asked):
        return found
    slices = np.flatnonzero(_on_threads(columns, nesting.rows, rows[asked]))
    keys = (pid.codes, tid.codes, times.values)
    place = last_at_or_before(
        [key[nesting.rows[slices]] for key in keys], [key[rows[asked]] for key in keys], 2
    )
    asked, place = asked[place >= 0], slices[place[place >= 0]]
    op = _open_operator(columns, nesting, place, times.values[rows[asked]])
    found[asked] = np.where(op < 0, -1, nesting.rows[op])
    return found


def _on_threads(columns: Columns, slices: NDArray[np.int32], rows: Positions) -> NDArray[np.bool_]:
    """The slices, but for annotations, that are on the threads of these rows."""
    pid, tid = columns.codes("pid"), columns.codes("tid")
    thread = (pid.codes.astype(np.int64) + 1) * (len(tid.words) + 1) + tid.codes + 1
    return np.isin(thread[slices], thread[rows]) & ~columns.codes("category").is_one_of([_ANNOTATION])[slices]


def _open_operator(columns: Columns, nesting: Nesting, place: Positions, ts_ns: Positions) -> Positions:
    """The lowest operator at or around each place of the nesting that ends after the time; -1 without one."""
    is_op = columns.codes("category").is_one_of([_OPERATOR])[nesting.rows]
    above = _nearest_operator(nesting, is_op)
    around = np.append(np.where(nesting.parent < 0, -1, above[nesting.parent]), -1)
    # Position -1 stands for what is around all and never ends.
    ends = np.append(_ends_ns(columns, nesting), np.iinfo(np.int64).max)
    here = above[place].astype(np.int64)
    for _ in range(_CLIMBS):
        ended = np.flatnonzero(ends[here] <= ts_ns)
        if not ended.size:
            return here
        here[ended] = around[here[ended]]
    return _climbed(here, ts_ns, around, ends)


def _ends_ns(columns: Columns, nesting: Nesting) -> Positions:
    return columns.ints("ts_ns").values[nesting.rows] + columns.ints("dur_ns").values[nesting.rows]


def _climbed(
    here: Positions, ts_ns: Positions, around: NDArray[np.integer], ends: Positions
) -> NDArray[np.int64]:
    """The lowest operator at or around `here` that ends after the time, in steps that halve.

    An operator may end after the one around it, so the latest end on each step says whether it may be taken.
    """
    steps: list[tuple[NDArray[np.integer], Positions]] = []
    hop, latest = around, ends
    while True:
        steps.append((hop, latest))
        if (hop[here] < 0).all():
            break
        latest = np.maximum(latest, latest[hop])
        hop = hop[hop]
    for hop, latest in reversed(steps):
        here = np.where(latest[here] <= ts_ns, hop[here], here)
    return here


def _nearest_operator(nesting: Nesting, is_op: NDArray[np.bool_]) -> NDArray[np.int32]:
    """The position of the operator at or around each slice; -1 without one."""
    found = np.where(is_op, np.arange(len(is_op), dtype=np.int32), np.int32(-1))
    above = nesting.parent.copy()
    seeking = np.flatnonzero(~is_op & (above >= 0))
    # What has no operator yet looks where its parent looks, twice as far each time.
    while seeking.size:
        parent = above[seeking]
        found[seeking] = found[parent]
        above[seeking] = above[parent]
        seeking = seeking[(found[seeking] < 0) & (above[seeking] >= 0)]
    return found
