"""The rules of `data_quality` on GPU activities and the calls that launch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.model import LaunchState, QualityInput, RuleHits, Via
from tracewarehouse.ingest.tables.rows import has_pairing_id

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.tables.model import Flags, Numbers


# Maximum number of threads in a block.
MOST_BLOCK_THREADS: Final = 1024


def _before_window(given: QualityInput) -> RuleHits:
    return _activities(given, given.launches.state == LaunchState.BEFORE_WINDOW)


def _missing_launch(given: QualityInput) -> RuleHits:
    return _activities(given, given.launches.state == LaunchState.MISSING)


def _launch_by_flow(given: QualityInput) -> RuleHits:
    return _activities(given, given.launches.via == Via.FLOW)


def _activities(given: QualityInput, which: Flags) -> RuleHits:
    """GPU activities and their durations."""
    rows = given.launches.rows[which]
    return RuleHits(rows, given.columns.ints("dur_ns", rows))


def _unknown_launch(given: QualityInput) -> RuleHits:
    calls = given.calls
    named = given.columns.codes("name", calls.rows).codes >= 0
    linked = np.isin(calls.rows, given.launches.runtime)
    return _calls(given, linked & named & ~_named_as_launch(given))


def _launch_without_gpu_activity(given: QualityInput) -> RuleHits:
    """Excludes a driver call inside the runtime call that launched a GPU activity: it has the same id."""
    calls, launches = given.calls, given.launches
    ids = given.columns.ints("correlation", launches.rows[launches.runtime >= 0])
    shares = np.isin(calls.correlation.values, ids.values[has_pairing_id(ids)]) & calls.correlation.valid
    return _calls(given, _named_as_launch(given) & ~np.isin(calls.rows, launches.runtime) & ~shares)


def _calls(given: QualityInput, which: Flags) -> RuleHits:
    calls = given.calls
    return RuleHits(calls.rows[which], calls.end_ns[which] - calls.ts_ns[which])


def _named_as_launch(given: QualityInput) -> Flags:
    """Whether each call launches according to its name."""
    names = given.columns.codes("name", given.calls.rows)
    codes = np.flatnonzero(np.bincount(names.codes + 1)[1:])
    launching = [launch for launch, _ in given.rules.calls(names.words.take(pa.array(codes)).to_pylist())]
    wanted = np.zeros(len(names.words), np.bool_)
    wanted[codes] = launching
    return names.where(wanted)


def _many_activities_per_launch(given: QualityInput) -> RuleHits:
    launches = given.launches
    # A call without a name may be a graph launch.
    positions = np.flatnonzero((launches.runtime >= 0) & ~launches.is_graph)
    positions = positions[given.columns.codes("name", launches.runtime[positions]).codes >= 0]
    order = positions[
        np.lexsort((launches.rows[positions], launches.ts_ns[positions], launches.runtime[positions]))
    ]
    further = launches.runtime[order[1:]] == launches.runtime[order[:-1]]
    which = np.zeros(len(launches.rows), np.bool_)
    which[order[1:][further]] = True
    return _activities(given, which)


def _correlation_reused(given: QualityInput) -> RuleHits:
    calls = given.calls
    positions = np.flatnonzero(has_pairing_id(calls.correlation))
    ids = calls.correlation.values[positions]
    ranked = np.sort(ids)
    positions = positions[np.isin(ids, ranked[1:][ranked[1:] == ranked[:-1]])]
    ids = calls.correlation.values[positions]
    # Of calls that start together the longest comes first; ~ reverses the order without overflow.
    order = np.lexsort((calls.rows[positions], ~calls.end_ns[positions], calls.ts_ns[positions], ids))
    positions = positions[order]
    earlier_end, has_earlier = _latest_before(ids[order], calls.end_ns[positions])
    return RuleHits(calls.rows[positions[has_earlier & (earlier_end < calls.end_ns[positions])]])


def _start_before_launch(given: QualityInput) -> RuleHits:
    """The affected time is how long before its call it starts."""
    launches = given.launches
    which = (launches.runtime >= 0) & (launches.ts_ns < launches.call_ts_ns)
    return RuleHits(launches.rows[which], launches.call_ts_ns[which] - launches.ts_ns[which])


def _stream_overlap(given: QualityInput) -> RuleHits:
    """The affected time is the overlap with the earlier activity of the stream that ends last."""
    launches = given.launches
    lengths = given.columns.ints("dur_ns", launches.rows).values
    order = np.lexsort((launches.rows, lengths, launches.ts_ns, launches.stream, launches.device))
    streams, devices, starts = launches.stream[order], launches.device[order], launches.ts_ns[order]
    ends = starts + lengths[order]
    changes = (streams[1:] != streams[:-1]) | (devices[1:] != devices[:-1])
    group = np.cumsum(np.append(False, changes)[: len(order)])
    earlier_end, has_earlier = _latest_before(group, ends)
    over = has_earlier & (earlier_end > starts)
    return RuleHits(launches.rows[order[over]], np.minimum(earlier_end, ends)[over] - starts[over])


def _latest_before(groups: NDArray[Any], ends: Numbers) -> tuple[Numbers, Flags]:
    """For rows sorted by group: the latest end of earlier rows of the group, and whether there are any."""
    starts = np.ones(len(ends), np.bool_)
    starts[1:] = groups[1:] != groups[:-1]
    ranked, rank = np.unique(ends, return_inverse=True)
    # The offset ascends from group to group, so that one running maximum stays within each group.
    offset = (np.cumsum(starts) - 1) * len(ranked)
    highest = np.maximum.accumulate(rank + offset) - offset
    return ranked[np.append(0, highest[:-1])[: len(ends)]], ~starts


def _multiple_processes(given: QualityInput) -> RuleHits:
    """GPU activities of other processes than the first one (in text order) on their device."""
    rows = given.launches.rows
    devices, (codes, words) = given.columns.ints("device", rows), given.columns.codes("pid", rows)
    known = np.flatnonzero(devices.valid & (codes >= 0))
    rank = _text_ranks(words, codes[known])[codes[known]]
    distinct, device = np.unique(devices.values[known], return_inverse=True)
    first = np.full(len(distinct), np.iinfo(np.int64).max)
    np.minimum.at(first, device, rank)
    which = np.zeros(len(rows), np.bool_)
    which[known[rank != first[device]]] = True
    return _activities(given, which)


def _text_ranks(words: pa.Array, codes: NDArray[np.int32]) -> Numbers:
    """The rank of each used word in byte order; 0 for unused words."""
    used = np.unique(codes)
    positions = np.argsort(pc.sort_indices(words.take(pa.array(used))).to_numpy())
    ranks = np.zeros(len(words), np.int64)
    ranks[used] = positions
    return ranks


def _invalid_block_size(given: QualityInput) -> RuleHits:
    """More threads in a block than possible, or none. A product that floats round is far out of range."""
    rows = given.launches.rows
    sides = [given.columns.ints(f"block_{axis}", rows) for axis in "xyz"]
    threads = np.ones(len(rows))
    for side in sides:
        threads *= side.values
    known = sides[0].valid & sides[1].valid & sides[2].valid
    return _activities(given, known & ~((threads >= 1) & (threads <= MOST_BLOCK_THREADS)))


LAUNCH_RULES: Final[dict[str, Callable[[QualityInput], RuleHits]]] = {
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
