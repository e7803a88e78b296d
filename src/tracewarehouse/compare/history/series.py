"""The series of a history: recorded runs in time order, with levels, change points and acknowledgements."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse.compare.metric.expression import Metric
from tracewarehouse.errors import ExpressionError, ParamError, TwError, UnknownName
from tracewarehouse.exact_text import age_ns
from tracewarehouse.present.render.text import one_line, plural, show
from tracewarehouse.result import Provenance
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.layout import acknowledgement_key
from tracewarehouse.storage.store import Store

if TYPE_CHECKING:
    from tracewarehouse.compare.stats.change_points import Point as ChangePoint
    from tracewarehouse.compare.stats.change_points import Trend

Reasons = Mapping[tuple[str, str], str]  # (run, source) → acknowledgement


class Point(Struct, frozen=True, gc=False):
    """A run of a series; `value` is None if the run has no value of the metric, for the `reason`.

    `level` is the median of the values between two changes. A run that is not `stored` was removed, but its
    recorded results were kept.
    """

    run: str
    number: int
    source: str
    time_ns: int
    stored: bool
    value: float | None
    reason: str | None = None
    level: float | None = None

    @property
    def name(self) -> str:
        """The name of the run; that of a removed one with its version, because names can be used again."""
        return self.run if self.stored else self.selector

    @property
    def selector(self) -> str:
        """`RUN@vN`."""
        return f"{self.run}@v{self.number}"


class Change(Struct, frozen=True):
    """A change of level from the run `before` to the run `after`.

    `change` is that from the level `old` to `new` (0.03 is +3 %), and `low` to `high` the 95 % interval of
    the shift, widened to contain it; all are None if the level before is 0. The change occurred between the
    runs `earliest` and `latest`, with 95 % confidence. `why` is the acknowledgement, if there is one, and
    `acknowledged_at` the run (`RUN@vN`) that it was given at: one of `nearby`, at best the run `after`.
    """

    before: str
    after: str
    change: float | None
    low: float | None
    high: float | None
    earliest: str
    latest: str
    old: float
    new: float
    why: str | None = None
    acknowledged_at: str | None = None
    nearby: tuple[str, ...] = ()

    @property
    def effect(self) -> str:
        """`+3.0 % [2.1, 3.9]`, with the 95 % interval."""
        if self.change is None or self.low is None or self.high is None:
            return "from 0"
        return f"{self.change * 100:+.1f} % [{self.low * 100:.1f}, {self.high * 100:.1f}]"


class Series(Struct, frozen=True):
    """Comparable runs: of one group, under one definition (effective hash) of the analysis.

    With a `trend`, the series rises or falls steadily and has no changes.
    """

    name: str
    definition: str
    points: tuple[Point, ...]
    changes: tuple[Change, ...]
    trend: Trend | None = None

    def remarks(self) -> list[str]:
        """The trend, as text."""
        return [] if self.trend is None else [f"trend {self.trend}, from the first run to the last"]

    @property
    def known(self) -> tuple[Point, ...]:
        """The points that have a value."""
        return tuple(point for point in self.points if point.value is not None)

    @property
    def change_positions(self) -> list[int]:
        """The index in `known` of the first run after each change."""
        names = [point.name for point in self.known]
        return [names.index(change.after) for change in self.changes]

    def plotted_range(self) -> tuple[float, float]:
        """The value range of a chart: outliers, at most 2 % on either side, are drawn at its edge."""
        ordered = sorted(point.value or 0.0 for point in self.known)
        outliers = len(ordered) // 50
        low, high = ordered[outliers], ordered[-1 - outliers]
        margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return low - margin, high + margin


class HistoryData(Struct, frozen=True):
    """The series of a metric over recorded runs; `missing` runs have no recorded results.

    `measured` is what the values are: the metric, a statistic of its steps, per unit of work.
    """

    metric: Metric
    series: tuple[Series, ...]
    missing: tuple[str, ...]
    notices: tuple[str, ...]
    provenance: Provenance
    measured: str

    @property
    def unit(self) -> str | None:
        """The unit of the values.

        Example:
            >>> wh.history("step_time").unit
            'ns'
        """
        return self.metric.column.unit

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of all series, each with `before` and `after` (runs), `change` (ratio), and more.

        Example:
            >>> wh.history("step_time").changes
            ()
        """
        return tuple(change for series in self.series for change in series.changes)

    def title(self, series: Series) -> str:
        """Returns the metric, the group and the number of runs and changes of a series.

        Example:
            >>> history = wh.history("step_time")
            >>> history.title(history.series[0])
            'step_time, 2 runs, 0 changes'
        """
        parts = [one_line(series.name)] if series.name else []
        if len({each.definition for each in self.series}) > 1:
            parts.append(f"definition {series.definition}")
        parts += [plural(len(series.known), "run"), plural(len(series.changes), "change")]
        return ", ".join([self.measured, *parts])

    def verdict(self, change: Change) -> str:
        """Returns whether a change is `better` or `worse`; empty if the metric has no goal.

        Example:
            >>> history = wh.history("step_time")
            >>> [history.verdict(change) for change in history.changes]
            []
        """
        goal = self.metric.column.better
        if goal is None:
            return ""
        return "better" if (change.new < change.old) == (goal == "lower") else "worse"


