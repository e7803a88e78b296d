"""Levels by module and by work: a slower step is split into more work and less efficient work, to the ns."""

from __future__ import annotations

from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep
from tracewarehouse.compare.diff.breakdown import Breakdown, breakdown
from tracewarehouse.compare.diff.levels import Row
from tracewarehouse.simulation import Noise

BASE: dict[str, Any] = {"ranks": 1, "layers": 2, "steps": 5, "hidden": 512, "noise": Noise(0, 0, 0, 0)}
SLOWER = "slow-kernel:kernel=gemm,percent=30"
RUNS: dict[str, dict[str, Any]] = {
    "base": BASE,
    "slower": {**BASE, "injections": [SLOWER]},
    "wider": {**BASE, "hidden": 768},
    "both": {**BASE, "hidden": 768, "injections": [SLOWER]},
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("work")
    found = tw.open(folder / "warehouse")
    for name, settings in RUNS.items():
        tw.simulate(folder / "sim" / name, **settings)
    found.ingest(folder / "sim", jobs=1)
    return found


def compared(wh: tw.Warehouse, head: str, per: str) -> Breakdown:
    """The breakdown; each level sums to both means exactly, and in whole ns to the rounded ones."""
    found = breakdown(wh.selection.select("base"), wh.selection.select(head), per=per)
    for name in ("modules", "work"):
        level = found.level(name)
        assert (level.base, level.head) == (found.base_mean, found.head_mean)
        rows = level.result(3).rows()
        assert sum(row["delta_ns"] for row in rows) == round(found.head_mean) - round(found.base_mean)
        for row in rows:
            assert row["calls_ns"] is None or row["calls_ns"] + row["speed_ns"] == row["delta_ns"]
    return found


def gemm(found: Breakdown) -> Row:
    (row,) = (row for row in found.level("work").rows if row.part == "gemm (flop)")
    return row


@pytest.mark.parametrize("per", ["step", *deep("window")])
def test_slower_kernels_are_less_efficient_work(wh: tw.Warehouse, per: str) -> None:
    found = compared(wh, "slower", per)
    row = gemm(found)
    assert (row.change, row.calls, row.speed) == ("slower", 0, row.delta)
    assert row.base_count == row.head_count and row is found.level("work").rows[0]
    assert float(row.delta / row.base) == pytest.approx(0.3, abs=0.001)
    first = found.level("modules").rows[0]
    assert first.part.endswith("Linear_8") and first.change == "slower"  # the head of the model


@pytest.mark.deep
@pytest.mark.parametrize("per", ["step", "window"])
def test_a_wider_model_is_more_work(wh: tw.Warehouse, per: str) -> None:
    row = gemm(compared(wh, "wider", per))
    assert row.change == "more work, FLOP × 1.71, same time per FLOP"
    assert row.calls is not None and row.speed is not None
    # Each simulated kernel takes its FLOP over the rate of the device, rounded down to whole ns.
    assert abs(row.speed) < 0.001 * row.calls
    kernels = wh.select(["base", "wider"]).query(
        "SELECT run_id, sum(hardware_flop)::BIGINT AS flop FROM op_work WHERE family = 'gemm' GROUP BY ALL"
    )
    flop = {each["run_id"]: each["flop"] for each in kernels.rows()}
    if per == "window":
        assert (row.base_count, row.head_count) == (flop["base"], flop["wider"])


def test_more_and_less_efficient_work_are_apart(wh: tw.Warehouse) -> None:
    both, wider = gemm(compared(wh, "both", "step")), gemm(compared(wh, "wider", "step"))
    assert both.calls == wider.calls and both.speed is not None
    slower = both.head - wider.head
    assert float(both.speed) == pytest.approx(float(slower), rel=0.001)


def test_bytes_are_the_work_of_operators_without_flop(wh: tw.Warehouse) -> None:
    rows = {row.part: row for row in compared(wh, "wider", "step").level("work").rows}
    assert rows["norm (bytes)"].change == "more work, bytes × 1.5, same time per byte"
    assert rows["optimizer (work not known)"].change == "slower"
    assert all(row.calls is None for part, row in rows.items() if part.startswith("idle_"))


@pytest.mark.deep
def test_words_of_calls_are_unchanged(wh: tw.Warehouse) -> None:
    shown = wh.diff("base", "wider").changes().rows(("modules", "work")).rows()
    words = {
        row["level"]: {each["change"].partition(",")[0] for each in shown if each["level"] == row["level"]}
        for row in shown
    }
    assert "more work" in words["work"] and not words["modules"] & {"more work", "less work"}
