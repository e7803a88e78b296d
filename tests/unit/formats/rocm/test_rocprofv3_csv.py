"""CSV files of rocprofv3: the records of JSON as CSV, variants of columns, folders, and damaged files."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from test_rocprofv3 import CALL, COPY, KERNEL, process, rows

import rocprofv3_csv
import tracewarehouse as tw
from conftest import real_traces

FOLDER = real_traces()
COLUMNS = "ph, category, name, pid, tid, ts_ns, dur_ns, correlation, stream, device"
SIZES = "name, ts_ns, device, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_memory_bytes"


def whole() -> dict[str, Any]:
    """A process with records of each kind."""
    found = process()
    found["agents"].append({"id": {"handle": 78}, "type": 2, "product_name": "MI350X"})
    copies = ["NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"]
    found["strings"]["buffer_records"] += [
        {"kind": "MEMORY_COPY", "operations": copies},
        {"kind": "HSA_CORE_API", "operations": ["hsa_init", "hsa_signal_create"]},
        {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA"]},
        {"kind": "RCCL_API", "operations": ["ncclGetVersion", "ncclAllReduce"]},
    ]
    found["strings"]["marker_api"] = [{"key": 5, "value": "epoch 1"}]
    second = KERNEL["dispatch_info"] | {"agent_id": {"handle": 78}, "grid_size": {"x": 64, "y": 1, "z": 1}}
    found["buffer_records"] |= {
        "kernel_dispatch": [KERNEL, KERNEL | {"start_timestamp": 900, "dispatch_info": second}],
        "memory_copy": [COPY, COPY | {"operation": 3, "src_agent_id": COPY["dst_agent_id"],
                                      "dst_agent_id": COPY["src_agent_id"], "start_timestamp": 2400}],
        "hsa_api": [CALL | {"start_timestamp": 410}],
        "marker_api": [CALL | {"start_timestamp": 100, "end_timestamp": 5000}],
        "rccl_api": [CALL | {"start_timestamp": 420}],
    }  # fmt: skip
    return found


def activities(warehouse: tw.Warehouse) -> list[tuple[Any, ...]]:
    return [
        *rows(warehouse, f"SELECT {COLUMNS} FROM events ORDER BY ALL"),
        *rows(warehouse, f"SELECT {SIZES} FROM kernels ORDER BY ALL"),
    ]


@pytest.mark.parametrize("agents", ["relative", "type-relative", "number", "none"])
def test_csv_and_json_of_the_same_records_are_equal(tmp_path: Path, agents: str) -> None:
    found = whole()
    rocprofv3_csv.write(found, tmp_path / "csv", agents=agents)
    (tmp_path / "a.json").write_text(json.dumps({"rocprofiler-sdk-tool": [found]}))
    warehouses = []
    for name in ("csv", "a.json"):
        warehouse = tw.open(tmp_path / f"{name}.tw")
        (file,) = warehouse.ingest(tmp_path / name, run="run").files
        assert file.state == "intact", file
        warehouses.append(warehouse)
    of_csv, of_json = map(activities, warehouses)
    assert len(of_json) == 8 + 4 and of_csv == of_json
    described = [("rocprofv3", None if agents == "none" else "MI350X", "boot", "42")]
    assert rows(warehouses[0], "SELECT source_format, device_name, clock, pid FROM ranks") == described


def test_naming_any_file_or_the_folder_ingests_one_trace(tmp_path: Path) -> None:
    folder = tmp_path / "node7"
    rocprofv3_csv.write(whole(), folder)
    (folder / "42_kernel_stats.csv").write_text('"Name","Calls","TotalDurationNs"\n"gemm",1,700\n')
    (folder / "42_memory_allocation_trace.csv").write_text('"Kind","Operation"\n"MEMORY_ALLOCATION","X"\n')
    warehouse = tw.open(tmp_path / "warehouse")
    states = [
        [(file.path.name, file.state) for file in warehouse.ingest(named, run="run").files]
        for named in (folder / "42_agent_info.csv", folder, folder / "42_hip_api_trace.csv")
    ]
    trace = "42_kernel_trace.csv"
    statistics = ("42_kernel_stats.csv", "skipped")
    assert states[0] == [(trace, "intact")]
    assert sorted(states[1]) == [statistics, (trace, "same")]
    assert states[2] == [(trace, "same")]
    assert len(activities(warehouse)) == 12
    unread = "SELECT example FROM data_quality WHERE rule = 'table_not_read'"
    assert rows(warehouse, unread) == [("42_memory_allocation_trace.csv",)]
    (file,) = warehouse.ingest(folder / "42_kernel_stats.csv", run="other").files
    assert file.state == "refused" and "statistics of rocprofv3" in (file.reason or "")


def test_a_changed_table_changes_the_trace(tmp_path: Path) -> None:
    rocprofv3_csv.write(whole(), tmp_path / "a")
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a", run="run")
    (tmp_path / "a" / "42_hsa_api_trace.csv").unlink()
    warehouse.ingest(tmp_path / "a", run="run", replace=True)
    assert len(activities(warehouse)) == 11


def test_each_process_of_a_folder_is_a_trace(tmp_path: Path) -> None:
    for prefix in ("42_", "43_"):
        rocprofv3_csv.write(whole(), tmp_path / "a", prefix)
    files = tw.open(tmp_path / "warehouse").ingest(tmp_path / "a").files
    assert [(file.path.name, file.state) for file in files] == [
        ("42_kernel_trace.csv", "intact"),
        ("43_kernel_trace.csv", "intact"),
    ]


def test_beside_the_json_of_the_same_recording(tmp_path: Path) -> None:
    rocprofv3_csv.write(whole(), tmp_path / "a")
    (tmp_path / "a" / "42_results.json").write_text(json.dumps({"rocprofiler-sdk-tool": [whole()]}))
    files = {file.path.name: file for file in tw.open(tmp_path / "warehouse").ingest(tmp_path / "a").files}
    assert files.pop("42_results.json").state == "intact"
    assert {(file.state, file.reason) for file in files.values()} == {
        ("skipped", "is the same recording as 42_results.json")
    }


OLD = """\
"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp",\
"Private_Segment_Size","Group_Segment_Size","Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z",\
"Grid_Size_X","Grid_Size_Y","Grid_Size_Z","queue_id","Note","Note"
"KERNEL_DISPATCH",4,17,15,"transpose(float*, int)",3,671599758568,671599825328,\
0,32,4,4,1,\
1024,1024,1,9,"warm",x
"""


def test_columns_of_other_releases(tmp_path: Path) -> None:
    """Columns of ROCm 6.2, unknown ones and some of the same name; the file has a name of its user."""
    path = tmp_path / "mine.csv"
    path.write_bytes(b"\xef\xbb\xbf" + OLD.encode())
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(path, run="run")
    columns = "name, device, stream, correlation, dur_ns, shared_memory_bytes, grid_x, block_y"
    (row,) = rows(warehouse, f"SELECT {columns} FROM kernels")
    assert row == ("transpose(float*, int)", 0, 17, 3, 66760, 32, 256, 4)
    ((text,),) = rows(warehouse, "SELECT args FROM events")
    args = json.loads(text)
    assert args["rocprofv3.Private_Segment_Size"] == 0 and args["rocprofv3.Note"] == "warm"
    assert args["rocprofv3.Note#19"] == "x" and args["rocprofv3.queue_id#17"] == 9


def test_secrets_are_redacted(tmp_path: Path) -> None:
    secret = "sk-abcdefgh12345678"
    path = tmp_path / "42_marker_api_trace.csv"
    header = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp,Extra"
    path.write_text(
        f'{header}\nMARKER_CORE_API,"load --api-token={secret}",4,4,1,5,9,"--api-token={secret}"\n'
    )
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(path, run="run")
    found = str(rows(warehouse, "SELECT name, args FROM events"))
    assert "load" in found and secret not in found


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """Rows of another length, texts in place of numbers, and a line that is cut short."""
    rocprofv3_csv.write(whole(), tmp_path / "a", agents="none")
    path = tmp_path / "a" / "42_hip_api_trace.csv"
    good = path.read_text()
    path.write_text(
        good + "HIP,hipFree,42\n" + "HIP,hipFree,42,9,soon,700,800\n" + "HIP,hipFree,42,9,7,900,95"
    )
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a", run="run")
    found = rows(warehouse, "SELECT rows, example FROM data_quality WHERE rule = 'unusable_value'")
    assert [row[0] for row in found] == [3], found
    calls = "SELECT name, correlation, dur_ns FROM events WHERE category = 'cuda_runtime' ORDER BY ts_ns"
    assert rows(warehouse, calls) == [("hipLaunchKernel", 5, 200), ("hipFree", None, 100)]


HEADER = b'"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEADER, "no records"),
        (HEADER + b'K,1,"\xff",1,2\n', "invalid UTF8"),
        (HEADER + b"K,1," + b"x" * (5 << 20) + b",1,2\n", "a row of more than 1 MiB"),
        (HEADER[:-1] + b",a" * 9000 + b"\n" + b"K,1,a,1,2\n", "a header of more than 8 KiB"),
        (gzip.compress(HEADER + b"K,1,a,1,2\n" * 100)[:-20], "cut"),
    ],
    ids=["empty", "text", "row", "header", "gzip"],
)
def test_hostile_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / ("1_kernel_trace.csv.gz" if content[:2] == b"\x1f\x8b" else "1_kernel_trace.csv")
    path.write_bytes(content)
    (file,) = tw.open(tmp_path / "warehouse").ingest(path, run="run").files
    assert file.state == "refused" and reason in (file.reason or ""), file


@pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")
@pytest.mark.deep
def test_a_real_result_as_csv(tmp_path: Path) -> None:
    """Totals equal those that Python's csv module reads, and activities those of the JSON file."""
    assert FOLDER is not None
    source = FOLDER / "amd-misc" / "rocprofv3_908_results.json.gz"
    with gzip.open(source) as file:
        rocprofv3_csv.write(json.load(file)["rocprofiler-sdk-tool"][0], tmp_path / "a", "908_")
    warehouses = tw.open(tmp_path / "csv"), tw.open(tmp_path / "json")
    for warehouse, path in zip(warehouses, (tmp_path / "a", source), strict=True):
        warehouse.ingest(path, run="run")
    with (tmp_path / "a" / "908_kernel_trace.csv").open() as lines:
        found = list(csv.DictReader(lines))
    busy = sum(int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in found)
    assert rows(warehouses[0], "SELECT count(*), sum(dur_ns)::BIGINT FROM kernels") == [(len(found), busy)]
    assert len(found) == 43915 and activities(warehouses[0]) == activities(warehouses[1])


def test_columns_beyond_a_hundred_are_reported(tmp_path: Path) -> None:
    known = "Kind,Agent_Id,Queue_Id,Correlation_Id,Kernel_Name,Start_Timestamp,End_Timestamp"
    more = [f"c{number}" for number in range(200)]
    path = tmp_path / "1_kernel_trace.csv"
    path.write_text(f"{known},{','.join(more)}\nK,1,1,1,k,5,9{',7' * 200}\n", encoding="utf-8")
    warehouse = tw.open(tmp_path / "warehouse")
    (file,) = warehouse.ingest(path, run="run").files
    assert file.state == "intact"
    assert rows(warehouse, "SELECT dur_ns, args LIKE '%c92%', args LIKE '%c93%' FROM events") == [
        (4, True, False)
    ]
    found = rows(warehouse, "SELECT example FROM data_quality WHERE rule = 'table_not_read'")
    assert found == [("1_kernel_trace.csv: c199",)]
