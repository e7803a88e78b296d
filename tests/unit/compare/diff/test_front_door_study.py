"""False alarms of whole comparisons: ingested runs of one job, whose times have noise of several kinds."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import sketch
import tracewarehouse as tw
from stats.noise_models import INDEPENDENT
from tracewarehouse.compare.stats.verdict import StepTimes, verdict

SEED, STEPS, STEP_NS = 20_261_128, 8, 1_000_000
POOL, PAIRS = 60, 50  # runs of a model, and comparisons of random ones
MOST = 7  # 99 % bound of false alarms for a true rate of 5 %: 50 * 0.05 + 2.33 * sqrt(50 * 0.05 * 0.95), + 1
CHANGED = ("slower", "faster")


def put(folder: Path, run: str, periods_ns: list[int]) -> None:
    """A run of one rank, whose steps have these lengths: a kernel fills all but the start of each."""
    lines, at = [], 0
    for step, period_ns in enumerate(periods_ns, 1):
        lines += [
            f"{run} 0 step t1 {step} {at} {period_ns}",
            f"{run} 0 call t1 cudaLaunchKernel {at + 10} 10 id={step}",
            f"{run} 0 gpu s7 k {at + 30} {period_ns - 100} id={step}",
        ]
        at += period_ns
    sketch.write("\n".join(lines), folder)


def ingested(folder: Path, logs: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> tw.Warehouse:
    """Runs `r000` and so on, with these logs of the times of their steps, relative to `STEP_NS`."""
    for run, steps in enumerate(logs):
        put(folder / "t", f"r{run:03}", [round(STEP_NS * math.exp(each)) for each in steps])
    warehouse = tw.open(folder / "wh")
    warehouse.ingest(folder / "t", jobs=1)
    return warehouse


@pytest.mark.deep
@pytest.mark.parametrize("model", list(INDEPENDENT))
def test_equal_runs_are_called_changed_in_one_of_twenty(tmp_path: Path, model: str) -> None:
    chance = np.random.default_rng([SEED, [*INDEPENDENT].index(model)])
    runs = INDEPENDENT[model](chance, 1, POOL)[0]
    wh = ingested(tmp_path, runs[:, None] + 0.002 * chance.standard_normal((POOL, STEPS)))
    periods: dict[str, list[float]] = {}
    for row in wh.query("SELECT run_id, period_ns FROM steps WHERE NOT partial ORDER BY run_id, step").rows():
        periods.setdefault(row["run_id"], []).append(row["period_ns"])
    for size in (3, 5):
        alarms = 0
        for _ in range(PAIRS):
            drawn = [f"r{run:03}" for run in chance.permutation(POOL)[: 2 * size]]
            base, head = sorted(drawn[:size]), sorted(drawn[size:])
            change = wh.diff(base, head).changes(gates=["median(step_time)<=+3%"])
            alarms += change.verdict.word in CHANGED
            # The same as that of the numbers alone, and the gate agrees with it.
            sides = (StepTimes(tuple(tuple(periods[run]) for run in side)) for side in (base, head))
            alone = verdict(*sides)
            assert (change.verdict.low, change.verdict.high) == (alone.low, alone.high)
            assert (change.gates[0].low, change.gates[0].high) == (alone.low, alone.high)
        assert alarms <= MOST, (size, alarms)


@pytest.mark.deep
@pytest.mark.parametrize("steps", [7, 10])  # of which the first and the last are incomplete
def test_few_dependent_steps_of_one_run_are_called_changed_in_one_of_ten(tmp_path: Path, steps: int) -> None:
    chance = np.random.default_rng([SEED, steps])
    logs = 0.01 * chance.standard_normal((2 * PAIRS, steps))
    for at in range(1, steps):
        logs[:, at] = 0.5 * logs[:, at - 1] + math.sqrt(0.75) * logs[:, at]
    wh = ingested(tmp_path, logs)
    words = [
        wh.diff(f"r{2 * pair:03}", f"r{2 * pair + 1:03}").changes().verdict.word for pair in range(PAIRS)
    ]
    assert sum(word in CHANGED for word in words) <= 0.1 * PAIRS + 2.33 * math.sqrt(PAIRS * 0.1 * 0.9) + 1
