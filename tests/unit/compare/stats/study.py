"""Error rates and power of the verdicts and row tests, on runs with the noise of the simulator.

    PYTHONPATH=src:tests:tests/support:tests/unit/compare python -m stats.study [--write]

Prints POWER.md; --write replaces the file. Takes some minutes.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median

import numpy as np

from stats.gate_study import gate_lines
from stats.noise_models import DEPENDENT, INDEPENDENT
from stats.series_study import failing_lines, small_lines, trend_lines
from stats.simulated_runs import ALIKE, HEAVY, ROWS, STEPS, Floats, factors, row_times, shares, step_times
from tracewarehouse.compare.stats.many_series import RowTest, row_tests
from tracewarehouse.compare.stats.two_sample import (
    Earlier,
    has_enough_splits,
    outlier_notices,
    p_value,
    runs_needed,
    runs_to_conclude,
    with_history,
)
from tracewarehouse.compare.stats.two_sample import shift as tested
from tracewarehouse.compare.stats.verdict import (
    DEPENDENCE_LEVEL,
    StepTimes,
    Verdict,
    blocks,
    dependence_p,
    verdict,
)
from tracewarehouse.simulation import Noise

FILE = Path(__file__).with_name("POWER.md")
SEED = 20_260_504
PAIRS = 200  # of equal sides
BOUND = 17  # 99 % bound of the count for a true rate of 5 %
DRAWS = 1_000  # pairs of the power curve
EQUAL = 2_000  # equal pairs, where 1 % more false alarms would be too many
SCAN = 200  # pairs, where many numbers of runs are tried
MOST = 36  # runs per side that are tried
SHIFTS = (0.01, 0.02, 0.03, 0.05, 0.10)
SIZES = (3, 5, 8, 12)
KERNEL = 1.10
LEAST = 0.01
CHANGE = ("slower", "faster")


@dataclass(frozen=True)
class Pair:
    """Two equal sides: their steps, and their rows by sample."""

    base: StepTimes
    head: StepTimes
    base_rows: Floats
    head_rows: Floats

    def verdict(self, shift: float = 0.0) -> Verdict:
        """The verdict if the steps of head are longer by `shift`."""
        return verdict(self.base, longer(self.head, shift))

    def rows(self, slow: int | None = None) -> list[RowTest]:
        """The tests of the rows, with one row of head slower."""
        head = self.head_rows.copy()
        if slow is not None:
            head[slow] *= KERNEL
        return row_tests(self.base_rows, head, shares())


def longer(side: StepTimes, shift: float) -> StepTimes:
    """The same steps, each longer by a share of it."""
    return StepTimes(tuple(tuple(round(time * (1 + shift)) for time in run) for run in side.runs))


@cache
def pairs(runs: int, noise: Noise, count: int = PAIRS) -> tuple[Pair, ...]:
    """Pairs of equal sides with `runs` runs each."""
    return tuple(_pair(runs, noise, SEED + 100 * pair) for pair in range(count))


def _pair(runs: int, noise: Noise, seed: int) -> Pair:
    drawn = [factors(seed + run, noise) for run in range(2 * runs)]
    times = tuple(step_times(run) for run in drawn)
    samples = [_samples(row_times(run), own, runs) for run, own in zip(drawn, times, strict=True)]
    return Pair(
        StepTimes(times[:runs]), StepTimes(times[runs:]), np.hstack(samples[:runs]), np.hstack(samples[runs:])
    )


def _samples(row: Floats, times: tuple[int, ...], runs: int) -> Floats:
    """The means of the rows in each sample: the run, or blocks of steps of a single run."""
    samples = [range(len(times))] if runs > 1 else blocks(times)
    return np.stack([row[:, each.start : each.stop].mean(axis=1) for each in samples], axis=1)


def words(runs: int, noise: Noise, shift: float = 0.0) -> Counter[str]:
    """The number of each verdict in PAIRS pairs."""
    return Counter(pair.verdict(shift).word for pair in pairs(runs, noise))


def wrong(found: Counter[str]) -> int:
    """The number of verdicts that report a change."""
    return found["slower"] + found["faster"]


def row_alarms(runs: int, noise: Noise) -> int:
    """The number of PAIRS equal pairs with any significant row."""
    return sum(any(row.significant for row in pair.rows()) for pair in pairs(runs, noise))


def kernels_found(runs: int, noise: Noise) -> tuple[int, int]:
    """One slower row per pair: the number of pairs in which it is significant, and in which any other is."""
    tested = [row for row in range(ROWS) if shares()[row] >= 0.001]
    hits = others = 0
    for number, pair in enumerate(pairs(runs, noise)):
        slow = tested[number % len(tested)]
        flagged = {row for row, found in enumerate(pair.rows(slow)) if found.significant}
        hits += slow in flagged
        others += bool(flagged - {slow})
    return hits, others


@cache
def medians(pair: int, head: int, run: int) -> int:
    """The median step of one run of the power curve."""
    return round(median(step_times(factors(SEED * 2 + 1000 * pair + 500 * head + run, HEAVY))))


def of_medians(pair: int, runs: int, shift: float) -> Verdict:
    """A verdict on runs of which only the medians are known."""
    base, head = (StepTimes(tuple((medians(pair, side, run),) for run in range(runs))) for side in (0, 1))
    return verdict(base, longer(head, shift))


def share(runs: int, shift: float, verdicts: tuple[str, ...], draws: int = DRAWS) -> float:
    """The share of the pairs with one of these verdicts."""
    return sum(word(pair, runs, shift) in verdicts for pair in range(draws)) / draws


@cache
def word(pair: int, runs: int, shift: float) -> str:
    """The verdict's word from its test alone, without the interval, which takes longer."""
    if not has_enough_splits(runs, runs, 0.05):
        return of_medians(pair, runs, shift).word
    base, head = (
        np.sort(np.log([medians(pair, side, run) for run in range(runs)])) + side * math.log1p(shift)
        for side in (0, 1)
    )
    smallest = math.log1p(LEAST)
    if all(p_value(base, head - by) <= 0.05 for by in (smallest, -smallest)):
        aside = float(np.median(np.subtract.outer(head, base)))
        if abs(aside) < smallest:
            return "no change"
    if p_value(base, head) > 0.05:
        return "inconclusive"
    return "slower" if head.mean() > base.mean() else "faster"


