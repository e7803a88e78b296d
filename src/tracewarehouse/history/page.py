"""A history as one HTML file that needs nothing else: a drawing per line, and its changes as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from tracewarehouse.history.plot import bounds, size, title, verdict
from tracewarehouse.history.series import Change, Dot, HistoryData, Line
from tracewarehouse.render.text import show, timestamp

_WIDTH, _HEIGHT, _LEFT, _TOP = 960, 260, 90, 16
_STYLE = """
:root { color-scheme: light dark; --dot: #4a72b0; --level: #d1495b; --soft: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
.dot { fill: var(--dot); fill-opacity: .7; } .off { fill: none; stroke: var(--dot); }
.level { stroke: var(--level); stroke-width: 2; } .change { stroke: var(--soft); stroke-dasharray: 4 3; }
.axis { stroke: var(--soft); } table { border-collapse: collapse; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--soft); }
"""


def page(history: HistoryData) -> Iterator[str]:
    """The file in pieces; all text in it that comes from runs is escaped."""
    name = escape(str(history.metric))
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n"
    yield f"<p>{escape(history.metric.column.doc)}</p>\n"
    for line in history.lines:
        yield f"<h2>{escape(title(history, line))}</h2>\n"
        yield from _drawing(line, history.unit)
        yield from _table(line, history)
    yield "".join(f"<p>{escape(notice)}</p>\n" for notice in history.notices)
    told = history.provenance
    definition = (told.effective_hash or "")[:16]
    made = f"{told.analysis}@{told.version}, definition {definition}, tracewarehouse {told.tool}"
    yield f"<p><small>{escape(made)}</small></p>\n</body>\n</html>\n"


def _drawing(line: Line, unit: str | None) -> Iterator[str]:
    telling = [dot for dot in line.dots if dot.value is not None]
    if not telling:
        return
    low, high = bounds([dot.value or 0.0 for dot in telling])
    yield f'<svg viewBox="0 0 {_WIDTH} {_TOP + _HEIGHT + 40}" role="img">\n'
    for value in (high, (high + low) / 2, low):
        y = _y(value, low, high)
        yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(show(value, unit))}</text>\n'
    yield from _changes(line, telling)
    yield from _levels(line, telling, low, high)
    for at, dot in enumerate(telling):
        yield _dot(dot, _x(at, len(telling)), low, high, unit)
    for at, anchor in ((0, "start"), (-1, "end")):
        x = _x(at % len(telling), len(telling))
        day = timestamp(telling[at].time_ns)[:10]
        yield f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 34}" text-anchor="{anchor}">{day}</text>\n'
    yield "</svg>\n"


def _x(at: float, count: int) -> float:
    return _LEFT + (at + 0.5) * (_WIDTH - _LEFT) / count


def _y(value: float, low: float, high: float) -> float:
    """The height; what is far off stands at the edge."""
    return _TOP + _HEIGHT * (high - min(high, max(low, value))) / (high - low)


def _dot(dot: Dot, x: float, low: float, high: float, unit: str | None) -> str:
    value = dot.value or 0.0
    told = escape(f"{dot.name}: {show(dot.value, unit)}, {timestamp(dot.time_ns)[:19]}")
    kind = "dot" if low <= value <= high else "off"
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{_y(value, low, high):.1f}" r="3">'
        f"<title>{told}</title></circle>\n"
    )


def _changes(line: Line, telling: Sequence[Dot]) -> Iterator[str]:
    for number, (change, at) in enumerate(zip(line.changes, _places(line, telling), strict=True), 1):
        x, bottom = _x(at - 0.5, len(telling)), _TOP + _HEIGHT
        told = escape(f"{change.before} → {change.after}: {size(change)}")
        yield f'<line class="change" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">▲{number}'
        yield f"<title>{told}</title></text>\n"


def _levels(line: Line, telling: Sequence[Dot], low: float, high: float) -> Iterator[str]:
    edges = [0, *_places(line, telling), len(telling)]
    for start, end in zip(edges, edges[1:], strict=False):
        level = telling[start].level
        if level is not None:
            y, ends = _y(level, low, high), (_x(start - 0.5, len(telling)), _x(end - 0.5, len(telling)))
            yield f'<line class="level" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>\n'


def _places(line: Line, telling: Sequence[Dot]) -> list[int]:
    names = [dot.name for dot in telling]
    return [names.index(change.after) for change in line.changes]


def _table(line: Line, history: HistoryData) -> Iterator[str]:
    if not line.changes:
        return
    heads = ("", "before", "after", "change, 95 %", "", "last run before", "first run after", "place, 95 %")
    yield f"<table>\n<tr>{''.join(f'<th>{head}</th>' for head in (*heads, 'acknowledged'))}</tr>\n"
    for number, change in enumerate(line.changes, 1):
        cells = "".join(f"<td>{escape(text)}</td>" for text in _cells(number, change, history))
        yield f"<tr>{cells}</tr>\n"
    yield "</table>\n"


def _cells(number: int, change: Change, history: HistoryData) -> tuple[str, ...]:
    return (
        f"▲{number}",
        show(change.old, history.unit),
        show(change.new, history.unit),
        size(change),
        verdict(change, history),
        change.before,
        change.after,
        f"{change.earliest} to {change.latest}",
        change.why or "",
    )
