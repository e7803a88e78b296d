"""The rules of `data_quality` that the events of a rank decide, each with the rows that fall under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.ids import SENTINEL_IDS, pairs
from tracewarehouse.ingest.tables.model import LaunchState, Via

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Calls, Launches, Nesting

    Positions = NDArray[np.integer]
    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# The most threads that a block can have.
MOST_BLOCK_THREADS: Final = 1024
_MIX: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


class Fired(NamedTuple):
    """A rule that fired: on how many rows, on how much time (None: on no time), and the first row."""

    rule: str
    rows: int
    ns: int | None
    first: int


class Hits(NamedTuple):
    """The rows that fall under a rule, and the time that each concerns; None where none does."""

    rows: Positions
    ns: Ints | Numbers | None = None


@dataclass(frozen=True)
class Evidence:
    """What the rules look at: the activities and what builders made of them.

    `startless` are the rows of `flows` without a start.
    """

    columns: Columns
    rules: Rules
    nesting: Nesting
    calls: Calls
    launches: Launches
    startless: Positions


def fired(evidence: Evidence) -> Iterator[Fired]:
    """Every rule that fired, in no order."""
    for rule, hits in _RULES.items():
        found = hits(evidence)
        if len(found.rows):
            yield Fired(rule, len(found.rows), _total(found.ns), int(found.rows.min()))


def _total(ns: Ints | Numbers | None) -> int | None:
    """The sum of what is there; None where nothing is, or where 64 bits do not hold it."""
    if ns is None:
        return None
    values = ns if isinstance(ns, np.ndarray) else ns.values[ns.valid]
    if not len(values):
        return None
    total = total_ns(values)
    return total if -(2**63) <= total < 2**63 else None


def total_ns(lengths: Numbers) -> int:
    """An exact sum, even where 64 bits do not hold it."""
    return (int((lengths >> 32).sum()) << 32) + int((lengths & 0xFFFFFFFF).sum())


def non_events(columns: Columns) -> Positions:
    """Elements that are no event: no object, or one without phase, or one without name and time."""
    no_phase = columns.codes("ph").codes < 0
    rows = np.flatnonzero(~no_phase & (columns.codes("name").codes < 0) & ~columns.ints("ts_ns").valid)
    named = pc.fill_null(pc.match_substring(columns.texts("extra", rows).cast(pa.string()), '"name"'), False)
    bare = columns.texts("ts_text", rows).is_null()
    rows = rows[_flags(pc.and_(bare, pc.invert(named)))]
    return np.sort(np.concatenate((np.flatnonzero(no_phase), rows)))


def no_changes(timeline: pa.Table) -> Positions:
    """Elements of a memory timeline that are no change of memory."""
    odd: Positions = timeline.filter(pc.is_valid(timeline.column("element"))).column("event_id").to_numpy()
    return odd


def fired_on_timeline(timeline: pa.Table) -> Iterator[Fired]:
    """The rule that a memory timeline without activities may fall under."""
    odd = no_changes(timeline)
    if len(odd):
        yield Fired("non_event", len(odd), None, int(odd.min()))


def _non_event(evidence: Evidence) -> Hits:
    return Hits(non_events(evidence.columns))


def _unknown_category(evidence: Evidence) -> Hits:
    codes = evidence.columns.codes("raw_category")
    rows = np.flatnonzero((codes.codes >= 0) & ~codes.is_one_of(evidence.rules.categories))
    return Hits(rows, evidence.columns.ints("dur_ns", rows))


def _duplicate_slice(evidence: Evidence) -> Hits:
    """A slice that agrees with an earlier one in times, thread, name and category."""
    columns = evidence.columns
    times, lengths = columns.ints("ts_ns"), columns.ints("dur_ns")
    rows = np.flatnonzero(_slices(columns) & times.valid & lengths.valid)
    rows = rows[_repeated(times.values[rows], lengths.values[rows])]
    if not len(rows):
        return Hits(rows)
    keys: list[Positions] = [columns.codes(name).codes[rows] for name in ("category", "name", "tid", "pid")]
    keys += [lengths.values[rows], times.values[rows]]
    order = np.lexsort([rows, *keys])
    same = np.ones(len(rows) - 1, np.bool_)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    rows = rows[order[1:][same]]
    return Hits(rows, columns.ints("dur_ns", rows))


def _repeated(times: Numbers, lengths: Numbers) -> Flags:
    """Which rows may share both numbers with another row: numbers first, so that few texts are compared."""
    mixed = times.view(np.uint64) * _MIX[0] + lengths.view(np.uint64) * _MIX[1]
    ranked = np.sort(mixed)
    twice = ranked[1:][ranked[1:] == ranked[:-1]]
    if not len(twice):
        return np.zeros(len(mixed), np.bool_)
    found: Flags = twice[np.searchsorted(twice, mixed).clip(max=len(twice) - 1)] == mixed
    return found


def _slices(columns: Columns) -> Flags:
    return columns.codes("ph").is_one_of(["X", "B"])


def _untimed(columns: Columns) -> tuple[Positions, Flags]:
    """Slices without a usable length, and which of them have a negative one in the file."""
    rows = np.flatnonzero(_slices(columns) & ~columns.ints("dur_ns").valid)
    negative = pc.starts_with(columns.texts("dur_text", rows).cast(pa.string()), "-")
    return rows, _flags(pc.fill_null(negative, False))


def _negative_duration(evidence: Evidence) -> Hits:
    rows, negative = _untimed(evidence.columns)
    return Hits(rows[negative])


def _epoch_zero(evidence: Evidence) -> Hits:
    columns = evidence.columns
    rows = np.flatnonzero(_slices(columns) & ~columns.ints("ts_ns").valid)
    return Hits(rows[_written_as_zero(evidence, rows)])


def _written_as_zero(evidence: Evidence, rows: Positions) -> Flags:
    """Rows whose start is the number 0 in the file."""
    numbers = evidence.rules.numbers(evidence.columns.texts("ts_text", rows).to_pylist())
    return np.array([number == 0 for number in numbers], np.bool_)


def _unusable_time(evidence: Evidence) -> Hits:
    columns = evidence.columns
    rows, negative = _untimed(columns)
    rows = rows[~negative & columns.codes("ph").is_one_of(["X"])[rows]]
    return Hits(rows[columns.ints("ts_ns", rows).valid | ~_written_as_zero(evidence, rows)])


def _open_bracket(evidence: Evidence) -> Hits:
    phases, ends = evidence.columns.codes("ph"), evidence.columns.ints("end_id")
    begins = np.flatnonzero(phases.is_one_of(["B"]) & ~ends.valid)
    ended = np.flatnonzero(phases.is_one_of(["E"]))
    return Hits(np.concatenate((begins, ended[~np.isin(ended, ends.values[ends.valid])])))


def _crossing_slice(evidence: Evidence) -> Hits:
    """Time is by how much it ends after the slice around it."""
    nesting, columns = evidence.nesting, evidence.columns
    places = np.flatnonzero(nesting.crosses)
    rows, around = nesting.rows[places], nesting.rows[nesting.parent[places]]
    times, lengths = columns.ints("ts_ns").values, columns.ints("dur_ns").values
    return Hits(rows, times[rows] + lengths[rows] - times[around] - lengths[around])


def _dangling_frame(evidence: Evidence) -> Hits:
    frames, callers = evidence.columns.ints("python_id"), evidence.columns.ints("python_parent_id")
    rows = np.flatnonzero(callers.valid)
    rows = rows[~np.isin(callers.values[rows], frames.values[frames.valid])]
    return Hits(rows, evidence.columns.ints("dur_ns", rows))


def _flow_without_start(evidence: Evidence) -> Hits:
    return Hits(evidence.startless)


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
    named = evidence.columns.codes("name").codes[calls.rows] >= 0
    linked = np.isin(calls.rows, evidence.launches.runtime)
    return _calls(evidence, linked & named & ~_named_as_launch(evidence))


def _launch_without_gpu_row(evidence: Evidence) -> Hits:
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
    names = evidence.columns.codes("name")
    codes = np.unique(names.codes[evidence.calls.rows])
    codes = codes[codes >= 0]
    launching = [launch for launch, _ in evidence.rules.calls(names.words.take(pa.array(codes)).to_pylist())]
    wanted = np.zeros(len(names.words), np.bool_)
    wanted[codes] = launching
    return names.where(wanted)[evidence.calls.rows]


def _many_rows_per_launch(evidence: Evidence) -> Hits:
    launches = evidence.launches
    # A call without a name may launch a graph.
    named = evidence.columns.codes("name").codes[launches.runtime] >= 0
    places = np.flatnonzero((launches.runtime >= 0) & named & ~launches.is_graph)
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


def _several_processes(evidence: Evidence) -> Hits:
    """GPU activities of another process than the first, by its text, of those on their device."""
    rows = evidence.launches.rows
    devices, processes = evidence.columns.ints("device", rows), evidence.columns.codes("pid")
    codes = processes.codes[rows]
    known = np.flatnonzero(devices.valid & (codes >= 0))
    rank = _text_ranks(processes.words, codes[known])[codes[known]]
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


def _impossible_value(evidence: Evidence) -> Hits:
    """More threads in a block than there can be, or none. A product that rounds is far outside."""
    rows = evidence.launches.rows
    sides = [evidence.columns.ints(f"block_{axis}", rows) for axis in "xyz"]
    threads = np.ones(len(rows))
    for side in sides:
        threads *= side.values
    known = sides[0].valid & sides[1].valid & sides[2].valid
    return _activities(evidence, known & ~((threads >= 1) & (threads <= MOST_BLOCK_THREADS)))


def _sentinel_id(evidence: Evidence) -> Hits:
    """0 is ordinary where there is no id, and is not reported."""
    which = np.zeros(evidence.columns.rows, np.bool_)
    for name in ("correlation", "external_id"):
        if evidence.columns.has(name):
            ids = evidence.columns.ints(name)
            which |= ids.valid & (ids.values != 0) & np.isin(ids.values, SENTINEL_IDS)
    return Hits(np.flatnonzero(which))


def _flags(found: pa.Array) -> Flags:
    return found.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


_RULES: Final[dict[str, Callable[[Evidence], Hits]]] = {
    "non_event": _non_event,
    "unknown_category": _unknown_category,
    "duplicate_slice": _duplicate_slice,
    "negative_duration": _negative_duration,
    "epoch_zero": _epoch_zero,
    "invalid_time": _unusable_time,
    "unpaired_begin_end": _open_bracket,
    "crossing_slice": _crossing_slice,
    "dangling_frame": _dangling_frame,
    "flow_without_start": _flow_without_start,
    "before_window": _before_window,
    "missing_launch": _missing_launch,
    "launch_by_flow": _launch_by_flow,
    "unknown_launch": _unknown_launch,
    "launch_without_gpu_activity": _launch_without_gpu_row,
    "many_activities_per_launch": _many_rows_per_launch,
    "correlation_reused": _correlation_reused,
    "start_before_launch": _start_before_launch,
    "stream_overlap": _stream_overlap,
    "multiple_processes": _several_processes,
    "invalid_block_size": _impossible_value,
    "sentinel_id": _sentinel_id,
}
