"""Arrow schemas of contracts, and Arrow tables: from rows, with types, as files; without DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    import pyarrow as pa


def table_of(contract: Contract, rows: Iterable[Mapping[str, object]]) -> pa.Table:
    """Rows as an Arrow table with the contract's columns and metadata."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=schema_of(contract))


def schema_of(contract: Contract) -> pa.Schema:
    """The columns as Arrow fields with unit, doc and better as metadata."""
    import pyarrow as pa

    fields = []
    for column in contract.columns:
        metadata = {"doc": column.doc, "unit": column.unit, "better": column.better}
        given_metadata = {key: value for key, value in metadata.items() if value is not None}
        fields.append(pa.field(column.name, type_of(column.type), metadata=given_metadata))
    return pa.schema(fields)


def type_of(type_: str) -> pa.DataType:
    """The Arrow type that DuckDB returns for a type of the contracts."""
    import pyarrow as pa

    if type_.endswith("[]"):
        return pa.list_(type_of(type_.removesuffix("[]")))
    if type_.startswith("MAP("):
        key, value = type_.removeprefix("MAP(").removesuffix(")").split(", ")
        return pa.map_(type_of(key), type_of(value))
    if type_.startswith("DECIMAL("):
        precision, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return {
        "BIGINT": pa.int64(),
        "INTEGER": pa.int32(),
        "SMALLINT": pa.int16(),
        "TINYINT": pa.int8(),
        "UBIGINT": pa.uint64(),
        "HUGEINT": pa.decimal128(38, 0),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "VARCHAR": pa.string(),
        "JSON": pa.string(),
        "BLOB": pa.binary(),
        "TIMESTAMP": pa.timestamp("us"),
    }[type_]


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables, in order."""
    import pyarrow as pa

    return pa.concat_tables(tables)


def typed(table: pa.Table, types: Iterable[str]) -> pa.Table:
    """The table with DuckDB's type of each column in the metadata of its field.

    Columns of one name become `a`, `a_1`, …, as in DuckDB's CREATE TABLE.
    """
    import pyarrow as pa

    fields: dict[str, pa.Field] = {}
    for field, type_ in zip(table.schema, types, strict=True):
        names = (f"{field.name}_{number}" if number else field.name for number in count())
        name = next(name for name in names if name not in fields)
        fields[name] = field.with_name(name).with_metadata({"type": type_})
    return with_schema(table, pa.schema(fields.values()))


# A column or an aggregate of it, whose value has the same unit.
_SAME_UNIT = late_regex(
    r"(?:(?:sum|min|max|avg|mean|median|any_value|first|last)\()?(?:\w+\.)?\"?(\w+)\"?\)?"
)


def with_units(table: pa.Table, units: Mapping[str, str | None]) -> pa.Table:
    """The table with the unit of each number whose name has one: of a `units` column, else its ending."""
    import pyarrow as pa

    fields = []
    for field in table.schema:
        match = _SAME_UNIT.fullmatch(field.name)
        name = match[1] if match else ""
        is_number = any(
            is_(field.type) for is_ in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        )
        if is_number and name.endswith(("_ns", "_bytes")) and "_per_" not in name:
            unit = units.get(name) or name.rpartition("_")[2]
            field = field.with_metadata({**(field.metadata or {}), "unit": unit})
        fields.append(field)
    return with_schema(table, pa.schema(fields))


def with_plain_text(table: pa.Table) -> pa.Table:
    """The rows of a `typed` table with VARCHAR in the place of ENUM."""
    import pyarrow as pa

    metadata = {"type": "VARCHAR"}
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            chunks = [chunk.dictionary_decode() for chunk in table.column(index).chunks]
            text_field = pa.field(field.name, pa.string(), metadata=metadata)
            table = table.set_column(index, text_field, pa.chunked_array(chunks, type=pa.string()))
    return table


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the types and the metadata of the schema."""
    import pyarrow as pa

    if table.schema.types == schema.types:
        return pa.Table.from_arrays(table.columns, schema=schema)
    return table.cast(schema)  # imports pyarrow.compute, which is slower than most queries


def to_bytes(table: pa.Table) -> bytes:
    """The table as a compressed Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(data: bytes) -> pa.Table:
    """The table in an Arrow stream."""
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()
