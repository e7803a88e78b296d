"""A history for people: the HTML page, with a chart and a table of changes for each series, and its text.

The chart is plain SVG drawn by the template, so that the page does not need the plotting libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.compare.history.series import Change, HistoryData, Point, Series
from tracewarehouse.present.pages import render_page
from tracewarehouse.present.render.text import one_line, show, timestamp
from tracewarehouse.result import Field, Result, from_rows

if TYPE_CHECKING:
    import polars


_TERMINAL_HEIGHT = 10  # characters; each is four dots high and two wide
_BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a character
_LEVEL = "─"


def chart_lines(history: HistoryData, width: int) -> Iterator[str]:
    """The lines of text, each at most `width` characters unless run names are longer."""
    for at, series in enumerate(history.series):
        if at:
            yield ""
        yield history.title(series)
        if series.known:
            yield from _text_chart(history, series, width)
        for number, change in enumerate(series.changes, 1):
            yield _change_line(number, change, history)
        yield from series.remarks()


def _text_chart(history: HistoryData, series: Series, width: int) -> Iterator[str]:
    low, high = series.plotted_range()
    labels = {0: show(high, history.unit), _TERMINAL_HEIGHT - 1: show(low, history.unit)}
    margin = max(map(len, labels.values()))
    columns = max(10, min(width - margin - 2, len(series.known)))
    rows = _plot_area(series, low, high, columns)
    for at, row in enumerate(rows):
        yield f"{labels.get(at, '').rjust(margin)} ┤{row}".rstrip()
    yield " " * (margin + 2) + _change_markers(series, columns)
    ends = series.points[0], series.points[-1]
    first, last = (f"{datetime.fromtimestamp(point.time_ns // 10**9, UTC):%Y-%m-%d}" for point in ends)
    dates = f"{first}{last.rjust(columns - len(first))}" if columns > 2 * len(first) else f"{first} to {last}"
    yield " " * (margin + 2) + dates


def _plot_area(series: Series, low: float, high: float, columns: int) -> list[str]:
    """Rows of characters: braille dots for runs, a line for their level in characters without a run."""
    dots = [[0] * columns for _ in range(_TERMINAL_HEIGHT)]
    levels = [[False] * columns for _ in range(_TERMINAL_HEIGHT)]
    for at, point in enumerate(series.known):
        x = at * columns * 2 // len(series.known)
        y = _dot_row(point.value or 0.0, low, high)
        dots[y // 4][x // 2] |= _BRAILLE_BITS[y % 4][x % 2]
        if point.level is not None:
            levels[_dot_row(point.level, low, high) // 4][x // 2] = True
    return [
        "".join(
            chr(0x2800 + mask) if mask else _LEVEL if has_level else " "
            for mask, has_level in zip(*row, strict=True)
        )
        for row in zip(dots, levels, strict=True)
    ]


def _dot_row(value: float, low: float, high: float) -> int:
    """The row of dots from the top; values outside the range are drawn at the edge."""
    last = _TERMINAL_HEIGHT * 4 - 1
    return min(last, max(0, round((high - value) / (high - low) * last)))


def _change_markers(series: Series, columns: int) -> str:
    """A number below each change, if there is space for it."""
    text = [" "] * columns
    for number, position in enumerate(series.change_positions, 1):
        at = position * columns // len(series.known)
        marker = f"▲{number}"
        if all(character == " " for character in text[at : at + len(marker)]):
            text[at : at + len(marker)] = marker
    return "".join(text[:columns]).rstrip()


def _change_line(number: int, change: Change, history: HistoryData) -> str:
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    effect = " ".join(filter(None, (change.effect, history.verdict(change))))
    text = f"▲{number} {levels}, {effect}, {one_line(change.before)} → {one_line(change.after)}"
    if change.earliest != change.latest:
        text += f" (95 %: {one_line(change.earliest)} to {one_line(change.latest)})"
    return f"{text}; acknowledged: {one_line(change.why)}" if change.why else text


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
        sections=tuple(
            SeriesSection(
                f"series-{number}",
                history.title(series),
                _chart(history, series) if series.known else None,
                tuple(_change_row(history, series, at) for at in range(len(series.changes))),
            )
            for number, series in enumerate(history.series, 1)
        ),
        notices=history.notices,
        footer=f"{source.analysis}@{source.version}, definition {definition}, tracewarehouse {source.tool}",
    )


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


def _chart(history: HistoryData, series: Series) -> Mapping[str, object]:
    known = series.known
    low, high = series.plotted_range()
    x = _Axis.of([point.time_ns for point in known])
    return {
        "width": _WIDTH,
        "height": _TOP + _HEIGHT + _BELOW,
        "left": _LEFT,
        "top": _TOP,
        "bottom": _TOP + _HEIGHT,
        "ticks": [(_y(value, low, high), show(value, history.unit)) for value in round_values(low, high)],
        "dots": [(x.places[at], *_dot(point, low, high, history.unit)) for at, point in enumerate(known)],
        "levels": [*_level_lines(series, x, low, high)],
        "changes": [
            (x.before(at), f"{change.before} → {change.after}: {change.effect}")
            for change, at in zip(series.changes, series.change_positions, strict=True)
        ],
        "dates": [*_dates(known, x)],
        "axis": "start of the run" if x.is_time else "runs in the order of their start, evenly spaced",
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


def _dates(known: Sequence[Point], x: _Axis) -> Iterator[tuple[float, str]]:
    """The place and date of the first run, and of others as far as there is room."""
    last = -inf
    for point, at in zip(known, x.places, strict=True):
        if at - last >= _DATE and at <= _WIDTH - _DATE / 2:
            yield at, timestamp(point.time_ns)[:10]
            last = at if last > 0 else at + _DATE / 2  # the first begins at its run, others surround theirs


def _y(value: float, low: float, high: float) -> float:
    return _TOP + _HEIGHT * (high - min(high, max(low, value))) / (high - low)


def _dot(point: Point, low: float, high: float, unit: str | None) -> tuple[float, bool, str]:
    """The height of a run, whether it is outside the range (hollow, at the edge), and its label."""
    value = point.value or 0.0
    label = f"{point.name}: {show(point.value, unit)}, {timestamp(point.time_ns)[:19]}"
    return _y(value, low, high), not low <= value <= high, label


def _level_lines(series: Series, x: _Axis, low: float, high: float) -> Iterator[tuple[float, float, float]]:
    """The start, end and height of each level between two changes."""
    known = series.known
    edges = [0, *series.change_positions, len(known)]
    for start, end in zip(edges, edges[1:], strict=False):
        level = known[start].level
        if level is not None:
            yield x.before(start), x.before(end), _y(level, low, high)


class History(HistoryData, frozen=True):
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
