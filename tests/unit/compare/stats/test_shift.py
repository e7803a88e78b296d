"""Shifts of two groups, compared with brute force and with scipy."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random
from statistics import fmean, median

import numpy as np
import pytest
import scipy
from msgspec.structs import replace

from tracewarehouse.compare.stats.two_sample import (
    mann_whitney,
    mann_whitney_cdf,
    permutation,
    runs_needed,
    shift,
    student_t,
)
from tracewarehouse.compare.stats.verdict import MAX_BLOCKS, blocks, lag1_autocorrelation


def draw(seed: int, base: int, head: int, by: float = 0.0) -> tuple[list[float], list[float]]:
    random = Random(seed)
    return [random.gauss(0, 1) for _ in range(base)], [random.gauss(by, 1) for _ in range(head)]


@pytest.mark.parametrize(("base", "head"), [(8, 8), (8, 13), (12, 12), (60, 70)])
@pytest.mark.parametrize("by", [0.0, 0.7, -3.0])
def test_ranks_agree_with_scipy(base: int, head: int, by: float) -> None:
    left, right = draw(base * head, base, head, by)
    method = "exact" if base * head < 2_500 else "asymptotic"
    found = mann_whitney(left, right, 0.05)
    assert found.p == pytest.approx(scipy.stats.mannwhitneyu(left, right, method=method).pvalue)
    assert found.estimate == pytest.approx(median(b - a for a in left for b in right))
    assert (found.p > 0.05) == (found.low <= 0 <= found.high)


@pytest.mark.parametrize(("base", "head"), [(4, 4), (3, 6), (5, 4)])
def test_tails_count_every_order(base: int, head: int) -> None:
    orders = [
        sum(1 for place in order for other in range(base + head) if other not in order and other < place)
        for order in combinations(range(base + head), base)
    ]
    expected = [sum(u <= least for u in orders) / len(orders) for least in range(base * head + 1)]
    assert mann_whitney_cdf(base, head).tolist() == pytest.approx(expected)


def test_the_interval_of_ranks_is_the_set_of_shifts_that_the_test_accepts() -> None:
    left, right = draw(3, 9, 8, 0.5)
    found = mann_whitney(left, right, 0.05)
    for by in (b - a for a in left for b in right):
        for aside in (by - 1e-9, by + 1e-9):
            p = scipy.stats.mannwhitneyu(left, [value - aside for value in right], method="exact").pvalue
            assert (p > 0.05) == (found.low < aside < found.high)


def test_ties_cause_no_false_alarm() -> None:
    same = [1.0, 2.0] * 5
    assert mann_whitney(same, same, 0.05).p == 1
    assert permutation(same, same, 0.05).p == 1
    constant = mann_whitney([1.0] * 10, [1.0] * 10, 0.05), student_t([1.0] * 3, [1.0] * 3, 0.05)
    assert constant[0] == replace(constant[1], method="Mann-Whitney")
    apart = mann_whitney([1.0] * 10, [1.5] * 10, 0.05)
    assert (apart.estimate, apart.low, apart.high) == (0.5, 0.5, 0.5)
    assert apart.p == pytest.approx(2 / math.comb(20, 10))


def test_student_agrees_with_scipy() -> None:
    left, right = draw(1, 3, 4, 2.0)
    found, known = student_t(left, right, 0.1), scipy.stats.ttest_ind(right, left)
    interval = known.confidence_interval(0.9)
    assert found.p == pytest.approx(known.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_student_accepts_one_value_against_several() -> None:
    """Crawford and Howell (1998): a single case against a sample."""
    left = [1.0, 2.0, 4.0, 3.0]
    found = student_t([9.0], left, 0.05)
    t = (fmean(left) - 9) / (scipy.stats.tstd(left) * math.sqrt(5 / 4))
    assert found.p == pytest.approx(2 * scipy.stats.t.sf(-t, 3))


def test_few_values_use_student_and_more_a_permutation_test() -> None:
    left, right = draw(2, 5, 5)
    assert shift(left, right, 0.05) == permutation(left, right, 0.05)
    assert shift(left[:4], right, 0.05) == student_t(left[:4], right, 0.05)  # 126 splits
    assert shift(left, right, 0.001) == student_t(left, right, 0.001)  # 252 splits do not reach it
    assert shift(left, right, 0.05) == shift(left[::-1], sorted(right), 0.05)


def by_definition(left: list[float], right: list[float]) -> float:
    """p of the better of means and ranks, from all splits one by one."""
    values = np.array([*left, *right])
    ranks, size = scipy.stats.rankdata(values), len(values)
    places = [list(head) for head in combinations(range(size), len(right))]
    extents = [
        [round(abs(each[head].sum() - len(head) * each.mean()), 9) for head in places]
        for each in (values, ranks)
    ]
    shares = [[np.mean([other >= one for other in each]) for one in each] for each in extents]
    best = np.min(shares, axis=0)
    return float(np.mean(best <= best[-1] + 1e-12))  # the last split is the observed one


@pytest.mark.parametrize(("base", "head"), [(5, 5), (4, 6)])
@pytest.mark.parametrize("digits", [9, 0])
def test_the_permutation_test_counts_all_splits(base: int, head: int, digits: int) -> None:
    left, right = draw(base * head + digits, base, head, 1.0)
    left, right = (
        sorted(round(value, digits) for value in left),
        sorted(round(value, digits) for value in right),
    )
    assert permutation(left, right, 0.05).p == pytest.approx(by_definition(left, right))


@pytest.mark.parametrize("by", [0.0, 1.0, 4.0])
def test_the_interval_of_permutations_is_where_the_test_rejects(by: float) -> None:
    for size in (5, 6, 12):
        left, right = draw(size, size, size, by)
        found = permutation(left, right, 0.05)
        assert (found.p > 0.05) == (found.low <= 0 <= found.high)
        assert found.low <= found.estimate <= found.high
        for end, outward in ((found.low, -1), (found.high, 1)):
            beyond = permutation(left, [value - end - outward * 0.01 for value in right], 0.05)
            within = permutation(left, [value - end + outward * 0.01 for value in right], 0.05)
            assert beyond.p <= 0.05 < within.p


def test_one_outlier_does_not_hide_a_change() -> None:
    left, right = draw(7, 7, 7, 4.0)
    left[3] += 100.0
    assert student_t(left, right, 0.05).p > 0.4
    assert permutation(left, right, 0.05).p <= 0.05


def autoregressive(by: float, count: int, seed: int) -> list[float]:
    random, values = Random(seed), [0.0]
    for _ in range(count):
        values.append(by * values[-1] + random.gauss(0, 1))
    return values[1:]


def test_blocks_contain_each_step_once() -> None:
    for count in (0, 1, 3, 10, 11, 4 * MAX_BLOCKS + 7):
        found = blocks(autoregressive(0.5, count, count))
        assert [step for block in found for step in block] == list(range(count))
        assert len(found) <= MAX_BLOCKS


def test_blocks_grow_with_the_correlation_of_adjacent_steps() -> None:
    lengths = [
        100 / fmean(len(blocks(autoregressive(by, 100, s))) for s in range(50)) for by in (0, 0.3, 0.6, 0.8)
    ]
    assert lengths[0] < 1.7
    assert lengths == sorted(lengths)
    values = autoregressive(0.6, 200, 1)
    near = lag1_autocorrelation(values) + (1 + 3 * lag1_autocorrelation(values)) / 200
    assert len(blocks(values)) == 200 // math.ceil(2 * (1 + near) / (1 - near))
    assert len(blocks([7] * 50)) == 50


def test_lag1_autocorrelation_uses_ranks() -> None:
    values = [3.0, 900.0, 5.0, 5.0, 1.0, 7.0]
    ranks = scipy.stats.rankdata(values) - 3.5
    assert lag1_autocorrelation(values) == pytest.approx(float(ranks[1:] @ ranks[:-1] / (ranks @ ranks)))


def test_runs_needed_are_those_of_the_noncentral_t() -> None:
    for ratio in (0.01, 0.2, 0.35, 0.5, 1.0, 2.0, 4.0):

        def power(count: int, ratio: float = ratio) -> float:
            free, edge = 2 * count - 2, scipy.stats.t.ppf(0.975, 2 * count - 2)
            center = math.sqrt(count / 2) / ratio
            return float(scipy.stats.nct.sf(edge, free, center) + scipy.stats.nct.cdf(-edge, free, center))

        exact = next(count for count in range(2, 500) if power(count) >= 0.8)
        assert runs_needed(ratio, 1.0) == runs_needed(ratio, -1.0) == exact


@pytest.mark.parametrize("factor", [1.0, 1.5, 1.9, 4.0])
def test_a_widened_interval_contains_zero_if_p_is_above_alpha(factor: float) -> None:
    chance = Random(4)
    for by in (0.0, 0.5, 1.0, 2.0, 4.0):
        base, head = ([chance.gauss(shift_by, 1) for _ in range(6)] for shift_by in (0.0, by))
        test = shift(base, head, 0.05)
        wide = test.widened(factor, 0.05)
        assert (wide.low <= 0 <= wide.high) == (wide.p > 0.05)
        assert wide.high - wide.low == pytest.approx(factor * (test.high - test.low))
        assert wide.estimate == test.estimate and wide.p >= test.p
