"""The private DuckDB connection that evaluates rules, patterns and casts over a format's distinct values."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tracewarehouse.duck import engine

if TYPE_CHECKING:
    import pyarrow as pa

_local = threading.local()


def evaluate(sql: str, columns: Mapping[str, pa.Array]) -> pa.Table:
    """The rows of a SELECT over `given`, a table of these columns; one connection per thread."""
    import pyarrow as pa

    con = getattr(_local, "connection", None)
    if con is None:
        con = _local.connection = engine.connect(threads=1)
    con.register("given", pa.table(dict(columns)))
    try:
        return con.sql(sql).to_arrow_table()
    finally:
        con.unregister("given")
