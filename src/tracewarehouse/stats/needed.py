"""How many runs it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

from tracewarehouse.stats.shift import pooled

FEWEST = 2
TOO_FINE = 10  # parts of the spread between runs: to see less takes thousands of runs
SURE = 12.0  # shifts in standard errors, above which no distribution need be asked


def runs_needed(spread: float, shift: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs per side that find a shift with this power; both numbers on the scale of logs of runs' medians.

    The least number for which Student's t has the power, by the noncentral t; from where the approximation
    of Guenther (1981) points to. Takes a shift other than 0.
    """
    side, found = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    about = 2 * ((side + found) * spread / shift) ** 2 + side**2 / 4
    runs = max(FEWEST, math.floor(about) - 1)
    while _power(runs, abs(shift) / spread if spread else math.inf, alpha) < power:
        runs += 1
    return runs


def _power(runs: int, ratio: float, alpha: float) -> float:
    """The power of Student's t with this many runs per side, for a shift of `ratio` standard deviations."""
    from scipy.special import nctdtr, stdtrit

    free, apart = 2 * runs - 2, ratio * math.sqrt(runs / 2)
    edge = float(stdtrit(free, 1 - alpha / 2))
    return 1.0 if apart > edge + SURE * math.sqrt(1 + edge) else 1 - float(nctdtr(free, apart, edge))


def runs_for_a_conclusion(
    base: Sequence[float], head: Sequence[float], *, alpha: float, min_effect: float
) -> int | None:
    """Runs per side, in all, for a conclusion with a power of 0.8, from logs of runs' medians.

    They find a shift of the size seen or, where that is below min_effect, exclude one of min_effect: when
    nothing changed, as many as find it with a power of 0.9, since either end of the interval may fail. A
    spread from few runs is more often too small than too large, so its median bias is taken off (Wilson and
    Hilferty 1931). None where it takes thousands.
    """
    free = len(base) + len(head) - 2
    spread = pooled(base, head) / (1 - 2 / (9 * free)) ** 1.5
    size, least = abs(fmean(head) - fmean(base)), math.log1p(min_effect)
    power, aim = (0.8, size) if size > least else (0.9, least)
    return runs_needed(spread, aim, alpha=alpha, power=power) if aim > spread / TOO_FINE else None
