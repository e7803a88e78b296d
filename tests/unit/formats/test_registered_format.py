"""A format from outside the package: a CSV with start, end, stream and name."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import tracewarehouse as tw
from trace_reading import ReadTrace, request
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import ACTIVITIES, Outcome, Part, Request
from tracewarehouse.formats.redact.text import Redaction, Redactor
from tracewarehouse.formats.registry import detect, format_named, formats, register, unregister

HEADER = b"start,end,stream,name"
SCRIPT = """
import tracewarehouse as tw
from test_registered_format import ToyFormat
from tracewarehouse.formats.registry import register

class Own(ToyFormat):
    name = "own_csv"

register(Own())
print([file.state for file in tw.open({root!r}).ingest(*{paths}, jobs=2).files])
"""


class ToyFormat:
    name = "toy_csv"
    version = 3

    def detect(self, path: Path, head: bytes) -> bool:
        return head.startswith(HEADER)

    def open(self, path: Path) -> ToyFile:
        return ToyFile(path)


class ToyFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        return (Part(),)

    def read(self, part: Part, request: Request) -> ToySource:
        return ToySource(self.path, request)


class ToySource:
    """Each line is a kernel. Secrets in names are replaced here: nothing after a source looks for them."""

    def __init__(self, path: Path, request: Request) -> None:
        self._data = path.read_bytes()
        rows = list(csv.DictReader(self._data.decode().splitlines()))
        starts, ends = ([int(row[name]) for row in rows] for name in ("start", "end"))
        redactor = Redactor(request.salt, request.policy)
        names = [redactor.clean(row["name"]) for row in rows]
        self._redactions = tuple(
            Redaction(at, "$.name", kind) for at, (_, kinds) in enumerate(names) for kind in kinds
        )
        self._batch = pa.RecordBatch.from_pydict({
            "event_id": pa.array(range(len(rows)), pa.int64()),
            "ph": pa.array(["X"] * len(rows)),
            "category": pa.array(["kernel"] * len(rows)),
            "name": pa.array([name for name, _ in names]),
            "pid": pa.array(["0"] * len(rows)),
            "tid": pa.array([row["stream"] for row in rows]),
            "ts_ns": pa.array(starts, pa.int64()),
            "dur_ns": pa.array([end - start for start, end in zip(starts, ends, strict=True)], pa.int64()),
            "stream": pa.array([int(row["stream"]) for row in rows], pa.int64()),
            "device": pa.array([0] * len(rows), pa.int64()),
            "has_collective": pa.array([False] * len(rows)),
            "repaired": pa.array([False] * len(rows)),
        })  # fmt: skip

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(self._batch.schema, [self._batch])}

    def outcome(self) -> Outcome:
        size = len(self._data)
        digest, events = hashlib.sha256(self._data).hexdigest(), self._batch.num_rows
        return Outcome(digest, "{}", size, size, events=events, redactions=self._redactions)


@pytest.fixture
def toy() -> Iterator[ToyFormat]:
    format = ToyFormat()
    register(format)
    yield format
    unregister(format.name)


def test_a_registered_format_is_detected_and_read(tmp_path: Path, toy: ToyFormat) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(HEADER + b"\n100,200,7,gemm\n150,300,8,nccl\n")
    assert detect(path) is toy and format_named("toy_csv") is toy
    found = ReadTrace(path)
    assert found.column("dur_ns") == [100, 150] and found.column("name") == ["gemm", "nccl"]
    assert detect(path).open(path).read(Part(), request()).outcome().events == 2


def test_a_registered_format_is_ingested_and_analyzed(tmp_path: Path, toy: ToyFormat) -> None:
    """gemm fills 100 to 300, all_reduce 200 to 400, relu 350 to 450 and 600 to 650."""
    path = tmp_path / "job" / "trace.csv"
    path.parent.mkdir()
    text = "100,300,7,gemm\n200,400,20,ncclDevKernel_AllReduce_Sum_f32\n350,450,21,relu\n600,650,7,relu\n"
    path.write_bytes(HEADER + b"\n" + text.encode())
    warehouse = tw.open(tmp_path / "warehouse")
    report = warehouse.ingest(path)
    assert [(file.state, file.run, file.rank) for file in report.files] == [("intact", "trace", 0)]
    (row,) = warehouse.analyze("temporal_breakdown").rows()
    assert {name: value for name, value in row.items() if name.endswith("_ns")} == {
        "window_ns": 550, "busy_ns": 400, "compute_ns": 350, "exposed_comm_ns": 50, "exposed_memory_ns": 0,
        "other_ns": 0, "idle_ns": 150,
    }  # fmt: skip
    (rank,) = warehouse.info("trace").ranks.rows()
    assert (rank["source_format"], rank["source_name"], rank["status"]) == ("toy_csv", "trace.csv", "intact")
    assert [file.state for file in warehouse.ingest(path).files] == ["same"]


def test_a_registered_format_replaces_secrets_itself(tmp_path: Path, toy: ToyFormat) -> None:
    secret = "-".join(("never", "stored", "42"))
    path = tmp_path / "trace.csv"
    path.write_bytes(HEADER + f"\n100,200,7,password={secret}\n150,300,8,gemm\n".encode())
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(path)
    name, other = (row["name"] for row in warehouse.query("SELECT name FROM events ORDER BY ts_ns").rows())
    assert secret not in name and name.startswith("password=[redacted:") and other == "gemm"
    counted = warehouse.query("SELECT rows FROM data_quality WHERE rule = 'redacted_value'")
    assert counted.rows() == [{"rows": 1}]


def two_ranks(folder: Path) -> list[Path]:
    paths = [folder / f"rank{rank}.csv" for rank in range(2)]
    for path in paths:
        path.write_bytes(HEADER + b"\n100,200,7,gemm")
    return paths


@pytest.mark.deep
def test_a_file_with_another_suffix_is_ingested_if_named(tmp_path: Path, toy: ToyFormat) -> None:
    paths = two_ranks(tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    listed = warehouse.ingest(tmp_path).files
    assert [file.state for file in listed] == ["skipped", "skipped"]
    assert all("name it if it is" in (file.reason or "") for file in listed)
    # Several files are read by worker processes, which never registered the format.
    report = warehouse.ingest(*paths, jobs=2)
    assert [(file.state, file.rank) for file in report.files] == [("intact", 0), ("intact", 1)]


def test_a_format_that_workers_cannot_load_is_read_in_process(tmp_path: Path) -> None:
    """Its class is local to a function or a script."""

    class Local(ToyFormat):
        name = "local_csv"

    register(Local())
    try:
        report = tw.open(tmp_path / "warehouse").ingest(*two_ranks(tmp_path), jobs=2)
    finally:
        unregister("local_csv")
    assert [(file.state, file.rank) for file in report.files] == [("intact", 0), ("intact", 1)]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=str(tmp_path / "other"), paths=[*map(str, two_ranks(tmp_path))]))
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.stdout == "['intact', 'intact']\n", done.stderr


def test_an_unregistered_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(HEADER + b"\n100,200,7,gemm\n")
    with pytest.raises(TraceFormatError, match="not a JSON object or array"):
        detect(path)
    assert "toy_csv" not in [format.name for format in formats()]


def test_a_format_replaces_one_of_its_name(toy: ToyFormat) -> None:
    other = ToyFormat()
    register(other)
    assert [format for format in formats() if format.name == "toy_csv"] == [other]
    names = [format.name for format in formats()]
    assert len(names) == len(set(names)) and {"kineto", "memory_timeline"} <= set(names)
