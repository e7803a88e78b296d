"""Runs that are far from the others of their side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tracewarehouse.compare.stats.earlier import NORMAL
from tracewarehouse.compare.stats.permutation import MIN_SPLITS, has_enough_splits

_FAR = 6.0  # robust standard deviations
NOT_ROBUST = "with fewer than 5 + 5 runs one bad run may hide a change, or look like one"
_HAS_OUTLIER = "one run of {} is far from the others: {}"


def outlier_notices(base: Sequence[float], head: Sequence[float]) -> Iterator[str]:
    """A notice if the sides are too small for a test that withstands outliers."""
    if has_enough_splits(len(base), len(head), 2 / MIN_SPLITS):
        return
    far = [
        name for name, side, other in (("base", base, head), ("head", head, base)) if _has_far(side, other)
    ]
    yield _HAS_OUTLIER.format(" and of ".join(far), NOT_ROBUST) if far else NOT_ROBUST


def _has_far(side: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a value of a side is far from the others, by the deviations of all others from their side."""
    aside = [abs(value - median(other)) for value in other]
    for at, value in enumerate(side):
        rest = [*side[:at], *side[at + 1 :]]
        if len(rest) < 2:
            return False
        others = sorted([*aside, *(abs(each - median(rest)) for each in rest)])
        if abs(value - median(rest)) > _FAR * NORMAL * median(others) > 0:
            return True
    return False
