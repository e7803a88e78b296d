"""A history for a terminal: a braille chart of each series with its levels, then its changes as text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tracewarehouse.compare.history.series import Change, HistoryData, Series
from tracewarehouse.present.render.text import one_line, show

_HEIGHT = 10  # characters; each is four dots high and two wide
_BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column of a character
_LEVEL = "─"


def chart_lines(history: HistoryData, width: int) -> Iterator[str]:
    """The lines of text, each at most `width` characters unless run names are longer."""
    for at, series in enumerate(history.series):
        if at:
            yield ""
        yield history.title(series)
        if series.known:
            yield from _chart(history, series, width)
        for number, change in enumerate(series.changes, 1):
            yield _change_line(number, change, history)
        yield from series.remarks()


def _chart(history: HistoryData, series: Series, width: int) -> Iterator[str]:
    low, high = series.plotted_range()
    labels = {0: show(high, history.unit), _HEIGHT - 1: show(low, history.unit)}
    margin = max(map(len, labels.values()))
    columns = max(10, min(width - margin - 2, len(series.known)))
    rows = _plot_area(series, low, high, columns)
    for at, row in enumerate(rows):
        yield f"{labels.get(at, '').rjust(margin)} ┤{row}".rstrip()
    yield " " * (margin + 2) + _change_markers(series, columns)
    yield " " * (margin + 2) + _dates(series, columns)


def _plot_area(series: Series, low: float, high: float, columns: int) -> list[str]:
    """Rows of characters: braille dots for runs, a line for their level in characters without a run."""
    dots = [[0] * columns for _ in range(_HEIGHT)]
    levels = [[False] * columns for _ in range(_HEIGHT)]
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
    last = _HEIGHT * 4 - 1
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


def _dates(series: Series, columns: int) -> str:
    """The dates of the first and the last run."""
    first, last = (
        f"{datetime.fromtimestamp(series.points[at].time_ns // 10**9, UTC):%Y-%m-%d}" for at in (0, -1)
    )
    return f"{first}{last.rjust(columns - len(first))}" if columns > 2 * len(first) else f"{first} to {last}"


def _change_line(number: int, change: Change, history: HistoryData) -> str:
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    effect = " ".join(filter(None, (change.effect, history.verdict(change))))
    text = f"▲{number} {levels}, {effect}, {one_line(change.before)} → {one_line(change.after)}"
    if change.earliest != change.latest:
        text += f" (95 %: {one_line(change.earliest)} to {one_line(change.latest)})"
    return f"{text}; acknowledged: {one_line(change.why)}" if change.why else text
