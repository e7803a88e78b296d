"""Waiting in the account counts for the rank that is late, and `tw diff` names it: jobs of four ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from tracewarehouse.compare.diff.change import Change
from tracewarehouse.simulation import Noise

LARGE: dict[str, Any] = {"ranks": 4, "layers": 2, "steps": 8, "stacks": False, "memory": False}
SMALL: dict[str, Any] = {**LARGE, "hidden": 256, "sequence": 256}  # bound by the host
NOISE = Noise(0, 0.002, 0.005, 0)
EXPOSED = ("exposed_wait", "exposed_transfer", "exposed_unassigned")
# Job, fault, and bounds of the share of rank 2's waiting in the growth of exposed communication.
FAULTS: dict[str, tuple[dict[str, Any], str, float, float]] = {
    "compute-1.15": (LARGE, "slow-rank:rank=2,what=compute,factor=1.15", 0.8, 1.1),
    "compute-1.4": (LARGE, "slow-rank:rank=2,what=compute,factor=1.4", 0.8, 1.1),
    "host": (SMALL, "slow-rank:rank=2,what=host,factor=3", 0.9, 1.1),
    "data": (SMALL, "slow-rank:rank=2,what=data,factor=40", 0.9, 1.1),
    "slow-link": (LARGE, "slow-link:group=data0,factor=1.5", -0.05, 0.05),
    "no-overlap": (LARGE, "no-overlap", -0.05, 0.05),
}


def compared(folder: Path, seed: int, kinds: list[str]) -> dict[str, Change]:
    """Each fault against the same job without it, of which there are two."""
    jobs = {kind: "large" if FAULTS[kind][0] is LARGE else "small" for kind in kinds}
    runs = {kind: (FAULTS[kind][0], [FAULTS[kind][1]]) for kind in kinds}
    runs |= {name: (LARGE if name == "large" else SMALL, []) for name in set(jobs.values())}
    for name, (job, injections) in runs.items():
        tw.simulate(folder / "sim" / name, **job, seed=seed, noise=NOISE, injections=injections)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    return {kind: warehouse.diff(jobs[kind], kind).changes() for kind in kinds}


def awaited_share(change: Change) -> float:
    """The waiting for rank 2 as a share of the growth of exposed communication."""
    assert change.breakdown is not None
    rows = {row.part: row.delta for row in change.breakdown.level("breakdown").rows}
    growth = sum(delta for part, delta in rows.items() if part.startswith(EXPOSED))
    return float(rows.get("exposed_wait for rank 2", 0) / growth)


def check(kind: str, change: Change) -> float:
    """The share, within its bounds, and the first line if a rank is late."""
    low, high = FAULTS[kind][2:]
    share = awaited_share(change)
    assert low <= share <= high, (kind, share)
    if "slow-rank" in FAULTS[kind][1]:
        assert change.causes[0].startswith("rank 2 is late"), (kind, change.causes)
    return share


@pytest.mark.deep
def test_a_late_rank_is_waited_for(tmp_path: Path) -> None:
    for kind, change in compared(tmp_path, 0, ["compute-1.15", "data"]).items():
        check(kind, change)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_every_fault_with_other_seeds(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = {kind: check(kind, change) for kind, change in compared(tmp_path, seed, list(FAULTS)).items()}
    with capsys.disabled():
        print(f"\nseed {seed}:", ", ".join(f"{kind} {share:.3f}" for kind, share in shares.items()), end="")
