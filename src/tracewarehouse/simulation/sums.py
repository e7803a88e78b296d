"""Sums over GPU rows, launches and annotations by what they have in common, for the truth."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

KINDS = ("computation", "communication", "memory", "other")
LONG_CALL_NS, LATE_NS = 50_000, 100_000  # from where a call, and a row's start after it, is an outlier


def classes(spans: Mapping[str, list[Span]]) -> Iterator[tuple[str, int]]:
    """Time by the kinds that ran at once: (class, ns), by walking from edge to edge."""
    edges: list[tuple[int, str, int]] = []
    for kind, rows in spans.items():
        edges += [(start, kind, 1) for start, _ in rows] + [(end, kind, -1) for _, end in rows]
    running: dict[str, int] = defaultdict(int)
    found: dict[str, int] = defaultdict(int)
    before = 0
    for at, kind, change in sorted(edges):
        name = "+".join(each for each in KINDS if running[each])
        found[name] += at - before if name else 0
        running[kind] += change
        before = at
    yield from sorted((name, ns) for name, ns in found.items() if ns)


@dataclass
class Launch:
    """A call with its GPU rows; without a call, all such rows of a state together."""

    state: str
    api: str | None
    call_ns: int = 0
    rows: int = 0
    gpu_ns: int = 0
    delay_ns: int | None = None

    def row(self, length_ns: int, delay_ns: int | None) -> None:
        """Adds a GPU row, and how long after the call's return it began."""
        self.rows, self.gpu_ns = self.rows + 1, self.gpu_ns + length_ns
        if delay_ns is not None and (self.delay_ns is None or delay_ns < self.delay_ns):
            self.delay_ns = delay_ns


def launch_sums(launches: list[Launch], device: int) -> Iterator[tuple[object, ...]]:
    """Device, state, function, then counts and sums, of calls by function."""
    found: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0] * 7)
    for each in launches:
        called = each.api is not None
        short = called and each.call_ns <= LONG_CALL_NS and each.rows > 0 and each.gpu_ns < each.call_ns
        late = each.delay_ns is not None and each.delay_ns > LATE_NS
        values = (called, each.rows, short, each.call_ns > LONG_CALL_NS, late, each.call_ns, each.gpu_ns)
        sums = found[each.state, each.api]
        for place, value in enumerate(values):
            sums[place] += value
    for (state, api), sums in found.items():
        yield (None if state == "no_gpu_activity" else device, state, api, *sums)


def annotation_sums(
    spans: Mapping[tuple[bool, str], list[Span]], device: int
) -> Iterator[tuple[object, ...]]:
    """Whether on the GPU, device, name, then count, sum, union, least, median and longest."""
    for (on_gpu, name), each in spans.items():
        lengths = sorted(end - start for start, end in each)
        middle = lengths[(len(lengths) - 1) // 2]
        sums = (len(lengths), sum(lengths), total(each), lengths[0], middle, lengths[-1])
        yield (on_gpu, device if on_gpu else None, name, *sums)


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
