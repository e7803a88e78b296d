"""Exports that are databases: a SQLite file, opened safely, or a folder of Parquet files.

The file is opened read-only and immutable, without extensions, triggers or writable schema. Only ordinary
tables and their declared columns are read: no views, virtual tables or generated columns, whose definitions
could run code or never end. SQLite is dynamically typed: values of an unexpected type are dropped and
counted.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.late_regex import late_regex

_VERSION: Final = late_regex(r"_V[0-9]+$")
MAX_SCHEMA_OBJECTS: Final = 10_000
# What SQLite does for each of them before the first SELECT.
_STEPS_PER_OBJECT: Final = 7
BATCH_ROWS: Final = 65_536
# The driver is faster with large batches, which it returns as Arrow.
_DRIVER_ROWS: Final = 1 << 18
_MAX_VALUE_BYTES: Final = 16 << 20
# Values longer than the first have at most the second together. Only a larger file can hold more: its rows
# are counted a few at a time.
_LONG_VALUE_BYTES: Final = 4 << 10
_MOST_LONG_BYTES: Final = 64 << 20
_COUNTED_ROWS: Final = 4
_HEADER_BYTES: Final = 100
# A header has 1 for this size.
_LARGEST_PAGE: Final = 1 << 16
_HINT: Final = "export the report again: nsys export --type sqlite FILE"
_ALLOWED_ACTIONS: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
# Both are read-only and need no table.
_ALLOWED_PRAGMAS: Final = ("table_info", "trusted_schema", "cell_size_check")
_KINDS: Final[Mapping[pa.DataType, tuple[type, ...]]] = {
    pa.int64(): (int,), pa.float64(): (int, float), pa.binary(): (bytes,)
}  # fmt: skip
_FUNCTIONS: Final = ("min", "max", "count")


def check_complete(path: Path) -> None:
    """Raises TraceFormatError if the file is truncated, damaged or still being written."""
    for suffix in ("-wal", "-journal"):
        log = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if log.stat().st_size:
                reason = f"{log.name} contains changes that are not in the file"
                hint = "wait until the export has finished, or export the report again"
                raise TraceFormatError(path, reason, hint=hint)
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    page_bytes, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    expected = (_LARGEST_PAGE if page_bytes == 1 else page_bytes) * pages
    actual = path.stat().st_size
    if len(header) < _HEADER_BYTES or actual < expected:
        reason = f"the database is truncated: {actual} of {expected} bytes"
        raise TraceFormatError(path, reason, offset=actual, hint=_HINT)


def _by_plain_name(names: Collection[str]) -> dict[str, str]:
    """Table → its name in the file; `NAME_V2` is the table `NAME` if there is none of that name."""
    plain = ((_VERSION.sub("", name), name) for name in names)
    return {name if short in names else short: name for short, name in plain}


class Database:
    """An open file. Methods raise TraceFormatError where the file is damaged.

    `tables` maps the name of each ordinary table to its columns and their declared types; `NAME_V2` is the
    table `NAME` if there is none of that name. `unusable` counts dropped values by table.
    """

    _hint = _HINT
    # What its connection raises where the file is damaged.
    _errors: tuple[type[Exception], ...] = (sqlite3.Error, OverflowError, UnicodeDecodeError)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unusable: Counter[str] = Counter()
        self._long_bytes = 0
        self._con: Any = _connect(path)
        self._names: dict[str, str] = {}
        self.tables: Mapping[str, Mapping[str, str]] = self._describe()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has these columns."""
        return table in self.tables and all(name in self.tables[table] for name in columns)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small SELECT; text as bytes."""
        try:
            found: list[tuple[Any, ...]] = self._con.execute(sql).fetchall()
        except self._errors as error:
            raise self._damaged(error) from error
        return found

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self.rows(f"SELECT count(*) FROM {self._named(table)}")[0][0])

    def records(self, table: str, columns: Mapping[str, pa.DataType]) -> list[dict[str, Any]]:
        """The rows of a small table; empty if the file lacks it."""
        batches = self.batches(table, columns) if table in self.tables else ()
        return [row for batch in batches for row in batch.to_pylist()]

    def batches(
        self, table: str, columns: Mapping[str, pa.DataType], where: str = "TRUE"
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a table in the order of its rows; a column that the table lacks is null."""
        known = {name: type_ for name, type_ in columns.items() if name in self.tables[table]}
        source = f"FROM {self._named(table)} WHERE {where}"
        same = self._same(source, known)
        read = {name: type_ for name, type_ in known.items() if name not in same}
        sql = f"SELECT {_listed(read) or 'NULL'} {source}"
        found = None if self._has_few_rows(table) else _read_with_adbc(self.path, sql, read)
        for rows, arrays in self._read(table, sql, read) if found is None else found:
            made = [
                arrays[name] if name in arrays else pa.repeat(pa.scalar(same.get(name), type_), rows)
                for name, type_ in columns.items()
            ]
            yield pa.RecordBatch.from_arrays(made, names=list(columns))

    def _named(self, table: str) -> str:
        """The name of a table in SQL; its indexes may be damaged."""
        return f"{quote_name(self._names[table])} NOT INDEXED"

    def _has_few_rows(self, table: str) -> bool:
        """Whether rows are few for the size of the file: values may be long, which the driver ignores."""
        size = self.path.stat().st_size
        with suppress(TraceFormatError):  # a table without row numbers
            rows = self.rows(f"SELECT max(rowid) FROM {self._named(table)}")[0][0]
            return size > max(_MOST_LONG_BYTES, _LONG_VALUE_BYTES * (rows or 0))
        return size > _MOST_LONG_BYTES

    def _same(self, source: str, columns: Mapping[str, pa.DataType]) -> dict[str, int | None]:
        """The columns that are null or one integer in all rows, which need not be copied."""
        with suppress(TraceFormatError):  # a table without row numbers
            rows = self.rows(f"SELECT rowid, {_listed(columns) or 'NULL'} {source} LIMIT 1")
            same = {
                name: value
                for name, value in zip(columns, rows[0][1:] if rows else (), strict=False)
                if value is None or (type(value) is int and columns[name] == pa.int64())
            }
            while same and rows:
                values = ", ".join("NULL" if value is None else str(value) for value in same.values())
                differs = f"rowid >= {rows[0][0]} AND ({_listed(same)}) IS NOT ({values})"
                rows = self.rows(f"SELECT rowid, {_listed(same)} {source} AND {differs} LIMIT 1")
                for _, *others in rows:
                    pairs = zip(same.items(), others, strict=True)
                    same = {name: value for (name, value), other in pairs if value == other}
            return same
        return {}

    def _read(
        self, table: str, sql: str, columns: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """The rows of a SELECT by the standard library: their number and columns."""
        try:
            cursor = self._con.execute(sql)
            while rows := self._fetch(cursor):
                arrays = {}
                for (name, type_), values in zip(columns.items(), zip(*rows, strict=True), strict=False):
                    arrays[name], dropped = _array(values, type_)
                    self.unusable[table] += dropped
                yield len(rows), arrays
        except self._errors as error:
            raise self._damaged(error) from error

    def _fetch(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        """The next rows."""
        if self.path.stat().st_size <= _MOST_LONG_BYTES:
            return cursor.fetchmany(BATCH_ROWS)
        found: list[tuple[Any, ...]] = []
        while len(found) < BATCH_ROWS and (rows := cursor.fetchmany(_COUNTED_ROWS)):
            lengths = [len(value) for row in rows for value in row if type(value) is bytes]
            self._long_bytes += sum(length for length in lengths if length > _LONG_VALUE_BYTES)
            if self._long_bytes > _MOST_LONG_BYTES:
                raise TraceFormatError(self.path, "more than 64 MiB of long texts", hint=_HINT)
            found += rows
        return found

    def _describe(self) -> Mapping[str, Mapping[str, str]]:
        # Virtual tables have no root page.
        rows = self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name")
        tables = {}
        for (raw,) in rows:
            name = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
            found = self.rows(f"PRAGMA table_info({quote_name(name)})")
            tables[name] = {_text(row[1]): _text(row[2]).upper() for row in found}
        self._names = _by_plain_name(tables)
        return {plain: tables[name] for plain, name in self._names.items()}

    def _damaged(self, error: Exception) -> TraceFormatError:
        return TraceFormatError(self.path, f"the database cannot be read: {error}", hint=self._hint)


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_name, columns))


