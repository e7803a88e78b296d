"""Steps of traces without profiler steps, inferred from annotations by their names.

The rules are those of `step_rules`, or one pattern of the user. Of nested annotations that match, the
outermost counts. The numbers of a thread must rise; a pattern without a group numbers its annotations from 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tracewarehouse.ingest.tables.model import StepAnnotations
from tracewarehouse.ingest.tables.rows import is_slice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Rows

    Numbers = NDArray[np.int64]

_ANNOTATION: Final = "user_annotation"
# A rule of the list applies only if it finds at least two different steps.
_LEAST_STEPS: Final = 2


def infer_steps(columns: Columns, rules: Rules, pattern: str | None = None) -> StepAnnotations:
    """The annotations that mark steps by the first rule that applies, or by the given pattern.

    Without a rule that applies there are no steps.
    """
    annotations = np.flatnonzero(is_slice(columns) & columns.is_one_of("category", (_ANNOTATION,))).astype(
        np.int32
    )
    for each in rules.step_patterns if pattern is None else [pattern]:
        found = _steps_by(columns, rules, annotations, each)
        if len(np.unique(found.step)) >= (_LEAST_STEPS if pattern is None else 1):
            return found
    return _steps(columns, annotations[:0], np.zeros(0, np.int64))


def _steps_by(columns: Columns, rules: Rules, annotations: Rows, pattern: str) -> StepAnnotations:
    names = columns.codes("name", annotations)
    used = np.unique(names.codes[names.codes >= 0])
    texts = names.words.take(pa.array(used)).to_pylist()
    selected = np.zeros(len(names.words), np.bool_)
    selected[used] = rules.matches(pattern, texts)
    rows = annotations[names.where(selected)]
    rows = _outermost(columns, rows)
    found = rules.extracted(pattern, texts, 1)
    if not any(found):
        return _steps(columns, rows, _ordinals(columns, rows))
    numbers = np.full(len(names.words), -1, np.int64)
    numbers[used] = [-1 if number is None else number for number in rules.whole_numbers(found)]
    step = numbers[columns.codes("name", rows).codes]
    return _rising(columns, rows[step >= 0], step[step >= 0])


def _steps(columns: Columns, rows: Rows, step: Numbers) -> StepAnnotations:
    order = np.argsort(rows, kind="stable")
    rows, step = rows[order], step[order]
    start = columns.ints("ts_ns", rows).values
    return StepAnnotations(rows, step, start, start + columns.ints("dur_ns", rows).values)


def _threads(columns: Columns, rows: Rows) -> Numbers:
    """A number per process and thread."""
    pid, tid = columns.codes("pid", rows).codes, columns.codes("tid", rows).codes
    return pid.astype(np.int64) << 32 | (tid.astype(np.int64) + 1)


def _outermost(columns: Columns, rows: Rows) -> Rows:
    """The rows that are not inside another one on their thread, by thread and start."""
    start, length = columns.ints("ts_ns", rows).values, columns.ints("dur_ns", rows).values
    threads = _threads(columns, rows)
    order = np.lexsort((rows, -length, start, threads))
    rows, start, threads = rows[order], start[order], threads[order]
    end = start + length[order]
    keep = np.ones(len(rows), np.bool_)
    for number in np.unique(threads):
        part = np.flatnonzero(threads == number)
        reached = np.maximum.accumulate(end[part])
        keep[part[1:]] = start[part[1:]] >= reached[:-1]
    return rows[keep]


def _ordinals(columns: Columns, rows: Rows) -> Numbers:
    """The position of each row on its thread, from 0; `rows` are sorted by thread and start."""
    threads = _threads(columns, rows)
    first = np.flatnonzero(np.diff(threads, prepend=-1))
    lengths = np.diff(np.append(first, len(threads)))
    return np.arange(len(rows)) - np.repeat(first, lengths)


def _rising(columns: Columns, rows: Rows, step: Numbers) -> StepAnnotations:
    """The steps of the threads on which the numbers rise; `rows` are sorted by thread and start."""
    threads = _threads(columns, rows)
    falls = (threads[1:] == threads[:-1]) & (step[1:] <= step[:-1])
    good = ~np.isin(threads, threads[1:][falls])
    return _steps(columns, rows[good], step[good])
