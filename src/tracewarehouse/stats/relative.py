"""The change between two groups of positive values, in parts of the first."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tracewarehouse.stats.shift import shift


def shifted(base: Sequence[float], head: Sequence[float], alpha: float = 0.05) -> tuple[float, float, float]:
    """The change (0.03 is +3 %) and the ends of its interval of confidence 1 - alpha, by logs.

    Takes values above 0, four or more of both sides together.
    """
    found = shift([math.log(value) for value in base], [math.log(value) for value in head], alpha)
    return math.expm1(found.by), math.expm1(found.low), math.expm1(found.high)
