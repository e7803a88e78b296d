"""The breakdown names the faults injected into a simulated run, with their size."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import read, section
from tracewarehouse.compare.diff.breakdown import Breakdown, breakdown
from tracewarehouse.compare.diff.levels import Row
from tracewarehouse.simulation import Noise

SETTINGS: dict[str, Any] = {"layers": 1, "steps": 3, "stacks": False, "noise": Noise(0, 0, 0, 0)}
LARGER: dict[str, Any] = {"layers": 3, "steps": 5, "noise": Noise(0, 0, 0, 0), "seed": 4}
# Name: ranks, injected fault, the level to check, the start of the name of its first row, and its change.
FAULTS: dict[str, tuple[int, str, str, str, str]] = {
    "slow-kernel": (1, "slow-kernel:kernel=gemm,percent=30", "kernels", "sm90_xmma_gemm", "slower"),
    "extra-kernel": (1, "extra-kernel:us=80", "kernels", "triton_poi_fused_clone", "added"),
    "removed-kernel": (1, "removed-kernel:kernel=dropout", "kernels", "void at::", "removed"),
    "renamed-kernel": (1, "renamed-kernel:kernel=gelu,to=another_gelu", "kernels", "void at::", "replaced"),
    "dataloader-stall": (1, "dataloader-stall:step=1,ms=8", "breakdown", "idle_dataloader", "longer"),
    "blocking-item": (1, "blocking-item", "breakdown", "idle_sync", "longer"),
    "no-overlap": (2, "no-overlap", "breakdown", "exposed_transfer", "longer"),
    "slow-link": (2, "slow-link:group=data0,factor=10", "breakdown", "exposed_transfer", "longer"),
    "slow-rank": (2, "slow-rank:rank=1,what=compute,factor=2", "ranks", "rank 1 (own work)", "longer"),
}
QUICK = ("slow-rank",)


def units(folder: Path) -> int:
    """Steps of all ranks of the run; without noise they are equal."""
    rows = section(folder, "step_summary")
    return len(rows)


def mean_ns(folder: Path) -> Fraction:
    """The mean period of complete steps according to the scheduler."""
    periods = [row["period_ns"] for row in section(folder, "step_summary") if not row["partial"]]
    return Fraction(sum(periods), len(periods))


def kernel_ns(folder: Path, part: str) -> Fraction:
    """Time of kernels with this text in their name, per step and rank."""
    rows = [row for row in section(folder, "kernel_summary") if part in row["name"]]
    return Fraction(sum(row["sum_ns"] for row in rows), units(folder))


def split_ns(folder: Path, column: str, rank: int | None = None) -> Fraction:
    """A category of the device's window, of one rank or all, per step and rank."""
    rows = [row for row in section(folder, "temporal_breakdown") if rank in (None, row["rank"])]
    return Fraction(sum(row[column] for row in rows), units(folder))


def after_copies_ns(folder: Path) -> Fraction:
    """The mean idle time of the device after a copy to the host, from the trace."""
    events = [
        each
        for each in read(folder)["traceEvents"]
        if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    rows = sorted(events, key=lambda each: float(each["ts"]))
    gaps = [
        1_000 * (float(after["ts"]) - float(before["ts"]) - float(before["dur"]))
        for before, after in zip(rows, rows[1:], strict=False)
        if "DtoH" in before["name"]
    ]
    return Fraction(round(sum(gaps)), len(gaps))


def truth_ns(kind: str, base: Path, head: Path) -> Fraction:
    """The size of the injected fault per step and rank, from the scheduler or from the settings."""
    match kind:
        case "slow-kernel":
            return kernel_ns(head, "gemm") - kernel_ns(base, "gemm")
        case "extra-kernel":
            return Fraction(80_000)
        case "removed-kernel":
            return -kernel_ns(base, "fused_dropout")
        case "renamed-kernel":
            return Fraction(0)
        case "blocking-item":
            return after_copies_ns(head)
        case "slow-link":
            return split_ns(head, "exposed_comm_ns") - split_ns(base, "exposed_comm_ns")
        case "slow-rank":
            return split_ns(head, "compute_ns", 1) - split_ns(base, "compute_ns", 1)
    return mean_ns(head) - mean_ns(base)


def simulate_faults(folder: Path, kinds: list[str], settings: dict[str, Any]) -> tw.Warehouse:
    """A warehouse with a base of each size, `none1` and `none2`, and a head per injected fault."""
    runs = {f"none{FAULTS[kind][0]}": (FAULTS[kind][0], []) for kind in kinds}
    runs |= {kind: (FAULTS[kind][0], [FAULTS[kind][1]]) for kind in kinds}
    for name, (ranks, injections) in runs.items():
        tw.simulate(folder / "sim" / name, ranks=ranks, injections=injections, **settings)
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "sim", jobs=1)
    return wh


