"""DuckDB connections, contracts run as SQL, and limits for queries of users; the home of duckdb."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from itertools import count, zip_longest
from pathlib import Path
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Final, TypeVar

import duckdb

from tracewarehouse import hints
from tracewarehouse.contracts import contract as params
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text, replace_params
from tracewarehouse.duck.arrow import schema_of, type_of, typed, with_schema
from tracewarehouse.errors import ContractError, ExpressionError, QueryError, UnknownName
from tracewarehouse.limits import NO_LIMITS, Limits, half_bytes, limited

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
Connection = duckdb.DuckDBPyConnection
Error = duckdb.Error
OutOfMemory = duckdb.OutOfMemoryException
# Errors for a name that the connection does not have.
MISSING_NAME = (duckdb.CatalogException, duckdb.BinderException)
# Errors for files whose bytes cannot be decoded.
UNREADABLE = (
    duckdb.IOException,
    duckdb.InvalidInputException,
    duckdb.SerializationException,
    duckdb.InternalException,
    duckdb.FatalException,
)
# Up to this number, rows are inserted as literals: reading them from Arrow has a fixed cost of 2 ms.
_FEW_ROWS = 16
_LONG_TEXT = 100_000
DUCKDB_VERSION: str = duckdb.__duckdb_version__  # type: ignore[attr-defined]


# Optimizers that take longer than they save on few rows: a sixth to a third of an analysis.
_OF_MANY_ROWS: Final = (
    "cte_filter_pusher", "top_n_window_elimination", "compressed_materialization", "duplicate_groups",
    "sampling_pushdown", "extension", "aggregate_function_rewriter", "late_materialization", "common_subplan",
    "join_elimination", "window_self_join", "projection_pullup", "outer_join_simplification",
    "window_rewriter", "partitioned_execution", "partial_aggregate_pushdown", "remote_pushdown",
    "grouping_sets", "type_pushdown", "scalar_fn_pushdown", "distinct_aggregate_rewrite", "aggregate_reuse",
    "projection_placement", "redundant_order_keys", "self_join_aggregate",
)  # fmt: skip


def expect_few_rows(con: Connection) -> None:
    """Disables the optimizers that pay on many rows only; the rows of queries stay the same."""
    listed = ", ".join(map(quote_text, _OF_MANY_ROWS))  # other versions of DuckDB may lack some
    names = con.execute(f"SELECT name FROM duckdb_optimizers() WHERE name IN ({listed})").fetchall()
    con.execute(f"SET disabled_optimizers = {quote_text(','.join(name for (name,) in names))}")


def connect(
    *,
    threads: int | None = None,
    memory_bytes: int | None = None,
    temp_directory: Path | None = None,
    database: Path | None = None,
    read_only: bool = False,
) -> Connection:
    """A connection to an in-memory database, or to the file `database`.

    It never looks up names among Python variables and never downloads an extension.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        # Row counts are estimates: nested loops over underestimated inputs would take minutes.
        "asof_loop_join_threshold": 0,
        "nested_loop_join_threshold": 0,
        "merge_join_threshold": 0,
    }
    if threads is not None:
        config["threads"] = threads
    if (limit := memory_bytes or half_bytes()) is not None:
        config["memory_limit"] = f"{limit}B"
    if temp_directory is not None:
        config["temp_directory"] = str(temp_directory)
    return duckdb.connect(str(database or ":memory:"), read_only=read_only, config=config)


def bind(contract: Contract, values: Mapping[str, object]) -> dict[str, object]:
    """Each parameter with its value in the declared type; `30us` is 30000 ns. Raises ParamError."""
    return params.bind(contract.params, values, str(contract.ref))


def literal(value: object, type_: str) -> str:
    """The value as a SQL literal of that type, also NULL."""
    if value is None:
        return f"CAST(NULL AS {type_})"
    if isinstance(value, dict | list | tuple):
        return f"CAST(CAST({quote_text(json.dumps(value))} AS JSON) AS {type_})"
    text = repr(value) if isinstance(value, float) else str(value)
    return f"CAST({quote_text(text)} AS {type_})"


