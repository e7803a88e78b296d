"""Analyses compared with brute force: 70 random traces as ranks of one run, one query per analysis.

Half of the traces are small and dense, half have trees of operators, annotations and process groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from witness import answers, copies, idle, operator_answers, queues, random_operators, random_traces
from witness.answers import Row, by_grain, same
from witness.trace import Trace, read

RANKS = 70
RANDOM = (random_traces.Rank, random_operators.Rank)
FIRST_GRAINS: dict[str, tuple[str, ...]] = {
    "temporal_breakdown": ("device",),
    "comm_comp_overlap": ("device",),
    "kernel_summary": ("device", "kind", "name"),
    "launch_stats": ("kernel_id",),
    "coverage": ("device",),
    "step_summary": ("step",),
    "idle_breakdown": ("device", "cause"),
    "stream_idle": ("device", "stream", "cause"),
    "idle_intervals": ("device", "start_ns"),
    "stream_idle_intervals": ("device", "stream", "start_ns"),
    "queue_length": ("device", "stream", "ts_ns"),
    "queue_length_summary": ("device", "stream"),
    "queue_blocked": ("device", "stream"),
    "memory_bandwidth": ("device", "direction", "ts_ns"),
    "memory_bandwidth_summary": ("device", "direction"),
}
GRAINS: dict[str, tuple[str, ...]] = {
    **FIRST_GRAINS,
    "kernel_type_breakdown": ("device", "class"),
    "comm_by_group": ("device", "process_group"),
    "launch_summary": ("device", "state", "api"),
    "annotation_breakdown": ("on_gpu", "device", "name"),
    "kernels_by_annotation": ("kernel_id",),
    "name_summary": ("step", "on_gpu", "category", "name"),
    "op_summary": ("name", "shapes"),
    "op_kernel_delays": ("name", "kernels"),
    "kernel_sequences": ("name", "device", "stream", "kernels"),
}
# Modules with a function per analysis.
WITNESSES = (answers, copies, idle, queues, operator_answers)
# Inputs of the brute-force functions.
PARAMS = {name: {"kernel_wait_ns": idle.KERNEL_WAIT_NS} for name in GRAINS if "stream_idle" in name}
PARAMS["queue_blocked"] = {"max_length": queues.FULL}
WITHOUT_GPU = {"annotation_breakdown", "name_summary", "op_summary"}
NEEDS_LAUNCHES = {name for name in GRAINS if name.startswith("queue_")} | {
    "launch_stats",
    "kernels_by_annotation",
    "op_kernel_delays",
    "kernel_sequences",
}
SEEDS = [20_267, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3))]


def run(seed: int) -> str:
    """The sketch of the run."""
    ranks = (RANDOM[rank % 2]("random", rank, Random(f"{seed}/{rank}")) for rank in range(RANKS))
    return "\n".join(line for rank in ranks for line in rank.draw())


@pytest.fixture(scope="module", params=SEEDS)
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[int, Trace]]:
    """A warehouse with the random run, and each rank as read by the brute-force check."""
    folder = tmp_path_factory.mktemp("witness")
    paths = sketch.write(run(request.param), folder)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "random", run="random")
    return warehouse, {int(path.stem.removeprefix("rank")): read(path) for path in paths}


def can_say(name: str, trace: Trace) -> bool:
    """Whether the trace has the data of the analysis."""
    if name == "step_summary":
        return bool(trace.steps)
    if name == "comm_by_group":
        return any(row.kind == "communication" for row in trace.gpu)
    if name in NEEDS_LAUNCHES:
        return any(trace.launch(row) for row in trace.gpu)
    return bool(trace.gpu) or name in WITHOUT_GPU


def agree(name: str, drawn: tuple[Any, dict[int, Trace]], **params: Any) -> list[Row]:
    """Compares all expected rows and columns with the analysis, rank by rank; returns the rows."""
    warehouse, traces = drawn
    witness: Callable[..., list[Row]] = next(
        getattr(module, name) for module in WITNESSES if hasattr(module, name)
    )
    result = warehouse.analyze(name, **PARAMS.get(name, {}), **params)
    able = {rank for rank, trace in traces.items() if can_say(name, trace)}
    assert {each.rank for each in result.skipped} == traces.keys() - able
    wanted = {
        (rank, *key): row
        for rank in able
        for key, row in by_grain(witness(traces[rank], **params), GRAINS[name]).items()
    }
    found = by_grain(result.rows(), ("rank", *GRAINS[name]))
    assert found.keys() == wanted.keys()
    wrong = {
        (key, column): (found[key][column], value)
        for key, row in wanted.items()
        for column, value in row.items()
        if not same(found[key][column], value)
    }
    assert not wrong
    return list(found.values())


@pytest.mark.parametrize("name", FIRST_GRAINS)
def test_analysis_equals_brute_force(name: str, drawn: tuple[Any, dict[int, Trace]]) -> None:
    agree(name, drawn)


def test_classes_and_groups(drawn: tuple[Any, dict[int, Trace]]) -> None:
    classes = agree("kernel_type_breakdown", drawn)
    assert {row["class"].count("+") for row in classes} == {0, 1, 2}
    groups = agree("comm_by_group", drawn)
    assert {row["process_group"] for row in groups} == {"tp", "dp", None}
    assert any(0 < row["overlap_ns"] < row["comm_ns"] for row in groups)


def test_classes_sum_to_busy_time(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, _ = drawn
    busy = {(row["rank"], row["device"]): row["busy_ns"] for row in warehouse.temporal_breakdown().rows()}
    sums = dict.fromkeys(busy, 0)
    for row in warehouse.kernel_type_breakdown().rows():
        sums[row["rank"], row["device"]] += row["class_ns"]
    assert sums == busy


def test_launches(drawn: tuple[Any, dict[int, Trace]]) -> None:
    rows = agree("launch_summary", drawn)
    states = {"known", "before_window", "missing", "no_gpu_activity", "shared_id"}
    assert {row["state"] for row in rows} == states
    assert {row["recognized"] for row in rows} == {True, False, None}
    for count in ("short_kernels", "runtime_outliers", "delay_outliers"):
        assert any(row[count] for row in rows)
    agree("launch_summary", drawn, runtime_cutoff_ns=20, delay_cutoff_ns=0)


def test_launches_sum_to_coverage(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, _ = drawn
    wanted = {(row["rank"], row["device"]): row["gpu_ns"] for row in warehouse.coverage().rows()}
    sums = dict.fromkeys(wanted, 0)
    for row in warehouse.launch_summary().rows():
        if row["device"] is not None:
            sums[row["rank"], row["device"]] += row["gpu_ns"]
    assert sums == wanted


def test_annotations(drawn: tuple[Any, dict[int, Trace]]) -> None:
    rows = agree("annotation_breakdown", drawn)
    assert {row["on_gpu"] for row in rows} == {True, False}
    assert any(row["union_ns"] < row["sum_ns"] for row in rows)
    kernels = agree("kernels_by_annotation", drawn)
    assert max(row["depth"] for row in kernels) > 3
    assert any(row["path"] is None and row["launch_state"] == "known" for row in kernels)


def test_names(drawn: tuple[Any, dict[int, Trace]]) -> None:
    assert any(row["on_gpu"] and row["count"] > 1 for row in agree("name_summary", drawn))
    agree("name_summary", drawn, by_step=True)


@pytest.mark.parametrize("by_shapes", [False, True])
def test_operators(drawn: tuple[Any, dict[int, Trace]], by_shapes: bool) -> None:
    rows = agree("op_summary", drawn, by_shapes=by_shapes)
    assert any(0 < row["host_self_ns"] < row["host_ns"] for row in rows)
    assert any((row["kernel_self_count"] or 0) < (row["kernel_count"] or 0) for row in rows)
    assert any((row["kernel_union_ns"] or 0) < (row["kernel_sum_ns"] or 0) for row in rows)
    assert {row["shapes"] is None for row in rows} == ({True, False} if by_shapes else {True})


def test_operators_cross_and_recurse(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, _ = drawn
    sql = """
        SELECT count(*) FILTER (inner_op.name = outer_op.name) AS itself,
            count(*) FILTER (inner_op.ts_ns + inner_op.dur_ns > outer_op.ts_ns + outer_op.dur_ns) AS crossing
        FROM operators AS inner_op JOIN operators AS outer_op
            ON outer_op.rank = inner_op.rank AND outer_op.event_id = inner_op.parent_id"""
    (found,) = warehouse.query(sql, limits=None).rows()
    assert found["itself"] > 100
    assert found["crossing"] > 30


def test_kernels_of_operators_sum_to_coverage(drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, _ = drawn
    found, wanted = Counter[Any](), Counter[Any]()
    for row in warehouse.op_summary().rows():
        self_ns, graph_ns = row["kernel_self_sum_ns"] or 0, row["kernel_self_graph_ns"] or 0
        found[row["rank"], row["name"] is not None] += self_ns - graph_ns
        found[row["rank"], False] += graph_ns
    for row in warehouse.coverage().rows():
        wanted[row["rank"], True] += row["with_op_ns"]
        wanted[row["rank"], False] += row["gpu_ns"] - row["with_op_ns"]
    assert +found == +wanted


@pytest.mark.parametrize("with_memory", [True, False])
def test_delays(drawn: tuple[Any, dict[int, Trace]], with_memory: bool) -> None:
    rows = agree("op_kernel_delays", drawn, with_memory=with_memory)
    assert any(row["count"] > 1 for row in rows)
    assert any("Memcpy" in row["kernels"] for row in rows) == with_memory


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"min_kernels": 1, "operator": "aten::linear"},
        {"min_kernels": 2, "by_stream": True, "with_memory": False},
    ],
)
def test_sequences(drawn: tuple[Any, dict[int, Trace]], params: dict[str, Any]) -> None:
    rows = agree("kernel_sequences", drawn, **params)
    assert {row["stream"] is None for row in rows} == {"by_stream" not in params}


def test_the_random_run_has_all_difficult_cases(drawn: tuple[Any, dict[int, Trace]]) -> None:
    _, traces = drawn
    rows = [(trace, row) for trace in traces.values() for row in trace.gpu]
    states = {trace.launch_state(row) for trace, row in rows}
    assert states == {"known", "before_window", "missing"}
    assert any(row.length == 0 for _, row in rows)
    assert any(row.device == 1 for _, row in rows)
    assert any(not trace.gpu for trace in traces.values())
    assert any(len(trace.steps) > 2 for trace in traces.values())
    assert {row.kind for _, row in rows} == {"computation", "communication", "memory"}
