"""Restricts a user's query to reading the warehouse."""

from __future__ import annotations

from pathlib import Path

from tracewarehouse.contracts.sql_tokens import quote_text, token_texts
from tracewarehouse.duck.engine import Connection, statement_kind
from tracewarehouse.errors import QueryError

_PIVOT_BEGINS = frozenset({"PIVOT", "PIVOT_WIDER", "WITH", "FROM"})


def lock(con: Connection, folder: Path) -> None:
    """Limits the connection to files in `folder` until it is closed."""
    con.execute(f"SET allowed_directories = [{quote_text(str(folder))}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def check_reads_only(con: Connection, sql: str) -> None:
    """Raises QueryError unless the SQL is one statement that DuckDB classifies as SELECT."""
    kind = _kind(con, sql)
    if kind == "EXPLAIN":
        kind = _kind(con, _explained(sql))  # EXPLAIN ANALYZE runs what it explains
    if kind != "SELECT":
        raise QueryError(f"a {kind} statement is not allowed: queries are read-only", "write one SELECT")


def _kind(con: Connection, sql: str) -> str:
    kind = statement_kind(con, sql)
    # DuckDB splits a PIVOT into two statements: it creates a temporary type for the columns, then selects.
    begins = token_texts(sql)[0].upper()
    return "SELECT" if kind == "MULTI" and begins in _PIVOT_BEGINS else kind


def _explained(sql: str) -> str:
    words = token_texts(sql)[1:]
    return " ".join(words[1:] if words[0].upper() == "ANALYZE" else words)
