"""Two-sample location shift: estimate, confidence interval and p-value.

Selected by sample size. From 5 + 5 values on, a permutation test of the better of means and ranks
(`permutation.py`), and above 20 + 20 ranks alone: one value that is far off neither hides a change nor
looks like one. Below that, the smallest p that permutations can reach is coarse, and Student's t has more
power: see tests/stats/POWER.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tracewarehouse.compare.stats.permutation import MAX_SIDE, has_enough_splits, interval, p_value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


MIN_SAMPLES = 4  # values on both sides together; fewer do not show their spread
MAX_EXACT_PAIRS = 2_500  # pairs of values up to which the distribution of U is counted exactly


@dataclass(frozen=True)
class ShiftTest:
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
        estimate, low, high = (_relative(value) for value in (self.estimate, self.low, self.high))
        return replace(self, estimate=estimate, low=low, high=high)

    def around(self, estimate: float) -> ShiftTest:
        """The same test for another estimate, whose interval contains it: of the values that are printed."""
        return replace(self, estimate=estimate, low=min(self.low, estimate), high=max(self.high, estimate))


def _relative(difference: float) -> float:
    return math.expm1(difference) if difference < 700 else math.inf


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
    from scipy.special import ndtri  # late: importing takes longer than counting small samples

    edge = base * head / 2 - 0.5 + float(ndtri(alpha / 2)) * _deviation(base, head)
    return max(math.floor(edge) + 1, 0)


def _tail(base: int, head: int, most: int) -> float:
    """P(U <= most) if nothing changed."""
    if base * head <= MAX_EXACT_PAIRS:
        return float(mann_whitney_cdf(base, head)[most])
    from scipy.special import ndtr

    return float(ndtr((most + 0.5 - base * head / 2) / _deviation(base, head)))


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
    from scipy.special import stdtr, stdtrit

    method = "Student's t"
    estimate = _mean(head) - _mean(base)
    error = pooled_deviation(base, head) * math.sqrt(1 / len(base) + 1 / len(head))
    if not error:
        return ShiftTest(estimate, estimate, estimate, 0.0 if estimate else 1.0, method)
    freedom = len(base) + len(head) - 2
    reach = float(stdtrit(freedom, 1 - alpha / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(estimate) / error))
    return ShiftTest(estimate, estimate - reach, estimate + reach, p, method)


def pooled_deviation(base: Sequence[float], head: Sequence[float]) -> float:
    """The standard deviation within both groups together."""
    means = [(side, _mean(side)) for side in (base, head)]
    squares = sum((value - mean) ** 2 for side, mean in means for value in side)
    return math.sqrt(squares / (len(base) + len(head) - 2))


def _mean(values: Sequence[float]) -> float:
    """The mean, exact if all values are equal."""
    first = values[0]
    return first + math.fsum(value - first for value in values) / len(values)
