"""The analyses against brute force: 100 random traces, ranks of one run, one query per analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from witness import answers, copies, idle, queues, random_traces
from witness.trace import Trace, read

RANKS = 100
GRAINS = {
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
WITNESSES = (answers, copies, idle, queues)  # the modules that have a function of an analysis' name
PARAMS = {name: {"kernel_wait_ns": idle.KERNEL_WAIT_NS} for name in GRAINS if "idle" in name}
PARAMS["queue_blocked"] = {"max_length": queues.FULL}


SEEDS = [20_260, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 2, 3))]


@pytest.fixture(scope="module", params=SEEDS)
def drawn(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, dict[int, Trace]]:
    """A warehouse with the random run, and each rank as the witness reads it."""
    folder = tmp_path_factory.mktemp("witness")
    paths = sketch.write(random_traces.run("random", request.param, RANKS), folder)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "random", run="random")
    return warehouse, {int(path.stem.removeprefix("rank")): read(path) for path in paths}


def can_say(name: str, trace: Trace) -> bool:
    """Whether the trace carries what the analysis is about."""
    if name == "step_summary":
        return bool(trace.steps)
    if name == "launch_stats" or name.startswith("queue_"):
        return any(trace.launch(row) for row in trace.gpu)
    return bool(trace.gpu)


@pytest.mark.parametrize("name", GRAINS)
def test_analysis_says_what_brute_force_says(name: str, drawn: tuple[Any, dict[int, Trace]]) -> None:
    warehouse, traces = drawn
    witness: Callable[[Trace], list[answers.Row]] = next(
        getattr(module, name) for module in WITNESSES if hasattr(module, name)
    )
    result = warehouse.run(name, **PARAMS.get(name, {}))
    assert {each.rank for each in result.abstained} == {
        rank for rank, trace in traces.items() if not can_say(name, trace)
    }
    wanted = {
        (rank, *key): row
        for rank, trace in traces.items()
        if can_say(name, trace)
        for key, row in answers.by_grain(witness(trace), GRAINS[name]).items()
    }
    found = answers.by_grain(result.rows(), ("rank", *GRAINS[name]))
    assert found.keys() == wanted.keys()
    wrong = {
        (key, column): (found[key][column], value)
        for key, row in wanted.items()
        for column, value in row.items()
        if not answers.same(found[key][column], value)
    }
    assert not wrong


def test_the_random_run_is_hard_enough(drawn: tuple[Any, dict[int, Trace]]) -> None:
    _, traces = drawn
    rows = [(trace, row) for trace in traces.values() for row in trace.gpu]
    states = {trace.launch_state(row) for trace, row in rows}
    assert states == {"linked", "before_window", "missing"}
    assert any(row.length == 0 for _, row in rows)
    assert any(row.device == 1 for _, row in rows)
    assert any(not trace.gpu for trace in traces.values())
    assert any(len(trace.steps) > 2 for trace in traces.values())
    assert {row.kind for _, row in rows} == {"computation", "communication", "memory"}