def build_series(
    name: str, definition: str, points: Sequence[Point], reasons: Reasons, min_effect: float
) -> Series:
    """The points in time order, with the levels and changes of those that have a value."""
    from tracewarehouse.compare.stats.change_points import find_levels

    known = [point for point in points if point.value is not None]
    values = [point.value for point in known if point.value is not None]
    found = find_levels(values, min_effect)
    detected = found.points
    edges = [0, *(each.at for each in detected), len(values)]
    levels = [median(values[start:end]) for start, end in zip(edges, edges[1:], strict=False) if end > start]
    changes = tuple(
        _change(known, each, levels[at], levels[at + 1], reasons) for at, each in enumerate(detected)
    )
    level_of = {id(point): levels[bisect(edges, at) - 1] for at, point in enumerate(known)}
    leveled = tuple(replace(point, level=level_of.get(id(point))) for point in points)
    return Series(name, definition, leveled, changes, found.trend)


def _change(
    known: Sequence[Point], detected: ChangePoint, old: float, new: float, reasons: Reasons
) -> Change:
    before, after, earliest, latest = (
        known[at] for at in (detected.at - 1, detected.at, detected.earliest, detected.latest)
    )
    places = range(min(detected.earliest, detected.at) - 1, max(detected.latest, detected.at) + 1)
    closest = (known[at] for at in sorted(places, key=lambda at: abs(at - detected.at)))
    found = ((reasons.get((point.run, point.source)), point.selector) for point in closest)
    why, at = next((each for each in found if each[0]), (None, None))
    return Change(
        before.name, after.name, *_size(detected, old, new), earliest.name, latest.name,
        old, new, why, at, tuple(known[place].selector for place in places),
    )  # fmt: skip


def _size(detected: ChangePoint, old: float, new: float) -> tuple[float | None, float | None, float | None]:
    """The change between the levels that are shown, and the interval, which contains it."""
    if detected.low is None or detected.high is None or not old:
        return None, None, None
    change = (new - old) / abs(old)
    return change, min(detected.low, change), max(detected.high, change)


FailOn = Literal["worse", "any"]
NEWEST = 12  # runs whose changes count by default


class FailingChange(Struct, frozen=True):
    """A change that fails, with the series it is in."""

    series: str
    change: Change
    text: str


def failing_changes(
    history: HistoryData, fail_on: FailOn = "worse", since: str | None = None
) -> tuple[FailingChange, ...]:
    """The changes whose first run is at or behind `since`, by default among the newest `NEWEST` runs.

    `since` is the name of a run or an age such as `7d`, counted from the newest run. Acknowledged changes
    pass; `worse` counts only changes in the wrong direction, or of a metric without a goal any. Raises
    UnknownName, ExpressionError.
    """
    _check_since(history, since)
    failing = []
    for series in history.series:
        first = _first_position(series, since)
        for change, position in zip(series.changes, series.change_positions, strict=True):
            is_bad = fail_on == "any" or history.verdict(change) != "better"
            if position >= first and is_bad and change.why is None:
                failing.append(FailingChange(series.name, change, _text(history, series, change)))
    return tuple(failing)


