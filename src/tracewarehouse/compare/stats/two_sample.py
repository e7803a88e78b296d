"""Two samples: the shift with its interval, by their noise or that of earlier runs, and the runs it needs.

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

The noise of earlier runs comes from the history in two ways that guard each other: a model (normal values
whose deviations fade with the autocorrelation of the history) covers dependence, and the same contrast of
runs anywhere in the history covers heavy tails and drift. The larger p and the wider interval hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist, fmean, median, variance
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
        base_indexes = combinations(range(size), base)
        rows = [row for row in base_indexes if base != head or row[0] == 0]
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
    centered = np.stack([column - column.mean() for column in (values, midranks(values))], axis=1)
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
        estimate, low, high = (math.expm1(end) if end < 700 else math.inf for end in logarithms)
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


def relative_shift(
    base: Sequence[float], head: Sequence[float], alpha: float, earlier: Earlier | None = None
) -> ShiftTest:
    """The relative change from base to head, tested on logarithms of values above 0.

    With the spread of `earlier` runs, if there are some; else it needs four values or more.
    """
    left, right = ([math.log(value) for value in side] for side in (base, head))
    test = shift(left, right, alpha) if earlier is None else with_history(left, right, earlier, alpha)
    return test.relative()


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


MIN_EARLIER = 12  # runs; fewer do not show their spread
MIN_SINCE = 3  # runs after a change
MAX_EARLIER = 400
_MAX_R = 0.95
_LOWER = 1.645
_MIN_OWN = 5  # runs per side from which their own spread may replace that of the history
_OWN_ALPHA = 0.01
NORMAL = 1.4826  # standard deviation over median absolute deviation of normal values
_BAD_RUN_DEVIATIONS = 5.0  # robust standard deviations beyond which an earlier run is a bad one


class Earlier(Struct, frozen=True):
    """Values of runs before those that are compared, oldest first, all above 0.

    `base_at` and `head_at` are the places of the compared runs among all runs of this configuration, of which
    the first has place 0. If `is_baseline`, base consists of these runs, and `base_at` is ignored. There are
    `MIN_EARLIER` or more, or, of a baseline, `MIN_SINCE` or more after a change at the run `since`.
    """

    values: tuple[float, ...]
    base_at: tuple[int, ...]
    head_at: tuple[int, ...]
    is_baseline: bool = False
    since: str = ""

    @property
    def is_short(self) -> bool:
        """Whether they are too few to show how runs vary in the long term."""
        return len(self.values) < MIN_EARLIER

    @property
    def median(self) -> float:
        """The median of the values."""
        return median(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation of their logs."""
        return float(logs_of(self.values).std(ddof=1))

    @property
    def robust_deviation(self) -> float:
        """The same for one run: by the median absolute deviation, so that bad runs do not count."""
        return robust_deviation(logs_of(self.values))

    @property
    def autocorrelation(self) -> float:
        """That of consecutive runs, corrected for its bias (Marriott and Pope 1954); from 0 to 0.95."""
        return autocorrelation(logs_of(self.values))

    @property
    def is_dependent(self) -> bool:
        """Whether consecutive runs are correlated, by two standard errors."""
        return self.autocorrelation > 2 / math.sqrt(len(self.values))


def logs_of(values: Sequence[float]) -> Floats:
    """The natural logarithms of values above 0."""
    import numpy as np

    return np.asarray(np.log(np.asarray(values, dtype=np.float64)))


def autocorrelation(logs: Floats) -> float:
    """The autocorrelation at lag 1, from 0 to 0.95; 0 if all values are equal."""
    r = lag1(logs)
    return min(max(r + (1 + 3 * r) / len(logs), 0.0), _MAX_R)


def lag1(values: Floats) -> float:
    """The autocorrelation at lag 1 as it is, with its bias; 0 if all values are equal."""
    centered = values - values.mean()
    total = float(centered @ centered)
    return float(centered[1:] @ centered[:-1]) / total if total else 0.0


def least_autocorrelation(r: float, count: int) -> float:
    """The one-sided lower bound of 95 % of an autocorrelation that `count` runs show; at least 0."""
    return max(r - _LOWER * math.sqrt((1 - r**2) / count), 0.0)


