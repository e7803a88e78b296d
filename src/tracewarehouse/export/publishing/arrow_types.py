"""Arrow types that any reader of a Delta table knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with JSON and ENUM as strings, times in UTC, and signed integers; all columns nullable."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])


def plain_batches(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows in the types of `plain_schema`."""
    import pyarrow as pa

    columns = [_cast(rows.column(field.name), field.type) for field in schema]
    yield from pa.Table.from_arrays(columns, schema=schema).to_batches()


def _plain(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return _plain(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return _plain(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_) or pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_unsigned_integer(type_):
        return pa.int64()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain(type_.value_type))
    return type_


def _cast(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    import pyarrow as pa

    if isinstance(column.type, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        column = pa.chunked_array(chunks, column.type.storage_type)
    return column.cast(type_)
