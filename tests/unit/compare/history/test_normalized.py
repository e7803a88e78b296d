"""`tw history --normalize`: times per sample of a step, so that a larger batch is not reported."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cli_runner import tw as call
from recorded_runs import recorded_runs
from tracewarehouse import Warehouse
from tracewarehouse.compare.history.baseline import Compared, find_baseline
from tracewarehouse.compare.metric.expression import WorkUnit, parse_metric
from tracewarehouse.errors import ParamError, TwError

RUNS, LARGER = 40, 20


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """40 nights of 25 ms per sample, 1 % noise: 4 samples a step, 8 from the 20th on; one is not labeled."""
    chance = random.Random(3)
    batches = [8 if at >= LARGER else 4 for at in range(RUNS)]
    periods = [round(2.5e7 * batch * (1 + chance.gauss(0, 0.01))) for batch in batches]
    labels = {at: {"samples_per_step": str(batch), "pixels": "0"} for at, batch in enumerate(batches)}
    labels[7] = {}
    return recorded_runs(tmp_path_factory.mktemp("normalized") / "warehouse", periods, labels)


@pytest.mark.deep
def test_twice_the_work_in_twice_the_time_is_no_change(wh: Warehouse) -> None:
    plain, normalized = wh.history("step_time"), wh.history("step_time", normalize="sample")
    assert [change.after for change in plain.changes] == [f"night-{LARGER:04d}"]
    assert not normalized.changes
    assert "values are of the median complete step, mean of its ranks, per sample" in normalized.notices
    for before, after in zip(plain.rows(), normalized.rows(), strict=True):
        batch = 8 if before["run_id"] >= f"night-{LARGER:04d}" else 4
        wanted = None if before["run_id"] == "night-0007" else before["value"] / batch
        assert after["value"] == wanted
    by_label = wh.history("step_time", normalize="label.samples_per_step")
    assert [row["value"] for row in by_label.rows()] == [row["value"] for row in normalized.rows()]


def test_the_baseline_per_sample(wh: Warehouse) -> None:
    """Twice the work changes nothing: earlier runs count, except one whose work is unknown."""
    metric, runs = parse_metric("step_time", wh.catalog), wh.recorded_runs()
    compared = Compared(None, runs[-1:])
    plain = find_baseline(wh.store, wh.catalog, metric, runs, compared)
    assert [point.run for point in plain.points] == [f"night-{at:04d}" for at in range(LARGER, RUNS - 1)]
    unit = WorkUnit.parse("sample")
    found = find_baseline(wh.store, wh.catalog, metric, runs, compared, unit)
    assert [point.run for point in found.points] == [f"night-{at:04d}" for at in range(RUNS - 1) if at != 7]
    assert found.earlier.median == pytest.approx(2.5e7, rel=0.01)
    with pytest.raises(TwError, match="step_time per sample before night-0003 of the same configuration"):
        find_baseline(wh.store, wh.catalog, metric, runs, Compared(None, runs[3:4]), unit)


def test_a_run_without_the_label_has_no_value(wh: Warehouse) -> None:
    (row,) = wh.history("step_time", ["night-0007", "night-0008"], normalize="sample").rows()[:1]
    assert (row["run_id"], row["value"], row["reason"]) == (
        "night-0007", None, "no label samples_per_step, or not a number above 0",
    )  # fmt: skip
    with pytest.raises(TwError, match="run night-0007 lacks the label samples_per_step"):
        wh.history("step_time", "night-0007", normalize="sample")
    with pytest.raises(TwError, match="pixels=0, not a number above 0"):
        wh.history("step_time", normalize="label.pixels")


def test_only_times_and_sizes_are_normalized(wh: Warehouse) -> None:
    with pytest.raises(ParamError, match="kernel_summary.count is neither a time nor a size"):
        wh.history("kernel_summary.count", normalize="sample")
    with pytest.raises(ParamError, match="unknown normalize 'steps'"):
        wh.history("step_time", normalize="steps")


def test_chart_and_page_name_the_unit(wh: Warehouse, tmp_path: Path) -> None:
    shown = call("history", "step_time", "--normalize", "sample", "-w", wh.root, "--format", "table")
    assert shown.code == 0 and shown.out.startswith("step_time per sample, 39 runs, 0 changes"), shown.out
    assert "1 of 40 runs has no value: no label samples_per_step" in shown.err
    assert "step_time per sample" in wh.history("step_time", normalize="sample").html()
    failing = call(
        "history",
        "step_time",
        "--fail-on-change",
        "any",
        "--since",
        "1000d",
        "--normalize",
        "sample",
        "-w",
        wh.root,
    )
    assert (
        failing.code == 0
        and call(
            "history", "step_time", "--fail-on-change", "any", "--since", "night-0001", "-w", wh.root
        ).code
        == 3
    )