def robust_deviation(logs: Floats) -> float:
    """The spread of single runs without bad ones: by the median absolute deviation, or by runs that are not
    far.

    The larger of both: the first is exact for normal values only, and the second leaves out tails.
    """
    import numpy as np

    aside = np.abs(logs - np.median(logs))
    spread = NORMAL * float(np.median(aside))
    near = logs[aside <= _BAD_RUN_DEVIATIONS * spread] if spread else logs
    return max(spread, float(near.std(ddof=1)))


def with_history(base: Sequence[float], head: Sequence[float], earlier: Earlier, alpha: float) -> ShiftTest:
    """The shift of logs from base to head with the spread of earlier runs; base is ignored for a baseline.

    One run against a baseline is tested by median and median absolute deviation. Sides of five runs or more
    that vary more than the history (F test at 1 %) are tested by their own spread. A short baseline is a side
    like head.
    """
    logs = logs_of(earlier.values)
    if earlier.is_baseline and earlier.is_short:
        return shift(logs.tolist(), head, alpha)
    if earlier.is_baseline and len(head) == 1:
        return _one_run(logs, head[0], alpha)
    if earlier.is_baseline:
        return _contrast(logs, logs.tolist(), head, earlier, alpha)
    if _has_own_spread(base, head, logs):
        return shift(base, head, alpha)
    return _contrast(logs, base, head, earlier, alpha)


def history_notices(samples: tuple[Sequence[float], Sequence[float]], earlier: Earlier) -> Iterator[str]:
    """Whose spread was used, and what it does not show."""
    base, head = samples
    count = len(earlier.values)
    if not earlier.is_baseline and _has_own_spread(base, head, logs_of(earlier.values)):
        yield f"the runs vary more than {count} earlier runs, so their own spread was used"
        return
    is_one_run = earlier.is_baseline and len(head) == 1 and not earlier.is_short
    deviation = earlier.robust_deviation if is_one_run else earlier.deviation
    kind = f"runs since the change at {earlier.since}" if earlier.is_short else "earlier runs"
    noise_text = f"{count} {kind} (σ {100 * deviation:.1f} %)"
    newest = "; the breakdown compares with the newest of them"
    yield f"base is {noise_text}{newest}" if earlier.is_baseline else f"spread from {noise_text}"
    if earlier.is_dependent and not earlier.is_short:
        r = earlier.autocorrelation
        yield f"runs depend on the runs before them (autocorrelation {r:.1f}); the interval accounts for it"
    if is_one_run:
        import numpy as np

        logs = logs_of(earlier.values)
        distances = np.abs(logs - np.median(logs))
        limit = _BAD_RUN_DEVIATIONS * NORMAL * np.median(distances)
        bad_runs = int((distances > limit).sum()) if distances.any() else 0
        share = f"{bad_runs} of {len(logs)} earlier runs {'was' if bad_runs == 1 else 'were'} bad"
        yield f"this is one run; run it again to rule out a bad run ({share})"


def _has_own_spread(base: Sequence[float], head: Sequence[float], logs: Floats) -> bool:
    """Whether the sides have enough runs, and vary more than the history."""
    from scipy.special import fdtrc

    if min(len(base), len(head)) < _MIN_OWN:
        return False
    own_deviation, freedom = pooled_deviation(base, head), len(base) + len(head) - 2
    variance = float(logs.var(ddof=1))
    return bool(own_deviation) and (
        not variance or float(fdtrc(freedom, len(logs) - 1, own_deviation**2 / variance)) < _OWN_ALPHA
    )


def _one_run(logs: Floats, head: float, alpha: float) -> ShiftTest:
    """One run against the median of earlier ones: by their robust spread."""
    import numpy as np

    count, r = len(logs), autocorrelation(logs)
    estimate = head - float(np.median(logs))
    error = robust_deviation(logs) * math.sqrt(1 + math.pi / 2 / count)
    p, reach = p_and_reach(estimate, error, _freedom(count, r), alpha)
    return ShiftTest(estimate, estimate - reach, estimate + reach, p, "history")


def _freedom(count: int, r: float) -> float:
    """Degrees of freedom of the variance with this autocorrelation (Bayley and Hammersley 1946)."""
    return max(2.0, (count - 1) * (1 - r**2) / (1 + r**2))


