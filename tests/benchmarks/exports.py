"""Exports of Nsight Systems: ingest against reading the same tables into Arrow."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from isal import igzip

from . import inputs
from .bench import Bench
from .ingest import command
from .model import Case, Row, Run, Target, check, ratios, seconds

# Rows of all tables, and CPU seconds without imports.
_READ = """
import json, sqlite3, sys, time
import adbc_driver_manager as driver, adbc_driver_sqlite as sqlite, pyarrow as pa
path = sys.argv[1]
sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
names = [row[0] for row in sqlite3.connect(path).execute(sql)]
started, wall, rows = time.process_time(), time.perf_counter(), 0
with sqlite.connect(f"file:{path}?mode=ro") as db, driver.AdbcConnection(db) as con:
    for name in names:
        with driver.AdbcStatement(con) as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
            statement.set_sql_query(f'SELECT * FROM "{name}"')
            stream, _ = statement.execute_query()
            rows += pa.RecordBatchReader._import_from_c(stream.address).read_all().num_rows
print(json.dumps([rows, time.process_time() - started, time.perf_counter() - wall]))
"""


def export(bench: Bench) -> Path:
    """The longest simulated trace as an SQLite export of about 100 MB."""
    path = bench.folder / "export.sqlite"
    if not path.exists():
        writer: Any = import_module("tests.support.nsys_writer")
        file = writer.Writer()
        trace = inputs.simulated(bench, "export").files[0]
        file.add(writer.read_trace(igzip.decompress(trace.read_bytes())))
        file.write(path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    return path


def nsys(bench: Bench) -> Iterator[Row]:
    """CPU time of `tw ingest` of an export over that of the driver that reads it."""
    path = export(bench)

    def read() -> Run:
        rows, cpu_s, wall_s = json.loads(bench.command(sys.executable, "-c", _READ, str(path)).answer)
        check(rows > 0, "the export has no rows")
        return Run(wall_s, cpu_s, 0, rows)

    taken = bench.turns(ours=lambda: command(bench, [path]), read=read)
    megabytes = path.stat().st_size / 1e6
    yield Row(
        "ingest-nsys",
        f"{megabytes:.0f} MB SQLite, {taken['read'][0].answer:,} rows",
        Target(3),
        ratios(taken["ours"], taken["read"], "cpu_s"),
        "×",
        {"tw ingest": seconds(taken["ours"], "cpu_s"), "ADBC": seconds(taken["read"], "cpu_s")},
    )


CASES = (
    Case("ingest-nsys", "CPU time of an Nsight Systems export: our ingest over reading its tables", nsys),
)
