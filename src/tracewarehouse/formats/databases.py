"""Exports that are databases: a SQLite file, opened safely, or a folder of Parquet files.

The file is opened read-only and immutable, without extensions, triggers or writable schema. Only ordinary
tables and their declared columns are read: no views, virtual tables or generated columns, whose definitions
could run code or never end. SQLite is dynamically typed: values of an unexpected type are dropped and
counted.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import SQLITE_MAGIC
from tracewarehouse.late_regex import late_regex

_VERSION: Final = late_regex(r"_V[0-9]+$")
MAX_SCHEMA_OBJECTS: Final = 10_000
BATCH_ROWS: Final = 65_536
# The driver is faster with large batches, which it returns as Arrow.
_DRIVER_ROWS: Final = 1 << 18
_MAX_VALUE_BYTES: Final = 16 << 20
# Values longer than the first have at most the second together. Only a larger file can hold more: its rows
# are counted a few at a time.
_LONG_VALUE_BYTES: Final = 4 << 10
_MOST_LONG_BYTES: Final = 64 << 20
_COUNTED_ROWS: Final = 4
_INTERIOR_PAGE, _LEAF_PAGE = 5, 13
_HEADER_BYTES: Final = 100
_HINT: Final = "export the report again: nsys export --type sqlite FILE"
_ALLOWED_ACTIONS: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
# Both are read-only and need no table.
_ALLOWED_PRAGMAS: Final = ("table_info", "trusted_schema", "cell_size_check")
_KINDS: Final[Mapping[pa.DataType, tuple[type, ...]]] = {
    pa.int64(): (int,), pa.float64(): (int, float), pa.binary(): (bytes,)
}  # fmt: skip
_FUNCTIONS: Final = ("min", "max", "count")

# A condition of a SELECT, and its parameters.
Condition: TypeAlias = tuple[str, tuple[int, ...]]


def has_tables(path: Path, head: bytes, test: Callable[[Database], bool]) -> bool:
    """Whether this is a readable SQLite database that passes the test; `head` as in `Format.detect`."""
    if not head.startswith(SQLITE_MAGIC) or path.is_dir():
        return False
    try:
        # The head may be that of decompressed content, which SQLite cannot open.
        with path.open("rb") as file, Database(path) as database:
            return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC and test(database)
    except TraceFormatError:
        return False


def check_complete(path: Path) -> None:
    """Raises TraceFormatError if the file is truncated, damaged or still being written."""
    for suffix in ("-wal", "-journal"):
        log = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if log.stat().st_size:
                raise TraceFormatError(
                    path,
                    f"{log.name} contains changes that are not in the file",
                    hint="wait until the export has finished, or export the report again",
                )
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    expected = _page_bytes(header) * int.from_bytes(header[28:32])
    actual = path.stat().st_size
    if len(header) < _HEADER_BYTES or actual < expected:
        raise TraceFormatError(
            path, f"the database is truncated: {actual} of {expected} bytes", offset=actual, hint=_HINT
        )


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
        if _count_schema_objects(path, MAX_SCHEMA_OBJECTS) > MAX_SCHEMA_OBJECTS:
            raise TraceFormatError(path, f"more than {MAX_SCHEMA_OBJECTS} tables", hint=_HINT)
        self._con: Any = _connect(path)
        self._names: dict[str, str] = {}
        self.tables: Mapping[str, Mapping[str, str]] = self._describe()

    def close(self) -> None:
        """Closes the file."""
        self._con.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table exists and has these columns."""
        return table in self.tables and all(name in self.tables[table] for name in columns)

    def rows(self, sql: str, values: Sequence[int | None] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small SELECT; text as bytes."""
        try:
            found: list[tuple[Any, ...]] = self._con.execute(sql, values).fetchall()
        except self._errors as error:
            raise self._damaged(error) from error
        return found

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self.rows(f"SELECT count(*) FROM {self.named(table)} NOT INDEXED")[0][0])

    def named(self, table: str) -> str:
        """The quoted name of a table in the file."""
        return quote_name(self._names.get(table, table))

    def records(self, table: str, columns: Mapping[str, pa.DataType]) -> list[dict[str, Any]]:
        """The rows of a small table; empty if the file lacks it."""
        batches = self.batches(table, columns) if table in self.tables else ()
        return [row for batch in batches for row in batch.to_pylist()]

    def batches(
        self, table: str, columns: Mapping[str, pa.DataType], where: Condition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a table in the order of its rows; a column that the table lacks is null."""
        present = [name for name in columns if name in self.tables[table]]
        condition, values = where or ("TRUE", ())
        source = f"FROM {self.named(table)} NOT INDEXED WHERE {condition}"
        if present and (adbc := _adbc()) is not None:
            same = self._same(source, values, {name: columns[name] for name in present})
            # One column at least counts the rows.
            read = {name: columns[name] for name in present if name not in same or len(same) == len(present)}
            found = _read_with_adbc(adbc, self.path, f"SELECT {_listed(read)} {source}", values, read)
            if found is not None:
                for batch in found.to_batches(max_chunksize=_DRIVER_ROWS):
                    yield _with_same(batch, columns, same)
                return
        sql = f"SELECT {_listed(present) or 'NULL'} {source}"
        try:
            cursor = self._con.execute(sql, values)
            while rows := self._fetch(cursor):
                yield self._batch(table, columns, present, rows)
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

    def _same(
        self, source: str, values: Sequence[int], columns: Mapping[str, pa.DataType]
    ) -> dict[str, int | None]:
        """The columns that are null or one integer in all rows, which the driver need not copy."""
        with suppress(TraceFormatError):  # a table without row numbers
            rows = self.rows(f"SELECT rowid, {_listed(columns)} {source} LIMIT 1", values)
            first = zip(columns.items(), rows[0][1:], strict=True) if rows else ()
            same = {
                name: value
                for (name, type_), value in first
                if value is None or (type(value) is int and type_ == pa.int64())
            }
            while same and rows:
                sql = f"SELECT rowid, {_listed(same)} {source} AND rowid >= {rows[0][0]} AND"
                differs = f"({_listed(same)}) IS NOT ({', '.join('?' * len(same))})"
                rows = self.rows(f"{sql} {differs} LIMIT 1", (*values, *same.values()))
                for name, value in zip(list(same), rows[0][1:] if rows else (), strict=False):
                    if value != same[name]:
                        del same[name]
            return same
        return {}

    def _batch(
        self,
        table: str,
        columns: Mapping[str, pa.DataType],
        present: Sequence[str],
        rows: list[tuple[Any, ...]],
    ) -> pa.RecordBatch:
        found = dict(zip(present, zip(*rows, strict=True), strict=False))
        arrays = []
        for name, type_ in columns.items():
            if name not in found:
                arrays.append(pa.nulls(len(rows), type_))
                continue
            array, dropped = _array(found[name], type_)
            self.unusable[table] += dropped
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

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


def _with_same(
    batch: pa.RecordBatch, columns: Mapping[str, pa.DataType], same: Mapping[str, int | None]
) -> pa.RecordBatch:
    """The batch with the columns that it lacks: each has one value in all rows, by default null."""
    arrays = [
        batch.column(name)
        if name in batch.schema.names
        else pa.repeat(pa.scalar(same.get(name), type_), batch.num_rows)
        for name, type_ in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _read_with_adbc(
    adbc: _Adbc, path: Path, sql: str, values: tuple[int, ...], columns: Mapping[str, pa.DataType]
) -> pa.Table | None:
    """The rows of a SELECT by the ADBC driver, which needs a quarter of the time.

    None if a value has another type: then the standard library reads and counts.
    """
    for value in values:
        sql = sql.replace("?", str(int(value)), 1)
    try:
        found = _fetch(adbc, path, sql)
    except (adbc.driver.Error, pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    arrays = []
    for place, type_ in enumerate(columns.values()):
        column = found.column(place)
        if column.null_count == len(column):
            column = pa.chunked_array([pa.nulls(len(column), type_)])
        elif column.type != type_ and not (pa.types.is_floating(type_) and pa.types.is_integer(column.type)):
            return None
        arrays.append(column.cast(type_))
    return pa.Table.from_arrays(arrays, names=list(columns))


def _fetch(adbc: _Adbc, path: Path, sql: str) -> pa.Table:
    """The rows of a SELECT."""
    with (
        adbc.sqlite.connect(_uri(path)) as database,
        adbc.driver.AdbcConnection(database) as con,
        adbc.driver.AdbcStatement(con) as statement,
    ):
        statement.set_sql_query("PRAGMA trusted_schema = OFF")
        statement.execute_update()
        statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_DRIVER_ROWS)})
        statement.set_sql_query(sql)
        stream, _ = statement.execute_query()
        found = pa.RecordBatchReader._import_from_c(stream.address).read_all()
        found.validate(full=True)  # text may not be UTF-8
        return found


