"""Which captured launches a replayed GPU activity may come from, by the names in both lists.

A graph replays the captured launches in their order, so the replayed names are those of the capture, except
for launches that were not replayed (a node without work, or the end of the recording). An edit script from
capture to replay may therefore only delete; where several such scripts exist, positions are a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Largest share of the captured launches that may be missing in a replay; one may be missing in a longer list.
_MISSING: Final = 0.01
_LAUNCHES_PER_MISSING: Final = 10


@dataclass(frozen=True)
class Alignment:
    """For each replayed activity, its possible positions in the capture; `exact`: both lists are equal."""

    positions: tuple[tuple[int, ...], ...]
    exact: bool


def align(captured: Sequence[str], replayed: Sequence[str], *, may_be_cut: bool) -> Alignment | None:
    """The alignment of a replay with a capture; None if they are not of the same graph.

    `may_be_cut`: the recording may have ended during the replay, so that its last activities are missing.
    """
    first = _earliest(captured, replayed)
    if not first:
        return None
    begun = captured[: first[-1] + 1] if may_be_cut else captured
    deleted = len(begun) - len(replayed)
    if deleted > max(1, _MISSING * len(begun)) or deleted * _LAUNCHES_PER_MISSING > len(replayed):
        return None
    from_end = _earliest(begun[::-1], replayed[::-1]) or first
    last = [len(begun) - 1 - position for position in reversed(from_end)]
    positions = tuple(
        tuple(place for place in range(low, high + 1) if begun[place] == name)
        for low, high, name in zip(first, last, replayed, strict=True)
    )
    return Alignment(positions, len(captured) == len(replayed))


def _earliest(captured: Sequence[str], replayed: Sequence[str]) -> list[int] | None:
    """The first position of each replayed name after that of the one before; None if one has none."""
    found, position = [], 0
    for name in replayed:
        while position < len(captured) and captured[position] != name:
            position += 1
        if position == len(captured):
            return None
        found.append(position)
        position += 1
    return found
