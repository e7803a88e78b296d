"""Idle time of streams: what each stream waited before each of its GPU activities.

The activities of a stream are in order of start, end, launch (unknown ones last) and position in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Flags, Launches, Rows, Times

_UNKNOWN: Final = np.iinfo(np.int64).max


class StreamIdle(NamedTuple):
    """Of each GPU activity: the idle time of its stream before it, and the row whose end begins that time.

    `is_first` marks the first activity of each stream, which has no idle time. `previous` is -1 without idle
    time.
    """

    idle_ns: Times
    is_first: Flags
    previous: Rows


def stream_idle(columns: Columns, launches: Launches) -> StreamIdle:
    """The idle time before every GPU activity, in the order of `launches`."""
    count = len(launches.rows)
    idle_ns, previous = np.zeros(count, np.int64), np.full(count, -1, np.int32)
    is_first = np.zeros(count, np.bool_)
    if not count:
        return StreamIdle(idle_ns, is_first, previous)
    end = launches.ts_ns + columns.ints("dur_ns", launches.rows).values
    call = np.where(launches.runtime >= 0, launches.call_ts_ns, _UNKNOWN)
    order = np.lexsort((launches.rows, call, end, launches.ts_ns, launches.stream, launches.device))
    device, stream = launches.device[order], launches.stream[order]
    begins = np.ones(count, np.bool_)
    begins[1:] = (device[1:] != device[:-1]) | (stream[1:] != stream[:-1])
    latest = order[_latest_so_far(end[order], launches.rows[order], begins)]
    later = np.flatnonzero(~begins)
    reached = latest[later - 1]
    gap = launches.ts_ns[order[later]] > end[reached]
    after, before = order[later[gap]], reached[gap]
    idle_ns[after] = launches.ts_ns[after] - end[before]
    previous[after] = launches.rows[before]
    is_first[order[begins]] = True
    return StreamIdle(idle_ns, is_first, previous)


def _latest_so_far(ends: Times, rows: Rows, begins: Flags) -> NDArray[np.int64]:
    """For each activity of a stream the position of the latest end up to it; of equal ends the last row."""
    by_end = np.lexsort((rows, ends))
    rank = np.empty(len(ends), np.int64)
    rank[by_end] = np.arange(len(ends))
    # The offset ascends from stream to stream, so that one running maximum stays within each stream.
    offset = np.cumsum(begins) * len(ends)
    found: NDArray[np.int64] = by_end[np.maximum.accumulate(rank + offset) - offset]
    return found
