"""Table `steps`: profiler steps, the time that belongs to each, and the step of every row.

A step annotation is a slice `ProfilerStep#N` among annotations or operators. Where they overlap, time belongs
to the one that started last, of those to the last in the file. The step of a host row contains its start; the
step of a GPU activity is that of its launch.

Without profiler steps, or if the user gives a pattern, names of annotations mark steps, by that pattern or by
the rules in `step_rules`; in loops without marks, a step goes from one call of the data loader to the next,
or is an NVTX range that repeats. Of nested annotations that match, the outermost counts. The numbers of a
thread must rise; a pattern without a group numbers its annotations from 0.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tracewarehouse.ingest.columns import Ints
from tracewarehouse.ingest.naming import header_of
from tracewarehouse.ingest.tables.model import (
    LOADER,
    StepAnnotations,
    bigint_column,
    categories_with_role,
    encoded_texts,
    flags,
    group_numbers,
    is_slice,
    slabs,
    start_and_end,
    thread_numbers,
    used_texts,
    window,
)
from tracewarehouse.ingest.tables.recording import cut_off_steps, lost_steps
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Launches, Numbers, Rows, Times
    from tracewarehouse.ingest.tables.recording import Unrecorded


_ANNOTATION: Final = "user_annotation"
# The line of the steps of a TPU, whose operations have no launches.
_ON_GPU: Final = "gpu_user_annotation"
_OF_DEVICE: Final = "Steps"
_STEP_OF_DEVICE: Final = r"^([0-9]+)$"
_UNTIL_NEXT: Final = "until_next"
# A rule of the list applies only if it finds at least two different steps.
_LEAST_STEPS: Final = 2
# How often a range repeats, at least, and what is part of steps: collectives and operators.
_LEAST_REPEATED: Final = 3
_PARTS: Final = r"^(nccl|gloo|mpi|ucc|record_param_comms):|::"
_NSYS: Final = "nsys"


def _steps_by(columns: Columns, rules: Rules, annotations: Rows, pattern: str) -> StepAnnotations:
    names = columns.codes("name", annotations)
    used, texts = used_texts(names)
    selected = np.zeros(len(names.words), np.bool_)
    selected[used] = rules.matches(pattern, texts)
    if not selected.any():
        return _steps(columns, annotations[:0], np.zeros(0, np.int64))
    rows = _outermost(columns, annotations[names.where(selected)])
    threads = thread_numbers(columns, rows)
    found = rules.extracted(pattern, texts)
    if not any(found):
        # The position on the thread, from 0.
        first = np.flatnonzero(np.diff(threads, prepend=-1))
        lengths = np.diff(np.append(first, len(threads)))
        return _steps(columns, rows, np.arange(len(rows)) - np.repeat(first, lengths))
    numbers = np.full(len(names.words), -1, np.int64)
    numbers[used] = [-1 if number is None else number for number in rules.numbers(found, "BIGINT")]
    step = numbers[columns.codes("name", rows).codes]
    rows, step, threads = rows[step >= 0], step[step >= 0], threads[step >= 0]
    # The steps of the threads on which the numbers rise.
    falls = (threads[1:] == threads[:-1]) & (step[1:] <= step[:-1])
    rises = ~np.isin(threads, threads[1:][falls])
    return _steps(columns, rows[rises], step[rises])


def _steps_between(columns: Columns, pattern: str) -> StepAnnotations:
    """A step from each slice with a name that matches to the next one, on the thread with the most of them.

    The last step ends with the last slice of the thread.
    """
    names = flags(pc.match_substring_regex(columns.words("name"), pattern=pattern))
    selected = is_slice(columns) & columns.where("name", names) if names.any() else names[:0]
    rows = _outermost(columns, np.flatnonzero(selected).astype(np.int32))
    threads, count = np.unique(thread_numbers(columns, rows), return_counts=True)
    if not len(rows):
        return _steps(columns, rows, np.zeros(0, np.int64))
    thread = threads[count.argmax()]
    rows = rows[thread_numbers(columns, rows) == thread]
    of_thread = is_slice(columns) & (thread_numbers(columns, np.arange(columns.rows)) == thread)
    start, (_, last) = start_and_end(columns, rows)[0], window(columns, of_thread)
    end, order = np.append(start[1:], last), np.argsort(rows)
    return StepAnnotations(rows[order], order, start[order], end[order], inferred=True)


def _repeated(columns: Columns, rules: Rules, annotations: Rows) -> StepAnnotations:
    """Outermost ranges that repeat on a thread: of the name that covers most time, and half of its span."""
    names = columns.codes("name", annotations)
    used, texts = used_texts(names)
    may_be_step = np.zeros(len(names.words), np.bool_)
    may_be_step[used] = ~np.array(rules.matches(_PARTS, texts), np.bool_)
    rows = annotations[names.where(may_be_step)]
    group, count = _by_thread_and_name(columns, rows)
    rows = _outermost(columns, rows[count[group] >= _LEAST_REPEATED])
    group, count = _by_thread_and_name(columns, rows)
    start, end = start_and_end(columns, rows)
    span = _highest(group, end, len(count)) + _highest(group, -start, len(count))
    covered = np.bincount(group, end - start, len(count))
    covered *= (count >= _LEAST_REPEATED) & (2 * covered >= span)
    rows = rows[group == covered.argmax()] if covered.any() else rows[:0]
    return _steps(columns, rows, np.arange(len(rows)))


def _by_thread_and_name(columns: Columns, rows: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The group of each row, and the number of rows in each group."""
    group = group_numbers(columns.codes("name", rows).codes, thread_numbers(columns, rows))
    return group, np.bincount(group)


