"""Two samples: the location shift with its interval, and how many runs a comparison needs.

The test is selected by sample size. From 5 + 5 values on it is a permutation test of the better of means and
ranks, above 20 + 20 of ranks alone: one value that is far off neither hides a change nor looks like one.
Below that, the smallest p that permutations can reach is coarse, and Student's t has more power: see
tests/unit/compare/stats/POWER.md.

Means have more power for normal values, ranks for values with outliers. The permutation test computes both
statistics for every split of all values into two sides of the given sizes; each split gets, for each
statistic, the share of splits that are at least as extreme, and its combined statistic is the smaller of the
two shares. p is the share of splits whose combined statistic is at most that of the observed split, which is
exact for exchangeable values. The means are equivalent to Student's t here: with the same values in total,
one grows with the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


MIN_SPLITS = 200  # fewer are too coarse: 5 + 5 values have 252, 4 + 4 have 70
MAX_SPLITS = 20_000  # beyond that, splits are drawn; 8 + 8 values have 12,870
DRAWN_SPLITS = 10_000
MAX_SIDE = 20  # beyond that on both sides, ranks alone are as good and take no time
_SEED = 20_260_504
_TIE = 1e-9  # sums that differ by less, relative to the largest value, are equal
_HALVINGS = 14  # of the distance from the estimate to the largest possible shift


def has_enough_splits(base: int, head: int, alpha: float) -> bool:
    """Whether the test applies to sides of these sizes and can reject at this level."""
    number = math.comb(base + head, base)
    number = number if number <= MAX_SPLITS else DRAWN_SPLITS
    return min(base, head) <= MAX_SIDE and number >= MIN_SPLITS and 2 / number <= alpha


@lru_cache(maxsize=64)
def splits(base: int, head: int) -> Floats:
    """A row per split, with 1 for the values of head; columns are base, then head. The first is observed.

    All splits if there are at most `MAX_SPLITS`, else random ones. Mirrored splits of equal sides have the
    same statistics, so that one of each pair is listed.
    """
    import numpy as np

    size = base + head
    if math.comb(size, base) <= MAX_SPLITS:
        rest = combinations(range(size), base)
        rows = [row for row in rest if base != head or row[0] == 0]
        table = np.ones((len(rows), size))
        table[np.arange(len(rows))[:, None], np.array(rows)] = 0
        return table
    chance = np.random.default_rng([_SEED, base, head])
    order = chance.random((DRAWN_SPLITS, size)).argsort(axis=1)
    table = np.where(order < head, 1.0, 0.0)
    table[0] = [0.0] * base + [1.0] * head
    return table


def p_value(base: Floats, head: Floats) -> float:
    """p of the observed split of two samples."""
    import numpy as np

    values = np.concatenate([base, head])
    centered = np.stack([each - each.mean() for each in (values, midranks(values))], axis=1)
    table = splits(len(base), len(head))
    extent = np.abs(table @ centered)
    ties = _TIE * np.abs(centered).max(axis=0)
    at_least = (extent >= extent[0] - ties).sum(axis=0)
    count = len(table)
    fewest = int(at_least.min())
    if fewest == count:
        return 1.0
    # A split is at least as extreme in one statistic if fewer than `fewest` + 1 splits reach its value there.
    edges = np.partition(extent, count - fewest - 1, axis=0)[count - fewest - 1]
    return float((extent > edges + ties).any(axis=1).sum()) / count


def midranks(values: Floats) -> Floats:
    """The rank of each value, from 1; equal values have the mean of their ranks."""
    import numpy as np

    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[index])


def interval(base: Floats, head: Floats, estimate: float, alpha: float, p: float) -> tuple[float, float]:
    """The shifts that the test does not reject, and the estimate; it contains 0 exactly if `p` > alpha."""
    import numpy as np

    differences = np.subtract.outer(head, base)
    ends = float(differences.min()), float(differences.max())

    def rejected(by: float) -> bool:
        return p_value(base, head - by) <= alpha

    low, high = (_edge(rejected, estimate, end) for end in ends)
    if p > alpha:
        return min(low, 0.0), max(high, 0.0)
    if low <= 0 <= high:  # the accepted shifts need not be one interval; 0 is rejected, so it ends before
        beside = math.ulp(max(map(abs, ends)))
        return (beside, max(high, beside)) if estimate > 0 else (min(low, -beside), -beside)
    return low, high


def _edge(rejected: Callable[[float], bool], inside: float, end: float) -> float:
    """Where shifts become rejected between one that is accepted and the largest possible one."""
    if end == inside or not rejected(end):
        return end
    for _ in range(_HALVINGS):
        middle = (inside + end) / 2
        inside, end = (inside, middle) if rejected(middle) else (middle, end)
    return end


MIN_SAMPLES = 4  # values on both sides together; fewer do not show their spread
MAX_EXACT_PAIRS = 2_500  # pairs of values up to which the distribution of U is counted exactly


class ShiftTest(Struct, frozen=True):
    """The shift from base to head with its interval, which contains 0 if p > alpha.

    An interval from -inf to inf is unknown.
    """

    estimate: float
    low: float
    high: float
    p: float
    method: str

    def relative(self) -> ShiftTest:
        """A shift of logarithms as a relative change: 0.03 is +3 %."""
        logarithms = self.estimate, self.low, self.high
        estimate, low, high = (math.expm1(each) if each < 700 else math.inf for each in logarithms)
        return replace(self, estimate=estimate, low=low, high=high)

    def widened(self, factor: float, alpha: float) -> ShiftTest:
        """The same test with an interval that is longer by a factor, and the p of a normal value."""
        low, high = (self.estimate + factor * (end - self.estimate) for end in (self.low, self.high))
        to_zero = abs(self.estimate - (low if self.estimate > 0 else high))
        if not 0 < to_zero < math.inf:
            return self
        distance = abs(self.estimate) / to_zero * NormalDist().inv_cdf(alpha / 2)
        return replace(self, low=low, high=high, p=max(self.p, 2 * NormalDist().cdf(distance)))

    def around(self, estimate: float) -> ShiftTest:
        """The same test for another estimate, whose interval contains it: of the values that are printed."""
        return replace(self, estimate=estimate, low=min(self.low, estimate), high=max(self.high, estimate))


def shift(base: Sequence[float], head: Sequence[float], alpha: float) -> ShiftTest:
    """The shift from base to head with an interval of confidence 1 - alpha; needs four values or more."""
    if has_enough_splits(len(base), len(head), alpha):
        return permutation(base, head, alpha)
    if min(len(base), len(head)) > MAX_SIDE and orders_that_reject(len(base), len(head), alpha):
        return mann_whitney(base, head, alpha)
    return student_t(base, head, alpha)


def relative_shift(base: Sequence[float], head: Sequence[float], alpha: float) -> ShiftTest:
    """The relative change from base to head, tested on logarithms; needs four values or more, all above 0."""
    logs = [[math.log(value) for value in side] for side in (base, head)]
    return shift(logs[0], logs[1], alpha).relative()


def permutation(base: Sequence[float], head: Sequence[float], alpha: float) -> ShiftTest:
    """The estimate of Hodges and Lehmann (1963); p of the better of means and ranks over all splits.

    The order of the values within a side does not matter.
    """
    import numpy as np

    left, right = (np.sort(np.asarray(side, dtype=np.float64)) for side in (base, head))
    estimate, p = float(np.median(np.subtract.outer(right, left))), p_value(left, right)
    low, high = interval(left, right, estimate, alpha, p)
    return ShiftTest(estimate, low, high, p, "permutation")


def mann_whitney(base: Sequence[float], head: Sequence[float], alpha: float) -> ShiftTest:
    """The estimate of Hodges and Lehmann (1963), the median of all differences; p of Mann and Whitney.

    A difference of exactly 0 counts against a shift, so that ties make the interval wider, never narrower.
    """
    import numpy as np

    differences = np.subtract.outer(np.asarray(head), np.asarray(base)).ravel()
    cut = orders_that_reject(len(base), len(head), alpha)
    against = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p = min(1.0, 2 * _tail(len(base), len(head), against))
    ends = cut - 1, len(differences) - cut
    low, high = (float(end) for end in np.partition(differences, ends)[list(ends)])
    return ShiftTest(float(np.median(differences)), low, high, p, "Mann-Whitney")


def orders_that_reject(base: int, head: int, alpha: float) -> int:
    """How many values of U, from 0 on, reject at this level; U counts the pairs in which head is below base.

    0 if there are too few values to reject at all.
    """
    if base * head <= MAX_EXACT_PAIRS:
        return int((2 * mann_whitney_cdf(base, head) <= alpha).sum())
    edge = base * head / 2 - 0.5 + NormalDist().inv_cdf(alpha / 2) * _deviation(base, head)
    return max(math.floor(edge) + 1, 0)


def _tail(base: int, head: int, most: int) -> float:
    """P(U <= most) if nothing changed."""
    if base * head <= MAX_EXACT_PAIRS:
        return float(mann_whitney_cdf(base, head)[most])
    z = (most + 0.5 - base * head / 2) / _deviation(base, head)
    return math.erfc(-z / math.sqrt(2)) / 2  # also of the far tail, where `cdf` of NormalDist is inexact


def _deviation(base: int, head: int) -> float:
    """The standard deviation of U if nothing changed."""
    return math.sqrt(base * head * (base + head + 1) / 12)


@lru_cache(maxsize=64)
def mann_whitney_cdf(base: int, head: int) -> Floats:
    """P(U <= u) for u = 0, 1, … if nothing changed, by counting all orders."""
    import numpy as np

    counts = np.array([float(count) for count in _order_counts(base, head)])
    return np.asarray(np.cumsum(counts) / counts.sum())


def _order_counts(base: int, head: int) -> list[int]:
    """The number of orders of base and head values for each U: coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (base * head)
    for factor in range(1, base + 1):
        for power in range(base * head, head + factor - 1, -1):
            counts[power] -= counts[power - head - factor]
        for power in range(factor, base * head + 1):
            counts[power] += counts[power - factor]
    return counts


