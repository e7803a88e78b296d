"""The host slices in the order of nesting, some at a time, for what is looked up by thread and time.

A stretch holds consecutive slices and, before them, what is still open where they begin: all that can be
around any of its slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Nesting, Times

    Places = NDArray[np.integer[Any]]

OPERATOR_CATEGORY: Final = "cpu_op"
# A stretch is longer only where more slices than this start together.
STRETCH_SLICES: Final = 1 << 19
# So many starts are looked at at once for the end of a stretch.
_LOOK_AHEAD: Final = 4096


@dataclass(frozen=True)
class Stretch:
    """Places in the nesting, rising: those still open at `low`, then all from `low` to `high`."""

    places: NDArray[np.int64]
    low: int
    high: int

    @property
    def opened(self) -> int:
        """How many of the places are still open from before."""
        return len(self.places) - (self.high - self.low)


def stretches(columns: Columns, nesting: Nesting) -> Iterator[Stretch]:
    """All host slices, each in one stretch; slices of a thread that start together are never parted."""
    count, low, opened = len(nesting.rows), 0, np.empty(0, np.int64)
    while low < count:
        high = _end(columns, nesting, low + STRETCH_SLICES)
        stretch = Stretch(np.concatenate((opened, np.arange(low, high))), low, high)
        yield stretch
        low, opened = high, _open(columns, nesting, stretch)


def _end(columns: Columns, nesting: Nesting, high: int) -> int:
    """The first place from `high` on where a lane begins or a start differs from the one before."""
    if high >= len(nesting.rows):
        return len(nesting.rows)
    most = int(nesting.lanes[np.searchsorted(nesting.lanes, high)])
    while high < most:
        ts = columns.ints("ts_ns", nesting.rows[high - 1 : min(high + _LOOK_AHEAD, most)]).values
        later = np.flatnonzero(ts[1:] != ts[:-1])
        if later.size:
            return high + int(later[0])
        high += len(ts) - 1
    return most


def _open(columns: Columns, nesting: Nesting, stretch: Stretch) -> NDArray[np.int64]:
    """What is still open where the next stretch begins."""
    high = stretch.high
    if high == len(nesting.rows):
        return np.empty(0, np.int64)
    lane = int(nesting.lanes[np.searchsorted(nesting.lanes, high, side="right") - 1])
    places = stretch.places[np.searchsorted(stretch.places, lane) :]
    rows = nesting.rows[places]
    ends = columns.ints("ts_ns", rows).values
    ends += columns.ints("dur_ns", rows).values
    return places[ends > columns.ints("ts_ns", nesting.rows[high : high + 1]).values]


def operators(columns: Columns, nesting: Nesting, stretch: Stretch) -> Places:
    """The places of operators whose process and thread are known."""
    is_operator = columns.is_one_of("category", [OPERATOR_CATEGORY], nesting.rows[stretch.places])
    return told_apart(columns, nesting, stretch.places[is_operator])


def host_lanes(columns: Columns, nesting: Nesting, rows: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """The lane of the slices, no annotations, on the thread of each row; -1 where there is none."""
    pid, tid = columns.codes("pid", rows), columns.codes("tid", rows)
    processes, threads = _places(pid.words.to_pylist()), _places(tid.words.to_pylist())
    known = [
        (processes[process] * len(threads) + threads[thread], lane)
        for lane, (is_annotation, process, thread) in enumerate(nesting.threads)
        if not is_annotation and process in processes and thread in threads
    ]
    # A process or thread that no row names has no word; what lacks one has no lane.
    keys, lanes = np.array(sorted(known), np.int64).reshape(len(known), 2).T
    asked = pid.codes.astype(np.int64) * len(threads) + tid.codes
    place = np.searchsorted(keys, asked)
    found = np.append(lanes, -1)[place].astype(np.int32)
    found[np.append(keys, -1)[place] != asked] = -1
    found[(pid.codes < 0) | (tid.codes < 0)] = -1
    return found


def _places(words: list[str]) -> dict[str, int]:
    return {word: place for place, word in enumerate(words)}


def told_apart(columns: Columns, nesting: Nesting, places: Places) -> Places:
    """Those of the places whose process and thread are known, and not taken for empty texts."""
    if not any("" in (process, thread) for _, process, thread in nesting.threads):
        return places
    rows = nesting.rows[places]
    return places[(columns.codes("pid", rows).codes >= 0) & (columns.codes("tid", rows).codes >= 0)]


@dataclass(frozen=True)
class Moments:
    """Questions about lanes at times: by lane, then by time. `number` is that of each as it was asked."""

    number: NDArray[np.int64]
    lane: NDArray[np.int32]
    ts_ns: Times

    def within(self, columns: Columns, nesting: Nesting) -> Iterator[tuple[Stretch, Moments]]:
        """Each stretch that has moments, with those from its first start to that of the next stretch."""
        low = 0
        for stretch in stretches(columns, nesting):
            high = self._before(columns, nesting, stretch.high)
            if low < high:
                yield stretch, Moments(self.number[low:high], self.lane[low:high], self.ts_ns[low:high])
            low = high

    def _before(self, columns: Columns, nesting: Nesting, place: int) -> int:
        """How many moments are before the start of the slice at a place."""
        if place == len(nesting.rows):
            return len(self.lane)
        lane = np.searchsorted(nesting.lanes, place, side="right") - 1
        low, high = np.searchsorted(self.lane, (lane, lane + 1))
        ts = columns.ints("ts_ns", nesting.rows[place : place + 1]).values[0]
        return int(low + np.searchsorted(self.ts_ns[low:high], ts))

    def latest(self, nesting: Nesting, places: Places, starts: Times) -> NDArray[np.int64]:
        """For each moment the last of these places, in its lane, that starts by its time; -1 for none."""
        found = np.full(len(self.lane), -1, np.int64)
        edges = np.flatnonzero(np.diff(self.lane, prepend=-1, append=-1))
        for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            lane = int(self.lane[first])
            low, high = np.searchsorted(places, nesting.lanes[lane : lane + 2])
            at = np.searchsorted(starts[low:high], self.ts_ns[first:last], side="right")
            found[first:last] = np.where(at > 0, low + at - 1, -1)
        return found


def moments(lane: NDArray[np.int32], ts_ns: Times) -> Moments:
    """The questions in the order of lanes and times, but for those without a lane."""
    order = np.lexsort((ts_ns, lane))
    order = order[np.searchsorted(lane[order], 0) :]
    return Moments(order, lane[order], ts_ns[order])
