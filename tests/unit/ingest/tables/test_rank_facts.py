"""Facts of a rank, and launch coverage."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from activity_rows import call, columns_of, gpu, slice_, step

from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.attribution import attribute_calls
from tracewarehouse.ingest.tables.kernels import KINDS, classify
from tracewarehouse.ingest.tables.launches import find_calls, find_launches
from tracewarehouse.ingest.tables.nesting import nest
from tracewarehouse.ingest.tables.quality import Coverage, activity_facts, coverage, rank_facts
from tracewarehouse.ingest.tables.steps import find_step_annotations

NONE = {
    "base_time_ns": 7, "pid": None, "start_ns": None, "end_ns": None, "gpu_start_ns": None,
    "gpu_end_ns": None, "framework": None, "events": 0, "non_events": 0, "gpu_activities": 0, "steps": 0,
    "gpu": False, "launches": False, "shapes": False, "stacks": False, "modules": False,
    "memory_events": False, "memory_timeline": False, "collective_args": False,
    "collectives": False, "counters": False, "kernel_counters": False, "gpu_metrics": False,
    "snapshot": False,
    "flight_records": False,
    "kernel_metrics": False, "execution_nodes": False,
}  # fmt: skip
TIMELINE = pa.table(
    {
        "event_id": [0, 1, 2, 3],
        "ts_ns": pa.array([None, 30, 10, None], pa.int64()),
        "element": pa.array([None, None, None, '"fifty"'], pa.string()),
    }
)


def of(
    *rows: dict[str, Any], timeline: pa.Table | None = None, **held: bool
) -> tuple[dict[str, Any], Coverage]:
    """The facts that differ from those of an empty rank, and the coverage."""
    columns, rules = columns_of(rows), rules_of()
    nesting = nest(columns, rules)
    calls = find_calls(columns, rules, nesting)
    launches = find_launches(columns, rules, nesting, calls)
    (annotations,) = find_step_annotations(columns, rules)
    attribution = attribute_calls(columns, nesting, calls, launches)
    kinds = classify(columns, rules, launches, attribution).kind
    wanted = {"counters": False, "gpu_metrics": False, "memory_events": False} | held
    wanted["collectives"] = bool((kinds == KINDS.index("communication")).any())
    facts = rank_facts(
        activity_facts(columns, rules, nesting.rows, launches, annotations, wanted), timeline, 7
    )
    assert list(facts) == list(NONE)
    (cover,) = coverage(columns, launches, attribution)
    return {name: value for name, value in facts.items() if value != NONE[name]}, cover


def test_a_rank_without_anything() -> None:
    assert rank_facts({}, None, 7) == NONE
    assert of() == ({}, Coverage(0, 0, 0))


def test_a_memory_timeline_alone() -> None:
    window = {"memory_timeline": True, "start_ns": 10, "end_ns": 30, "events": 4, "non_events": 1}
    assert rank_facts({}, TIMELINE, 7) == NONE | window


def test_a_timeline_beside_activities() -> None:
    facts, _ = of(slice_("op", 100, 5), timeline=TIMELINE)
    assert facts == {"memory_timeline": True, "start_ns": 100, "end_ns": 105, "events": 1, "pid": "1"}


def test_a_timeline_without_a_change() -> None:
    odd = rank_facts({}, TIMELINE.slice(3), 7)
    assert (odd["memory_timeline"], odd["non_events"], odd["start_ns"]) == (False, 1, None)
    assert rank_facts({}, TIMELINE.slice(0, 0), 7) == NONE


def test_windows_and_counts() -> None:
    rows = [
        slice_("op", 10, 90, shapes="[[2]]"),
        slice_("nn.Module: Linear", 10, 90, "python_function"),
        call("cudaLaunchKernel", 20, 1, 1),
        gpu("a", 200, 30, 1),
        gpu("b", 150, 10),
        step(3, 0, 120),
        step(3, 130, 10),
        step(4, 140, 10),
        slice_("late", 900, None),
        slice_(None, 0, None, None) | {"ph": None},
    ]
    facts, cover = of(*rows, counters=True, memory_events=True)
    assert facts == {
        "pid": "1", "start_ns": 0, "end_ns": 230, "gpu_start_ns": 150, "gpu_end_ns": 230, "events": 10,
        "non_events": 1, "gpu_activities": 2, "steps": 2, "gpu": True, "launches": True, "shapes": True,
        "framework": "pytorch", "stacks": True, "modules": True, "memory_events": True, "counters": True,
    }  # fmt: skip
    assert cover == Coverage(40, 30, 30)


def test_gpu_activities_without_a_launch() -> None:
    facts, cover = of(gpu("a", 30, 5))
    assert facts["gpu"] and "launches" not in facts and cover == Coverage(5, 0, 0)


def test_a_launch_outside_of_operators() -> None:
    _, cover = of(call("cudaLaunchKernel", 20, 1, 1), gpu("a", 30, 5, 1), gpu("b", 40, 5))
    assert cover == Coverage(10, 5, 0)


def test_an_operator_around_a_graph_launch_encloses_only_the_launch() -> None:
    """That a graph was launched says nothing about launches outside of operators."""
    graph = [slice_("op", 0, 50), call("cudaGraphLaunch", 10, 1, 1), gpu("a", 100, 5, 1), gpu("b", 110, 7, 1)]
    alone = [slice_("op", 60, 10), call("cudaGraphLaunch", 61, 1, 2), gpu("c", 120, 20, 2)]
    outside = [call("cudaLaunchKernel", 80, 1, 3), gpu("d", 150, 100, 3)]
    _, cover = of(*graph, *alone, *outside)
    assert cover == Coverage(132, 132, 20)


@pytest.mark.parametrize(
    ("row", "communicates"),
    [
        (gpu("ncclDevKernel_AllReduce", 0, 1), True),
        (gpu("gemm", 0, 1, has_collective=True), True),
        (gpu("ncclMemcpy", 0, 1, category="gpu_memcpy"), False),
        (gpu("ncclMemcpy", 0, 1, category="gpu_memcpy", has_collective=True), False),
        (gpu(None, 0, 1), False),
        (slice_("gloo:all_reduce", 0, 1, "user_annotation"), True),
        (slice_("mpi:_", 0, 1, "gpu_user_annotation"), True),
        (slice_("gloo:all_reduce", 0, None, "user_annotation"), False),
        (slice_("gloo:all_reduce", 0, 1, "cpu_op"), False),
        (slice_("gloo: ", 0, 1, "user_annotation"), False),
    ],
)
def test_collectives(row: dict[str, Any], communicates: bool) -> None:
    facts, _ = of(row)
    assert facts.get("collectives", False) == communicates
    assert facts.get("collective_args", False) == row.get("has_collective", False)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (slice_("nn.Module: Linear_0", 0, 1, "python_function"), {"stacks", "modules"}),
        (slice_("train.py(3): step", 0, 1, "python_function"), {"stacks"}),
        (slice_("nn.Module: Linear_0", 0, 1, "cpu_op"), set()),
    ],
)
def test_modules_are_frames_named_so(row: dict[str, Any], wanted: set[str]) -> None:
    facts, _ = of(row)
    assert {name for name in ("stacks", "modules") if facts.get(name)} == wanted


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("aten::mm", "pytorch"),
        ("c10d::allreduce_", "pytorch"),
        ("ProfilerStep#3", "pytorch"),
        ("PjRtStreamExecutorLoadedExecutable::Execute", "jax"),
        ("jit_train_step(81)", "jax"),
        ("XlaModule:#hlo_module=jit_f#", "jax"),
        ("my::aten::mm", None),
        ("solve", None),
        (None, None),
    ],
)
def test_the_framework_by_the_names_of_events(name: str | None, framework: str | None) -> None:
    facts, _ = of(slice_("other", 0, 1), slice_(name, 2, 1))
    assert facts.get("framework") == framework


def test_the_process_of_most_host_slices() -> None:
    many = [
        slice_("op", n, 1) | {"pid": pid}
        for n, pid in enumerate(("9", "é", "10", "é", "10", None, None, None))
    ]
    assert of(*many)[0]["pid"] == "é"
    assert of(*many, slice_("op", 9, 1, pid="10"))[0]["pid"] == "10"
    assert "pid" not in of(slice_("op", 0, 1, pid=None), gpu("a", 0, 1))[0]


def test_ranges_of_hardware_counters() -> None:
    assert of(slice_("range", 0, 1, "cuda_profiler_range"))[0]["kernel_counters"]