def _check_since(history: HistoryData, since: str | None) -> None:
    if since is None or age_ns(since) is not None:
        return
    names = {point.name for series in history.series for point in series.points}
    if since not in names:
        if since[:1].isdigit():
            raise ExpressionError(
                f"not an age or a run: {since}", "for example 7d, 24h, or the name of a run"
            )
        raise UnknownName("run", since, names)


def _first_position(series: Series, since: str | None) -> int:
    """The index in `known` from which changes count."""
    known = series.known
    if since is None:
        return len(known) - NEWEST
    names = [point.name for point in known]
    if since in names:
        return names.index(since)
    start: int | None = next((point.time_ns for point in series.points if point.name == since), None)
    age = age_ns(since)
    if age is not None and known:
        start = known[-1].time_ns - age
    if start is None:
        return len(known)
    return next((at for at, point in enumerate(known) if point.time_ns >= start), len(known))


def _text(history: HistoryData, series: Series, change: Change) -> str:
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    where = history.measured + (f" ({series.name})" if series.name else "")
    return f"{where}: {levels}, {change.effect}, between {change.before} and {change.after}"


_RUNS_NAMED = 8  # in a hint


class Acknowledgement(Struct, frozen=True):
    """Why a metric changed at a run, identified by its content (`source`)."""

    metric: str
    run: str
    source: str
    why: str


def _acknowledged_name(metric: Metric) -> str:
    """The metric without a version, so that an acknowledgement applies to the next version too."""
    filters = ",".join(sorted(f"{column.name}={value}" for column, value in metric.filters))
    return f"{metric.contract.name}.{metric.column.name}" + (f"[{filters}]" if filters else "")


def acknowledge(store: Store, metric: Metric, run: SelectedRun, why: str | None) -> None:
    """Stores why the metric changed at a run; None removes it.

    Raises ParamError for an empty text, TwError if there is nothing to remove.
    """
    name, source = _acknowledged_name(metric), run.version.source
    key = acknowledgement_key(name, run.run, source)
    if why is None:
        known = acknowledgements(store, metric)
        if (run.run, source) not in known:
            runs = sorted({acknowledged for acknowledged, _ in known})
            shown = ", ".join(runs[:_RUNS_NAMED]) + (", …" if len(runs) > _RUNS_NAMED else "")
            hint = f"acknowledged: {shown}" if runs else "no run has one"
            raise TwError(f"{run.run} has no acknowledgement of {metric}", hint)
        store.forget_acknowledged(key)
        return
    if not why.strip():
        raise ParamError(f"the acknowledgement of {run.run} is empty", "give a reason for the change")
    store.acknowledge(key, asdict(Acknowledgement(name, run.run, source, why.strip())))


def acknowledgements(store: Store, metric: Metric) -> dict[tuple[str, str], str]:
    """(run, source) → reason, for the metric."""
    name = _acknowledged_name(metric)
    stored = [Acknowledgement(**fields) for fields in store.acknowledged()]
    return {(each.run, each.source): each.why for each in stored if each.metric == name}


def notices_on_acknowledged(
    history: HistoryData, stored: Sequence[str], removed: Sequence[str]
) -> Iterator[str]:
    """Where an acknowledgement at these runs (`RUN@vN`) is not what the history shows."""
    for run in stored:
        changes = _changes_at(history, run)
        if not changes:
            is_shown = any(point.selector == run for series in history.series for point in series.points)
            yield (
                f"no change point of {history.measured} at {run}"
                if is_shown
                else f"{run} is not in this history"
            )
        yield from (_shown(each) for each in changes if each.acknowledged_at not in (None, run))
    for run in removed:
        yield from (_shown(each) for each in _changes_at(history, run) if each.why is not None)


def _changes_at(history: HistoryData, run: str) -> list[Change]:
    return [change for series in history.series for change in series.changes if run in change.nearby]


def _shown(change: Change) -> str:
    return f"the change at {change.after} is acknowledged at {change.acknowledged_at}: {change.why}"
