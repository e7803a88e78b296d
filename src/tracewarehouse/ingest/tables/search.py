"""Vectorized searches among intervals sorted by start, in near-linear time.

The parent of an interval is the last one before it that has not ended: starts ascend, so an interval that
ends after a later start was open at every start in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.integer[Any]]

# Rounds of following parent links before the rest (deep stacks that end together) is searched in a tree.
_ROUNDS: Final = 24
# From this count on, links are 32-bit: half as large, though slower to follow.
_LARGE: Final = 1 << 21


def enclosing(starts: NDArray[np.int64], ends: NDArray[np.int64], lanes: Positions) -> NDArray[np.int32]:
    """For each interval the last one before it in its lane that ends after its start; -1 for none.

    Starts ascend within a lane; lane k has the positions from `lanes[k]` to `lanes[k + 1]`.
    """
    count = len(starts)
    parent = np.arange(-1, count - 1, dtype=np.int64 if count < _LARGE else np.int32)
    parent[lanes[:-1][lanes[:-1] < count]] = -1
    seeker = np.flatnonzero(ends[:-1] <= starts[1:]).astype(parent.dtype)
    np.add(seeker, 1, out=seeker)
    seeker = seeker[parent[seeker] >= 0]
    found, start = parent[seeker], starts[seeker]
    for _ in range(_ROUNDS):
        if not seeker.size:
            return parent.astype(np.int32, copy=False)
        # All intervals between a candidate and its parent had ended when the candidate started.
        found = parent[found]
        parent[seeker] = found
        closed = (found >= 0) & (ends[found] <= start)
        seeker, found, start = seeker[closed], found[closed], start[closed]
    found = last_reaching(ends, found, start)
    first = lanes[np.searchsorted(lanes, seeker, side="right") - 1]
    parent[seeker] = np.where(found >= first, found, -1)
    return parent.astype(np.int32, copy=False)


def last_reaching(
    ends: NDArray[np.int64], before: Positions, times: NDArray[np.int64], inclusive: bool = False
) -> NDArray[np.int64]:
    """The last position less than `before` whose end is greater than the time, or equal if `inclusive`.

    -1 for none. Climbs a tree of maxima and descends again: logarithmic time per query.
    """
    reaches = np.greater_equal if inclusive else np.greater
    node = before.astype(np.int64) - 1
    level_of = np.full(len(node), -1, np.int8)
    active = np.flatnonzero(node >= 0)
    near = reaches(ends[node[active]], times[active])  # usually it is the very last
    level_of[active[near]] = 0
    active = active[~near]
    active = active[node[active] > 0]
    tree = _maxima(ends) if active.size else []
    for level, maxima in enumerate(tree):
        left = node[active] - 1
        hit = ((left & 1) == 0) & reaches(maxima[left], times[active])
        node[active[hit]] -= 1
        level_of[active[hit]] = level
        active = active[~hit]
        node[active] >>= 1
        active = active[node[active] > 0]
    for level in range(len(tree) - 1, 0, -1):
        below = tree[level - 1]
        selected = np.flatnonzero(level_of == level)
        right = 2 * node[selected] + 1
        there = right < len(below)
        there &= reaches(below[np.minimum(right, len(below) - 1)], times[selected])
        node[selected] = right - ~there
        level_of[selected] = level - 1
    node[level_of < 0] = -1
    return node


def _maxima(values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The values, and above them the maxima of pairs, up to the overall maximum."""
    tree = [values]
    while len(tree[-1]) > 1:
        low = tree[-1]
        pairs = np.maximum(low[0 : len(low) - 1 : 2], low[1::2])
        tree.append(np.append(pairs, low[-1:]) if len(low) % 2 else pairs)
    return tree


def last_before(
    groups: Positions,
    times: NDArray[np.int64],
    query_groups: Positions,
    query_times: NDArray[np.int64],
) -> NDArray[np.int64]:
    """For each query the last item of its group at or before its time, -1 for none.

    Of items with equal times the last in the input counts.
    """
    count = len(groups)
    group, time = np.concatenate((groups, query_groups)), np.concatenate((times, query_times))
    is_query = np.repeat(np.array([False, True]), (count, len(query_groups)))
    order = np.lexsort((is_query, time, group))
    is_item = order < count
    position = np.maximum.accumulate(np.where(is_item, np.arange(len(order)), -1))[~is_item]
    item = np.where(position >= 0, order[position], -1) if count else np.full(len(position), -1)
    found = np.empty(len(query_groups), np.int64)
    found[order[~is_item] - count] = item
    same = found >= 0
    same[same] = groups[found[same]] == query_groups[same]
    return np.where(same, found, -1)


def group_numbers(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """A number for each distinct combination of keys."""
    order = np.lexsort(keys)
    if not order.size:
        return order
    new = np.zeros(len(order), np.bool_)
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new)
    return numbers