def _contrast(
    logs: Floats, base: Sequence[float], head: Sequence[float], earlier: Earlier, alpha: float
) -> ShiftTest:
    import numpy as np

    before = tuple(range(len(logs))) if earlier.is_baseline else earlier.base_at
    places = np.array([*before, *earlier.head_at])
    weights = np.array([-1 / len(base)] * len(base) + [1 / len(head)] * len(head))
    estimate = float(np.mean(head) - np.mean(base))
    r, variance, count = autocorrelation(logs), float(logs.var(ddof=1)), len(logs)
    distances = np.abs(places[:, None] - places[None, :]).astype(np.float64)
    # Runs next to each other on both sides vary together: only as far as the history shows it for certain.
    correlations = r, least_autocorrelation(r, count)
    factors = [float(weights @ shared**distances @ weights) for shared in correlations]
    error = math.sqrt(variance * max(factors))
    p, reach = p_and_reach(estimate, error, _freedom(count, r), alpha)
    if earlier.is_baseline:
        contrasts = _blocks_beside(logs, len(head))
    else:
        contrasts = _same_contrasts(logs, places - places.min(), weights)
    # The larger p and the wider interval of the model and of the history itself.
    if len(contrasts):
        beyond = int((contrasts >= abs(estimate)).sum())
        p = max(p, (1 + beyond) / (len(contrasts) + 1))
        allowed = int(alpha * (len(contrasts) + 1)) - 1  # that may lie beyond the interval
        reach = max(reach, float(contrasts[-1 - max(allowed, 0)]) if allowed >= 0 else math.inf)
    return ShiftTest(estimate, estimate - reach, estimate + reach, p, "history")


def _blocks_beside(logs: Floats, runs: int) -> Floats:
    """How far the mean of each block of consecutive runs is from that of the others, in ascending order."""
    import numpy as np

    if len(logs) < 2 * runs:
        return logs[:0]
    sums = np.convolve(logs, np.ones(runs), "valid")
    return np.sort(np.abs(sums / runs - (logs.sum() - sums) / (len(logs) - runs)))


def _same_contrasts(logs: Floats, places: npt.NDArray[np.int64], weights: Floats) -> Floats:
    """The same contrast of runs at all places in the history, in ascending order."""
    import numpy as np

    window = int(places.max()) + 1
    if len(logs) < 2 * window:
        return logs[:0]
    shape = np.zeros(window)
    np.add.at(shape, places, weights)
    return np.sort(np.abs(np.lib.stride_tricks.sliding_window_view(logs, window) @ shape))


MIN_RUNS, MIN_STEPS = 3, 3
_MOST = 0.8  # share of the spread of a run's value from which advice is clear


class Components(Struct, frozen=True):
    """Standard deviations, as ratios of the time, between runs and between steps of a run.

    `steps` is the harmonic mean of the numbers of steps of the runs.
    """

    run: float
    step: float
    steps: float

    @property
    def between_runs(self) -> float:
        """The share of the variance of a run's value that more steps do not reduce."""
        of_steps = self.step**2 / self.steps
        total = self.run**2 + of_steps
        return self.run**2 / total if total else 0.0

    @property
    def advice(self) -> str:
        """What reduces the spread."""
        share = f"{100 * self.between_runs:.0f} % of the spread of a run's value is between runs"
        if self.between_runs >= _MOST:
            return f"{share}: more runs help, more steps do not"
        if self.between_runs <= 1 - _MOST:
            return f"{share}: more steps help as much as more runs"
        return f"{share}: more runs help, more steps a little"


def components(sides: Sequence[Sequence[Sequence[float]]]) -> Components | None:
    """From the logs of step times by side and run, by the method of moments; None if there are too few.

    Sides may differ in their level. A negative estimate of the variance between runs is 0. Outliers among the
    steps count with the robust deviation of each run.
    """
    import numpy as np

    runs = [[np.asarray(run) for run in side if len(run) >= MIN_STEPS] for side in sides]
    usable = [side for side in runs if len(side) >= 2]
    count = sum(map(len, usable))
    if count < MIN_RUNS:
        return None
    within = fmean(robust_deviation(run) ** 2 for side in usable for run in side)
    steps = count / sum(1 / len(run) for side in usable for run in side)
    freedom = count - len(usable)
    between = (
        sum((len(side) - 1) * variance([float(run.mean()) for run in side]) for side in usable) / freedom
    )
    return Components(max(between - within / steps, 0.0) ** 0.5, within**0.5, steps)


