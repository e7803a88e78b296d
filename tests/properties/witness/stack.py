"""Nesting of slices with a plain stack, to check `nesting`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Slice:
    """A slice of a thread; the end is exclusive."""

    event_id: int
    thread: int
    start: int
    end: int


@dataclass
class Place:
    """The position of a slice in the tree of its thread."""

    parent_id: int | None
    depth: int
    pre: int
    post: int
    crosses: bool


def nest(slices: Iterable[Slice]) -> dict[int, Place]:
    """Event id → position: the parent is the last started slice that is still open."""
    places: dict[int, Place] = {}
    stack: list[Slice] = []
    for pre, new in enumerate(sorted(slices, key=_order), start=1):
        while stack and (stack[-1].thread != new.thread or stack[-1].end <= new.start):
            places[stack.pop().event_id].post = pre - 1
        above = stack[-1] if stack else None
        crosses = above is not None and new.end > above.end
        places[new.event_id] = Place(above and above.event_id, len(stack) + 1, pre, pre, crosses)
        stack.append(new)
    for rest in stack:
        places[rest.event_id].post = len(places)
    return places


def ancestors(places: dict[int, Place], event_id: int) -> Iterator[int]:
    """The enclosing slices, innermost first."""
    parent = places[event_id].parent_id
    while parent is not None:
        yield parent
        parent = places[parent].parent_id


def _order(part: Slice) -> tuple[int, int, int, int]:
    return part.thread, part.start, part.start - part.end, part.event_id
