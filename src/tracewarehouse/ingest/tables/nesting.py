"""How the slices of host threads nest.

A slice of a thread stands in the last slice of that thread that started before it (or with it: the longer one
first, of equal ones the earlier in the file) and ends after its start. Annotations nest among themselves.
Rows of GPUs, synchronizations, spans and flows do not nest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracewarehouse.ingest.tables.model import Nesting
from tracewarehouse.ingest.tables.rows import slices, with_role
from tracewarehouse.ingest.tables.search import enclosing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Codes, Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Rows, Times

_NO_HOST_SLICE: Final = (
    "device", "device_annotation", "device_range", "device_event", "sync", "span", "flow",
)  # fmt: skip
# Lanes up to this number are counted in a table, beyond it sorted.
_TABLE: Final = 1 << 20


def nest(columns: Columns, rules: Rules) -> Nesting:
    """The tree of host slices; adds the columns depth, parent_id, pre, post and crosses."""
    rows = np.flatnonzero(slices(columns) & ~with_role(columns, rules, *_NO_HOST_SLICE)).astype(np.int32)
    lane, threads = _lanes(columns, rows)
    rows, ts, end, lanes = _ordered(columns, rows, lane, len(threads))
    del lane
    parent = enclosing(ts, end, lanes)
    crosses = parent >= 0
    crosses &= end > end[parent]
    del ts, end
    post = _last_descendants(parent)
    _put(columns, rows, parent, post, crosses)
    return Nesting(rows, lanes, threads, post + np.int32(1))


def _put(
    columns: Columns, rows: Rows, parent: NDArray[np.int32], last: NDArray[np.int32], crosses: Flags
) -> None:
    """The places in the tree as columns, null for what does not nest."""
    nested = _scattered(columns.rows, rows, np.ones(len(rows), np.bool_))
    columns.put("crosses", _scattered(columns.rows, rows, crosses), nested)
    columns.put("pre", _scattered(columns.rows, rows, np.arange(1, len(rows) + 1, dtype=np.int32)), nested)
    columns.put("post", _scattered(columns.rows, rows, last + np.int32(1)), nested)
    columns.put("depth", _scattered(columns.rows, rows, _depths(last)), nested)
    has_parent = parent >= 0
    inner, outer = rows[has_parent], rows[parent[has_parent]]
    below = _scattered(columns.rows, inner, np.ones(len(inner), np.bool_))
    columns.put("parent_id", _scattered(columns.rows, inner, outer), below)


def _scattered(count: int, rows: Rows, values: NDArray[Any]) -> NDArray[Any]:
    found = np.zeros(count, values.dtype)
    found[rows] = values
    return found


def _lanes(columns: Columns, rows: Rows) -> tuple[NDArray[np.integer[Any]], list[tuple[bool, str, str]]]:
    """The number of each row's lane, by layer (annotations last), process and thread; and all lanes."""
    pid, pids = _texts(columns.codes("pid", rows))
    tid, tids = _texts(columns.codes("tid", rows))
    is_annotation = columns.is_one_of("category", ("user_annotation",), rows)
    key = (is_annotation * np.int64(len(pids)) + pid) * len(tids) + tid
    del pid, tid
    used, number = _distinct(key, 2 * len(pids) * len(tids))
    layer, process, thread = used // len(tids) // len(pids), used // len(tids) % len(pids), used % len(tids)
    names = [
        (a > 0, pids[p], tids[t])
        for a, p, t in zip(layer.tolist(), process.tolist(), thread.tolist(), strict=True)
    ]
    place = np.empty(len(names), np.int32)
    place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return place[number], sorted(names)


def _texts(codes: Codes) -> tuple[NDArray[np.int32], list[str]]:
    """The codes and their words; null is the empty text."""
    words = codes.words.to_pylist()
    empty = words.index("") if "" in words else len(words)
    found = np.where(codes.codes < 0, np.int32(empty), codes.codes)
    return found, words if empty < len(words) else [*words, ""]


def _distinct(keys: NDArray[np.int64], limit: int) -> tuple[NDArray[np.int64], NDArray[np.integer[Any]]]:
    """The distinct keys, rising, and the number of each among them; all are less than `limit`."""
    if limit > _TABLE:
        used, number = np.unique(keys, return_inverse=True)
        return used, number
    seen = np.zeros(limit, np.bool_)
    seen[keys] = True
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - np.int32(1))[keys]


def _ordered(
    columns: Columns, rows: Rows, lane: NDArray[np.integer[Any]], count: int
) -> tuple[Rows, Times, Times, NDArray[np.int64]]:
    """Rows, starts and ends in the order of nesting, and where each lane begins and the last one ends."""
    ts, dur = columns.ints("ts_ns", rows).values, columns.ints("dur_ns", rows).values
    lanes = np.concatenate(([0], np.cumsum(np.bincount(lane, minlength=count))))
    order, ts = _nesting_order(lane, lanes, ts, dur)
    end = dur[order]
    end += ts
    return rows[order], ts, end, lanes


def _nesting_order(
    lane: NDArray[np.integer[Any]], lanes: NDArray[np.int64], ts: Times, dur: Times
) -> tuple[NDArray[np.int64], Times]:
    """The order by lane, start, longest first, then position; and the starts in it. `ts` is used up."""
    if not len(ts):
        return np.empty(0, np.int64), ts
    low, span = int(ts.min()), int(ts.max()) - int(ts.min()) + 1
    if span * len(lanes) >= 2**63:
        order = np.lexsort((-dur, ts, lane))
        return order, ts[order]
    ts -= low
    ts += lane * np.int64(span)
    order = np.argsort(ts, kind="stable")
    ts = ts[order]
    _break_ties(order, ts, dur)
    for number, first in enumerate(lanes[:-1].tolist()):
        ts[first : lanes[number + 1]] += low - number * span
    return order, ts


def _break_ties(order: NDArray[np.int64], key: Times, dur: Times) -> None:
    """Puts the longest first among those of one key."""
    same = np.flatnonzero(key[1:] == key[:-1])
    tied = np.zeros(len(order), np.bool_)
    tied[same] = tied[same + 1] = True
    places = np.flatnonzero(tied)
    order[places] = order[places][np.lexsort((-dur[order[places]], key[places]))]


def _last_descendants(parent: NDArray[np.int32]) -> NDArray[np.int32]:
    """The position of each one's last descendant, its own without one."""
    last = np.arange(len(parent), dtype=np.int32)
    inner = np.flatnonzero(parent >= 0).astype(np.int32)
    last[parent[inner]] = inner  # of several children the last is kept
    has_child = np.zeros(len(parent), np.bool_)
    has_child[parent[inner]] = True
    active = np.flatnonzero(has_child)
    while active.size:
        further = last[last[active]]
        moved = further != last[active]
        active = active[moved]
        last[active] = further[moved]
    return last


def _depths(last: NDArray[np.int32]) -> NDArray[np.int32]:
    """Levels, 1 for a root: of all before and itself those whose last descendant is not before it."""
    ended = np.cumsum(np.bincount(last, minlength=len(last)), dtype=np.int32)
    depth = np.arange(1, len(last) + 1, dtype=np.int32)
    depth[1:] -= ended[:-1]
    return depth


def nested(columns: Columns) -> Flags:
    """Which rows nest; valid once `nest` has run."""
    return columns.valid("pre")
