"""Which kernels, operators and idle causes changed between which runs, from recorded results: all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tracewarehouse import hints
from tracewarehouse.compare.history.read import recorded_files
from tracewarehouse.compare.history.results import RecordedAnalysis, part_values
from tracewarehouse.compare.stats.parts import PartChange, part_changes, run_factors
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.display_names import category, category_name
from tracewarehouse.errors import TwError
from tracewarehouse.present.render.text import one_line, plural, show
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Store

_NEAR = 2  # runs within which changes are one event
_LISTED = 5  # parts of an event
_ENOUGH = 0.9  # share of the runs, from which a kind of parts is compared


@dataclass(frozen=True)
class _Source:
    """A recorded analysis of parts: the columns of their names and times."""

    kind: str
    analysis: str
    name: str
    ns: str


_SOURCES = (
    _Source("kernel", "kernel_summary", "name", "sum_ns"),
    _Source("operator", "op_summary", "name", "host_self_ns"),
    _Source("idle", "idle_breakdown", "cause", "idle_ns"),
)


@dataclass(frozen=True)
class MovedPart:
    """A kernel, operator (its self time on the host) or idle cause that changed: calls and time per rank."""

    kind: str
    name: str
    calls: tuple[float, float]
    ns: tuple[float, float]
    q: float

    @property
    def title(self) -> str:
        """Its name, with its kind unless it is a kernel."""
        if self.kind == "idle":
            return category_name(category(self.name))
        return f"operator {one_line(self.name)}" if self.kind == "operator" else one_line(self.name)

    def __str__(self) -> str:
        before, after = self.calls
        if not before or not after:
            calls = f"{'new' if after else 'gone'}, {plural(round(max(before, after)), 'call')} per rank"
        elif round(before) != round(after):
            calls = f"{before:g} → {after:g} calls per rank"
        else:
            calls = f"{100 * (self.ns[1] / self.ns[0] - 1):+.1f} %"
        delta = self.ns[1] - self.ns[0]
        return f"{self.title} {calls} ({'+' if delta > 0 else ''}{show(delta, 'ns')})"


@dataclass(frozen=True)
class PartsEvent:
    """Parts that changed between the same two runs, the largest change of time first."""

    before: str
    after: str
    parts: tuple[MovedPart, ...]

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.parts[:_LISTED]))
        more = f"; {len(self.parts) - _LISTED:,} more" if len(self.parts) > _LISTED else ""
        count = plural(len(self.parts), "part")
        return f"between {one_line(self.before)} and {one_line(self.after)}, {count} changed: {listed}{more}"


@dataclass(frozen=True)
class _Series:
    """The calls and the time of a part in each run."""

    kind: str
    name: str
    calls: tuple[float, ...]
    ns: tuple[float, ...]
    adjusted: tuple[float, ...]  # times without the factor that all parts of a run have in common


def moved_parts(store: Store, catalog: Catalog, selected: Sequence[SelectedRun]) -> tuple[PartsEvent, ...]:
    """The events among runs recorded under the current definition, in time order.

    A part is compared by its calls, and by its time divided by the factor that most parts of its kind have in
    common in a run. At most 5 % of the changes are there by chance, over all kinds. Raises TwError if no
    kernels, operators or idle times are recorded.
    """
    files = _recorded(store, catalog, selected)
    runs = [run for run in next(iter(files.values())) if all(run in of for of in files.values())]
    series = [
        each
        for source, paths in files.items()
        for each in _series(source, runs, part_values(store, paths, source.name, source.ns))
    ]
    found: dict[int, PartChange] = {}
    for change in part_changes([*(each.adjusted for each in series), *(each.calls for each in series)]):
        part = change.part % len(series)
        if part not in found or change.part >= len(series):
            found[part] = change
    return tuple(_events(runs, [(each.at, _moved(series[part], each)) for part, each in found.items()]))


def _recorded(
    store: Store, catalog: Catalog, selected: Sequence[SelectedRun]
) -> dict[_Source, Mapping[str, str]]:
    """The recorded results of each kind of parts, `RUN@vN` → path; those that have nearly all of the runs."""
    found = {}
    for source in _SOURCES:
        analysis = RecordedAnalysis.of(catalog.get(source.analysis, kind="analysis"), catalog)
        found[source] = recorded_files(store, analysis, selected)
    most = max(map(len, found.values()))
    if not most:
        names = [source.analysis for source in _SOURCES]
        raise TwError(f"no recorded results of {', '.join(names)}", hints.record(names[0]))
    return {source: files for source, files in found.items() if len(files) >= _ENOUGH * most}


def _series(
    source: _Source, runs: Sequence[str], table: Mapping[str, Mapping[str, tuple[float, float]]]
) -> Iterator[_Series]:
    """The series of all parts of a kind; a part that a run lacks is 0 there."""
    names = sorted({name for run in runs for name in table[run]})
    values = [[table[run].get(name, (0.0, 0.0)) for run in runs] for name in names]
    factors = run_factors([[ns for _, ns in of_part] for of_part in values])
    for name, of_part in zip(names, values, strict=True):
        calls, ns = zip(*of_part, strict=True)
        adjusted = tuple(value / factor for value, factor in zip(ns, factors, strict=True))
        yield _Series(source.kind, name, calls, ns, adjusted)


def _moved(series: _Series, change: PartChange) -> MovedPart:
    calls, ns = (
        (median(values[: change.at]), median(values[change.at :])) for values in (series.calls, series.ns)
    )
    return MovedPart(series.kind, series.name, calls, ns, change.q)


def _events(runs: Sequence[str], moved: list[tuple[int, MovedPart]]) -> Iterator[PartsEvent]:
    """Changes within `_NEAR` runs of the first as one event, at the place of the largest."""
    left = sorted(moved, key=lambda each: each[0])
    while left:
        near = [each for each in left if each[0] - left[0][0] <= _NEAR]
        left = left[len(near) :]
        near.sort(key=lambda each: -abs(each[1].ns[1] - each[1].ns[0]))
        at = near[0][0]
        yield PartsEvent(runs[at - 1], runs[at], tuple(part for _, part in near))
