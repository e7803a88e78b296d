"""The columns of a batch while the row path and the redaction change them.

A batch as it is kept until the end of the file, and what of it decides about all rows.

Dictionaries of a file's text columns: the scanner's and the row path's, until either is full.

A code of 0 or more is a word of the scanner, -1 null, and -2 - n the n-th word of the row path. From the
batch in which a dictionary restarts, a column holds its texts instead of codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.kineto.scanner import COLLECTIVE, WORDS_BYTES, WORDS_MOST, Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


@dataclass
class Fractions:
    """Of rows whose times have digits below a nanosecond: millionths of one to add to `ts` and `dur`.

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
    # Starts in ns that 64 bits do not hold, by row: they order events, and are no times.
    far: dict[int, int] = field(default_factory=dict)

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


HAS_COLLECTIVE: Final = "has_collective"
TS_FRACTION: Final = "ts_fraction"
DUR_FRACTION: Final = "dur_fraction"


def kept(columns: BatchColumns, words: Dictionaries) -> pa.RecordBatch:
    """The columns as Arrow: codes as numbers, or as texts where the dictionary was full."""
    found: dict[str, pa.Array] = {}
    for name, codes in columns.codes.items():
        found[name] = words.of(name).texts(codes) if name in words.plain else pa.array(codes)
    for name, (values, valid) in (*columns.ints.items(), *columns.doubles.items()):
        found[name] = numbers(values, valid)
    found |= columns.texts
    found[HAS_COLLECTIVE] = pa.array(columns.collective)
    if (fractions := columns.fractions) is not None:
        found[TS_FRACTION] = _scattered(columns.rows, fractions.rows, fractions.ts)
        found[DUR_FRACTION] = _scattered(columns.rows, fractions.rows, fractions.dur)
    return pa.RecordBatch.from_pydict(found)


def numbers(values: NDArray[np.generic], valid: NDArray[np.bool_] | None) -> pa.Array:
    """Numbers as Arrow without a copy of the values; null where `valid` is False."""
    type_ = pa.from_numpy_dtype(values.dtype)
    if valid is None or valid.all():
        return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)])
    bits = np.packbits(valid, bitorder="little")
    return pa.Array.from_buffers(type_, len(values), [pa.py_buffer(bits), pa.py_buffer(values)])


def _scattered(count: int, rows: NDArray[np.int64], values: NDArray[np.int32]) -> pa.Array:
    all_ = np.zeros(count, np.int32)
    there = np.zeros(count, np.bool_)
    all_[rows], there[rows] = values, True
    return numbers(all_, there)


class KeptBatch:
    """Reads the columns of a kept batch as NumPy arrays."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.rows: int = batch.num_rows
        self._nulls: dict[pa.DataType, pa.Array] = {}

    def arrow(self, name: str) -> pa.Array | None:
        """The column; None where it is null in every row."""
        place = self.batch.schema.get_field_index(name)
        return None if place < 0 else self.batch.column(place)

    def column(self, name: str, type_: pa.DataType) -> pa.Array:
        """The column, with nulls where it is missing: the same ones for all columns of a type."""
        found = self.arrow(name)
        if found is not None:
            return found
        if type_ not in self._nulls:
            self._nulls[type_] = pa.nulls(self.rows, type_)
        return self._nulls[type_]

    def ints(self, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The numbers, 0 where null, and which rows have one."""
        column = self.arrow(name)
        if column is None:
            return np.zeros(self.rows, np.int64), np.zeros(self.rows, np.bool_)
        if column.null_count == 0:
            return column.to_numpy(), np.ones(self.rows, np.bool_)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), valid

    def coded(self, name: str, words: Dictionaries) -> Coded:
        """The texts of a column, once each, and where each row's is."""
        column = self.arrow(name)
        if column is None:
            return Coded(np.full(self.rows, -1, np.int32), pa.array([], pa.string()))
        if pa.types.is_string(column.type):
            encoded = column.dictionary_encode()
            codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
            return Coded(codes, encoded.dictionary)
        texts, places = words.final(name)
        return Coded(places[column.to_numpy()], texts)


