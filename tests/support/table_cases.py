"""Traces and short ways from a file to the tables of its rank, for the tests of tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from memory_databases import memory_database
from tracewarehouse.duck import engine
from tracewarehouse.formats.base import ACTIVITIES, Outcome, Request
from tracewarehouse.formats.registry import detect
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.build import Built, RankTables, build

Event = Mapping[str, Any]


def read(path: Path) -> tuple[dict[str, Columns | pa.Table], Outcome]:
    """The tables of a file's first part, and what reading it found."""
    file = detect(path).open(path)
    source = file.read(file.parts()[0], Request(salt=b"salt", spill=path.parent))
    tables = {
        name: Columns.read(reader) if name == ACTIVITIES else reader.read_all()
        for name, reader in source.tables.items()
    }
    return tables, source.outcome()


def built(tables: Mapping[str, Columns | pa.Table], outcome: Outcome) -> tuple[Built, dict[str, pa.Table]]:
    """All stored tables of a rank, and what was found on the way."""
    rules, made = rules_of(), dict[str, Any]()
    (known,) = build([RankTables(0, tables, outcome)], rules, made.__setitem__)
    return known, {
        name: rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
        for name, rows in made.items()
    }


def tables_of(path: Path) -> engine.Connection:
    """A connection with every table of the file's rank, and `rank_facts`."""
    known, made = built(*read(path))
    return connected(made, known.facts)


def connected(made: Mapping[str, pa.Table], facts: Mapping[str, Any]) -> engine.Connection:
    """A connection with these tables of run `a`, rank 0."""
    con, catalog = memory_database(), rules_of().catalog
    for name, rows in made.items():
        contract = catalog.get(name, kind="table")
        if not rows.num_rows:
            engine.create_table(con, contract)
            continue
        con.register("made", rows)
        engine.create_table(con, contract, "SELECT 'a' AS run_id, 0 AS rank, * FROM made")
        con.unregister("made")
    con.register("made", pa.Table.from_pylist([{"run_id": "a", "rank": 0, **facts}]))
    con.execute("CREATE TABLE rank_facts AS FROM made")
    con.unregister("made")
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
    """A GPU activity of device 0, stream 7."""
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
        rule: (count, ns) for rule, count, ns in rows(con, "SELECT rule, rows, affected_ns FROM data_quality")
    }
