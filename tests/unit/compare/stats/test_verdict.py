"""Verdicts on step times: outcomes, samples, and their text."""

from __future__ import annotations

import math
import re
from random import Random
from statistics import fmean, median

import pytest

from tracewarehouse.compare.stats.two_sample import (
    more_runs,
    permutation,
    runs_needed,
    runs_to_conclude,
)
from tracewarehouse.compare.stats.two_sample import shift as shift_test
from tracewarehouse.compare.stats.verdict import StepTimes, Verdict, blocks, verdict
from tracewarehouse.errors import ParamError

NS = 103_100_000


def side(seed: int, runs: int, steps: int = 20, by: float = 1.0, spread: float = 0.003) -> StepTimes:
    random = Random(seed)
    factors = [by * math.exp(spread * random.gauss(0, 1)) for _ in range(runs)]
    return StepTimes(
        tuple(
            tuple(round(NS * factor * math.exp(0.01 * random.gauss(0, 1))) for _ in range(steps))
            for factor in factors
        )
    )


def flat(*times: int, steps: int = 4) -> StepTimes:
    return StepTimes(tuple((time,) * steps for time in times))


def test_the_line_has_both_medians() -> None:
    found = Verdict("slower", 103.1e6, 106.2e6, 0.03, 0.021, 0.039, 0.01, 1e8, 1.034e8, 0.034, "run")
    assert found.line() == "median step 103.1 → 106.2 ms, +3.0 % [2.1, 3.9], slower; mean +3.4 %"


@pytest.mark.parametrize(
    ("base", "head", "times"),
    [
        (1.5e9, 999e6, "1.500 → 0.999 s"),
        (99.9e6, 12.3456e6, "99.90 → 12.35 ms"),
        (812_300, 700_000, "812.3 → 700.0 µs"),
        (812, 700, "812 → 700 ns"),
        (30.0144e6, 1.02184e9, "30.01 ms → 1.022 s"),
    ],
)
def test_both_times_have_one_unit(base: float, head: float, times: str) -> None:
    found = Verdict("faster", base, head, -0.1, -0.2, -0.0001, 0.01, None, None, None, "run")
    assert found.line() == f"median step {times}, -10.0 % [-20.0, 0.0], faster"


def test_several_runs_are_compared_by_their_medians() -> None:
    base, head = side(1, 5), side(2, 5, by=1.03)
    found = verdict(base, head)
    logs = [[math.log(median(run)) for run in one.runs] for one in (base, head)]
    assert (found.word, found.sample) == ("slower", "run")
    assert found.change == found.head_median_ns / found.base_median_ns - 1  # type: ignore[operator]
    test = permutation(logs[0], logs[1], 0.05).relative()
    assert (found.low, found.high, found.test) == (test.low, test.high, "permutation")
    assert found.base_median_ns == median(median(run) for run in base.runs)
    assert found.mean_change == pytest.approx(fmean(head.times) / fmean(base.times) - 1)
    assert found.low is not None and found.high is not None and found.low < 0.03 < found.high
    assert verdict(head, base).word == "faster"


def test_one_slow_step_in_each_run_moves_the_mean_only() -> None:
    base = side(3, 5)
    head = StepTimes(tuple((run[0] * 4, *run[1:]) for run in base.runs))
    found = verdict(base, head)
    assert found.word == "usual step unchanged"
    assert found.mean_change == pytest.approx(0.15, abs=0.01)


def test_total_means_replace_those_of_the_steps() -> None:
    found = verdict(side(1, 5), side(2, 5), total_means=(2e6, 3e6))
    assert (found.base_mean_ns, found.head_mean_ns, found.mean_change) == (2e6, 3e6, 0.5)


