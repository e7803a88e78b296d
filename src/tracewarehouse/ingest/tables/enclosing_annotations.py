"""Annotations that enclose a call: those of its process and thread that are open at its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from tracewarehouse.ingest.tables.model import PASSES
from tracewarehouse.ingest.tables.search import last_before, last_reaching

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.tables.model import Nesting, Rows, Times


_ANNOTATION_PASSES: Final = (("Optimizer.", "optimizer"), ("enumerate(DataLoader)#", "data"))


@dataclass(frozen=True)
class Annotations:
    """Annotations in nesting order, with the lane of each and the pass that its name implies, -1 for none."""

    columns: Columns
    rows: Rows
    lane: NDArray[np.int64]
    start_ns: Times
    end_ns: Times
    pass_: NDArray[np.int8]

    def enclosing(self, calls: Rows, ts: Times) -> tuple[Rows, NDArray[np.int8], Times]:
        """The innermost annotation of each call, and pass and start of the innermost one that implies a pass.

        All are -1 for none.
        """
        if not self.rows.size or not len(calls):
            none = np.full(len(calls), -1, np.int32)
            return none, none.astype(np.int8), none.astype(np.int64)
        latest = self._latest(calls, ts)
        inner = self._open(np.arange(len(self.rows)), latest, ts)
        with_pass = np.flatnonzero(self.pass_ >= 0)
        pass_ = np.append(with_pass, -1)[self._open(with_pass, latest, ts)]
        has_pass = pass_ >= 0
        return (
            np.where(inner >= 0, self.rows[inner], np.int32(-1)),
            np.where(has_pass, self.pass_[pass_], np.int8(-1)),
            np.where(has_pass, self.start_ns[pass_], -1),
        )

    def _latest(self, calls: Rows, ts: Times) -> NDArray[np.int64]:
        """The last annotation on each call's process and thread that started by its start, -1 for none."""
        pid, tid = self.columns.codes("pid", calls).codes, self.columns.codes("tid", calls).codes
        found = last_before(self._threads(self.rows), self.start_ns, self._threads(calls), ts)
        found[(pid < 0) | (tid < 0)] = -1
        return found

    def _threads(self, rows: Rows) -> NDArray[np.int64]:
        pid, tid = self.columns.codes("pid", rows), self.columns.codes("tid", rows)
        return pid.codes.astype(np.int64) * (len(tid.words) + 1) + tid.codes

    def _open(self, some: NDArray[np.int64], latest: NDArray[np.int64], ts: Times) -> NDArray[np.int64]:
        """The index in `some` of the last annotation up to `latest` that ends after the time; -1 for none."""
        found = last_reaching(self.end_ns[some], np.searchsorted(some, latest, side="right"), ts)
        same = (found >= 0) & (latest >= 0)
        same[same] = self.lane[some[found[same]]] == self.lane[latest[same]]
        return np.where(same, found, -1)


def find_annotations(columns: Columns, nesting: Nesting) -> Annotations:
    """All annotations on host threads."""
    is_annotation = columns.is_one_of("category", ("user_annotation",), nesting.rows)
    positions = np.flatnonzero(is_annotation)
    rows = nesting.rows[positions]
    start = columns.ints("ts_ns", rows).values
    names = columns.codes("name", rows)
    return Annotations(
        columns,
        rows,
        np.searchsorted(nesting.lanes, positions, side="right"),
        start,
        start + columns.ints("dur_ns", rows).values,
        _passes(names.words)[names.codes],
    )


def _passes(words: pa.Array) -> NDArray[np.int8]:
    """The pass that each annotation name implies, -1 for none."""
    found = np.full(len(words) + 1, -1, np.int8)
    for prefix, name in _ANNOTATION_PASSES:
        selected = pc.starts_with(words, prefix).to_numpy(zero_copy_only=False).astype(np.bool_)
        found[:-1][selected] = PASSES.index(name)
    return found