class _Adbc(NamedTuple):
    driver: Any
    sqlite: Any


@cache
def _adbc() -> _Adbc | None:
    """The ADBC driver for SQLite, which the extra `nsys` installs.

    Its `dbapi` is not used: importing it loads Polars and pandas, which takes longer than reading many files.
    """
    try:
        import adbc_driver_manager
        import adbc_driver_sqlite
    except ImportError:
        return None
    return _Adbc(adbc_driver_manager, adbc_driver_sqlite)


def _uri(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro&immutable=1"


def _connect(path: Path) -> sqlite3.Connection:
    try:
        con = sqlite3.connect(_uri(path), uri=True, isolation_level=None)
        con.text_factory = bytes
        con.execute("PRAGMA trusted_schema = OFF")
        con.execute("PRAGMA cell_size_check = ON")
        con.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        con.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        con.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 50)
        con.set_authorizer(_authorize)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise TraceFormatError(path, f"the database cannot be read: {error}", hint=_HINT) from error
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


def _page_bytes(header: bytes) -> int:
    size = int.from_bytes(header[16:18])
    return 65_536 if size == 1 else size


def _count_schema_objects(path: Path, limit: int) -> int:
    """The number of rows of sqlite_master, as far as `limit`.

    SQLite parses all of them before the first SELECT, which takes gigabytes for a million tables. So this
    walks the pages of the table's B-tree, which starts on page 1.
    """
    with path.open("rb") as file:
        page_bytes = _page_bytes(file.read(_HEADER_BYTES))
        if page_bytes < 512:
            return 0
        count, pages, seen = 0, [1], set[int]()
        while pages and count <= limit:
            number = pages.pop()
            if number in seen:
                continue
            seen.add(number)
            file.seek((number - 1) * page_bytes)
            page = file.read(page_bytes)
            start = _HEADER_BYTES if number == 1 else 0
            kind, cells = page[start : start + 1], int.from_bytes(page[start + 3 : start + 5])
            if kind == bytes([_LEAF_PAGE]):
                count += cells
            elif kind == bytes([_INTERIOR_PAGE]):
                pages += _children(page, start, cells)
    return count


