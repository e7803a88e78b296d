"""Columns of one rank: the id of an event is its row number.

Builders read columns by name, whole or for some rows, as NumPy arrays or as Arrow. `Columns` holds them in
memory as the format returned them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import Doubles as Doubles
from tracewarehouse.formats.base import Ints as Ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.integer] | slice | None


class Codes(NamedTuple):
    """Texts as indexes into `words`, -1 for null. Equal texts have equal codes."""

    codes: NDArray[np.int32]
    words: pa.Array

    def where(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the text of each row is selected; `wanted` has one entry per word. False for null."""
        return np.take(np.append(wanted, False), self.codes, mode="wrap")  # -1 is the last

    def is_one_of(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Whether each row's text is one of these."""
        return self.where(among(self.words, texts))


def among(words: pa.Array, texts: Iterable[str]) -> NDArray[np.bool_]:
    """Whether each word is one of these texts."""
    selected = pc.is_in(words, value_set=pa.array(list(texts), pa.string()))
    return selected.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


class Columns:
    """Activities of a rank, and the columns that builders computed for them."""

    def __init__(self, rows: int, columns: Mapping[str, pa.ChunkedArray]) -> None:
        self.rows = rows
        self._arrow = dict(columns)
        self._ints: dict[str, Ints] = {}
        self._codes: dict[str, Codes] = {}

    @classmethod
    def read(cls, reader: pa.RecordBatchReader) -> Columns:
        """All columns of all batches, in memory."""
        table = reader.read_all()
        found = {name: table.column(name) for name in table.column_names}
        return cls(table.num_rows, {name: _unified(column) for name, column in found.items()})

    def has(self, name: str) -> bool:
        """Whether any row has a value."""
        column = self._arrow.get(name)
        return column is not None and column.null_count < len(column)

    def ints(self, name: str, rows: Rows = None) -> Ints:
        """A BIGINT column, or the given rows of it."""
        if name not in self._ints:
            self._ints[name] = self._read_ints(name)
        found = self._ints[name]
        return found if rows is None else Ints(found.values[rows], found.valid[rows])

    def doubles(self, name: str, rows: Rows = None) -> Doubles:
        """A DOUBLE column, or the given rows of it."""
        column = self._taken(name, rows, pa.float64())
        valid = _valid(column)
        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        return Doubles(values, valid)

    def flags(self, name: str, rows: Rows = None) -> NDArray[np.bool_]:
        """A BOOLEAN column, or the given rows of it; null is False."""
        column = self._taken(name, rows, pa.bool_())
        return pc.fill_null(column, False).to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]

    def valid(self, name: str, rows: Rows = None) -> NDArray[np.bool_]:
        """Which rows have a value of a BIGINT column."""
        return self.ints(name, rows).valid

    def codes(self, name: str, rows: Rows = None) -> Codes:
        """A text column as codes, or the given rows of it."""
        if name not in self._codes:
            self._codes[name] = self._read_codes(name)
        found = self._codes[name]
        return found if rows is None else Codes(found.codes[rows], found.words)

    def words(self, name: str) -> pa.Array:
        """The words that the codes of a text column index."""
        return self.codes(name).words

    def where(self, name: str, wanted: NDArray[np.bool_], rows: Rows = None) -> NDArray[np.bool_]:
        """Whether the text of each row is selected; `wanted` has one entry per word. False for null."""
        return self.codes(name, rows).where(wanted)

    def is_one_of(self, name: str, texts: Iterable[str], rows: Rows = None) -> NDArray[np.bool_]:
        """Whether the text of each row is one of these."""
        return self.where(name, among(self.words(name), texts), rows)

    def texts(self, name: str, rows: Rows = None) -> pa.Array:
        """A text column, or the given rows of it, decoded."""
        column = self._taken(name, rows, pa.string())
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    def arrow(self, name: str, rows: Rows = None) -> pa.Array:
        """A column as Arrow, dictionary-encoded if it is stored so; all null if it does not exist."""
        return self._taken(name, rows, pa.null())

    def put(self, name: str, values: NDArray[np.generic], valid: NDArray[np.bool_] | None = None) -> None:
        """Adds a computed column of numbers or booleans, one value per row."""
        mask = None if valid is None else ~valid
        self._arrow[name] = pa.chunked_array([pa.array(values, mask=mask)])
        self._ints.pop(name, None)

    def _taken(self, name: str, rows: Rows, type_: pa.DataType) -> pa.Array:
        column = self._arrow.get(name)
        if column is None:
            count = (
                self.rows
                if rows is None
                else len(range(self.rows)[rows] if isinstance(rows, slice) else rows)
            )
            return pa.nulls(count, type_)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.rows)
            column = column.slice(start, stop - start)
        elif rows is not None:
            column = _rows_of(column, rows)
        if column.num_chunks == 1:
            return column.chunk(0)
        found = column.combine_chunks()
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def _read_ints(self, name: str) -> Ints:
        column = self._taken(name, None, pa.int64())
        valid = _valid(column)
        values = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        return Ints(values, valid)

    def _read_codes(self, name: str) -> Codes:
        column = self._taken(name, None, pa.string())
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        codes = pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        return Codes(codes, column.dictionary)


def _rows_of(column: pa.ChunkedArray, rows: NDArray[np.integer]) -> pa.ChunkedArray:
    """The given rows; ascending ones are taken chunk by chunk, as Arrow would first join all chunks."""
    if column.num_chunks <= 1 or not (rows[1:] >= rows[:-1]).all():
        return column.take(pa.array(rows))
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    cuts = [0, *np.searchsorted(rows, ends).tolist()]
    starts = [0, *ends.tolist()]
    parts = [
        chunk.take(pa.array(rows[low:high] - start))
        for chunk, start, low, high in zip(column.chunks, starts, cuts, cuts[1:], strict=False)
        if high > low
    ]
    return pa.chunked_array(parts, column.type)


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    return column.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)  # type: ignore[no-any-return]


def _unified(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column
