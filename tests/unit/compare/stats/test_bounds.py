"""Bounds of error rates and power, per kind of noise: small samples here, large ones behind `deep`.

Counts are compared with the 99 % bound of the rate that is promised; seeds are those of the study.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from conftest import deep
from stats.noise_models import INDEPENDENT, WAVES, normal
from stats.series_study import (
    BEFORE,
    LENGTHS,
    SEED,
    SERIES,
    WATCHED,
    changed_within,
    ever_failed,
    ramps,
    series,
    small_steps,
    trends,
    with_points,
)
from stats.study import OUTLIER, changed, changed_from_history, far, warned
from tracewarehouse.compare.stats.change_points import find_levels
from tracewarehouse.compare.stats.many_series import part_changes

FALSE = 0.065  # false alarms from 5 + 5 runs on


def most(rate: float, count: int) -> float:
    """The 99 % bound of a share whose true rate is this."""
    return rate + 2.33 * math.sqrt(rate * (1 - rate) / count)


def least(rate: float, count: int) -> float:
    """The same from below."""
    return rate - 2.33 * math.sqrt(rate * (1 - rate) / count)


@pytest.mark.parametrize("model", INDEPENDENT)
def test_five_runs_per_side_rarely_call_noise_a_change(model: str) -> None:
    assert changed(model, 5, 0.0, 400) <= most(FALSE, 400)


def test_one_bad_run_of_ten_does_not_hide_3_percent() -> None:
    assert changed("bad of ten", 5, 0.03, 400) >= least(0.57, 400)
    assert changed("bad of ten", 7, 0.03, 200) >= least(0.76, 200)


@pytest.mark.parametrize("runs", range(3, 11))
def test_a_run_far_from_the_others_is_named_and_noise_is_not(runs: int) -> None:
    for model in ("normal", "t3", "bimodal"):
        assert far(model, runs, 0.0) <= most(0.05, 2_000), model
    assert far("normal", runs, OUTLIER, 1_000) >= least(0.90 if runs > 3 else 0.48, 1_000)
    assert far("t3", runs, OUTLIER, 1_000) >= least(0.80 if runs > 3 else 0.50, 1_000)


def test_dependence_is_seen_and_independence_is_not() -> None:
    assert warned("AR(0.7)", 20, count=60) >= least(0.95, 60)
    assert warned("normal", 12, count=100) <= most(0.05, 100)


def test_one_run_against_fifty_earlier_ones() -> None:
    assert changed_from_history("normal", 0, 1, 0.0, 400) <= most(0.05, 400)
    assert changed_from_history("normal", 0, 1, 0.03, 400) >= least(0.75, 400)
    assert changed_from_history("normal", 0, 1, 0.05, 400) >= least(0.95, 400)
    assert changed_from_history("bad of ten", 0, 1, 0.0, 400) <= most(0.15, 400)
    assert changed_from_history("bad of ten", 0, 1, 0.05, 400) >= least(0.90, 400)


@pytest.mark.parametrize("model", ["AR(0.7)", "day cycle"])
def test_dependent_runs_with_history_rarely_raise_an_alarm(model: str) -> None:
    assert changed_from_history(model, 5, 5, 0.0, 200) <= most(0.10, 200)
    assert changed_from_history(model, 5, 5, 0.03, 200) >= least(0.70, 200)


def test_adjacent_runs_that_depend_on_each_other_are_compared_with_history() -> None:
    """One run of each side, one after the other: they share most of their deviation, which history shows.

    With a known spread and autocorrelation, 97 % of 3 % would be found: the deviation of the difference is
    1 % times the root of 2 (1 - 0.7).
    """
    for model in ("AR(0.7)", "day cycle"):
        assert changed_from_history(model, 1, 1, 0.0, 400) <= most(0.05, 400)
        assert changed_from_history(model, 1, 1, 0.03, 400) >= least(0.85, 400)
        assert changed_from_history(model, 1, 1, 0.05, 400) >= least(0.95, 400)


@pytest.mark.parametrize("model", {**INDEPENDENT, **WAVES})
def test_noise_has_no_change_points(model: str) -> None:
    drawn = {**INDEPENDENT, **WAVES}[model]
    assert with_points(series(drawn, 40, 30)) <= most(0.01 if model in INDEPENDENT else 0.10, 40)


def test_a_ramp_is_a_trend_and_a_step_is_not() -> None:
    ramp = ramps(0.05, 25, 60)
    step = series(normal, 25, 60) * np.where(np.arange(60) < 30, 1, 1.03)
    assert trends(ramp) >= least(0.90, 25) and with_points(ramp) <= most(0.10, 25)
    assert trends(step) <= most(0.03, 25) and with_points(step) >= 0.96


@pytest.mark.parametrize("size", [0.3, *deep(1.0)])
def test_a_steep_ramp_is_a_trend_and_a_large_step_is_not(size: float) -> None:
    ramp = ramps(size, 10, 60)
    step = series(normal, 10, 61) * np.where(np.arange(61) < 31, 1, 1 + size)
    assert trends(ramp) == 1 and with_points(ramp) == 0
    assert trends(step) == 0 and with_points(step) == 1


@pytest.mark.deep
@pytest.mark.parametrize("runs", [100, 300, 3_000])
@pytest.mark.parametrize("model", {**INDEPENDENT, **WAVES})
def test_noise_has_no_change_points_in_long_series(model: str, runs: int) -> None:
    drawn, count = {**INDEPENDENT, **WAVES}[model], max(20, 20_000 // runs)
    assert with_points(series(drawn, count, runs)) <= most(0.01 if model in INDEPENDENT else 0.10, count)


@pytest.mark.deep
def test_a_small_change_of_a_long_series_is_found() -> None:
    chance, rows = np.random.default_rng(SEED), series(normal, 100, 3_000)
    assert with_points(rows[:50], 0.001) <= most(0.01, 50)
    for row in rows:
        row[int(chance.uniform(600, 2_400)) :] *= 1.003
    assert with_points(rows, 0.001) >= least(0.80, 100)


@pytest.mark.deep
def test_many_series_and_long_ones_take_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """1,000 metrics of 500 runs in 10 CPU s, all at once in far less; 50,000 points in 20."""
    many, start = series(normal, 1_000, 500), time.process_time()
    assert with_points(many) <= 0.01
    levels, start = time.process_time() - start, time.process_time()
    assert not part_changes(many.tolist())
    at_once, start = time.process_time() - start, time.process_time()
    assert not find_levels(series(normal, 1, 50_000)[0], 0.01).points
    long = time.process_time() - start
    with capsys.disabled():
        print(f"\n1,000 x 500: {levels:.1f} s one by one, {at_once:.1f} s at once; 50,000: {long:.1f} s")
    assert levels < 10 and at_once < 10 and long < 20


@pytest.mark.deep
@pytest.mark.parametrize("runs", LENGTHS)
def test_a_ramp_of_5_percent_is_one_trend(runs: int) -> None:
    count = 12_000 // runs
    middle = series(normal, count, runs) * np.where(np.arange(runs) < runs // 2, 1, 1.03)
    assert trends(ramps(0.05, count, runs)) >= 0.90
    assert trends(middle) <= most(0.03, count)


@pytest.mark.deep
def test_small_changes_of_long_series_are_found() -> None:
    """A few of the smallest steps are reported as trends: nothing distinguishes them."""
    points = {size: with_points(small_steps(size, 3_000), 0.001) for size in (0.0, 0.002, 0.003)}
    print(points)
    assert points[0.0] == 0 and points[0.002] >= least(0.80, SERIES) and points[0.003] >= least(0.99, SERIES)
    found = [find_levels(row, 0.001) for row in small_steps(0.005, 400)]
    assert sum(bool(each.points or each.trend) for each in found) / SERIES >= least(0.80, SERIES)


@pytest.mark.deep
def test_a_job_fails_after_a_change_and_not_without() -> None:
    for model, share in (("normal", 0.01), ("t3", 0.01), ("bad of ten", 0.05)):
        assert ever_failed(series(INDEPENDENT[model], SERIES, BEFORE + WATCHED)) <= share
    rows = series(normal, SERIES, BEFORE + 10)
    assert changed_within(rows, 0.03, 6) >= least(0.85, SERIES)
    assert changed_within(rows, 0.03, 10) >= least(0.97, SERIES)