def sql_with_params(contract: Contract, bound: Mapping[str, object]) -> str:
    """The body with each `$name` as a literal of its declared type; unbound ones get the default."""
    if not contract.params:
        return contract.body
    values = {each.name: literal(bound.get(each.name, each.default), each.type) for each in contract.params}
    return replace_params(contract.body, values)


def order_by(contract: Contract) -> str:
    """`ORDER BY` the contract's order, then its grain, nulls last."""
    keys = [(key.removeprefix("-"), key.startswith("-")) for key in (*contract.order, *contract.grain)]
    first = dict(reversed(keys))
    terms = [f"{quote_name(name)}{' DESC' if first.pop(name) else ''}" for name, _ in keys if name in first]
    return "ORDER BY " + ", ".join(f"{term} NULLS LAST" for term in terms)


def ordered(contract: Contract, sql: str) -> str:
    """The contract's columns of `sql`, in its order."""
    columns = ", ".join(quote_name(column.name) for column in contract.columns)
    return f"SELECT {columns} FROM (\n{sql}\n)\n{order_by(contract)}"


def execute(
    con: Connection, contract: Contract, bound: Mapping[str, object], given: str = "", few: bool = False
) -> pa.Table:
    """The rows of the contract's SELECT, in its order, with its field metadata.

    `bound` has the values of its parameters, from `bind`; missing ones get the default. `given` is a `WITH`
    clause with relations that the connection does not have; `few`: it reads little. Raises QueryError, and
    ContractError if names or types differ from the contract.
    """
    body = sql_with_params(contract, bound)
    with con.cursor() as cursor:
        try:
            table = _sorted(cursor, contract, body, given, few)
        except Error as error:
            failure = query_error(error, f"{error_place(contract, error)}: ")
            # The SELECT was checked, so the input is the more likely cause.
            failure.with_hint(failure.hint or hints.fill("{} checks the stored files", hints.call("verify")))
            raise failure from error
    return with_schema(table, schema_of(contract))


def _sorted(con: Connection, contract: Contract, body: str, given: str, few: bool) -> pa.Table:
    """The rows of the body in the contract's order, its columns checked."""
    is_by_run = any(column.name == "run_id" for column in contract.columns)
    # It may be an ENUM in the input.
    columns = "* REPLACE (CAST(run_id AS VARCHAR) AS run_id)" if is_by_run else "*"
    try:
        select = f"{given}SELECT {columns} FROM (\n{body}\n)"
        ordered = select if contract.in_order else f"{select}\n{order_by(contract)}"
        columns_found, rows = _rows(con, ordered, few)
    except OutOfMemory:
        raise
    except Error:
        check_columns(contract, result_columns(con, body))
        raise
    check_columns(contract, columns_found)
    return _in_order(con, contract, rows) if contract.in_order else rows


def _in_order(con: Connection, contract: Contract, rows: pa.Table) -> pa.Table:
    """The rows in the contract's order: a check costs much less than a sort that changes nothing."""
    keys = ", ".join(quote_name(key) for key in dict.fromkeys((*contract.order, *contract.grain)))
    con.register("tw_rows", rows)
    compared = f"SELECT ({keys}) < lag(({keys})) OVER () AS is_wrong FROM tw_rows"
    if con.execute(f"SELECT count(*) FROM ({compared}) WHERE is_wrong").fetchall() == [(0,)]:
        return rows
    return _rows(con, f"SELECT * FROM tw_rows\n{order_by(contract)}", few=False)[1]


def _rows(con: Connection, sql: str, few: bool) -> tuple[list[tuple[str, str]], pa.Table]:
    """Name and type of each column of a SELECT, and its rows."""
    if not few:
        relation = con.sql(sql)
        columns = list(zip(relation.columns, map(str, relation.types), strict=True))
        return columns, interruptible(con, relation.to_arrow_table)
    interruptible(con, lambda: con.execute(sql))
    columns = [(name, str(type_)) for name, type_, *_ in con.description or ()]
    return columns, executed_rows(con)


