"""Launches of GPU rows without a correlation id, by the arrows of the trace.

An arrow (category ac2g) that ends at the row's place and start begins on a host thread; of several the one
that begins last, of those the first in the file. The launch is the innermost call there that reaches its
beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracewarehouse.ingest.tables.flow_ids import flow_numbers
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
    head, tail = _arrows(columns, ts)
    if not head.size:
        return none
    begin = _begins(columns, lost, ts, head, tail)
    found = begin >= 0
    if found.any():
        none[found] = _calls_at(columns, nesting, calls, begin[found])
    return none


def _arrows(columns: Columns, times: Times) -> tuple[Rows, Rows]:
    """Rows where an arrow ends at a GPU at one of these times, and where that arrow begins.

    Arrows of one id begin at one row.
    """
    is_head = columns.is_one_of("ph", ("f",)) & columns.is_one_of("category", ("ac2g",))
    heads = np.flatnonzero(is_head & columns.valid("ts_ns")).astype(np.int32)
    heads = heads[np.isin(columns.ints("ts_ns", heads).values, times)]
    empty = np.empty(0, np.int32)
    if not heads.size:
        return empty, empty
    tails = np.flatnonzero(columns.is_one_of("ph", ("s",)) & columns.valid("ts_ns")).astype(np.int32)
    head_key, tail_key = _flow_keys(columns, heads), _flow_keys(columns, tails)
    wanted = np.isin(tail_key, head_key[head_key >= 0])
    tails, tail_key = tails[wanted], tail_key[wanted]
    # The latest of each key, of those the first, comes last.
    order = np.lexsort((-np.arange(len(tails)), columns.ints("ts_ns", tails).values, tail_key))
    place = np.searchsorted(tail_key[order], head_key, side="right") - 1
    there = (head_key >= 0) & (place >= 0)
    there[there] = tail_key[order[place[there]]] == head_key[there]
    return heads[there], tails[order[place[there]]]


def _flow_keys(columns: Columns, rows: Rows) -> NDArray[np.int64]:
    """A number for each category (as in the file) and id; -1 where one is null."""
    keys = flow_numbers(columns, rows)
    keys[columns.codes("raw_category", rows).codes < 0] = -1
    return keys


def _latest(keys: NDArray[np.int64], ts: Times, count: int) -> NDArray[np.int64]:
    """Of each key the item with the latest time, of those the first; -1 without one."""
    best = np.full(count, -1, np.int64)
    order = np.lexsort((-np.arange(len(keys)), ts))
    best[keys[order]] = order  # of several the last is kept
    return best


def _begins(columns: Columns, lost: Rows, ts: Times, head: Rows, tail: Rows) -> NDArray[np.int64]:
    """The row where the arrow to each GPU row begins, -1 without one."""
    rows = np.concatenate((lost, head))
    pid, tid = columns.codes("pid", rows).codes, columns.codes("tid", rows).codes
    times = np.concatenate((ts, columns.ints("ts_ns", head).values))
    key = group_numbers(pid, tid, times)
    by_tail = np.argsort(tail, kind="stable")  # of arrows that begin together the first in the file
    best = _latest(key[len(lost) :][by_tail], columns.ints("ts_ns", tail[by_tail]).values, int(key.max()) + 1)
    found = best[key[: len(lost)]]
    known = (found >= 0) & (pid[: len(lost)] >= 0) & (tid[: len(lost)] >= 0)
    return np.where(known, tail[by_tail][found], -1)


def _calls_at(columns: Columns, nesting: Nesting, calls: Calls, begin: NDArray[np.int64]) -> Times:
    """The innermost call of its thread that reaches the row where an arrow begins, -1 for none."""
    order = np.argsort(calls.pre, kind="stable")
    rows = calls.rows[order]
    at = columns.ints("ts_ns", begin).values
    place = np.concatenate((rows, begin.astype(np.int32)))
    pid, tid = columns.codes("pid", place).codes, columns.codes("tid", place).codes
    thread = group_numbers(pid, tid)
    latest = last_before(thread[: len(rows)], calls.ts_ns[order], thread[len(rows) :], at)
    latest[(pid[len(rows) :] < 0) | (tid[len(rows) :] < 0)] = -1
    call = last_reaching(calls.end_ns[order], latest + 1, at, inclusive=True)
    lane = np.searchsorted(nesting.lanes, calls.pre[order] - 1, side="right")
    same = (call >= 0) & (latest >= 0)
    same[same] = lane[call[same]] == lane[latest[same]]
    return np.where(same, order[call], -1)
