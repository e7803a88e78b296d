"""Queries of users, with limits of time, memory and rows: beyond one they fail, and never return a part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from tracewarehouse import hints
from tracewarehouse.duck.arrow import typed
from tracewarehouse.duck.engine import Connection, Error, OutOfMemory, interruptible, query_error, relation
from tracewarehouse.errors import QueryError
from tracewarehouse.memory_limits import half_bytes

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_BATCH_ROWS: Final = 8_192
_INTERRUPT_INTERVAL_S: Final = 0.1
# The options in Python, with an example.
_PYTHON: Final = {
    "timeout": "timeout_s=90",
    "memory": "memory_bytes=4_000_000_000",
    "max_rows": "max_rows=N",
}


class QueryLimitError(QueryError):
    """A query that exceeded a limit; the message names the option that raises it."""


@dataclass(frozen=True)
class Limits:
    """What a query may use; None: no limit. Memory counts for DuckDB and for the rows of the result."""

    max_rows: int | None = 100_000
    timeout_s: float | None = 30.0
    memory_bytes: int | None = 1_000_000_000

    def apply(self, con: Connection) -> None:
        """Sets the memory limit of a connection whose configuration is not locked yet."""
        if self.memory_bytes is not None:
            allowed = half_bytes()
            con.execute(f"SET memory_limit = '{min(self.memory_bytes, allowed or self.memory_bytes)}B'")


NO_LIMITS: Final = Limits(None, None, None)


def query(con: Connection, sql: str, limits: Limits = NO_LIMITS) -> pa.Table:
    """The rows of a user's statement, with DuckDB's type in each field's metadata.

    Raises QueryError with DuckDB's message, QueryLimitError beyond a limit.
    """
    with con.cursor() as cursor, _timeout(cursor, limits) as watch:
        try:
            bound = relation(cursor, sql)
            table = interruptible(cursor, lambda: _fetch(bound, limits))
            return typed(table, map(str, bound.types))
        except OutOfMemory as error:
            raise _memory_error(limits) if limits.memory_bytes is not None else query_error(error) from error
        except Error as error:
            if watch.fired and limits.timeout_s is not None:
                message = f"the query took longer than {limits.timeout_s:g} s"
                raise QueryLimitError(*_beyond(message, "timeout", "90s")) from error
            raise query_error(error) from error


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
            more = hints.Hint("wh.scan(TABLE) reads any number", "-o FILE writes any number")
            raise QueryLimitError(*_beyond(message, "max_rows", "N", more))
        if limits.memory_bytes is not None and bytes_ > limits.memory_bytes:
            raise _memory_error(limits)
    return pa.Table.from_batches(batches, schema=reader.schema)


def _memory_error(limits: Limits) -> QueryLimitError:
    allowed, requested = half_bytes(), limits.memory_bytes or 0
    if allowed is not None and allowed < requested:
        message = f"the query needs more than {allowed >> 20} MiB of memory, half of the memory limit"
        return QueryLimitError(message, "raise the limit of the container or job, or ulimit -v")
    message = f"the query needs more than {requested / 1e9:g} GB of memory"
    return QueryLimitError(*_beyond(message, "memory", "4GB"))


def _beyond(message: str, name: str, example: str, more: str = "") -> tuple[str, str]:
    """Message and hint of an exceeded limit."""
    python = _PYTHON[name]
    option = hints.Hint(python, f"--{name.replace('_', '-')} {example}")
    limit = hints.Hint(python.partition("=")[0], f"--{name.replace('_', '-')}")
    hint = hints.fill("raise the limit: {}", option)
    hint = hints.fill("{}; {}", hint, more) if more else hint
    return hints.fill("{}, the limit of {}", message, limit), hint


@dataclass
class _Watch:
    """Whether the time is up."""

    fired: bool = False
    done: Event = field(default_factory=Event)


@contextmanager
def _timeout(con: Connection, limits: Limits) -> Iterator[_Watch]:
    """Interrupts the connection once the time is up, until the block ends."""
    watch = _Watch()
    if limits.timeout_s is None:
        yield watch
        return

    def interrupt(timeout_s: float) -> None:
        if watch.done.wait(timeout_s):
            return
        watch.fired = True
        con.interrupt()
        while not watch.done.wait(_INTERRUPT_INTERVAL_S):  # the first has no effect before a query starts
            con.interrupt()

    thread = Thread(target=interrupt, args=(limits.timeout_s,), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.done.set()
        thread.join()
