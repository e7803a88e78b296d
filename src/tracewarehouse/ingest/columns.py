"""The columns of one rank, in memory or, if they do not fit, in a file.

Builders read columns by name, whole or for some rows, as NumPy arrays or as Arrow. `Columns` holds them in
memory as the format returned them.

The file is unlinked as soon as it is open, so it disappears with the process. Numbers are stored in the
smallest integer type that fits each chunk. Loaded values are not cached.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.formats.base import ACTIVITIES, array_of, valid_of, values_of
from tracewarehouse.formats.base import Ints as Ints
from tracewarehouse.ingest.resources import is_large, release_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    _Rows = NDArray[np.integer] | slice
    Rows = _Rows | None


class Codes(NamedTuple):
    """Texts as indexes into `words`, -1 for null. Equal texts have equal codes."""

    codes: NDArray[np.int32]
    words: pa.Array

    def where(self, word_mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the text of each row is selected; `word_mask` has one entry per word. False for null."""
        return np.take(np.append(word_mask, False), self.codes, mode="wrap")  # -1 is the last

    def is_one_of(self, texts: Iterable[str]) -> NDArray[np.bool_]:
        """Whether each row's text is one of these."""
        return self.where(among(self.words, texts))


def picked(values: NDArray[Any], rows: _Rows) -> NDArray[Any]:
    """The values of these rows; by `take`, which NumPy does in two thirds of the time of an index."""
    return values[rows] if isinstance(rows, slice) else values.take(rows)


def among(words: pa.Array, texts: Iterable[str]) -> NDArray[np.bool_]:
    """Whether each word is one of these texts."""
    selected = pc.is_in(words, value_set=pa.array(list(texts), pa.string()))
    return selected.to_numpy(zero_copy_only=False).astype(np.bool_)  # type: ignore[no-any-return]


# Keys of different ranks are this far apart: those of a rank must be smaller.
APART: Final = 1 << 56


# With as many rows, answers for all of them take too much memory to be kept.
_MANY_ROWS: Final = 1 << 20


