"""The time of an ingest by step: the same steps, one after the other in one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from clock import cpu_s, measurement, timed

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.formats.base import ACTIVITIES, Request
from tracewarehouse.formats.kineto.format import KinetoFormat
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.parquet import TableWriter
from tracewarehouse.ingest.rules import Rules
from tracewarehouse.ingest.tables.build import RankTables, build


def stages(path: str, small: str | None, folder: str) -> dict[str, Any]:
    """CPU seconds of each step of an ingest of one file, after a small one, so that imports do not count."""
    catalog = Catalog.load()
    tools = Rules(catalog), TableWriter(catalog)
    if small:
        _steps(Path(small), Path(folder), *tools)
    found: dict[str, float] = {}
    taken = timed(lambda: found.update(_steps(Path(path), Path(folder), *tools)))
    return measurement(taken, found)


def _steps(path: Path, folder: Path, rules: Rules, writer: TableWriter) -> dict[str, float]:
    found: dict[str, float] = {}
    before = cpu_s()

    def step(name: str) -> None:
        nonlocal before
        now = cpu_s()
        found[name], before = now - before, now

    def add(name: str, rows: Any) -> None:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)
        step(f"build {name}")
        contract = rules.catalog.get(name, kind="table")
        file = folder / f"{name}.v{contract.version}.parquet"
        writer.write(contract, table, run_id="run", rank=0, path=file)
        step(f"write {name}")

    file = KinetoFormat().open(path)
    source = file.read(file.parts()[0], Request(salt=b"", spill=folder))
    columns = Columns.read(source.tables[ACTIVITIES])
    step("read: text to activities")
    build([RankTables(0, {ACTIVITIES: columns}, source.outcome())], rules, add)
    step("build facts")
    return found