def test_no_change_is_an_interval_within_min_effect() -> None:
    found = verdict(flat(1000, 1001, 1002, 1001), flat(1005, 1006, 1007, 1006))
    assert found.low is not None and found.low > 0  # seen, but too small to matter
    assert found.word == "no change"
    assert (
        verdict(flat(1000, 1001, 1002, 1001), flat(1005, 1006, 1007, 1006), min_effect=0.003).word == "slower"
    )


def test_runs_without_noise_are_conclusive() -> None:
    assert verdict(flat(10**6, 10**6), flat(10**6, 10**6)).line() == (
        "median step 1.000 → 1.000 ms, +0.00 % [0.00, 0.00], no change; mean +0.0 %"
    )
    for runs in (2, 3, 9):
        assert verdict(flat(*[10**6] * runs), flat(*[1_020_000] * runs)).word == "slower"


def test_too_much_noise_is_inconclusive_and_suggests_more_runs() -> None:
    found = verdict(side(1, 3, spread=0.02), side(2, 3, spread=0.02))
    assert (found.word, found.sample) == ("inconclusive", "run")
    assert found.needs_runs is not None and found.needs_runs > 3
    logs = [[math.log(median(run)) for run in side(seed, 3, spread=0.02).runs] for seed in (1, 2)]
    assert found.needs_runs == (runs_to_conclude(*logs, alpha=0.05, min_effect=0.01) or 0) - 3
    assert f"inconclusive (needs about {found.needs_runs} more runs per side); mean" in found.line()
    assert found.reason is not None


def test_few_steps_have_a_wider_interval() -> None:
    """From 20 steps on it is that of the test."""
    for steps, factor in ((5, 1.9), (19, 1.06), (20, 1.0)):
        base, head = side(1, 1, steps), side(2, 1, steps, by=1.05)
        found = verdict(base, head)
        logs = [
            [math.log(median(one.times[at] for at in block)) for block in blocks(one.times)]
            for one in (base, head)
        ]
        test = shift_test(logs[0], logs[1], 0.05)
        assert found.low == pytest.approx(math.expm1(test.estimate - factor * (test.estimate - test.low)))
        assert found.p == test.p or found.p > test.p and factor > 1


def test_one_run_per_side_is_within_run_only() -> None:
    found = verdict(side(1, 1), side(2, 1, by=1.05))
    assert (found.word, found.sample, found.needs_runs) == ("slower", "step", None)
    assert re.fullmatch(
        r"median step .* ms, \+4\.\d % \[.*\], mean \+.* %: this recording is slower; runs of one job vary by"
        r" 1–3 %, some by more: more runs show whether the change did this",
        found.line(),
    )
    assert (found.outcome, verdict(side(2, 5, by=1.05), side(1, 5)).outcome) == (
        "this recording is slower",
        "faster",
    )


@pytest.mark.parametrize(
    ("steps", "by", "said"),
    [
        (60, 1.2, "this recording is slower; runs of one job vary by 1–3 %, less than this difference"),
        (60, 0.8, "this recording is faster; runs of one job vary by 1–3 %, less than this difference"),
        (60, 0.93, "this recording is faster; runs of one job vary by 1–3 %, so"),
        (60, 1.0, "these recordings are alike; runs of one job vary by 1–3 %, so"),
        (6, 1.0, "inconclusive; runs of one job vary by 1–3 %, and these steps too much"),
        (3, 1.0, "inconclusive; runs of one job vary by 1–3 %, and these steps too much"),
    ],
)
def test_one_run_per_side_says_what_it_does_not_show(steps: int, by: float, said: str) -> None:
    base, head = side(1, 1, steps, spread=0), side(2, 1, steps, by, spread=0)
    assert f" %: {said}" in verdict(base, head).line()


def test_one_run_against_several_is_a_comparison_of_runs() -> None:
    several = side(2, 5, by=1.05)
    assert (verdict(side(1, 1), several).word, verdict(side(1, 1), several).sample) == ("slower", "run")
    assert verdict(side(1, 1), side(2, 2)).sample == "step"


