"""Batches of a scanner until the end of the file: secrets replaced, flagged rows filled, kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tracewarehouse.formats.kineto import row_path
from tracewarehouse.formats.kineto.batch import ODD, SLOW, SUBNS, Batch
from tracewarehouse.formats.kineto.columns import BatchColumns
from tracewarehouse.formats.kineto.kept import FileFacts, kept
from tracewarehouse.formats.kineto.secrets import SecretSearch
from tracewarehouse.formats.kineto.time_unit import TimeUnit
from tracewarehouse.formats.kineto.words import Dictionaries
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.spill import Spill

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Gathered:
    """The batches of one file so far."""

    def __init__(self, redactor: Redactor, spill: Path, *, in_ns: bool = False) -> None:
        self._in_ns = in_ns
        self.words = Dictionaries()
        self.facts = FileFacts()
        self.secrets = SecretSearch(redactor)
        self.batches = Spill(spill)
        self.time_unit = TimeUnit()
        self.rows = 0

    def add(self, found: Iterable[Batch]) -> None:
        """Further batches, in file order."""
        for batch in found:
            self._add(batch)

    def close(self) -> None:
        """Forgets all batches."""
        self.batches.close()

    def _add(self, batch: Batch) -> None:
        self.words.begin(batch.words, batch.restarted)
        columns = BatchColumns.of(batch)
        self.secrets.clean_batch(batch, columns, self.rows, self.words)
        if (batch.flags & (ODD | SLOW | SUBNS)).any():
            self._fill(batch, columns)
        if self._in_ns:
            row_path.to_ns(columns, np.flatnonzero((batch.flags & (ODD | SUBNS)) == 0))
        self.time_unit.add_times(columns)
        self.facts.add(columns, self.rows, self.words)
        self.batches.add(kept(columns, self.words))
        self.rows += batch.rows

    def _fill(self, batch: Batch, columns: BatchColumns) -> None:
        odd = np.flatnonzero(batch.flags & ODD)
        if odd.size:
            texts = self.secrets.clean_elements(_texts(batch, odd), odd + self.rows)
            row_path.fill_odd(columns, odd, texts, self.words, in_ns=self._in_ns)
        typed = np.flatnonzero(batch.flags & (ODD | SLOW))
        if typed.size:
            row_path.fill_arguments(columns, typed, self.words)
        fractions = np.flatnonzero((batch.flags & (ODD | SUBNS)) == SUBNS)
        if fractions.size:
            texts = _texts(batch, fractions).to_pylist()
            row_path.fill_times(columns, fractions, texts, in_ns=self._in_ns)


def _texts(batch: Batch, rows: NDArray[np.int64]) -> pa.Array:
    texts = batch.texts["text"]
    return texts if len(rows) == batch.rows else texts.take(pa.array(rows))
