"""How many runs a comparison needs, and which changes it detects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from tracewarehouse.compare.stats.shift import pooled_deviation

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
    while _power(runs, abs(effect) / deviation if deviation else math.inf, alpha) < power:
        runs += 1
    return runs


def _power(runs: int, ratio: float, alpha: float) -> float:
    """The power of Student's t with this many runs per side, for an effect of `ratio` standard deviations."""
    return power_at(ratio * math.sqrt(runs / 2), 1.0, 2 * runs - 2, alpha=alpha)


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


@dataclass(frozen=True)
class MoreRuns:
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
