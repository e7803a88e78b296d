"""Whatever text of a file of any format holds a secret, none of it is stored."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nsys_writer
import rocpd_writer
import rpd_writer
from conftest import ROOT
from ingesting import only, take
from secret_samples import stored_needles
from tracewarehouse.simulation.allocator import MIB, Allocator, frames
from tracewarehouse.warehouse import Warehouse

TOKEN = "ghp" + "_" + "A1b2C3d4" * 4 + "E5f6"
DUMP = ROOT / "tests" / "data" / "flight-recorder" / "complete" / "rank0.json"
HOST = {"ph": "X", "pid": 4, "tid": 5, "dur": 3.0}
# Texts of a snapshot that are not free.
KINDS = ("action", "state", "segment_type")
KERNEL = {"correlation": 1, "device": 1, "stream": 2, "grid": [3, 1, 1], "block": [64, 1, 1]}
TRACE: dict[str, Any] = {
    "traceEvents": [
        {**HOST, "cat": "user_annotation", "name": "load data", "ts": 1.0, "args": {}},
        {**HOST, "cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": 2.0, "args": {"correlation": 1}},
        {**HOST, "cat": "kernel", "name": "gemm", "ts": 9.0, "args": KERNEL},
    ]
}
NCU = """==PROF== Connected to process 42
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","42","python3 T","node T","gemm T","1","7","(256, 1, 1) T","(8, 2, 1)","0","9.0","Speed T","Duration","usecond","1,024.5"
"0","42","python3 T","node T","gemm T","1","7","(256, 1, 1)","(8, 2, 1)","0","9.0","Speed T","Note T","T","text T"
"""  # noqa: E501


def with_tokens(value: Any) -> Any:
    """A JSON value with the token at the end of each text."""
    if isinstance(value, dict):
        return {key: each if key in KINDS else with_tokens(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_tokens(each) for each in value]
    return f"{value} {TOKEN}" if isinstance(value, str) else value


def database(writer: Any, path: Path) -> Path:
    """A file with the token in each text of each table, and in a column that the reader does not know."""
    writer.add(TRACE)
    writer.write(path)
    with sqlite3.connect(path) as con:
        for (table,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            con.execute(f"ALTER TABLE \"{table}\" ADD COLUMN note TEXT DEFAULT 'a note'")
            for _, column, type_, *_ in con.execute(f'PRAGMA table_info("{table}")').fetchall():
                if type_ == "TEXT" and column not in ("guid", "tag"):
                    con.execute(f'UPDATE "{table}" SET "{column}" = "{column}" || ?', (f" {TOKEN}",))
    con.close()
    return path


def snapshot(path: Path) -> Path:
    device = Allocator(4 * MIB)
    device.malloc(MIB, frames(("/job/train.py", 31, "step")))
    device.dump(path)
    path.write_bytes(pickle.dumps(with_tokens(pickle.loads(path.read_bytes()))))
    return path


def execution_trace(path: Path) -> Path:
    ids = {"rf_id": 1, "parent": 1, "fw_parent": 0, "seq_id": -1, "tid": "text"}
    nodes = [{"name": "aten::mm", "id": 1, **ids}, {"name": "again", "id": 1, **ids}]
    trace = {"schema": "1.0.1", "pid": 1, "time": "now", "nodes": nodes}
    path.write_text(json.dumps(with_tokens(trace)))
    return path


def flight_record(path: Path) -> Path:
    found = json.loads(DUMP.read_text())
    version = found["version"]
    path.write_text(json.dumps({**with_tokens(found), "version": version}))
    return path


def counters(path: Path) -> Path:
    path.write_text(NCU.replace(" T", f" {TOKEN}").replace('"T"', f'"{TOKEN}"'))
    return path


FILES: dict[str, Callable[[Path], Path]] = {
    "run.sqlite": lambda path: database(nsys_writer.Writer(), path),
    "run.rpd": lambda path: database(rpd_writer.Writer(), path),
    "run.db": lambda path: database(rocpd_writer.Writer("00a1"), path),
    "snapshot.pickle": snapshot,
    "execution_trace.json": execution_trace,
    "flight.json": flight_record,
    "ncu.csv": counters,
}


@pytest.mark.parametrize("name", FILES)
def test_a_token_in_every_text(tmp_path: Path, name: str) -> None:
    path = FILES[name](tmp_path / name)
    assert TOKEN in path.read_bytes().decode("latin-1")
    assert only(take(tmp_path / "wh", path, run="run", jobs=1)).state == "intact"
    Warehouse(tmp_path / "wh").refresh()
    # A text may be cut after some characters: a part of a secret is one, too.
    assert stored_needles(tmp_path / "wh", [TOKEN[:12]]) == {}
    assert Warehouse(tmp_path / "wh").query("SELECT redacted > 0 AS some FROM ranks").rows() == [
        {"some": True}
    ]