def executed_rows(con: Connection) -> pa.Table:
    """The rows of the statement that the connection executed last."""
    with warnings.catch_warnings():
        # It warns that it copies the rows; a relation would parse and bind the text again, which is slower.
        warnings.filterwarnings("ignore", "Arrow output on a DB-API result")
        return con.to_arrow_table()


def interruptible(con: Connection, call: Callable[[], T]) -> T:
    """Returns the result of the call; Ctrl-C interrupts it at once, not only between two tasks of DuckDB.

    Raises DuckDB's InvalidInputException for text that is not valid UTF-8, which only a damaged file holds.
    """
    if current_thread() is not main_thread():
        return _with_valid_text(call)
    results: list[T] = []
    failed: list[BaseException] = []
    has_ended = Event()

    def work() -> None:
        try:
            results.append(_with_valid_text(call))
        except BaseException as error:
            failed.append(error)
        finally:
            has_ended.set()

    Thread(target=work).start()
    try:
        while not has_ended.wait(0.2):  # a signal that another thread receives does not end a wait
            pass
    except BaseException:  # Ctrl-C, or what another signal handler raises
        con.interrupt()
        while not has_ended.wait(0.1):  # the first interrupt has no effect on a query that has not started
            con.interrupt()
        raise
    if failed:
        raise failed[0]
    return results[0]


def _with_valid_text(call: Callable[[], T]) -> T:
    try:
        return call()
    except UnicodeDecodeError as error:
        raise duckdb.InvalidInputException("a text of the result is not valid UTF-8") from error


def query_error(error: Exception, place: str = "") -> QueryError:
    """DuckDB's error as QueryError: the message is its first line with the line of the SQL."""
    summary, _, details = str(error).strip().partition("\n")
    lines = [line.strip() for line in details.splitlines() if line.strip(" ^")]
    numbers = [line.removeprefix("LINE ") for line in lines if line.startswith("LINE ")]
    hint = "\n".join(line for line in lines if not line.startswith("LINE "))
    return QueryError(f"{place}{summary}" + (f" (line {numbers[0]})" if numbers else ""), hint or None)


def is_unreadable(error: BaseException | None) -> bool:
    """Whether DuckDB could not decode a file; errors of its Parquet reader may have no own class."""
    return isinstance(error, UNREADABLE) or type(error) is Error


def result_columns(con: Connection, sql: str) -> list[tuple[str, str]]:
    """Name and type of each column of a SELECT, which is bound but not run."""
    bound = relation(con, sql)
    return list(zip(bound.columns, map(str, bound.types), strict=True))


def logical_plan(con: Connection, sql: str) -> str:
    """DuckDB's unoptimized plan of a SELECT, as JSON."""
    with con.cursor() as cursor:
        cursor.execute("SET explain_output = 'all'")
        plans = dict(cursor.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall())
        cursor.execute("SET explain_output = 'physical_only'")
    return str(plans["logical_plan"])


def relation(con: Connection, sql: str) -> duckdb.DuckDBPyRelation:
    """The SELECT, bound but not run; raises DuckDB's error, which names the line."""
    try:
        return con.sql(sql)
    except (duckdb.BinderException, duckdb.CatalogException):
        con.execute(sql)  # fails, too, and unlike sql() names the line
        raise


def error_place(contract: Contract, error: Exception) -> str:
    """File and line of an error in the contract's body."""
    line_match = re.search(r"^LINE (\d+):", str(error), re.MULTILINE)
    return f"{contract.source}:{contract.body_line + (int(line_match[1]) - 1 if line_match else 0)}"


def check_columns(contract: Contract, found: Iterable[tuple[str, str]]) -> None:
    """Raises ContractError with a diff if names, types or their order differ from the contract."""
    declared = [f"{column.name} {column.type}" for column in contract.columns]
    returned = [f"{name} {type_}" for name, type_ in found]
    if declared == returned:
        return
    raise ContractError(
        f"{contract.source}:{contract.body_line}: the SELECT returns other columns than declared\n"
        + _column_diff(declared, returned),
        _column_hint(declared, returned),
    )


