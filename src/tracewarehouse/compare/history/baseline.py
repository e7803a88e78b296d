"""Recorded runs as the baseline of a comparison, or as its noise: those like the runs that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import median
from typing import TYPE_CHECKING

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.compare.history.history import Point, Series
from tracewarehouse.compare.history.read import (
    NothingRecorded,
    ValueForm,
    build_history,
    label_keys,
    recorded_files,
    recorded_runs,
)
from tracewarehouse.compare.history.recorded import part_values
from tracewarehouse.compare.metric.expression import Metric, WorkUnit, is_normalized, parse_metric
from tracewarehouse.compare.metric.values import Statistic
from tracewarehouse.compare.stats.two_sample import MAX_EARLIER, MIN_EARLIER, MIN_SINCE, Earlier
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.display_names import category, category_name
from tracewarehouse.errors import NoBaseline, ParamError, TwError
from tracewarehouse.present.render.text import one_line, plural, show
from tracewarehouse.runs.rows import expected_ranks
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import RunVersion
from tracewarehouse.storage.results import RecordedAnalysis, differ_in_rules
from tracewarehouse.storage.store import Store

if TYPE_CHECKING:
    from tracewarehouse.compare.diff.change import FindEarlier
    from tracewarehouse.compare.stats.many_series import PartChange
    from tracewarehouse.query.selection import Selection


Configuration = tuple[object, ...]


class Compared(Struct, frozen=True):
    """The runs of a comparison; base is None if it is the baseline itself. `same` are keys of labels."""

    base: tuple[SelectedRun, ...] | None
    head: tuple[SelectedRun, ...]
    same: tuple[str, ...] = ()

    @property
    def first(self) -> tuple[int, str]:
        """When the first of them started, as the sort key of runs."""
        return min(run.version.brief.order for run in (*(self.base or ()), *self.head))


class Baseline(Struct, frozen=True):
    """Recorded runs since the last change point, oldest first, and their values."""

    points: tuple[Point, ...]
    earlier: Earlier

    @property
    def stored(self) -> tuple[str, ...]:
        """Selectors of the runs whose traces are still stored."""
        return tuple(f"{point.run}@v{point.number}" for point in self.points if point.stored)


def find_baseline(
    store: Store,
    catalog: Catalog,
    metric: Metric,
    recorded: Sequence[SelectedRun],
    compared: Compared,
    unit: WorkUnit | None = None,
    statistic: Statistic = "value",
    least: int = MIN_EARLIER,
) -> Baseline:
    """The newest runs before those compared, of the same GPUs, world size, framework and labels `same`.

    They are whole, have a value above 0 under the current definition, and follow the last change point among
    them: at least `least`, or `MIN_SINCE` for a baseline after a change, at most `MAX_EARLIER`. With a
    `unit`, times and sizes are per unit, also for the change points, and runs that do not say their work are
    left out. Raises NoBaseline if there are fewer.
    """
    own_configuration = configuration(compared.head[0].version, compared.same)
    alike_runs = [run for run in recorded if configuration(run.version, compared.same) == own_configuration]
    whole_runs = [run for run in alike_runs if len(run.version.ranks) >= (expected_ranks(run.version) or 0)]
    prior = [run for run in whole_runs if run.version.brief.order < compared.first]
    form = ValueForm(statistic, unit if is_normalized(metric) else None)
    analysis = RecordedAnalysis.of(metric.contract, catalog)
    definition = analysis.definition(compared.head[0].version)
    all_series: tuple[Series, ...] = ()
    with suppress(NothingRecorded):
        all_series = build_history(store, catalog, metric, prior, form=form).series
    current_series = next((series for series in all_series if series.definition == definition), None)
    points = _last_level(current_series)[-MAX_EARLIER:] if current_series else ()
    since = current_series.changes[-1].after if current_series and current_series.changes else ""
    if len(points) < (MIN_SINCE if since and compared.base is None else least):
        runs_text = f"{plural(len(points), 'recorded run')} of {form.title(metric)}"
        unrecorded = len(prior) - (len(current_series.points) if current_series else 0)
        has_other_rules = any(differ_in_rules(analysis.definition(run.version), definition) for run in prior)
        command = hints.call("upgrade") if has_other_rules else hints.record(metric.contract.name)
        raise _no_baseline(runs_text, compared, command, unrecorded)
    # The places of the runs of base and head among runs of this configuration; that of the first point is 0.
    sides = (compared.base or (), compared.head)
    runs = {run.selector: run for run in (*alike_runs, *sides[0], *sides[1])}
    ordered = sorted(runs, key=lambda name: runs[name].version.brief.order)
    first_place = ordered.index(f"{points[0].run}@v{points[0].number}")
    positions = {name: index - first_place for index, name in enumerate(ordered)}
    base_at, head_at = (tuple(positions[run.selector] for run in side) for side in sides)
    values = tuple(point.value or 0.0 for point in points)
    return Baseline(points, Earlier(values, base_at, head_at, compared.base is None, since))


def _no_baseline(what: str, compared: Compared, record: str, unrecorded: int) -> NoBaseline:
    """The error for a number of runs; `unrecorded` ones may be added to them."""
    labels = compared.head[0].version.labels
    same = [f"label.{key}={labels[key]}" if key in labels else f"no label.{key}" for key in compared.same]
    alike = "of the same configuration" + (f" with {', '.join(same)}" if same else "")
    runs = f"{what} before {compared.first[1]} {alike} since the last change"
    hint = f"compare with a run, or a set of runs, until there are {MIN_EARLIER}"
    if unrecorded:
        hint = hints.fill("{} stores results of {}", record, plural(unrecorded, "earlier run"))
    return NoBaseline(f"no baseline: {runs}; it takes {MIN_EARLIER}", hint)


def configuration(version: RunVersion, same: Sequence[str] = ()) -> Configuration:
    """GPU models, world size, framework up to its minor version, and the values of these labels."""
    framework_versions = (rank.facts.get("framework_version") for rank in version.by_rank)
    framework = {".".join(str(text).split(".")[:2]) for text in framework_versions if text is not None}
    labels = tuple(version.labels.get(key) for key in same)
    return *version.hardware, tuple(sorted(framework)), labels


def _last_level(series: Series) -> tuple[Point, ...]:
    """The points since the last change."""
    start = max(series.change_positions, default=0)
    return tuple(point for point in series.known[start:] if (point.value or 0) > 0)


BASELINE = "@baseline"
NOISE_SOURCES = ("within", "history")
_BREAKDOWN_RUNS = 8  # newest runs of the baseline that a breakdown compares with


def sides_with_history(
    selection: Selection,
    base: str | Iterable[str],
    head: str | Iterable[str],
    noise: str,
    match_label: str | Iterable[str],
) -> tuple[Selection, Selection, FindEarlier, FindEarlier]:
    """Both sides, and what finds the earlier runs of a metric, and those of `alike_runs`.

    Raises ParamError for another `noise`; NoBaseline if the step time has too few earlier runs; TwError.
    """
    if noise not in NOISE_SOURCES:
        raise ParamError(f"unknown noise {noise!r}", f"use {' or '.join(NOISE_SOURCES)}")
    recorded, after = recorded_runs(selection), selection.select(head)
    names = [match_label] if isinstance(match_label, str) else match_label
    keys = label_keys([f"label.{name.removeprefix('label.')}" for name in names], recorded)
    before = None if base == BASELINE else selection.select(base)
    compared = Compared(None if before is None else before.selected(), after.selected(), keys)

    step_time = parse_metric("step_time", selection.catalog)

    def find(metric: Metric, unit: WorkUnit | None = None, statistic: Statistic = "value") -> Baseline:
        return find_baseline(selection.store, selection.catalog, metric, recorded, compared, unit, statistic)

    def earlier(metric: Metric, unit: WorkUnit | None, statistic: Statistic) -> Earlier | None:
        try:
            return find(metric, unit, statistic).earlier
        except TwError:
            if metric == step_time and statistic == "value":  # of the verdict
                raise
            return None

    step_time_baseline = find(step_time)
    if before is None:
        if not step_time_baseline.stored:
            raise TwError("the traces of all runs of the baseline are removed", "name a stored run as base")
        before = selection.select(step_time_baseline.stored[-_BREAKDOWN_RUNS:])
    return before, after, earlier, alike_runs(selection, compared)


def alike_runs(selection: Selection, compared: Compared) -> FindEarlier:
    """What finds `MIN_SINCE` or more recorded runs like those compared, to say how much runs vary."""

    def find(metric: Metric, unit: WorkUnit | None, statistic: Statistic) -> Earlier | None:
        recorded, store = recorded_runs(selection), selection.store
        with suppress(TwError):
            return find_baseline(
                store, selection.catalog, metric, recorded, compared, unit, statistic, MIN_SINCE
            ).earlier
        return None

    return find


_NEAR = 2  # runs within which changes are one event
_LISTED = 5  # parts of an event
_ENOUGH = 0.9  # share of the runs, from which a kind of parts is compared


# Kind of parts → a recorded analysis of them, and the columns of their names and times.
_SOURCES = {
    "kernel": ("kernel_summary", "name", "sum_ns"),
    "operator": ("op_summary", "name", "host_self_ns"),
    "idle": ("idle_breakdown", "cause", "idle_ns"),
}


class MovedPart(Struct, frozen=True):
    """A kernel, operator (self time on the host) or idle cause that changed: calls, ns per step or rank."""

    kind: str
    name: str
    calls: tuple[float, float]
    ns: tuple[float, float]
    q: float
    per: str = "rank"

    @property
    def title(self) -> str:
        """Its name, with its kind unless it is a kernel."""
        if self.kind == "idle":
            return category_name(category(self.name))
        return f"operator {one_line(self.name)}" if self.kind == "operator" else one_line(self.name)

    def __str__(self) -> str:
        before, after = self.calls
        if not before or not after:
            number = f"{max(before, after):.3g}"
            noun = "call" if number == "1" else "calls"
            calls = f"{'new' if after else 'gone'}, {number} {noun} per {self.per}"
        elif round(before, 1) != round(after, 1):
            calls = f"{before:.3g} → {after:.3g} calls per {self.per}"
        else:
            calls = f"{100 * (self.ns[1] / self.ns[0] - 1):+.1f} %"
        delta = self.ns[1] - self.ns[0]
        return f"{self.title} {calls} ({'+' if delta > 0 else ''}{show(delta, 'ns')})"


class PartsEvent(Struct, frozen=True):
    """Parts that changed between the same two runs, the largest change of time first."""

    before: str
    after: str
    parts: tuple[MovedPart, ...]

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.parts[:_LISTED]))
        more = f"; {len(self.parts) - _LISTED:,} more" if len(self.parts) > _LISTED else ""
        count = plural(len(self.parts), "part")
        return f"between {one_line(self.before)} and {one_line(self.after)}, {count} changed: {listed}{more}"


class _Series(Struct, frozen=True):
    """The calls and the time of a part in each run, per step or rank."""

    kind: str
    name: str
    calls: tuple[float, ...]
    ns: tuple[float, ...]
    adjusted: tuple[float, ...]  # times without the factor that all parts of a run have in common
    per: str  # `step` or `rank`


def moved_parts(store: Store, catalog: Catalog, selected: Sequence[SelectedRun]) -> tuple[PartsEvent, ...]:
    """The events among runs recorded under the current definition, in time order.

    A part is compared by its calls, and by its time divided by the factor that most parts of its kind have in
    common in a run. At most 5 % of the changes are there by chance, over all kinds. Raises TwError if no
    kernels, operators or idle times are recorded.
    """
    from tracewarehouse.compare.stats.many_series import part_changes

    recorded = {}  # kind of parts → `RUN@vN` → path of its result
    for kind, (name, *_) in _SOURCES.items():
        analysis = RecordedAnalysis.of(catalog.get(name, kind="analysis"), catalog)
        recorded[kind] = recorded_files(store, analysis, selected)
    most_runs = max(map(len, recorded.values()))
    if not most_runs:
        names = [name for name, *_ in _SOURCES.values()]
        raise TwError(f"no recorded results of {', '.join(names)}", hints.record(names[0]))
    # Of the kinds that have nearly all of the runs.
    files = {kind: paths for kind, paths in recorded.items() if len(paths) >= _ENOUGH * most_runs}
    runs = [run for run in next(iter(files.values())) if all(run in paths for paths in files.values())]
    series = [
        part_series
        for kind, paths in files.items()
        for part_series in _part_series(kind, runs, *part_values(store, paths, *_SOURCES[kind][1:]))
    ]
    moved: dict[int, PartChange] = {}
    for change in part_changes([part.adjusted for part in series] + [part.calls for part in series]):
        part = change.part % len(series)
        if part not in moved or change.part >= len(series):
            moved[part] = change
    return tuple(_events(runs, [(change.at, _moved(series[part], change)) for part, change in moved.items()]))


def _part_series(
    kind: str, runs: Sequence[str], per: str, table: Mapping[str, Mapping[str, tuple[float, float]]]
) -> Iterator[_Series]:
    """The series of all parts of a kind; a part that a run lacks is 0 there."""
    from tracewarehouse.compare.stats.many_series import run_factors

    names = sorted({name for run in runs for name in table[run]})
    values = [[table[run].get(name, (0.0, 0.0)) for run in runs] for name in names]
    factors = run_factors([[ns for _, ns in of_part] for of_part in values])
    for name, of_part in zip(names, values, strict=True):
        calls, ns = zip(*of_part, strict=True)
        adjusted = tuple(value / factor for value, factor in zip(ns, factors, strict=True))
        yield _Series(kind, name, calls, ns, adjusted, per)


def _moved(series: _Series, change: PartChange) -> MovedPart:
    calls, ns = (
        (median(values[: change.at]), median(values[change.at :])) for values in (series.calls, series.ns)
    )
    return MovedPart(series.kind, series.name, calls, ns, change.q, series.per)


def _events(runs: Sequence[str], moved: list[tuple[int, MovedPart]]) -> Iterator[PartsEvent]:
    """Changes within `_NEAR` runs of the first as one event, at the place of the largest."""
    remaining = sorted(moved, key=lambda placed: placed[0])
    while remaining:
        together = [placed for placed in remaining if placed[0] - remaining[0][0] <= _NEAR]
        remaining = remaining[len(together) :]
        together.sort(key=lambda placed: -abs(placed[1].ns[1] - placed[1].ns[0]))
        position = together[0][0]
        yield PartsEvent(runs[position - 1], runs[position], tuple(part for _, part in together))
