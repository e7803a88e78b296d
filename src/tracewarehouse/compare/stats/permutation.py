"""Two-sample permutation test of the better of two statistics: the difference of means, and the rank sum.

Means have more power for normal values, ranks for values with outliers. For every split of all values into
two sides of the given sizes, both statistics are computed; each split gets, for each statistic, the share
of splits that are at least as extreme, and its combined statistic is the smaller of the two shares. p is
the share of splits whose combined statistic is at most that of the observed split, which is exact for
exchangeable values. The means are equivalent to Student's t here: with the same values in total, one grows
with the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

MIN_SPLITS = 200  # fewer are too coarse: 5 + 5 values have 252, 4 + 4 have 70
MAX_SPLITS = 20_000  # beyond that, splits are drawn; 8 + 8 values have 12,870
DRAWN_SPLITS = 10_000
MAX_SIDE = 20  # beyond that on both sides, ranks alone are as good and take no time
_SEED = 20_260_504
_TIE = 1e-9  # sums that differ by less, relative to the largest value, are equal
_HALVINGS = 14  # of the distance from the estimate to the largest possible shift


def has_enough_splits(base: int, head: int, alpha: float) -> bool:
    """Whether the test applies to sides of these sizes and can reject at this level."""
    number = math.comb(base + head, base)
    number = number if number <= MAX_SPLITS else DRAWN_SPLITS
    return min(base, head) <= MAX_SIDE and number >= MIN_SPLITS and 2 / number <= alpha


@lru_cache(maxsize=64)
def splits(base: int, head: int) -> Floats:
    """A row per split, with 1 for the values of head; columns are base, then head. The first is observed.

    All splits if there are at most `MAX_SPLITS`, else random ones. Mirrored splits of equal sides have the
    same statistics, so that one of each pair is listed.
    """
    import numpy as np

    size = base + head
    if math.comb(size, base) <= MAX_SPLITS:
        rest = combinations(range(size), base)
        rows = [row for row in rest if base != head or row[0] == 0]
        table = np.ones((len(rows), size))
        table[np.arange(len(rows))[:, None], np.array(rows)] = 0
        return table
    chance = np.random.default_rng([_SEED, base, head])
    order = chance.random((DRAWN_SPLITS, size)).argsort(axis=1)
    table = np.where(order < head, 1.0, 0.0)
    table[0] = [0.0] * base + [1.0] * head
    return table


def p_value(base: Floats, head: Floats) -> float:
    """p of the observed split of two samples."""
    import numpy as np

    values = np.concatenate([base, head])
    centered = np.stack([each - each.mean() for each in (values, midranks(values))], axis=1)
    table = splits(len(base), len(head))
    extent = np.abs(table @ centered)
    ties = _TIE * np.abs(centered).max(axis=0)
    at_least = (extent >= extent[0] - ties).sum(axis=0)
    count = len(table)
    fewest = int(at_least.min())
    if fewest == count:
        return 1.0
    # A split is at least as extreme in one statistic if fewer than `fewest` + 1 splits reach its value there.
    edges = np.partition(extent, count - fewest - 1, axis=0)[count - fewest - 1]
    return float((extent > edges + ties).any(axis=1).sum()) / count


def midranks(values: Floats) -> Floats:
    """The rank of each value, from 1; equal values have the mean of their ranks."""
    import numpy as np

    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[index])


def interval(base: Floats, head: Floats, estimate: float, alpha: float, p: float) -> tuple[float, float]:
    """The shifts that the test does not reject, and the estimate; it contains 0 exactly if `p` > alpha."""
    import numpy as np

    differences = np.subtract.outer(head, base)
    ends = float(differences.min()), float(differences.max())

    def rejected(by: float) -> bool:
        return p_value(base, head - by) <= alpha

    low, high = (_edge(rejected, estimate, end) for end in ends)
    if p > alpha:
        return min(low, 0.0), max(high, 0.0)
    if low <= 0 <= high:  # the accepted shifts need not be one interval; 0 is rejected, so it ends before
        beside = math.ulp(max(map(abs, ends)))
        return (beside, max(high, beside)) if estimate > 0 else (min(low, -beside), -beside)
    return low, high


def _edge(rejected: Callable[[float], bool], inside: float, end: float) -> float:
    """Where shifts become rejected between one that is accepted and the largest possible one."""
    if end == inside or not rejected(end):
        return end
    for _ in range(_HALVINGS):
        middle = (inside + end) / 2
        inside, end = (inside, middle) if rejected(middle) else (middle, end)
    return end
