"""Tests of many rows: moderated variances computed in another way, and rows that are absent or constant."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy

from tracewarehouse.compare.stats.many_series import (
    adjusted,
    inverse_trigamma,
    mean_squared_correlation,
    moderated_variances,
    residuals,
    row_tests,
    variance_prior,
)


def table(seed: int, count: int, units: int, own: float = 0.02, run: float = 0.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    together = run * random.standard_normal(units)
    return 1e6 * np.exp(own * random.standard_normal((count, units)) + together)


def test_inverse_trigamma() -> None:
    for x in (1e-4, 0.01, 0.5, 3.0, 1e4):
        assert inverse_trigamma(float(scipy.special.polygamma(1, x))) == pytest.approx(x, rel=1e-6)


@pytest.mark.parametrize(("own", "prior"), [(4, 3.0), (8, 10.0), (2, 40.0)])
def test_the_prior_is_recovered(own: int, prior: float) -> None:
    """Observed variances follow s0² F(own, prior); here its quantiles, so the test is deterministic."""
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    center, found = variance_prior(0.3 * scipy.stats.f.ppf(quantiles, own, prior), own)
    assert center == pytest.approx(0.3, rel=0.01)
    assert found == pytest.approx(prior, rel=0.05)


def test_variances_that_scatter_by_chance_only_have_one_value() -> None:
    quantiles = (np.arange(2_000) + 0.5) / 2_000
    center, found = variance_prior(scipy.stats.chi2.ppf(quantiles, 8) / 8, 6)
    assert math.isinf(found)
    assert center > 0


def test_a_moderated_variance_is_between_its_own_and_the_common_one() -> None:
    values = np.log(table(1, 300, 5)) * np.linspace(0.5, 3, 300)[:, None]
    own, found = values.var(axis=1, ddof=1), moderated_variances(values, 0.0)
    center, prior = variance_prior(own, 4)
    assert found.variance == pytest.approx((prior * center + 4 * own) / (prior + 4))
    assert found.freedom == pytest.approx(np.full(300, prior + 4))


def test_rows_that_vary_with_their_run_add_no_freedom() -> None:
    apart = np.log(table(1, 200, 6))
    shared = np.log(table(2, 200, 6, own=0.0005, run=0.02))
    assert mean_squared_correlation(residuals(apart)) == pytest.approx(1 / 5, abs=0.02)
    assert mean_squared_correlation(residuals(shared)) > 0.99
    assert moderated_variances(shared, mean_squared_correlation(residuals(shared))).freedom.max() < 5.1
    assert moderated_variances(apart, 0.0).freedom.min() > 50


def test_mean_squared_correlation_matches_numpy() -> None:
    values = np.log(table(3, 30, 7, run=0.02))
    square = np.corrcoef(values) ** 2
    assert mean_squared_correlation(residuals(values)) == pytest.approx((square.sum() - 30) / (30 * 29))


def test_few_rows_are_plain_welch_on_logs() -> None:
    left, right = table(1, 3, 5), 1.02 * table(2, 3, 6)
    for row, found in enumerate(row_tests(left, right, [0.3] * 3)):
        known = scipy.stats.ttest_ind(np.log(right[row]), np.log(left[row]), equal_var=False)
        interval = known.confidence_interval(0.95)
        assert found.p == pytest.approx(known.pvalue)
        assert found.low == pytest.approx(math.expm1(interval.low))
        assert found.high == pytest.approx(math.expm1(interval.high))


def test_q_is_that_of_benjamini_and_hochberg() -> None:
    found = row_tests(table(1, 12, 4), 1.01 * table(2, 12, 4), [0.05] * 12)
    p = sorted(one.p for one in found)
    by_hand = [min(p[other] * 12 / (other + 1) for other in range(place, 12)) for place in range(12)]
    assert sorted(one.q for one in found) == pytest.approx(by_hand)
    assert all(one.significant == (one.q <= 0.05) for one in found)


def test_small_rows_are_not_tested_and_do_not_count() -> None:
    left, right = table(1, 40, 5), table(2, 40, 5)
    right[0] *= 1.1
    shares = [0.1] * 10 + [0.0009] * 30
    found = row_tests(left, right, shares)
    assert [one.tested for one in found] == [True] * 10 + [False] * 30
    assert [one.significant for one in found[:10]] == [True] + [False] * 9
    assert found[:10] == row_tests(left[:10], right[:10], shares[:10])
    last = found[-1]
    assert (last.low, last.high, last.p, last.q, last.significant) == (None, None, None, None, False)
    assert last.change == pytest.approx(right[-1].mean() / left[-1].mean() - 1)


def test_rows_without_variance_have_p_0_or_1() -> None:
    found = row_tests([[5] * 3, [5] * 3, [7] * 3], [[5] * 3, [6] * 3, [7] * 3], [0.3] * 3)
    assert [one.p for one in found] == [1, 0, 1]
    assert (found[1].low, found[1].high) == pytest.approx((0.2, 0.2))
    assert [one.significant for one in found] == [False, True, False]


def test_a_row_without_variance_gets_the_moderated_one() -> None:
    left, right = table(1, 50, 5), table(2, 50, 5)
    left[0], right[0] = 1000, 1001
    found = row_tests(left, right, [0.02] * 50)[0]
    assert found.p is not None and 0.5 < found.p < 1
    assert found.low is not None and found.low < 0 < found.change


def test_added_and_removed_rows() -> None:
    new, gone = row_tests([[0] * 5, [3, 3.1, 3, 3, 3]], [[3, 3.1, 3, 3, 3], [0] * 5], [0.1, 0.1])
    assert (new.change, gone.change) == (math.inf, -1)
    assert new.p == gone.p and new.p is not None and new.p < 1e-4
    assert (new.low, new.high, new.significant, gone.significant) == (None, None, True, True)


def test_a_new_row_in_three_runs_may_be_chance() -> None:
    found = row_tests([[0] * 3], [[5, 5, 5]], [0.1])[0]
    assert found.p == pytest.approx(2 / math.comb(6, 3))
    assert not found.significant
    assert row_tests([[0] * 4], [[5, 5, 5, 5]], [0.1])[0].significant


def test_a_row_absent_from_some_samples_is_tested_on_its_values() -> None:
    left, right = [0.0, 2, 0, 3, 1], [4.0, 0, 6, 7, 5]
    found, known = row_tests([left], [right], [0.1])[0], scipy.stats.ttest_ind(right, left, equal_var=False)
    assert found.p == pytest.approx(known.pvalue)
    assert found.low == pytest.approx(known.confidence_interval(0.95).low / np.mean(left))
    assert found.change == pytest.approx(np.mean(right) / np.mean(left) - 1)


def test_one_sample_against_several_uses_their_variance() -> None:
    left, right = table(1, 3, 1), table(2, 3, 5)
    found = row_tests(left, right, [0.3] * 3)[0]
    logs = np.log(right[0])
    t = (logs.mean() - math.log(left[0, 0])) / (logs.std(ddof=1) * math.sqrt(6 / 5))
    assert found.p is not None and 0 < found.p < 1
    assert found.change == pytest.approx(math.expm1(logs.mean() - math.log(left[0, 0])))
    assert (t > 0) == (found.change > 0)


@pytest.mark.parametrize("units", [(0, 5), (1, 1), (1, 2)])
def test_too_few_samples_are_not_tested(units: tuple[int, int]) -> None:
    found = row_tests([[1.0] * units[0]] * 3, [[2.0] * units[1]] * 3, [0.3] * 3)
    assert [one.tested for one in found] == [False] * 3


def test_no_rows() -> None:
    assert row_tests([], [], []) == []
    assert not row_tests([[0] * 5], [[0] * 5], [1.0])[0].tested


@pytest.mark.parametrize("seed", range(5))
def test_adjusted_p_equals_that_of_scipy(seed: int) -> None:
    p = np.random.default_rng(seed).random(20 * seed + 1) ** 3
    p[: seed * 2] = p[0]  # ties
    assert adjusted(list(p)) == pytest.approx(list(scipy.stats.false_discovery_control(p)), rel=1e-12)


def test_no_p_is_adjusted_to_none() -> None:
    assert adjusted([]) == []