class Columns:
    """Activities of a rank, and the columns that builders computed for them.

    Several small ranks may be joined, one after the other: the rows of rank number k of `parts` are those
    from `bounds[k]` to `bounds[k + 1]`.
    """

    def __init__(self, rows: int, columns: Mapping[str, pa.ChunkedArray]) -> None:
        self.rows = rows
        # Not itself: memory would be freed only by a garbage collection.
        self._parts: Sequence[Columns] = ()
        self._arrow = dict(columns)
        self._ints: dict[str, Ints] = {}
        self._codes: dict[str, Codes] = {}
        # Answers for all rows, by column and texts.
        self._masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    @classmethod
    def read(cls, reader: pa.RecordBatchReader) -> Columns:
        """All columns of all batches, in memory."""
        table = reader.read_all()
        columns = {name: table.column(name) for name in table.column_names}
        return cls(table.num_rows, {name: _unified(column) for name, column in columns.items()})

    @property
    def parts(self) -> Sequence[Columns]:
        """The ranks that were joined; a single one is itself."""
        return self._parts or (self,)

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """The rows of several ranks, one after the other; `end_id` counts from the first of all rows."""
        rows = sum(part.rows for part in parts)
        names = dict.fromkeys(name for part in parts for name in part._arrow)
        joined = cls(
            rows, {name: _one_column([part._arrow.get(name) for part in parts], parts) for name in names}
        )
        joined._parts = parts
        ends = joined.ints("end_id")
        if len(parts) > 1 and ends.valid.any():
            joined.put("end_id", ends.values + joined.bounds[joined.rank_index(slice(None))], ends.valid)
        return joined

    @property
    def bounds(self) -> NDArray[np.int64]:
        """The first row of each rank, and the number of rows."""
        counts = [self.rows] if len(self.parts) == 1 else [part.rows for part in self.parts]
        return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))

    def rank_index(self, rows: NDArray[np.integer] | slice) -> NDArray[np.int64]:
        """The number in `parts` of each row's rank."""
        rows = np.arange(self.rows)[rows] if isinstance(rows, slice) else rows
        if len(self.parts) == 1:
            return np.broadcast_to(np.int64(0), len(rows))
        return np.searchsorted(self.bounds, rows, side="right") - 1

    def slices(self, rows: NDArray[np.integer]) -> Iterator[slice]:
        """The positions of each rank's rows, which are in order of rank."""
        edges = np.searchsorted(self.rank_index(rows), np.arange(len(self.parts) + 1))
        return (slice(low, high) for low, high in itertools.pairwise(edges.tolist()))

    def apart(self, keys: NDArray[Any], rows: NDArray[np.integer] | slice) -> NDArray[Any]:
        """Keys of these rows that differ between ranks; negative ones stay."""
        if len(self.parts) == 1:
            return keys
        return np.where(keys < 0, keys, keys + self.rank_index(rows) * APART)

    def has(self, name: str) -> bool:
        """Whether any row has a value."""
        column = self._arrow.get(name)
        return column is not None and column.null_count < len(column)

    def ints(self, name: str, rows: Rows = None) -> Ints:
        """A BIGINT column, or the given rows of it."""
        if name not in self._ints:
            column = self._taken(name, None, pa.int64()).cast(pa.int64())
            self._ints[name] = Ints(values_of(column, 0), valid_of(column))
        ints = self._ints[name]
        return ints if rows is None else Ints(picked(ints.values, rows), picked(ints.valid, rows))

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
            column = self._taken(name, None, pa.string())
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            codes = values_of(column.indices, -1)
            self._codes[name] = Codes(codes.astype(np.int32, copy=False), column.dictionary)
        encoded = self._codes[name]
        return encoded if rows is None else Codes(picked(encoded.codes, rows), encoded.words)

    def words(self, name: str) -> pa.Array:
        """The words that the codes of a text column index."""
        return self.codes(name).words

    def where(self, name: str, word_mask: NDArray[np.bool_], rows: Rows = None) -> NDArray[np.bool_]:
        """Whether the text of each row is selected; `word_mask` has one entry per word. False for null."""
        return self.codes(name, rows).where(word_mask)

    def is_one_of(self, name: str, texts: Iterable[str], rows: Rows = None) -> NDArray[np.bool_]:
        """Whether the text of each row is one of these; do not change the answer for all rows."""
        key = (name, *texts)
        if rows is None and key in self._masks:
            return self._masks[key]
        mask = self.where(name, among(self.words(name), key[1:]), rows)
        if rows is None and self.rows < _MANY_ROWS:
            mask.flags.writeable = False
            self._masks[key] = mask
        return mask

    def texts(self, name: str, rows: Rows = None) -> pa.Array:
        """A text column, or the given rows of it, decoded."""
        column = self._taken(name, rows, pa.string())
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    def arrow(self, name: str, rows: Rows = None) -> pa.Array:
        """A column as Arrow, dictionary-encoded if it is stored so; all null if it does not exist."""
        return self._taken(name, rows, pa.null())

    def put(self, name: str, values: NDArray[np.generic], valid: NDArray[np.bool_] | None = None) -> None:
        """Adds a computed column of numbers or booleans, one value per row."""
        self._arrow[name] = pa.chunked_array([array_of(values, valid)])
        self._ints.pop(name, None)

    def _count(self, rows: Rows) -> int:
        if rows is None:
            return self.rows
        return len(range(self.rows)[rows] if isinstance(rows, slice) else rows)

    def _taken(self, name: str, rows: Rows, type_: pa.DataType) -> pa.Array:
        column = self._arrow.get(name)
        if column is None:
            return pa.nulls(self._count(rows), type_)
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.rows)
            column = column.slice(start, stop - start)
        elif rows is not None:
            column = _rows_of(column, rows)
        if column.num_chunks == 1:
            return column.chunk(0)
        combined = column.combine_chunks()
        return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _one_column(columns: Sequence[pa.ChunkedArray | None], parts: Sequence[Columns]) -> pa.ChunkedArray:
    """The columns of several ranks as one chunk; null for a rank without it."""
    types = dict.fromkeys(column.type for column in columns if column is not None)
    type_ = next((each for each in types if not pa.types.is_null(each)), pa.null())
    if len(types) > 1:
        # Dictionary-encoded in some ranks only, or of another width, or without values.
        type_ = type_.value_type if pa.types.is_dictionary(type_) else type_
        type_ = pa.int64() if pa.types.is_integer(type_) else type_
        columns = [None if column is None else column.cast(type_) for column in columns]
    filled = [
        [pa.nulls(part.rows, type_)] if column is None else column.chunks
        for column, part in zip(columns, parts, strict=True)
    ]
    combined = _unified(pa.chunked_array(list(itertools.chain.from_iterable(filled)), type_)).combine_chunks()
    return combined if isinstance(combined, pa.ChunkedArray) else pa.chunked_array([combined])