def fewest(shift: float) -> int:
    """The smallest number of runs per side with 80 % correct verdicts; MOST + 1 if there is none."""
    correct = ("slower" if shift else "no change",)
    return next((runs for runs in range(2, MOST + 1) if share(runs, shift, correct, SCAN) >= 0.8), MOST + 1)


def advised(shift: float, pilot: int) -> float:
    """The median of the suggested total runs per side, over pilots of `pilot` runs."""
    return median(suggested_runs(pair, shift, pilot) for pair in range(SCAN))


def suggested_runs(pair: int, shift: float, pilot: int) -> int:
    """The suggested total runs per side from `pilot` runs; at most MOST."""
    base, head = (
        [math.log(medians(pair, side, run)) + side * math.log1p(shift) for run in range(pilot)]
        for side in (0, 1)
    )
    needed = runs_to_conclude(base, head, alpha=0.05, min_effect=LEAST)
    return min(needed or MOST, MOST)


def followed(shift: float, pilot: int) -> tuple[int, float, float]:
    """Of SCAN pilots: inconclusive ones, the runs suggested for them, and the share conclusive with these."""
    pilots = {pair: of_medians(pair, pilot, shift) for pair in range(SCAN)}
    more = {pair: found.needs_runs or MOST for pair, found in pilots.items() if found.word == "inconclusive"}
    then = [of_medians(pair, min(pilot + more[pair], MOST), shift).word for pair in more]
    return len(more), median(more.values()) + pilot, sum(word != "inconclusive" for word in then) / len(then)


def true_spread() -> float:
    """The standard deviation of logs of runs' medians."""
    return float(np.log([medians(pair, 0, run) for pair in range(SCAN) for run in range(5)]).std())


def lines() -> Iterator[str]:
    """POWER.md."""
    yield "# Power and false-positive rate of run comparisons"
    yield ""
    paths = "src:tests:tests/support:tests/unit/compare"
    yield f"Generated by `PYTHONPATH={paths} python -m stats.study --write`. Checked by"
    yield "`test_study.py`."
    yield ""
    yield f"Runs of {STEPS} steps of 100 ms with the noise of the simulator, seed {SEED}. Logs of times are"
    yield f"normal, with a standard deviation of σ_run between runs and {percent(HEAVY.step)} between steps;"
    yield f"{percent(HEAVY.outliers)} of the steps follow Student's t with 3 degrees of freedom instead."
    yield f"{ROWS} kernels vary by {percent(HEAVY.kernel)} each."
    yield f"`alpha` is 5 % and `min_effect` {percent(LEAST)}."
    for part in (
        alarm_lines,
        correlated_lines,
        kernel_lines,
        power_lines,
        mean_lines,
        model_lines,
        outlier_lines,
        dependence_lines,
        history_lines,
        needed_lines,
        followed_lines,
        trend_lines,
        small_lines,
        failing_lines,
        gate_lines,
    ):
        yield ""
        yield from part()


