"""`tw diff` names injected faults in its first row: eight kinds in two sizes of job, and four mixtures.

Job and noise of each size are those below, with one base each; the step moves by 0.5 % or more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.simulation import Noise

NOISE = Noise(0, 0.002, 0.005, 0)
SMALL: dict[str, Any] = {"ranks": 2, "layers": 2, "steps": 6, "seed": 1}
LARGE: dict[str, Any] = {"ranks": 4, "tensor": 2, "layers": 3, "steps": 8, "seed": 4}
SIZES = {"small": SMALL, "large": LARGE}
LEAST = 0.005  # of the mean step


@dataclass(frozen=True)
class Fault:
    """An injected fault, and what a first row that names it contains: all texts of one of these tuples."""

    injection: str
    named: tuple[tuple[str, ...], ...]


FAULTS = {
    "slow-kernel": Fault("slow-kernel:kernel=gemm,percent=30", (("gemm", "slower"),)),
    "extra-kernel": Fault("extra-kernel:us=80", (("triton_poi_fused_clone_mul_0 added",),)),
    # Dropout is a kernel of the forward pass and, in the backward pass, one of several products.
    "removed-kernel": Fault(
        "removed-kernel:kernel=dropout",
        (("fused_dropout_kernel_vec", "removed"), ("vectorized_elementwise_kernel", "fewer calls")),
    ),
    "dataloader-stall": Fault("dataloader-stall:step=2,ms=8", (("waiting for data longer",),)),
    "blocking-item": Fault("blocking-item", (("after a blocking call longer",),)),
    "no-overlap": Fault("no-overlap", (("AllReduce", "more exposed"),)),
    "slow-link": Fault("slow-link:group=data0,factor=10", (("AllReduce", "slower"),)),
    "slow-rank": Fault("slow-rank:rank=1,what=compute,factor=1.5", (("rank 1 is late",),)),
}
# The larger fault of each is first.
MIXTURES = {
    "rank-and-kernel": ("slow-rank", "extra-kernel"),
    "kernel-and-item": ("slow-kernel", "blocking-item"),
    "stall-and-kernel": ("dataloader-stall", "extra-kernel"),
    "link-and-overlap": ("slow-link", "no-overlap"),
}


def simulate(folder: Path, size: str, names: dict[str, tuple[str, ...]]) -> tw.Warehouse:
    """A base and a head for each name, with the faults of the name."""
    settings = {**SIZES[size], "stacks": False, "memory": False, "noise": NOISE}
    for name, kinds in {"base": (), **names}.items():
        injections = [FAULTS[kind].injection for kind in kinds]
        tw.simulate(folder / "sim" / name, injections=injections, **settings)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    return warehouse


def first_row(warehouse: tw.Warehouse, head: str) -> tuple[str, float]:
    """The first row below the verdict, and the change of the mean step."""
    done = call("diff", "base", head, "--json", "-w", warehouse.root)
    (row,) = json.loads(done.out)["result"]
    text = call("diff", "base", head, "-w", warehouse.root).out
    causes = row["causes"]
    assert all(cause in text for cause in causes)
    return (causes[0] if causes else ""), row["verdict"]["mean_change"]


def is_named(kind: str, row: str) -> bool:
    """Whether the row names a fault of this kind."""
    return any(all(text in row for text in texts) for texts in FAULTS[kind].named)


def misses(folder: Path, size: str, names: dict[str, tuple[str, ...]]) -> list[str]:
    """The heads whose first row does not name the first of their faults, with this row."""
    warehouse = simulate(folder, size, names)
    found = []
    for name, kinds in names.items():
        row, change = first_row(warehouse, name)
        assert abs(change) >= LEAST, (name, change)
        if not is_named(kinds[0], row):
            found.append(f"{name} ({size}, {100 * change:+.1f} %): {row or 'no row'}")
    return found


@pytest.mark.deep
def test_a_late_rank_and_a_new_kernel_are_named_first(tmp_path: Path) -> None:
    names: dict[str, tuple[str, ...]] = {"extra": ("extra-kernel",), "mixed": ("slow-rank", "extra-kernel")}
    assert misses(tmp_path, "small", names) == []


@pytest.mark.deep
def test_nineteen_of_twenty_faults_are_named_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in FAULTS}
    missed = misses(tmp_path / "small", "small", single)
    missed += misses(tmp_path / "large", "large", {**single, **MIXTURES})
    with capsys.disabled():
        print(f"\n{20 - len(missed)} of 20 named", *missed, sep="\n  ")
    assert len(missed) <= 1
