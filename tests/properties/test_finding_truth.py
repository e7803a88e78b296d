"""Findings against simulated truth: a fault is named first or second, and clean runs have no such finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep

# Fault → the rule that names it, and settings of the simulation.
FAULTS: dict[str, tuple[str, dict[str, object]]] = {
    "exposed-copies": ("exposed_copies", {}),
    "host-blocked": ("host_blocked", {}),
    "startup": ("startup", {}),
    "recompilation:step=3": ("recompilation", {}),
    "slow-stage:stage=1": ("pipeline_wait", {"ranks": 2, "pipeline": 2, "microbatches": 4}),
    "growing-memory": ("memory_growth", {}),
    "slow-elementwise": ("slow_elementwise", {}),
    "fusible-chain": ("fusible_chain", {}),
}
# Fault of rank 2 → why its computation takes longer, in the words of slow_rank.
SLOW_RANKS = {
    "slow-rank:rank=2,factor=1.5": "runs slower",
    "more-work:rank=2,what=tokens": "more work",
    "more-work:rank=2,what=calls": "more work",
    "slow-kernel:rank=2,kernel=gemm,percent=80": "one kernel",
    "slow-kernel:rank=2,kernel=layer_norm,percent=1000": "one kernel",
}
LAYOUTS: tuple[dict[str, object], ...] = (
    {"ranks": 4, "tensor": 2},
    {"dialect": "old"},
    {"ranks": 1},
    {"gpu": "MI300X"},
    {},
    {"sharded": True},
    {"experts": True},
    {"graphs": True, "capture": True},
    {"gpu": "V100"},
    {"hidden": 2048, "layers": 6},
)


Case = tuple[str, Mapping[str, object], tuple[str, ...]]


def check(folder: Path, cases: Sequence[Case]) -> dict[str, list[dict[str, Any]]]:
    """Run → its warning and critical findings, in order; a case is run, settings and faults."""
    warehouse = tw.open(folder / "warehouse")
    for run, settings, faults in cases:
        every = {"ranks": 1, "steps": 4, "stacks": False}
        made = tw.simulate(folder / run, injections=faults, **{**every, **settings})
        warehouse.ingest(*made.files, run=run, jobs=1)
    found: dict[str, list[dict[str, Any]]] = {run: [] for run, _, _ in cases}
    for row in warehouse.check().rows():
        if row["severity"] in ("warning", "critical"):
            found[row["run_id"]].append(row)
    return found


def findings(folder: Path, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Run → the rules of its findings, in order."""
    found = check(folder, cases).items()
    return {run: list(dict.fromkeys(row["rule"] for row in rows)) for run, rows in found}


@pytest.mark.parametrize("seeds", [range(1), *deep(range(20))], ids=len)
def test_a_fault_is_named_first_or_second(seeds: range, tmp_path: Path) -> None:
    cases = [
        (f"{rule}-{seed}", {**settings, "seed": seed}, (fault,))
        for fault, (rule, settings) in FAULTS.items()
        for seed in seeds
    ]
    found = findings(tmp_path, cases)
    for rule, _ in FAULTS.values():
        named = sum(rule in found[f"{rule}-{seed}"][:2] for seed in seeds)
        assert 20 * named >= 19 * len(seeds), (rule, found)


@pytest.mark.parametrize(("seeds", "layouts"), [(range(1), LAYOUTS[:4]), *deep((range(1, 21), LAYOUTS))])
def test_clean_runs_have_none_of_these_findings(
    seeds: range,
    layouts: Sequence[Mapping[str, object]],
    tmp_path: Path,
    only_rules: Callable[..., None],
) -> None:
    rules = {rule for rule, _ in FAULTS.values()} | {"slow_rank", "unbalanced_experts", "layout_conversions"}
    if len(seeds) == 1:
        only_rules(*rules)
    cases: list[Case] = [
        (f"{number}-{seed}", {"ranks": 2, **layout, "seed": seed}, ())
        for number, layout in enumerate(layouts)
        for seed in seeds
    ]
    found = findings(tmp_path, cases)
    assert not {run: named for run in found if (named := rules.intersection(found[run]))}


@pytest.mark.parametrize("seeds", [range(1), *deep(range(20))], ids=len)
def test_slow_rank_says_why_the_computation_of_a_rank_takes_longer(
    seeds: range, tmp_path: Path, only_rules: Callable[..., None]
) -> None:
    if len(seeds) == 1:
        only_rules("slow_rank")
    cases: list[Case] = [
        (f"{number}-{seed}", {"ranks": 4, "steps": 5, "seed": seed}, (fault,))
        for number, fault in enumerate(SLOW_RANKS)
        for seed in seeds
    ]
    found = check(tmp_path, cases)
    for number, reason in enumerate(SLOW_RANKS.values()):
        late = [[row for row in found[f"{number}-{seed}"] if row["rule"] == "slow_rank"] for seed in seeds]
        named = [[(row["rank"], reason in row["observation"]) for row in rows] for rows in late]
        assert 20 * named.count([(2, True)]) >= 19 * len(seeds), (number, late)
