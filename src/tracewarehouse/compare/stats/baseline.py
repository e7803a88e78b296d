"""Earlier runs as a baseline: the spread they give, its components, and outliers.

The spread comes from the history in two ways that guard each other: a model (normal values whose deviations
fade with the autocorrelation of the history) covers dependence, and the same contrast of runs anywhere in the
history covers heavy tails and drift. The larger p and the wider interval hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median, variance
from typing import TYPE_CHECKING

from msgspec import Struct

from tracewarehouse.compare.stats.two_sample import (
    MIN_SPLITS,
    ShiftTest,
    p_and_reach,
    pooled_deviation,
    shift,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


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
    centered = logs - logs.mean()
    total = float(centered @ centered)
    r = float(centered[1:] @ centered[:-1]) / total if total else 0.0
    return min(max(r + (1 + 3 * r) / len(logs), 0.0), _MAX_R)


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


def shift_with_history(
    base: Sequence[float], head: Sequence[float], earlier: Earlier, alpha: float
) -> ShiftTest:
    """The relative change from base to head with the spread of earlier runs; all values are above 0."""
    logs = [[math.log(value) for value in side] for side in (base, head)]
    return with_history(logs[0], logs[1], earlier, alpha).relative()


def history_notices(samples: tuple[Sequence[float], Sequence[float]], earlier: Earlier) -> Iterator[str]:
    """Whose spread was used, and what it does not show."""
    base, head = samples
    count = len(earlier.values)
    if not earlier.is_baseline and _has_own_spread(base, head, logs_of(earlier.values)):
        yield f"the runs vary more than {count} earlier runs, so their own spread was used"
        return
    one = earlier.is_baseline and len(head) == 1 and not earlier.is_short
    deviation = earlier.robust_deviation if one else earlier.deviation
    kind = f"runs since the change at {earlier.since}" if earlier.is_short else "earlier runs"
    text = f"{count} {kind} (σ {100 * deviation:.1f} %)"
    newest = "; the breakdown compares with the newest of them"
    yield f"base is {text}{newest}" if earlier.is_baseline else f"spread from {text}"
    if earlier.is_dependent and not earlier.is_short:
        r = earlier.autocorrelation
        yield f"runs depend on the runs before them (autocorrelation {r:.1f}); the interval accounts for it"
    if one:
        import numpy as np

        logs = logs_of(earlier.values)
        aside = np.abs(logs - np.median(logs))
        bad = int((aside > _BAD_RUN_DEVIATIONS * NORMAL * np.median(aside)).sum()) if aside.any() else 0
        share = f"{bad} of {len(logs)} earlier runs {'was' if bad == 1 else 'were'} bad"
        yield f"this is one run; run it again to rule out a bad run ({share})"


def _has_own_spread(base: Sequence[float], head: Sequence[float], logs: Floats) -> bool:
    """Whether the sides have enough runs, and vary more than the history."""
    from scipy.special import fdtrc

    if min(len(base), len(head)) < _MIN_OWN:
        return False
    own, freedom = pooled_deviation(base, head), len(base) + len(head) - 2
    variance = float(logs.var(ddof=1))
    return bool(own) and (
        not variance or float(fdtrc(freedom, len(logs) - 1, own**2 / variance)) < _OWN_ALPHA
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
    apart = np.abs(places[:, None] - places[None, :]).astype(np.float64)
    # Runs next to each other on both sides vary together: only as far as the history shows it for certain.
    factors = [float(weights @ kept**apart @ weights) for kept in (r, least_autocorrelation(r, count))]
    error = math.sqrt(variance * max(factors))
    p, reach = p_and_reach(estimate, error, _freedom(count, r), alpha)
    if earlier.is_baseline:
        aside = _blocks_beside(logs, len(head))
    else:
        aside = _same_contrasts(logs, places - places.min(), weights)
    # The larger p and the wider interval of the model and of the history itself.
    if len(aside):
        beyond = int((aside >= abs(estimate)).sum())
        p = max(p, (1 + beyond) / (len(aside) + 1))
        allowed = int(alpha * (len(aside) + 1)) - 1  # that may lie beyond the interval
        reach = max(reach, float(aside[-1 - max(allowed, 0)]) if allowed >= 0 else math.inf)
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
    both = np.hstack(centered)
    total = both.sum(axis=0)
    variance_of_sum = float(total @ total)
    return [float(row @ total) / variance_of_sum for row in both] if variance_of_sum else None


NOT_ROBUST = "with fewer than 5 + 5 runs one bad run may hide a change, or look like one"
_FAST = 1.5  # bad runs are slow ones: a fast one must be this much farther away


def outlier_notices(base: Sequence[float], head: Sequence[float]) -> Iterator[str]:
    """Which side has a run that is far from the others, and whether the test does not withstand it."""
    for name, side, other in (("base", base, head), ("head", head, base)):
        aside = _far(side, other)
        if aside is not None:
            yield f"one run of {name} is far from the others ({100 * math.expm1(aside):+.1f} %)"
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
    *rest, value = sorted(side, key=lambda each: abs(each - center))
    distance, freedom = value - fmean(rest), len(rest) + len(other) - 2
    standard_error = pooled_deviation(rest, other) * math.sqrt(1 + 1 / len(rest))
    limit = 5.2 + freedom / 15 + 300 / freedom**4
    return distance if abs(distance) > limit * (_FAST if distance < 0 else 1) * standard_error > 0 else None
