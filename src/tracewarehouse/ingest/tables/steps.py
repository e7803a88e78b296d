"""Profiler steps: their marks on the host, the time that belongs to each, and the step of every row.

A mark is a slice `ProfilerStep#N` among annotations or operators. Where marks overlap, time belongs to the
one that started last, of those to the last in the file. A host row has the step that holds its start, a GPU
row that of its launch.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.ingest.columns import Ints
from tracewarehouse.ingest.tables.made import numbers
from tracewarehouse.ingest.tables.model import StepMarks, StepSpans
from tracewarehouse.ingest.tables.rows import categories
from tracewarehouse.ingest.tables.step_rules import infer_marks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags, Launches, Times

_PREFIX: Final = "ProfilerStep#"
_NUMBER: Final = "^ProfilerStep#([0-9]+)"
_PHASES: Final = ("X", "B", "E", "i", "I", "C", "P", "R")
_NO_STEP: Final = ("device", "device_annotation", "device_range", "device_event", "span")
_SLAB_ROWS: Final = 1 << 20


def find_marks(columns: Columns, rules: Rules, step_range: str | None = None) -> StepMarks:
    """The marks of all steps: profiler steps, else annotations by the rules for names of steps.

    `step_range` is a pattern for names of annotations that takes precedence over both.
    """
    if step_range is None:
        marks = _profiler_marks(columns, rules)
        if len(marks.rows):
            return marks
    return replace(infer_marks(columns, rules, step_range), inferred=True)


def _profiler_marks(columns: Columns, rules: Rules) -> StepMarks:
    steps = _step_of_words(columns.words("name"), rules)
    rows = np.flatnonzero(columns.where("name", steps.valid)).astype(np.int32)
    rows = rows[columns.is_one_of("ph", ("X", "B"), rows) & columns.valid("dur_ns", rows)]
    rows = rows[columns.is_one_of("category", ("user_annotation", "cpu_op"), rows)]
    start = columns.ints("ts_ns", rows).values
    end = start + columns.ints("dur_ns", rows).values
    return StepMarks(rows, steps.values[columns.codes("name", rows).codes], start, end)


def _step_of_words(words: pa.Array, rules: Rules) -> Ints:
    """The step that each name tells, and which names tell one."""
    found = Ints(np.zeros(len(words), np.int64), np.zeros(len(words), np.bool_))
    selected = np.flatnonzero(pc.starts_with(words, _PREFIX).to_numpy(zero_copy_only=False).astype(np.bool_))
    texts = words.take(pa.array(selected)).to_pylist()
    told = rules.whole_numbers(rules.extracted(_NUMBER, texts, 1)) if texts else []
    for word, step in zip(selected.tolist(), told, strict=True):
        if step is not None:
            found.values[word], found.valid[word] = step, True
    return found


def find_spans(marks: StepMarks) -> StepSpans:
    """Stretches between edges of marks that a mark covers, each of the last that started."""
    edges = np.unique(np.concatenate((marks.start_ns, marks.end_ns)))
    order = np.lexsort((marks.rows, marks.start_ns)).tolist()
    starts, ends = marks.start_ns.tolist(), marks.end_ns.tolist()
    open_: list[tuple[int, int]] = []  # the last of all that started comes first
    selected, taken = [], 0
    for edge in edges[:-1].tolist():
        while taken < len(order) and starts[order[taken]] <= edge:
            heappush(open_, (-taken, order[taken]))
            taken += 1
        while open_ and ends[open_[0][1]] <= edge:
            heappop(open_)
        selected.append(open_[0][1] if open_ else -1)
    mark = np.array(selected, np.int64)
    covered = np.flatnonzero(mark >= 0)
    return StepSpans(marks.step[mark[covered]], edges[covered], edges[covered + 1])


def put_steps(columns: Columns, rules: Rules, spans: StepSpans, launches: Launches) -> None:
    """Adds the column `step`; none where there is no step."""
    if not len(spans.step):
        return
    edges, steps_ = _edges(spans)
    placed = columns.is_one_of("ph", _PHASES)
    placed &= ~columns.is_one_of("category", categories(rules, *_NO_STEP))
    found = np.zeros(columns.rows, np.int32)  # the number of edges up to a row: in a span where odd
    for low in range(0, columns.rows, _SLAB_ROWS):
        part = slice(low, low + _SLAB_ROWS)
        ts = columns.ints("ts_ns", part)
        found[part] = np.searchsorted(edges, ts.values, side="right") * (placed[part] & ts.valid)
    linked = launches.runtime >= 0
    found[launches.rows[linked]] = np.searchsorted(edges, launches.call_ts_ns[linked], side="right")
    columns.put("step", steps_[found], (found & 1).astype(np.bool_))


def _edges(spans: StepSpans) -> tuple[Times, NDArray[np.int32] | NDArray[np.int64]]:
    """Starts and ends in turn, and the step after as many of them, 0 where there is none."""
    edges = np.stack((spans.start_ns, spans.end_ns), axis=1).ravel()
    steps_ = np.zeros(len(edges) + 1, np.int64)
    steps_[1::2] = spans.step
    return edges, steps_.astype(np.int32) if spans.step.max() < 2**31 else steps_


def steps(columns: Columns, marks: StepMarks, launches: Launches) -> pa.Table:
    """Table `steps`: when the host ran each step, when the GPU did, and how long until the next was done.

    A step's device span goes from the first to the last GPU row that was launched in it. Its period ends with
    its last GPU row, of its mark without one, though no earlier than the period before: periods tile the
    window. It is partial where its spans touch the edge of the window.
    """
    step, number = np.unique(marks.step, return_inverse=True)
    count = len(step)
    first = np.full(count, -1, np.int64)
    order = np.lexsort((marks.rows, marks.start_ns))[::-1]
    first[number[order]] = order  # of several marks the first is kept
    host_start, host_end = marks.start_ns[first], _highest(number, marks.end_ns, count)
    device_start, device_end, has_device = _device_spans(columns, launches, step)
    by_start = np.lexsort((step, host_start))
    done, period_start = _periods(host_start, np.where(has_device, device_end, host_end), by_start)
    partial = _touch(host_start, host_end, *_host_window(columns)) if count else np.zeros(0, np.bool_)
    if has_device.any():
        ends = launches.ts_ns + columns.ints("dur_ns", launches.rows).values
        partial |= has_device & _touch(device_start, device_end, int(launches.ts_ns.min()), int(ends.max()))
    return pa.table(
        {
            "step": numbers(step),
            "event_id": numbers(marks.rows[first]),
            "host_start_ns": numbers(host_start),
            "host_ns": numbers(host_end - host_start),
            "device_start_ns": numbers(device_start, has_device),
            "device_ns": numbers(device_end - device_start, has_device),
            "period_start_ns": numbers(period_start),
            "period_ns": numbers(done - period_start),
            "partial": pa.array(partial, pa.bool_()),
        }
    )


def _highest(groups: NDArray[np.integer], values: Times, count: int) -> Times:
    found = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(found, groups, values)
    return found


def _device_spans(columns: Columns, launches: Launches, steps_: Times) -> tuple[Times, Times, Flags]:
    """Start of the first and end of the last GPU row of each step, 0 without, and whether there is one."""
    count = len(steps_)
    start, end = np.zeros(count, np.int64), np.zeros(count, np.int64)
    step = columns.ints("step", launches.rows)
    if not step.valid.any():
        return start, end, np.zeros(count, np.bool_)
    group = np.searchsorted(steps_, step.values[step.valid])
    ts = launches.ts_ns[step.valid]
    has = np.bincount(group, minlength=count) > 0
    ends = _highest(group, ts + columns.ints("dur_ns", launches.rows[step.valid]).values, count)
    start[has], end[has] = ~_highest(group, ~ts, count)[has], ends[has]
    return start, end, has


def _periods(host_start: Times, end: Times, order: NDArray[np.integer]) -> tuple[Times, Times]:
    """The end of each step's period and its start; `order` is that of the steps."""
    done, begin = np.empty_like(host_start), np.empty_like(host_start)
    reached = np.maximum(host_start[order], np.maximum.accumulate(end[order]))
    done[order] = reached
    begin[order[:1]] = host_start[order[:1]]
    begin[order[1:]] = reached[:-1]
    return done, begin


def _host_window(columns: Columns) -> tuple[int, int]:
    """From the first start to the last end of all that nests."""
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for low in range(0, columns.rows, _SLAB_ROWS):
        part = slice(low, low + _SLAB_ROWS)
        nests = columns.ints("pre", part).valid
        ts = columns.ints("ts_ns", part).values[nests]
        end = ts + columns.ints("dur_ns", part).values[nests]
        first = min(first, int(ts.min(initial=first)))
        last = max(last, int(end.max(initial=last)))
    return first, last


def _touch(start: Times, end: Times, first: int, last: int) -> Flags:
    return (start <= first) | (end >= last)
