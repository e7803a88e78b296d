"""The annotations around calls: those of the call's process and thread that are open when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.model import PASSES
from tracewarehouse.ingest.tables.search import last_before, last_reaching

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Nesting, Rows, Times

_PREFIXES: Final = (("Optimizer.", "optimizer"), ("enumerate(DataLoader)#", "data"))


def annotated(
    columns: Columns, nesting: Nesting, calls: Rows, ts: Times
) -> tuple[Rows, NDArray[np.int8], Times]:
    """Of each call the innermost annotation, and the innermost one that tells a pass: which, and its start.

    -1 where there is none.
    """
    none = np.full(len(calls), -1, np.int32)
    places = np.flatnonzero(columns.codes("category").is_one_of(("user_annotation",))[nesting.rows])
    if not places.size or not len(calls):
        return none, none.astype(np.int8), none.astype(np.int64)
    rows = nesting.rows[places]
    lane = np.searchsorted(nesting.lanes, places, side="right")
    start = columns.ints("ts_ns", rows).values
    end = start + columns.ints("dur_ns", rows).values
    latest = _latest(columns, rows, start, calls, ts)
    inner = _open(end, lane, np.arange(len(rows)), latest, ts)
    names = columns.codes("name")
    passes = _passes(names.words)[names.codes[rows]]
    telling = np.flatnonzero(passes >= 0)
    pass_ = np.append(telling, -1)[_open(end, lane, telling, latest, ts)]
    told = pass_ >= 0
    return (
        np.where(inner >= 0, rows[inner], none),
        np.where(told, passes[pass_], -1).astype(np.int8),
        np.where(told, start[pass_], -1),
    )


def _latest(columns: Columns, rows: Rows, start: Times, calls: Rows, ts: Times) -> NDArray[np.int64]:
    """The last annotation of each call's process and thread that started by its start, -1 for none."""
    pid, tid = columns.codes("pid"), columns.codes("tid")
    threads = len(tid.words) + 1
    thread = pid.codes[rows].astype(np.int64) * threads + tid.codes[rows]
    asked = pid.codes[calls].astype(np.int64) * threads + tid.codes[calls]
    found = last_before(thread, start, asked, ts)
    found[(pid.codes[calls] < 0) | (tid.codes[calls] < 0)] = -1
    return found


def _open(
    end: Times, lane: NDArray[np.int64], some: NDArray[np.int64], latest: NDArray[np.int64], ts: Times
) -> NDArray[np.int64]:
    """The position in `some` of the last one up to the latest that ends after the time; -1 for none."""
    found = last_reaching(end[some], np.searchsorted(some, latest, side="right"), ts)
    same = (found >= 0) & (latest >= 0)
    same[same] = lane[some[found[same]]] == lane[latest[same]]
    return np.where(same, found, -1)


def _passes(words: pa.Array) -> NDArray[np.int8]:
    """The pass that each name of an annotation tells, -1 for none."""
    found = np.full(len(words) + 1, -1, np.int8)
    for prefix, name in _PREFIXES:
        selected = pc.starts_with(words, prefix).to_numpy(zero_copy_only=False).astype(np.bool_)
        found[:-1][selected] = PASSES.index(name)
    return found
