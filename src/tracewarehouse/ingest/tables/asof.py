"""The last given row at or before each asked one, by sorting both together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Keys = Sequence[NDArray[Any]]


def last_at_or_before(given: Keys, asked: Keys, equal: int) -> NDArray[np.int64]:
    """The position of the last given row that is not after each asked row; -1 where there is none.

    Both are key columns, the most significant first. The first `equal` keys must be equal in both rows, the
    others order them. Of given rows with equal keys the last one counts.
    """
    count = len(given[0])
    if not count or not len(asked[0]):
        return np.full(len(asked[0]), -1, np.int64)
    keys = [np.concatenate((one, other)) for one, other in zip(given, asked, strict=True)]
    order = np.lexsort(keys[::-1])  # stable: given rows come before asked ones of the same keys
    is_given = order < count
    latest = np.maximum.accumulate(np.where(is_given, np.arange(len(order)), -1))
    places = np.flatnonzero(~is_given)
    latest = latest[places]
    found = order[latest]
    same = latest >= 0
    for key in keys[:equal]:
        same &= key[found] == key[order[places]]
    answer = np.empty(len(asked[0]), np.int64)
    answer[order[places] - count] = np.where(same, found, -1)
    return answer


def running_max_before(
    groups: NDArray[Any], values: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of rows sorted by group: the largest value of earlier rows of the group, and whether there is one."""
    if not len(values):
        return values, np.zeros(0, np.bool_)
    starts = np.append(True, groups[1:] != groups[:-1])
    ranked, rank = np.unique(values, return_inverse=True)
    # One number that rises from group to group, so that one pass over all rows stays within each.
    offset = (np.cumsum(starts) - 1) * len(ranked)
    highest = np.maximum.accumulate(rank + offset) - offset
    return ranked[np.append(0, highest[:-1])], ~starts