def _steps(columns: Columns, rows: Rows, step: Numbers) -> StepAnnotations:
    order = np.argsort(rows, kind="stable")
    return StepAnnotations(rows[order], step[order], *start_and_end(columns, rows[order]), inferred=True)


def _outermost(columns: Columns, rows: Rows) -> Rows:
    """The rows that are not inside another one on their thread, by thread and start."""
    start, end = start_and_end(columns, rows)
    threads = thread_numbers(columns, rows)
    order = np.lexsort((rows, start - end, start, threads))
    rows, start, end, threads = rows[order], start[order], end[order], threads[order]
    keep = np.ones(len(rows), np.bool_)
    for number in np.unique(threads):
        part = np.flatnonzero(threads == number)
        reached = np.maximum.accumulate(end[part])
        keep[part[1:]] = start[part[1:]] >= reached[:-1]
    return rows[keep]


_PREFIX: Final = "ProfilerStep#"
# Whole numbers of 64 bits have up to 19 digits.
_NUMBER: Final = late_regex("0*([0-9]{1,19})(?![0-9])")
_PHASES: Final = ("X", "B", "E", "i", "I", "C", "P", "R")
_INCOMPLETE: Final = ("lost_records", "cut_off", "no_gpu_work", "no_work")
_WORK: Final = ("cpu_op", "cuda_runtime", "cuda_driver")
# What PyTorch's profiler writes when it starts and when it stops to record.
_WINDOW_STARTS: Final = r"^(Iteration Start: PyTorch Profiler|PyTorch Profiler \(\d+\)$)"
_WINDOW_END: Final = "Record Window End"
_NO_STEP: Final = ("device", "device_annotation", "device_range", "device_event", "span")


def find_step_annotations(
    columns: Columns, rules: Rules, step_pattern: str | None = None, headers: Sequence[str] = ()
) -> tuple[StepAnnotations, ...]:
    """The annotations of each rank's steps; `headers` are those of the files."""
    found = []
    headers = headers or ["{}"] * len(columns.parts)
    for part, first, header in zip(columns.parts, columns.bounds.tolist()[:-1], headers, strict=True):
        alone = _of_rank(part, rules, step_pattern, header)
        found.append(replace(alone, rows=alone.rows + np.int32(first)))
    return tuple(found)


