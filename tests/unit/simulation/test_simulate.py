"""Simulator: analyses match the expected results, in every layout and with every injection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import INJECTED, LAYOUTS, SMALL, section, simulate_injections, truth
from tracewarehouse.contracts.catalog import Catalog, read_lock
from tracewarehouse.simulation import KINDS

ANALYSES = (
    "temporal_breakdown",
    "comm_comp_overlap",
    "comm_by_group",
    "kernel_type_breakdown",
    "launch_summary",
    "annotation_breakdown",
    "kernel_summary",
    "launch_stats",
    "coverage",
    "quality",
    "step_summary",
    "inference_steps",
    "idle_breakdown",
    "stream_idle",
    "queue_length_summary",
    "memory_peak",
)
WITNESSED = frozenset(  # analyses that a brute-force witness covers instead
    {
        "straggler_causes",  # tests/unit/derive
        "wait_matrix",  # tests/unit/derive
        "idle_intervals",
        "stream_idle_intervals",
        "queue_length",
        "queue_blocked",
        "memory_curve",
        "memory_by_op",
        "memory_live",
        "memory_by_category",
        "memory_category_curve",
        "kernels_by_annotation",
        "memory_bandwidth",
        "memory_bandwidth_summary",
        "collective_waits",
        "stragglers",
        "critical_path_breakdown",
        "critical_path_by_op",
        "cupti_counters",
        "name_summary",
        "op_summary",
        "op_kernel_delays",
        "kernel_sequences",
        "step_account",
        "step_kernels",
        "window_account",
        "window_kernels",
        "collective_bandwidth",
        "slow_links",
        "bandwidth_by_size",
        "alltoall_imbalance",
        "node_summary",
        "pipeline_bubbles",
        "gpu_timeline",
        "timeline",
        "gpu_utilization",
        "host_account",
        "host_stacks",
        "graph_summary",  # test_simulate_capture.py
        "compiled_kernels",  # tests/properties/test_compiled_real.py
        "key_averages",  # tests/properties/witness/test_torch.py
        *("module_siblings", "module_summary"),  # tests/properties/test_modules.py
        *("kernel_limits", "ncu_commands"),  # tests/unit/formats/nsight_compute
        # tests/properties/witness/test_from_text.py
        *("analyzed_account", "collective_fleet", "serving_summary", "source_summary"),
        *("finding_fleet", "kernel_fleet"),  # tests/unit/compare/history/test_fleet.py
        "collective_algorithms",  # tests/unit/formats/test_nccl_torch.py
        "recording",  # test_simulate_recording.py
        "what_if",  # tests/unit/derive/test_what_if.py
        "gpu_metrics",  # tests/unit/formats/nsys
        "execution_trace",  # tests/unit/formats/execution_trace
        *("flight_mismatches", "stuck_collective"),  # tests/unit/formats/flight_recorder
        *(
            "snapshot_allocations",
            "snapshot_curve",
            "snapshot_fragmentation",
        ),  # tests/unit/formats/memory_snapshot
        *("snapshot_oom", "snapshot_peak"),
        "op_work_summary",
        "roofline",
        "mfu",
        "mfu_run",
    }
)
Answers = dict[str, dict[str, list[dict[str, Any]]]]


def answers(wh: tw.Warehouse, runs: list[str]) -> Answers:
    """Analysis and run → rows; one query for all runs."""
    found: Answers = {}
    for name in ANALYSES:
        found[name] = defaultdict(list)
        for row in comparable(wh.select(runs=runs).analyze(name).rows()):
            found[name][row["run_id"]].append(row)
    return found


def comparable(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that the truth can contain; findings of `over_peak` depend on data sheets."""
    return [row for row in rows if row["rank"] is not None and row.get("rule") != "over_peak"]


def check(found: Answers, run: str, folder: Path) -> None:
    """Every analysis with a section of the truth equals it in all columns of the section."""
    for name in ANALYSES:
        right = section(folder, name)
        columns = list(right[0]) if right else ["rank"]
        cli = sorted(repr([row[column] for column in columns]) for row in found[name][run])
        assert cli == sorted(repr(list(row.values())) for row in right), f"{run}: {name}"