class Coded(NamedTuple):
    """Places in `words`, -1 where null."""

    codes: NDArray[np.int32]
    words: pa.Array


NULL: Final = -1
_FIRST_OF_ROWS: Final = -2


@dataclass
class Words:
    """The words of one column."""

    of_scanner: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    of_rows: dict[str, int] = field(default_factory=dict)
    # Words that hold a secret, by their code, without it.
    clean: dict[int, str] = field(default_factory=dict)
    is_full: bool = False
    _bytes: int = 0

    def codes_of(self, texts: pa.Array) -> NDArray[np.int32]:
        """The code of each text; new ones are added."""
        encoded = texts.dictionary_encode()
        to_code = [self._code(word) for word in encoded.dictionary.to_pylist()]
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        found: NDArray[np.int32] = np.array([*to_code, NULL], np.int32)[codes]
        return found

    def _code(self, word: str) -> int:
        known = self.of_rows.get(word)
        if known is None:
            known = self.of_rows[word] = len(self.of_rows)
            self._bytes += len(word)
            self.is_full = self.is_full or known >= WORDS_MOST or self._bytes >= WORDS_BYTES
        return _FIRST_OF_ROWS - known

    def texts(self, codes: NDArray[np.int32]) -> pa.Array:
        """The text of each code, without secrets."""
        words, places = self.dictionary()
        found = places[codes]
        return words.take(pa.array(found, mask=found < 0))

    def dictionary(self) -> tuple[pa.Array, NDArray[np.int32]]:
        """Distinct words without secrets, and where among them each code is: by codes, negative ones too."""
        scanner = self.of_scanner.to_pylist() if self.clean else self.of_scanner
        rows = list(self.of_rows)
        for code, text in self.clean.items():
            if code >= 0:
                scanner[code] = text
            else:
                rows[_FIRST_OF_ROWS - code] = text
        all_ = pa.concat_arrays([pa.array(scanner, pa.string()), pa.array(rows, pa.string())])
        count = len(self.of_scanner)
        encoded = all_.dictionary_encode()
        places = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        # Index -1 is null, -2 the first word of the row path, and so on: the end of the array, backwards.
        return encoded.dictionary, np.concatenate([places[:count], places[count:][::-1], [np.int32(NULL)]])

    def codes_with(self, text: str) -> list[int]:
        """The codes of a text in the dictionaries of the scanner and of the row path."""
        known = self.of_rows.get(text)
        found = [] if known is None else [_FIRST_OF_ROWS - known]
        place = pc.index(self.of_scanner, text).as_py()
        return found if place < 0 else [place, *found]

    def forget(self) -> None:
        """Starts empty, after a dictionary was full."""
        self.of_scanner = pa.array([], pa.string())
        self.of_rows, self.clean, self._bytes = {}, {}, 0


class Dictionaries:
    """The words of each column of a file."""

    def __init__(self) -> None:
        self.columns: dict[str, Words] = {}
        # Columns that hold texts from some batch on.
        self.plain: set[str] = set()
        self._later: dict[str, Words] = {}
        self._final: dict[str, tuple[pa.Array, NDArray[np.int32]]] = {}

    def begin(self, words: Mapping[str, pa.Array], restarted: frozenset[str]) -> None:
        """The scanner's words of the next batch."""
        for name in (*restarted, *[name for name, found in self.columns.items() if found.is_full]):
            self.plain.add(name)
        for name in self.plain:
            later = self._later.setdefault(name, Words())
            if name in restarted or later.is_full:
                later.forget()
        for name, found in words.items():
            self.of(name).of_scanner = found

    def of(self, name: str) -> Words:
        """The words that codes of the batch at hand mean."""
        if name in self.plain:
            return self._later[name]
        return self.columns.setdefault(name, Words())

    def final(self, name: str) -> tuple[pa.Array, NDArray[np.int32]]:
        """The distinct words that codes of kept batches mean, and where among them each code is."""
        if name not in self._final:
            self._final[name] = self.columns.setdefault(name, Words()).dictionary()
        return self._final[name]