def _rows_of(column: pa.ChunkedArray, rows: NDArray[np.integer]) -> pa.ChunkedArray:
    """The given rows; ascending ones are taken chunk by chunk, as Arrow would first join all chunks."""
    if column.num_chunks <= 1 or not (rows[1:] >= rows[:-1]).all():
        return column.take(pa.array(rows))
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    cuts = [0, *np.searchsorted(rows, ends).tolist()]
    starts = [0, *ends.tolist()]
    chunks = [
        chunk.take(pa.array(rows[low:high] - start))
        for chunk, start, low, high in zip(column.chunks, starts, cuts, cuts[1:], strict=False)
        if high > low
    ]
    return pa.chunked_array(chunks, column.type)


def _unified(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column


CHUNK_ROWS: Final = 122_880
_SMALL: Final = (np.int8, np.int16, np.int32, np.int64)
# Reading single texts is cheaper than reading a whole chunk if fewer than 1 in 16 are needed.
_FEW: Final = 16


class _Block(Struct, frozen=True):
    """A range of bytes in the file, and the type of its values."""

    offset: int
    bytes: int
    dtype: np.dtype[np.generic]


class _Chunk(Struct, frozen=True):
    """Consecutive rows of a column. `valid` is None if all rows or none have a value.

    `data` is None if no row has a value; for texts it holds the offsets, and `text` the characters.
    """

    rows: int
    nulls: int
    valid: _Block | None = None
    data: _Block | None = None
    text: _Block | None = None


class SpillFile:
    """An unlinked, append-only file that only this process can read."""

    def __init__(self, folder: Path) -> None:
        handle, path = tempfile.mkstemp(prefix="tw-", dir=folder)  # mode 0600
        Path(path).unlink()
        self._file = os.fdopen(handle, "w+b", buffering=0)
        self._end = 0

    def write(self, values: NDArray[Any]) -> _Block:
        """Appends the values."""
        block = _Block(self._end, values.nbytes, values.dtype)
        unwritten = _bytes(np.ascontiguousarray(values))
        while unwritten:
            written_bytes = os.pwrite(self._file.fileno(), unwritten, self._end)
            unwritten, self._end = unwritten[written_bytes:], self._end + written_bytes
        return block

    def some(self, block: _Block, rows: _Rows) -> NDArray[Any]:
        """Some of the values of a block."""
        if isinstance(rows, slice):
            return self.read(block, rows.start, rows.stop)
        return self.read(block)[rows]

    def read(self, block: _Block, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """The values of a block, or its values from `start` to `stop`."""
        width = block.dtype.itemsize
        stop = block.bytes // width if stop is None else stop
        values = np.empty(max(stop - start, 0), block.dtype)
        unread, offset = _bytes(values), block.offset + start * width
        while unread:
            read_bytes = os.preadv(self._file.fileno(), [unread], offset)
            if not read_bytes:
                raise OSError("the temporary file is truncated")
            unread, offset = unread[read_bytes:], offset + read_bytes
        return values

    def close(self) -> None:
        """Frees the disk space."""
        self._file.close()


class SpilledColumns(Columns):
    """Like Columns, but stored in a file."""

    def __init__(self, file: SpillFile) -> None:
        super().__init__(0, {})
        self._file = file
        self._chunks: dict[str, list[_Chunk]] = {}
        self._types: dict[str, pa.DataType] = {}
        self._words: dict[str, pa.Array] = {}

    @classmethod
    def spill(cls, reader: pa.RecordBatchReader, folder: Path) -> SpilledColumns:
        """All columns of all batches, in a file in the folder."""
        columns = cls(SpillFile(folder))
        for batch in reader:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                columns._append(name, column)
            columns.rows += batch.num_rows
        return columns

    def close(self) -> None:
        """Frees the disk space; columns can no longer be read."""
        self._file.close()

    def has(self, name: str) -> bool:
        """Whether any row has a value."""
        return any(chunk.nulls < chunk.rows for chunk in self._chunks.get(name, ()))

    def ints(self, name: str, rows: Rows = None) -> Ints:
        """A BIGINT column, or the given rows of it."""
        values = np.zeros(self._count(rows), np.int64)
        valid = np.zeros(len(values), np.bool_)
        for chunk, some, into in self._pieces(name, rows):
            valid[into] = self._valid(chunk, some)
            if chunk.data is not None:
                values[into] = self._file.some(chunk.data, some)
        return Ints(values, valid)

    def valid(self, name: str, rows: Rows = None) -> NDArray[np.bool_]:
        """Which rows have a value of a BIGINT column."""
        valid = np.zeros(self._count(rows), np.bool_)
        for chunk, some, into in self._pieces(name, rows):
            valid[into] = self._valid(chunk, some)
        return valid

    def codes(self, name: str, rows: Rows = None) -> Codes:
        """A text column as codes, or the given rows of it."""
        words = self.words(name)
        codes = np.full(self._count(rows), -1, np.int32)
        for chunk, some, into in self._pieces(name, rows):
            if chunk.data is not None:
                codes[into] = self._file.some(chunk.data, some)
        return Codes(codes, words)

    def words(self, name: str) -> pa.Array:
        """The words that the codes of a text column index; texts without codes are encoded now."""
        if name in self._chunks and name not in self._words:
            column = self._taken(name, None, pa.string()).dictionary_encode()
            del self._chunks[name]
            for low in range(0, len(column), CHUNK_ROWS):
                self._append(name, column.slice(low, CHUNK_ROWS))
        return self._words.get(name, pa.array([], pa.string()))

    def where(self, name: str, word_mask: NDArray[np.bool_], rows: Rows = None) -> NDArray[np.bool_]:
        """Whether the text of each row is selected; `word_mask` has one entry per word. False for null."""
        matches = np.zeros(self._count(rows), np.bool_)
        selected = np.append(word_mask, False)  # -1 is the last
        for chunk, some, into in self._pieces(name, rows):
            if chunk.data is not None:
                matches[into] = selected[self._file.some(chunk.data, some)]
        return matches

    def put(self, name: str, values: NDArray[np.generic], valid: NDArray[np.bool_] | None = None) -> None:
        """Adds a computed column of numbers or booleans, one value per row."""
        self._chunks.pop(name, None)
        for low in range(0, len(values), CHUNK_ROWS):
            part = slice(low, low + CHUNK_ROWS)
            self._append(name, array_of(values[part], None if valid is None else valid[part]))

    def _append(self, name: str, column: pa.Array) -> None:
        self._types[name] = column.type
        self._chunks.setdefault(name, []).append(self._stored(name, column))

    def _stored(self, name: str, column: pa.Array) -> _Chunk:
        rows, nulls = len(column), column.null_count
        if nulls == rows:
            if pa.types.is_dictionary(column.type):
                self._words.setdefault(name, pa.array([], pa.string()))
            return _Chunk(rows, nulls)
        valid = None
        if nulls:
            valid = self._file.write(np.packbits(valid_of(column), bitorder="little"))
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            wide = np.int64 if pa.types.is_large_string(column.type) else np.int32
            _, offsets_buffer, text_buffer = column.buffers()
            offsets = np.frombuffer(offsets_buffer, wide)[column.offset : column.offset + rows + 1]
            text = np.frombuffer(text_buffer, np.uint8) if text_buffer else np.empty(0, np.uint8)
            starts = self._file.write(offsets - offsets[0])
            return _Chunk(rows, nulls, valid, starts, self._file.write(text[offsets[0] : offsets[-1]]))
        if pa.types.is_dictionary(column.type):
            return _Chunk(rows, nulls, valid, self._file.write(_smallest(self._recoded(name, column))))
        if pa.types.is_floating(column.type):
            numbers = values_of(column, 0.0)
        elif pa.types.is_boolean(column.type):
            numbers = pc.fill_null(column, False).to_numpy(zero_copy_only=False).view(np.int8)
        else:
            numbers = _smallest(values_of(column.cast(pa.int64()), 0))
        return _Chunk(rows, nulls, valid, self._file.write(numbers))

    def _recoded(self, name: str, column: pa.DictionaryArray) -> NDArray[np.int32]:
        """The codes of a batch as indexes into the words of the whole column; -1 for null."""
        codes: NDArray[np.int32] = values_of(column.indices.cast(pa.int32()), -1)
        old_words, words = self._words.get(name), column.dictionary
        if old_words is None or (len(words) >= len(old_words) and words[: len(old_words)].equals(old_words)):
            self._words[name] = words
            return codes
        positions = pc.index_in(words, value_set=old_words)
        new_words = words.filter(positions.is_null())
        indexes = pc.fill_null(positions, -1).to_numpy(zero_copy_only=False).copy()
        indexes[indexes < 0] = np.arange(len(old_words), len(old_words) + len(new_words))
        self._words[name] = pa.concat_arrays([old_words, new_words])
        return np.append(indexes, -1)[codes].astype(np.int32)

    def _pieces(self, name: str, rows: Rows) -> Iterator[tuple[_Chunk, _Rows, _Rows]]:
        """The chunks with some of the rows: which rows of the chunk, and their places in the result."""
        if rows is not None and not isinstance(rows, slice):
            yield from self._wanted(name, np.asarray(rows))
            return
        first, last, _ = (slice(None) if rows is None else rows).indices(self.rows)
        start = 0
        for chunk in self._chunks.get(name, ()):
            low, high = max(first - start, 0), min(last - start, chunk.rows)
            if low < high:
                place = start + low - first
                yield chunk, slice(low, high), slice(place, place + high - low)
            start += chunk.rows

    def _wanted(self, name: str, rows: NDArray[np.integer]) -> Iterator[tuple[_Chunk, _Rows, _Rows]]:
        """`_pieces` for single rows, in any order."""
        chunks = self._chunks.get(name, [])
        order = None if bool((rows[1:] >= rows[:-1]).all()) else np.argsort(rows, kind="stable")
        ascending = rows if order is None else rows[order]
        first = np.cumsum([0, *(chunk.rows for chunk in chunks)], dtype=np.int64)
        edges = np.searchsorted(ascending, first.astype(rows.dtype))
        for number in np.flatnonzero(edges[1:] > edges[:-1]).tolist():
            mine = slice(edges[number], edges[number + 1])
            some = ascending[mine] - int(first[number])
            yield chunks[number], some, mine if order is None else order[mine]

    def _valid(self, chunk: _Chunk, rows: _Rows) -> NDArray[np.bool_]:
        low, high = (rows.start, rows.stop) if isinstance(rows, slice) else (0, chunk.rows)
        if chunk.valid is None:
            valid = np.full(high - low, chunk.nulls == 0)
        else:
            bits = self._file.read(chunk.valid, low // 8, (high + 7) // 8)
            valid = np.unpackbits(bits, bitorder="little").view(np.bool_)[low % 8 : low % 8 + high - low]
        return valid if isinstance(rows, slice) else valid[rows]

    def _taken(self, name: str, rows: Rows, type_: pa.DataType) -> pa.Array:
        if name not in self._chunks:
            return super()._taken(name, rows, type_)
        parts: list[pa.Array] = []
        places: list[NDArray[np.integer]] = []
        for chunk, some, into in self._pieces(name, rows):
            parts.append(self._picked(name, chunk, some))
            if not isinstance(into, slice):
                places.append(into)
        joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts or [pa.nulls(0, self._types[name])])
        return joined.take(pa.array(np.argsort(np.concatenate(places)))) if places else joined

    def _picked(self, name: str, chunk: _Chunk, rows: _Rows) -> pa.Array:
        """Some rows of a chunk; if few texts are needed, only their bytes are read."""
        if isinstance(rows, slice):
            return self._arrow_part(name, chunk, rows.start, rows.stop)
        if chunk.text is None or chunk.data is None or len(rows) * _FEW > chunk.rows:
            return self._arrow_part(name, chunk, 0, chunk.rows).take(pa.array(rows))
        offsets = self._file.read(chunk.data)
        valid = self._valid(chunk, rows)
        texts = [
            self._file.read(chunk.text, int(offsets[row]), int(offsets[row + 1])).tobytes().decode()
            if has_text
            else None
            for row, has_text in zip(rows.tolist(), valid.tolist(), strict=True)
        ]
        return pa.array(texts, self._types[name])

    def _arrow_part(self, name: str, chunk: _Chunk, low: int, high: int) -> pa.Array:
        type_, rows = self._types[name], high - low
        if chunk.data is None:
            words = self._words.get(name)
            if pa.types.is_dictionary(type_) and words is not None:
                return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), words)
            return pa.nulls(rows, type_)
        valid = self._valid(chunk, slice(low, high))
        if chunk.text is not None:
            offsets = self._file.read(chunk.data, low, high + 1)
            text = self._file.read(chunk.text, int(offsets[0]), int(offsets[-1]))
            bits = None if chunk.nulls == 0 else pa.py_buffer(np.packbits(valid, bitorder="little"))
            buffers = [bits, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(text)]
            return pa.Array.from_buffers(type_, rows, buffers)
        numbers = self._file.read(chunk.data, low, high)
        if pa.types.is_dictionary(type_):
            codes = array_of(numbers.astype(np.int32, copy=False), valid)
            return pa.DictionaryArray.from_arrays(codes, self._words[name])
        if pa.types.is_boolean(type_):
            return array_of(numbers.view(np.bool_), valid)
        return array_of(numbers, valid).cast(type_)


def _bytes(values: NDArray[Any]) -> memoryview:
    return memoryview(values.view(np.uint8).data) if values.nbytes else memoryview(b"")


def _smallest(values: NDArray[np.integer]) -> NDArray[np.generic]:
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    fits = next(each for each in _SMALL if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    return values.astype(fits, copy=False)


def read_table(
    name: str, reader: pa.RecordBatchReader, text_bytes: int, spill: Path, opened: ExitStack
) -> Columns | pa.Table:
    """A table of a source: activities as columns, those of a large source in a file until `opened` exits."""
    if name != ACTIVITIES:
        return reader.read_all()
    if not is_large(text_bytes):
        return Columns.read(reader)
    release_memory()
    columns = opened.enter_context(closing(SpilledColumns.spill(reader, spill)))
    release_memory()
    return columns
