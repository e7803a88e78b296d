"""Hostile and damaged SQLite files: nothing runs, nothing is written, memory stays bounded."""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import nsys_writer
import tracewarehouse as tw
from conftest import deep
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import databases
from tracewarehouse.formats.databases import Database, check_complete
from tracewarehouse.formats.registry import detect
from tracewarehouse.formats.source_tables import declared_type

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MANY_TABLES = 30_000


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """An export with one kernel and its launch."""
    writer = nsys_writer.Writer()
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 5,
         "args": {"device": 0, "stream": 7, "correlation": 1}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 1, "dur": 2,
         "args": {"correlation": 1}},
    ]  # fmt: skip
    writer.add({"traceEvents": events, "baseTimeNanoseconds": 1_700_000_000_000_000_000}, pid=9)
    path = tmp_path / "report.sqlite"
    writer.write(path)
    return path


def change(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as con:
        con.execute("PRAGMA writable_schema = ON")
        con.execute("BEGIN")  # otherwise each statement waits for the disk
        for statement in statements:
            con.execute(statement)
    con.close()
    return path


def kernels(path: Path) -> list[tuple[object, ...]]:
    warehouse = tw.open(path.parent / "warehouse")
    warehouse.ingest(path, run="run")
    found = warehouse.query("SELECT name, ts_ns, dur_ns, stream FROM kernels").rows()
    return [tuple(row.values()) for row in found]


def quality(path: Path) -> dict[str, int]:
    warehouse = tw.open(path.parent / "warehouse")
    return {row["rule"]: row["rows"] for row in warehouse.query("SELECT rule, rows FROM data_quality").rows()}


GOOD = [("gemm", 1_700_000_000_000_020_000, 5000, 7)]


def test_a_report_is_read_and_not_written(report: Path) -> None:
    before = hashlib.sha256(report.read_bytes()).hexdigest()
    assert kernels(report) == GOOD
    assert hashlib.sha256(report.read_bytes()).hexdigest() == before
    assert {path.name for path in report.parent.iterdir()} == {"report.sqlite", "warehouse"}


ENDLESS_VIEW = """
CREATE VIEW NVTX_EVENTS AS
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
SELECT x AS start, x AS end, 59 AS eventType, 150994953 AS globalTid, 'x' AS text FROM n
"""


def test_a_view_named_like_a_table_is_not_read(report: Path) -> None:
    change(report, ENDLESS_VIEW)
    assert kernels(report) == GOOD
    with Database(report) as database:
        assert "NVTX_EVENTS" not in database.tables


def test_virtual_tables_are_not_read(report: Path) -> None:
    change(report, "CREATE VIRTUAL TABLE NVTX_EVENTS USING rtree(id, start, end)")
    assert kernels(report) == GOOD
    with Database(report) as database:
        assert "NVTX_EVENTS" not in database.tables


def test_generated_columns_are_not_computed(report: Path) -> None:
    change(
        report, f"ALTER TABLE {KERNEL} ADD COLUMN twice GENERATED ALWAYS AS (zeroblob(1000000000)) VIRTUAL"
    )
    assert kernels(report) == GOOD
    with Database(report) as database:
        assert "twice" not in database.tables[KERNEL]


def test_triggers_do_not_run(report: Path) -> None:
    trigger = f"CREATE TRIGGER t AFTER INSERT ON {KERNEL} BEGIN INSERT INTO log VALUES (1); END"
    change(report, "CREATE TABLE log (x)", trigger)
    assert kernels(report) == GOOD


def test_values_of_the_wrong_type_are_null_and_counted(report: Path) -> None:
    change(report, f"INSERT INTO {KERNEL} SELECT * FROM {KERNEL}",
           f"UPDATE {KERNEL} SET streamId = 'seven', gridX = x'00ff' WHERE rowid = 2")  # fmt: skip
    assert kernels(report) == [*GOOD, (*GOOD[0][:3], -1)]
    assert quality(report)["unusable_value"] == 2


def test_missing_strings_are_null(report: Path) -> None:
    change(report, "DELETE FROM StringIds")
    assert kernels(report) == [(None, *GOOD[0][1:])]


def test_invalid_text_is_escaped(report: Path) -> None:
    change(report, "UPDATE StringIds SET value = CAST(x'ff67' AS TEXT) WHERE value = 'gemm'")
    assert kernels(report)[0][0] == "\\xffg"


def test_a_schema_whose_fault_is_not_text_is_refused(report: Path) -> None:
    """The message of SQLite quotes it."""
    report.write_bytes(report.read_bytes().replace(b"CREATE TABLE", b"CREATE TABL\x89"))
    (file,) = tw.open(report.parent / "warehouse").ingest(report).files
    assert file.state == "refused"
    assert "internal error" not in (file.hint or ""), file.reason


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_file_that_is_still_written_is_refused(report: Path, suffix: str) -> None:
    report.with_name(report.name + suffix).write_bytes(b"x")
    with pytest.raises(TraceFormatError, match="changes that are not in the file") as error:
        check_complete(report)
    assert "export" in (error.value.hint or "")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(report: Path, share: float) -> None:
    data = report.read_bytes()
    report.write_bytes(data[: int(len(data) * share)])
    (file,) = tw.open(report.parent / "warehouse").ingest(report).files
    assert (
        file.state == "refused" and "truncated" in (file.reason or "") and "nsys export" in (file.hint or "")
    )


def test_a_compressed_database_is_refused_with_the_remedy(report: Path) -> None:
    path = report.with_suffix(".sqlite.gz")
    path.write_bytes(gzip.compress(report.read_bytes()))
    with pytest.raises(TraceFormatError, match="compressed") as error:
        detect(path)
    assert error.value.hint == "unpack it with gunzip"


@pytest.mark.parametrize(
    "seed", [*range(0, 4096, 1024), *deep(*range(256, 4096, 512), *range(512, 4096, 1024))]
)
def test_changed_bytes_are_read_or_refused(report: Path, seed: int) -> None:
    data = bytearray(report.read_bytes())
    for at in range(seed + 16, len(data), 4096):
        data[at] ^= 0x5A
    report.write_bytes(bytes(data))
    for file in tw.open(report.parent / "warehouse").ingest(report).files:
        assert file.state in ("intact", "refused"), file
        assert "internal error" not in (file.hint or ""), file.details


def test_many_tables_are_refused_before_sqlite_parses_them(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "MAX_SCHEMA_OBJECTS", 1000)
    change(report, *(f"CREATE TABLE t{number} (a)" for number in range(1100)))
    with pytest.raises(TraceFormatError, match="more than 1000 tables"):
        Database(report)


@pytest.mark.deep
def test_memory_of_a_file_with_many_tables_is_bounded(report: Path) -> None:
    change(report, *(f"CREATE TABLE t{number} (a)" for number in range(MANY_TABLES)))
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from pathlib import Path
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.databases import Database
try:
    Database(Path({str(report)!r}))
except TraceFormatError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "more than 10000 tables" in done.stdout


def test_only_reading_is_authorized(report: Path) -> None:
    with Database(report) as database:
        for sql in (
            "ATTACH DATABASE ':memory:' AS other", "CREATE TABLE x (a)", f"DELETE FROM {KERNEL}",
            "SELECT load_extension('x')", "SELECT writefile('x', 'y')", "PRAGMA journal_mode = WAL",
            "SELECT randomblob(10)",
        ):  # fmt: skip
            with pytest.raises(TraceFormatError):
                database.rows(sql)


def test_batches_have_the_requested_types(report: Path) -> None:
    columns = {"start": pa.int64(), "missing": pa.int64(), "value": pa.float64()}
    with Database(report) as database:
        (batch,) = database.batches(KERNEL, columns, '"deviceId" = 0')
    assert batch.to_pydict() == {"start": [20_000], "missing": [None], "value": [None]}


def test_both_drivers_read_the_same_cells(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("adbc_driver_sqlite")
    change(report, "CREATE TABLE odd (a INTEGER, b TEXT, c REAL, d INTEGER)",
           "INSERT INTO odd VALUES (1, 'x', 1.5, NULL), (NULL, NULL, 2, 3), (-9007199254740993, '', NULL, 4)",
           "CREATE TABLE mixed (a INTEGER)", "INSERT INTO mixed VALUES (1), ('text'), (x'00')")  # fmt: skip
    with Database(report) as database:
        wanted = {
            table: {name: declared_type(type_) for name, type_ in columns.items()}
            for table, columns in database.tables.items()
        }
        fast = {table: list(database.batches(table, types)) for table, types in wanted.items()}
        monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
        slow = {table: list(database.batches(table, types)) for table, types in wanted.items()}
    assert {table: pa.Table.from_batches(found).to_pylist() for table, found in fast.items() if found} == {
        table: pa.Table.from_batches(found).to_pylist() for table, found in slow.items() if found
    }
    assert slow["odd"][0].schema.types == fast["odd"][0].schema.types
    assert database.unusable["mixed"] == 4
