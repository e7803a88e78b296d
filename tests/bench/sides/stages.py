"""Where the time of an ingest goes: the same steps, one after the other in one thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from clock import cpu_s, timed, told

from tracewarehouse import reader
from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.engine import connect
from tracewarehouse.ingest import sql_tables as tables
from tracewarehouse.ingest.write import write_tables


def stages(path: str, small: str | None, folder: str) -> dict[str, Any]:
    """CPU seconds of each step of taking in one file; a small file goes first, that imports are apart."""
    if small:
        _steps(Path(small), Path(folder))
    found: dict[str, float] = {}
    taken = timed(lambda: found.update(_steps(Path(path), Path(folder))))
    return told(taken, found)


def _steps(path: Path, folder: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    before = cpu_s()

    def step(name: str) -> None:
        nonlocal before
        now = cpu_s()
        found[name], before = now - before, now

    reader.survey(path, b"")
    step("survey: what the file is")
    catalog, con = Catalog.load(), connect(threads=1)
    reader.load(con, path, run_id="run", rank=0, salt=b"", texts=False)
    step("load: text to raw rows")
    tables.build(con, catalog, made=_each(con, catalog, folder, step))
    con.close()
    return found


def _each(
    con: Any, catalog: Catalog, folder: Path, step: Callable[[str], None]
) -> Callable[[Contract], None]:
    stored = tables.stored_tables(catalog)

    def made(table: Contract) -> None:
        step(f"make {table.name}")
        if table in stored:
            write_tables(con, catalog, [table], folder)
            step(f"write {table.name}")

    return made
