"""rpd databases of simulated runs: every analysis equals that of the same run's Kineto traces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, Final

import pytest

import nsys_writer
import rpd_writer
import tracewarehouse as tw
from analysis_rows import OF_GROUPS, differing
from simulated import LAYOUTS, SMALL

# Columns that an rpd file cannot carry; the list grows only with a line in the CHANGELOG.
NOT_CARRIED: Final = {
    "collective_waits": ("process_group", "group_source", "sequence", "bytes", "instance_id", "state"),
    "comm_by_group": ("process_group",),
    "stragglers": ("partial", "assumed"),
    # Whether exposed communication is transfer, which the process groups say.
    "gpu_timeline": ("category",),
    "step_account": ("category",),
    "window_account": ("category",),
    # The links and peak rates of the device.
    "exposed_copies": ("observation", "culprit"),
    "slow_elementwise": ("observation",),
    # Blocks per multiprocessor and occupancy.
    "gpu_utilization": ("sm_efficiency", "occupancy"),
    "step_kernels": ("op_sig", "path_sig", "module_path", "work_unit", "work"),
    "window_kernels": ("op_sig", "path_sig", "module_path", "work_unit", "work"),
}
# Analyses that be skipped, and the reason.
ABSTAINING: Final = (
    dict.fromkeys(
        ("memory_by_op", "memory_curve", "memory_live", "memory_peak", "memory_pressure"), "no memory events"
    )
    | {"node_summary": "no host name recorded", "source_summary": "no Python stacks recorded"}
    | dict.fromkeys(
        ("bandwidth_by_size", "collective_bandwidth", "slow_links", "slow_network"), "no message sizes"
    )
)
# About the file, or from the device table that rpd lacks.
NOT_COMPARED: Final = ("quality", "tensor_cores")
# From input shapes and types, Python frames and the nesting of host events, of which rpd has less.
OF_INPUTS: Final = (
    "fusible_chain", "key_averages", "low_roofline_hot_ops", "mfu", "mfu_run", "misaligned_gemm",
    "module_siblings", "module_summary", "op_work_summary", "roofline",
)  # fmt: skip


def recorded(path: Path) -> dict[str, Any]:
    """A trace as rpd records it: sets of memory are kernels, copies have plain names.

    It has no synchronization and no window of the profiler.
    """
    trace = nsys_writer.read_trace(gzip.decompress(path.read_bytes()))
    events = [
        event
        for event in trace["traceEvents"]
        if event.get("cat") not in ("cuda_sync", "ac2g") and event.get("name") != "Record Window End"
    ]
    for event in events:
        if event.get("cat") == "gpu_memset":
            event["cat"] = "kernel"
            event["args"].pop("bytes", None)
        if event.get("cat") == "gpu_memcpy":
            event["name"] = event["name"].split(" (")[0]
    return {**trace, "traceEvents": events}


def database(job: Path, path: Path) -> Path:
    writer = rpd_writer.Writer()
    for trace in sorted(job.glob("rank*.json.gz")):
        writer.add(recorded(trace))
    writer.write(path)
    return path


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql).rows()]


@pytest.mark.deep
def test_every_analysis_equals_that_of_the_kineto_traces(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["amd"], "tensor": 1})
    kineto, rpd = tw.open(tmp_path / "kineto"), tw.open(tmp_path / "rpd")
    for trace in sorted(job.glob("rank*.json.gz")):
        path = tmp_path / trace.name.removesuffix(".gz")
        path.write_text(json.dumps(recorded(trace), default=float))
        kineto.ingest(path, run="job")
    report = rpd.ingest(database(job, tmp_path / "job.rpd"), run="job")
    assert {file.state for file in report.files} == {"intact"}
    differ = differing(kineto, rpd, abstaining=ABSTAINING, not_carried=NOT_CARRIED)
    assert sorted(set(differ) - {*NOT_COMPARED, *OF_INPUTS, *OF_GROUPS}) == []


def test_kernels_of_a_graph_launch_share_their_call(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["captured"], "ranks": 1, "tensor": 1, "gpu": "MI300X"})
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(database(job, tmp_path / "job.rpd"), run="job")
    (row,) = rows(warehouse, "SELECT max(n) FROM (SELECT count(*) AS n FROM kernels GROUP BY runtime_id)")
    assert row[0] > 10
    assert rows(warehouse, "SELECT DISTINCT clock, source_format FROM ranks") == [("boot", "rpd")]


@pytest.mark.parametrize("value", ["text", None, ""])
def test_odd_sequence_numbers_are_null(tmp_path: Path, value: str | None) -> None:
    writer = rpd_writer.Writer()
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4, "tid": 5, "ts": 1, "dur": 50,
         "args": {"Sequence number": value}},
        {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 4, "tid": 5, "ts": 2, "dur": 3,
         "args": {"correlation": 1}},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 9, "dur": 5,
         "args": {"correlation": 1, "device": 0, "stream": 2, "grid": [3, 1, 1], "block": [64, 1, 1]}},
    ]  # fmt: skip
    writer.add({"traceEvents": events})
    writer.write(tmp_path / "a.rpd")
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "a.rpd", run="a")
    assert rows(warehouse, "SELECT name, sequence_number FROM events WHERE category = 'cpu_op'") == [
        ("aten::mm", None)
    ]
    assert rows(warehouse, "SELECT grid_x, block_x, name FROM kernels") == [(3, 64, "gemm")]
