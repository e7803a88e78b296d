"""rocpd databases of simulated runs: every analysis equals that of the same run's Kineto traces."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

import nsys_writer
import tracewarehouse as tw
from analysis_rows import OF_GROUPS, differing
from conftest import deep
from rocpd_writer import Writer
from simulated import LAYOUTS, SMALL
from tracewarehouse.formats.registry import detect

# Columns that a rocpd file cannot carry; the list grows only with a line in the CHANGELOG.
NOT_CARRIED: Final = {
    "collective_waits": ("process_group", "group_source", "sequence", "bytes", "instance_id", "state"),
    "comm_by_group": ("process_group",),
    "stragglers": ("partial", "assumed"),
    "gpu_timeline": ("category",),
    "step_account": ("category",),
    "window_account": ("category",),
    "gpu_utilization": ("sm_efficiency", "occupancy"),
    "step_kernels": ("op_sig", "path_sig", "module_path", "work_unit", "work"),
    "window_kernels": ("op_sig", "path_sig", "module_path", "work_unit", "work"),
}
# Analyses that be skipped, and the reason.
ABSTAINING: Final = dict.fromkeys(
    ("memory_by_op", "memory_curve", "memory_live", "memory_peak", "memory_pressure"), "no memory events"
) | dict.fromkeys(
    ("bandwidth_by_size", "collective_bandwidth", "slow_links", "slow_network"), "no message sizes"
)
# About the file, or from the device table, which has only names.
NOT_COMPARED: Final = ("low_roofline_hot_ops", "node_summary", "quality", "recording", "tensor_cores")


def recorded(path: Path) -> dict[str, Any]:
    """A trace as rocprofv3 records it: GPU activities, HIP calls and markers; plain names of copies."""
    trace = nsys_writer.read_trace(gzip.decompress(path.read_bytes()))
    kept = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "user_annotation")
    found = [event for event in trace["traceEvents"] if event.get("ph") == "X" and event["cat"] in kept]
    for event in found:
        event.get("args", {}).pop("External id", None)
        if event["cat"] == "gpu_memset":
            event["cat"] = "kernel"
            event["args"].pop("bytes", None)
        if event["cat"] == "gpu_memcpy":
            event["name"] = event["name"].split(" (")[0]
    return {**trace, "traceEvents": found}


def database(traces: list[dict[str, Any]], path: Path, **layout: bool) -> Path:
    """Ranks alternate between two GUIDs."""
    writers = [Writer("00a1", **layout), Writer("00b2", **layout)]
    for number, trace in enumerate(traces):
        writers[number % 2].add(trace)
    for writer in writers:
        if writer.tables:
            writer.write(path)
    return path


@pytest.mark.parametrize("tracks, by_number", deep((False, False), (True, True)))
def test_every_analysis_equals_that_of_the_kineto_traces(
    tmp_path: Path, tracks: bool, by_number: bool
) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["amd"], "tensor": 1})
    kineto, rocpd = tw.open(tmp_path / "kineto"), tw.open(tmp_path / "rocpd")
    traces = {trace.name.removesuffix(".gz"): recorded(trace) for trace in sorted(job.glob("rank*.json.gz"))}
    for name, trace in traces.items():
        (tmp_path / name).write_text(json.dumps(trace, default=float))
        kineto.ingest(tmp_path / name, run="job")
    path = database(list(traces.values()), tmp_path / "job.db", tracks=tracks, by_number=by_number)
    report = rocpd.ingest(path, run="job")
    assert {file.state for file in report.files} == {"intact"}
    differ = differing(kineto, rocpd, abstaining=ABSTAINING, not_carried=NOT_CARRIED)
    assert sorted(set(differ) - {*NOT_COMPARED, *OF_GROUPS}) == []


def small() -> dict[str, Any]:
    """A trace with a launch and a copy."""
    host = {"ph": "X", "cat": "cuda_runtime", "pid": 4, "tid": 5, "dur": 3}
    device = {"ph": "X", "dur": 5}
    place = {"device": 1, "stream": 2}
    shape = {"correlation": 1, **place, "grid": [3, 1, 1], "block": [64, 1, 1], "shared memory": 16}
    return {
        "traceEvents": [
            {**host, "name": "hipLaunchKernel", "ts": 2, "args": {"correlation": 1}},
            {**host, "name": "hipMemcpyAsync", "ts": 6, "args": {"correlation": 2}},
            {**device, "cat": "kernel", "name": "gemm", "ts": 9, "args": shape},
            {**device, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 19,
             "args": {"correlation": 2, **place, "bytes": 4096}},
        ]
    }  # fmt: skip


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql).rows()]


@pytest.mark.parametrize("tracks", [False, True])
def test_kernels_copies_and_counters(tmp_path: Path, tracks: bool) -> None:
    writer = Writer("ab", tracks=tracks)
    writer.add(small())
    event = next(row[-1] for row in writer.tables["kernel_dispatch"])
    writer.tables["info_pmc"] = [(1, "ab", "SQ_WAVES")]
    writer.tables["pmc_event"] = [(1, "ab", event, 1, 12.5)]
    writer.write(tmp_path / "a.db")
    assert detect(tmp_path / "a.db").name == "rocpd"
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a.db", run="a")
    columns = "name, device, stream, grid_x, block_x, shared_memory_bytes, bytes, launch_state, dur_ns"
    assert rows(warehouse, f"SELECT {columns} FROM kernels ORDER BY ts_ns") == [
        ("gemm", 1, 2, 3, 64, 16, None, "known", 5000),
        ("Memcpy HtoD", 1, 2, None, None, None, 4096, "known", 5000),
    ]
    assert rows(warehouse, "SELECT name, value FROM counters") == [("SQ_WAVES", 12.5)]
    assert rows(warehouse, "SELECT clock, source_format, source_schema FROM ranks") == [
        ("boot", "rocpd", "3")
    ]


def test_secrets_in_the_command_are_redacted(tmp_path: Path) -> None:
    writer = Writer("ab")
    writer.add(small())
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    writer.tables["info_process"] = [(1, "ab", 1, 4, f"python train.py --token {token}")]
    writer.write(tmp_path / "a.db")
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a.db", run="a")
    assert all(token.encode() not in path.read_bytes() for path in tmp_path.rglob("warehouse/**/*.json"))


def test_a_file_without_gpu_activity_is_refused(tmp_path: Path) -> None:
    writer = Writer("ab")
    writer.add(small())
    writer.tables["kernel_dispatch"] = writer.tables["memory_copy"] = []
    writer.write(tmp_path / "a.db")
    [outcome] = tw.open(tmp_path / "warehouse").ingest(tmp_path / "a.db", run="a").files
    assert outcome.state == "refused" and "no GPU activity" in (outcome.reason or "")


def test_values_of_another_type_are_reported(tmp_path: Path) -> None:
    writer = Writer("ab")
    writer.add(small())
    writer.write(tmp_path / "a.db")
    with sqlite3.connect(tmp_path / "a.db") as con:
        con.execute("UPDATE rocpd_memory_copy_ab SET size = 'many'")
    con.close()
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a.db", run="a")
    assert rows(warehouse, "SELECT bytes FROM kernels WHERE activity = 'memcpy'") == [(None,)]
    assert rows(warehouse, "SELECT count(*) FROM data_quality WHERE rule = 'unusable_value'") == [(1,)]