def _column_diff(declared: list[str], found: list[str]) -> str:
    from difflib import SequenceMatcher

    pairs: list[tuple[str, str]] = []
    matcher = SequenceMatcher(None, declared, found, autojunk=False)
    for tag, first, last, first_found, last_found in matcher.get_opcodes():
        if tag != "equal":
            pairs += zip_longest(declared[first:last], found[first_found:last_found], fillvalue="-")
    width = max(len("declared"), *(len(name) for name, _ in pairs))
    rows = [("declared", "found"), *pairs]
    return "\n".join(f"  {name:<{width}}  {name_found}" for name, name_found in rows)


def _column_hint(declared: list[str], found: list[str]) -> str:
    if sorted(declared) == sorted(found):
        return "the order differs: bring [columns] into the order of the SELECT"
    if len(declared) == len(found) and any(text.endswith(" HUGEINT") for text in found):
        return "sum() widens to HUGEINT: write sum(…)::BIGINT"
    return "correct [columns] or the SELECT"


def create_table(
    con: Connection, contract: Contract, sql: str | None = None, name: str | None = None
) -> None:
    """Creates the table of a contract, empty or from a SELECT of its columns, as `name` if given."""
    types = {column.name: column.type for column in contract.columns}
    create_from_rows(con, name or contract.name, types, [])
    if sql is not None:
        fill_table(con, contract, sql)


def fill_table(con: Connection, contract: Contract, sql: str) -> None:
    """Inserts the rows of a SELECT into the table of a contract, by column name."""
    con.execute(_parsed(f"INSERT INTO {quote_name(contract.name)} BY NAME {sql}"))


@lru_cache(maxsize=128)
def _parsed(sql: str) -> duckdb.Statement:
    """A parsed statement: it runs for every rank, and parsing takes a tenth of its time on a small one."""
    (statement,) = duckdb.extract_statements(sql)
    return statement


def create_from_rows(
    con: Connection, name: str, types: Mapping[str, str], rows: Sequence[Mapping[str, object]]
) -> None:
    """Creates a table with these columns, types and rows."""
    columns = ", ".join(f"{quote_name(column)} {type_}" for column, type_ in types.items())
    con.execute(f"CREATE TABLE {quote_name(name)} ({columns})")
    insert_rows(con, name, types, rows)


def insert_rows(
    con: Connection, name: str, types: Mapping[str, str], rows: Sequence[Mapping[str, object]]
) -> None:
    """Inserts rows into a table with these columns and types."""
    if not rows:
        return
    if len(rows) <= _FEW_ROWS and all(_is_plain(row.get(column)) for row in rows for column in types):
        texts = ([literal(row.get(column), type_) for column, type_ in types.items()] for row in rows)
        values = ", ".join(f"({', '.join(row)})" for row in texts)
        con.execute(f"INSERT INTO {quote_name(name)} VALUES {values}")
        return
    import pyarrow as pa

    schema = pa.schema([pa.field(column, type_of(type_)) for column, type_ in types.items()])
    casts = ", ".join(f"CAST({quote_name(c)} AS {type_}) AS {quote_name(c)}" for c, type_ in types.items())
    con.register("tw_rows", pa.Table.from_pylist(list(rows), schema=schema))
    con.execute(f"INSERT INTO {quote_name(name)} SELECT {casts} FROM tw_rows")
    con.unregister("tw_rows")


def _is_plain(value: object) -> bool:
    """Whether a value can be a literal in SQL: no NUL character, and no long text, which is slow to parse."""
    if isinstance(value, dict | list | tuple):
        return all(map(_is_plain, (*value, *value.values()) if isinstance(value, dict) else value))
    is_short_text = isinstance(value, str) and len(value) < _LONG_TEXT and "\0" not in value
    return is_short_text or value is None or isinstance(value, bool | int | float | datetime)


def statement_kind(con: Connection, sql: str) -> str:
    """DuckDB's type of the only statement in the text, such as `SELECT`; raises QueryError."""
    try:
        sql.encode()
        statements = con.extract_statements(sql)
    except UnicodeEncodeError as error:
        what = f"character {error.start + 1} of the SQL is not valid Unicode"
        raise QueryError(what, "write the query as UTF-8 text") from error
    except Error as error:
        raise query_error(error) from error
    if len(statements) != 1:
        raise QueryError(f"{len(statements)} statements", "write one statement")
    return statements[0].type.name