ALARMS = ((1, ALIKE), (1, HEAVY), (2, HEAVY), (3, HEAVY), (5, HEAVY), (8, HEAVY), (5, ALIKE))


def alarm_lines() -> Iterator[str]:
    yield "## False alarms"
    yield ""
    yield f"{PAIRS} pairs of equal sides. With a true rate of 5 %, 99 of 100 such counts are at most {BOUND}."
    yield "With one run per side, steps are the samples and the verdict is on these recordings only: it finds"
    yield "differences that are run-to-run variance."
    yield ""
    columns = ("runs per side", "σ_run", "sample", "slower, faster", "no change", "inconclusive")
    yield f"| {' | '.join(columns)} | any row significant |"
    yield "|---:|---:|---|---:|---:|---:|---:|"
    for runs, noise in ALARMS:
        yield alarm_line(runs, noise)


def alarm_line(runs: int, noise: Noise) -> str:
    """One line of POWER.md."""
    found, sample = words(runs, noise), pairs(runs, noise)[0].verdict().sample
    counts = f"{wrong(found)} | {found['no change']} | {found['inconclusive']} | {row_alarms(runs, noise)}"
    return f"| {runs} | {percent(noise.run)} | {sample} | {counts} |"


def correlated_lines() -> Iterator[str]:
    yield "## Correlated steps"
    yield ""
    yield f"{PAIRS} equal pairs of one run per side, where each step inherits a share of the deviation of the"
    yield "previous one: false verdicts with blocks of steps as samples, and with single steps as samples."
    yield "With fewer than 20 steps, dependence hardly shows, and the interval is widened: up to 60 %"
    yield "inherited, at most 10 % are false."
    yield ""
    yield "| steps | inherited | blocks | single steps |"
    yield "|---:|---:|---:|---:|"
    for steps in (5, 6, 8, 12, 21, 100):
        for kept in (0.0, 0.3, 0.5, 0.6, 0.8):
            blocked, single = (called_different(kept, steps, single=each) for each in (False, True))
            yield f"| {steps} | {percent(kept)} | {blocked} | {single} |"


def called_different(kept: float, steps: int, *, single: bool = False, count: int = PAIRS) -> int:
    """Verdicts of a change in `count` equal pairs: with blocks of steps as samples, or with single steps."""
    found = 0
    for pair in range(count):
        sides = (_drifting(kept, steps, SEED + 2 * pair + side) for side in (0, 1))
        runs = (StepTimes(tuple((time,) for time in side) if single else (side,)) for side in sides)
        found += verdict(*runs, min_effect=0).word in CHANGE
    return found


def _drifting(kept: float, steps: int, seed: int) -> tuple[int, ...]:
    fresh, deviation, times = np.random.default_rng(seed).standard_normal(steps + 50), 0.0, []
    for draw in fresh:
        deviation = kept * deviation + float(draw)
        times.append(round(1e8 * math.exp(0.01 * deviation)))
    return tuple(times[50:])


def kernel_lines() -> Iterator[str]:
    yield f"## One kernel of {ROWS} slower by {percent(KERNEL - 1)}"
    yield ""
    yield f"{PAIRS} pairs, each with another slow kernel; σ_run is {percent(HEAVY.run)}. Rows of one run vary"
    yield "together, so that false positives are concentrated in few pairs."
    yield ""
    yield "| runs per side | found | pairs with any other row significant |"
    yield "|---:|---:|---:|"
    for runs in (2, 3, 5, 8):
        yield kernel_line(runs)


def kernel_line(runs: int) -> str:
    """One line of POWER.md."""
    found, others = kernels_found(runs, HEAVY)
    return f"| {runs} | {found} | {others} |"


