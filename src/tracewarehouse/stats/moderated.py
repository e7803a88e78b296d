"""Variances of many rows with few values each, drawn towards what rows have in common.

Smyth (2004), "Linear models and empirical Bayes methods for assessing differential expression", section 6.2:
true variances scatter around one of `s0`² as scaled inverse chi-squares of `d0` degrees of freedom; both are
estimated from the logs of the variances seen. With d degrees of freedom of its own, a row's variance becomes
(d0 s0² + d s²) / (d0 + d), with d0 + d degrees of freedom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

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
