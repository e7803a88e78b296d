"""Sums over GPU activities, launches and annotations for the expected results."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

KINDS = ("computation", "communication", "memory", "other")
LONG_CALL_NS, LONG_DELAY_NS = (
    50_000,
    100_000,
)  # thresholds of outliers: duration of a call, delay of its activity


def classes(spans: Mapping[str, list[Span]]) -> Iterator[tuple[str, int]]:
    """Time by the set of kinds that run concurrently, as (class, ns): a sweep over all edges."""
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
    """A call with its GPU activities; without a call, all activities of that state."""

    state: str
    api: str | None
    call_ns: int = 0
    rows: int = 0
    gpu_ns: int = 0
    delay_ns: int | None = None

    def row(self, length_ns: int, delay_ns: int | None) -> None:
        """Adds a GPU activity and its delay after the return of the call."""
        self.rows, self.gpu_ns = self.rows + 1, self.gpu_ns + length_ns
        if delay_ns is not None and (self.delay_ns is None or delay_ns < self.delay_ns):
            self.delay_ns = delay_ns


def launch_sums(launches: list[Launch], device: int) -> Iterator[tuple[object, ...]]:
    """Launch statistics by function: device, state, function, counts and sums."""
    found: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0] * 7)
    for each in launches:
        called = each.api is not None
        short = called and each.call_ns <= LONG_CALL_NS and each.rows > 0 and each.gpu_ns < each.call_ns
        delayed = each.delay_ns is not None and each.delay_ns > LONG_DELAY_NS
        values = (
            called,
            each.rows,
            short,
            each.call_ns > LONG_CALL_NS,
            delayed,
            each.call_ns,
            each.gpu_ns,
        )
        sums = found[each.state, each.api]
        for index, value in enumerate(values):
            sums[index] += value
    for (state, api), sums in found.items():
        yield (None if state == "no_gpu_activity" else device, state, api, *sums)


def annotation_sums(
    spans: Mapping[tuple[bool, str], list[Span]], device: int
) -> Iterator[tuple[object, ...]]:
    """Annotation statistics: on GPU or host, device, name, count, sum, union, min, median, max."""
    for (on_gpu, name), each in spans.items():
        lengths = sorted(end - start for start, end in each)
        middle = lengths[(len(lengths) - 1) // 2]
        sums = (len(lengths), sum(lengths), total(each), lengths[0], middle, lengths[-1])
        yield (on_gpu, device if on_gpu else None, name, *sums)


SHARES = (50, 95, 99)


def queue(waits: list[tuple[int, int]]) -> tuple[int | None, ...]:
    """Queue statistics: span, total wait, time not empty, maximum, percentiles by change and by time."""
    if not waits:
        return (None,) * (4 + 2 * len(SHARES))
    changes = sorted([(launched, 0) for launched, _ in waits] + [(started, 1) for _, started in waits])
    by_change, by_time = Counter[int](), Counter[int]()
    length, before = 0, changes[0][0]
    for at, is_start in changes:
        by_time[length] += at - before
        length += -1 if is_start else 1
        by_change[length] += 1
        before = at
    span_ns = changes[-1][0] - changes[0][0]
    waited = sum(started - launched for launched, started in waits)
    lengths = (*_percentiles(by_change), *_percentiles(by_time))
    return (span_ns, waited, span_ns - by_time[0], max(by_change), *lengths)


def _percentiles(weights: Counter[int]) -> list[int | None]:
    """Weighted percentiles: the smallest value whose cumulative weight reaches the share."""
    total = weights.total()
    if not total:
        return [None] * len(SHARES)
    values = sorted(weights)
    up_to = list(accumulate(weights[value] for value in values))
    return [values[bisect_left(up_to, share * total, key=lambda part: 100 * part)] for share in SHARES]


Span = tuple[int, int]


def merged(spans: list[Span]) -> list[Span]:
    """The union as sorted, disjoint spans."""
    union: list[Span] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def total(spans: list[Span]) -> int:
    """Length of the union."""
    return sum(end - start for start, end in merged(spans))


def split(first: list[Span], second: list[Span], third: list[Span]) -> tuple[int, int, int]:
    """Length of the first, of the second without the first, of the third without both."""
    one, two, three = total(first), total(first + second), total(first + second + third)
    return one, two - one, three - two


def overlapped(spans: list[Span], others: list[Span]) -> tuple[int, int]:
    """Length of the union of the spans, and of its overlap with the others."""
    length = total(spans)
    return length, length + total(others) - total(spans + others)


def gaps(spans: list[Span]) -> Iterator[tuple[int, int, int]]:
    """Each gap as (index of the span that ends it, start, length); spans sorted by start and end."""
    reached: int | None = None
    for place, (start, end) in enumerate(spans):
        if reached is not None and start > reached:
            yield place, reached, start - reached
        reached = end if reached is None else max(reached, end)


def stream_overlaps(spans: list[Span]) -> Iterator[int]:
    """Overlap of each span with earlier ones; spans sorted by start and end."""
    reached: int | None = None
    for start, end in spans:
        if reached is not None and reached > start:
            yield min(reached, end) - start
        reached = end if reached is None else max(reached, end)