def power_lines() -> Iterator[str]:
    yield "## Power"
    yield ""
    yield f"The share of {DRAWS:,} pairs with the verdict *slower*, σ_run is {percent(HEAVY.run)}; for 0 %"
    yield "the share with *slower* or *faster*, and with *no change*."
    yield ""
    yield "| change | " + " | ".join(f"{runs} + {runs} runs" for runs in SIZES) + " |"
    yield "|---|" + "---:|" * len(SIZES)
    yield _power_line("0 %: slower, faster", 0.0, CHANGE)
    yield _power_line("0 %: no change", 0.0, ("no change",))
    for shift in SHIFTS:
        yield _power_line(percent(shift), shift, ("slower",))


def _power_line(name: str, shift: float, verdicts: tuple[str, ...]) -> str:
    return f"| {name} | " + " | ".join(f"{share(runs, shift, verdicts):.3f}" for runs in SIZES) + " |"


Slowed = Callable[[Floats], Floats]
STALLS: dict[str, Slowed] = {
    "one step of 22 takes 20 ×": lambda steps: np.where(np.arange(22) == 11, 20, 1) * steps,
    "every tenth step + 200 %": lambda steps: np.where(np.arange(22) % 10 == 9, 3, 1) * steps,
}


def mean_lines() -> Iterator[str]:
    yield "## The mean of complete steps"
    yield ""
    yield "A gate on `step_time` tests the mean of the steps of each run; `median(step_time)` and the verdict"
    yield f"test their median. The share of {DRAWS:,} pairs whose means differ (0 %), or are slower, if all"
    yield "steps of head take longer:"
    yield ""
    yield "| change | " + " | ".join(f"{runs} + {runs} runs" for runs in SIZES) + " |"
    yield "|---|" + "---:|" * len(SIZES)
    for shift in (0.0, 0.02, 0.03, 0.05):
        yield f"| {percent(shift)} | " + " | ".join(f"{mean_share(runs, shift):.3f}" for runs in SIZES) + " |"
    yield ""
    yield f"The share of {SCAN} pairs of 8 + 8 runs of 22 steps that are slower by either test, if some steps"
    yield "of each run of head take longer:"
    yield ""
    yield "| steps of head | median | mean |"
    yield "|---|---:|---:|"
    for name, slowed in STALLS.items():
        yield f"| {name} | {' | '.join(f'{part:.3f}' for part in stalls_seen(slowed))} |"


@cache
def mean_step(pair: int, head: int, run: int) -> float:
    """The mean step of one run of the power curve."""
    return fmean(step_times(factors(SEED * 2 + 1000 * pair + 500 * head + run, HEAVY)))


def mean_share(runs: int, shift: float, draws: int = DRAWS) -> float:
    """The share of pairs whose means differ, or are slower if head is shifted."""
    found = 0
    for pair in range(draws):
        base, head = (np.log([mean_step(pair, side, run) for run in range(runs)]) for side in (0, 1))
        found += is_slower(base, head + math.log1p(shift)) or not shift and rejects(base, head)
    return found / draws


def is_slower(base: Floats, head: Floats) -> bool:
    """Whether the test of these logs says that head is slower."""
    return bool(head.mean() > base.mean()) and rejects(base, head)


def stalls_seen(slowed: Slowed, runs: int = 8, draws: int = SCAN) -> tuple[float, float]:
    """The share of pairs that are slower by the medians of their runs, and by their means."""
    seen = np.zeros(2)
    for pair in range(draws):
        seeds = (SEED * 2 + 1000 * pair + run for run in range(2 * runs))
        steps = np.array([step_times(factors(seed, HEAVY, 22)) for seed in seeds], dtype=np.float64)
        steps[runs:] = slowed(steps[runs:])
        for at, values in enumerate((np.median(steps, axis=1), steps.mean(axis=1))):
            seen[at] += is_slower(np.log(values[:runs]), np.log(values[runs:]))
    by_median, by_mean = seen / draws
    return float(by_median), float(by_mean)


def model_lines() -> Iterator[str]:
    yield "## Noise of other kinds"
    yield ""
    yield f"The percentage of pairs called changed, for no change / 2 % / 3 %: {DRAWS:,} pairs each; from"
    yield f"9 + 9 on {EQUAL:,} without a change, {DRAWS // 5} with one."
    yield "Runs differ by 1 % (normal); by 0.7 % times Student's t with 3 degrees of freedom; by 1 %, and one"
    yield "of ten is 10 % slow; by 0.5 %, and every second one is 3 % slow. Below 5 + 5 runs the test is"
    yield "Student's t, and one bad run of ten is not promised to be withstood."
    yield ""
    yield "| runs | " + " | ".join(INDEPENDENT) + " |"
    yield "|---:|" + "---:|" * len(INDEPENDENT)
    for runs in (3, 4, 5, 6, 7, 8, 9, 10, 12):
        cells = (cell_text(model, runs) for model in INDEPENDENT)
        yield f"| {runs} + {runs} | " + " | ".join(cells) + " |"


