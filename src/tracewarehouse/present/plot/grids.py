"""Charts with one row or column per rank: stacked bars, and a heat map for many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse.present.plot.bars import WIDTH
from tracewarehouse.present.plot.theme import DESCRIPTION, OWN_COLOR, Scale, Spec, Theme, frame, number


@dataclass(frozen=True)
class Segment:
    """A segment of a stacked bar; `row` is the bar it belongs to."""

    row: str
    part: str
    value: float
    category: str
    description: str


@dataclass(frozen=True)
class Cell:
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
    return {
        **frame(values, width, {"step": step}),
        "mark": {"type": "bar", "stroke": theme.color("paper"), "strokeWidth": 0.6},
        "encoding": {
            "y": _row_channel(rows, axis_title, **labels),
            "x": number("value", axis=axis, scale={"nice": not limit, **limit}),
            "color": _legend_channel(segments, parts, theme) if legend else OWN_COLOR,
            "order": number("at"),
            "description": DESCRIPTION,
            "tooltip": {**DESCRIPTION, "type": "nominal"},
        },
    }


def _row_channel(rows: Sequence[str], title: str | None, **axis: object) -> Spec:
    """The rows in their order."""
    plain = {"title": title, **axis, "ticks": False, "domain": False}
    return {"field": "row", "type": "nominal", "sort": list(rows), "axis": plain}


def _legend_channel(segments: Sequence[Segment], parts: Sequence[str], theme: Theme) -> Spec:
    """The color of each part, with a legend."""
    colors = {each.part: theme.color(each.category) for each in segments}
    known = [part for part in parts if part in colors]
    scheme = {"domain": known, "range": [colors[part] for part in known]}
    return {"field": "part", "type": "nominal", "scale": scheme, "legend": {"title": None}}


def heat_map(cells: Sequence[Cell], rows: Sequence[str], theme: Theme, width: int = WIDTH) -> Spec:
    """One column per rank and one row per category."""
    columns = sorted({cell.column for cell in cells})
    values = [
        {
            "column": cell.column,
            "row": cell.row,
            "opacity": round(cell.value, 4),
            "color": theme.color(cell.category),
            "description": cell.description,
        }
        for cell in cells
    ]
    label_every = max(1, -(-len(columns) // 8))
    axis = {"title": "rank", "labelAngle": 0, "values": columns[::label_every], "domain": False}
    opacity = {"domain": [0, 1], "range": [0.04, 1]}
    return {
        **frame(values, width, {"step": 24}),
        "mark": {"type": "rect"},
        "encoding": {
            "x": {"field": "column", "type": "ordinal", "axis": axis},
            "y": _row_channel(rows, None),
            "color": OWN_COLOR,
            "opacity": number("opacity", scale=opacity, legend=None),
            "description": DESCRIPTION,
        },
    }
