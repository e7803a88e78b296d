"""Recordings of different lengths compared: sums are per step or second, and equal positions are compared."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.compare.diff.comparable import first_steps
from tracewarehouse.compare.stats.verdict import StepTimes, verdict

SIZE = ("--ranks", "2", "--layers", "1", "--no-stacks", "--no-memory", "--noise-run", "0")
SLOWER = [f"slow-rank:rank={rank},what=compute,factor=1.1" for rank in (0, 1)]
WARM_UP = [f"slow-kernel:kernel=gemm,percent={60 - 20 * step},step={step}" for step in range(3)]
GATES = [
    "kernel_summary.sum_ns[kind=communication]<=+10%",
    "kernel_summary.sum_ns[kind=computation]<=-5%",
    "temporal_breakdown.compute_ns<=-5%",
    "kernel_summary.count<=+0%",
]


def simulate(folder: Path, steps: int, seed: int, injected: list[str], start: str = "2026-05-01") -> None:
    """A recording of that number of steps."""
    options = [text for each in injected for text in ("--inject", each)]
    numbers = ("--steps", str(steps), "--seed", str(seed), "--start", f"{start}T00:00:00")
    done = call("simulate", folder, *SIZE, *numbers, *options)
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """`base` has 7 steps; `head` has 32 that are 9 % faster; `warm` and `long` warm up, in 5 and 20 steps."""
    folder = tmp_path_factory.mktemp("length")
    for at, (run, steps, injected) in enumerate(
        (("base", 7, SLOWER), ("head", 32, []), ("warm", 5, WARM_UP), ("long", 20, WARM_UP))
    ):
        simulate(folder / "traces" / run, steps, at, injected)
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    return wh


def test_sums_of_recordings_are_per_step(house: tw.Warehouse) -> None:
    change = house.diff("base", "head").changes(gates=GATES)
    # One run per side does not show that times are within the bounds; a count has no noise.
    assert [each.outcome for each in change.gates] == ["inconclusive"] * 3 + ["pass"]
    communication, *computation, _ = [each.value or 0.0 for each in change.gates]
    assert abs(communication) < 0.1 and all(-0.12 < value < -0.06 for value in computation)
    assert change.gates[3].value == 0.0
    result = house.diff("base", "head").kernel_summary()
    assert result.notices[0] == "values are per recorded step and rank: base has 14, head has 64"
    for row in result.rows():
        assert row["base_count"] == row["head_count"] == round(row["base_count"])
        if row["kind"] == "computation":  # communication waits
            assert -0.15 < row["head_sum_ns"] / row["base_sum_ns"] - 1 < -0.03
        assert row["delta_sum_ns"] == pytest.approx(row["head_sum_ns"] - row["base_sum_ns"])
    # Exact: the sum of all rows, times the steps, is that of the two recordings.
    total = sum(row["sum_ns"] for row in house.select(runs="base").analyze("kernel_summary").rows())
    assert round(14 * sum(row["base_sum_ns"] for row in result.rows())) == total


def test_shares_of_a_rank_are_not_divided(house: tw.Warehouse) -> None:
    rows = house.diff("base", "head").kernel_type_breakdown().rows()
    assert sum(row["base_share"] for row in rows) == pytest.approx(1)
    assert sum(row["head_share"] for row in rows) == pytest.approx(1)
    by_rank = house.diff("base", "head", by_rank=True).kernel_type_breakdown().rows()
    assert sum(row["base_share"] for row in by_rank) == pytest.approx(2)
    assert all(row["head_class_ns"] < 3e6 for row in by_rank), "a step takes 2.4 ms"


def test_equal_positions_are_compared(house: tw.Warehouse) -> None:
    """Steps that warm up by about 40 %: without that the longer recording looks faster."""
    change = house.diff("warm", "long").changes(gates=["step_time<=+50%", "mean(step_time)<=+50%"])
    assert change.verdict.word == "inconclusive" and abs(change.verdict.mean_change or 1) < 0.02
    line = next(each for each in change.verdict.notices if "first" in each)
    assert line.startswith("compared the first 5 complete steps of each run: first steps are slower (+")
    assert change.breakdown is not None and change.breakdown.head_intervals == 2 * 5
    assert [each.value is not None and abs(each.value) < 0.05 for each in change.gates] == [True, True]
    done = call("diff", "long", "warm", "-w", house.root)
    assert f"note: {line.replace('in head', 'in base')}" in done.out
    assert "compared the first 5" in call("diff", "warm", "long", "step_account", "-w", house.root).err
    # Of chosen steps all are compared.
    chosen = house.diff("warm", "long").changes(steps=range(3, 20))
    assert not any("compared the first" in each for each in chosen.verdict.notices)


def test_warming_up_is_not_faster() -> None:
    """Three runs per side: 5 against 20 steps that warm up by 30 % over three steps."""

    def side(steps: int, seed: int) -> StepTimes:
        noise = [1 + ((seed * 7919 + at * 104729) % 97 - 48) / 10_000 for at in range(3 * steps)]
        warm = [1 + 0.3 * max(0, 3 - step) / 3 for step in range(steps)]
        runs = (tuple(1e8 * warm[at] * noise[run * steps + at] for at in range(steps)) for run in range(3))
        return StepTimes(tuple(runs))

    words, compared = set(), set()
    for seed in range(20):
        base, head = side(5, seed), side(20, seed + 100)
        words.add(verdict(base, head).word)
        shift = median(median(run[:5]) / median(run) - 1 for run in head.runs)
        line = (
            f"compared the first 5 complete steps of each run: first steps are slower (+{shift:.1%} in head)"
        )
        assert first_steps(base, head, 0.01) == (5, line.replace("%", " %"))
        compared.add(verdict(base, StepTimes(tuple(run[:5] for run in head.runs))).word)
    assert words == {"faster"} and "faster" not in compared and "slower" not in compared
    flat = StepTimes(((1e8,) * 20,) * 3)
    assert first_steps(StepTimes(((1e8,) * 5,) * 3), flat, 0.01) is None


def test_another_schedule_is_no_change_point(tmp_path: Path) -> None:
    for at in range(12):
        name = tmp_path / "traces" / f"night-{at:02}"
        simulate(name, 3 if at < 6 else 8, at, [], f"2026-05-{1 + at:02}")
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "traces", jobs=1)
    wh.record(analyses=["kernel_summary"])
    (series,) = wh.history("kernel_summary.sum_ns").series
    values = [point.value for point in series.points if point.value is not None]
    assert len(values) == 12 and max(values) < 1.1 * min(values)
    assert not series.change_positions
    (counts,) = wh.history("kernel_summary.count").series
    assert len({point.value for point in counts.points}) == 1
    assert "values are per recorded step and rank" in wh.history("kernel_summary.sum_ns").notices
