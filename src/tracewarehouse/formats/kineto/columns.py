"""The columns of a batch while the row path and the redaction change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto.batch import COLLECTIVE, Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


@dataclass
class Fractions:
    """Of rows whose times have digits below a nanosecond: millionths of a nanosecond to add to `ts` and `dur`.

    `rows` are positions in the batch. In these rows `ts_text` and `dur_text` are always the file's digits.
    """

    rows: Rows
    ts: NDArray[np.int32]
    dur: NDArray[np.int32]


@dataclass
class BatchColumns:
    """As in a Batch; codes below -1 are words of the row path."""

    rows: int
    codes: dict[str, NDArray[np.int32]]
    ints: dict[str, tuple[NDArray[np.int64], NDArray[np.bool_]]]
    doubles: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]
    texts: dict[str, pa.Array]
    collective: NDArray[np.bool_]
    fractions: Fractions | None = None

    @classmethod
    def of(cls, batch: Batch) -> BatchColumns:
        """The columns of a scanner's batch."""
        return cls(
            batch.rows,
            dict(batch.codes),
            {name: (values, valid) for name, (values, valid) in batch.ints.items()},
            {name: (values, valid) for name, (values, valid) in batch.doubles.items()},
            {name: texts for name, texts in batch.texts.items() if name != "text"},
            (batch.flags & COLLECTIVE) > 0,
        )

    def set_codes(self, name: str, rows: Rows, codes: NDArray[np.int32]) -> None:
        """Replaces the codes of these rows."""
        if name not in self.codes:
            if (codes == -1).all():
                return
            self.codes[name] = np.full(self.rows, -1, np.int32)
        self.codes[name][rows] = codes

    def set_ints(self, name: str, rows: Rows, values: NDArray[np.int64], valid: NDArray[np.bool_]) -> None:
        """Replaces the numbers of these rows."""
        _set(self.ints, name, self.rows, rows, values, valid)

    def set_doubles(
        self, name: str, rows: Rows, values: NDArray[np.float64], valid: NDArray[np.bool_]
    ) -> None:
        """Replaces the numbers of these rows."""
        _set(self.doubles, name, self.rows, rows, values, valid)

    def set_texts(self, name: str, rows: Rows, texts: pa.Array) -> None:
        """Replaces the texts of these rows."""
        if len(rows) == self.rows:
            self.texts[name] = texts
            return
        before = self.texts.get(name)
        if before is None:
            if texts.null_count == len(texts):
                return
            before = pa.nulls(self.rows, pa.string())
        mask = np.zeros(self.rows, np.bool_)
        mask[rows] = True
        self.texts[name] = pc.replace_with_mask(before, pa.array(mask), texts)

    def add_fractions(self, found: Fractions) -> None:
        """Further rows whose times have digits below a nanosecond."""
        before = self.fractions
        if before is not None:
            found = Fractions(
                np.concatenate([before.rows, found.rows]),
                np.concatenate([before.ts, found.ts]),
                np.concatenate([before.dur, found.dur]),
            )
        self.fractions = found


def _set(columns: dict, name: str, count: int, rows: Rows, values: NDArray, valid: NDArray[np.bool_]) -> None:  # type: ignore[type-arg]
    if name not in columns:
        if not valid.any():
            return
        columns[name] = np.zeros(count, values.dtype), np.zeros(count, np.bool_)
    columns[name][0][rows] = values
    columns[name][1][rows] = valid