def cell_text(model: str, runs: int) -> str:
    """One cell of the table."""
    equal, moved = (DRAWS, DRAWS) if runs <= 8 else (EQUAL, DRAWS // 5)
    counts = {0.0: equal, 0.02: moved, 0.03: moved}
    return " / ".join(f"{100 * changed(model, runs, by, count):.1f}" for by, count in counts.items())


def changed(model: str, runs: int, by: float, count: int = DRAWS) -> float:
    """The share of pairs of equal size whose test rejects no change, where head is shifted."""
    chance = np.random.default_rng([SEED, [*INDEPENDENT].index(model), runs])
    drawn = INDEPENDENT[model](chance, max(DRAWS, count), 2 * runs)[:count]
    return sum(rejects(row[:runs], row[runs:] + by) for row in drawn) / count


def rejects(base: Floats, head: Floats) -> bool:
    """Whether the test of this size rejects; without its interval, which takes longer."""
    if has_enough_splits(len(base), len(head), 0.05):
        return p_value(np.sort(base), np.sort(head)) <= 0.05
    return tested(base.tolist(), head.tolist(), 0.05).p <= 0.05


OUTLIER = 0.10  # 10 σ of normal runs


def outlier_lines() -> Iterator[str]:
    yield "## Outliers"
    yield ""
    yield f"The percentage of {EQUAL:,} pairs of which a run is called far from the others: without an"
    yield f"outlier / one run slower by {percent(OUTLIER)} / one run faster by as much. Normal runs differ by"
    yield "1 %, so that this is 10 σ. A fast run must be 1.5 times as far, since bad runs are slow ones."
    yield ""
    models = ("normal", "t3", "bimodal")
    yield f"| runs | {' | '.join(models)} |"
    yield "|---:|" + "---:|" * len(models)
    for runs in range(3, 11):
        cells = (" / ".join(_outlier_cell(name, runs)) for name in models)
        yield f"| {runs} + {runs} | {' | '.join(cells)} |"


def _outlier_cell(model: str, runs: int) -> Iterator[str]:
    for by in (0.0, OUTLIER, -OUTLIER):
        yield f"{100 * far(model, runs, by):.1f}"


def far(model: str, runs: int, by: float, count: int = EQUAL) -> float:
    """The share of pairs with a notice that a run is far from the others, where the first run is moved."""
    chance = np.random.default_rng([SEED, [*INDEPENDENT].index(model), runs, 1])
    drawn = INDEPENDENT[model](chance, count, 2 * runs)
    drawn[:, 0] += by
    notices = (outlier_notices(row[:runs], row[runs:]) for row in drawn.tolist())
    return sum(any("is far from" in each for each in found) for found in notices) / count


def dependence_lines() -> Iterator[str]:
    yield "## Runs that depend on the run before"
    yield ""
    yield "The percentage of pairs with a warning of dependence, where base was run first, then head, and"
    yield f"where they alternate (in brackets): {EQUAL:,} pairs of independent runs, {DRAWS:,} of others."
    yield "AR(0.7): each run inherits 70 % of the deviation of the one before; day cycle: a sine of ±1 % over"
    yield "24 runs, plus 0.5 %."
    yield ""
    models = {**INDEPENDENT, **DEPENDENT}
    yield "| runs | " + " | ".join(models) + " |"
    yield "|---:|" + "---:|" * len(models)
    for runs in (8, 12, 20):
        cells = (_warned_cell(name, runs) for name in models)
        yield f"| {runs} + {runs} | " + " | ".join(cells) + " |"


def _warned_cell(model: str, runs: int) -> str:
    count = EQUAL if model in INDEPENDENT else DRAWS
    return f"{100 * warned(model, runs, False, count):.1f} ({100 * warned(model, runs, True, count):.1f})"


def warned(model: str, runs: int, alternate: bool = False, count: int = DRAWS) -> float:
    """The share of pairs in which dependence is reported."""
    models = {**INDEPENDENT, **DEPENDENT}
    order = [False, True] * runs if alternate else [False] * runs + [True] * runs
    chance = np.random.default_rng([SEED, [*models].index(model), runs, alternate])
    drawn = models[model](chance, count, 2 * runs)
    return sum(dependence_p(row, order) <= DEPENDENCE_LEVEL for row in drawn) / count


HISTORY = 50
DESIGNS = ((0, 1), (0, 3), (1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (12, 12))


def history_lines() -> Iterator[str]:
    yield "## With earlier runs"
    yield ""
    yield f"The percentage of 1,000 comparisons called changed with {HISTORY} earlier runs (60 for 12 + 12):"
    yield "no change / 2 % / 3 % / 5 %; base is run first and then head. With `baseline`, base is the earlier"
    yield "runs. A single run may be a bad run: with one of ten, the false alarms are these."
    yield ""
    models = {**INDEPENDENT, **DEPENDENT}
    yield "| runs | " + " | ".join(models) + " |"
    yield "|---|" + "---:|" * len(models)
    for base, head in DESIGNS:
        cells = (" / ".join(_history_cell(name, base, head)) for name in models)
        yield f"| {base or 'baseline'} + {head} | " + " | ".join(cells) + " |"


def _history_cell(model: str, base: int, head: int) -> Iterator[str]:
    for by in (0.0, 0.02, 0.03, 0.05):
        yield f"{100 * changed_from_history(model, base, head, by):.1f}"


def changed_from_history(model: str, base: int, head: int, by: float, count: int = DRAWS) -> float:
    """The share of comparisons called changed with earlier runs: by sign if head is shifted."""
    models = {**INDEPENDENT, **DEPENDENT}
    before = HISTORY if base < 12 else 60
    chance = np.random.default_rng([SEED, [*models].index(model), base, head])
    drawn = models[model](chance, count, before + base + head)
    places = tuple(range(before, before + base + head))
    found = 0
    for row in drawn:
        earlier = Earlier(tuple(np.exp(row[:before])), places[:base], places[base:], not base)
        test = with_history(row[before : before + base], row[before + base :] + by, earlier, 0.05)
        found += test.low > 0 or not by and test.high < 0
    return found / count


def needed_lines() -> Iterator[str]:
    spread = true_spread()
    yield "## Runs needed"
    yield ""
    yield f"Runs per side with which 80 % of the verdicts are correct (of {SCAN} pairs), the result of"
    yield f"`runs_needed` for the true standard deviation of the runs' medians ({percent(spread, 2)}), and"
    yield "the estimates from 3 + 3 and 5 + 5 runs (median of all pairs). For 0 % the correct verdict is"
    yield "*no change*."
    yield ""
    yield "| change | measured | for the true values | from 3 + 3 runs | from 5 + 5 runs |"
    yield "|---|---:|---:|---:|---:|"
    for shift in (0.0, *SHIFTS):
        numbers = (fewest(shift), from_truth(shift, spread), advised(shift, 3), advised(shift, 5))
        yield f"| {percent(shift)} | " + " | ".join(f"{number:.0f}" for number in numbers) + " |"


def from_truth(shift: float, spread: float) -> int:
    """Runs per side for a change of a known size and spread."""
    if shift:
        return runs_needed(spread, math.log1p(shift))
    return runs_needed(spread, math.log1p(LEAST), power=0.9)


def followed_lines() -> Iterator[str]:
    yield "## The suggested number of runs"
    yield ""
    yield f"Inconclusive pairs of {SCAN}: the median of the suggested total runs per side, and the share that"
    yield f"is conclusive with them (at most {MOST} runs). If most pairs are conclusive already, the others"
    yield "are the noisy ones, and need more."
    yield ""
    yield "| change | runs | inconclusive | suggested runs | then conclusive |"
    yield "|---|---:|---:|---:|---:|"
    for shift in (0.0, 0.01, 0.02, 0.03):
        for pilot in (3, 5):
            left, runs, part = followed(shift, pilot)
            yield f"| {percent(shift)} | {pilot} + {pilot} | {left} | {runs:.0f} | {part:.2f} |"


def percent(part: float, digits: int = 0) -> str:
    return f"{100 * part:.{digits}f} %"


def main() -> None:
    """Prints the study."""
    parser = argparse.ArgumentParser(prog="python -m stats.study", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace POWER.md")
    args, text = parser.parse_args(), []
    for line in lines():
        print(line, flush=True)
        text.append(line)
    if args.write:
        FILE.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
