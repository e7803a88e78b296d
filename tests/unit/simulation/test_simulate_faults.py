"""Simulator: faults of training are in the trace and cost what the truth says; without faults, nothing is."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import read, section, simulate_injections, truth
from tracewarehouse.simulation import GPUS, Noise

Event = dict[str, Any]
KINDS = (
    "exposed-copies",
    "host-blocked",
    "startup",
    "recompilation",
    "slow-stage",
    "slow-elementwise",
    "fusible-chain",
    "growing-memory",
    "more-work",
)
L2_BYTES = 50 * 2**20
PEAK = GPUS["H100"].memory_bytes_per_ns
COMPILER = "(dynamo_timed)"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs without noise: `none`, and one for each fault."""
    folder = tmp_path_factory.mktemp("faults")
    simulate_injections(folder, KINDS)
    return folder


def slices(folder: Path, rank: int = 0) -> list[Event]:
    """The slices of a rank in time order, with start and end in ns."""
    found = [event for event in read(folder, rank)["traceEvents"] if event["ph"] == "X"]
    for event in found:
        start, length = (Decimal(str(event[key])) for key in ("ts", "dur"))
        event["start"], event["ns"] = int(start * 1000), int(length * 1000)
        event["end"] = event["start"] + event["ns"]
    return sorted(found, key=lambda event: (event["start"], -event["ns"]))


def of(events: list[Event], category: str, part: str = "") -> list[Event]:
    return [event for event in events if event["cat"] == category and part in event["name"]]


def gpu(events: list[Event]) -> list[Event]:
    return [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]


def computation_ns(folder: Path, rank: int, part: str = "") -> int:
    kernels = of(slices(folder, rank), "kernel", part)
    return sum(event["ns"] for event in kernels if "nccl" not in event["name"])


def busy_ns(events: list[Event], start: int, end: int) -> int:
    """The time in which a GPU activity runs."""
    busy, reached = 0, start
    for event in gpu(events):
        busy += max(min(event["end"], end) - max(event["start"], reached), 0)
        reached = max(reached, event["end"])
    return busy


def inside(outer: Event, event: Event) -> bool:
    same = (outer["pid"], outer["tid"]) == (event["pid"], event["tid"])
    return same and outer["start"] <= event["start"] and event["end"] <= outer["end"]


def launched(events: list[Event], operator: Event) -> list[Event]:
    """The GPU activities that an operator launches."""
    calls = {event["args"]["correlation"] for event in of(events, "cuda_runtime") if inside(operator, event)}
    return [event for event in gpu(events) if event["args"]["correlation"] in calls]