def _of_rank(columns: Columns, rules: Rules, step_pattern: str | None, header: str) -> StepAnnotations:
    """The annotations of all steps: profiler steps, else those by the first rule for names that applies.

    If there are none in an export of Nsight Systems, ranges that repeat are the steps. `step_pattern` is a
    pattern for names of annotations that is used in place of all these.
    """
    if step_pattern is None:
        numbers = _step_of_words(columns.words("name"))
        rows = np.flatnonzero(columns.where("name", numbers.valid)).astype(np.int32)
        rows = rows[columns.is_one_of("ph", ("X", "B"), rows) & columns.valid("dur_ns", rows)]
        rows = rows[columns.is_one_of("category", ("user_annotation", "cpu_op"), rows)]
        if len(rows):
            step = numbers.values[columns.codes("name", rows).codes]
            return StepAnnotations(rows, step, *start_and_end(columns, rows))
        if not columns.has("correlation"):
            on_device = is_slice(columns) & columns.is_one_of("tid", (_OF_DEVICE,))
            rows = np.flatnonzero(on_device & columns.is_one_of("category", (_ON_GPU,))).astype(np.int32)
            if len(rows):
                return replace(_steps_by(columns, rules, rows, _STEP_OF_DEVICE), on_device=True)
    selected = is_slice(columns) & columns.is_one_of("category", (_ANNOTATION,))
    rows = np.flatnonzero(selected).astype(np.int32)
    listed = rules.rows("step_rules")
    if step_pattern is not None:
        listed = [{"pattern": step_pattern, "extent": "annotation"}]
    for rule in listed:
        if rule["extent"] == _UNTIL_NEXT:
            steps = _steps_between(columns, rule["pattern"])
        else:
            steps = _steps_by(columns, rules, rows, rule["pattern"])
        if len(np.unique(steps.step)) >= (_LEAST_STEPS if step_pattern is None else 1):
            return steps
    if step_pattern is None and len(rows) and _NSYS in header_of(header):
        return _repeated(columns, rules, rows)
    return _steps(columns, rows[:0], np.zeros(0, np.int64))


def _step_of_words(words: pa.Array) -> Ints:
    """The step number in each name, valid where a name has one."""
    found = Ints(np.zeros(len(words), np.int64), np.zeros(len(words), np.bool_))
    selected = np.flatnonzero(flags(pc.starts_with(words, _PREFIX)))
    for word, text in zip(selected.tolist(), words.take(pa.array(selected)).to_pylist(), strict=True):
        number = _NUMBER.match(text, len(_PREFIX))
        if number is not None and int(number[1]) <= np.iinfo(np.int64).max:
            found.values[word], found.valid[word] = int(number[1]), True
    return found


def _step_edges(annotations: StepAnnotations) -> tuple[Times, NDArray[np.int32] | Numbers]:
    """Starts and ends, in turn, of the intervals between edges of annotations that belong to a step.

    The second array has the step after each number of them, 0 for none.
    """
    edges = np.unique(np.concatenate((annotations.start_ns, annotations.end_ns)))
    order = np.lexsort((annotations.rows, annotations.start_ns)).tolist()
    starts, ends = annotations.start_ns.tolist(), annotations.end_ns.tolist()
    open_: list[tuple[int, int]] = []  # the one that started last comes first
    selected, opened = [], 0
    for edge in edges[:-1].tolist():
        while opened < len(order) and starts[order[opened]] <= edge:
            heappush(open_, (-opened, order[opened]))
            opened += 1
        while open_ and ends[open_[0][1]] <= edge:
            heappop(open_)
        selected.append(open_[0][1] if open_ else -1)
    annotation = np.array(selected, np.int64)
    covered = np.flatnonzero(annotation >= 0)
    step = np.zeros(2 * len(covered) + 1, np.int64)
    step[1::2] = annotations.step[annotation[covered]]
    bounds = np.stack((edges[covered], edges[covered + 1]), axis=1).ravel()
    return bounds, step.astype(np.int32) if step.max() < 2**31 else step


