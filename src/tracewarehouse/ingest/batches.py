"""Between rows of DuckDB and NumPy's numbers, by way of Arrow: a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from ..columns import Column
from ..contract import Contract
from ..engine import Error, OutOfMemory

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..engine import Connection

    Numbers: TypeAlias = NDArray[np.int64]
    Flags: TypeAlias = NDArray[np.bool_]
    Columns: TypeAlias = Mapping[str, Numbers | Flags]


def read(con: Connection, sql: str, at_once: int) -> Iterator[list[Numbers]]:
    """The columns of a SELECT of BIGINTs without NULL, so many rows at a time. Raises OutOfMemory."""
    with con.cursor() as cursor:
        try:
            for batch in cursor.sql(sql).to_arrow_reader(at_once):
                yield [_numbers(column) for column in batch.columns]
        except OSError as error:  # Arrow's, whatever it is that DuckDB failed of
            if not str(error).startswith("Out of Memory"):
                raise
            raise OutOfMemory(str(error)) from error


def insert(con: Connection, contract: Contract, source: str, made: Iterable[Columns]) -> None:
    """Fills the table of the contract with columns as they come; -1 stands for no id.

    `source` is the table of one rank that they are made of.
    """
    ranks = con.execute(f"SELECT DISTINCT run_id, rank FROM {source}").fetchall()
    if not ranks:
        return
    (rank,) = ranks
    columns = [column for column in contract.columns if column.name not in ("run_id", "rank")]
    listed = (f"nullif({each.name}, -1) AS {each.name}" if each.null else each.name for each in columns)
    failed: list[Exception] = []
    con.register("tw_made", _reader(columns, made, failed))
    try:
        con.execute(
            f"INSERT INTO {contract.name} BY NAME"
            f" SELECT ?::VARCHAR AS run_id, ?::INTEGER AS rank, {', '.join(listed)} FROM tw_made",
            list(rank),
        )
    except Error as error:
        raise (failed or [error])[0] from None
    finally:
        con.unregister("tw_made")


def _reader(
    columns: Iterable[Column], made: Iterable[Columns], failed: list[Exception]
) -> pa.RecordBatchReader:
    """Batches as they are asked for; `failed` gets what ended them, of which DuckDB tells only the text."""
    schema = pa.schema(
        [(each.name, pa.bool_() if each.type == "BOOLEAN" else pa.int64()) for each in columns]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for each in made:
                yield _batch(schema, each)
        except Exception as error:
            failed.append(error)
            raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def _batch(schema: pa.Schema, columns: Columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_arrow(columns[name]) for name in schema.names], schema=schema)


def _numbers(column: pa.Array) -> Numbers:
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def _arrow(values: Numbers | Flags) -> pa.Array:
    """As arrow, by way of memory: pyarrow may have been loaded without numpy."""
    if values.dtype == np.bool_:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
