"""Early warning: the newest runs of a series lean to one side, before a change of level is certain.

Two one-sided cumulative sums (Page 1954) of deviations from the runs before, in robust standard deviations
and clipped, so that one bad run is not enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewarehouse.compare.stats.earlier import NORMAL, autocorrelation

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MIN_BASE, MAX_BASE = 20, 40  # runs before, that a run is compared with
LIMITS = {"low": 4.0, "normal": 3.5, "high": 3.0}
_CLIP = 2.5
_FEW = 5  # the limit grows by 5 / n for a base of n runs, whose spread is uncertain
_SLACK = 1.0  # deviations that the sums forgive per run


@dataclass(frozen=True)
class Suspicion:
    """The level may have changed at index `at`, by about `change` (0.03 is +3 %), seen in `runs` runs."""

    at: int
    change: float
    runs: int


def suspicion(values: Sequence[float], sensitivity: str = "normal") -> Suspicion | None:
    """Whether the newest values, all above 0 and without a known change among them, lean to one side."""
    import numpy as np

    if len(values) <= MIN_BASE or min(values) <= 0:
        return None
    logs = np.log(np.asarray(values, dtype=np.float64))
    found = max((_lean(logs * sign, sensitivity) for sign in (1.0, -1.0)), key=lambda each: each[1])
    start, excess = found
    if excess <= 0:
        return None
    base = logs[max(0, start - MAX_BASE) : start]
    change = math.expm1(float(np.median(logs[start:]) - np.median(base)))
    return Suspicion(start, change, len(logs) - start)


def _lean(logs: Floats, sensitivity: str) -> tuple[int, float]:
    """Where the sum of deviations upward began, which has not ended, and how far it is above its limit."""
    start, total, most, limit, center, spread = 0, 0.0, 0.0, math.inf, 0.0, 1.0
    for at in range(MIN_BASE, len(logs)):
        if not total:  # the base stays while the sum lasts, so that a change does not become its own base
            start, most = at, 0.0
            limit, center, spread = _base(logs[max(0, at - MAX_BASE) : at], LIMITS[sensitivity])
        deviation = (float(logs[at]) - center) / spread if spread else 0.0
        total = max(0.0, total + min(max(deviation, -_CLIP), _CLIP) - _SLACK)
        most = max(most, total) if total else 0.0
    return start, most - limit


def _base(logs: Floats, limit: float) -> tuple[float, float, float]:
    """The limit for runs after these, their median and their robust standard deviation."""
    import numpy as np

    center = float(np.median(logs))
    spread = NORMAL * float(np.median(np.abs(logs - center))) * (1 + 2 / len(logs))
    r = autocorrelation(logs)
    dependent = math.sqrt((1 + r) / (1 - r)) if r > 2 / math.sqrt(len(logs)) else 1.0
    return limit * dependent * (1 + _FEW / len(logs)), center, spread
