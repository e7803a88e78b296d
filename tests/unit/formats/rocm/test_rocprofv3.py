"""JSON results of rocprofv3: a hand-made file, damaged ones, and a real one if available."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import real_traces
from tracewarehouse.formats.file_text import Text

FOLDER = real_traces()
KERNEL = {
    "size": 184, "kind": 11, "operation": 2, "thread_id": 9, "correlation_id": {"internal": 5, "external": 0},
    "start_timestamp": 1000, "end_timestamp": 1700, "stream_id": {"handle": 3},
    "dispatch_info": {"agent_id": {"handle": 77}, "queue_id": {"handle": 16}, "kernel_id": 8,
                      "group_segment_size": 64, "workgroup_size": {"x": 256, "y": 1, "z": 1},
                      "grid_size": {"x": 1000, "y": 2, "z": 1}},
}  # fmt: skip
CALL = {
    "kind": 9, "operation": 1, "thread_id": 9, "correlation_id": {"internal": 5, "external": 12},
    "start_timestamp": 400, "end_timestamp": 600,
}  # fmt: skip
COPY = {
    "kind": 10, "operation": 2, "thread_id": 9, "correlation_id": {"internal": 6, "external": 0},
    "start_timestamp": 2000, "end_timestamp": 2500, "bytes": 4096, "stream_id": {"handle": 3},
    "src_agent_id": {"handle": 11}, "dst_agent_id": {"handle": 77},
}  # fmt: skip


def process(pid: int = 42) -> dict[str, Any]:
    return {
        "metadata": {
            "pid": pid,
            "node": {"hostname": "node7"},
            "command": ["train", "--api-token=sk-abcdefgh123456"],
        },
        "agents": [
            {"id": {"handle": 11}, "type": 1},
            {"id": {"handle": 77}, "type": 2, "product_name": "MI350X"},
        ],
        "strings": {"buffer_records": [{"kind": "HIP_API", "operations": ["hipInit", "hipLaunchKernel"]}]},
        "kernel_symbols": [{"kernel_id": 8, "formatted_kernel_name": "gemm", "kernel_name": "gemm.kd"}],
        "buffer_records": {
            "kernel_dispatch": [KERNEL],
            "hip_api": [CALL],
            "memory_copy": [COPY],
            "marker_api": [],
        },
    }


def ingest(path: Path, *processes: dict[str, Any]) -> tw.Warehouse:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(processes)}))
    warehouse = tw.open(path.parent / "warehouse")
    warehouse.ingest(path, run="run")
    return warehouse


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql).rows()]


def test_kernels_copies_and_calls(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path / "a.json", process())
    columns = "name, ts_ns, dur_ns, device, stream, grid_x, grid_y, block_x, bytes"
    assert rows(
        warehouse, f"SELECT {columns}, shared_memory_bytes, launch_state FROM kernels ORDER BY ts_ns"
    ) == [
        ("gemm", 1000, 700, 0, 3, 4, 2, 256, None, 64, "known"),
        ("Memcpy HtoD", 2000, 500, 0, 3, None, None, None, 4096, None, "missing"),
    ]
    assert rows(warehouse, "SELECT name, external_id FROM events WHERE category = 'cuda_runtime'") == [
        ("hipLaunchKernel", 12)
    ]
    assert rows(warehouse, "SELECT host, device_name, clock, pid FROM ranks") == [
        ("node7", "MI350X", "boot", "42")
    ]
    assert "sk-abcdefgh123456" not in str(rows(warehouse, "SELECT header FROM ranks"))


def test_names_by_kind(tmp_path: Path) -> None:
    """A kind is a place in the list of kinds. Markers have a text; an operation without a name is kept."""
    found = process()
    found["strings"] = {
        "buffer_records": [
            {"kind": "NONE", "operations": []},
            {"kind": "HIP_RUNTIME_API", "operations": ["hipFirst"]},
            {"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipInit", "hipMalloc"]},
            {"kind": "MARKER_CORE_RANGE_API", "operations": ["roctxMarkA", "roctxThreadRangeA"]},
        ],
        "marker_api": [{"key": 5, "value": "epoch 1"}, None, {"key": "x", "value": 1}],
    }
    found["buffer_records"] |= {
        "hip_api": [CALL | {"kind": kind, "operation": number} for kind, number in ((2, 1), (1, 0), (1, 7))],
        "marker_api": [
            CALL | {"kind": 3},
            CALL | {"kind": 3, "correlation_id": {"internal": 8, "external": 0}},
        ],
    }
    warehouse = ingest(tmp_path / "a.json", found)
    sql = (
        "SELECT category, name FROM events WHERE category IN ('cuda_runtime', 'user_annotation') ORDER BY ALL"
    )
    assert rows(warehouse, sql) == [
        ("cuda_runtime", "hipFirst"),
        ("cuda_runtime", "hipMalloc"),
        ("cuda_runtime", None),
        ("user_annotation", "epoch 1"),
        ("user_annotation", "roctxThreadRangeA"),
    ]
    kept = "SELECT count(*) FROM events WHERE args LIKE '%\"rocprofv3.operation\":7%' AND name IS NULL"
    assert rows(warehouse, kept) == [(1,)]


def test_each_process_is_a_rank(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path / "a.json", process(1), process(2))
    assert rows(warehouse, "SELECT rank, source_part FROM ranks ORDER BY 1") == [
        (0, "0 pid 1"),
        (1, "1 pid 2"),
    ]


def test_records_that_are_null_are_left_out(tmp_path: Path) -> None:
    found = process()
    found["buffer_records"] |= {"kernel_dispatch": [None, KERNEL, None], "hip_api": [None]}
    warehouse = ingest(tmp_path / "a.json", found)
    assert rows(warehouse, "SELECT name FROM kernels ORDER BY 1") == [("Memcpy HtoD",), ("gemm",)]


BAD_ELEMENT = '{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [1, {"a": []}]}}]}'


@pytest.mark.parametrize(
    "text",
    [
        '{"rocprofiler-sdk-tool": [{"a": 1}]}',
        '{"rocprofiler-sdk-tool": []}',
        '{"rocprofiler-sdk-tool": [{"agents":',
        BAD_ELEMENT,
    ],
)
def test_files_without_records_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    (file,) = tw.open(tmp_path / "warehouse").ingest(path, run="run").files
    assert file.state == "refused" and "internal error" not in (file.hint or ""), file


@pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")
@pytest.mark.deep
def test_a_real_result(tmp_path: Path) -> None:
    assert FOLDER is not None
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(FOLDER / "amd-misc" / "rocprofv3_908_results.json.gz", run="run")
    sql = "SELECT count(*), sum(dur_ns)::BIGINT, max(ts_ns + dur_ns) - min(ts_ns) FROM kernels"
    assert rows(warehouse, sql) == [(43915, 4441741378, 15122023494)]
    (row,) = warehouse.analyze("temporal_breakdown").rows()
    assert row["busy_ns"] == 4233112334
    assert rows(warehouse, "SELECT launches FROM ranks") == [(False,)]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_compressed_file_is_decompressed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    path = tmp_path / "results.json.gz"
    content = {"rocprofiler-sdk-tool": [process(pid) for pid in range(processes)]}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    read: list[Path] = []
    pieces = Text.pieces
    monkeypatch.setattr(Text, "pieces", lambda self: (read.append(self.path), pieces(self))[1])
    warehouse = tw.open(tmp_path / "warehouse")
    report = warehouse.ingest(path, run="run", jobs=1)
    assert [file.state for file in report.files] == ["intact"] * processes
    assert read == [path]
