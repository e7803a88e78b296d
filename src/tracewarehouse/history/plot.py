"""A history for a terminal: dots over time, the levels through them, the changes listed below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from tracewarehouse.history.series import Change, HistoryData, Line
from tracewarehouse.render.text import one_line, show

_HEIGHT = 10
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column
_LEVEL = "─"


def plot(history: HistoryData, width: int) -> Iterator[str]:
    """The lines of text, each at most `width` cells wide where the names of runs allow."""
    for at, line in enumerate(history.lines):
        if at:
            yield ""
        yield title(history, line)
        values = [dot.value for dot in line.dots if dot.value is not None]
        if values:
            yield from _picture(history, line, values, width)
        yield from (_told(number, change, history) for number, change in enumerate(line.changes, 1))


def title(history: HistoryData, line: Line) -> str:
    """What the line is of, and how much it holds."""
    named = [one_line(line.name)] if line.name else []
    if len({each.definition for each in history.lines}) > 1:
        named.append(f"definition {line.definition}")
    count = sum(dot.value is not None for dot in line.dots)
    runs = f"{count:,} run{'' if count == 1 else 's'}"
    changes = f"{len(line.changes)} change{'' if len(line.changes) == 1 else 's'}"
    return ", ".join([one_line(str(history.metric)), *named, runs, changes])


def _picture(history: HistoryData, line: Line, values: Sequence[float], width: int) -> Iterator[str]:
    low, high = bounds(values)
    labels = {0: show(high, history.unit), _HEIGHT - 1: show(low, history.unit)}
    margin = max(map(len, labels.values()))
    columns = max(10, min(width - margin - 2, len(values)))
    cells = _cells(line, low, high, columns)
    for row in range(_HEIGHT):
        yield f"{labels.get(row, '').rjust(margin)} ┤{''.join(cells[row])}".rstrip()
    yield " " * (margin + 2) + _marks(line, columns)
    yield " " * (margin + 2) + _span(line, columns)


def _span(line: Line, columns: int) -> str:
    """The days of the first and the last run."""
    first, last = (_day(line.dots[at].time_ns) for at in (0, -1))
    return f"{first}{last.rjust(columns - len(first))}" if columns > 2 * len(first) else f"{first} to {last}"


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """What is drawn: all but a few far off, which are drawn at the edge."""
    ordered = sorted(values)
    off = len(ordered) // 50
    low, high = ordered[off], ordered[-1 - off]
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _cells(line: Line, low: float, high: float, columns: int) -> list[list[str]]:
    """Rows of characters: braille for runs, a stroke for a level where no run is."""
    telling = [dot for dot in line.dots if dot.value is not None]
    bits = [[0] * columns for _ in range(_HEIGHT)]
    strokes = [[False] * columns for _ in range(_HEIGHT)]
    for at, dot in enumerate(telling):
        x = at * columns * 2 // len(telling)
        y = _row(dot.value or 0.0, low, high)
        bits[y // 4][x // 2] |= _BITS[y % 4][x % 2]
        if dot.level is not None:
            strokes[_row(dot.level, low, high) // 4][x // 2] = True
    return [
        [
            chr(0x2800 + mask) if mask else _LEVEL if stroke else " "
            for mask, stroke in zip(*both, strict=True)
        ]
        for both in zip(bits, strokes, strict=True)
    ]


def _row(value: float, low: float, high: float) -> int:
    """The row of dots, from above."""
    last = _HEIGHT * 4 - 1
    return min(last, max(0, round((high - value) / (high - low) * last)))


def _marks(line: Line, columns: int) -> str:
    """A number under each change, as far as there is room."""
    names = [dot.name for dot in line.dots if dot.value is not None]
    text = [" "] * columns
    for number, change in enumerate(line.changes, 1):
        at = names.index(change.after) * columns // len(names)
        mark = f"▲{number}"
        if all(cell == " " for cell in text[at : at + len(mark)]):
            text[at : at + len(mark)] = mark
    return "".join(text[:columns]).rstrip()


def _told(number: int, change: Change, history: HistoryData) -> str:
    """One change in words."""
    levels = f"{show(change.old, history.unit)} → {show(change.new, history.unit)}"
    told = " ".join(filter(None, (size(change), verdict(change, history))))
    text = f"▲{number} {levels}, {told}, {one_line(change.before)} → {one_line(change.after)}"
    if change.earliest != change.latest:
        text += f" (95 %: {one_line(change.earliest)} to {one_line(change.latest)})"
    return f"{text}; acknowledged: {one_line(change.why)}" if change.why else text


def verdict(change: Change, history: HistoryData) -> str:
    """Better or worse, where the metric's goal is clear."""
    goal = history.metric.column.better
    if goal is None:
        return ""
    return "better" if (change.new < change.old) == (goal == "lower") else "worse"


def size(change: Change) -> str:
    """`+3.0 % [2.1, 3.9]`, the interval with 95 %."""
    if change.change is None or change.low is None or change.high is None:
        return "from 0"
    return f"{change.change * 100:+.1f} % [{change.low * 100:.1f}, {change.high * 100:.1f}]"


def _day(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%d}"
