"""Sums over GPU rows, launches and annotations by what they have in common, for the truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tracewarehouse.simulation.intervals import Span, total

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
        yield (None if state == "no_gpu_row" else device, state, api, *sums)


def annotation_sums(
    spans: Mapping[tuple[bool, str], list[Span]], device: int
) -> Iterator[tuple[object, ...]]:
    """Whether on the GPU, device, name, then count, sum, union, least, median and longest."""
    for (on_gpu, name), each in spans.items():
        lengths = sorted(end - start for start, end in each)
        middle = lengths[(len(lengths) - 1) // 2]
        sums = (len(lengths), sum(lengths), total(each), lengths[0], middle, lengths[-1])
        yield (on_gpu, device if on_gpu else None, name, *sums)
