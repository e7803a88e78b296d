"""Perfetto traces of rocprofv3: the records of JSON as slices, other traces, and damaged ones."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from test_rocprofv3 import rows
from test_rocprofv3_csv import COLUMNS, whole

import rocprofv3_csv
import rocprofv3_perfetto
import tracewarehouse as tw
from conftest import real_traces
from rocprofv3_perfetto import field
from tracewarehouse.formats import protobuf

FOLDER = real_traces()
NAME = "42_results.pftrace"


@pytest.mark.parametrize(
    ("static", "restart", "piece"), [(True, 1000, 9999), (True, 3, 9999), (False, 1000, 9999), (True, 3, 4)]
)
def test_slices_and_json_of_the_same_records_are_equal(
    tmp_path: Path, static: bool, restart: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many packets are read at once."""
    monkeypatch.setattr(protobuf, "_PIECE_FIELDS", piece)
    found = whole()
    rocprofv3_perfetto.write(found, tmp_path / NAME, static=static, restart=restart)
    (tmp_path / "a.json").write_text(json.dumps({"rocprofiler-sdk-tool": [found]}))
    answers = []
    for name in (NAME, "a.json"):
        warehouse = tw.open(tmp_path / f"{name}.tw")
        (file,) = warehouse.ingest(tmp_path / name, run="run").files
        assert file.state == "intact", file
        sizes = rows(warehouse, "SELECT name, ts_ns, bytes, shared_memory_bytes FROM kernels ORDER BY ALL")
        ranks = rows(warehouse, "SELECT source_format, clock, pid FROM ranks")
        answers.append((rows(warehouse, f"SELECT {COLUMNS} FROM events ORDER BY ALL"), sizes, ranks))
    assert len(answers[1][0]) == 8 and answers[0] == answers[1]


def test_a_stream_is_that_of_the_record_or_else_of_its_track(tmp_path: Path) -> None:
    rocprofv3_perfetto.write(whole(), tmp_path / NAME)
    numbers = {"begin_ns": 7, "end_ns": 9, "corr_id": 1, "stream_id": 5}
    annotations = b"".join(field(4, field(10, key) + field(3, value)) for key, value in numbers.items())
    named = field(22, "kernel_dispatch") + field(23, "own")
    packet = field(1, field(10, 9) + field(11, field(9, 1) + field(11, 2**63 + 3) + annotations + named))
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes() + packet)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / NAME, run="run")
    sql = "SELECT name, stream FROM kernels WHERE kind = 'computation' ORDER BY ts_ns"
    assert [stream for _, stream in rows(warehouse, sql)] == [5, 3, 3]


def test_beside_other_files_of_the_same_recording(tmp_path: Path) -> None:
    rocprofv3_perfetto.write(whole(), tmp_path / NAME)
    files = tw.open(tmp_path / "alone.tw").ingest(tmp_path / NAME).files
    assert [file.state for file in files] == ["intact"]
    rocprofv3_csv.write(whole(), tmp_path)
    found = {file.path.name: file for file in tw.open(tmp_path / "w").ingest(tmp_path).files}
    assert found["42_kernel_trace.csv"].state == "intact"
    assert found[NAME].reason == "is the same recording as 42_kernel_trace.csv"


def test_other_slices_and_counters_are_reported(tmp_path: Path) -> None:
    found = whole()
    found["strings"]["buffer_records"].append({"kind": "ROCDECODE_API", "operations": ["a", "rocDecCreate"]})
    found["buffer_records"]["rocdecode_api"] = found["buffer_records"]["rccl_api"]
    rocprofv3_perfetto.write(found, tmp_path / NAME)
    counter = field(1, field(10, 9) + field(11, field(9, 4) + field(11, 5) + field(30, 17)))
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes() + counter)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / NAME, run="run")
    assert rows(warehouse, "SELECT count(*) FROM events") == [(8,)]
    unread = "SELECT rows, example FROM data_quality WHERE rule = 'table_not_read'"
    assert rows(warehouse, unread) == [(2, "1 value of counters")]


