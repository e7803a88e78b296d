"""What the recording of a rank cannot show: lost and malformed GPU records, and gaps inside graph launches.

A launch is lost if GPU activities of its kind were recorded, but none of this one. Launches that were
captured into a graph have none, fills may be empty, and what was still queued when the recording ended is
cut off, not lost. A graph launch with fewer activities than others of its graph has lost some.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.ingest.tables.launches import have_id_of_launched
from tracewarehouse.ingest.tables.model import (
    LaunchState,
    covered_ns,
    distinct_combinations,
    flags,
    last_before,
    used_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import (
        Calls,
        Flags,
        Launches,
        Numbers,
        Positions,
        Rows,
        StepAnnotations,
    )
    from tracewarehouse.ingest.tables.quality import FiredRule

# An activity that covers others is malformed if it lasts this many times the median of its name.
MALFORMED_FACTOR: Final = 10
# How many later activities of the stream are compared with one that may cover them.
_COMPARED: Final = 8
# A step is left out if a larger share of its launches is lost.
LOST_SHARE: Final = 0.01
# Shortest gap inside a graph launch that counts, and the share of the GPU window that makes gaps a reason.
_GRAPH_GAP_NS: Final = 100_000
_GRAPH_GAP_SHARE: Final = 0.01
_KERNEL, _COPY, _FILL, _GRAPH = range(4)
# What most reasons do not have.
_UNKNOWN: Final = {"share": None, "steps": 0, "affected_ns": None}
# The share of the time of complete steps from which on work launched before the recording is a reason.
_BEFORE_SHARE: Final = 0.1
# Distinct contents of graph launches that are compared with each other.
_MOST_SHAPES: Final = 64


def clipped(columns: Columns, launches: Launches, annotations: Sequence[StepAnnotations]) -> Launches:
    """The GPU activities, malformed ones cut where the next activity of their stream starts.

    Malformed: outside of graph launches, covers at least two later activities of its stream and process, and
    lasts at least `MALFORMED_FACTOR` times the median of its name or longer than every step.
    """
    process = np.where(launches.runtime >= 0, columns.codes("pid", launches.runtime).codes, -1)
    lane = launches.lanes(columns)
    order = np.lexsort((launches.dur_ns, launches.ts_ns, process, lane))
    start, end = launches.ts_ns[order], launches.end_ns[order]
    group = lane[order] * (int(process.max(initial=0)) + 2) + process[order]
    covered = np.zeros(len(order), np.int8)
    next_start = np.full(len(order), np.iinfo(np.int64).max)
    for distance in range(1, min(_COMPARED, len(order) - 1) + 1):
        same = group[distance:] == group[:-distance]
        covered[:-distance] += same & (end[distance:] <= end[:-distance])
        is_later = same & (start[distance:] > start[:-distance])
        earliest = next_start[:-distance]
        np.minimum(earliest, start[distance:], out=earliest, where=is_later)
    some = np.flatnonzero((covered >= 2) & (next_start < end))
    may_be, cut_ns = order[some], next_start[some] - start[some]
    kept = ~launches.is_graph[may_be] & _is_long(columns, launches, annotations, may_be)
    if not kept.any():
        return launches
    dur_ns = launches.dur_ns.copy()
    dur_ns[may_be[kept]] = cut_ns[kept]
    return replace(launches, dur_ns=dur_ns)


def _is_long(
    columns: Columns, launches: Launches, annotations: Sequence[StepAnnotations], some: Positions
) -> Flags:
    """Whether each of some GPU activities lasts longer than its name's usual duration or any step allows."""
    if not len(some):
        return np.zeros(0, np.bool_)
    name, rank = columns.codes("name", launches.rows).codes, columns.rank_index(launches.rows)
    _, number = distinct_combinations(name, rank.astype(np.int32))
    order = np.lexsort((launches.dur_ns, number))
    first, count = np.searchsorted(number[order], number[some]), np.bincount(number)[number[some]]
    median = launches.dur_ns[order][first + (count - 1) // 2]
    steps = [int((each.end_ns - each.start_ns).max(initial=0)) for each in annotations]
    longest = np.array([ns or np.iinfo(np.int64).max for ns in steps] or [np.iinfo(np.int64).max])
    dur_ns = launches.dur_ns[some]
    long: Flags = (dur_ns >= MALFORMED_FACTOR * np.maximum(median, 1)) | (dur_ns > longest[rank[some]])
    return long


class Unrecorded(Struct, frozen=True):
    """Launch calls of all ranks that should have GPU activities, and what became of them; rows of calls.

    `lost` have none, or fewer than other launches of their graph, which are also in `short`; `cut_off` were
    still queued when the recording ended.
    """

    launched: Rows
    lost: Rows
    short: Rows
    cut_off: Rows


def find_unrecorded(columns: Columns, calls: Calls, launches: Launches, is_launch: Flags) -> Unrecorded:
    """Which launches have lost GPU activities; `is_launch` marks calls that launch by their name."""
    rank, kind = columns.rank_index(calls.rows), _kinds(columns, calls)
    known = np.isin(calls.rows, launches.runtime)
    is_outer = ~have_id_of_launched(columns, calls, launches)
    inside = columns.ints("parent_id", calls.rows)
    is_outer &= ~(inside.valid & np.isin(inside.values, calls.rows))
    is_outer |= known
    pair = rank * 4 + kind
    recorded = np.isin(pair, pair[known])
    eligible = is_launch & is_outer & (kind != _FILL) & recorded
    missing = eligible & ~known
    cut_off = np.zeros(len(missing), np.bool_)
    if missing.any():
        captured = missing & _captured(columns, calls, rank)
        eligible &= ~captured
        missing &= ~captured
        cut_off = missing & _cut_off(columns, calls, launches, rank, known)
        missing &= ~cut_off
    short = _short_graph_launches(columns, launches)
    lost = np.union1d(calls.rows[missing], short).astype(np.int32)
    return Unrecorded(calls.rows[eligible], lost, short, calls.rows[cut_off])


def _kinds(columns: Columns, calls: Calls) -> Positions:
    """What each call launches, by its name."""
    names = columns.codes("name", calls.rows)
    used, texts = used_texts(names)
    found = np.full(len(names.words) + 1, _KERNEL, np.int8)
    for code, text in zip(used.tolist(), texts, strict=True):
        lower = text.lower()
        if "graphlaunch" in lower:
            found[code] = _GRAPH
        elif "memset" in lower or "usmfill" in lower:
            found[code] = _FILL
        elif "copy" in lower or "cpy" in lower or "membuffer" in lower:
            found[code] = _COPY
    return found[names.codes]


def _captured(columns: Columns, calls: Calls, rank: Positions) -> Flags:
    """Whether a capture into a graph was open on any thread of the rank when the call began."""
    names = columns.words("name")
    begins = flags(pc.match_substring(names, "StreamBeginCapture"))
    ends = flags(pc.match_substring(names, "StreamEndCapture"))
    edges = np.flatnonzero(columns.where("name", begins | ends, calls.rows))
    edges = edges[np.argsort(calls.ts_ns[edges], kind="stable")]
    is_begin = np.append(columns.where("name", begins, calls.rows[edges]), False)
    latest = last_before(rank[edges], calls.ts_ns[edges], rank, calls.ts_ns)
    return is_begin[latest]


def _cut_off(columns: Columns, calls: Calls, launches: Launches, rank: Positions, known: Flags) -> Flags:
    """Whether each call follows the last one with GPU activities, on a GPU that was busy to the end.

    Busy to the end: what remained of the recording is no longer than the longest GPU activity.
    """
    ranks = len(columns.parts)
    last_call, gpu_end = np.full((2, ranks), np.iinfo(np.int64).min)
    longest, host_end = np.zeros(ranks, np.int64), gpu_end.copy()
    np.maximum.at(last_call, rank[known], calls.ts_ns[known])
    on_gpu = columns.rank_index(launches.rows)
    np.maximum.at(gpu_end, on_gpu, launches.end_ns)
    np.maximum.at(longest, on_gpu, launches.dur_ns)
    np.maximum.at(host_end, rank, calls.end_ns)
    is_busy = host_end - longest <= gpu_end
    return is_busy[rank] & (calls.ts_ns > last_call[rank])


def _short_graph_launches(columns: Columns, launches: Launches) -> Rows:
    """The graph launches with a part of the activities that more launches of the graph have."""
    of_graph = np.flatnonzero(launches.is_graph)
    if not len(of_graph):
        return np.zeros(0, np.int32)
    _, node = distinct_combinations(
        columns.codes("name", launches.rows[of_graph]).codes,
        *(
            columns.ints(name, launches.rows[of_graph]).values.astype(np.int32)
            for name in ("grid_x", "grid_y", "block_x", "graph_id")
            if columns.has(name)
        ),
    )
    order = np.lexsort((node, launches.runtime[of_graph]))
    runtime, node = launches.runtime[of_graph][order], node[order]
    rows, first = np.unique(runtime, return_index=True)
    contents = [part.tobytes() for part in np.split(node, first[1:])]
    shapes = Counter(contents).most_common()
    nodes = {shape: Counter(np.frombuffer(shape, node.dtype).tolist()) for shape, _ in shapes}
    short = {
        shape
        for shape, count in shapes
        if any(
            often > count and len(shape) < len(whole) < 2 * len(shape) and nodes[shape] <= nodes[whole]
            for whole, often in shapes[:_MOST_SHAPES]
        )
    }
    return rows[[shape in short for shape in contents]].astype(np.int32)


def lost_steps(columns: Columns, unrecorded: Unrecorded, rank: int) -> Numbers:
    """The steps of a rank with more lost launches than `LOST_SHARE`, or a short graph launch."""
    launched, lost, short = (
        _steps_of(columns, rows, rank) for rows in (unrecorded.launched, unrecorded.lost, unrecorded.short)
    )
    steps, number = np.unique(np.concatenate((lost, launched)), return_inverse=True)
    count, of = (np.bincount(each, minlength=len(steps)) for each in np.split(number, [len(lost)]))
    selected: Numbers = steps[(count > LOST_SHARE * np.maximum(of, 1)) | np.isin(steps, short)]
    return selected


def cut_off_steps(columns: Columns, unrecorded: Unrecorded, rank: int) -> Numbers:
    """The steps of a rank with launches that were still queued when the recording ended."""
    return np.unique(_steps_of(columns, unrecorded.cut_off, rank))


def _steps_of(columns: Columns, rows: Rows, rank: int) -> Numbers:
    """The steps of those rows of a rank that have one."""
    steps = columns.ints("step", rows[columns.rank_index(rows) == rank])
    return steps.values[steps.valid]


Limit = dict[str, Any]


def limits(
    columns: Columns,
    unrecorded: Unrecorded,
    launches: Launches,
    steps: Sequence[pa.Table],
    segments: Sequence[pa.Table],
) -> list[list[Limit]]:
    """The reasons of each rank, for its facts: name, level, affected steps and rows, share and time.

    `steps` and `segments` are the tables `steps` and `device_segments` of each rank.
    """
    return [
        [
            *_lost(columns, unrecorded, rank, steps[rank]),
            *_of_steps(steps[rank]),
            *_malformed(columns, launches.part(some)),
            *_graph_gap(launches.part(some), segments[rank]),
            *_work_before(launches.part(some), steps[rank]),
        ]
        for rank, some in enumerate(columns.slices(launches.rows))
    ]


def _of_steps(steps: pa.Table) -> Iterator[Limit]:
    """No complete step, and steps without work."""
    reasons = steps.column("incomplete").to_pylist()
    for reason in ("no_gpu_work", "no_work"):
        if rows := reasons.count(reason):
            yield _reason(reason, rows=rows, steps=rows)
    if steps.num_rows and pc.all(steps.column("partial")).as_py():
        yield _reason("no_complete_step", rows=steps.num_rows)


def step_facts(steps: pa.Table) -> dict[str, Any]:
    """The number of complete steps and their median period, for the facts of a rank."""
    complete = steps.filter(pc.invert(steps.column("partial"))).column("period_ns").to_numpy()
    median = int(np.sort(complete)[len(complete) // 2]) if len(complete) else None
    return {"complete_steps": len(complete), "step_ns": median}


def _lost(columns: Columns, unrecorded: Unrecorded, rank: int, steps: pa.Table) -> Iterator[Limit]:
    lost, launched = (
        int(np.count_nonzero(columns.rank_index(rows) == rank))
        for rows in (unrecorded.lost, unrecorded.launched)
    )
    if not lost:
        return
    left_out = steps.column("incomplete").to_pylist().count("lost_records")
    share = lost / max(launched, lost)
    is_limit = bool(left_out) or share > LOST_SHARE
    yield _reason("lost_records", rows=lost, is_limit=is_limit, share=share, steps=left_out)


def _malformed(columns: Columns, launches: Launches) -> Iterator[Limit]:
    """The affected time is the excess over the start of the next activity."""
    excess_ns = columns.ints("dur_ns", launches.rows).values - launches.dur_ns
    rows = int(np.count_nonzero(excess_ns))
    if rows:
        yield _reason("malformed_duration", rows=rows, affected_ns=int(excess_ns.sum()))


def _graph_gap(launches: Launches, segments: pa.Table) -> Iterator[Limit]:
    """Long gaps inside graph launches, if they are a part of the GPU window."""
    if not launches.is_graph.any():
        return
    is_long = pc.and_(pc.equal(segments["cause"], "graph"), pc.greater(segments["gap_ns"], _GRAPH_GAP_NS))
    gaps = segments.filter(is_long)
    total_ns = pc.sum(gaps["segment_ns"]).as_py() or 0
    if total_ns > _GRAPH_GAP_SHARE * (int(launches.end_ns.max()) - int(launches.ts_ns.min())):
        yield _reason("graph_gap", rows=len(gaps["after_id"].unique()), affected_ns=total_ns)


def _work_before(launches: Launches, steps: pa.Table) -> Iterator[Limit]:
    """Work launched before the recording that runs in complete steps, if it is a part of their time."""
    complete = steps.filter(pc.invert(steps.column("partial")))
    before = launches.part(launches.state == LaunchState.BEFORE_WINDOW)
    if not complete.num_rows or not before.rows.size:
        return
    first_ns, period_ns = (complete.column(name).to_numpy() for name in ("period_start_ns", "period_ns"))
    start_ns = np.maximum(before.ts_ns, first_ns.min())
    dur_ns = np.maximum(np.minimum(before.end_ns, (first_ns + period_ns).max()) - start_ns, 0)
    affected_ns = int(covered_ns(np.zeros(len(start_ns), np.int32), start_ns, dur_ns, 1)[0])
    if affected_ns > _BEFORE_SHARE * int(period_ns.sum()):
        rows = int(np.count_nonzero(before.end_ns > first_ns.min()))
        yield _reason("work_before", rows=rows, affected_ns=affected_ns)


def several_processes(fired: Iterable[FiredRule]) -> Iterator[Limit]:
    """Activities of further processes in one file, as the rule of `data_quality` counts them."""
    for each in fired:
        if each.rule == "multiple_processes":
            yield _reason("several_processes", rows=each.rows, affected_ns=each.ns)


def _reason(reason: str, *, rows: int, is_limit: bool = True, **others: float | None) -> Limit:
    level = "limit" if is_limit else "not_recorded"
    return {"reason": reason, "level": level, "rows": rows, **_UNKNOWN, **others}
