"""Bounds of error rates and power, per kind of noise: small samples here, large ones behind `deep`.

Counts are compared with the 99 % bound of the rate that is promised; seeds are those of the study.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from conftest import deep
from stats.noise_models import INDEPENDENT, WAVES, Floats, Model, autoregressive, normal
from stats.study import changed, changed_from_history, warned
from tracewarehouse.stats.parts import part_changes
from tracewarehouse.stats.points import find_levels
from tracewarehouse.stats.suspicion import suspicion

SEED = 20_261_123
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


def series(model: Model, count: int, runs: int) -> Floats:
    """Series of positive values, each in a row."""
    return np.asarray(np.exp(model(np.random.default_rng([SEED, count, runs]), count, runs)))


def with_points(rows: Floats, min_effect: float = 0.01) -> float:
    """The share of series with any change point."""
    return sum(bool(find_levels(row, min_effect).points) for row in rows) / len(rows)


def trends(rows: Floats) -> float:
    """The share of series with a trend."""
    return sum(find_levels(row).trend is not None for row in rows) / len(rows)


@pytest.mark.parametrize("model", {**INDEPENDENT, **WAVES})
def test_noise_has_no_change_points(model: str) -> None:
    drawn = {**INDEPENDENT, **WAVES}[model]
    assert with_points(series(drawn, 40, 30)) <= most(0.01 if model in INDEPENDENT else 0.10, 40)


def test_a_ramp_is_a_trend_and_a_step_is_not() -> None:
    ramp = series(normal, 25, 60) * np.exp(np.linspace(0, 0.05, 60))
    step = series(normal, 25, 60) * np.where(np.arange(60) < 30, 1, 1.03)
    assert trends(ramp) >= least(0.90, 25) and with_points(ramp) <= most(0.10, 25)
    assert trends(step) <= most(0.03, 25) and with_points(step) >= 0.96


@pytest.mark.parametrize("size", [0.3, *deep(1.0)])
def test_a_steep_ramp_is_a_trend_and_a_large_step_is_not(size: float) -> None:
    ramp = series(normal, 10, 60) * np.exp(np.linspace(0, np.log1p(size), 60))
    step = series(normal, 10, 61) * np.where(np.arange(61) < 31, 1, 1 + size)
    assert trends(ramp) == 1 and with_points(ramp) == 0
    assert trends(step) == 0 and with_points(step) == 1


def ever_suspected(row: Floats, runs: int) -> bool:
    """Whether any of the runs after the 40th is suspected, as CI would see them one by one."""
    return any(suspicion(row[:end].tolist()) is not None for end in range(41, 41 + runs))


def suspected_within(rows: Floats, after: int) -> float:
    """The share of series suspected after some runs behind a rise at the 40th."""
    return sum(
        (found := suspicion(row[: 40 + after].tolist())) is not None and found.change > 0 for row in rows
    ) / len(rows)


def test_a_rise_is_suspected_before_it_is_certain() -> None:
    rows = series(normal, 100, 46) * np.where(np.arange(46) < 40, 1, 1.03)
    assert suspected_within(rows, 6) >= 0.85


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
def test_suspicions_without_a_change_are_rare(capsys: pytest.CaptureFixture[str]) -> None:
    def half(chance: np.random.Generator, rows: int, runs: int) -> Floats:
        return autoregressive(chance, rows, runs, 0.5)

    for name, model in (*INDEPENDENT.items(), ("AR(0.5)", half)):
        share = sum(ever_suspected(row, 60) for row in series(model, 200, 101)) / 200
        with capsys.disabled():
            print(f"\n{name}: {share:.3f} of 200 series are suspected in 60 runs")