def test_correlated_steps_are_few_blocks() -> None:
    """Two slow waves: hundreds of steps, but only a few independent values."""
    wave = [round(NS * (1 + 0.02 * math.sin(step / 40))) for step in range(400)]
    later = [round(NS * (1 + 0.02 * math.sin(step / 40 + 1))) for step in range(400)]
    assert verdict(StepTimes((tuple(wave),)), StepTimes((tuple(later),))).word == "inconclusive"
    ramp = StepTimes((tuple(2**step for step in range(14)),))
    found = verdict(ramp, ramp)
    assert (found.word, found.low, found.p) == ("inconclusive", None, None)
    assert found.change == 0


@pytest.mark.parametrize("pairs", [100, pytest.param(500, marks=pytest.mark.deep)])
def test_a_few_steps_whose_correlation_is_not_certain_have_an_interval(pairs: int) -> None:
    """Pairs of 5 to 10 independent steps; an autocorrelation of so few is noisy."""
    chance, changed = Random(20_261_123), 0
    for pair in range(pairs):
        drawn = ([chance.gauss(0, 0.01) for _ in range(5 + pair % 6)] for _ in range(2))
        found = verdict(*(StepTimes((tuple(round(NS * math.exp(each)) for each in row),)) for row in drawn))
        assert found.low is not None
        changed += found.word in ("slower", "faster")
    print(f"{changed} of {pairs}")
    assert changed <= 0.05 * pairs + 2.33 * math.sqrt(0.05 * pairs * 0.95)


@pytest.mark.parametrize("steps", [1, 2])
def test_fewer_than_three_steps_are_a_window(steps: int) -> None:
    found = verdict(flat(2_000_000, steps=steps), flat(3_000_000, steps=9))
    assert (found.word, found.sample, found.reason) == ("inconclusive", "window", "one sample per side")
    assert found.line() == "median step 2.000 → 3.000 ms, +50.0 % (not tested: one sample per side)"


def test_without_steps_the_reason_names_the_side() -> None:
    assert verdict(StepTimes(()), flat(5)).line() == "inconclusive: no complete step in base"
    assert verdict(flat(5), StepTimes(((), ()))).line() == "inconclusive: no complete step in head"
    assert verdict(StepTimes(()), StepTimes(())).line() == "inconclusive: no complete step in base and head"


def test_runs_without_steps_do_not_count() -> None:
    base = side(1, 4)
    assert verdict(StepTimes((*base.runs, ())), side(2, 4)) == verdict(base, side(2, 4))


def test_a_change_is_relative() -> None:
    base, head = side(1, 5), side(2, 5)
    longer = [StepTimes(tuple(tuple(time * 7 for time in run) for run in one.runs)) for one in (base, head)]
    one, other = verdict(base, head), verdict(*longer)
    assert (one.change, one.low, one.high, one.p) == pytest.approx(
        (other.change, other.low, other.high, other.p)
    )


def test_bad_input_is_an_error() -> None:
    with pytest.raises(ParamError, match="a step of 0 ns"):
        flat(5, 0)
    for bad in ({"alpha": 0.0}, {"alpha": 1.0}, {"min_effect": -0.1}):
        with pytest.raises(ParamError):
            verdict(flat(5), flat(5), **bad)


def test_runs_to_conclude_detect_the_observed_effect_or_exclude_min_effect() -> None:
    """With 3 + 3 values the variance is multiplied by 1.19, to remove its median bias."""
    base, spread = [0.0, 0.01, -0.01], 0.01 * math.sqrt((1 - 1 / 18) ** -3)
    for shift, expected in (
        (0.03, runs_needed(spread, 0.03)),
        (0.002, runs_needed(spread, math.log(1.01), power=0.9)),
        (0.0, runs_needed(spread, math.log(1.01), power=0.9)),
    ):
        head = [shift + value for value in base]
        assert runs_to_conclude(base, head, alpha=0.05, min_effect=0.01) == expected
    assert runs_to_conclude(base, [0.001 + value for value in base], alpha=0.05, min_effect=0) is None


