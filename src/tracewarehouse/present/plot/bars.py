"""Horizontal bar and distribution charts with a line of text above each bar, readable on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.present.plot.theme import (
    DESCRIPTION,
    OWN_COLOR,
    PAGE,
    Scale,
    Spec,
    Theme,
    frame,
    layer,
    number,
)

WIDTH = 340
_ROW_HEIGHT, _TEXT_HEIGHT, _BAR_HEIGHT = 32, 13, 10  # pixels


class Bar(Struct, frozen=True):
    """A labeled bar; `text` is printed at its right end, `description` is its tooltip and ARIA label."""

    label: str
    value: float
    category: str
    text: str
    description: str
    start: float = 0.0


class Distribution(Struct, frozen=True):
    """A labeled distribution: a line from `low` to `high`, thick from `median` to `p95`."""

    label: str
    low: float
    median: float
    p95: float
    high: float
    category: str
    text: str
    description: str


def bar_chart(
    rows: Sequence[Bar],
    theme: Theme,
    width: int = WIDTH,
    low: float | None = None,
    high: float | None = None,
) -> Spec:
    """One bar per row, from `start` to `start + value`; a vertical line marks 0 if bars extend below it.

    With `low` the axis begins there and bars are clipped to it; with `high` it ends there, and the rest of
    the width is drawn as a track, so that bars read as parts of a whole.
    """
    lowest = min(0.0, *(min(row.start, row.start + row.value) for row in rows))
    is_part = high is not None
    high = high or max(0.0, *(max(row.start, row.start + row.value) for row in rows)) or 1.0
    low = lowest if low is None else low
    values = [
        {**_row_values(row, at, theme), "from": max(row.start, low), "to": row.start + row.value}
        for at, row in enumerate(rows)
    ]
    x = number("from", scale={"domain": [low, high], "nice": False, "zero": False}, axis=None)
    bars = layer("rect", {"x": x, "x2": {"field": "to"}, **_between("top", "bottom")}, cornerRadius=1.5)
    line: Spec = {"aria": False, "color": theme.color("line")}
    at_zero = {"x": number(datum=0, axis=None), "y": {"value": 0}, "y2": {"value": "height"}}
    row_area = {"x": {"value": 0}, "x2": {"value": "width"}, "y": _pixel("top"), "y2": {"field": "bottom"}}
    track = layer("rect", row_area, cornerRadius=1.5, **line, opacity=0.5)
    behind = [layer("rule", at_zero, **line)] if low < 0 < high else []
    layers = [*behind, *_row_text(width), *([track] if is_part else []), bars]
    return {**_frame(values, width), "layer": layers}


def distribution_chart(rows: Sequence[Distribution]) -> Spec:
    """One distribution per row on a shared logarithmic axis."""
    scale = Scale.of([row.high for row in rows], "ns")
    values = [_row_values(row, at, PAGE) for at, row in enumerate(rows)]
    for value, row in zip(values, rows, strict=True):
        for name in ("low", "median", "p95", "high"):
            value[name] = max(getattr(row, name), 1) / scale.divisor
    axis = {"title": scale.axis_title("duration of a call"), "grid": True, "tickCount": 4, "format": "~g"}
    low, median = (number(name, scale={"type": "log"}, axis=axis) for name in ("low", "median"))
    of_range = {"x": low, "x2": {"field": "high"}, **_between("thin_top", "thin_bottom")}
    of_most = {"x": median, "x2": {"field": "p95"}, **_between("top", "bottom")}
    at_median = {"x": median, "y": _pixel("top"), "y2": {"field": "bottom"}}
    layers = [
        layer("rect", of_range, opacity=0.45),
        layer("rect", of_most, cornerRadius=1.5),
        layer("rule", at_median, strokeWidth=2, aria=False, color=PAGE.color("ink")),
    ]
    return {**_frame(values, WIDTH), "layer": [*_row_text(WIDTH), *layers]}


def _row_values(row: Bar | Distribution, at: int, theme: Theme) -> dict[str, object]:
    """The texts and color of row `at`, and where its text, its bar, and its thin line are."""
    baseline = at * _ROW_HEIGHT + _TEXT_HEIGHT
    top = baseline + 4
    bottom = top + _BAR_HEIGHT
    return {
        "label": row.label,
        "text": row.text,
        "description": row.description,
        "color": theme.color(row.category),
        "baseline": baseline,
        "top": top,
        "bottom": bottom,
        "thin_top": top + 3.5,
        "thin_bottom": bottom - 3.5,
    }


def _frame(values: Sequence[Spec], width: int) -> Spec:
    return {"width": width, "height": len(values) * _ROW_HEIGHT, "data": {"values": list(values)}}


def _row_text(width: int) -> list[Spec]:
    """The label on the left, the value on the right."""
    plain: Spec = {"baseline": "alphabetic", "aria": False}
    left, right = (
        {"x": {"value": x}, "y": _pixel("baseline"), "text": {"field": text}}
        for x, text in ((0, "label"), ("width", "text"))
    )
    return [
        layer("text", left, **plain, align="left", limit=width - 85),
        layer("text", right, **plain, align="right"),
    ]


def _between(top: str, bottom: str) -> Spec:
    return {"y": _pixel(top), "y2": {"field": bottom}, "color": OWN_COLOR, "description": DESCRIPTION}


def _pixel(field: str) -> Spec:
    return number(field, scale=None, axis=None)


class Segment(Struct, frozen=True):
    """A segment of a stacked bar; `row` is the bar it belongs to."""

    row: str
    part: str
    value: float
    category: str
    description: str


class Cell(Struct, frozen=True):
    """A cell of a heat map; its opacity is `value`, from 0 to 1."""

    column: int
    row: str
    value: float
    category: str
    description: str


def stacked_bars(
    segments: Sequence[Segment],
    rows: Sequence[str],
    parts: Sequence[str],
    unit: str | None,
    theme: Theme,
    *,
    axis_title: str = "rank",
    legend: bool = False,
    width: int = WIDTH,
) -> Spec:
    """One horizontal stack for each of `rows`, in that order, with segments in the order of `parts`."""
    totals = {row: sum(each.value for each in segments if each.row == row) for row in rows}
    scale = Scale.of(totals.values(), unit)
    values = [
        {
            "row": each.row,
            "part": each.part,
            "at": parts.index(each.part),
            "value": each.value / scale.divisor,
            "color": theme.color(each.category),
            "description": each.description,
        }
        for each in segments
        if each.value
    ]
    step = 20 if len(rows) <= 12 else 14 if len(rows) <= 24 else 10
    labels = {"labelFontSize": 11 if step > 12 else 9, "labelOverlap": True}
    limit = {"domainMax": 1 / scale.divisor} if unit == "ratio" else {}
    axis = {"title": scale.unit or None, "tickCount": 5}
    color = OWN_COLOR
    if legend:
        colors = {each.part: theme.color(each.category) for each in segments}
        known = [part for part in parts if part in colors]
        scheme = {"domain": known, "range": [colors[part] for part in known]}
        color = {"field": "part", "type": "nominal", "scale": scheme, "legend": {"title": None}}
    return {
        **frame(values, width, {"step": step}),
        "mark": {"type": "bar", "stroke": theme.color("paper"), "strokeWidth": 0.6},
        "encoding": {
            "y": _row_channel(rows, axis_title, **labels),
            "x": number("value", axis=axis, scale={"nice": not limit, **limit}),
            "color": color,
            "order": number("at"),
            "description": DESCRIPTION,
            "tooltip": {**DESCRIPTION, "type": "nominal"},
        },
    }


def _row_channel(rows: Sequence[str], title: str | None, **axis: object) -> Spec:
    """The rows in their order."""
    plain = {"title": title, **axis, "ticks": False, "domain": False}
    return {"field": "row", "type": "nominal", "sort": list(rows), "axis": plain}


def heat_map(cells: Sequence[Cell], rows: Sequence[str]) -> Spec:
    """One column per rank and one row per category."""
    columns = sorted({cell.column for cell in cells})
    values = [
        {**asdict(cell), "opacity": round(cell.value, 4), "color": PAGE.color(cell.category)}
        for cell in cells
    ]
    label_every = max(1, -(-len(columns) // 8))
    axis = {"title": "rank", "labelAngle": 0, "values": columns[::label_every], "domain": False}
    opacity = {"domain": [0, 1], "range": [0.04, 1]}
    return {
        **frame(values, WIDTH, {"step": 24}),
        "mark": {"type": "rect"},
        "encoding": {
            "x": {"field": "column", "type": "ordinal", "axis": axis},
            "y": _row_channel(rows, None),
            "color": OWN_COLOR,
            "opacity": number("opacity", scale=opacity, legend=None),
            "description": DESCRIPTION,
        },
    }


HEIGHT = 260
# Narrower rectangles are not visible.
_FEWEST_SHARE = 1 / 700


class Block(Struct, frozen=True):
    """An allocation: from and to are entry numbers; `category` is in the legend."""

    start: int
    end: int
    size: int
    category: str
    description: str


class Rectangle(Struct, frozen=True):
    """A block, or its part between two moments at which blocks below it are freed."""

    block: Block
    start: int
    end: int
    low: int


def stacked(blocks: Sequence[Block]) -> list[Rectangle]:
    """The rectangles: each block lies on the blocks that started before it, and sinks when one is freed."""
    pile: list[tuple[Block, int, int]] = []  # block, since, low
    found: list[Rectangle] = []
    starts = sorted(blocks, key=lambda block: block.start)
    moments = sorted({at for block in blocks for at in (block.start, block.end)})
    at = 0
    for moment in moments:
        pile = _without_freed(pile, moment, found)
        while at < len(starts) and starts[at].start == moment:
            top = pile[-1][2] + pile[-1][0].size if pile else 0
            pile.append((starts[at], moment, top))
            at += 1
    return found


def _without_freed(
    pile: list[tuple[Block, int, int]], moment: int, found: list[Rectangle]
) -> list[tuple[Block, int, int]]:
    """The pile after the blocks that end at this moment; closes the rectangles that end or sink."""
    kept: list[tuple[Block, int, int]] = []
    low = 0
    for block, since, bottom in pile:
        if block.end > moment and bottom == low:
            kept.append((block, since, bottom))
        else:
            found.append(Rectangle(block, since, moment, bottom))
            if block.end > moment:
                kept.append((block, moment, low))
        low += block.size if block.end > moment else 0
    return kept


def block_chart(
    blocks: Sequence[Block],
    total: Sequence[tuple[int, int]],
    colors: Mapping[str, str],
    marks: Sequence[Spec],
) -> Spec:
    """The blocks and the total over entries; `colors`: category → color; `marks`: moments with a text."""
    scale = Scale.of([size for _, size in total], "bytes")
    length = max((entry for entry, _ in total), default=1) or 1
    values = [
        {
            **asdict(each.block),
            "x": each.start,
            "x2": each.end,
            "y": each.low / scale.divisor,
            "y2": (each.low + each.block.size) / scale.divisor,
        }
        for each in stacked(blocks)
        if each.end - each.start >= length * _FEWEST_SHARE
    ]
    line = [{"x": entry, "y": size / scale.divisor} for entry, size in total]
    used = [name for name in colors if any(block.category == name for block in blocks)]
    scheme = {"domain": used, "range": [PAGE.color(colors[name]) for name in used]}
    x_axis = {"title": "entry of the snapshot", "format": "d", "tickMinStep": 1, "grid": False}
    y_axis = {"title": scale.axis_title("memory"), "tickCount": 5}
    x = number("x", axis=x_axis, scale={"domain": [0, length], "nice": False})
    y = number("y", axis=y_axis, scale={"zero": True})
    color = {"field": "category", "type": "nominal", "scale": scheme, "legend": {"title": None, "columns": 8}}
    area = {"x": x, "x2": {"field": "x2"}, "y": y, "y2": {"field": "y2"}}
    ink = {"color": PAGE.color("ink"), "strokeWidth": 1.2, "aria": False}
    dashes = {"color": PAGE.color("longer"), "strokeWidth": 1.5, "strokeDash": [4, 3]}
    of_block = {**area, "color": color, "description": DESCRIPTION}
    layers = [
        layer("rect", of_block, values, stroke=PAGE.color("paper"), strokeWidth=0.4),
        layer("line", {"x": x, "y": y}, line, interpolate="step-after", **ink),
        layer("rule", {"x": x, "description": DESCRIPTION}, marks, **dashes),
    ]
    return {**frame([], WIDTH, HEIGHT), "layer": layers}


_TERA = 1_000  # FLOP per ns in a TFLOP/s


class Dot(Struct, frozen=True):
    """A kernel: FLOP per byte, FLOP per ns, and its share of the time of all dots."""

    intensity: float
    flop_per_ns: float
    share: float
    category: str
    description: str


class Roof(Struct, frozen=True):
    """The limits of a device: FLOP per ns for a type of arithmetic, and bytes per ns."""

    name: str
    flop_per_ns: float
    bytes_per_ns: float


def roofline_chart(dots: Sequence[Dot], roofs: Sequence[Roof]) -> Spec:
    """One dot per kernel, both axes logarithmic; its area grows with its share of the time."""
    low = min(dot.intensity for dot in dots) / 2
    high = max([dot.intensity for dot in dots] + [roof.flop_per_ns / roof.bytes_per_ns for roof in roofs]) * 4
    values = [
        {
            "x": dot.intensity,
            "y": dot.flop_per_ns / _TERA,
            "size": round(40 + 500 * dot.share, 1),
            "color": PAGE.color(dot.category),
            "description": dot.description,
        }
        for dot in dots
    ]
    x_scale = {"type": "log", "domain": [low, high], "nice": False}
    x = number("x", axis={"title": "FLOP per byte", "format": "~g", "tickCount": 6}, scale=x_scale)
    y = number("y", axis={"title": "TFLOP/s", "format": "~g", "tickCount": 6}, scale={"type": "log"})
    of_dot = {"size": number("size", scale=None), "color": OWN_COLOR, "description": DESCRIPTION}
    layers: list[Spec] = [each for roof in roofs for each in _roof(roof, low, high)]
    layers.append(layer("point", of_dot, filled=True, opacity=0.75))
    return {**frame(values, WIDTH, HEIGHT), "encoding": {"x": x, "y": y}, "layer": layers}


def _roof(roof: Roof, low: float, high: float) -> Iterator[Spec]:
    """The slope of the memory bandwidth up to the ridge, the flat part of the peak rate, and its name."""
    ridge = min(max(roof.flop_per_ns / roof.bytes_per_ns, low), high)
    corners = [(low, low * roof.bytes_per_ns), (ridge, roof.flop_per_ns), (high, roof.flop_per_ns)]
    values = [{"x": x, "y": min(y, roof.flop_per_ns) / _TERA} for x, y in corners]
    soft = {"color": PAGE.color("soft"), "aria": False}
    yield layer("line", {}, values, strokeWidth=1.5, **soft)
    name = [{**values[-1], "label": roof.name}]
    yield layer("text", {"text": {"field": "label"}}, name, align="right", baseline="bottom", dy=-3, **soft)
