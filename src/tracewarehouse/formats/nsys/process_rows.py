"""The rows of a table that belong to one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.source_tables import SourceBatch, process_ids

if TYPE_CHECKING:
    from tracewarehouse.formats.source_tables import Context


def process_rows(
    context: Context, table: str, columns: Mapping[str, pa.DataType], column: str
) -> Iterator[pa.RecordBatch]:
    """The rows of the process of the part; `column` is globalTid or globalPid.

    Where the file has one part, few rows belong to other processes: all are read, which takes less time than
    a condition, and the others are counted.
    """
    if not context.alone:
        yield from context.database.batches(table, columns, schema.process_condition(column, context.pid))
        return
    for batch in context.database.batches(table, columns):
        found = process_ids(SourceBatch(context, table, batch).ints(column))
        own = pc.fill_null(pc.equal(found, context.pid), False)
        if pc.all(own).as_py():
            yield batch
            continue
        for each in found.filter(pc.invert(own)).drop_null().value_counts().to_pylist():
            context.others[table, each["values"]] += each["counts"]
        yield batch.filter(own)
