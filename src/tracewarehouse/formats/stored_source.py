"""A source that reads the stored tables of a rank instead of a file, for upgrades and rebuilds.

Typed argument columns are not stored: they are read again from the text of `args`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from msgspec import Struct

from tracewarehouse.formats.base import ACTIVITIES, Outcome
from tracewarehouse.formats.kineto.activities import COLUMNS, double_columns
from tracewarehouse.formats.kineto.batches import typed_arguments
from tracewarehouse.formats.kineto.columns import BufferedBatch
from tracewarehouse.formats.memory_timeline import TABLE
from tracewarehouse.formats.source_tables import activity_type, declared_columns

_EVENTS: Final = "events"
# The number of rows whose texts are Python objects at a time: these take several times as much memory.
_ROWS: Final = 16_384


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
    parts = (table.slice(at, _ROWS) for table in events for at in range(0, max(len(table), 1), _ROWS))
    for table in parts:
        arguments = typed_arguments(_storage(table, "args").cast(pa.string()))
        columns = {name: _storage(arguments, name) for name in arguments.column_names}
        columns |= double_columns(BufferedBatch(pa.RecordBatch.from_pydict(columns)))
        columns["repaired"] = pa.repeat(False, table.num_rows)
        columns |= {name: _storage(table, name) for name in COLUMNS if name in table.column_names}
        cast = [columns[field.name].cast(field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(cast, schema=schema)


def _schema() -> pa.Schema:
    return pa.schema([(name, activity_type(name)) for name in COLUMNS])


def _storage(table: pa.Table, name: str) -> pa.Array:
    """A column as one array; the storage array if it has an extension type (JSON)."""
    column = table.column(name).combine_chunks()
    return column.storage if isinstance(column, pa.ExtensionArray) else column
