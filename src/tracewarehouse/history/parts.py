"""Which kernels changed between which runs, from recorded results: all kernels at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError
from tracewarehouse.history.read import recorded_files
from tracewarehouse.history.results import RecordedAnalysis, kernel_values
from tracewarehouse.render.text import one_line, plural, show
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.stats.parts import PartChange, part_changes
from tracewarehouse.storage import Store

KERNELS = "kernel_summary"
_NEAR = 2  # runs within which changes are one event
_LISTED = 5  # kernels of an event


@dataclass(frozen=True)
class MovedPart:
    """A kernel that changed: its calls and its time per rank, before and after."""

    name: str
    calls: tuple[float, float]
    ns: tuple[float, float]
    q: float

    def __str__(self) -> str:
        before, after = self.calls
        if not before or not after:
            calls = f"{'new' if after else 'gone'}, {plural(round(max(before, after)), 'call')} per rank"
        elif round(before) != round(after):
            calls = f"{before:g} → {after:g} calls per rank"
        else:
            calls = f"{100 * (self.ns[1] / self.ns[0] - 1):+.1f} %"
        delta = self.ns[1] - self.ns[0]
        return f"{one_line(self.name)} {calls} ({'+' if delta > 0 else ''}{show(delta, 'ns')})"


@dataclass(frozen=True)
class PartsEvent:
    """Kernels that changed between the same two runs, the largest change of time first."""

    before: str
    after: str
    parts: tuple[MovedPart, ...]

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.parts[:_LISTED]))
        more = f"; {len(self.parts) - _LISTED:,} more" if len(self.parts) > _LISTED else ""
        count = plural(len(self.parts), "kernel")
        return f"between {one_line(self.before)} and {one_line(self.after)}, {count} changed: {listed}{more}"


def moved_parts(store: Store, catalog: Catalog, selected: Sequence[SelectedRun]) -> tuple[PartsEvent, ...]:
    """The events among runs recorded under the current definition, in time order.

    A kernel is compared by its share of the time of all kernels, which factors of a run do not change, and by
    its calls. At most 5 % of the changes are there by chance. Raises TwError if no kernels are recorded.
    """
    analysis = RecordedAnalysis.of(catalog.get(KERNELS, kind="analysis"), catalog)
    files = recorded_files(store, analysis, selected)
    if not files:
        raise TwError(f"no recorded results of {KERNELS}", hints.record(KERNELS))
    runs, table = list(files), kernel_values(store, files)
    names = sorted({name for of_run in table.values() for name in of_run})
    calls = [[table[run].get(name, (0.0, 0.0))[0] for run in runs] for name in names]
    ns = [[table[run].get(name, (0.0, 0.0))[1] for run in runs] for name in names]
    totals = [sum(of_run) or 1.0 for of_run in zip(*ns, strict=True)]
    shares = [[value / total for value, total in zip(row, totals, strict=True)] for row in ns]
    found: dict[int, PartChange] = {}
    for change in part_changes([*shares, *calls]):
        part = change.part % len(names)
        if part not in found or change.part >= len(names):
            found[part] = change
    moved = {
        part: (change.at, _moved(names[part], change, calls[part], ns[part]))
        for part, change in found.items()
    }
    return tuple(_events(runs, list(moved.values())))


def _moved(name: str, change: PartChange, calls: Sequence[float], ns: Sequence[float]) -> MovedPart:
    of_calls = median(calls[: change.at]), median(calls[change.at :])
    return MovedPart(name, of_calls, (median(ns[: change.at]), median(ns[change.at :])), change.q)


def _events(runs: Sequence[str], moved: list[tuple[int, MovedPart]]) -> Iterator[PartsEvent]:
    """Changes within `_NEAR` runs of the first as one event, at the place of the largest."""
    left = sorted(moved, key=lambda each: each[0])
    while left:
        near = [each for each in left if each[0] - left[0][0] <= _NEAR]
        left = left[len(near) :]
        near.sort(key=lambda each: -abs(each[1].ns[1] - each[1].ns[0]))
        at = near[0][0]
        yield PartsEvent(runs[at - 1], runs[at], tuple(part for _, part in near))
