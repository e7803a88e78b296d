"""A history: recorded runs in time order, with levels, change points and acknowledgements; as text and HTML.

The chart of the HTML page is plain SVG drawn by the template, so it does not need the plotting libraries.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, floor, inf, log10
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse.compare.metric.expression import Metric
from tracewarehouse.errors import ExpressionError, ParamError, TwError, UnknownName
from tracewarehouse.exact_text import age_ns
from tracewarehouse.present.pages import render_page
from tracewarehouse.present.render.text import one_line, plural, show, timestamp
from tracewarehouse.result import Field, Provenance, Result, from_rows
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.layout import acknowledgement_key
from tracewarehouse.storage.store import Store

if TYPE_CHECKING:
    import polars

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


class History(Struct, frozen=True):
    """A metric over recorded runs, with its change points; made by `Warehouse.history`.

    Attributes:
        metric: The metric, with its column and filters.
        series: Comparable runs, each series with `points` and `changes`.
        missing: Runs without recorded results.
        notices: Lines for the reader.
        provenance: Where the values come from.
        measured: What the values are: the metric, a statistic of its steps, per unit of work.

    Example:
        >>> [len(series.points) for series in wh.history("step_time").series]
        [2]
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
        if len({series.definition for series in self.series}) > 1:
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

    @property
    def result(self) -> Result:
        """The rows: one per series and run, in time order.

        Columns: `line` (series), `definition`, `run_id`, `version`, `stored`, `time_ns` (ns since 1970),
        `value` and `level` (unit of the metric). The first run of a new level also has `change`,
        `change_low`, `change_high` (ratios), `before`, `earliest`, `latest` (runs) and `acknowledged`; else
        these are null.

        Example:
            >>> wh.history("step_time").result.select("run_id", "value").rows()
            [{'run_id': 'fp8-off', 'value': ...}, {'run_id': 'fp8-on', 'value': ...}]
        """
        rows = from_rows(self._fields(), [row for series in self.series for row in _rows(series)])
        return replace(rows, provenance=self.provenance, notices=self.notices)

    def plot(self, width: int = 100) -> str:
        """Draws the series as text, with their changes.

        Args:
            width: Maximum number of characters per line.

        Example:
            >>> print(wh.history("step_time").plot(width=60))
            step_time, 2 runs, 0 changes
            ...
        """
        return "".join(f"{line}\n" for line in chart_lines(self, width))

    def html(self) -> str:
        """Returns the series as one self-contained HTML file.

        Example:
            >>> _ = Path("history.html").write_text(wh.history("step_time").html())
        """
        return "".join(render_page("history.html", page=_page(self)))

    def polars(self) -> polars.DataFrame:
        """Returns the rows of `result` as a Polars data frame.

        Example:
            >>> wh.history("step_time").polars().height
            2
        """
        return self.result.polars()

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of `result` as dictionaries.

        Example:
            >>> [row["run_id"] for row in wh.history("step_time").rows()]
            ['fp8-off', 'fp8-on']
        """
        return self.result.rows()

    def _fields(self) -> list[Field]:
        texts = ("earliest", "latest", "acknowledged", "reason")
        return [
            Field("line", "VARCHAR"),
            Field("definition", "VARCHAR"),
            Field("run_id", "VARCHAR"),
            Field("version", "BIGINT"),
            Field("stored", "BOOLEAN"),
            Field("time_ns", "BIGINT", "ts"),
            Field("value", "DOUBLE", self.unit),
            Field("level", "DOUBLE", self.unit),
            *(Field(name, "DOUBLE", "ratio") for name in ("change", "change_low", "change_high")),
            *(Field(name, "VARCHAR") for name in ("before", *texts)),
        ]


def _rows(series: Series) -> Iterator[tuple[object, ...]]:
    changes = {change.after: change for change in series.changes}
    for point in series.points:
        change = changes.get(point.name) if point.value is not None else None
        columns: tuple[object, ...] = (None,) * 7
        if change is not None:
            columns = (
                change.change,
                change.low,
                change.high,
                change.before,
                change.earliest,
                change.latest,
                change.why,
            )
        identity = (series.name, series.definition, point.run, point.number, point.stored, point.time_ns)
        yield (*identity, point.value, point.level, *columns, point.reason)


def build_series(
    name: str, definition: str, points: Sequence[Point], reasons: Reasons, min_effect: float
) -> Series:
    """The points in time order, with the levels and changes of those that have a value."""
    from tracewarehouse.compare.stats.change_points import find_levels

    measured = [point for point in points if point.value is not None]
    values = [point.value for point in measured if point.value is not None]
    levels_found = find_levels(values, min_effect)
    detected = levels_found.points
    edges = [0, *(point.at for point in detected), len(values)]
    levels = [median(values[start:end]) for start, end in zip(edges, edges[1:], strict=False) if end > start]
    changes = tuple(
        _change(measured, point, levels[index], levels[index + 1], reasons)
        for index, point in enumerate(detected)
    )
    level_of = {id(point): levels[bisect(edges, index) - 1] for index, point in enumerate(measured)}
    leveled = tuple(replace(point, level=level_of.get(id(point))) for point in points)
    return Series(name, definition, leveled, changes, levels_found.trend)


def _change(
    known: Sequence[Point], detected: ChangePoint, old: float, new: float, reasons: Reasons
) -> Change:
    before, after, earliest, latest = (
        known[index] for index in (detected.at - 1, detected.at, detected.earliest, detected.latest)
    )
    positions = range(min(detected.earliest, detected.at) - 1, max(detected.latest, detected.at) + 1)
    closest = (known[index] for index in sorted(positions, key=lambda index: abs(index - detected.at)))
    reasons_nearby = ((reasons.get((point.run, point.source)), point.selector) for point in closest)
    reason, run = next(filter(lambda nearby: nearby[0], reasons_nearby), (None, None))
    return Change(
        before.name, after.name, *_size(detected, old, new), earliest.name, latest.name,
        old, new, reason, run, tuple(known[position].selector for position in positions),
    )  # fmt: skip


def _size(detected: ChangePoint, old: float, new: float) -> tuple[float | None, float | None, float | None]:
    """The change between the levels that are shown, and the interval, which contains it."""
    if detected.low is None or detected.high is None or not old:
        return None, None, None
    change = (new - old) / abs(old)
    return change, min(detected.low, change), max(detected.high, change)


FailOn = Literal["worse", "any"]
NEWEST = 12  # runs whose changes count by default


def failing_changes(history: History, fail_on: FailOn = "worse", since: str | None = None) -> list[str]:
    """Each change whose first run is at or behind `since`, by default in the newest `NEWEST` runs, as text.

    `since` is the name of a run or an age such as `7d`, counted from the newest run. Acknowledged changes
    pass; `worse` counts only changes in the wrong direction, or of a metric without a goal any. Raises
    UnknownName, ExpressionError.
    """
    _check_since(history, since)
    texts = []
    for series in history.series:
        first_position = _first_position(series, since)
        for change, position in zip(series.changes, series.change_positions, strict=True):
            is_bad = fail_on == "any" or history.verdict(change) != "better"
            if position >= first_position and is_bad and change.why is None:
                texts.append(_text(history, series, change))
    return texts


def _check_since(history: History, since: str | None) -> None:
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
    measured = series.known
    if since is None:
        return len(measured) - NEWEST
    names = [point.name for point in measured]
    if since in names:
        return names.index(since)
    start: int | None = next((point.time_ns for point in series.points if point.name == since), None)
    age = age_ns(since)
    if age is not None and measured:
        start = measured[-1].time_ns - age
    if start is None:
        return len(measured)
    return next((index for index, point in enumerate(measured) if point.time_ns >= start), len(measured))


def _text(history: History, series: Series, change: Change) -> str:
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    subject = history.measured + (f" ({series.name})" if series.name else "")
    return f"{subject}: {levels}, {change.effect}, between {change.before} and {change.after}"


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
        acknowledged_runs = acknowledgements(store, metric)
        if (run.run, source) not in acknowledged_runs:
            runs = sorted({acknowledged for acknowledged, _ in acknowledged_runs})
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
    return {(row.run, row.source): row.why for row in stored if row.metric == name}


def notices_on_acknowledged(history: History, stored: Sequence[str], removed: Sequence[str]) -> Iterator[str]:
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
        yield from (_shown(change) for change in changes if change.acknowledged_at not in (None, run))
    for run in removed:
        yield from (_shown(change) for change in _changes_at(history, run) if change.why is not None)


def _changes_at(history: History, run: str) -> list[Change]:
    return [change for series in history.series for change in series.changes if run in change.nearby]


def _shown(change: Change) -> str:
    return f"the change at {change.after} is acknowledged at {change.acknowledged_at}: {change.why}"


_TERMINAL_HEIGHT = 10  # characters; each is four dots high and two wide
_BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a character
_LEVEL = "─"


def chart_lines(history: History, width: int) -> Iterator[str]:
    """The lines of text, each at most `width` characters unless run names are longer."""
    for index, series in enumerate(history.series):
        if index:
            yield ""
        yield history.title(series)
        if series.known:
            yield from _text_chart(history, series, width)
        for number, change in enumerate(series.changes, 1):
            yield _change_line(number, change, history)
        yield from series.remarks()


def _text_chart(history: History, series: Series, width: int) -> Iterator[str]:
    low, high = series.plotted_range()
    labels = {0: show(high, history.unit), _TERMINAL_HEIGHT - 1: show(low, history.unit)}
    margin = max(map(len, labels.values()))
    columns = max(10, min(width - margin - 2, len(series.known)))
    rows = _plot_area(series, low, high, columns)
    for index, row in enumerate(rows):
        yield f"{labels.get(index, '').rjust(margin)} ┤{row}".rstrip()
    yield " " * (margin + 2) + _change_markers(series, columns)
    ends = series.points[0], series.points[-1]
    first, last = (f"{datetime.fromtimestamp(point.time_ns // 10**9, UTC):%Y-%m-%d}" for point in ends)
    dates = f"{first}{last.rjust(columns - len(first))}" if columns > 2 * len(first) else f"{first} to {last}"
    yield " " * (margin + 2) + dates


def _plot_area(series: Series, low: float, high: float, columns: int) -> list[str]:
    """Rows of characters: braille dots for runs, a line for their level in characters without a run."""
    dots = [[0] * columns for _ in range(_TERMINAL_HEIGHT)]
    levels = [[False] * columns for _ in range(_TERMINAL_HEIGHT)]
    for index, point in enumerate(series.known):
        dot_column = index * columns * 2 // len(series.known)
        dot_row = _dot_row(point.value or 0.0, low, high)
        dots[dot_row // 4][dot_column // 2] |= _BRAILLE_BITS[dot_row % 4][dot_column % 2]
        if point.level is not None:
            levels[_dot_row(point.level, low, high) // 4][dot_column // 2] = True
    return [
        "".join(
            chr(0x2800 + mask) if mask else _LEVEL if has_level else " "
            for mask, has_level in zip(*row, strict=True)
        )
        for row in zip(dots, levels, strict=True)
    ]


def _dot_row(value: float, low: float, high: float) -> int:
    """The row of dots from the top; values outside the range are drawn at the edge."""
    last_row = _TERMINAL_HEIGHT * 4 - 1
    return min(last_row, max(0, round((high - value) / (high - low) * last_row)))


def _change_markers(series: Series, columns: int) -> str:
    """A number below each change, if there is space for it."""
    characters = [" "] * columns
    for number, position in enumerate(series.change_positions, 1):
        column = position * columns // len(series.known)
        marker = f"▲{number}"
        if all(character == " " for character in characters[column : column + len(marker)]):
            characters[column : column + len(marker)] = marker
    return "".join(characters[:columns]).rstrip()


def _change_line(number: int, change: Change, history: History) -> str:
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    effect = " ".join(filter(None, (change.effect, history.verdict(change))))
    line = f"▲{number} {levels}, {effect}, {one_line(change.before)} → {one_line(change.after)}"
    if change.earliest != change.latest:
        line += f" (95 %: {one_line(change.earliest)} to {one_line(change.latest)})"
    return f"{line}; acknowledged: {one_line(change.why)}" if change.why else line


_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 960, 260, 90, 16, 58  # pixels of the plot area and its margins
_EDGE, _DATE = 12, 100  # pixels between the edge and a run, and of a date
_LEAST_GAP = 2  # pixels between two runs that can be distinguished


class SeriesSection(Struct, frozen=True):
    """A series as a section of the page; without any value it has no chart."""

    key: str
    title: str
    chart: Mapping[str, object] | None  # what the template draws, in pixels
    changes: tuple[tuple[str, ...], ...]  # the cells of the table of changes


class HistoryPage(Struct, frozen=True):
    """The page as data."""

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[SeriesSection, ...]
    notices: tuple[str, ...]
    footer: str


def _page(history: History) -> HistoryPage:
    source = history.provenance
    definition = (source.effective_hash or "")[:16]
    return HistoryPage(
        title=history.measured,
        subtitle=history.metric.column.doc,
        facts=(
            ("Runs", f"{sum(len(series.known) for series in history.series):,}"),
            ("Changes", f"{len(history.changes):,}"),
        ),
        sections=tuple(
            SeriesSection(
                f"series-{number}",
                history.title(series),
                _chart(history, series) if series.known else None,
                tuple(_change_row(history, series, index) for index in range(len(series.changes))),
            )
            for number, series in enumerate(history.series, 1)
        ),
        notices=history.notices,
        footer=f"{source.analysis}@{source.version}, definition {definition}, tracewarehouse {source.tool}",
    )


def _change_row(history: History, series: Series, at: int) -> tuple[str, ...]:
    change = series.changes[at]
    return (
        f"▲{at + 1}",
        show(change.old, history.unit),
        show(change.new, history.unit),
        change.effect,
        history.verdict(change),
        change.before,
        change.after,
        f"{change.earliest} to {change.latest}",
        change.why or "",
    )


def _chart(history: History, series: Series) -> Mapping[str, object]:
    measured = series.known
    low, high = series.plotted_range()
    axis = _Axis.of([point.time_ns for point in measured])
    return {
        "width": _WIDTH,
        "height": _TOP + _HEIGHT + _BELOW,
        "left": _LEFT,
        "top": _TOP,
        "bottom": _TOP + _HEIGHT,
        "ticks": [(_y(value, low, high), show(value, history.unit)) for value in round_values(low, high)],
        "dots": [(axis.places[n], *_dot(point, low, high, history.unit)) for n, point in enumerate(measured)],
        "levels": [*_level_lines(series, axis, low, high)],
        "changes": [
            (axis.before(number), f"{change.before} → {change.after}: {change.effect}")
            for change, number in zip(series.changes, series.change_positions, strict=True)
        ],
        "dates": [*_dates(measured, axis)],
        "axis": "start of the run" if axis.is_time else "runs in the order of their start, evenly spaced",
    }


class _Axis(Struct, frozen=True):
    """The places of runs from left to right: by time or, where most would lie on another one, by order."""

    places: tuple[float, ...]
    is_time: bool

    @classmethod
    def of(cls, times_ns: Sequence[int]) -> _Axis:
        """The axis of runs that started at these times."""
        span, width, count = times_ns[-1] - times_ns[0], _WIDTH - _LEFT - 2 * _EDGE, len(times_ns)
        gaps = [later - earlier for earlier, later in zip(times_ns, times_ns[1:], strict=False)]
        is_time = span > 0 and 2 * sum(gap * width >= _LEAST_GAP * span for gap in gaps) >= len(gaps)
        shares = (
            [(ns - times_ns[0]) / span for ns in times_ns]
            if is_time
            else [(index + 0.5) / count for index in range(count)]
        )
        return cls(tuple(_LEFT + _EDGE + share * width for share in shares), is_time)

    def before(self, at: int) -> float:
        """The place between a run and the one before; the edge of the chart outside of the runs."""
        if at in (0, len(self.places)):
            return float(_LEFT if at == 0 else _WIDTH)
        return (self.places[at - 1] + self.places[at]) / 2


def round_values(low: float, high: float) -> Iterator[float]:
    """At most six multiples of 1, 2 or 5 times a power of ten from `low` to `high`."""
    least = (high - low) / 5
    power = 10.0 ** floor(log10(least))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least)
    for number in range(ceil(low / step), floor(high / step) + 1):
        yield number * step


def _dates(known: Sequence[Point], x: _Axis) -> Iterator[tuple[float, str]]:
    """The place and date of the first run, and of others as far as there is room."""
    last = -inf
    for point, place in zip(known, x.places, strict=True):
        if place - last >= _DATE and place <= _WIDTH - _DATE / 2:
            yield place, timestamp(point.time_ns)[:10]
            # The first begins at its run, others surround theirs.
            last = place if last > 0 else place + _DATE / 2


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _HEIGHT * (high - min(high, max(low, value))) / (high - low)


def _dot(point: Point, low: float, high: float, unit: str | None) -> tuple[float, bool, str]:
    """The height of a run, whether it is outside the range (hollow, at the edge), and its label."""
    value = point.value or 0.0
    label = f"{point.name}: {show(point.value, unit)}, {timestamp(point.time_ns)[:19]}"
    return _y(value, low, high), not low <= value <= high, label


def _level_lines(series: Series, x: _Axis, low: float, high: float) -> Iterator[tuple[float, float, float]]:
    """The start, end and height of each level between two changes."""
    measured = series.known
    edges = [0, *series.change_positions, len(measured)]
    for start, end in zip(edges, edges[1:], strict=False):
        level = measured[start].level
        if level is not None:
            yield x.before(start), x.before(end), _y(level, low, high)