def put_steps(
    columns: Columns, rules: Rules, annotations: Sequence[StepAnnotations], launches: Launches
) -> None:
    """Adds the column `step`, null outside all steps. Adds nothing if there are no steps."""
    edges_of = [_step_edges(each) for each in annotations]
    if not any(len(edges) for edges, _ in edges_of):
        return
    no_step = columns.is_one_of("category", categories_with_role(rules, *_NO_STEP))
    placed = columns.is_one_of("ph", _PHASES) & ~no_step
    found = np.zeros(columns.rows, np.int32)  # the number of edges up to a row: odd means inside a step
    bounds, linked = columns.bounds.tolist(), launches.runtime >= 0
    first = 0  # where the rank's edges begin among those of all ranks; their number is even
    for rank, (of_rank, (edges, _)) in enumerate(zip(columns.slices(launches.rows), edges_of, strict=True)):
        for part in slabs(bounds[rank + 1], first_row=bounds[rank]):
            ts = columns.ints("ts_ns", part)
            inside = placed[part] & ts.valid
            found[part] = first + np.searchsorted(edges, ts.values, side="right") * inside
        some = np.flatnonzero(linked[of_rank]) + of_rank.start
        found[launches.rows[some]] = first + np.searchsorted(edges, launches.call_ts_ns[some], side="right")
        if annotations[rank].on_device:
            own = launches.rows[of_rank]
            found[own] = first + np.searchsorted(edges, launches.ts_ns[of_rank], side="right")
        first += len(edges)
    step = np.concatenate([*(step[:-1] for _, step in edges_of), np.zeros(1, np.int32)])
    columns.put("step", step[found], (found & 1).astype(np.bool_))


def steps(
    columns: Columns, annotations: Sequence[StepAnnotations], launches: Launches, unrecorded: Unrecorded
) -> list[pa.Table]:
    """Table `steps` of each rank: host time, device time and period of each step."""
    return [
        _steps_of_rank(columns, annotations[rank], launches.part(some), unrecorded, rank)
        for rank, some in enumerate(columns.slices(launches.rows))
    ]


def _steps_of_rank(
    columns: Columns, annotations: StepAnnotations, launches: Launches, unrecorded: Unrecorded, rank: int
) -> pa.Table:
    """The steps of a rank, of its annotations and launches.

    The device time of a step goes from its first to its last GPU activity. Its period ends with its last GPU
    activity (with its annotation if it has none), but no earlier than the previous period: periods tile the
    profiling window. A step is also cut off if it begins before the window that the profiler recorded or was
    open at its end; if the file does not say which, if its host or device time touches the edge of what was
    recorded.
    """
    rows = slice(*columns.bounds[rank : rank + 2].tolist())
    step, number = np.unique(annotations.step, return_inverse=True)
    count = len(step)
    first = np.full(count, -1, np.int64)
    order = np.lexsort((annotations.rows, annotations.start_ns))[::-1]
    first[number[order]] = order  # the first of several annotations wins
    host_start, host_end = annotations.start_ns[first], _highest(number, annotations.end_ns, count)
    device_start, device_end, has_device = _device_intervals(columns, launches, step)
    by_start = np.lexsort((step, host_start))
    done, period_start = _periods(host_start, np.where(has_device, device_end, host_end), by_start)
    is_cut = np.isin(step, cut_off_steps(columns, unrecorded, rank))
    if (recorded := _recorded_window(columns, rows)) is not None:
        is_cut |= (host_start < recorded[0]) | (host_end >= recorded[1])
    elif count:
        is_cut |= _touches(host_start, host_end, *window(columns, columns.valid("pre"), rows))
        if has_device.any():
            first_ns, last_ns = int(launches.ts_ns.min()), int(launches.end_ns.max())
            is_cut |= has_device & _touches(device_start, device_end, first_ns, last_ns)
    is_outside = (launches.runtime >= 0) & ~columns.valid("step", launches.rows)
    is_idle = ~has_device & is_outside.any()
    has_lost = np.isin(step, lost_steps(columns, unrecorded, rank))
    has_no_work = np.zeros(count, np.bool_)
    if count and not has_device[last := int(by_start[-1])]:
        has_no_work[last] = _only_loads(columns, rows, host_start[last], host_end[last])
    reason = np.select([has_lost, is_cut, is_idle, has_no_work], range(4), -1)
    return pa.table(
        {
            "step": bigint_column(step),
            "event_id": bigint_column(annotations.rows[first]),
            "host_start_ns": bigint_column(host_start),
            "host_ns": bigint_column(host_end - host_start),
            "device_start_ns": bigint_column(device_start, has_device),
            "device_ns": bigint_column(device_end - device_start, has_device),
            "period_start_ns": bigint_column(period_start),
            "period_ns": bigint_column(done - period_start),
            "partial": pa.array(reason >= 0, pa.bool_()),
            "incomplete": encoded_texts(reason, _INCOMPLETE),
        }
    )


