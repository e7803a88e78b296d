"""Where the level of a series of runs changed, by how much, and how sure that is.

Two thresholds. Candidates are the exact optimum of kernel change-point detection with a linear penalty
(Arlot, Celisse, Harchaoui 2019; the penalty as in PELT, Killick et al. 2012). The kernel is Gaussian, so
bounded: a run far off costs no more than a run that is off, and spikes make no change points. A candidate
stays where the 99 % interval of Hodges and Lehmann for the shift between its two stretches leaves out 0 (a
rank test, dual to that of Mann and Whitney) and the shift is as large as asked for; the weakest goes first,
and the rest is looked at again. How far the place may be off is after Bai (1997). The constants are measured:
at 1 % noise, normal or heavy-tailed, 97 % of steps of 3 % are placed within one run (93 % where every
twentieth run is far off), and 400,000 runs without a step gave no false point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING

from tracewarehouse.stats.shift import by_ranks, tails

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FEWEST = 12  # in a shorter series nothing could be told from noise
_SHORTEST = 3  # runs between two changes
_PENALTY = 0.8  # per change, times the logarithm of the number of runs
_WIDTH = 0.1  # of the kernel: exp(-_WIDTH * d^2), with d in standard deviations of the noise
_STRONG = 0.01  # one less the confidence of the interval that must leave out 0
_TOLD = 0.05  # of the interval that is told
_NEAR = 40  # runs on either side that say how large a change is; of so many ranks are counted out exactly
_BAI_95 = 11.0  # half the 95 % interval of the place, times the squared shift in standard deviations


@dataclass(frozen=True)
class Point:
    """A change: the series has another level from index `at` on.

    `change` is the shift over the level before it (0.03 is +3 %), with its 95 % interval `low` to `high`; all
    three are None where that level is 0. The true place is within `earliest` and `latest`, with 95 %.
    """

    at: int
    change: float | None
    low: float | None
    high: float | None
    earliest: int
    latest: int


def change_points(values: Sequence[float], min_effect: float = 0.01) -> tuple[Point, ...]:
    """The changes of level in a series, in order; none where it has fewer than `FEWEST` values.

    Changes smaller than `min_effect`, relative to the level before, are not told.
    """
    import numpy as np

    series = np.asarray(values, dtype=np.float64)
    if len(series) < FEWEST or not (series != series[0]).any():
        return ()
    # Noise grows with the level, so levels are compared as ratios where they are all positive.
    scaled = np.log(series) if (series > 0).all() else series
    noise = _noise(scaled)
    places = _candidates(scaled / noise)
    while places:
        shifts = _shifts(series, places)
        weakest = min(range(len(places)), key=lambda at: shifts[at].strength(min_effect))
        if shifts[weakest].strength(min_effect) > 0:
            return tuple(_points(scaled, noise, places, shifts))
        del places[weakest]
    return ()


@dataclass(frozen=True)
class _Shift:
    """What lies between two stretches, with its interval; `clear` is how far the strong interval is from 0.

    `level` is the median before.
    """

    by: float
    low: float
    high: float
    clear: float
    level: float

    def strength(self, min_effect: float) -> float:
        """How clear it is, in shares of itself; not above 0 for what is not to be told."""
        least = min_effect * abs(self.level)
        if self.by == 0 or abs(self.by) < least:
            return abs(self.by) / least - 1 if least else 0.0
        return self.clear / abs(self.by)


def _noise(scaled: Floats) -> float:
    """The standard deviation of the noise, from differences of neighbours: changes of level do not count."""
    import numpy as np

    steps = np.abs(np.diff(scaled))
    robust = 1.4826 * float(np.median(steps)) / sqrt(2)
    # Where most neighbours are alike, the few that differ tell; the series is not constant, so some do.
    return robust or float(np.mean(steps)) * sqrt(np.pi) / 2


def _candidates(scaled: Floats) -> list[int]:
    """The places that minimise the kernel costs of the stretches between them, plus the penalty."""
    import numpy as np

    count = len(scaled)
    penalty = _PENALTY * np.log(count)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(count + 1, dtype=np.int64)
    inside = np.zeros(count)  # for each start: the sum of the kernel over all pairs of its stretch
    for end in range(1, count + 1):
        row = np.exp(-_WIDTH * (scaled[:end] - scaled[end - 1]) ** 2)
        inside[:end] += 2 * np.cumsum(row[::-1])[::-1] - 1
        lengths = np.arange(end, 0, -1)
        costs = lengths - inside[:end] / lengths + best[:end] + penalty
        starts = end - _SHORTEST + 1
        if starts > 0:
            before[end] = np.argmin(costs[:starts])
            best[end] = costs[before[end]]
    places = []
    place = int(before[count])
    while place > 0:
        places.append(place)
        place = int(before[place])
    return places[::-1]


def _shifts(series: Floats, places: Sequence[int]) -> list[_Shift]:
    edges = [0, *places, len(series)]
    return [
        _shift(series[start:place][-_NEAR:], series[place:end][:_NEAR])
        for start, place, end in zip(edges, places, edges[2:], strict=False)
    ]


def _shift(before: Floats, after: Floats) -> _Shift:
    if 2 * tails(len(before), len(after))[0] > _STRONG:
        return _Shift(0.0, 0.0, 0.0, 0.0, 0.0)  # too few runs to be sure of anything
    strong, told = (by_ranks(before.tolist(), after.tolist(), alpha) for alpha in (_STRONG, _TOLD))
    return _Shift(told.by, told.low, told.high, max(strong.low, -strong.high), median(before.tolist()))


def _points(scaled: Floats, noise: float, places: Sequence[int], shifts: Sequence[_Shift]) -> list[Point]:
    import numpy as np

    edges = [0, *places, len(scaled)]
    points = []
    for at, (place, shift) in enumerate(zip(places, shifts, strict=True)):
        start, end = edges[at], edges[at + 2]
        jump = float(np.median(scaled[place:end]) - np.median(scaled[start:place])) / noise
        off = int(_BAI_95 / jump**2) + 1 if jump else len(scaled)
        change, low, high = (_over(value, shift.level) for value in (shift.by, shift.low, shift.high))
        points.append(Point(place, change, low, high, max(start + 1, place - off), min(end - 1, place + off)))
    return points


def _over(value: float, level: float) -> float | None:
    return value / abs(level) if level else None
