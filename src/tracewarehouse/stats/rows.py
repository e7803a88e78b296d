"""Tests of many rows at once: which parts of a step changed by more than their noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewarehouse.stats.shift import ENOUGH

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RowTest:
    """How one row changed: relative (inf for a new row, -1 for a gone one), with its interval.

    `q` is p after Benjamini and Hochberg: of all rows with q <= alpha, at most a part alpha is there by
    chance. Rows that are not `tested` have no interval, p or q. New and gone rows have no interval.
    """

    change: float
    low: float | None
    high: float | None
    p: float | None
    q: float | None
    significant: bool
    tested: bool


def rows(
    base: Sequence[Sequence[float]],
    head: Sequence[Sequence[float]],
    weights: Sequence[float],
    *,
    alpha: float = 0.05,
    min_share: float = 0.001,
) -> list[RowTest]:
    """A test for each row, in the order given.

    `base` and `head` hold for each row its mean in each unit (a run, or a block of steps), 0 where it is
    absent; `weights` its share of the step. Tested are rows with a share of at least `min_share`, where both
    sides together have four units or more.

    Rows present in every unit: Welch's t on logs with moderated variances of each side (`moderated.spread`).
    Rows absent somewhere: Welch's t on the values themselves, their own variance only. For a row that one
    side lacks altogether, p is the chance of such a split of units where that chance exceeds alpha: three
    runs with a row and three without prove little.
    """
    import numpy as np

    if len(base) == 0:
        return []
    left, right = _table(base), _table(head)
    enough = min(left.shape[1], right.shape[1]) > 0 and left.shape[1] + right.shape[1] >= ENOUGH
    held = (left > 0).any(axis=1) | (right > 0).any(axis=1)
    tested = (np.asarray(weights, dtype=np.float64) >= min_share) & held & enough
    whole = tested & (left > 0).all(axis=1) & (right > 0).all(axis=1)
    found = {**_on_logs(left, right, whole, alpha), **_on_values(left, right, tested & ~whole, alpha)}
    q = _adjusted([found[row][3] for row in sorted(found)])
    adjusted = dict(zip(sorted(found), q, strict=True))
    return [
        RowTest(*found[row], adjusted[row], adjusted[row] <= alpha, True)
        if row in found
        else RowTest(_change(left[row], right[row]), None, None, None, None, False, False)
        for row in range(len(left))
    ]


Found = dict[int, tuple[float, float | None, float | None, float]]


def _table(values: Sequence[Sequence[float]]) -> Floats:
    import numpy as np

    table = np.asarray(values, dtype=np.float64)
    return table if table.ndim == 2 else table.reshape(len(values), -1)


def _adjusted(p: list[float]) -> list[float]:
    """p after Benjamini and Hochberg (1995)."""
    if not p:
        return []
    from scipy.stats import false_discovery_control

    return [float(value) for value in false_discovery_control(p)]


def _on_logs(left: Floats, right: Floats, which: npt.NDArray[np.bool_], alpha: float) -> Found:
    """Moderated Welch: the interval and p of each row that is present everywhere."""
    import numpy as np

    if not which.any():
        return {}
    sides = (np.log(left[which]), np.log(right[which]))
    by = _means(sides[1]) - _means(sides[0])
    low, high, p = _welch(by, _spreads(sides), (left.shape[1], right.shape[1]), alpha)
    back = (np.expm1(np.minimum(value, 700)) for value in (by, low, high))
    rows = zip(np.flatnonzero(which), *back, p, strict=True)
    return {int(row): (float(by), float(low), float(high), float(p)) for row, by, low, high, p in rows}


def _spreads(sides: tuple[Floats, Floats]) -> tuple[Spread, Spread]:
    """The moderated variance of each side; a side of one unit is taken to spread like the other."""
    import numpy as np

    alike = likeness(np.hstack([residuals(side) for side in sides]))
    return _both(*(spread(side, alike) if side.shape[1] > 1 else None for side in sides))


def _both(base: Spread | None, head: Spread | None) -> tuple[Spread, Spread]:
    one = base or head
    assert one is not None  # both sides together have four units or more
    return base or one, head or one


def _welch(
    by: Floats, spreads: tuple[Spread, Spread], counts: tuple[int, int], alpha: float
) -> tuple[Floats, Floats, Floats]:
    """Ends of the interval, and p; degrees of freedom by Satterthwaite. No spread at all leaves no doubt."""
    import numpy as np
    from scipy.special import stdtr, stdtrit

    parts = [one.variance / count for one, count in zip(spreads, counts, strict=True)]
    error = np.sqrt(parts[0] + parts[1])
    sure = error == 0
    divisor = sum(part**2 / one.free for part, one in zip(parts, spreads, strict=True))
    free = np.where(sure, 1.0, error**4) / np.where(sure, 1.0, divisor)
    reach = stdtrit(free, 1 - alpha / 2) * error
    p = 2 * stdtr(free, -np.abs(by) / np.where(sure, 1.0, error))
    return by - reach, by + reach, np.where(sure, np.where(by == 0, 1.0, 0.0), p)


def _on_values(left: Floats, right: Floats, which: npt.NDArray[np.bool_], alpha: float) -> Found:
    """Welch on the values themselves, in parts of the mean of all units, for rows absent somewhere."""
    found: Found = {}
    for row in which.nonzero()[0]:
        scale = max(left[row].max(), right[row].max())
        found[int(row)] = _one(left[row] / scale, right[row] / scale, alpha)
    return found


def _one(left: Floats, right: Floats, alpha: float) -> tuple[float, float | None, float | None, float]:
    by = right.mean(keepdims=True) - left.mean(keepdims=True)
    spreads = _both(_own(left), _own(right))
    low, high, p = (float(value[0]) for value in _welch(by, spreads, (len(left), len(right)), alpha))
    change, centre = _change(left, right), float(left.mean())
    if left.any() and right.any():
        return change, low / centre, high / centre, p
    chance = 2 / math.comb(len(left) + len(right), len(left))
    return change, None, None, chance if chance > alpha else p


def _own(side: Floats) -> Spread | None:
    import numpy as np

    if len(side) < 2:
        return None
    return Spread(side.var(ddof=1, keepdims=True), np.array([len(side) - 1.0]))


def _change(left: Floats, right: Floats) -> float:
    """The relative change of the mean."""
    base, head = (float(side.mean()) if side.size else 0.0 for side in (left, right))
    if not base:
        return math.inf if head else 0.0
    return head / base - 1


def _means(side: Floats) -> Floats:
    """The mean of each row, and exactly the value where all of a row are the same."""
    means: Floats = side[:, 0] + (side - side[:, :1]).mean(axis=1)
    return means


FEWEST = 5  # rows that vary, below which nothing is known of how variances scatter


@dataclass(frozen=True)
class Spread:
    """Of each row the variance of a unit, and its degrees of freedom."""

    variance: Floats
    free: Floats


def spread(values: Floats, alike: float) -> Spread:
    """The moderated variance of each row of `values` (rows by units, two units or more).

    No row gets more degrees of freedom than all rows have together, as in Smyth's `limma`. Rows of one run
    share its fate: where their squared correlation is `alike`, so many rows count as
    rows / (1 + (rows - 1) alike). Rows that do not vary stay out of the estimate, and are drawn towards it.
    """
    import numpy as np

    own = values.shape[1] - 1
    seen = (residuals(values) ** 2).sum(axis=1) / own
    varying = int((seen > 0).sum())
    if varying < FEWEST:
        return Spread(seen, np.full(len(seen), float(own)))
    centre, prior = common(seen[seen > 0], own)
    if math.isinf(prior):
        variance = np.full(len(seen), centre)
    else:
        variance = (prior * centre + own * seen) / (prior + own)
    together = own * varying / (1 + (varying - 1) * alike)
    return Spread(variance, np.full(len(seen), min(prior + own, together)))


def residuals(values: Floats) -> Floats:
    """Each row less its mean; exactly 0 where all of a row are the same."""
    apart: Floats = values - values[:, :1]
    apart -= apart.mean(axis=1, keepdims=True)
    return apart


def likeness(apart: Floats) -> float:
    """The mean squared correlation of two rows, from their residuals; 1 for a single row.

    The variances of rows with correlation r have correlation r². Few units show more than there is (rows of
    d degrees of freedom that have nothing to do with each other 1 / d): too much of it errs to the safe side.
    """
    import numpy as np

    size = np.sqrt((apart**2).sum(axis=1, keepdims=True))
    scaled = (apart / np.where(size > 0, size, 1.0))[size[:, 0] > 0]
    count = len(scaled)
    if count < 2:
        return 1.0
    squares = float(((scaled.T @ scaled) ** 2).sum())  # of all pairs, without a table of rows by rows
    return (squares - count) / (count * (count - 1))


def common(variances: Floats, own: int) -> tuple[float, float]:
    """s0² and d0 by moments of logs; d0 is inf where variances scatter no more than chance makes them."""
    import numpy as np
    from scipy.special import digamma, polygamma

    logs = np.log(variances) - digamma(own / 2) + math.log(own / 2)
    centre = float(logs.mean())
    excess = float(logs.var(ddof=1) - polygamma(1, own / 2))
    if excess <= 0:
        return math.exp(centre), math.inf
    prior = 2 * inverse_trigamma(excess)
    return math.exp(centre + float(digamma(prior / 2)) - math.log(prior / 2)), prior


def inverse_trigamma(value: float) -> float:
    """The x whose trigamma is `value` > 0, by Newton's method as in Smyth's appendix."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        here = float(polygamma(1, x))
        step = here * (1 - here / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-10:
            break
    return x