def costs(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [row for row in section(folder, "faults") if row["rank"] == rank]


def lost_ns(folder: Path, rank: int = 0) -> int:
    return sum(row["lost_ns"] for row in costs(folder, rank))


def steps(folder: Path, rank: int = 0) -> list[int]:
    return [row["step"] for row in costs(folder, rank)]


def test_a_run_without_faults_has_no_costs(runs: Path) -> None:
    assert "faults" not in truth(runs / "none")["sections"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_fault_says_which_rule_names_it(runs: Path, kind: str) -> None:
    rules = {"more-work": "slow_rank", "slow-stage": "pipeline_wait", "growing-memory": "memory_growth"}
    rows = section(runs / kind, "faults")
    assert {(row["kind"], row["rule"]) for row in rows} == {(kind, rules.get(kind, kind.replace("-", "_")))}
    assert all(row["lost_ns"] + row["bytes"] > 0 for row in rows)


def test_copies_are_exposed_at_the_rate_of_the_host_link(runs: Path) -> None:
    events = slices(runs / "exposed-copies")
    copies = [
        event for event in of(events, "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)") if event["ns"] > 1e5
    ]
    assert sum(event["args"]["bytes"] for event in copies) == 3 * 64_000_000
    assert {round(event["args"]["memory bandwidth (GB/s)"]) for event in copies} == {52}
    operators = of(events, "cpu_op", "aten::copy_")
    assert all(any(copy in launched(events, each) for each in operators) for copy in copies)
    for copy in copies:
        others = [event for event in gpu(events) if event is not copy]
        assert busy_ns(others, copy["start"], copy["end"]) == 0
    assert sum(event["ns"] for event in copies) == lost_ns(runs / "exposed-copies")
    memory = section(runs / "exposed-copies", "temporal_breakdown")[0]["exposed_memory_ns"]
    usual = section(runs / "none", "temporal_breakdown")[0]["exposed_memory_ns"]
    assert memory == usual + lost_ns(runs / "exposed-copies")
    assert all(event["ns"] < 1e5 for event in of(slices(runs / "none"), "gpu_memcpy"))


def test_the_host_is_blocked_while_the_gpu_is_busy(runs: Path) -> None:
    events = slices(runs / "host-blocked")
    calls = of(events, "cuda_runtime", "cudaStreamSynchronize")
    items = of(events, "cpu_op", "aten::item")
    assert len(calls) == len(items) == 3
    assert all(inside(item, call) for item, call in zip(items, calls, strict=True))
    last = items[-1]  # the first step has nothing queued yet
    assert {"Memcpy DtoH (Device -> Pageable)"} == {event["name"] for event in launched(events, last)}
    step = of(events, "user_annotation", "ProfilerStep#3")[0]
    assert calls[-1]["ns"] > 0.4 * step["ns"]
    assert busy_ns(events, step["start"], step["end"]) > 0.97 * step["ns"]
    assert sum(call["ns"] for call in calls) == lost_ns(runs / "host-blocked")
    assert not of(slices(runs / "none"), "cuda_runtime", "cudaStreamSynchronize")


def test_the_first_launch_loads_modules(runs: Path) -> None:
    events = slices(runs / "startup")
    first, *later = [event for event in of(events, "cuda_runtime") if event["name"] == "cudaLaunchKernel"]
    assert first["ns"] > max(10_000_000, 20 * median(event["ns"] for event in later))
    assert all(event["ns"] < 20_000 for event in later)
    assert busy_ns(events, first["start"], first["end"]) < 0.01 * first["ns"]
    own = next(event for event in gpu(events) if event["args"]["correlation"] == first["args"]["correlation"])
    assert abs(own["start"] - first["end"]) < 5_000
    assert steps(runs / "startup") == [1]
    usual = next(
        event for event in of(slices(runs / "none"), "cuda_runtime") if event["name"] == first["name"]
    )
    assert first["ns"] - usual["ns"] == lost_ns(runs / "startup") == 20_000_000


def test_the_forward_pass_is_compiled_again(runs: Path) -> None:
    events = slices(runs / "recompilation")
    step = of(events, "user_annotation", "ProfilerStep#2")[0]
    outer, *inner = of(events, "cpu_op", COMPILER)
    assert len(inner) == 2
    assert inside(step, outer)
    assert all(inside(outer, each) for each in inner)
    assert outer["tid"] == of(events, "cpu_op", "aten::addmm")[0]["tid"]
    assert inner[-1]["ns"] == pytest.approx(lost_ns(runs / "recompilation"), abs=2_000)
    assert lost_ns(runs / "recompilation") == 120_000_000
    assert steps(runs / "recompilation") == [2]
    # What was queued before still runs.
    assert busy_ns(events, outer["start"], outer["end"]) < 0.05 * outer["ns"]
    regions = [event["name"] for event in of(events, "cpu_op", "Torch-Compiled Region")]
    assert regions == [f"Torch-Compiled Region: 0/{number}" for number in (0, 0, 1, 1, 1, 1)]
    assert not any("ompile" in event["name"] for event in slices(runs / "none"))


def test_ranks_wait_for_a_slow_stage(runs: Path, tmp_path: Path) -> None:
    tw.simulate(tmp_path / "usual", ranks=2, layers=2, pipeline=2, microbatches=2, noise=Noise(0, 0, 0, 0))
    slow, usual = (
        [row for row in section(folder, "collectives") if row["name"] == "recv" and row["rank"] == 0]
        for folder in (runs / "slow-stage", tmp_path / "usual")
    )
    wait = sum(row["wait_ns"] for row in slow)
    assert wait == lost_ns(runs / "slow-stage") > 1.5 * sum(row["wait_ns"] for row in usual)
    kernels = of(slices(runs / "slow-stage"), "kernel", "SendRecv")
    assert sum(event["ns"] for event in kernels) > wait
    of_stages = [computation_ns(folder, 1) for folder in (runs / "slow-stage", tmp_path / "usual")]
    assert of_stages[0] == pytest.approx(2 * of_stages[1], rel=0.001)
    assert truth(runs / "slow-stage")["sections"]["wait_attribution"]["rows"] == [[1, "computation"]]


def moved_bytes(operator: Event) -> int:
    """Bytes that an elementwise operator reads and writes, by its shapes."""
    tensors = [shape for shape in operator["args"]["Input Dims"] if shape]
    assert all(shape == tensors[0] for shape in tensors)
    rows, columns = map(int, tensors[0])
    assert set(operator["args"]["Input type"]) == {"c10::BFloat16", "Scalar"}
    assert 2 * rows * columns > L2_BYTES
    return 2 * rows * columns * (len(tensors) + 1)


def large(folder: Path) -> list[tuple[Event, Event]]:
    """The outermost elementwise operators on tensors above the L2 cache, and their kernels."""
    events, found = slices(folder), list[tuple[Event, Event]]()
    for operator in of(events, "cpu_op", "aten::"):
        tensors = [shape for shape in operator["args"].get("Input Dims", ()) if len(shape) == 2]
        if tensors and 2 * tensors[0][0] * tensors[0][1] > L2_BYTES:
            parts = ("elementwise", "dropout")
            for kernel in launched(events, operator):
                if any(part in kernel["name"] for part in parts) and not any(
                    kernel is one for _, one in found
                ):
                    found.append((operator, kernel))
    return found


def test_elementwise_kernels_are_slow(runs: Path) -> None:
    found = large(runs / "slow-elementwise")
    assert [operator["name"] for operator, _ in found] == 6 * ["aten::add"]
    for operator, kernel in found:
        assert moved_bytes(operator) / kernel["ns"] == pytest.approx(0.25 * PEAK, rel=0.001)
    spent = sum(kernel["ns"] for _, kernel in found)
    assert lost_ns(runs / "slow-elementwise") == pytest.approx(0.75 * spent, rel=1e-6)
    assert sum(row["bytes"] for row in costs(runs / "slow-elementwise")) == sum(
        moved_bytes(one) for one, _ in found
    )
    assert not large(runs / "none")


def test_a_chain_of_operators_could_be_fused(runs: Path) -> None:
    found = large(runs / "fusible-chain")
    names = ["aten::mul", "aten::add", "aten::gelu", "aten::dropout", "aten::mul", "aten::add"]
    assert [operator["name"] for operator, _ in found] == 3 * names
    by_step = [found[at : at + 6] for at in range(0, 18, 6)]
    kernels = gpu(slices(runs / "fusible-chain"))
    for chain in by_step:
        for operator, kernel in chain:
            assert moved_bytes(operator) / kernel["ns"] == pytest.approx(0.8 * PEAK, rel=0.001)
        first = next(at for at, event in enumerate(kernels) if event["start"] == chain[0][1]["start"])
        own = [kernel["start"] for _, kernel in chain]
        assert [event["start"] for event in kernels[first : first + 6]] == own  # nothing in between
    last = section(runs / "fusible-chain", "step_summary")[2]
    assert sum(kernel["ns"] for _, kernel in by_step[-1]) > 0.25 * last["period_ns"]
    # A fused kernel reads the tensor and both summands, and writes the result: 4 of 14 times.
    spent = sum(kernel["ns"] for _, kernel in found)
    assert lost_ns(runs / "fusible-chain") == pytest.approx(10 / 14 * spent, rel=1e-6)


def test_memory_grows_by_a_constant(runs: Path) -> None:
    def at_ends(folder: Path) -> list[int]:
        events = read(folder)["traceEvents"]
        memory = [event for event in events if event["name"] == "[memory]"]
        ends = [
            event["ts"] + event["dur"]
            for event in events
            if event.get("cat") == "user_annotation" and "ProfilerStep#" in event["name"]
        ]
        return [
            max((e["ts"], e["args"]["Total Allocated"]) for e in memory if e["ts"] <= end)[1] for end in ends
        ]

    assert at_ends(runs / "none") == 3 * [0]
    assert at_ends(runs / "growing-memory") == [64_000_000, 128_000_000, 192_000_000]
    assert [row["bytes"] for row in costs(runs / "growing-memory")] == 3 * [64_000_000]


# Fault: the kernels that are slower, and by how much of their time; None: there are more of them.
SLOW: dict[str, tuple[str | None, float | None]] = {
    "slow-rank:rank=1,factor=1.25": ("", 0.25),
    "slow-kernel:rank=1,kernel=gemm,percent=40": ("gemm", 0.4),
    "more-work:rank=1,factor=1.5": (None, 0.5),  # not of the optimizer and of gradients
    "more-work:rank=1,what=calls,factor=2": (None, None),
}


@pytest.mark.parametrize("fault", SLOW)
def test_what_makes_a_rank_slow_is_on_that_rank_alone(runs: Path, tmp_path: Path, fault: str) -> None:
    folder, usual = tmp_path / "slow", runs / "none"
    tw.simulate(folder, ranks=2, layers=2, steps=3, noise=Noise(0, 0, 0, 0), injections=[fault])
    part, share = SLOW[fault]
    assert computation_ns(folder, 0) == computation_ns(usual, 0)
    more = computation_ns(folder, 1) - computation_ns(usual, 1)
    assert more == pytest.approx(lost_ns(folder, 1), rel=0.001)
    assert costs(folder, 0) == []
    if part is not None and share is not None:
        assert more == pytest.approx(share * computation_ns(usual, 1, part), rel=0.001)
    counts = [len(of(slices(each, 1), "kernel")) for each in (folder, usual)]
    assert (counts[0] > counts[1]) == ("calls" in fault)
    rows = [event["args"]["Input Dims"][1][0] for event in of(slices(folder, 1), "cpu_op", "aten::addmm")]
    assert set(rows) == {6144 if share == 0.5 else 4096}
    assert truth(folder)["sections"]["wait_attribution"]["rows"] == [[1, "computation"]]
    worst = section(folder, "straggler")[0]
    assert (worst["rank"], worst["cause"]) == (1, "compute")
    waits = defaultdict[int, int](int)
    for row in section(folder, "collectives"):
        waits[row["rank"]] += row["wait_ns"]
    assert waits[0] > 0.8 * more
    assert waits[0] > 10 * waits[1]
