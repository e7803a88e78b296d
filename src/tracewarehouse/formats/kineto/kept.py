"""A batch as it is kept until the end of the file, and what of it decides about all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import BatchColumns
    from tracewarehouse.formats.kineto.words import Dictionaries

# Columns of a kept batch that are no columns of a scanner.
_SECOND: Final = 10**9
COLLECTIVE: Final = "has_collective"
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
    found[COLLECTIVE] = pa.array(columns.collective)
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


@dataclass
class FileFacts:
    """What the rows of the whole file say together.

    `first_ns` is the least positive start of a slice in ns from the base, rounded up. `brackets` are the B
    and E rows that have a time. `process_names` are (pid token, args) of rows that name a process.
    """

    first_ns: int | None = None
    brackets: list[Brackets] = field(default_factory=list)
    process_names: set[tuple[str | None, str | None]] = field(default_factory=set)

    def add(self, columns: BatchColumns, first: int, words: Dictionaries) -> None:
        """Looks at a further batch, whose first row is the event `first`."""
        phases = columns.codes.get("ph")
        if phases is None:
            return
        ph = _code_of(words, "ph", ("X", "B", "E", "M"))
        self._add_start(columns, np.isin(phases, ph["X"]))
        if _any(phases, ph["B"], ph["E"]):
            self._add_brackets(columns, first, words, ph)
        if _any(phases, ph["M"]):
            self._add_processes(columns, np.isin(phases, ph["M"]), words)

    def _add_start(self, columns: BatchColumns, is_slice: NDArray[np.bool_]) -> None:
        far = [ns for row, ns in columns.far.items() if ns > 0 and is_slice[row]]
        self.first_ns = min((*far, *([] if self.first_ns is None else [self.first_ns])), default=None)
        if "ts" not in columns.ints:
            return
        values, valid = columns.ints["ts"]
        if columns.fractions is not None:
            values = values.copy()
            values[columns.fractions.rows] += columns.fractions.ts > 0
        positive = values[is_slice & valid & (values > 0)]
        if positive.size:
            first = int(positive.min())
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)

    def _add_brackets(
        self, columns: BatchColumns, first: int, words: Dictionaries, ph: Mapping[str, list[int]]
    ) -> None:
        phases = columns.codes["ph"]
        values, valid = columns.ints.get("ts") or _none(columns.rows)
        seconds, ns = np.divmod(values, _SECOND)
        for row, far in columns.far.items():
            seconds[row], ns[row] = divmod(far, _SECOND)
        is_timed = valid.copy()
        is_timed[list(columns.far)] = True
        rows = np.flatnonzero(np.isin(phases, ph["B"] + ph["E"]) & is_timed)
        fractions = np.zeros(columns.rows, np.int32)
        if columns.fractions is not None:
            fractions[columns.fractions.rows] = columns.fractions.ts
        tracks = [_texts_at(columns, name, rows, words) for name in ("pid", "tid")]
        is_begin = np.isin(phases[rows], ph["B"])
        self.brackets.append(
            Brackets(rows + first, is_begin, seconds[rows], ns[rows], fractions[rows], *tracks)
        )

    def _add_processes(
        self, columns: BatchColumns, is_metadata: NDArray[np.bool_], words: Dictionaries
    ) -> None:
        names = columns.codes.get("name")
        args = columns.texts.get("args")
        if names is None or args is None:
            return
        rows = np.flatnonzero(
            is_metadata & np.isin(names, _code_of(words, "name", ("process_name",))["process_name"])
        )
        pids = _texts_at(columns, "pid", rows, words).to_pylist()
        self.process_names.update(zip(pids, args.take(pa.array(rows)).to_pylist(), strict=True))


class Brackets(NamedTuple):
    """B and E rows: event, whether it begins, time in s, ns and millionths of one, JSON of pid and tid."""

    ids: NDArray[np.int64]
    is_begin: NDArray[np.bool_]
    seconds: NDArray[np.int64]
    ns: NDArray[np.int64]
    fractions: NDArray[np.int32]
    pids: pa.Array
    tids: pa.Array


def _texts_at(columns: BatchColumns, name: str, rows: NDArray[np.int64], words: Dictionaries) -> pa.Array:
    codes = columns.codes.get(name)
    return pa.nulls(len(rows), pa.string()) if codes is None else words.of(name).texts(codes[rows])


def _none(rows: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)


def _any(codes: NDArray[np.int32], *wanted: list[int]) -> bool:
    return any(bool((codes == code).any()) for found in wanted for code in found)


def _code_of(words: Dictionaries, name: str, texts: tuple[str, ...]) -> dict[str, list[int]]:
    """The codes of each text, which the scanner and the row path may both have."""
    return {text: words.of(name).codes_with(text) for text in texts}
