"""Level changes in many series at once, such as all kernels of all runs, with control of false discoveries.

The scan of rank sums after Pettitt (1979) on each series. The distribution of its largest value depends on
the number of runs only; it is simulated. p is adjusted after Benjamini and Hochberg over all series.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tracewarehouse.compare.stats.points import MIN_RUNS, rank_scan
from tracewarehouse.compare.stats.rows import adjusted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

_EDGE = 3  # runs on either side of a change
_DRAWS = 4_000
_SEED = 20_261_123
_TAIL = 0.01  # below this p, the tail of a normal distribution continues the simulated one


@dataclass(frozen=True)
class PartChange:
    """A series, by its index, that changes from the run at index `at` on: its medians before and after."""

    part: int
    at: int
    before: float
    after: float
    q: float


def part_changes(series: Sequence[Sequence[float]], alpha: float = 0.05) -> list[PartChange]:
    """The series that change, of all with the same runs in time order; the smallest q first.

    At most a share of alpha of them is there by chance, for runs that do not depend on each other.
    """
    import numpy as np

    scans = [rank_scan(np.asarray(values, dtype=np.float64), _EDGE) for values in series]
    known = [(part, scan) for part, scan in enumerate(scans) if scan is not None]
    if not known:
        return []
    q_values = adjusted([scan_p(scan.deviations, len(series[part])) for part, scan in known])
    found = []
    for (part, scan), q in zip(known, q_values, strict=True):
        if q <= alpha:
            values = np.asarray(series[part], dtype=np.float64)
            sides = float(np.median(values[: scan.index])), float(np.median(values[scan.index :]))
            found.append(PartChange(part, scan.index, *sides, q))
    return sorted(found, key=lambda each: each.q)


def run_factors(series: Sequence[Sequence[float]]) -> list[float]:
    """What most of the series have in common in each run, as a factor around 1.

    The weighted median of value over median, weighted by the median: series that are less than half of the
    sum do not move it.
    """
    import numpy as np

    values = np.asarray(series, dtype=np.float64)
    usual = np.median(values, axis=1) if len(values) else np.zeros(0)
    if not usual.any():
        return [1.0] * (values.shape[1] if values.ndim == 2 else 0)
    ratios, weights = values[usual > 0] / usual[usual > 0, None], usual[usual > 0]
    order = np.argsort(ratios, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0)
    middle = (reached < weights.sum() / 2).sum(axis=0)
    factors = np.take_along_axis(ratios, np.take_along_axis(order, middle[None, :], axis=0), axis=0)[0]
    return [float(factor) or 1.0 for factor in factors]


def scan_p(deviations: float, runs: int) -> float:
    """P(the largest rank sum of this many runs without a change has at least these deviations)."""
    null = _null(runs)
    beyond = int((null >= deviations).sum())
    if beyond >= _TAIL * len(null):
        return (1 + beyond) / (len(null) + 1)
    edge = float(null[-int(_TAIL * len(null))])
    return _TAIL * deviations / edge * math.exp((edge**2 - deviations**2) / 2)


@lru_cache(maxsize=16)
def _null(runs: int) -> Floats:
    """Largest deviations of random orders, in ascending order."""
    import numpy as np

    if runs < MIN_RUNS:
        return np.zeros(0)
    chance = np.random.default_rng([_SEED, runs])
    before = np.arange(_EDGE, runs - _EDGE + 1)
    expected = before * (runs + 1) / 2
    deviation = np.sqrt(before * (runs - before) * (runs + 1) / 12)
    found = []
    for _ in range(_DRAWS // 100):
        ranks = chance.random((100, runs)).argsort(axis=1) + 1.0
        sums = ranks.cumsum(axis=1)[:, before - 1]
        found.append((np.abs(sums - expected) / deviation).max(axis=1))
    return np.sort(np.concatenate(found))