def variance_shares(
    rows: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> list[float] | None:
    """The share of each row in the variance of the sum of all rows; they sum to 1.

    A row has its values in the replicates of base and of head. The share is the covariance of the row with
    the sum over the variance of the sum, around the mean of each side. None if there are too few replicates,
    or the sum does not vary.
    """
    import numpy as np

    centered = [
        values - values.mean(axis=1, keepdims=True)
        for side in zip(*rows, strict=True)
        if (values := np.asarray(side, dtype=np.float64)).shape[1] >= 2
    ]
    if not centered or sum(side.shape[1] - 1 for side in centered) < MIN_RUNS - 1:
        return None
    pooled = np.hstack(centered)
    total = pooled.sum(axis=0)
    variance_of_sum = float(total @ total)
    return [float(row @ total) / variance_of_sum for row in pooled] if variance_of_sum else None


NOT_ROBUST = "with fewer than 5 + 5 runs one bad run may hide a change, or look like one"
_FAST = 1.5  # bad runs are slow ones: a fast one must be this much farther away


def outlier_notices(base: Sequence[float], head: Sequence[float]) -> Iterator[str]:
    """Which side has a run that is far from the others, and whether the test does not withstand it."""
    for name, side, other in (("base", base, head), ("head", head, base)):
        distance = _far(side, other)
        if distance is not None:
            yield f"one run of {name} is far from the others ({100 * math.expm1(distance):+.1f} %)"
    if math.comb(len(base) + len(head), len(base)) < MIN_SPLITS:
        yield NOT_ROBUST


def _far(side: Sequence[float], other: Sequence[float]) -> float | None:
    """How far the farthest value of a side is from the mean of the rest, if the noise does not explain it.

    By Student's t of the value against the rest of both sides. The limit was fitted to simulated pairs of
    3 + 3 to 10 + 10 runs without an outlier, so that at most 5 % have such a value: bimodal noise decides at
    3 + 3, noise with heavy tails (Student's t, 3 degrees of freedom) above. See stats/POWER.md.
    """
    if len(side) < 3:
        return None
    center = fmean(side)
    *others, value = sorted(side, key=lambda time: abs(time - center))
    distance, freedom = value - fmean(others), len(others) + len(other) - 2
    standard_error = pooled_deviation(others, other) * math.sqrt(1 + 1 / len(others))
    limit = 5.2 + freedom / 15 + 300 / freedom**4
    return distance if abs(distance) > limit * (_FAST if distance < 0 else 1) * standard_error > 0 else None


MAX_RESOLUTION = 10  # the run-to-run deviation over the effect; a smaller effect takes thousands of runs
CERTAIN = 12.0  # distance in standard errors above which the power is 1 without computing it


def runs_needed(deviation: float, effect: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs per side that detect an effect with this power; both numbers are of logs of runs' medians.

    The smallest number for which Student's t has the power, by the noncentral t, searched from the
    approximation of Guenther (1981). The effect must not be 0.
    """
    side, detection = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    approximate = 2 * ((side + detection) * deviation / effect) ** 2 + side**2 / 4
    runs = max(2, math.floor(approximate) - 1)
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
        by_side = [f"{_runs(count)} of {name}" for name, count in sides if count]
        return " and ".join(by_side)


def _runs(count: int) -> str:
    return "1 more run" if count == 1 else f"{count:,} more runs"


def more_runs(have: tuple[int, int], needed: int) -> MoreRuns:
    """The runs to add so that the sides are worth `needed` runs per side: first to the side that has fewer.

    Sides of b and h runs are worth 2 / (1/b + 1/h) runs each.
    """
    base, head = have
    larger_side = max(have)
    room = 2 / needed - 1 / larger_side
    per_side = max(needed, larger_side)
    if room > 0:
        per_side = min(per_side, math.ceil(1 / room - 1e-9))
    add = MoreRuns(max(per_side - base, 0), max(per_side - head, 0))
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
