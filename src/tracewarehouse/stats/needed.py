"""How many runs it takes."""

from __future__ import annotations

import math
from statistics import NormalDist

FEWEST = 2


def runs_needed(spread: float, shift: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs per side that find a shift with this power; both numbers on the scale of logs of runs' medians.

    Normal approximation with the correction of Guenther (1981) for a spread that is itself estimated.
    """
    side, found = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(power)
    plain = 2 * ((side + found) * spread / shift) ** 2
    return max(FEWEST, math.ceil(plain + side**2 / 4))