def _children(page: bytes, start: int, cells: int) -> list[int]:
    """The pages below an interior page."""
    found = [int.from_bytes(page[start + 8 : start + 12])]
    for cell in range(cells):
        at = start + 12 + 2 * cell
        offset = int.from_bytes(page[at : at + 2])
        found.append(int.from_bytes(page[offset : offset + 4]))
    return [number for number in found if number > 0]


SUFFIX: Final = ".parquet"
_MOST_FILES: Final = 1_000
_FOLDER_HINT: Final = "export the report again: nsys export --type parquetdir FILE"
_TYPES: Final = {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.binary(): "BLOB"}
# SQLite's clause that forbids an index, which the queries of the formats contain.
_NOT_INDEXED: Final = " NOT INDEXED"


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
        self._names = {}
        self._con = connect(threads=1)
        self._errors = (Error,)
        files = tables_of(path)
        self.tables: Mapping[str, Mapping[str, str]] = {
            table: self._columns(table, files[name]) for table, name in _by_plain_name(files).items()
        }

    def rows(self, sql: str, values: Sequence[int | None] = ()) -> list[tuple[Any, ...]]:
        """The rows of a small SELECT."""
        return super().rows(sql.replace(_NOT_INDEXED, ""), list(values))

    def batches(
        self, table: str, columns: Mapping[str, pa.DataType], where: Condition | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The columns of a table in the order of its rows; a column that the table lacks is null."""
        condition, values = where or ("TRUE", ())
        declared = self.tables[table]
        wanted = [_converted(name, declared.get(name), type_) for name, type_ in columns.items()]
        schema = pa.schema(list(columns.items()))
        try:
            self._count_unusable(table, columns, condition, values)
            sql = f"SELECT {', '.join(wanted)} FROM {quote_name(table)} WHERE {condition}"
            # Another query of the same connection would end this one.
            for batch in self._con.cursor().sql(sql, params=list(values)).to_arrow_reader(BATCH_ROWS):
                arrays = [array.cast(type_) for array, type_ in zip(batch, columns.values(), strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except (*self._errors, pa.ArrowInvalid) as error:
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