def _only_loads(columns: Columns, rows: slice, start_ns: int, end_ns: int) -> bool:
    """Whether a step loads data, and nothing else begins in it: the profiler stopped before its work."""
    loader = flags(pc.starts_with(columns.words("name"), LOADER))
    is_timed = is_slice(columns)[rows] & columns.valid("ts_ns", rows)
    loads = rows.start + np.flatnonzero(columns.where("name", loader, rows) & is_timed)
    load_start, load_end = (np.sort(each) for each in start_and_end(columns, loads.astype(np.int32)))
    work = rows.start + np.flatnonzero(columns.is_one_of("category", _WORK, rows) & is_timed)
    ts = columns.ints("ts_ns", work).values
    ts = ts[(start_ns <= ts) & (ts < end_ns)]
    before = np.searchsorted(load_start, ts, side="right") - 1
    is_loading = before >= 0
    is_loading[is_loading] = ts[is_loading] < load_end[before[is_loading]]
    return bool(((start_ns <= load_start) & (load_start < end_ns)).any() and is_loading.all())


def _recorded_window(columns: Columns, rows: slice) -> tuple[int, int] | None:
    """From when to when PyTorch's profiler recorded, as its file says; None if it does not."""
    starts = flags(pc.match_substring_regex(columns.words("name"), _WINDOW_STARTS))
    ends = flags(pc.equal(columns.words("name"), _WINDOW_END))
    if not starts.any() or not ends.any():
        return None
    is_mark = columns.where("name", starts | ends, rows) & columns.valid("ts_ns", rows)
    marks = rows.start + np.flatnonzero(is_mark)
    is_end = columns.where("name", ends, marks)
    if not is_end.any() or is_end.all():
        return None
    start = columns.ints("ts_ns", marks).values
    end = start + np.where(columns.valid("dur_ns", marks), columns.ints("dur_ns", marks).values, 0)
    return int(start[~is_end].min()), int(end.max())


def _highest(groups: NDArray[np.integer], values: Times, count: int) -> Times:
    found = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(found, groups, values)
    return found


def _device_intervals(columns: Columns, launches: Launches, steps_: Times) -> tuple[Times, Times, Flags]:
    """Start of the first and end of the last GPU activity of each step, 0 for none; whether there is one."""
    count = len(steps_)
    start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    step = columns.ints("step", launches.rows)
    if not step.valid.any():
        return start, end, np.zeros(count, np.bool_)
    group = np.searchsorted(steps_, step.values[step.valid])
    ts = launches.ts_ns[step.valid]
    has_activity = np.bincount(group, minlength=count) > 0
    ends = _highest(group, launches.end_ns[step.valid], count)
    start[has_activity], end[has_activity] = ~_highest(group, ~ts, count)[has_activity], ends[has_activity]
    return start, end, has_activity


def _periods(host_start: Times, end: Times, order: NDArray[np.integer]) -> tuple[Times, Times]:
    """The end and the start of each step's period; `order` sorts the steps by start."""
    done, begin = np.empty_like(host_start), np.empty_like(host_start)
    reached = np.maximum(host_start[order], np.maximum.accumulate(end[order]))
    done[order] = reached
    begin[order[:1]] = host_start[order[:1]]
    begin[order[1:]] = reached[:-1]
    return done, begin


def _touches(start: Times, end: Times, first: int, last: int) -> Flags:
    return (start <= first) | (end >= last)