def student_t(base: Sequence[float], head: Sequence[float], alpha: float) -> ShiftTest:
    """The difference of means with Student's t; both share one variance, so one may be a single value."""
    estimate = _mean(head) - _mean(base)
    standard_error = pooled_deviation(base, head) * math.sqrt(1 / len(base) + 1 / len(head))
    p, reach = p_and_reach(estimate, standard_error, len(base) + len(head) - 2, alpha)
    return ShiftTest(estimate, estimate - reach, estimate + reach, p, "Student's t")


def p_and_reach(estimate: float, standard_error: float, freedom: float, alpha: float) -> tuple[float, float]:
    """p of Student's t, and half the interval; without a standard error p is 0 or 1."""
    from scipy.special import stdtr, stdtrit

    p = 2 * float(stdtr(freedom, -abs(estimate) / standard_error)) if standard_error else float(estimate == 0)
    return p, float(stdtrit(freedom, 1 - alpha / 2)) * standard_error


def pooled_deviation(base: Sequence[float], head: Sequence[float]) -> float:
    """The standard deviation within both groups together."""
    means = [(side, _mean(side)) for side in (base, head)]
    squares = sum((value - mean) ** 2 for side, mean in means for value in side)
    return math.sqrt(squares / (len(base) + len(head) - 2))


