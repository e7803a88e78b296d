"""Change points in a series of runs: where the level changed, by how much, and with what uncertainty.

Two thresholds. Candidates are the exact optimum of kernel change-point detection with a linear penalty
(Arlot, Celisse, Harchaoui 2019; the penalty as in PELT, Killick et al. 2012). The kernel is Gaussian, so
bounded: an outlier costs the same however far off it is, and spikes make no change points. A candidate is
kept if the 99 % interval of Hodges and Lehmann for the shift between its two segments excludes 0 (a rank
test, dual to that of Mann and Whitney) and the shift is as large as requested; the weakest is removed first,
and the rest is tested again. The uncertainty of the position follows Bai (1997). The constants are measured:
at 1 % noise, normal or heavy-tailed, 97 % of steps of 3 % are located within one run (93 % if every twentieth
run is an outlier), and 400,000 runs without a step gave no false positive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from tracewarehouse.stats.shift import ShiftTest, mann_whitney, mann_whitney_cdf

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MIN_RUNS = 12  # a shorter series is not distinguishable from noise
_MIN_SEGMENT = 3  # runs between two changes
_PENALTY = 0.8  # per change, times the logarithm of the number of runs
_WIDTH = 0.1  # of the kernel: exp(-_WIDTH * d^2), with d in standard deviations of the noise
_STRICT_ALPHA = 0.01  # of the interval that must exclude 0
_REPORTED_ALPHA = 0.05  # of the interval that is reported
_MAX_SIDE = 40  # runs on either side that determine a change; ranks of this many are counted exactly
_BAI_95 = 11.0  # half the 95 % interval of the position, times the squared shift in standard deviations


@dataclass(frozen=True)
class Point:
    """A change: the series has another level from index `at` on.

    `change` is the shift relative to the level before (0.03 is +3 %), with its 95 % interval `low` to `high`;
    all three are None if that level is 0. The true position is between `earliest` and `latest` with 95 %.
    """

    at: int
    change: float | None
    low: float | None
    high: float | None
    earliest: int
    latest: int


def change_points(values: Sequence[float], min_effect: float = 0.01) -> tuple[Point, ...]:
    """The level changes of a series, in order; none if it has fewer than `MIN_RUNS` values.

    Changes smaller than `min_effect`, relative to the level before, are not reported.
    """
    import numpy as np

    series = np.asarray(values, dtype=np.float64)
    if len(series) < MIN_RUNS or not (series != series[0]).any():
        return ()
    # Noise grows with the level, so positive levels are compared as ratios.
    scaled = np.log(series) if (series > 0).all() else series
    noise = _noise(scaled)
    bounds = _candidates(scaled / noise)
    while bounds:
        shifts = _shifts(series, bounds)
        weakest = min(range(len(bounds)), key=lambda at: shifts[at].strength(min_effect))
        if shifts[weakest].strength(min_effect) > 0:
            return tuple(_points(scaled, noise, bounds, shifts))
        del bounds[weakest]
    return ()


@dataclass(frozen=True)
class _LevelShift:
    """The shift between two segments; `clearance` is the distance of the strict interval from 0.

    `level` is the median before the change.
    """

    test: ShiftTest
    clearance: float
    level: float

    def strength(self, min_effect: float) -> float:
        """The clearance relative to the shift; 0 or less for a change that is not reported."""
        size, smallest = abs(self.test.estimate), min_effect * abs(self.level)
        if size == 0 or size < smallest:
            return size / smallest - 1 if smallest else 0.0
        return self.clearance / size


def _noise(scaled: Floats) -> float:
    """The standard deviation of the noise, from differences of adjacent values, so without level changes."""
    import numpy as np

    steps = np.abs(np.diff(scaled))
    robust = 1.4826 * float(np.median(steps)) / sqrt(2)
    # If most adjacent values are equal, use the few that differ; the series is not constant, so some do.
    return robust or float(np.mean(steps)) * sqrt(np.pi) / 2


def _candidates(scaled: Floats) -> list[int]:
    """The boundaries that minimize the kernel costs of the segments between them, plus the penalty."""
    import numpy as np

    count = len(scaled)
    penalty = _PENALTY * np.log(count)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(count + 1, dtype=np.int64)
    inside = np.zeros(count)  # for each start: the sum of the kernel over all pairs of its segment
    for end in range(1, count + 1):
        row = np.exp(-_WIDTH * (scaled[:end] - scaled[end - 1]) ** 2)
        inside[:end] += 2 * np.cumsum(row[::-1])[::-1] - 1
        lengths = np.arange(end, 0, -1)
        costs = lengths - inside[:end] / lengths + best[:end] + penalty
        starts = end - _MIN_SEGMENT + 1
        if starts > 0:
            before[end] = np.argmin(costs[:starts])
            best[end] = costs[before[end]]
    bounds = []
    bound = int(before[count])
    while bound > 0:
        bounds.append(bound)
        bound = int(before[bound])
    return bounds[::-1]


def _shifts(series: Floats, bounds: Sequence[int]) -> list[_LevelShift]:
    edges = [0, *bounds, len(series)]
    return [
        _shift(series[start:bound][-_MAX_SIDE:], series[bound:end][:_MAX_SIDE])
        for start, bound, end in zip(edges, bounds, edges[2:], strict=False)
    ]


def _shift(before: Floats, after: Floats) -> _LevelShift:
    if 2 * mann_whitney_cdf(len(before), len(after))[0] > _STRICT_ALPHA:  # too few runs to be sure
        return _LevelShift(ShiftTest(0.0, 0.0, 0.0, 1.0, "none"), 0.0, 0.0)
    sides = before.tolist(), after.tolist()
    strict, reported = (mann_whitney(*sides, alpha) for alpha in (_STRICT_ALPHA, _REPORTED_ALPHA))
    return _LevelShift(reported, max(strict.low, -strict.high), median(sides[0]))


def _points(
    scaled: Floats, noise: float, bounds: Sequence[int], shifts: Sequence[_LevelShift]
) -> list[Point]:
    import numpy as np

    edges = [0, *bounds, len(scaled)]
    points = []
    for number, (bound, shift) in enumerate(zip(bounds, shifts, strict=True)):
        start, end = edges[number], edges[number + 2]
        jump = float(np.median(scaled[bound:end]) - np.median(scaled[start:bound])) / noise
        off = int(_BAI_95 / jump**2) + 1 if jump else len(scaled)
        test = shift.test
        change, low, high = (_relative(value, shift.level) for value in (test.estimate, test.low, test.high))
        points.append(Point(bound, change, low, high, max(start + 1, bound - off), min(end - 1, bound + off)))
    return points


def _relative(value: float, level: float) -> float | None:
    return value / abs(level) if level else None
