"""Filters and sorts rows that were already computed, by SQL expressions on their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck.engine import Error, connect, query_error, statement_kind
from tracewarehouse.errors import ExpressionError, QueryError, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

_ROW = "tw_row"


def rows_where(rows: pa.Table, conditions: Sequence[str], keys: Sequence[str] = ()) -> pa.Table:
    """The rows for which every condition holds, sorted by `keys`: column names, with `-` descending.

    Rows with equal keys keep their order; nulls are last. Raises ExpressionError for SQL that is not one
    condition on these columns, UnknownName for an unknown key.
    """
    order = ", ".join([*(_term(rows, key) for key in keys), _ROW])
    where = " AND ".join(f"(\n{condition}\n)" for condition in conditions) or "true"
    return rows.take(_numbers(rows, f"SELECT {_ROW} FROM result WHERE {where} ORDER BY {order}", conditions))


def _numbers(rows: pa.Table, sql: str, conditions: Sequence[str]) -> pa.ChunkedArray:
    import pyarrow as pa

    numbered = rows.append_column(_ROW, pa.array(range(len(rows)), pa.int64()))
    with connect() as con:
        con.register("result", numbered)
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        try:
            if statement_kind(con, sql) != "SELECT":
                raise ExpressionError(_not_a_condition(conditions))
            return con.sql(sql).to_arrow_table().column(0)
        except (Error, QueryError) as error:
            failed = error if isinstance(error, QueryError) else query_error(error)
            why = failed.message.replace(f", {_ROW}", "").replace(f'"{_ROW}", ', "")
            raise ExpressionError(
                f"{_not_a_condition(conditions)}: {why}", f"columns: {', '.join(rows.column_names)}"
            ) from error


def _not_a_condition(conditions: Sequence[str]) -> str:
    return f"not a condition: {' AND '.join(conditions)}"


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