def test_every_released_analysis_has_expected_results_or_a_brute_force_check() -> None:
    """A new analysis may have only its golden file and the laws until its release."""
    known = {contract.name for contract in Catalog.load().analyses()}
    findings = {contract.name for contract in Catalog.load().rules()}  # each has a separate witness
    assert set(ANALYSES) | WITNESSED <= known - findings
    released = {ref.name for ref in read_lock(Catalog.load().folder)} & known
    assert released <= set(ANALYSES) | WITNESSED | findings


def agree(tmp_path: Path, seeds: range, layouts: Iterable[str] = tuple(LAYOUTS)) -> None:
    wh = tw.open(tmp_path / "warehouse")
    for layout in layouts:
        for seed in seeds:
            tw.simulate(tmp_path / "sim" / f"{layout}-{seed}", seed=seed, **SMALL, **LAYOUTS[layout])
    report = wh.ingest(tmp_path / "sim", jobs=1)
    assert {each.state for each in report.files} == {"intact"}  # truth.json is not listed
    folders = {run: tmp_path / "sim" / run.removeprefix("sim.") for run in wh.store.runs()}
    found = answers(wh, list(folders))
    for run, folder in folders.items():
        check(found, run, folder)


def test_analyses_match_the_expected_results(tmp_path: Path) -> None:
    agree(tmp_path, range(1), ("data", "tensor", "pipeline", "old", "queued", "graphs"))


@pytest.mark.deep
def test_analyses_match_the_expected_results_for_many_seeds(tmp_path: Path) -> None:
    agree(tmp_path, range(20))


# Faults of the job, of its data, and of the trace; the others are deep.
SOME = ("slow-rank", "dataloader-stall", "drop-ranks", "before-window", "lost-launch")


def injected(folder: Path, kinds: Sequence[str]) -> tuple[Path, Answers]:
    """A folder of runs with injected faults, and the results of analyses on them."""
    simulate_injections(folder / "sim", kinds)
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "sim", jobs=1)
    return folder / "sim", answers(wh, ["none", *kinds])


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    return injected(tmp_path_factory.mktemp("some"), SOME)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    return injected(tmp_path_factory.mktemp("others"), [kind for kind in INJECTED if kind not in SOME])


def test_every_injection_is_tested() -> None:
    assert set(INJECTED) == set(KINDS)


@pytest.mark.parametrize("kind", ["none", *SOME])
def test_truth_holds_with_injections(some: tuple[Path, Answers], kind: str) -> None:
    truth_holds(some, kind)


@pytest.mark.deep
@pytest.mark.parametrize("kind", [kind for kind in INJECTED if kind not in SOME])
def test_truth_holds_with_other_injections(others: tuple[Path, Answers], kind: str) -> None:
    truth_holds(others, kind)


def truth_holds(injected: tuple[Path, Answers], kind: str) -> None:
    folder, found = injected
    if kind != "merge-files":  # the truth has no analyses of several processes
        check(found, kind, folder / kind)
    cli = [each["kind"] for each in truth(folder / kind)["injected"]]
    assert cli == ([] if kind == "none" else [kind])


def test_sections_are_consistent(tmp_path: Path) -> None:
    tw.simulate(tmp_path / "sim", ranks=4, tensor=2, **SMALL)
    idle: dict[int, int] = defaultdict(int)
    for row in section(tmp_path / "sim", "idle_breakdown"):
        idle[row["rank"]] += row["idle_ns"]
    breakdown = section(tmp_path / "sim", "temporal_breakdown")
    assert dict(idle) == {row["rank"]: row["idle_ns"] for row in breakdown}
    met = section(tmp_path / "sim", "collectives")
    assert all(row["wait_ns"] + row["transfer_ns"] == row["dur_ns"] for row in met)
    rounds = {(row["group"], row["number"]) for row in met}
    waits = {
        key: min(row["wait_ns"] for row in met if (row["group"], row["number"]) == key) for key in rounds
    }
    assert set(waits.values()) == {0}  # the last one does not wait
    queues = section(tmp_path / "sim", "queue_length_summary")
    launched = section(tmp_path / "sim", "launch_stats")
    assert sum(row["queued_ns"] for row in queues) == sum(row["call_to_start_ns"] for row in launched)