def keywords(con: Connection) -> dict[str, str]:
    """DuckDB's keywords in lower case, each with its category."""
    return dict(con.execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()").fetchall())


# A database cannot be used after a fork, and its threads and memory limit belong to it.
_Key = tuple[int, int | None, int | None]
_databases: dict[_Key, Connection] = {}
_lock = Lock()
_scratch_numbers = count(1)


def shared(threads: int | None = None) -> Connection:
    """A cursor of the in-memory database of this process: opening a database takes 15 ms.

    Its settings must not be changed. What it registers is seen by no other cursor.
    """
    with _lock:
        return _database(threads).cursor()


def _database(threads: int | None) -> Connection:
    key = (os.getpid(), threads, half_bytes())
    return _databases.get(key) or _databases.setdefault(key, connect(threads=threads))


@contextmanager
def scratch(threads: int | None = None) -> Iterator[Connection]:
    """A connection for a few statements, whose tables and views no other connection sees.

    They are dropped at the end. Its settings must not be changed: they are those of the shared database.
    Its cursors do not see the tables, so `engine.execute` cannot run here.
    """
    name = f"scratch_{next(_scratch_numbers)}"
    with _lock:
        database = _database(threads)
        database.execute(f"ATTACH ':memory:' AS {name}")
    con = database.cursor()
    try:
        con.execute(f"USE {name}")
        yield con
    except BaseException:
        with _lock:  # after an error a database may refuse all further statements
            for key in [key for key, cached in _databases.items() if cached is database]:
                del _databases[key]
        raise
    finally:
        con.close()
        with _lock, suppress(Error):
            database.execute(f"DETACH {name}")


_BATCH_ROWS: Final = 8_192
_INTERRUPT_INTERVAL_S: Final = 0.1


class QueryLimitError(QueryError):
    """A query that exceeded a limit; the message names the option that raises it."""


def limit_memory(con: Connection, memory_bytes: int | None) -> None:
    """Sets the memory limit of a connection that is not locked yet; None: that of any connection."""
    limit = half_bytes(memory_bytes)
    con.execute("RESET memory_limit" if limit is None else f"SET memory_limit = '{limit}B'")


def query(con: Connection, sql: str, limits: Limits = NO_LIMITS) -> pa.Table:
    """The rows of a user's statement, with DuckDB's type in each field's metadata.

    Raises QueryError with DuckDB's message, QueryLimitError beyond a limit.
    """
    watched = limited(limits.memory_bytes, limits.timeout_s)
    with con.cursor() as cursor, watched, _timeout(cursor, limits) as is_up:
        try:
            bound = relation(cursor, sql)
            table = interruptible(cursor, lambda: _fetch(bound, limits))
            return typed(table, map(str, bound.types))
        except OutOfMemory as error:
            raise memory_error(limits) if limits.memory_bytes is not None else query_error(error) from error
        except Error as error:
            raise time_error(limits) if is_up.is_set() else query_error(error) from error


def _fetch(bound: duckdb.DuckDBPyRelation, limits: Limits) -> pa.Table:
    """All rows; raises QueryLimitError as soon as there are too many rows or bytes."""
    import pyarrow as pa

    if limits.max_rows is None and limits.memory_bytes is None:
        return bound.to_arrow_table()
    batches: list[pa.RecordBatch] = []
    rows = bytes_ = 0
    reader = bound.to_arrow_reader(_BATCH_ROWS)
    for batch in reader:
        batches.append(batch)
        rows, bytes_ = rows + batch.num_rows, bytes_ + batch.nbytes
        if limits.max_rows is not None and rows > limits.max_rows:
            message = f"the query returns more than {limits.max_rows:,} rows"
            other_ways = hints.Hint("wh.scan(TABLE) reads any number", "-o FILE writes any number")
            raise QueryLimitError(*_beyond(message, "max_rows=N", "--max-rows N", other_ways))
        if limits.memory_bytes is not None and bytes_ > limits.memory_bytes:
            raise memory_error(limits)
    return pa.Table.from_batches(batches, schema=reader.schema)


def time_error(limits: Limits) -> QueryLimitError:
    """The error of a query that exceeds the time limit."""
    message = f"the query took longer than {limits.timeout_s:g} s"
    return QueryLimitError(*_beyond(message, "timeout_s=90", "--timeout 90s"))


def memory_error(limits: Limits) -> QueryLimitError:
    """The error of a query that exceeds the memory limit."""
    allowed, requested = half_bytes(), limits.memory_bytes or 0
    if allowed is not None and allowed < requested:
        message = f"the query needs more than {allowed >> 20} MiB of memory, half of the memory limit"
        return QueryLimitError(message, "raise the limit of the container or job, or ulimit -v")
    message = f"the query needs more than {requested / 1e9:g} GB of memory"
    return QueryLimitError(*_beyond(message, "memory_bytes=4_000_000_000", "--memory 4GB"))


def _beyond(message: str, python: str, option: str, more: str = "") -> tuple[str, str]:
    """Message and hint of an exceeded limit, with an example of a higher one in Python and as an option."""
    limit = hints.Hint(python.partition("=")[0], option.partition(" ")[0])
    hint = hints.fill("raise the limit: {}", hints.Hint(f"limits=tw.Limits({python})", option))
    hint = hints.fill("{}; {}", hint, more) if more else hint
    return hints.fill("{}, the limit of {}", message, limit), hint


@contextmanager
def _timeout(con: Connection, limits: Limits) -> Iterator[Event]:
    """Interrupts the connection once the time is up, until the block ends; yields whether it is up."""
    is_up, has_ended = Event(), Event()
    if limits.timeout_s is None:
        yield is_up
        return

    def interrupt(timeout_s: float) -> None:
        if has_ended.wait(timeout_s):
            return
        is_up.set()
        con.interrupt()
        while not has_ended.wait(_INTERRUPT_INTERVAL_S):  # the first has no effect before a query starts
            con.interrupt()

    thread = Thread(target=interrupt, args=(limits.timeout_s,), daemon=True)
    thread.start()
    try:
        yield is_up
    finally:
        has_ended.set()
        thread.join()


_ROW = "tw_row"


def rows_where(rows: pa.Table, conditions: Sequence[str], keys: Sequence[str] = ()) -> pa.Table:
    """The rows for which every condition holds, sorted by `keys`: column names, with `-` descending.

    Rows with equal keys keep their order; nulls are last. Raises ExpressionError for SQL that is not one
    condition on these columns, UnknownName for an unknown key.
    """
    order = ", ".join([*(_term(rows, key) for key in keys), _ROW])
    clause = " AND ".join(f"(\n{condition}\n)" for condition in conditions) or "true"
    return rows.take(_numbers(rows, f"SELECT {_ROW} FROM result WHERE {clause} ORDER BY {order}", conditions))


def _numbers(rows: pa.Table, sql: str, conditions: Sequence[str]) -> pa.ChunkedArray:
    import pyarrow as pa

    not_a_condition = f"not a condition: {' AND '.join(conditions)}"
    numbered = rows.append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    with connect() as con:
        con.register("result", numbered)
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        try:
            if statement_kind(con, sql) != "SELECT":
                raise ExpressionError(not_a_condition)
            return con.sql(sql).to_arrow_table().column(0)
        except (Error, QueryError) as error:
            failed = error if isinstance(error, QueryError) else query_error(error)
            why = failed.message.replace(f", {_ROW}", "").replace(f'"{_ROW}", ', "")
            columns = f"columns: {', '.join(rows.column_names)}"
            raise ExpressionError(f"{not_a_condition}: {why}", columns) from error


def _term(rows: pa.Table, key: str) -> str:
    name = key.removeprefix("-")
    return f"{quote_name(known_column(rows, name))}{' DESC' if key.startswith('-') else ''} NULLS LAST"


def known_column(rows: pa.Table, name: str) -> str:
    """The name; raises UnknownName, as a usage error, if there is no such column."""
    if name not in rows.column_names:
        error = UnknownName("column", name, rows.column_names)
        error.exit_code = ExpressionError.exit_code
        raise error
    return name
