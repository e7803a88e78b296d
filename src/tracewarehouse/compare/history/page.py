"""The HTML page of a history: each series as a chart and a table of its changes.

The chart is plain SVG drawn by the template, so that the page does not need the plotting libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10

from tracewarehouse.compare.history.series import HistoryData, Point, Series
from tracewarehouse.present.pages import render_page
from tracewarehouse.present.render.text import show, timestamp

_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 960, 260, 90, 16, 58  # pixels of the plot area and its margins
_EDGE, _DATE = 12, 100  # pixels between the edge and a run, and of a date
_LEAST_GAP = 2  # pixels between two runs that can be distinguished


@dataclass(frozen=True)
class Tick:
    """A grid line at a place of the vertical or horizontal axis, with its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    """The circle of a run; one outside the value range is drawn hollow at the edge."""

    x: float
    y: float
    is_outlier: bool
    label: str


@dataclass(frozen=True)
class LevelLine:
    """The level between two changes."""

    start: float
    end: float
    y: float


@dataclass(frozen=True)
class ChangeMarker:
    """The vertical line of a change."""

    x: float
    number: int
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart in pixels."""

    width: int
    height: int
    left: int
    top: int
    bottom: int
    ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...]
    levels: tuple[LevelLine, ...]
    changes: tuple[ChangeMarker, ...]
    dates: tuple[Tick, ...]
    axis: str  # what the horizontal axis is


@dataclass(frozen=True)
class SeriesSection:
    """A series as a section of the page; without any value it has no chart."""

    key: str
    title: str
    chart: Chart | None
    changes: tuple[tuple[str, ...], ...]  # the cells of the table of changes


@dataclass(frozen=True)
class HistoryPage:
    """The page as data."""

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[SeriesSection, ...]
    notices: tuple[str, ...]
    footer: str


def html(history: HistoryData) -> Iterator[str]:
    """The page as one HTML file, in chunks."""
    return render_page("history.html", page=_page(history))


def _page(history: HistoryData) -> HistoryPage:
    source = history.provenance
    definition = (source.effective_hash or "")[:16]
    return HistoryPage(
        title=history.measured,
        subtitle=history.metric.column.doc,
        facts=(
            ("Runs", f"{sum(len(series.known) for series in history.series):,}"),
            ("Changes", f"{len(history.changes):,}"),
        ),
        sections=tuple(_section(history, series, at) for at, series in enumerate(history.series, 1)),
        notices=history.notices,
        footer=f"{source.analysis}@{source.version}, definition {definition}, tracewarehouse {source.tool}",
    )


def _section(history: HistoryData, series: Series, number: int) -> SeriesSection:
    changes = tuple(_change_row(history, series, at) for at in range(len(series.changes)))
    chart = _chart(history, series) if series.known else None
    return SeriesSection(f"series-{number}", history.title(series), chart, changes)


def _change_row(history: HistoryData, series: Series, at: int) -> tuple[str, ...]:
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


def _chart(history: HistoryData, series: Series) -> Chart:
    known = series.known
    low, high = series.plotted_range()
    x = _Axis.of([point.time_ns for point in known])
    return Chart(
        width=_WIDTH,
        height=_TOP + _HEIGHT + _BELOW,
        left=_LEFT,
        top=_TOP,
        bottom=_TOP + _HEIGHT,
        ticks=tuple(
            Tick(_y(value, low, high), show(value, history.unit)) for value in round_values(low, high)
        ),
        dots=tuple(_dot(point, x.places[at], low, high, history.unit) for at, point in enumerate(known)),
        levels=tuple(_level_lines(series, x, low, high)),
        changes=tuple(
            ChangeMarker(x.before(at), number, f"{change.before} → {change.after}: {change.effect}")
            for number, (change, at) in enumerate(
                zip(series.changes, series.change_positions, strict=True), 1
            )
        ),
        dates=tuple(_dates(known, x)),
        axis="start of the run" if x.is_time else "runs in the order of their start, evenly spaced",
    )


@dataclass(frozen=True)
class _Axis:
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
            else [(at + 0.5) / count for at in range(count)]
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


def _dates(known: Sequence[Point], x: _Axis) -> Iterator[Tick]:
    """The date of the first run, and of others as far as there is room."""
    last = -inf
    for point, at in zip(known, x.places, strict=True):
        if at - last >= _DATE and at <= _WIDTH - _DATE / 2:
            yield Tick(at, timestamp(point.time_ns)[:10])
            last = at if last > 0 else at + _DATE / 2  # the first begins at its run, others surround theirs


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _HEIGHT * (high - min(high, max(low, value))) / (high - low)


def _dot(point: Point, x: float, low: float, high: float, unit: str | None) -> Dot:
    value = point.value or 0.0
    label = f"{point.name}: {show(point.value, unit)}, {timestamp(point.time_ns)[:19]}"
    return Dot(x, _y(value, low, high), not low <= value <= high, label)


def _level_lines(series: Series, x: _Axis, low: float, high: float) -> Iterator[LevelLine]:
    known = series.known
    edges = [0, *series.change_positions, len(known)]
    for start, end in zip(edges, edges[1:], strict=False):
        level = known[start].level
        if level is not None:
            yield LevelLine(x.before(start), x.before(end), _y(level, low, high))