def check_first_row(wh: tw.Warehouse, folder: Path, kind: str) -> None:
    """The first row of the level names the fault, within 5 % of the truth; all levels sum to the change."""
    ranks, _, level, part, change = FAULTS[kind]
    base, head = folder / "sim" / f"none{ranks}", folder / "sim" / kind
    found = breakdown(wh.selection.select(base.name), wh.selection.select(head.name), per="step")
    whole(found, base, head)
    first, truth = found.level(level).rows[0], truth_ns(kind, base, head)
    assert first.part.startswith(part) and first.change == change, first
    assert abs(first.delta - truth) <= abs(truth) / 20, (float(first.delta), float(truth))
    if kind == "renamed-kernel":
        assert first.part.endswith(" → another_gelu") and first.head == kernel_ns(head, "another_gelu")


def whole(found: Breakdown, base: Path, head: Path) -> None:
    """Means equal those of the scheduler; every level sums to them exactly, and so do printed rows."""
    assert (found.base_mean, found.head_mean) == (mean_ns(base), mean_ns(head))
    for level in found.levels:
        assert (level.base, level.head) == (found.base_mean, found.head_mean), level.name
        rows = level.result(3).rows()
        assert sum(row["base_ns"] for row in rows) == round(found.base_mean)
        assert sum(row["delta_ns"] for row in rows) == round(found.head_mean) - round(found.base_mean)
        assert all(split(row) for row in level.rows)


def split(row: Row) -> bool:
    """Calls and speed sum to the change for rows that consist of calls."""
    return row.calls is None or row.speed is None or row.calls + row.speed == row.delta


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Warehouse, Path]:
    folder = tmp_path_factory.mktemp("faults")
    return simulate_faults(folder, list(QUICK), SETTINGS), folder


@pytest.mark.parametrize("kind", QUICK)
def test_the_first_row_names_the_injected_fault(faults: tuple[tw.Warehouse, Path], kind: str) -> None:
    check_first_row(*faults, kind)


@pytest.mark.deep
@pytest.mark.parametrize("settings", [SETTINGS, LARGER], ids=["small", "larger"])
def test_the_first_row_names_every_kind_of_fault(tmp_path: Path, settings: dict[str, Any]) -> None:
    wh = simulate_faults(tmp_path, list(FAULTS), {**settings})
    for kind in FAULTS:
        check_first_row(wh, tmp_path, kind)


def test_a_slow_rank_makes_the_others_wait(faults: tuple[tw.Warehouse, Path]) -> None:
    wh, folder = faults
    found = breakdown(wh.selection.select("none2"), wh.selection.select("slow-rank"), per="step")
    rows = {row.part: row.delta for row in found.level("ranks").rows}
    by_rank: dict[str, Fraction] = defaultdict(Fraction)
    for part, delta in rows.items():
        by_rank[" ".join(part.split()[:2])] += delta
    # Both take longer; after the last collective only rank 1.
    assert by_rank["rank 0"] > 0.98 * by_rank["rank 1"] > 0
    assert rows["rank 0 (own work)"] == 0
    assert rows["rank 0 exposed_wait"] > 0.99 * by_rank["rank 0"]
