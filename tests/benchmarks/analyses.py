"""Analyses that HTA has too on eight loaded ranks, and the first result of an entire process."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from . import inputs
from .bench import SIDES, Bench, tw
from .ingest import check_split
from .inputs import Simulated
from .model import Case, Row, Run, Target, Unmeasured, check, ratios, seconds

# HTA's method → the equivalent analyses with their parameters.
EQUIVALENTS: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] = {
    "get_temporal_breakdown": [("temporal_breakdown", {})],
    "get_comm_comp_overlap": [("comm_comp_overlap", {})],
    "get_gpu_kernel_breakdown": [("kernel_type_breakdown", {}), ("kernel_summary", {})],
    "get_idle_time_breakdown": [("stream_idle", {})],
    "get_queue_length_time_series": [("queue_length", {})],
    "get_queue_length_summary": [("queue_length_summary", {})],
    "get_time_spent_blocked_on_full_queue": [("queue_blocked", {})],
    "get_memory_bw_time_series": [("memory_bandwidth", {})],
    "get_memory_bw_summary": [("memory_bandwidth_summary", {})],
    "get_cuda_kernel_launch_stats": [("launch_stats", {})],
    "get_gpu_user_annotation_breakdown": [("annotation_breakdown", {})],
    "get_profiler_steps": [("step_summary", {})],
    "get_potential_stragglers": [("stragglers", {})],
    "get_gpu_kernels_with_user_annotations": [("kernels_by_annotation", {})],
    "get_aten_op_kernels_and_delay": [("op_kernel_delays", {})],
    "get_frequent_cuda_kernel_sequences": [("kernel_sequences", {"operator": "aten::linear"})],
}
_SLOW_S = 0.05
# HTA truncates starts and ends to µs, so its computation time is off by up to 2 µs per GPU activity.
_WITHIN = 0.2


def stored(bench: Bench) -> tuple[Simulated, Path]:
    """The eight ranks, and a warehouse with them as `run`, built once."""
    made, folder = inputs.simulated(bench, "eight"), bench.houses / "eight"
    if not (folder / "house").exists():
        folder.mkdir(exist_ok=True)
        bench.ours("ingest", paths=made.files, small=inputs.first(bench), folder=folder)
    return made, folder


def answers(bench: Bench) -> Iterator[Row]:
    """Each analysis against HTA's, all together, and analyses that are slow here but not in HTA."""
    made, folder = stored(bench)

    def ours() -> Run:
        run = bench.ours("analyses", warehouse=folder / "house", calls=EQUIVALENTS, ranks=None)
        check_split(run.answer["temporal_breakdown"], made)
        return run

    def theirs() -> Run:
        run = bench.theirs("analyses", folder=made.folder)
        _check_against_hta(run.answer["temporal_breakdown"], made)
        return run

    try:
        taken = bench.turns(ours=ours, hta=theirs)
    except Unmeasured as why:  # ours ran, and was checked
        yield Row("hta-analyses", "sum", Target(10, at_least=True), note=f"not measured: {why}")
    else:
        yield from _rows(**taken)


def _check_against_hta(rows: Sequence[Mapping[str, Any]], made: Simulated) -> None:
    """Raises WrongAnswer if HTA has another computation time, so it analyzed other activities."""
    wanted = {row["rank"]: row["compute_ns"] for row in made.section("temporal_breakdown")}
    found = {int(row["rank"]): float(row["compute_time(us)"]) * 1_000 for row in rows}
    check(found.keys() == wanted.keys(), f"HTA has ranks {sorted(found)}")
    apart = [rank for rank in wanted if abs(found[rank] - wanted[rank]) > _WITHIN * wanted[rank]]
    check(not apart, f"computation time of HTA differs on ranks {apart}")


def _rows(ours: Sequence[Run], hta: Sequence[Run]) -> Iterator[Row]:
    each = {name: [_taken(runs, name) for runs in (ours, hta)] for name in EQUIVALENTS}
    failed = {name: runs[1] for name, runs in each.items() if isinstance(runs[1], str)}
    both: dict[str, list[list[float]]] = {
        name: [list(map(float, side)) for side in runs] for name, runs in each.items() if name not in failed
    }
    each_side = ([runs[side] for runs in both.values()] for side in (0, 1))
    sums = [[sum(turn) for turn in zip(*side, strict=True)] for side in each_side]
    whole = tuple(b / a for a, b in zip(*sums, strict=True))
    yield Row("hta-analyses", "sum", Target(10, at_least=True), whole, "×", _sides(sums))
    for name, runs in both.items():
        figures = tuple(b / a for a, b in zip(*runs, strict=True))
        slow = median(runs[1]) > _SLOW_S
        target = Target(3, at_least=True) if slow else None
        note = "" if slow or median(runs[0]) <= _SLOW_S else "over 50 ms, and HTA is not"
        what = f"{name}: {', '.join(analysis for analysis, _ in EQUIVALENTS[name])}"
        yield Row("hta-analyses", what, target, figures, "×", _sides(runs), note)
    for name, error in failed.items():
        taken = seconds([Run(float(s), 0, 0) for s in each[name][0]])
        yield Row("hta-analyses", name, sides={"ours": taken}, note=f"HTA fails: {error}")
    grown = [name for name, runs in both.items() if median(runs[1]) <= _SLOW_S < median(runs[0])]
    what = f"ours over 50 ms where HTA is not: {', '.join(grown) or 'none'}"
    yield Row("hta-analyses", what, Target(0, "analyses"), (float(len(grown)),))


def _taken(runs: Sequence[Run], name: str) -> list[float] | str:
    """The seconds of each turn, or the error."""
    found = [run.answer["each"][name] for run in runs]
    return next((one["error"] for one in found if "error" in one), [one.get("seconds") for one in found])


def _sides(pair: Sequence[Sequence[float]]) -> dict[str, str]:
    named = zip(("ours", "hta"), pair, strict=True)
    return {name: seconds([Run(second, 0, 0) for second in side]) for name, side in named}


def first(bench: Bench) -> Iterator[Row]:
    """`tw show temporal_breakdown` on the stored run against HTA's script, both as entire processes."""
    made, folder = stored(bench)

    def ours() -> Run:
        command = (*tw(), "show", "temporal_breakdown", "-w", str(folder / "house"), "-f", "json")
        run = bench.command(*command)
        check_split(json.loads(run.answer), made)
        return run

    def theirs() -> Run:
        run = bench.command(bench.peer_python(), str(SIDES / "peer_script.py"), str(made.folder))
        printed = run.answer[run.answer.index("rank,") :]
        check(len(list(csv.DictReader(printed.splitlines()))) == len(made.files), "HTA's script: other ranks")
        return run

    target, what = Target(50, at_least=True), f"tw show temporal_breakdown, {len(made.files)} ranks"
    try:
        taken = bench.turns(ours=ours, hta=theirs)
    except Unmeasured as why:
        yield Row("first-answer", what, target, note=f"not measured: {why}")
        return
    sides = {name: seconds(runs) for name, runs in taken.items()}
    yield Row("first-answer", what, target, ratios(taken["hta"], taken["ours"]), "×", sides)


CASES = (
    Case("hta-analyses", "analyses that HTA has too, 8 loaded ranks: HTA over ours", answers),
    Case("first-answer", "first answer, whole processes: HTA's script from the folder over tw show", first),
)
