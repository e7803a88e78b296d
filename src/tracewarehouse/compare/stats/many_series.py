"""Many rows or series at once: which changed by more than their noise, with control of false discoveries.

A row of two samples is tested by Welch's t with variances moderated over all rows, as in Smyth's `limma`. A
series of runs is tested by the scan of rank sums after Pettitt (1979); the distribution of its largest value
depends on the number of runs only, and is simulated. p is adjusted after Benjamini and Hochberg over all rows
or series.

The module needs numpy throughout: import it where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracewarehouse.compare.stats.change_points import MIN_RUNS, rank_scan
from tracewarehouse.compare.stats.two_sample import MIN_SAMPLES, ShiftTest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


_MIN_SHARE = 0.001  # of the step, from which a row is tested


class RowTest(Struct, frozen=True):
    """How one row changed: relative (inf for an added row, -1 for a removed one), with its interval.

    `q` is p adjusted after Benjamini and Hochberg: of all rows with q <= alpha, at most a share of alpha is
    there by chance. Rows that are not `tested` have no interval, p or q. Added and removed rows have no
    interval.
    """

    change: float
    low: float | None
    high: float | None
    p: float | None
    q: float | None
    significant: bool
    tested: bool


def row_tests(
    base: Sequence[Sequence[float]],
    head: Sequence[Sequence[float]],
    weights: Sequence[float],
    *,
    alpha: float = 0.05,
) -> list[RowTest]:
    """A test for each row, in the given order.

    `base` and `head` hold for each row its mean in each sample (a run, or a block of steps), 0 where the row
    is absent; `weights` its share of the step. Rows with a share of at least 0.1 % are tested if both sides
    together have four samples or more.

    Rows present in every sample: Welch's t on logarithms with the moderated variances of each side
    (`moderated_variances`). Rows absent from some: Welch's t on the values, with the row's own variance. For
    a row that one side lacks entirely, p is the probability of such a split of the samples where that exceeds
    alpha: three runs with a row and three without prove little.
    """
    if len(base) == 0:
        return []
    before, after = _table(base), _table(head)
    are_enough = min(before.shape[1], after.shape[1]) > 0 and before.shape[1] + after.shape[1] >= MIN_SAMPLES
    present = (before > 0).any(axis=1) | (after > 0).any(axis=1)
    tested = (np.asarray(weights, dtype=np.float64) >= _MIN_SHARE) & present & are_enough
    complete = tested & (before > 0).all(axis=1) & (after > 0).all(axis=1)
    tests = {
        **_welch_on_logs(before, after, complete, alpha),
        **_welch_on_values(before, after, tested & ~complete, alpha),
    }
    q_by_row = dict(zip(sorted(tests), adjusted([tests[row].p for row in sorted(tests)]), strict=True))
    return [
        _row_test(tests[row], q_by_row[row], alpha)
        if row in tests
        else RowTest(_mean_change(before[row], after[row]), None, None, None, None, False, False)
        for row in range(len(before))
    ]


def _row_test(test: ShiftTest, q: float, alpha: float) -> RowTest:
    has_interval = math.isfinite(test.low)
    low, high = (test.low, test.high) if has_interval else (None, None)
    return RowTest(test.estimate, low, high, test.p, q, q <= alpha, True)


def _table(values: Sequence[Sequence[float]]) -> Floats:
    table = np.asarray(values, dtype=np.float64)
    return table if table.ndim == 2 else table.reshape(len(values), -1)


def adjusted(p: Sequence[float]) -> list[float]:
    """p after Benjamini and Hochberg (1995), in the given order."""
    values = np.asarray(p, dtype=np.float64)
    order = values.argsort()
    share = np.arange(1, len(values) + 1) / max(len(values), 1)
    q_values = np.empty_like(values)
    q_values[order] = np.minimum.accumulate((values[order] / share)[::-1])[::-1]
    return [min(float(value), 1.0) for value in q_values]


def _welch_on_logs(left: Floats, right: Floats, rows: Mask, alpha: float) -> dict[int, ShiftTest]:
    """Moderated Welch tests of the rows that are present in every sample."""
    if not rows.any():
        return {}
    sides = (np.log(left[rows]), np.log(right[rows]))
    difference = _row_means(sides[1]) - _row_means(sides[0])
    likeness = mean_squared_correlation(np.hstack([residuals(side) for side in sides]))
    # A side of one sample is assumed to vary like the other.
    variances = _both(*(moderated_variances(side, likeness) if side.shape[1] > 1 else None for side in sides))
    low, high, p = _welch(difference, variances, (left.shape[1], right.shape[1]), alpha)
    relative = (np.expm1(np.minimum(value, 700)) for value in (difference, low, high))
    columns = zip(np.flatnonzero(rows), *relative, p, strict=True)
    return {
        int(row): ShiftTest(float(change), float(low), float(high), float(p), "moderated Welch")
        for row, change, low, high, p in columns
    }


def _both(base: Variances | None, head: Variances | None) -> tuple[Variances, Variances]:
    either = base or head
    assert either is not None  # both sides together have four samples or more
    return base or either, head or either


def _welch(
    difference: Floats, variances: tuple[Variances, Variances], counts: tuple[int, int], alpha: float
) -> tuple[Floats, Floats, Floats]:
    """Ends of the interval, and p; degrees of freedom by Satterthwaite. Without variance p is 0 or 1."""
    from scipy.special import stdtr, stdtrit

    squared_errors = [side.variance / count for side, count in zip(variances, counts, strict=True)]
    error = np.sqrt(squared_errors[0] + squared_errors[1])
    is_exact = error == 0
    divisor = sum(part**2 / side.freedom for part, side in zip(squared_errors, variances, strict=True))
    freedom = np.where(is_exact, 1.0, error**4) / np.where(is_exact, 1.0, divisor)
    reach = stdtrit(freedom, 1 - alpha / 2) * error
    p = 2 * stdtr(freedom, -np.abs(difference) / np.where(is_exact, 1.0, error))
    exact_p = np.where(difference == 0, 1.0, 0.0)
    return difference - reach, difference + reach, np.where(is_exact, exact_p, p)


def _welch_on_values(left: Floats, right: Floats, rows: Mask, alpha: float) -> dict[int, ShiftTest]:
    """Welch tests of the values, scaled by their maximum, for rows that are absent from some samples."""
    tests = {}
    for row in rows.nonzero()[0]:
        scale = max(left[row].max(), right[row].max())
        tests[int(row)] = _welch_on_row(left[row] / scale, right[row] / scale, alpha)
    return tests


def _welch_on_row(left: Floats, right: Floats, alpha: float) -> ShiftTest:
    difference = right.mean(keepdims=True) - left.mean(keepdims=True)
    variances = _both(_own_variance(left), _own_variance(right))
    counts = (len(left), len(right))
    low, high, p = (float(value[0]) for value in _welch(difference, variances, counts, alpha))
    change, mean = _mean_change(left, right), float(left.mean())
    if left.any() and right.any():
        return ShiftTest(change, low / mean, high / mean, p, "Welch")
    chance = 2 / math.comb(len(left) + len(right), len(left))
    return ShiftTest(change, -math.inf, math.inf, chance if chance > alpha else p, "Welch")


def _own_variance(side: Floats) -> Variances | None:
    if len(side) < 2:
        return None
    return Variances(side.var(ddof=1, keepdims=True), np.array([len(side) - 1.0]))


def _mean_change(left: Floats, right: Floats) -> float:
    """The relative change of the mean."""
    base, head = (float(side.mean()) if side.size else 0.0 for side in (left, right))
    if not base:
        return math.inf if head else 0.0
    return head / base - 1


def _row_means(side: Floats) -> Floats:
    """The mean of each row, exact if all values of the row are equal."""
    means: Floats = side[:, 0] + (side - side[:, :1]).mean(axis=1)
    return means


MIN_VARYING_ROWS = 5  # with fewer, how variances scatter is unknown


class Variances(Struct, frozen=True):
    """The variance of each row between samples, and its degrees of freedom."""

    variance: Floats
    freedom: Floats


def moderated_variances(values: Floats, likeness: float) -> Variances:
    """The moderated variance of each row of `values` (rows by samples, two samples or more).

    No row gets more degrees of freedom than all rows have together, as in Smyth's `limma`. Rows of one run
    vary together: with a mean squared correlation of `likeness`, n rows count as n / (1 + (n - 1) likeness).
    Rows that do not vary are not part of the estimate, and are shrunk towards it.
    """
    own_freedom = values.shape[1] - 1
    observed = (residuals(values) ** 2).sum(axis=1) / own_freedom
    varying = int((observed > 0).sum())
    if varying < MIN_VARYING_ROWS:
        return Variances(observed, np.full(len(observed), float(own_freedom)))
    center, prior = variance_prior(observed[observed > 0], own_freedom)
    if math.isinf(prior):
        variance = np.full(len(observed), center)
    else:
        variance = (prior * center + own_freedom * observed) / (prior + own_freedom)
    together = own_freedom * varying / (1 + (varying - 1) * likeness)
    return Variances(variance, np.full(len(observed), min(prior + own_freedom, together)))


def residuals(values: Floats) -> Floats:
    """Each row minus its mean; exactly 0 if all values of the row are equal."""
    deviations: Floats = values - values[:, :1]
    deviations -= deviations.mean(axis=1, keepdims=True)
    return deviations


def mean_squared_correlation(deviations: Floats) -> float:
    """The mean squared correlation of two rows, from their residuals; 1 for a single row.

    The variances of rows with correlation r have correlation r². With few samples the estimate is too large
    (1 / d for independent rows of d degrees of freedom), which errs to the safe side.
    """
    size = np.sqrt((deviations**2).sum(axis=1, keepdims=True))
    scaled = (deviations / np.where(size > 0, size, 1.0))[size[:, 0] > 0]
    count = len(scaled)
    if count < 2:
        return 1.0
    squares = float(((scaled.T @ scaled) ** 2).sum())  # over all pairs, without a table of rows by rows
    return (squares - count) / (count * (count - 1))


def variance_prior(variances: Floats, own: int) -> tuple[float, float]:
    """s0² and d0 by moments of logs; d0 is inf if variances scatter no more than by chance."""
    from scipy.special import digamma, zeta

    logs = np.log(variances) - digamma(own / 2) + math.log(own / 2)
    center = float(logs.mean())
    excess = float(logs.var(ddof=1) - zeta(2, own / 2))
    if excess <= 0:
        return math.exp(center), math.inf
    prior = 2 * inverse_trigamma(excess)
    return math.exp(center + float(digamma(prior / 2)) - math.log(prior / 2)), prior


def inverse_trigamma(value: float) -> float:
    """The x whose trigamma is `value` > 0, by Newton's method as in Smyth's appendix."""
    from scipy.special import zeta

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(zeta(2, x))
        step = trigamma * (1 - trigamma / value) / (-2 * float(zeta(3, x)))
        x += step
        if -step / x < 1e-10:
            break
    return x


_EDGE = 3  # runs on either side of a change
_DRAWS = 4_000
_SEED = 20_261_123
_ALPHA = 0.05  # share of the changes that are there by chance
_TAIL = 0.01  # below this p, the tail of a normal distribution continues the simulated one


class PartChange(Struct, frozen=True):
    """A series, by its index, that changes from the run at index `at` on: its medians before and after."""

    part: int
    at: int
    before: float
    after: float
    q: float


def part_changes(series: Sequence[Sequence[float]]) -> list[PartChange]:
    """The series that change, of all with the same runs in time order; the smallest q first.

    At most 5 % of them are there by chance, for runs that do not depend on each other.
    """
    scans = [rank_scan(np.asarray(values, dtype=np.float64), _EDGE) for values in series]
    scanned = [(part, scan) for part, scan in enumerate(scans) if scan is not None]
    if not scanned:
        return []
    q_values = adjusted([scan_p(scan.deviations, len(series[part])) for part, scan in scanned])
    changes = []
    for (part, scan), q in zip(scanned, q_values, strict=True):
        if q <= _ALPHA:
            values = np.asarray(series[part], dtype=np.float64)
            sides = float(np.median(values[: scan.index])), float(np.median(values[scan.index :]))
            changes.append(PartChange(part, scan.index, *sides, q))
    return sorted(changes, key=lambda each: each.q)


def run_factors(series: Sequence[Sequence[float]]) -> list[float]:
    """What most of the series have in common in each run, as a factor around 1.

    The weighted median of value over median, weighted by the median: series that are less than half of the
    sum do not move it.
    """
    values = np.asarray(series, dtype=np.float64)
    usual = np.median(values, axis=1) if len(values) else np.zeros(0)
    if not usual.any():
        return [1.0] * (values.shape[1] if values.ndim == 2 else 0)
    ratios, weights = values[usual > 0] / usual[usual > 0, None], usual[usual > 0]
    order = np.argsort(ratios, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0)
    middle = (reached < weights.sum() / 2).sum(axis=0)
    factors = np.take_along_axis(ratios, np.take_along_axis(order, middle[None, :], axis=0), axis=0)[0]
    return [float(factor) or 1.0 for factor in factors]


def scan_p(deviations: float, runs: int) -> float:
    """P(the largest rank sum of this many runs without a change has at least these deviations)."""
    null = _null(runs)
    beyond = int((null >= deviations).sum())
    if beyond >= _TAIL * len(null):
        return (1 + beyond) / (len(null) + 1)
    edge = float(null[-int(_TAIL * len(null))])
    return _TAIL * deviations / edge * math.exp((edge**2 - deviations**2) / 2)


@lru_cache(maxsize=16)
def _null(runs: int) -> Floats:
    """Largest deviations of random orders, in ascending order."""
    if runs < MIN_RUNS:
        return np.zeros(0)
    chance = np.random.default_rng([_SEED, runs])
    before = np.arange(_EDGE, runs - _EDGE + 1)
    expected = before * (runs + 1) / 2
    deviation = np.sqrt(before * (runs - before) * (runs + 1) / 12)
    largest = []
    for _ in range(_DRAWS // 100):
        ranks = chance.random((100, runs)).argsort(axis=1) + 1.0
        sums = ranks.cumsum(axis=1)[:, before - 1]
        largest.append((np.abs(sums - expected) / deviation).max(axis=1))
    return np.sort(np.concatenate(largest))