def _mean(values: Sequence[float]) -> float:
    """The mean, exact if all values are equal."""
    first = values[0]
    return first + math.fsum(value - first for value in values) / len(values)


MIN_RUNS = 2
MAX_RESOLUTION = 10  # the run-to-run deviation over the effect; a smaller effect takes thousands of runs
CERTAIN = 12.0  # distance in standard errors above which the power is 1 without computing it


def runs_needed(deviation: float, effect: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs per side that detect an effect with this power; both numbers are of logs of runs' medians.

    The smallest number for which Student's t has the power, by the noncentral t, searched from the
    approximation of Guenther (1981). The effect must not be 0.
    """
    side, detection = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    approximate = 2 * ((side + detection) * deviation / effect) ** 2 + side**2 / 4
    runs = max(MIN_RUNS, math.floor(approximate) - 1)
    ratio = abs(effect) / deviation if deviation else math.inf
    while power_at(ratio * math.sqrt(runs / 2), 1.0, 2 * runs - 2, alpha=alpha) < power:
        runs += 1
    return runs


def runs_to_conclude(
    base: Sequence[float], head: Sequence[float], *, alpha: float, min_effect: float
) -> int | None:
    """Runs per side, in total, for a conclusion with a power of 0.8, from logs of runs' medians.

    They detect an effect of the observed size or, if that is below min_effect, exclude one of min_effect: if
    nothing changed, as many as detect it with a power of 0.9, since either end of the interval may fail. A
    deviation from few runs is more often too small than too large, so its median bias is removed (Wilson and
    Hilferty 1931). None if it takes thousands.
    """
    freedom = len(base) + len(head) - 2
    deviation = pooled_deviation(base, head) / (1 - 2 / (9 * freedom)) ** 1.5
    observed, smallest = abs(fmean(head) - fmean(base)), math.log1p(min_effect)
    power, effect = (0.8, observed) if observed > smallest else (0.9, smallest)
    if effect <= deviation / MAX_RESOLUTION:
        return None
    return runs_needed(deviation, effect, alpha=alpha, power=power)


class MoreRuns(Struct, frozen=True):
    """Runs to add to each side for a conclusion."""

    base: int
    head: int

    def __str__(self) -> str:
        if self.base == self.head:
            return f"{_runs(self.base)} per side"
        sides = (("base", self.base), ("head", self.head))
        named = [f"{_runs(count)} of {name}" for name, count in sides if count]
        return " and ".join(named)


def _runs(count: int) -> str:
    return "1 more run" if count == 1 else f"{count:,} more runs"


def more_runs(have: tuple[int, int], needed: int) -> MoreRuns:
    """The runs to add so that the sides are worth `needed` runs per side: first to the side that has fewer.

    Sides of b and h runs are worth 2 / (1/b + 1/h) runs each.
    """
    base, head = have
    many = max(have)
    room = 2 / needed - 1 / many
    wanted = max(needed, many)
    if room > 0:
        wanted = min(wanted, math.ceil(1 / room - 1e-9))
    add = MoreRuns(max(wanted - base, 0), max(wanted - head, 0))
    return add if add.base or add.head else MoreRuns(int(base <= head), int(head <= base))


def smallest_detected(error: float, freedom: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The change beyond a bound that a test with this standard error detects with this power."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, power)) * error


def power_at(change: float, error: float, freedom: float, *, alpha: float = 0.05) -> float:
    """The probability that a change this far beyond a bound is detected, by the noncentral t."""
    from scipy.special import nctdtr, stdtrit

    if not error:
        return float(change > 0)
    critical = float(stdtrit(freedom, 1 - alpha / 2))
    if change / error > critical + CERTAIN * math.sqrt(1 + critical):
        return 1.0
    return 1 - float(nctdtr(freedom, change / error, critical))