def _read_with_adbc(
    path: Path, sql: str, columns: Mapping[str, pa.DataType]
) -> list[tuple[int, dict[str, pa.Array]]] | None:
    """The rows of a SELECT by the ADBC driver, which needs a quarter of the time: their number and columns.

    None if a value has another type: then the standard library reads and counts. The extra `nsys` installs
    the driver. Its `dbapi` is not used: importing it loads Polars and pandas, which takes longer than reading
    many files.
    """
    try:
        import adbc_driver_manager as driver
        import adbc_driver_sqlite as sqlite
    except ImportError:
        return None
    try:
        with (
            sqlite.connect(_uri(path)) as database,
            driver.AdbcConnection(database) as con,
            driver.AdbcStatement(con) as statement,
        ):
            statement.set_sql_query("PRAGMA trusted_schema = OFF")
            statement.execute_update()
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_DRIVER_ROWS)})
            statement.set_sql_query(sql)
            stream, _ = statement.execute_query()
            found = pa.RecordBatchReader._import_from_c(stream.address).read_all()
            found.validate(full=True)  # text may not be UTF-8
    except (driver.Error, pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    for column, type_ in zip(found.columns, columns.values(), strict=False):
        is_number = pa.types.is_floating(type_) and pa.types.is_integer(column.type)
        if column.type != type_ and not is_number and column.null_count < len(column):
            return None
    return [
        (
            len(batch),
            {
                name: pa.nulls(len(batch), type_) if array.null_count == len(batch) else array.cast(type_)
                for (name, type_), array in zip(columns.items(), batch.columns, strict=False)
            },
        )
        for batch in found.to_batches(max_chunksize=_DRIVER_ROWS)
    ]


def _uri(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def _connect(path: Path) -> sqlite3.Connection:
    try:
        con = sqlite3.connect(_uri(path), uri=True, isolation_level=None)
        con.text_factory = bytes
        con.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        con.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        con.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50)
        con.execute("PRAGMA trusted_schema = OFF")
        con.execute("PRAGMA cell_size_check = ON")
        # SQLite parses the whole schema before the first SELECT, which takes gigabytes for a million tables.
        con.set_progress_handler(lambda: 1, _STEPS_PER_OBJECT * MAX_SCHEMA_OBJECTS)
        con.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        con.set_progress_handler(None, 0)
        con.set_authorizer(_authorize)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = f"the database cannot be read: {error}"
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            reason = f"more than {MAX_SCHEMA_OBJECTS} tables"
        raise TraceFormatError(path, reason, hint=_HINT) from error
    return con


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Allows reading only; `first` and `second` are what SQLite passes for the action."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first in _ALLOWED_PRAGMAS else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if second in _FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED_ACTIONS else sqlite3.SQLITE_DENY


def _array(values: Sequence[Any], type_: pa.DataType) -> tuple[pa.Array, int]:
    """The values as Arrow, and how many have another type and are null instead.

    Texts are bytes here: both TEXT and BLOB.
    """
    is_text = pa.types.is_string(type_)
    try:
        return pa.array(values, pa.binary() if is_text else type_).cast(type_), 0
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        kinds = (bytes,) if is_text else _KINDS[type_]
        usable: list[Any] = [value if isinstance(value, kinds) else None for value in values]
        dropped = sum(value is not None for value in values) - sum(value is not None for value in usable)
        if is_text:
            usable = [None if value is None else value.decode(errors="backslashreplace") for value in usable]
        return pa.array(usable, type_), dropped


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


SUFFIX: Final = ".parquet"
_MOST_FILES: Final = 1_000
_FOLDER_HINT: Final = "export the report again: nsys export --type parquetdir FILE"
_TYPES: Final = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.binary(): "BLOB"}


