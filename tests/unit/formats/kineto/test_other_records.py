"""Records of Kineto beside those of CUDA: synchronization and collectives of XPUs, hardware counters, and
annotations of kernels in CUDA graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tracewarehouse as tw


def slice_(
    category: str, name: str, us: float, dur: float, pid: object, tid: int, **args: Any
) -> dict[str, Any]:
    place = {"pid": pid, "tid": tid, "ts": us, "dur": dur}
    return {"ph": "X", "cat": category, "name": name, **place, "args": args}


def kernel(name: str, us: float, correlation: int, **args: Any) -> dict[str, Any]:
    return slice_("kernel", name, us, 50.0, 0, 7, device=0, stream=7, correlation=correlation, **args)


def ingested(tmp_path: Path, events: list[dict[str, Any]]) -> tw.Warehouse:
    path = tmp_path / "rank0.json"
    tmp_path.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(path, run="a", jobs=1)
    return wh


def rows(wh: tw.Warehouse, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in wh.query(sql, limits=None).rows()]


def test_synchronization_and_collectives_of_an_xpu(tmp_path: Path) -> None:
    host = [
        slice_("xpu_sync", "zeEventHostSynchronize", 200.0, 60.0, -1, 1, correlation=9, Type="HOST_EVENT"),
        slice_("collective_comm", "xccl::allreduce", 205.0, 30.0, 1, 1, communicator_id=1),
    ]
    wh = ingested(tmp_path, [kernel("gemm", 100.0, 1), *host])
    assert rows(wh, "SELECT kind, dur_ns FROM syncs") == [("zeEventHostSynchronize", 60_000)]
    assert rows(wh, "SELECT collective, on_gpu, dur_ns FROM collectives") == [("all_reduce", False, 30_000)]
    wh = ingested(
        tmp_path / "with_kernels",
        [kernel("gemm", 100.0, 1), kernel("ncclDevKernel_AllReduce", 210.0, 2), *host],
    )
    assert rows(wh, "SELECT on_gpu, dur_ns FROM collectives") == [(True, 50_000)]


def test_hardware_counters_are_gpu_metrics(tmp_path: Path) -> None:
    place = {"ph": "C", "cat": "hardware_counters", "pid": "GPU 0 Counters", "tid": 0}
    active = "sm__cycles_active.avg"
    samples = [
        {**place, "name": name, "ts": us, "args": {"": value}}
        for name, values in ((active, (3000, 5000)), (f"{active}.pct_of_peak_sustained_elapsed", (30, 50)))
        for us, value in zip((110.0, 130.0), values, strict=True)
    ]
    wh = ingested(tmp_path, [kernel("gemm", 100.0, 1), *samples])
    found = wh.analyze("gpu_metrics").rows()
    assert {(row["device"], row["name"], row["sm_active_share"], row["counter_mean"]) for row in found} == {
        ("0", None, 0.4, None),
        ("0", active, None, 4000.0),
    }
    assert not rows(wh, "SELECT * FROM data_quality WHERE rule = 'unknown_category'")


def test_kernels_of_a_graph_belong_to_the_module_that_they_are_annotated_with(tmp_path: Path) -> None:
    launch = slice_("cuda_runtime", "cudaGraphLaunch", 90.0, 5.0, 1, 1, correlation=1)
    annotated = {"graph id": 77, "annotation": "layers.0.mlp", "phase": "forward"}
    kernels = [
        kernel("gemm_0", 100.0, 1, **annotated),
        kernel("gemm_1", 160.0, 1, **annotated | {"annotation": "layers.1.mlp"}),
        kernel("gemm_2", 220.0, 1, **{"graph id": 77, "annotation": {"no": "text"}}),
    ]
    wh = ingested(tmp_path, [launch, *kernels])
    sql = "SELECT name, attributed_by, module_path FROM kernels_attributed ORDER BY name"
    assert rows(wh, sql) == [
        ("gemm_0", "annotation", "layers.0.mlp"),
        ("gemm_1", "annotation", "layers.1.mlp"),
        ("gemm_2", None, None),
    ]
    assert rows(wh, "SELECT DISTINCT class_path FROM kernel_modules") == [("layers.*.mlp",)]
    (row,) = wh.analyze("coverage").rows()
    assert (row["graph_ns"], row["graph_attributed_ns"]) == (150_000, 100_000)
