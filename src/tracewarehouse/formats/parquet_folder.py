"""Folders with a Parquet file per table (`nsys export --type parquetdir`), read like an SQLite database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.sqlite_file import BATCH_ROWS, Condition, Database

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection

SUFFIX: Final = ".parquet"
_MOST_FILES: Final = 1_000
_HINT: Final = "export the report again: nsys export --type parquetdir FILE"
_TYPES: Final = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.binary(): "BLOB"}
# SQLite's clause that forbids an index, which the queries of the formats contain.
_NOT_INDEXED: Final = " NOT INDEXED"


def tables_of(folder: Path) -> dict[str, Path]:
    """Table → its file, for the ordinary files in a folder."""
    found = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    if len(found) > _MOST_FILES:
        raise TraceFormatError(folder, f"more than {_MOST_FILES} Parquet files", hint=_HINT)
    return {path.name.removesuffix(SUFFIX): path for path in found}


class ParquetFolder(Database):
    """An open folder. Methods raise TraceFormatError where a file is damaged."""

    def __init__(self, path: Path) -> None:
        from tracewarehouse.duck.engine import connect

        self.path = path
        self.unusable: Counter[str] = Counter()
        self._duck: Connection = connect(threads=1)
        self.tables: Mapping[str, Mapping[str, str]] = {
            table: self._columns(table, file) for table, file in tables_of(path).items()
        }

    def close(self) -> None:
        """Closes the files."""
        self._duck.close()

    def rows(self, sql: str, values: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small SELECT."""
        from tracewarehouse.duck.engine import Error

        try:
            return self._duck.execute(sql.replace(_NOT_INDEXED, ""), list(values)).fetchall()
        except Error as error:
            raise self._damaged(error) from error

    def batches(
        self, table: str, columns: Mapping[str, pa.DataType], where: Condition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a table in the order of its rows; a column that the table lacks is null."""
        from tracewarehouse.duck.engine import Error

        condition, values = where or ("TRUE", ())
        declared = self.tables[table]
        wanted = [_converted(name, declared.get(name), type_) for name, type_ in columns.items()]
        schema = pa.schema(list(columns.items()))
        try:
            self._count_unusable(table, columns, condition, values)
            sql = f"SELECT {', '.join(wanted)} FROM {quote_name(table)} WHERE {condition}"
            # Another query of the same connection would end this one.
            for batch in self._duck.cursor().sql(sql, params=list(values)).to_arrow_reader(BATCH_ROWS):
                arrays = [array.cast(type_) for array, type_ in zip(batch, columns.values(), strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except (Error, pa.ArrowInvalid) as error:
            raise self._damaged(error) from error

    def _count_unusable(
        self, table: str, columns: Mapping[str, pa.DataType], condition: str, values: Sequence[int]
    ) -> None:
        """Counts texts where numbers are wanted, and numbers that are too large."""
        checked = [
            f"count({quote_name(name)}) - count(TRY_CAST({quote_name(name)} AS {_TYPES[type_]}))"
            for name, type_ in columns.items()
            if self.tables[table].get(name, "") in ("VARCHAR", "UBIGINT", "HUGEINT")
            and type_ not in (pa.string(), pa.binary())
        ]
        if checked:
            sql = f"SELECT {' + '.join(checked)} FROM {quote_name(table)} WHERE {condition}"
            self.unusable[table] += self.rows(sql, values)[0][0]

    def _columns(self, table: str, file: Path) -> dict[str, str]:
        source = f"read_parquet({quote_text(_literal_path(file))}, hive_partitioning = false)"
        self.rows(f"CREATE VIEW {quote_name(table)} AS SELECT * FROM {source}")
        found = self.rows(f"DESCRIBE {quote_name(table)}")
        return {name: str(type_) for name, type_, *_ in found}

    def _damaged(self, error: Exception) -> TraceFormatError:
        return TraceFormatError(self.path, f"the database cannot be read: {error}", hint=_HINT)


def _converted(name: str, declared: str | None, type_: pa.DataType) -> str:
    """A column as a type, in SQL; null where the table lacks it. Bytes are read from bytes and texts only."""
    column = quote_name(name)
    if declared is None or (type_ == pa.binary() and declared not in ("BLOB", "VARCHAR")):
        return "NULL"
    if type_ == pa.binary() and declared == "VARCHAR":  # a cast would read escapes
        return f"encode({column})"
    return f"TRY_CAST({column} AS {_TYPES[type_]})"


def _literal_path(file: Path) -> str:
    """The path without characters that DuckDB would expand."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in str(file.absolute()))
