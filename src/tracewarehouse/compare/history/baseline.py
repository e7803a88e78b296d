"""Recorded runs as the baseline of a comparison, or as its spread: those like the runs that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse import hints
from tracewarehouse.compare.history.read import NothingRecorded, build_history, hardware
from tracewarehouse.compare.history.results import RecordedAnalysis
from tracewarehouse.compare.history.series import Point, Series
from tracewarehouse.compare.history.value_form import ValueForm
from tracewarehouse.compare.metric import Metric, WorkUnit, is_normalized
from tracewarehouse.compare.stats import MAX_EARLIER, MIN_EARLIER, Earlier
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import NoBaseline
from tracewarehouse.present.render.text import plural
from tracewarehouse.runs.rows import expected_ranks
from tracewarehouse.runs.selection import SelectedRun, run_attributes
from tracewarehouse.storage import RunVersion, Store

Configuration = tuple[object, ...]


@dataclass(frozen=True)
class Compared:
    """The runs of a comparison; base is None if it is the baseline itself. `same` are keys of labels."""

    base: tuple[SelectedRun, ...] | None
    head: tuple[SelectedRun, ...]
    same: tuple[str, ...] = ()

    @property
    def first(self) -> tuple[int, str]:
        """When the first of them started, as the sort key of runs."""
        return min(run_attributes(each.version).order for each in (*(self.base or ()), *self.head))


@dataclass(frozen=True)
class Baseline:
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
) -> Baseline:
    """The newest runs before those compared, of the same GPUs, world size, framework and labels `same`.

    They are whole, have a value above 0 under the current definition, and follow the last change point among
    them: at least `MIN_EARLIER`, at most `MAX_EARLIER`. With a `unit`, times and sizes are per unit, also for
    the change points, and runs that do not say their work are left out. Raises NoBaseline if there are fewer.
    """
    wanted = configuration(compared.head[0].version, compared.same)
    alike = [each for each in recorded if configuration(each.version, compared.same) == wanted]
    before = [each for each in alike if run_attributes(each.version).order < compared.first and _whole(each)]
    form = ValueForm(unit=unit if is_normalized(metric) else None)
    found = _series(store, catalog, metric, before, form)
    points = _last_level(found)[-MAX_EARLIER:] if found else ()
    if len(points) < MIN_EARLIER:
        what = f"{plural(len(points), 'recorded run')} of {form.title(metric)}"
        unrecorded = len(before) - (len(found.points) if found else 0)
        raise _no_baseline(what, compared, hints.record(metric.contract.name), unrecorded)
    places = _places(alike, points[0], compared)
    values = tuple(point.value or 0.0 for point in points)
    return Baseline(points, Earlier(values, *places, compared.base is None))


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
    names = (rank.facts.get("framework_version") for rank in version.by_rank)
    framework = {".".join(str(each).split(".")[:2]) for each in names if each is not None}
    labels = tuple(version.labels.get(key) for key in same)
    return *hardware(version), tuple(sorted(framework)), labels


def _whole(run: SelectedRun) -> bool:
    return len(run.version.ranks) >= (expected_ranks(run.version) or 0)


def _series(
    store: Store, catalog: Catalog, metric: Metric, runs: Sequence[SelectedRun], form: ValueForm
) -> Series | None:
    """The runs that are recorded under the current definition."""
    definition = RecordedAnalysis.of(metric.contract, catalog).definition
    try:
        every = build_history(store, catalog, metric, runs, form=form).series
    except NothingRecorded:
        return None
    return next((series for series in every if series.definition == definition), None)


def _last_level(series: Series) -> tuple[Point, ...]:
    """The points since the last change."""
    start = max(series.change_positions, default=0)
    return tuple(point for point in series.known[start:] if (point.value or 0) > 0)


def _places(
    alike: Sequence[SelectedRun], first: Point, compared: Compared
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The places of the runs of base and of head among runs of this configuration; that of `first` is 0."""
    sides = (compared.base or (), compared.head)
    every = {each.selector: each for each in (*alike, *sides[0], *sides[1])}
    ordered = sorted(every, key=lambda name: run_attributes(every[name].version).order)
    place = {name: at - ordered.index(f"{first.run}@v{first.number}") for at, name in enumerate(ordered)}
    base, head = (tuple(place[each.selector] for each in side) for side in sides)
    return base, head
