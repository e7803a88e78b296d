"""A source that reads the stored tables of a rank instead of a file, for upgrades and rebuilds.

Typed argument columns are not stored: the scanner that reads files recreates them from the text of `args`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.formats.base import ACTIVITIES, Outcome
from tracewarehouse.formats.kineto import batches
from tracewarehouse.formats.kineto.activities import CODED, COLUMNS, double_columns
from tracewarehouse.formats.kineto.columns import (
    HAS_COLLECTIVE,
    BatchColumns,
    BufferedBatch,
    Dictionaries,
    to_record_batch,
)
from tracewarehouse.formats.kineto.scanner import (
    ODD,
    SLOW,
    TYPED_INTS,
    TYPED_TEXTS,
    Batch,
    PythonScanner,
    RefusedError,
    Scanner,
    new_scanner,
)
from tracewarehouse.formats.memory_timeline import TABLE
from tracewarehouse.formats.source_tables import activity_type, declared_columns

_EVENTS: Final = "events"


class StoredSource(Struct, frozen=True):
    """A Source without a file: the stored tables of a rank, and the outcome of reading its file.

    `stored` has `events`, ordered by event_id, or `memory_timeline`.
    The `repaired` flags are not stored: `repaired` is False in every row.
    """

    stored: Mapping[str, Iterable[pa.Table]]
    known: Outcome

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """`activities`, or `memory_timeline`. Read them once."""
        if TABLE in self.stored:
            rows = _timeline_rows(self.stored[TABLE])
            return {TABLE: pa.RecordBatchReader.from_batches(declared_columns(TABLE), rows)}
        events = self.stored[_EVENTS]
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(_schema(), _activities(events))}

    def outcome(self) -> Outcome:
        """The outcome of reading the file."""
        return self.known


def _timeline_rows(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    schema = declared_columns(TABLE)
    for table in tables:
        columns = [_storage(table, field.name).cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _activities(events: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    schema = _schema()
    for table in events:
        columns: dict[str, pa.Array] = {}
        columns |= argument_columns(_storage(table, "args").cast(pa.string()))
        columns["repaired"] = pa.repeat(False, table.num_rows)
        columns["has_collective"] = pc.fill_null(columns["has_collective"], False)
        columns |= {name: _storage(table, name) for name in COLUMNS if name in table.column_names}
        cast = [_as(columns[field.name], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(cast, schema=schema)


def _schema() -> pa.Schema:
    return pa.schema([(name, activity_type(name)) for name in COLUMNS])


def _as(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if type_ != CODED or pa.types.is_dictionary(column.type):
        return column.cast(type_)
    return column.cast(pa.string()).dictionary_encode()


def _storage(table: pa.Table, name: str) -> pa.Array:
    """A column as one array; the storage array if it has an extension type (JSON)."""
    column = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column.storage if isinstance(column, pa.ExtensionArray) else column


# Bytes of text per scan; 32-bit offsets limit an array to 2 GB.
_SCAN_BYTES: Final = 64 << 20


def argument_columns(args: pa.Array) -> Mapping[str, pa.Array]:
    """The columns of `activities` that depend on the arguments only, one row per text."""
    valid_args = args.drop_null()
    parts = [_columns(part) for part in _bounded_slices(valid_args)]
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: pa.concat_arrays([part[name] for part in parts]) for name in names}
    if args.null_count:
        valid = args.is_valid().to_numpy(zero_copy_only=False)
        places = pa.array(np.cumsum(valid) - 1, mask=~valid)
        found = {name: column.take(places) for name, column in found.items()}
    return found


def _bounded_slices(args: pa.Array) -> list[pa.Array]:
    """The texts in slices of bounded size; a single empty slice if there is none."""
    lengths = np.cumsum(pc.binary_length(args).to_numpy(zero_copy_only=False)) // _SCAN_BYTES
    starts = [0, *np.flatnonzero(np.diff(lengths)) + 1]
    ends = [*starts[1:], len(args)]
    return [args.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _columns(args: pa.Array) -> dict[str, pa.Array]:
    text = b"[" + b",".join(b'{"args":%b}' % one.encode() for one in args.to_pylist()) + b"]"
    dictionaries = Dictionaries()
    found = [
        _activity_columns(BufferedBatch(to_record_batch(columns, dictionaries)), dictionaries)
        for columns in _read(text, dictionaries)
    ]
    names = _activity_columns(
        BufferedBatch(pa.RecordBatch.from_pydict({HAS_COLLECTIVE: pa.array([], pa.bool_())})), dictionaries
    )
    return {name: pa.concat_arrays([empty, *(one[name] for one in found)]) for name, empty in names.items()}


def _read(text: bytes, dictionaries: Dictionaries) -> list[BatchColumns]:
    try:
        batches = _batches(new_scanner(), text)
    except RefusedError:
        batches = _batches(PythonScanner(), text)
    return [_fill(batch, dictionaries) for batch in batches]


def _batches(scanner: Scanner, text: bytes) -> list[Batch]:
    found = scanner.feed_array(text)
    while (batch := scanner.flush()) is not None:
        found.append(batch)
    return found


def _fill(batch: Batch, dictionaries: Dictionaries) -> BatchColumns:
    dictionaries.begin(batch.dictionaries, batch.restarted)
    columns = BatchColumns.of(batch)
    odd = np.flatnonzero(batch.flags & ODD)
    if odd.size:
        batches.fill_odd(columns, odd, batch.texts["text"].take(pa.array(odd)).to_pylist(), dictionaries)
    typed = np.flatnonzero(batch.flags & (ODD | SLOW))
    if typed.size:
        batches.fill_arguments(columns, typed, dictionaries)
    return columns


def _activity_columns(batch: BufferedBatch, dictionaries: Dictionaries) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for name in TYPED_INTS:
        found[name] = batch.column(name, pa.int64())
    for name in TYPED_TEXTS:
        coded = batch.coded(name, dictionaries)
        found[name] = coded.values.take(pa.array(coded.codes, mask=coded.codes < 0))
    found |= double_columns(batch)
    found[HAS_COLLECTIVE] = pc.fill_null(batch.column(HAS_COLLECTIVE, pa.bool_()), False)
    return found
