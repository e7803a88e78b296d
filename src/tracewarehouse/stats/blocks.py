"""Blocks of steps: long enough that one says little about the next."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST = 300  # blocks of a run; more cost time and tell no more
NEARLY_ONE = 0.95


def blocks(times: Sequence[float]) -> tuple[range, ...]:
    """The steps of one run, by their index, in blocks of nearly equal length that hold each step once.

    Single steps where neighbours are not correlated; else blocks of twice the time in which the correlation
    fades, (1 + r) / (1 - r) for a process with autocorrelation r of neighbours. r is taken from ranks, since
    times have heavy tails, and corrected for its bias in short series (Marriott and Pope 1954).
    """
    count = len(times)
    if not count:
        return ()
    length = max(_length(times), math.ceil(count / MOST))
    pieces = max(1, count // length)
    ends = [count * piece // pieces for piece in range(pieces + 1)]
    return tuple(range(start, end) for start, end in zip(ends, ends[1:], strict=False))


def _length(times: Sequence[float]) -> int:
    found = neighbours(times) if len(times) > 3 else 0.0
    found = min(found + (1 + 3 * found) / len(times), NEARLY_ONE)
    if found < 1 / math.sqrt(len(times)):  # one standard error: to miss a correlation is the worse mistake
        return 1
    return math.ceil(2 * (1 + found) / (1 - found))


def neighbours(times: Sequence[float]) -> float:
    """The autocorrelation of ranks at lag 1; 0 where all are equal."""
    import numpy as np

    _, place, counts = np.unique(np.asarray(times), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    ranks = ranks - ranks.mean()
    whole = float(ranks @ ranks)
    return float(ranks[1:] @ ranks[:-1]) / whole if whole else 0.0
