"""The rules of `data_quality` about GPU activities and the calls that launch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.evidence import Evidence, Hits
from tracewarehouse.ingest.tables.ids import pairs
from tracewarehouse.ingest.tables.model import LaunchState, Via

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.tables.evidence import Numbers
    from tracewarehouse.ingest.tables.model import Flags

# The most threads that a block can have.
MOST_BLOCK_THREADS: Final = 1024


def _before_window(evidence: Evidence) -> Hits:
    return _activities(evidence, evidence.launches.state == LaunchState.BEFORE_WINDOW)


def _missing_launch(evidence: Evidence) -> Hits:
    return _activities(evidence, evidence.launches.state == LaunchState.MISSING)


def _launch_by_flow(evidence: Evidence) -> Hits:
    return _activities(evidence, evidence.launches.via == Via.FLOW)


def _activities(evidence: Evidence, which: Flags) -> Hits:
    """GPU activities and their lengths."""
    rows = evidence.launches.rows[which]
    return Hits(rows, evidence.columns.ints("dur_ns", rows))


def _unknown_launch(evidence: Evidence) -> Hits:
    calls = evidence.calls
    named = evidence.columns.codes("name", calls.rows).codes >= 0
    linked = np.isin(calls.rows, evidence.launches.runtime)
    return _calls(evidence, linked & named & ~_named_as_launch(evidence))


def _launch_without_gpu_activity(evidence: Evidence) -> Hits:
    """A driver's call inside the runtime's that launched a GPU activity has the same id: it is no loss."""
    calls, launches = evidence.calls, evidence.launches
    ids = evidence.columns.ints("correlation", launches.rows[launches.runtime >= 0])
    shares = np.isin(calls.correlation.values, ids.values[pairs(ids)]) & calls.correlation.valid
    return _calls(evidence, _named_as_launch(evidence) & ~np.isin(calls.rows, launches.runtime) & ~shares)


def _calls(evidence: Evidence, which: Flags) -> Hits:
    calls = evidence.calls
    return Hits(calls.rows[which], calls.end_ns[which] - calls.ts_ns[which])


def _named_as_launch(evidence: Evidence) -> Flags:
    """Calls that launch by their name."""
    names = evidence.columns.codes("name", evidence.calls.rows)
    codes = np.flatnonzero(np.bincount(names.codes + 1)[1:])
    launching = [launch for launch, _ in evidence.rules.calls(names.words.take(pa.array(codes)).to_pylist())]
    wanted = np.zeros(len(names.words), np.bool_)
    wanted[codes] = launching
    return names.where(wanted)


def _many_activities_per_launch(evidence: Evidence) -> Hits:
    launches = evidence.launches
    # A call without a name may launch a graph.
    places = np.flatnonzero((launches.runtime >= 0) & ~launches.is_graph)
    places = places[evidence.columns.codes("name", launches.runtime[places]).codes >= 0]
    order = places[np.lexsort((launches.rows[places], launches.ts_ns[places], launches.runtime[places]))]
    further = launches.runtime[order[1:]] == launches.runtime[order[:-1]]
    which = np.zeros(len(launches.rows), np.bool_)
    which[order[1:][further]] = True
    return _activities(evidence, which)


def _correlation_reused(evidence: Evidence) -> Hits:
    calls = evidence.calls
    places = np.flatnonzero(pairs(calls.correlation))
    ids = calls.correlation.values[places]
    ranked = np.sort(ids)
    places = places[np.isin(ids, ranked[1:][ranked[1:] == ranked[:-1]])]
    ids = calls.correlation.values[places]
    # A longer call comes first of those that start together; ~ turns the order without overflow.
    order = np.lexsort((calls.rows[places], ~calls.end_ns[places], calls.ts_ns[places], ids))
    places = places[order]
    earlier_end, has_earlier = _latest_before(ids[order], calls.end_ns[places])
    return Hits(calls.rows[places[has_earlier & (earlier_end < calls.end_ns[places])]])


def _start_before_launch(evidence: Evidence) -> Hits:
    """Time is how long before its call it starts."""
    launches = evidence.launches
    which = (launches.runtime >= 0) & (launches.ts_ns < launches.call_ts_ns)
    return Hits(launches.rows[which], launches.call_ts_ns[which] - launches.ts_ns[which])


def _stream_overlap(evidence: Evidence) -> Hits:
    """Time is the overlap with the earlier activity of the stream that ends last."""
    launches = evidence.launches
    lengths = evidence.columns.ints("dur_ns", launches.rows).values
    order = np.lexsort((launches.rows, lengths, launches.ts_ns, launches.stream, launches.device))
    streams, devices, starts = launches.stream[order], launches.device[order], launches.ts_ns[order]
    ends = starts + lengths[order]
    changes = (streams[1:] != streams[:-1]) | (devices[1:] != devices[:-1])
    group = np.cumsum(np.append(False, changes)[: len(order)])
    earlier_end, has_earlier = _latest_before(group, ends)
    over = has_earlier & (earlier_end > starts)
    return Hits(launches.rows[order[over]], np.minimum(earlier_end, ends)[over] - starts[over])


def _latest_before(groups: NDArray[Any], ends: Numbers) -> tuple[Numbers, Flags]:
    """Of rows sorted by group: the largest end of the earlier ones of the group, and whether there is one."""
    starts = np.ones(len(ends), np.bool_)
    starts[1:] = groups[1:] != groups[:-1]
    ranked, rank = np.unique(ends, return_inverse=True)
    # One number that rises from group to group, so that one pass over all rows stays within each.
    offset = (np.cumsum(starts) - 1) * len(ranked)
    highest = np.maximum.accumulate(rank + offset) - offset
    return ranked[np.append(0, highest[:-1])[: len(ends)]], ~starts


def _multiple_processes(evidence: Evidence) -> Hits:
    """GPU activities of another process than the first, by its text, of those on their device."""
    rows = evidence.launches.rows
    devices, (codes, words) = evidence.columns.ints("device", rows), evidence.columns.codes("pid", rows)
    known = np.flatnonzero(devices.valid & (codes >= 0))
    rank = _text_ranks(words, codes[known])[codes[known]]
    distinct, device = np.unique(devices.values[known], return_inverse=True)
    first = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(first, device, rank)
    which = np.zeros(len(rows), np.bool_)
    which[known[rank != first[device]]] = True
    return _activities(evidence, which)


def _text_ranks(words: pa.Array, codes: NDArray[np.int32]) -> Numbers:
    """For each word that is used its place among them by bytes; 0 for the others."""
    used = np.unique(codes)
    places = np.argsort(pc.sort_indices(words.take(pa.array(used))).to_numpy())
    ranks = np.zeros(len(words), np.int64)
    ranks[used] = places
    return ranks


def _invalid_block_size(evidence: Evidence) -> Hits:
    """More threads in a block than there can be, or none. A product that rounds is far outside."""
    rows = evidence.launches.rows
    sides = [evidence.columns.ints(f"block_{axis}", rows) for axis in "xyz"]
    threads = np.ones(len(rows))
    for side in sides:
        threads *= side.values
    known = sides[0].valid & sides[1].valid & sides[2].valid
    return _activities(evidence, known & ~((threads >= 1) & (threads <= MOST_BLOCK_THREADS)))


LAUNCH_RULES: Final[dict[str, Callable[[Evidence], Hits]]] = {
    "before_window": _before_window,
    "missing_launch": _missing_launch,
    "launch_by_flow": _launch_by_flow,
    "unknown_launch": _unknown_launch,
    "launch_without_gpu_activity": _launch_without_gpu_activity,
    "many_activities_per_launch": _many_activities_per_launch,
    "correlation_reused": _correlation_reused,
    "start_before_launch": _start_before_launch,
    "stream_overlap": _stream_overlap,
    "multiple_processes": _multiple_processes,
    "invalid_block_size": _invalid_block_size,
}