def test_thousands_of_runs_are_not_suggested() -> None:
    found = verdict(side(1, 3, spread=0.5), side(1, 3, spread=0.5))
    assert (found.word, found.needs_runs) == ("inconclusive", None)
    assert found.line().partition("], ")[2].startswith("inconclusive; mean")


@pytest.mark.parametrize(
    ("have", "needed", "text"),
    [
        ((3, 3), 34, "31 more runs per side"),
        ((50, 1), 12, "6 more runs of head"),
        ((1, 50), 31, "22 more runs of base"),
        ((50, 1), 60, "10 more runs of base and 59 more runs of head"),
        ((5, 5), 5, "1 more run per side"),
    ],
)
def test_the_side_that_lacks_runs_is_named(have: tuple[int, int], needed: int, text: str) -> None:
    """6 + 1 runs against 50 are worth 12 per side: 2 / (1/50 + 1/7) = 12.3."""
    more = more_runs(have, needed)
    assert str(more) == text
    base, head = have[0] + more.base, have[1] + more.head
    assert 2 / (1 / base + 1 / head) >= needed


def test_one_stalled_step_of_eight_moves_neither_the_change_nor_the_interval() -> None:
    random = Random(5)
    base, head = ([round(1e6 * math.exp(0.01 * random.gauss(0, 1))) for _ in range(8)] for _ in range(2))
    head[4] *= 6
    found = verdict(StepTimes((tuple(base),)), StepTimes((tuple(head),)))
    assert found.change == median(head) / median(base) - 1
    assert found.low is not None and found.high is not None
    assert -0.03 < found.low <= found.change <= found.high < 0.05


@pytest.mark.parametrize("runs", [2, 5])
def test_the_change_is_that_of_the_printed_digits(runs: int) -> None:
    for seed in range(20):
        line = verdict(side(seed, runs, spread=0.02), side(seed + 99, runs, by=1.04, spread=0.02)).line()
        base, head, change = map(float, re.findall(r"[-+]?[0-9.]+", line)[:3])
        assert change == pytest.approx(100 * (head / base - 1), abs=0.16)


def test_few_runs_say_that_one_bad_run_may_decide() -> None:
    base, head = side(1, 3, spread=0.001), side(2, 3, spread=0.001)
    bad = StepTimes((tuple(2 * time for time in head.runs[0]), *head.runs[1:]))
    notice, *_ = verdict(base, head).notices
    assert notice == "with fewer than 5 + 5 runs one bad run may hide a change, or look like one"
    far, second, *_ = verdict(base, bad).notices
    assert re.fullmatch(r"one run of head is far from the others \(\+(99|100|101)\.\d %\)", far)
    assert second == notice


@pytest.mark.parametrize("runs", [5, 10, 21])
def test_from_five_runs_per_side_a_bad_run_is_named_and_withstood(runs: int) -> None:
    base, head = side(1, runs, spread=0.001), side(2, runs, spread=0.001)
    bad = StepTimes((tuple(2 * time for time in base.runs[0]), *base.runs[1:]))
    assert not any("bad run" in each or "far from" in each for each in verdict(base, head).notices)
    notices = verdict(bad, head).notices
    assert notices[0].startswith("one run of base is far from the others (+")
    assert not any("bad run" in each for each in notices)


def test_sides_that_do_not_alternate_are_reported() -> None:
    base, head = side(1, 5), side(2, 5)
    notice, *_ = verdict(base, head, order=[False] * 5 + [True] * 5).notices
    assert notice.startswith("base and head were not run alternately") and "cannot be seen" in notice
    assert not any("alternately" in each for each in verdict(base, head, order=[False, True] * 5).notices)
    assert verdict(base, head, order=()).notices[0].startswith("start times are unknown")
