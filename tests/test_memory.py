"""Large files: their tables are made on disk, with little memory, and more of it only where it must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import ROOT
from table_cases import slice_, trace
from tracewarehouse import engine
from tracewarehouse.catalog import Catalog
from tracewarehouse.ingest import memory, nesting
from tracewarehouse.ingest import sql_tables as tables
from tracewarehouse.ingest.memory import Memory, workplace

TRACE = ROOT / "tests" / "data" / "torch-cpu"
MB = 1 << 20
# More than fits into 8 MB: a list cannot be put on disk while it is made.
HUNGRY = "SELECT length(list(range::VARCHAR || 'x'))  FROM range(400_000)"

# Slices one after the other, in the file in no order.
ROWS = 1_000_003
SLICES = f"""
SELECT 'a' AS run_id, 0 AS rank, id AS event_id, 1 AS thread, pre, id * 2 AS ts_ns, pre * 2 AS end_ns
FROM (SELECT range * 7919 % {ROWS} AS id, id + 1 AS pre FROM range({ROWS}))"""


def hungry(con: engine.Connection) -> object:
    return con.execute(HUNGRY).fetchone()


def test_memory_grows_until_it_is_enough(tmp_path: Path) -> None:
    with workplace(tmp_path, 1, 256 * MB, 0) as (con, _):
        con.execute(f"SET memory_limit = '{8 * MB}B'")
        with pytest.raises(engine.OutOfMemory):
            hungry(con)
        room = Memory(con, 8 * MB, 256 * MB)
        assert room.enough_for(lambda: hungry(con)) == (400_000,)
        assert room.limit_bytes is not None and 8 * MB < room.limit_bytes <= 256 * MB


def test_memory_never_grows_beyond_its_most(tmp_path: Path) -> None:
    with workplace(tmp_path, 1, 256 * MB, 0) as (con, _):
        con.execute(f"SET memory_limit = '{8 * MB}B'")
        with pytest.raises(engine.OutOfMemory):
            Memory(con, 8 * MB, 9 * MB).enough_for(lambda: hungry(con))
        with pytest.raises(engine.OutOfMemory):
            Memory(con).enough_for(lambda: hungry(con))


def test_a_pass_over_rows_that_lacks_memory_is_made_anew(tmp_path: Path) -> None:
    """Memory is lacking while rows are sorted, and again while they are read batch by batch."""
    contract, slices = (Catalog.load().get(name, kind="table") for name in ("nesting", "host_slices"))
    with workplace(tmp_path, 1, 256 * MB, memory.LARGE_TEXT_BYTES) as (con, _):
        engine.create_table(con, slices, SLICES)
        engine.create_table(con, contract)
        con.execute(f"SET memory_limit = '{8 * MB}B'")
        room = Memory(con, 8 * MB, 256 * MB)
        room.enough_for(lambda: nesting.fill(con, contract))
        wrong = "pre <> event_id + 1 OR post <> pre OR depth <> 1 OR parent_id IS NOT NULL"
        sums = con.execute(
            f"SELECT count(*), sum(event_id), count(*) FILTER ({wrong}) FROM nesting"
        ).fetchone()
    assert sums == (ROWS, ROWS * (ROWS - 1) // 2, 0)
    assert room.limit_bytes is not None and 8 * MB < room.limit_bytes < 100 * MB


def test_events_too_long_for_the_memory_of_reading_are_read_with_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LARGE_TEXT_BYTES", 1)
    monkeypatch.setattr(memory, "_READING_BYTES", 4 * MB)
    events = [slice_(f"op {n}", n, 1, long=f"{n}" * 2 * MB) for n in range(4)]
    report = tw.open(tmp_path / "warehouse").ingest(trace(tmp_path, events), run="long", jobs=1)
    assert report.exit_code == 0
    told = tw.open(tmp_path / "warehouse").query(
        "SELECT name, length(args) AS n FROM events ORDER BY event_id"
    )
    assert [row["name"] for row in told.rows()] == [f"op {n}" for n in range(4)]
    assert all(row["n"] > 2 * MB for row in told.rows())


def test_only_large_texts_are_worked_on_in_a_file(tmp_path: Path) -> None:
    with workplace(tmp_path, 1, 256 * MB, memory.LARGE_TEXT_BYTES - 1):
        assert not (tmp_path / "tables.duckdb").exists()
    with workplace(tmp_path, 1, 256 * MB, memory.LARGE_TEXT_BYTES):
        assert (tmp_path / "tables.duckdb").exists()


def test_tables_made_on_disk_are_those_made_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tw.simulate(tmp_path / "made", ranks=1, layers=2, steps=2)
    traces = (TRACE, tmp_path / "made")
    tw.open(tmp_path / "small").ingest(*traces, jobs=1)
    monkeypatch.setattr(memory, "LARGE_TEXT_BYTES", 1)
    cuts = {name: replace(cut, at_once=300) for name, cut in tables._CUTS.items()}
    monkeypatch.setattr(tables, "_CUTS", cuts)
    temp = tmp_path / "temp"
    temp.mkdir()
    seen: list[str] = []
    report = tw.open(tmp_path / "large").ingest(
        *traces, jobs=1, temp_dir=temp, progress=lambda _: seen.extend(path.name for path in temp.glob("*/*"))
    )
    assert report.exit_code == 0 and "tables.duckdb" in seen and not list(temp.iterdir())
    for table in ("events", "kernels", "runtime", "annotations", "data_quality", "memory_events"):
        same = f"SELECT * FROM {table} ORDER BY ALL"
        small, large = (tw.open(tmp_path / name).query(same).arrow() for name in ("small", "large"))
        assert small.equals(large) and small.num_rows, table
