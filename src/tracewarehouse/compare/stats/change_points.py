"""Change points in a series of runs: where the level changed, by how much, and with what uncertainty.

Candidates are the exact optimum of kernel change-point detection with a linear penalty (Arlot, Celisse,
Harchaoui 2019; the penalty as in PELT, Killick et al. 2012), and the scan of rank sums after Pettitt (1979),
which finds small changes between long levels. The kernel is Gaussian, so bounded: an outlier costs the same
however far off it is, and spikes make no change points.

A candidate is kept if the series has more evidence for it than for noise that depends on the run before, if
the 99 % interval of Hodges and Lehmann for the shift excludes 0 (a rank test, dual to that of Mann and
Whitney), and if the shift is as large as requested; the weakest is removed first, and the rest is tested
again. The evidence is the likelihood of regressions whose noise is autoregressive (AR(1), Gaussian, with
outliers drawn in): a constant, two levels, a straight line. Without the autocorrelation every slow wave of
the noise would be a change.

Each remaining change is placed where the kernel costs of the segments beside it are least; the uncertainty of
the position follows Bai (1997). A series that a straight line explains better has a trend instead. The
constants are measured: see tests/unit/compare/stats/POWER.md.

The module needs numpy throughout: import it where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from tracewarehouse.compare.stats.two_sample import (
    NORMAL,
    ShiftTest,
    mann_whitney,
    midranks,
    orders_that_reject,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


_GRID = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)  # autocorrelations that are tried
_PLACE_COST = 1.5  # of the place of a level change, in log-likelihood: the best of many fits by chance
_FAR = 3.0  # standard deviations of the noise beyond which a value counts as this far
_MORE_OFF = 0.2  # the share of values by which a line or levels, farther off than the other, are ruled out


def drawn_in(values: Floats, center: Floats, noise: float) -> Floats:
    """The values, with those far from their center drawn in."""
    return np.asarray(np.clip(values, center - _FAR * noise, center + _FAR * noise))


class Fit(Struct, frozen=True):
    """A regression with autoregressive noise: its log-likelihood, and the last coefficient with its error."""

    log_likelihood: float
    slope: float
    error: float
    autocorrelation: float


def fit(values: Floats, *columns: Floats) -> Fit:
    """A regression on these columns and a constant, at the best autocorrelation of its noise."""
    count = len(values)
    design = np.stack([np.ones(count), *columns, values], axis=1)
    best = Fit(-math.inf, 0.0, 0.0, 0.0)
    for r in _GRID:
        # Prais and Winsten (1954): differences to the share r of the run before; the first keeps its weight.
        whitened = np.vstack([design[:1] * math.sqrt(1 - r * r), design[1:] - r * design[:-1]])
        gram = whitened.T @ whitened
        inverse = np.linalg.pinv(gram[:-1, :-1], hermitian=True)
        coefficients = inverse @ gram[:-1, -1]
        residual = float(gram[-1, -1] - gram[-1, :-1] @ coefficients)
        residual = max(residual, 1e-12 * float(gram[-1, -1]), 1e-300)
        log_likelihood = -count / 2 * math.log(residual / count) + math.log(1 - r * r) / 2
        if log_likelihood > best.log_likelihood:
            error = math.sqrt(residual / max(count - len(columns) - 1, 1) * float(inverse[-1, -1]))
            best = Fit(log_likelihood, float(coefficients[-1]), error, r)
    return best


def levels(count: int, bounds: Sequence[int]) -> list[Floats]:
    """A column per bound: 1 from it on."""
    return [np.asarray(np.arange(count) >= bound, dtype=np.float64) for bound in bounds]


def medians(values: Floats, bounds: Sequence[int]) -> Floats:
    """For each value the median between the bounds around it."""
    segments = np.split(values, list(bounds))
    return np.concatenate([np.full(len(segment), np.median(segment)) for segment in segments])


def line_instead(values: Floats, noise: float, bounds: Sequence[int]) -> Fit | None:
    """The line that explains a series better than level changes at these bounds, and than a constant."""
    count = len(values)
    position = np.linspace(-0.5, 0.5, count)
    third = max(count // 3, 1)
    ends = float(np.median(values[:third])), float(np.median(values[-third:]))
    center = np.median(values) + (ends[1] - ends[0]) * position * count / (count - third)
    series = drawn_in(values, center, noise)
    stepped = drawn_in(values, medians(values, bounds), noise)
    # Values that are drawn in follow the line or the levels: a large step would look like a perfect line, and
    # a steep line like steps.
    off_line, off_levels = float(np.mean(series != values)), float(np.mean(stepped != values))
    if off_line > off_levels + _MORE_OFF:
        return None
    needed = 2.0 * math.log(count) + 3.0
    explained = float(np.corrcoef(series, position)[0, 1]) ** 2 if series.std() else 0.0
    if -count * math.log(max(1 - explained, 1e-12)) < needed:  # not even for independent noise
        return None
    line = fit(series, position)
    if 2 * (line.log_likelihood - fit(series).log_likelihood) < needed:
        return None
    if not bounds or off_levels > off_line + _MORE_OFF:
        return line
    by_levels = fit(stepped, *levels(count, bounds)).log_likelihood
    # Schwarz's criterion: half of log n for each size and for the slope of the line.
    cost = _PLACE_COST * len(bounds) + (len(bounds) - 1) * math.log(count) / 2
    return line if line.log_likelihood >= by_levels - cost else None


MIN_RUNS = 12  # a shorter series is not distinguishable from noise
_MIN_SEGMENT = 3  # runs between two changes
_PENALTY = 0.8  # per change, times the logarithm of the number of runs
_WIDTH = 0.1  # of the kernel: exp(-_WIDTH * d^2), with d in standard deviations of the noise
_STRICT_ALPHA = 0.01  # of the interval that must exclude 0
_REPORTED_ALPHA = 0.05  # of the interval that is reported
_MAX_SIDE = 400  # runs on either side that determine the size of a change
_WIDE_SIDE = 1_500  # the same for a change that fewer do not show
_WINDOW = 2_000  # the longest level between two candidates; beyond it, the exact search takes too long
_SCAN_EDGE, _LONG_EDGE, _LONG = 10, 40, 1_000  # runs beside a change that the scan finds; in a long series
_SCAN = 4.16  # standard deviations of the rank sum: the 99.9 % point of the largest (simulated)
_SURE = 200  # runs whose autocorrelation is known well enough
_INDEPENDENT = 0.1  # autocorrelation up to which noise has no waves: the scan's own limit is enough
_BAI_95 = 11.0  # half the 95 % interval of the position, times the squared shift in standard deviations


class Trend(Struct, frozen=True):
    """A steady rise or fall: the change from the first value to the last, relative to the first."""

    change: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.change * 100:+.1f} % [{self.low * 100:.1f}, {self.high * 100:.1f}]"


class Levels(Struct, frozen=True):
    """The level changes of a series, in order, or its trend."""

    points: tuple[Point, ...] = ()
    trend: Trend | None = None


class Point(Struct, frozen=True):
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


def find_levels(values: Sequence[float], min_effect: float = 0.01) -> Levels:
    """The level changes of a series, or its trend; neither if it has fewer than `MIN_RUNS` values.

    Changes smaller than `min_effect`, relative to the level before, are not reported.
    """
    series = np.asarray(values, dtype=np.float64)
    if len(series) < MIN_RUNS or not (series != series[0]).any():
        return Levels()
    # Noise grows with the level, so positive levels are compared as ratios.
    is_positive = bool((series > 0).all())
    scaled = np.log(series) if is_positive else series
    noise = _noise(scaled)
    bounds = _with_evidence(scaled, noise, _merged(_candidates(scaled / noise), _scanned(scaled)))
    bounds = _placed(scaled / noise, bounds)
    while bounds:
        shifts = _shifts(series, bounds)
        weakest = min(range(len(bounds)), key=lambda index: shifts[index].strength(min_effect))
        if shifts[weakest].strength(min_effect) > 0:
            break
        del bounds[weakest]
    trend = _trend(scaled, noise, bounds, min_effect) if is_positive else None
    if trend is not None or not bounds:
        return Levels((), trend)
    return Levels(tuple(_points(scaled, noise, bounds, _shifts(series, bounds))))


def _trend(scaled: Floats, noise: float, bounds: Sequence[int], min_effect: float) -> Trend | None:
    line = line_instead(scaled, noise, bounds)
    if line is None or abs(math.expm1(line.slope)) < min_effect:
        return None
    ends = line.slope, line.slope - 1.96 * line.error, line.slope + 1.96 * line.error
    return Trend(*map(math.expm1, ends))


def _with_evidence(scaled: Floats, noise: float, bounds: list[int]) -> list[int]:
    """The candidates that waves of the noise do not explain; the weakest is removed first."""
    computed: dict[tuple[int, int, int], float] = {}

    def evidence(start: int, bound: int, end: int) -> float:
        if (start, bound, end) not in computed:
            computed[start, bound, end] = _evidence(scaled, noise, start, bound, end)
        return computed[start, bound, end]

    while bounds:
        edges = [0, *bounds, len(scaled)]
        evidences = [evidence(*three) for three in zip(edges, bounds, edges[2:], strict=False)]
        weakest = min(range(len(bounds)), key=lambda index: evidences[index])
        if evidences[weakest] > 0:
            break
        del bounds[weakest]
    return bounds


def _placed(scaled: Floats, bounds: Sequence[int]) -> list[int]:
    """The bounds, each where the segments beside it cost least, no farther than the edge of the scan.

    The scan counts a spike as any other high rank, so that spikes shortly before a rise count for the level
    after it; and a removed candidate leaves its neighbors where they were best with it.
    """
    placed, reach = list(bounds), _scan_edge(len(scaled))
    for number, bound in enumerate(bounds):
        start = max(placed[number - 1] if number else 0, bound - _MAX_SIDE)
        end = min([*bounds, len(scaled)][number + 1], bound + _MAX_SIDE)
        placed[number] = start + _best_split(scaled[start:end], bound - start, reach)
    return placed


def _best_split(scaled: Floats, near: int, reach: int) -> int:
    """The index, at most `reach` from `near`, at which two segments have the least kernel cost."""
    count = len(scaled)
    pairs = np.exp(-_WIDTH * (scaled[:, None] - scaled) ** 2).cumsum(axis=0).cumsum(axis=1)
    splits = np.arange(max(_MIN_SEGMENT, near - reach), min(count - _MIN_SEGMENT, near + reach) + 1)
    before = pairs[splits - 1, splits - 1]
    after = pairs[-1, -1] - 2 * pairs[-1, splits - 1] + before
    return int(splits[np.argmax(before / splits + after / (count - splits))])


def _evidence(scaled: Floats, noise: float, start: int, bound: int, end: int) -> float:
    """How much more evidence a change has than it needs: twice its gain in log-likelihood."""
    segment, split = scaled[start:end], bound - start
    values = drawn_in(segment, medians(segment, [split]), noise)
    with_step = fit(values, *levels(len(values), [split]))
    evidence = 2 * (with_step.log_likelihood - fit(values).log_likelihood)
    is_long = min(split, end - bound) >= _scan_edge(len(scaled))
    if is_long and len(segment) >= _SURE and with_step.autocorrelation <= _INDEPENDENT:
        return evidence - _SCAN**2
    # Waves of the noise rarely have as much in a series of this length.
    return evidence - (2.5 * math.log(len(scaled)) + 6.0)


def _scan_edge(count: int) -> int:
    return _LONG_EDGE if count > _LONG else _SCAN_EDGE


def _scanned(scaled: Floats) -> list[int]:
    """Where the rank sums of a series change most, then of the parts before and after."""
    edge = _scan_edge(len(scaled))
    splits, segments = [], [(0, len(scaled))]
    while segments:
        start, end = segments.pop()
        scan = rank_scan(scaled[start:end], edge)
        if scan is not None and scan.deviations > _SCAN:
            splits.append(start + scan.index)
            segments += [(start, start + scan.index), (start + scan.index, end)]
    return sorted(splits)


class Scan(Struct, frozen=True):
    """The index from which the ranks of a series differ most, and by how many standard deviations."""

    index: int
    deviations: float


def rank_scan(values: Floats, edge: int = _MIN_SEGMENT) -> Scan | None:
    """The largest rank sum of the first values, at least `edge` from either end; None for short series."""
    count = len(values)
    if count < 2 * edge or count < MIN_RUNS:
        return None
    ranks = midranks(values)
    deviation = float(ranks.std())
    if not deviation:
        return None
    before = np.arange(edge, count - edge + 1)
    sums = np.cumsum(ranks)[before - 1] - before * (count + 1) / 2
    deviations = np.abs(sums) / (deviation * np.sqrt(before * (count - before) / (count - 1)))
    best = int(np.argmax(deviations))
    return Scan(int(before[best]), float(deviations[best]))


def _merged(candidates: list[int], scanned: Sequence[int]) -> list[int]:
    """All candidates, those of the scan only where no other is near."""
    added = [place for place in scanned if all(abs(place - other) >= _MIN_SEGMENT for other in candidates)]
    return sorted([*candidates, *added])


class _LevelShift(Struct, frozen=True):
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
    steps = np.abs(np.diff(scaled))
    robust = NORMAL * float(np.median(steps)) / math.sqrt(2)
    # If most adjacent values are equal, use the few that differ; the series is not constant, so some do.
    return robust or float(np.mean(steps)) * math.sqrt(np.pi) / 2


def _candidates(scaled: Floats) -> list[int]:
    """The boundaries that minimize the kernel costs of the segments between them, plus the penalty.

    No segment is longer than `_WINDOW`.
    """
    count = len(scaled)
    penalty = _PENALTY * np.log(count)
    best = np.full(count + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(count + 1, dtype=np.int64)
    inside = np.zeros(count)  # for each start: the sum of the kernel over all pairs of its segment
    longest = np.arange(_WINDOW, 0, -1.0)
    for end in range(1, count + 1):
        first = max(0, end - _WINDOW)
        row = np.exp(-_WIDTH * (scaled[first:end] - scaled[end - 1]) ** 2)
        inside[first:end] += 2 * row[::-1].cumsum()[::-1] - 1
        lengths = longest[first - end :]
        costs = lengths - inside[first:end] / lengths + best[first:end]
        starts = end - first - _MIN_SEGMENT + 1
        if starts > 0:
            before[end] = first + costs[:starts].argmin()
            best[end] = costs[before[end] - first] + penalty
    bounds = []
    bound = int(before[count])
    while bound > 0:
        bounds.append(bound)
        bound = int(before[bound])
    return bounds[::-1]


def _shifts(series: Floats, bounds: Sequence[int]) -> list[_LevelShift]:
    edges = [0, *bounds, len(series)]
    return [
        _shift_at(series[start:bound], series[bound:end])
        for start, bound, end in zip(edges, bounds, edges[2:], strict=False)
    ]


def _shift_at(before: Floats, after: Floats) -> _LevelShift:
    """By the runs around a change, or by more of them if these do not show it."""
    nearby_shift = _shift(before[-_MAX_SIDE:], after[:_MAX_SIDE])
    if nearby_shift.clearance > 0 or max(len(before), len(after)) <= _MAX_SIDE:
        return nearby_shift
    return _shift(before[-_WIDE_SIDE:], after[:_WIDE_SIDE])


def _shift(before: Floats, after: Floats) -> _LevelShift:
    if not orders_that_reject(len(before), len(after), _STRICT_ALPHA):  # too few runs to be sure
        return _LevelShift(ShiftTest(0.0, 0.0, 0.0, 1.0, "none"), 0.0, 0.0)
    sides = before.tolist(), after.tolist()
    strict, reported = (mann_whitney(*sides, alpha) for alpha in (_STRICT_ALPHA, _REPORTED_ALPHA))
    return _LevelShift(reported, max(strict.low, -strict.high), median(sides[0]))


def _points(
    scaled: Floats, noise: float, bounds: Sequence[int], shifts: Sequence[_LevelShift]
) -> list[Point]:
    edges = [0, *bounds, len(scaled)]
    points = []
    for number, (bound, shift) in enumerate(zip(bounds, shifts, strict=True)):
        start, end = edges[number], edges[number + 2]
        jump = float(np.median(scaled[bound:end]) - np.median(scaled[start:bound])) / noise
        off = int(_BAI_95 / jump**2) + 1 if jump else len(scaled)
        test = shift.test
        change, low, high = (
            value / abs(shift.level) if shift.level else None
            for value in (test.estimate, test.low, test.high)
        )
        points.append(Point(bound, change, low, high, max(start + 1, bound - off), min(end - 1, bound + off)))
    return points
