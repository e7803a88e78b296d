"""Launches of GPU rows without a correlation id, by the arrows of the trace.

An arrow (category ac2g) that ends at the row's place and start begins on a host thread; of several the one
that begins last, of those the first in the file. The launch is the innermost call there that reaches its
beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracewarehouse.ingest.tables.rows import local_codes
from tracewarehouse.ingest.tables.search import group_numbers, last_before, last_reaching

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Calls, Nesting, Rows, Times


def calls_by_flow(columns: Columns, nesting: Nesting, calls: Calls, lost: Rows, ts: Times) -> Times:
    """The position in `calls` of what launched each of the lost GPU rows, -1 for none."""
    none = np.full(len(lost), -1, np.int64)
    if not len(calls.rows):
        return none
    head, tail = _arrows(columns)
    if not head.size:
        return none
    begin = _begins(columns, lost, ts, head, tail)
    found = begin >= 0
    if found.any():
        none[found] = _calls_at(columns, nesting, calls, begin[found])
    return none


def _arrows(columns: Columns) -> tuple[Rows, Rows]:
    """Rows where an arrow ends at a GPU, and where that arrow begins; arrows of one id begin at one row."""
    phase = columns.codes("ph")
    is_head = phase.is_one_of(("f",)) & columns.codes("category").is_one_of(("ac2g",))
    heads = np.flatnonzero(is_head & columns.ints("ts_ns").valid)
    empty = np.empty(0, np.int32)
    if not heads.size:
        return empty, empty
    tails = np.flatnonzero(phase.is_one_of(("s",)) & columns.ints("ts_ns").valid)
    key = _flow_keys(columns, np.concatenate((heads, tails)))
    head_key, tail_key = key[: len(heads)], key[len(heads) :]
    best = _latest(tail_key, columns.ints("ts_ns", tails).values, int(key.max()) + 1)
    tail = best[head_key]
    there = (tail >= 0) & (head_key > 0)
    return heads[there].astype(np.int32), tails[tail[there]].astype(np.int32)


def _flow_keys(columns: Columns, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number from 1 for each category (as in the file) and id; 0 where one is null."""
    category = columns.codes("raw_category").codes[rows]
    identity, _ = local_codes(columns.texts("flow_id", rows))
    return np.where((category >= 0) & (identity >= 0), group_numbers(category, identity) + 1, 0)


def _latest(keys: NDArray[np.int64], ts: Times, count: int) -> NDArray[np.int64]:
    """Of each key the item with the latest time, of those the first; -1 without one."""
    best = np.full(count, -1, np.int64)
    order = np.lexsort((-np.arange(len(keys)), ts))
    best[keys[order]] = order  # of several the last is kept
    return best


def _begins(columns: Columns, lost: Rows, ts: Times, head: Rows, tail: Rows) -> NDArray[np.int64]:
    """The row where the arrow to each GPU row begins, -1 without one."""
    pid, tid = columns.codes("pid").codes, columns.codes("tid").codes
    rows = np.concatenate((lost, head))
    times = np.concatenate((ts, columns.ints("ts_ns", head).values))
    key = group_numbers(pid[rows], tid[rows], times)
    by_tail = np.argsort(tail, kind="stable")  # of arrows that begin together the first in the file
    best = _latest(key[len(lost) :][by_tail], columns.ints("ts_ns", tail[by_tail]).values, int(key.max()) + 1)
    found = best[key[: len(lost)]]
    known = (found >= 0) & (pid[lost] >= 0) & (tid[lost] >= 0)
    return np.where(known, tail[by_tail][found], -1)


def _calls_at(columns: Columns, nesting: Nesting, calls: Calls, begin: NDArray[np.int64]) -> Times:
    """The innermost call of its thread that reaches the row where an arrow begins, -1 for none."""
    order = np.argsort(calls.pre, kind="stable")
    rows = calls.rows[order]
    pid, tid = columns.codes("pid").codes, columns.codes("tid").codes
    at = columns.ints("ts_ns", begin).values
    place = np.concatenate((rows, begin))
    thread = group_numbers(pid[place], tid[place])
    latest = last_before(thread[: len(rows)], calls.ts_ns[order], thread[len(rows) :], at)
    latest[(pid[begin] < 0) | (tid[begin] < 0)] = -1
    call = last_reaching(calls.end_ns[order], latest + 1, at, inclusive=True)
    lane = np.searchsorted(nesting.lanes, calls.pre[order] - 1, side="right")
    same = (call >= 0) & (latest >= 0)
    same[same] = lane[call[same]] == lane[latest[same]]
    return np.where(same, order[call], -1)
