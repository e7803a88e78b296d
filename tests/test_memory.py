"""Large files: their tables are made on disk, with little memory, and more of it only where it must be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import ROOT
from tracewarehouse import engine
from tracewarehouse.ingest import memory, tables
from tracewarehouse.ingest.memory import Memory, workplace

TRACE = ROOT / "tests" / "data" / "torch-cpu"
MB = 1 << 20
# More than fits into 8 MB: a list cannot be put on disk while it is made.
HUNGRY = "SELECT length(list(range::VARCHAR || 'x'))  FROM range(400_000)"


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
