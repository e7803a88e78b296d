"""An ingest keeps no more in memory than it needs, and stores the same for it."""

from __future__ import annotations

from pathlib import Path

from conftest import ROOT
from table_cases import rows, slice_, tables_of, trace
from tracewarehouse import engine, reader
from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import sql_tables as tables

CATALOG = Catalog.load()
FIRST_STEPS = ROOT / "tests" / "data" / "first-steps" / "rank0.json.gz"


def lean(path: Path, keep: tuple[str, ...]) -> engine.Connection:
    con = engine.connect(threads=2)
    reader.load(con, path, run_id="a", rank=0, salt=b"salt", texts=False)
    tables.build(con, CATALOG, keep)
    return con


def test_only_wanted_tables_are_left() -> None:
    con = lean(FIRST_STEPS, ("rank_facts", "redactions"))
    left = {name for (name,) in rows(con, "SELECT table_name FROM duckdb_tables()")}
    stored = {table.name for table in tables.stored_tables(CATALOG)}
    assert left == stored | {"rank_facts", "redactions"}


def test_the_stored_tables_are_the_same() -> None:
    con, whole = lean(FIRST_STEPS, ()), tables_of(FIRST_STEPS)
    for table in tables.stored_tables(CATALOG):
        sql = f"SELECT * FROM {table.name} {engine.order_by(table)}"
        assert rows(con, sql) == rows(whole, sql), table.name


def test_a_text_is_left_out_only_where_the_columns_hold_it(tmp_path: Path) -> None:
    odd = '{"name": "twice", "ph": "X", "ts": 1, "dur": 1, "name": "again"}'
    path = trace(tmp_path, [slice_("op", 1, 2), "7", odd, '"text"', "null"])
    con = engine.connect(threads=1)
    reader.load(con, path, run_id="a", rank=0, salt=b"salt", texts=False)
    texts = [text for (text,) in rows(con, "SELECT text FROM raw ORDER BY event_id")]
    assert texts == [None, "7", odd.replace(": ", ":").replace(", ", ","), '"text"', "null"]
