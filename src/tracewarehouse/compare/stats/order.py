"""Runs in the order of start: whether two sides alternate, and whether runs depend on the one before.

Unless the sides of a comparison alternate, a drift between them looks like a change.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from tracewarehouse.compare.stats.permutation import midranks

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Sides = Sequence[bool]  # in the order of start: whether the run is of head

MIN_SIDE = 12  # runs per side from which dependence is found in at least 80 % (AR(1) with 0.7)
LEVEL = 0.05
DEPENDENCE_LEVEL = 0.0425  # at most 5 % of independent pairs are warned of, of whatever noise (POWER.md)
UNKNOWN_ORDER = "start times are unknown or equal, so that a drift between base and head looks like a change"
NOT_INTERLEAVED = "base and head were not run alternately, so that a drift between them looks like a change"
DEPENDENT = "runs depend on the runs before them, so that the interval is too narrow"
_KEPT = 0.7  # the autocorrelation that the test is made for
_DRAWS = 1_999
_SEED = 20_261_123
_TIE = 1e-12


def order_notices(base: Sequence[float], head: Sequence[float], order: Sides | None) -> Iterator[str]:
    """Why a drift may look like a change, from the values of both sides in the order of start.

    Sides that do not alternate are always reported. `order` is empty if it is unknown, None if it does not
    matter.
    """
    if order is None or min(len(base), len(head)) < 2:
        return
    if len(order) != len(base) + len(head):
        yield UNKNOWN_ORDER
        return
    small = min(len(base), len(head)) < MIN_SIDE
    sides = {False: iter(base), True: iter(head)}
    values = [next(sides[side]) for side in order]
    is_dependent = dependence_p(values, order) <= DEPENDENCE_LEVEL
    if is_dependent:
        yield DEPENDENT
    if not is_interleaved(order):
        hidden = small and not is_dependent
        unseen = f"; with fewer than {MIN_SIDE} runs per side it cannot be seen" if hidden else ""
        yield f"{NOT_INTERLEAVED}{unseen}: run base and head alternately, or use history"


def is_interleaved(sides: Sides) -> bool:
    """Whether the sides alternate at least as often as in 95 % of random orders; needs two runs per side.

    By the number of switches between sides (Wald and Wolfowitz 1940); never if one side precedes the other.
    """
    head = sum(sides)
    base = len(sides) - head
    switches = sum(one != other for one, other in zip(sides, sides[1:], strict=False))
    return min(base, head) < 2 or switches > 1 and _switches_cdf(base, head, switches) >= LEVEL


def _switches_cdf(base: int, head: int, switches: int) -> float:
    """P(at most this many switches) in a random order."""
    total = math.comb(base + head, base)
    ways = 0
    for runs in range(2, switches + 2):
        half, odd = divmod(runs, 2)
        if odd:
            ways += math.comb(base - 1, half) * math.comb(head - 1, half - 1)
            ways += math.comb(base - 1, half - 1) * math.comb(head - 1, half)
        else:
            ways += 2 * math.comb(base - 1, half - 1) * math.comb(head - 1, half - 1)
    return ways / total


def dependence_p(values: Sequence[float], sides: Sides) -> float:
    """p of independent runs, against runs that inherit a part of the deviation of the run before.

    `values` and `sides` are in the order of start. The point-optimal statistic of King (1985) for an
    autocorrelation of 0.7, on normal scores of the deviations from the median of their side; its distribution
    is that of random orders within each side.
    """
    import numpy as np

    head, found = np.asarray(sides, dtype=bool), np.asarray(values, dtype=np.float64)
    residuals = found - np.where(head, np.median(found[head]), np.median(found[~head]))
    scores = _scores(residuals)
    weights = _weights(tuple(sides))
    null = _statistic(scores[_orders(tuple(sides))], weights)
    observed = float(_statistic(scores[None, :], weights)[0])
    return (1 + int((null <= observed + _TIE).sum())) / (len(null) + 1)


def _scores(values: Floats) -> Floats:
    """Normal scores of the midranks."""
    import numpy as np
    from scipy.special import ndtri

    return np.asarray(ndtri((midranks(values) - 0.375) / (len(values) + 0.25)))


@lru_cache(maxsize=32)
def _orders(sides: tuple[bool, ...]) -> npt.NDArray[np.int64]:
    """Random orders within each side: a row per order, with the index of the run in each place."""
    import numpy as np

    chance, head = np.random.default_rng([_SEED, len(sides), sum(sides)]), np.array(sides, dtype=bool)
    orders = np.zeros((_DRAWS, len(sides)), dtype=np.int64)
    for side in (head, ~head):
        places = np.flatnonzero(side)
        orders[:, places] = places[chance.random((_DRAWS, len(places))).argsort(axis=1)]
    return orders


@lru_cache(maxsize=32)
def _weights(sides: tuple[bool, ...]) -> Floats:
    """The inverse covariance of runs with that autocorrelation, without the means of the sides."""
    import numpy as np

    at, head = np.arange(len(sides)), np.array(sides, dtype=bool)
    precision = np.linalg.inv(_KEPT ** np.abs(at[:, None] - at[None, :]))
    design = np.stack([head, ~head], axis=1).astype(np.float64)
    weighted = design.T @ precision
    return np.asarray(precision - weighted.T @ np.linalg.solve(weighted @ design, weighted))


def _statistic(scores: Floats, weights: Floats) -> Floats:
    """The weighted squares of each row; small if neighbors are alike."""
    import numpy as np

    return np.asarray(((scores @ weights) * scores).sum(axis=1))
