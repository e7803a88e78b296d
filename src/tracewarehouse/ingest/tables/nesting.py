"""How the slices of host threads nest, and intervals of the nesting order.

The parent of a slice is the last slice of its thread that started before it (or with it: the longer one
first, of equal ones the earlier in the file) and ends after its start. Annotations nest among themselves.
GPU activities, synchronizations, spans and flows do not nest.

Lookups by thread and time read the nesting order in intervals. An interval holds consecutive slices and,
before them, the slices that are still open where it begins: everything that can enclose one of its slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec import Struct

from tracewarehouse.ingest.tables.model import (
    Nesting,
    are_repeated,
    enclosing,
    has_role,
    is_slice,
    last_descendants,
    start_and_end,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Codes, Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Positions, Rows, Times


_NO_HOST_SLICE: Final = (
    "device", "device_annotation", "device_range", "device_event", "sync", "span", "flow", "other_process",
)  # fmt: skip
# Up to this number of possible lanes, the used ones are found with a table, beyond it by sorting.
_MAX_TABLE_LANES: Final = 1 << 20
OPERATOR_CATEGORY: Final = "cpu_op"
# An interval is longer only if more slices than this start at the same time.
INTERVAL_SLICES: Final = 1 << 19
# Number of starts that are read at once to find the end of an interval.
_LOOK_AHEAD: Final = 4096


def nest(columns: Columns, rules: Rules) -> Nesting:
    """Returns the tree of host slices and adds the columns depth, parent_id, pre, post and crosses."""
    rows = np.flatnonzero(is_slice(columns) & ~has_role(columns, rules, *_NO_HOST_SLICE)).astype(np.int32)
    lane, threads = _lanes(columns, rows)
    lanes = np.concatenate(([0], np.cumsum(np.bincount(lane, minlength=len(threads)))))
    ts, dur = columns.ints("ts_ns", rows).values, columns.ints("dur_ns", rows).values
    order, ts = _nesting_order(lane, lanes, ts, dur)
    rows, end = rows[order], dur[order]
    end += ts
    del lane, dur, order
    parent = enclosing(ts, end, lanes)
    crosses = parent >= 0
    crosses &= end > end[parent]
    del ts, end
    post = last_descendants(parent)
    _put(columns, rows, parent, post, crosses)
    return Nesting(rows, lanes, threads, post + np.int32(1))


def _put(
    columns: Columns, rows: Rows, parent: NDArray[np.int32], last: NDArray[np.int32], crosses: Flags
) -> None:
    """Adds the positions in the tree as columns, null for rows that do not nest."""
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


def _lanes(columns: Columns, rows: Rows) -> tuple[Positions, list[tuple[int, bool, str, str]]]:
    """The lane of each row, numbered by rank, layer (annotations last), process and thread; and all lanes."""
    pid, pids = _texts(columns.codes("pid", rows))
    tid, tids = _texts(columns.codes("tid", rows))
    is_annotation = columns.is_one_of("category", ("user_annotation",), rows)
    layer = 2 * columns.rank_index(rows) + is_annotation
    key = (layer * len(pids) + pid) * len(tids) + tid
    del pid, tid
    used, number = _distinct(key, 2 * len(columns.parts) * len(pids) * len(tids))
    layer, process, thread = used // len(tids) // len(pids), used // len(tids) % len(pids), used % len(tids)
    names = [
        (a // 2, a % 2 > 0, pids[p], tids[t])
        for a, p, t in zip(layer.tolist(), process.tolist(), thread.tolist(), strict=True)
    ]
    position = np.empty(len(names), np.int32)
    position[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return position[number], sorted(names)


def _texts(codes: Codes) -> tuple[NDArray[np.int32], list[str]]:
    """Codes and words, with null as the empty text."""
    words = codes.words.to_pylist()
    empty = words.index("") if "" in words else len(words)
    found = np.where(codes.codes < 0, np.int32(empty), codes.codes)
    return found, words if empty < len(words) else [*words, ""]


def _distinct(keys: NDArray[np.int64], limit: int) -> tuple[NDArray[np.int64], Positions]:
    """The distinct keys in ascending order, and the index of each key among them; keys are below `limit`."""
    if limit > _MAX_TABLE_LANES:
        used, number = np.unique(keys, return_inverse=True)
        return used, number
    seen = np.zeros(limit, np.bool_)
    seen[keys] = True
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - np.int32(1))[keys]


def _nesting_order(
    lane: Positions, lanes: NDArray[np.int64], ts: Times, dur: Times
) -> tuple[NDArray[np.int64], Times]:
    """The order by lane, start, longest first, then position; and the sorted starts. Overwrites `ts`."""
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
    # Of equal starts the longest comes first.
    positions = np.flatnonzero(are_repeated(ts))
    order[positions] = order[positions][np.lexsort((-dur[order[positions]], ts[positions]))]
    for number, first in enumerate(lanes[:-1].tolist()):
        ts[first : lanes[number + 1]] += low - number * span
    return order, ts


def _depths(last: NDArray[np.int32]) -> NDArray[np.int32]:
    """Depths, 1 for a root: the number of slices up to and including it that are still open at it."""
    ended = np.cumsum(np.bincount(last, minlength=len(last)), dtype=np.int32)
    depth = np.arange(1, len(last) + 1, dtype=np.int32)
    depth[1:] -= ended[:-1]
    return depth


class NestingInterval(Struct, frozen=True):
    """Ascending positions in nesting order: slices still open at `low`, then all from `low` to `high`."""

    positions: NDArray[np.int64]
    low: int
    high: int

    @property
    def opened(self) -> int:
        """Number of slices that were opened before the interval."""
        return len(self.positions) - (self.high - self.low)


def intervals(columns: Columns, nesting: Nesting) -> Iterator[NestingInterval]:
    """All host slices, each in one interval; slices of a thread with equal starts are never separated."""
    count, low, opened = len(nesting.rows), 0, np.empty(0, np.int64)
    while low < count:
        high = _end(columns, nesting, low + INTERVAL_SLICES)
        interval = NestingInterval(np.concatenate((opened, np.arange(low, high))), low, high)
        yield interval
        low, opened = high, _open(columns, nesting, interval)


def _end(columns: Columns, nesting: Nesting, high: int) -> int:
    """The first position from `high` on where a lane begins or a start differs from the one before."""
    if high >= len(nesting.rows):
        return len(nesting.rows)
    lane_end = int(nesting.lanes[np.searchsorted(nesting.lanes, high)])
    while high < lane_end:
        ts = columns.ints("ts_ns", nesting.rows[high - 1 : min(high + _LOOK_AHEAD, lane_end)]).values
        later = np.flatnonzero(ts[1:] != ts[:-1])
        if later.size:
            return high + int(later[0])
        high += len(ts) - 1
    return lane_end


def _open(columns: Columns, nesting: Nesting, interval: NestingInterval) -> NDArray[np.int64]:
    """Positions of the slices that are still open where the next interval begins."""
    high = interval.high
    if high == len(nesting.rows):
        return np.empty(0, np.int64)
    lane = int(nesting.lanes[np.searchsorted(nesting.lanes, high, side="right") - 1])
    positions = interval.positions[np.searchsorted(interval.positions, lane) :]
    rows = nesting.rows[positions]
    _, ends = start_and_end(columns, rows)
    return positions[ends > columns.ints("ts_ns", nesting.rows[high : high + 1]).values]


def host_lanes(columns: Columns, nesting: Nesting, rows: Positions) -> NDArray[np.int32]:
    """The lane of slices (not annotations) on the thread of each row; -1 for none."""
    pid, tid = columns.codes("pid", rows), columns.codes("tid", rows)
    processes, threads = (
        {word: index for index, word in enumerate(codes.words.to_pylist())} for codes in (pid, tid)
    )
    known = [
        ((rank * len(processes) + processes[process]) * len(threads) + threads[thread], lane)
        for lane, (rank, is_annotation, process, thread) in enumerate(nesting.threads)
        if not is_annotation and process in processes and thread in threads
    ]
    # A process or thread that no row names has no word; a row that lacks one has no lane.
    keys, lanes = np.array(sorted(known), np.int64).reshape(len(known), 2).T
    process = columns.rank_index(rows) * len(processes) + pid.codes
    wanted = process * len(threads) + tid.codes
    position = np.searchsorted(keys, wanted)
    found = np.append(lanes, -1)[position].astype(np.int32)
    found[np.append(keys, -1)[position] != wanted] = -1
    found[(pid.codes < 0) | (tid.codes < 0)] = -1
    return found


def on_known_threads(columns: Columns, nesting: Nesting, positions: Positions) -> Positions:
    """The positions whose process and thread are known (null, not empty text, means unknown)."""
    if not any("" in (process, thread) for _, _, process, thread in nesting.threads):
        return positions
    rows = nesting.rows[positions]
    return positions[(columns.codes("pid", rows).codes >= 0) & (columns.codes("tid", rows).codes >= 0)]


class LaneTimes(Struct, frozen=True):
    """Times on lanes, sorted by lane and time; `number` is the position of each before sorting."""

    number: NDArray[np.int64]
    lane: NDArray[np.int32]
    ts_ns: Times

    def within(self, columns: Columns, nesting: Nesting) -> Iterator[tuple[NestingInterval, LaneTimes]]:
        """Each interval that contains some of the times, with those times."""
        low = 0
        for interval in intervals(columns, nesting):
            high = self._before(columns, nesting, interval.high)
            if low < high:
                yield interval, LaneTimes(self.number[low:high], self.lane[low:high], self.ts_ns[low:high])
            low = high

    def _before(self, columns: Columns, nesting: Nesting, position: int) -> int:
        """The number of times before the start of the slice at a position."""
        if position == len(nesting.rows):
            return len(self.lane)
        lane = np.searchsorted(nesting.lanes, position, side="right") - 1
        low, high = np.searchsorted(self.lane, (lane, lane + 1))
        ts = columns.ints("ts_ns", nesting.rows[position : position + 1]).values[0]
        return int(low + np.searchsorted(self.ts_ns[low:high], ts))

    def latest(self, nesting: Nesting, positions: Positions, starts: Times) -> NDArray[np.int64]:
        """For each time the last of these positions in its lane that starts by then; -1 for none."""
        found = np.full(len(self.lane), -1, np.int64)
        edges = np.flatnonzero(np.diff(self.lane, prepend=-1, append=-1))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            lane = int(self.lane[first])
            low, high = np.searchsorted(positions, nesting.lanes[lane : lane + 2])
            at = np.searchsorted(starts[low:high], self.ts_ns[first:last], side="right")
            found[first:last] = np.where(at > 0, low + at - 1, -1)
        return found


def lane_times(lane: NDArray[np.int32], ts_ns: Times) -> LaneTimes:
    """The times sorted by lane and time, without those that have no lane."""
    order = np.lexsort((ts_ns, lane))
    order = order[np.searchsorted(lane[order], 0) :]
    return LaneTimes(order, lane[order], ts_ns[order])
