"""How far one group of values lies from another: an estimate, its interval, and p.

Two methods, chosen by how many values there are. From eight on each side ranks: no value weighs more than any
other, and they cost next to no power. Below, the smallest p that ranks can reach is coarse (never under 0.05
with 3 + 3), and Student's t finds more: see tests/stats/POWER.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


ENOUGH = 4  # values on both sides together; fewer say nothing of their spread
ENOUGH_FOR_RANKS = 8
EXACT = 2_500  # pairs of values up to which the distribution of ranks is counted out


@dataclass(frozen=True)
class Shift:
    """How far head lies from base, on the scale of the values; the interval holds 0 where p > alpha."""

    by: float
    low: float
    high: float
    p: float


def shift(base: Sequence[float], head: Sequence[float], alpha: float) -> Shift:
    """The shift from base to head with an interval of confidence 1 - alpha; takes four values or more."""
    if min(len(base), len(head)) >= ENOUGH_FOR_RANKS and 2 * tails(len(base), len(head))[0] <= alpha:
        return by_ranks(base, head, alpha)
    return by_student(base, head, alpha)


def by_ranks(base: Sequence[float], head: Sequence[float], alpha: float) -> Shift:
    """Hodges and Lehmann (1963): the median of all differences; the interval and p are Mann and Whitney's.

    A difference of exactly 0 counts against a shift, so that ties make the interval wider, never narrower.
    """
    import numpy as np

    apart = np.sort(np.subtract.outer(np.asarray(head), np.asarray(base)), axis=None)
    below = tails(len(base), len(head))
    cut = int((2 * below <= alpha).sum())
    against = min(int((apart <= 0).sum()), int((apart >= 0).sum()))
    p = min(1.0, 2 * float(below[against]))
    return Shift(float(np.median(apart)), float(apart[cut - 1]), float(apart[-cut]), p)


@lru_cache(maxsize=256)
def tails(base: int, head: int) -> Floats:
    """P(U <= u) for u = 0, 1, …: how often, with nothing changed, so few of all pairs have the head below."""
    import numpy as np

    pairs = base * head
    if pairs <= EXACT:
        counts = np.array([float(count) for count in _counts(base, head)])
        return np.asarray(np.cumsum(counts) / counts.sum())
    from scipy.special import ndtr  # late: it takes longer to load than small groups to count

    spread = math.sqrt(pairs * (base + head + 1) / 12)
    return np.asarray(ndtr((np.arange(pairs + 1) + 0.5 - pairs / 2) / spread))


def _counts(base: int, head: int) -> list[int]:
    """Orders of base and head values for each U: coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (base * head)
    for factor in range(1, base + 1):
        for power in range(base * head, head + factor - 1, -1):
            counts[power] -= counts[power - head - factor]
        for power in range(factor, base * head + 1):
            counts[power] += counts[power - factor]
    return counts


def by_student(base: Sequence[float], head: Sequence[float], alpha: float) -> Shift:
    """The difference of means with Student's t; both sides share one spread, so that one may be one value."""
    from scipy.special import stdtr, stdtrit

    by = _mean(head) - _mean(base)
    error = pooled(base, head) * math.sqrt(1 / len(base) + 1 / len(head))
    if not error:
        return Shift(by, by, by, 0.0 if by else 1.0)
    free = len(base) + len(head) - 2
    reach = float(stdtrit(free, 1 - alpha / 2)) * error
    return Shift(by, by - reach, by + reach, 2 * float(stdtr(free, -abs(by) / error)))


def pooled(base: Sequence[float], head: Sequence[float]) -> float:
    """The standard deviation within both groups together."""
    centres = [(side, _mean(side)) for side in (base, head)]
    squares = sum((value - centre) ** 2 for side, centre in centres for value in side)
    return math.sqrt(squares / (len(base) + len(head) - 2))


def _mean(values: Sequence[float]) -> float:
    """The mean, and exactly the value where all are the same."""
    first = values[0]
    return first + math.fsum(value - first for value in values) / len(values)


def shifted(base: Sequence[float], head: Sequence[float], alpha: float = 0.05) -> tuple[float, float, float]:
    """The change (0.03 is +3 %) and the ends of its interval of confidence 1 - alpha, by logs.

    Takes values above 0, four or more of both sides together.
    """
    found = shift([math.log(value) for value in base], [math.log(value) for value in head], alpha)
    return math.expm1(found.by), math.expm1(found.low), math.expm1(found.high)
