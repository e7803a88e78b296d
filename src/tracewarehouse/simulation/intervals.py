"""Lengths of unions, overlaps and gaps of spans of time, by walking along their edges."""

from __future__ import annotations

from collections.abc import Iterator

Span = tuple[int, int]


def merged(spans: list[Span]) -> list[Span]:
    """The union as spans that do not touch, in order."""
    union: list[Span] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def total(spans: list[Span]) -> int:
    """The length of the union."""
    return sum(end - start for start, end in merged(spans))


def split(first: list[Span], second: list[Span], third: list[Span]) -> tuple[int, int, int]:
    """The length of the first, of the second without it, of the third without both."""
    one, two, three = total(first), total(first + second), total(first + second + third)
    return one, two - one, three - two


def overlapped(spans: list[Span], others: list[Span]) -> tuple[int, int]:
    """The length of the union of the spans, and of what the others cover of it."""
    whole = total(spans)
    return whole, whole + total(others) - total(spans + others)


def gaps(spans: list[Span]) -> Iterator[tuple[int, int, int]]:
    """(place of the span that ends it, start, length) of each gap; spans by start and end."""
    reached: int | None = None
    for place, (start, end) in enumerate(spans):
        if reached is not None and start > reached:
            yield place, reached, start - reached
        reached = end if reached is None else max(reached, end)


def stream_overlaps(spans: list[Span]) -> Iterator[int]:
    """How far each span begins before an earlier one ended; spans by start and end."""
    reached: int | None = None
    for start, end in spans:
        if reached is not None and reached > start:
            yield min(reached, end) - start
        reached = end if reached is None else max(reached, end)
