"""The HTML page of a history: each series as a chart and a table of its changes.

The chart is plain SVG drawn by the template, so that the page does not need the plotting libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracewarehouse.history.series import HistoryData, Point, Series
from tracewarehouse.pages import render_page
from tracewarehouse.render.text import show, timestamp

_WIDTH, _HEIGHT, _LEFT, _TOP, _BELOW = 960, 260, 90, 16, 40  # pixels of the plot area and its margins


@dataclass(frozen=True)
class Tick:
    """A horizontal grid line with its label."""

    y: float
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
    dates: tuple[str, str]  # of the first and the last run


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
    return Chart(
        width=_WIDTH,
        height=_TOP + _HEIGHT + _BELOW,
        left=_LEFT,
        top=_TOP,
        bottom=_TOP + _HEIGHT,
        ticks=tuple(
            Tick(_y(value, low, high), show(value, history.unit)) for value in (high, (high + low) / 2, low)
        ),
        dots=tuple(
            _dot(point, _x(at, len(known)), low, high, history.unit) for at, point in enumerate(known)
        ),
        levels=tuple(_level_lines(series, low, high)),
        changes=tuple(
            ChangeMarker(
                _x(at - 0.5, len(known)), number, f"{change.before} → {change.after}: {change.effect}"
            )
            for number, (change, at) in enumerate(
                zip(series.changes, series.change_positions, strict=True), 1
            )
        ),
        dates=(timestamp(known[0].time_ns)[:10], timestamp(known[-1].time_ns)[:10]),
    )


def _x(at: float, count: int) -> float:
    return _LEFT + (at + 0.5) * (_WIDTH - _LEFT) / count


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _HEIGHT * (high - min(high, max(low, value))) / (high - low)


def _dot(point: Point, x: float, low: float, high: float, unit: str | None) -> Dot:
    value = point.value or 0.0
    label = f"{point.name}: {show(point.value, unit)}, {timestamp(point.time_ns)[:19]}"
    return Dot(x, _y(value, low, high), not low <= value <= high, label)


def _level_lines(series: Series, low: float, high: float) -> Iterator[LevelLine]:
    known = series.known
    edges = [0, *series.change_positions, len(known)]
    for start, end in zip(edges, edges[1:], strict=False):
        level = known[start].level
        if level is not None:
            yield LevelLine(_x(start - 0.5, len(known)), _x(end - 0.5, len(known)), _y(level, low, high))
