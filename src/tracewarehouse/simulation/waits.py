"""How long a queue was, from when each of its rows came and went: over its changes, and over time."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate

SHARES = (50, 95, 99)


def queue(waits: list[tuple[int, int]]) -> tuple[int | None, ...]:
    """Span, time waited, time with a row waiting, most rows, then percentiles by change and by time."""
    if not waits:
        return (None,) * (4 + 2 * len(SHARES))
    turns = sorted([(came, 0) for came, _ in waits] + [(went, 1) for _, went in waits])
    after, held = Counter[int](), Counter[int]()
    length, before = 0, turns[0][0]
    for at, goes in turns:
        held[length] += at - before
        length += -1 if goes else 1
        after[length] += 1
        before = at
    span = turns[-1][0] - turns[0][0]
    waited = sum(went - came for came, went in waits)
    return (span, waited, span - held[0], max(after), *_percentiles(after), *_percentiles(held))


def _percentiles(weights: Counter[int]) -> list[int | None]:
    """Of each share the smallest value that so many of 100 parts of the weight do not exceed."""
    total = weights.total()
    if not total:
        return [None] * len(SHARES)
    values = sorted(weights)
    up_to = list(accumulate(weights[value] for value in values))
    return [values[bisect_left(up_to, share * total, key=lambda part: 100 * part)] for share in SHARES]
