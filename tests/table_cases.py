"""Traces and short ways from a file to the tables of its rank, for the tests of tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracewarehouse import engine, reader
from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import sql_tables as tables

Event = Mapping[str, Any]


def tables_of(path: Path) -> engine.Connection:
    """A connection with every table of the file's rank."""
    con = engine.connect(threads=2)
    reader.load(con, path, run_id="a", rank=0, salt=b"salt")
    tables.build(con, Catalog.load())
    return con


def trace(folder: Path, events: Iterable[Event | str], header: Mapping[str, Any] | None = None) -> Path:
    """A trace file of these events; a string is the text of an element."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    top = "".join(f"{json.dumps(key)}: {json.dumps(value)}, " for key, value in (header or {}).items())
    path = folder / "trace.json"
    path.write_text(f'{{{top}"traceEvents": [' + ",\n".join(texts) + "]}")
    return path


def slice_(
    name: str, ts: float, dur: float, cat: str = "cpu_op", tid: Any = 1, **args: Any
) -> dict[str, Any]:
    """A slice of a host thread."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def call(name: str, ts: float, dur: float, correlation: int, **more: Any) -> dict[str, Any]:
    """A call of the CUDA runtime."""
    return slice_(name, ts, dur, "cuda_runtime", correlation=correlation) | more


def gpu(name: str, ts: float, dur: float, correlation: int | None = None, **more: Any) -> dict[str, Any]:
    """A GPU row of device 0, stream 7."""
    args = {"device": 0, "stream": 7} | ({} if correlation is None else {"correlation": correlation})
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}
    return event | more


def rows(con: engine.Connection, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a query."""
    found: list[tuple[Any, ...]] = con.execute(sql).fetchall()
    return found


def rules(con: engine.Connection) -> dict[str, tuple[int, int | None]]:
    """Rows and time of each rule of `data_quality` that fired."""
    return {
        rule: (count, ns) for rule, count, ns in rows(con, "SELECT rule, rows, ns_affected FROM data_quality")
    }