def test_traces_of_other_programs(tmp_path: Path) -> None:
    """They are skipped in a folder, and refused if they are named."""
    path = tmp_path / "android.pftrace"
    path.write_bytes(field(1, field(10, 1) + field(11, field(9, 1) + field(23, "draw"))))
    (tmp_path / "a.json").write_text(json.dumps({"rocprofiler-sdk-tool": [whole()]}))
    warehouse = tw.open(tmp_path / "warehouse")
    found = {file.path.name: file for file in warehouse.ingest(tmp_path).files}
    reason = "is a Perfetto trace that is not from rocprofv3"
    assert (found["android.pftrace"].state, found["android.pftrace"].reason) == ("skipped", reason)
    (file,) = warehouse.ingest(path).files
    assert file.state == "refused" and reason in (file.reason or "")


def test_secrets_are_redacted(tmp_path: Path) -> None:
    secret = "sk-abcdefgh12345678"
    found = whole()
    found["strings"]["marker_api"][0]["value"] = f"load --api-token={secret}"
    rocprofv3_perfetto.write(found, tmp_path / NAME)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / NAME, run="run")
    texts = str(rows(warehouse, "SELECT name, args FROM events"))
    assert "load" in texts and secret not in texts


WORDS = field(1, field(12, field(3, field(1, 1) + field(2, "begin_ns")) + field(3, field(2, "corr_id"))))
LABELS = b"".join(field(4, field(10, f"begin_ns {number}") + field(3, 1)) for number in range(500))
SEQUENCES = [field(1, field(10, number) + field(11, field(9, 1))) for number in range(70_000)]
MANY = [
    field(1, field(11, field(9, 1) + field(4, field(10, f"L{number}") + field(3, 1))))
    for number in range(190)
]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (WORDS + b"\n\xff\xff\xff\xff\x7f", "at byte"),
        (WORDS + field(1, field(11, field(9, 1) + b"\x52\x90\x4e")), "longer than its message at byte"),
        (WORDS + field(1, b"\x08" + b"\xff" * 11), "a number of more than 10 bytes at byte"),
        (WORDS + field(1, field(11, field(9, 1) + LABELS)), "names of annotations"),
        (WORDS + b"".join(MANY * 1000), "190 names of annotations"),
        (WORDS + field(1, field(8, 1) * 2000), "more than 1,000 fields at byte"),
        (WORDS + b"\n\x00" * 2_000_000, "at byte"),
        (WORDS + b"".join(SEQUENCES), "more than 65,536 sequences or tracks"),
        (WORDS, "no records"),
    ],
    ids=["size", "inside", "number", "labels", "values", "fields", "empty", "sequences", "none"],
)
def test_hostile_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    start = time.process_time()
    (file,) = tw.open(tmp_path / "warehouse").ingest(path, run="run").files
    assert file.state == "refused" and reason in (file.reason or ""), file
    assert time.process_time() - start < 10


def test_files_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    rocprofv3_perfetto.write(whole(), path)
    path.write_bytes(path.read_bytes()[:-5])
    (file,) = tw.open(tmp_path / "warehouse").ingest(path, run="run").files
    assert file.state == "refused" and "not a complete Perfetto trace" in (file.reason or "")


@pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")
@pytest.mark.deep
def test_a_real_result_as_slices(tmp_path: Path) -> None:
    """Totals equal those of the records in Python, and activities those of the JSON file."""
    assert FOLDER is not None
    source = FOLDER / "amd-misc" / "rocprofv3_908_results.json.gz"
    with gzip.open(source) as file:
        process = json.load(file)["rocprofiler-sdk-tool"][0]
    rocprofv3_perfetto.write(process, tmp_path / "908_results.pftrace", restart=10_000)
    found = process["buffer_records"]["kernel_dispatch"]
    busy = sum(each["end_timestamp"] - each["start_timestamp"] for each in found)
    answers = []
    # Without a list of agents, the GPUs are numbered by their use.
    columns = "name, tid, ts_ns, dur_ns, correlation, stream, dense_rank() OVER (ORDER BY device)"
    for name, path in (("slices", tmp_path / "908_results.pftrace"), ("json", source)):
        warehouse = tw.open(tmp_path / name)
        warehouse.ingest(path, run="run")
        assert rows(warehouse, "SELECT count(*), sum(dur_ns)::BIGINT FROM kernels") == [(len(found), busy)]
        answers.append(rows(warehouse, f"SELECT {columns} FROM events ORDER BY ALL"))
    assert answers[0] == answers[1]