def tables_of(folder: Path) -> dict[str, Path]:
    """Table → its file, for the ordinary files in a folder."""
    found = sorted(path for path in folder.glob(f"*{SUFFIX}") if path.is_file())
    if len(found) > _MOST_FILES:
        raise TraceFormatError(folder, f"more than {_MOST_FILES} Parquet files", hint=_FOLDER_HINT)
    return {path.name.removesuffix(SUFFIX): path for path in found}


class ParquetFolder(Database):
    """An open folder. Methods raise TraceFormatError where a file is damaged."""

    _hint = _FOLDER_HINT

    def __init__(self, path: Path) -> None:
        from tracewarehouse.duck.engine import Error, connect

        self.path = path
        self.unusable: Counter[str] = Counter()
        self._con = connect(threads=1)
        self._errors = (Error,)
        files = tables_of(path)
        self.tables: Mapping[str, Mapping[str, str]] = {
            table: self._columns(table, files[name]) for table, name in _by_plain_name(files).items()
        }

    def batches(
        self, table: str, columns: Mapping[str, pa.DataType], where: str = "TRUE"
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a table in the order of its rows; a column that the table lacks is null."""
        declared = self.tables[table]
        wanted = {name: _converted(name, declared.get(name), type_) for name, type_ in columns.items()}
        dropped = [
            f"({quote_name(name)} IS NOT NULL AND {value} IS NULL)::INTEGER"
            for name, value in wanted.items()
            if name in declared
        ]
        listed = ", ".join((*wanted.values(), " + ".join(dropped) or "0"))
        try:
            # Another query of the same connection would end this one.
            found = self._con.cursor().sql(f"SELECT {listed} FROM {self._named(table)} WHERE {where}")
            for batch in found.to_arrow_reader(BATCH_ROWS):
                *read, lost = batch.columns
                self.unusable[table] += pc.sum(lost).as_py() or 0
                arrays = [array.cast(type_) for array, type_ in zip(read, columns.values(), strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
        except (*self._errors, pa.ArrowInvalid) as error:
            raise self._damaged(error) from error

    def _named(self, table: str) -> str:
        return quote_name(table)

    def _columns(self, table: str, file: Path) -> dict[str, str]:
        # DuckDB would expand these characters.
        literal = "".join(f"[{char}]" if char in "*?[" else char for char in str(file.absolute()))
        source = f"read_parquet({quote_text(literal)}, hive_partitioning = false)"
        self.rows(f"CREATE VIEW {quote_name(table)} AS SELECT * FROM {source}")
        found = self.rows(f"DESCRIBE {quote_name(table)}")
        return {name: str(type_) for name, type_, *_ in found}


def open_database(path: Path) -> Database:
    """The tables of an SQLite file, or of a folder of Parquet files."""
    return ParquetFolder(path) if path.is_dir() else Database(path)


def _converted(name: str, declared: str | None, type_: pa.DataType) -> str:
    """A column as a type, in SQL; null where the table lacks it. Bytes are read from bytes and texts only."""
    column = quote_name(name)
    if declared is None or (type_ == pa.binary() and declared not in ("BLOB", "VARCHAR")):
        return "NULL"
    if type_ == pa.binary() and declared == "VARCHAR":  # a cast would read escapes
        return f"encode({column})"
    return f"TRY_CAST({column} AS {_TYPES[type_]})"
