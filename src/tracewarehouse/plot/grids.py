"""Pictures with a row or a column for each rank: stacked parts, and a map of shades for many ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse.plot.bars import WIDTH
from tracewarehouse.plot.theme import Scale, Spec, Theme

FIT = {"type": "fit-x", "contains": "padding"}


@dataclass(frozen=True)
class Piece:
    """A part of a stack: `row` is the stack it belongs to."""

    row: str
    part: str
    value: float
    meaning: str
    told: str


@dataclass(frozen=True)
class Cell:
    """A cell of a map: the stronger its colour, the larger its value, which is 0 to 1."""

    column: int
    row: str
    value: float
    meaning: str
    told: str


def stacks(
    pieces: Sequence[Piece],
    rows: Sequence[str],
    parts: Sequence[str],
    unit: str | None,
    theme: Theme,
    *,
    what: str = "rank",
    legend: bool = False,
    width: int = WIDTH,
) -> Spec:
    """A horizontal stack for each of `rows`, in that order, its pieces in the order of `parts`."""
    totals = {row: sum(each.value for each in pieces if each.row == row) for row in rows}
    scale = Scale.of(totals.values(), unit)
    values = [
        {
            "row": each.row,
            "part": each.part,
            "at": parts.index(each.part),
            "value": each.value / scale.by,
            "ink": theme.colour(each.meaning),
            "told": each.told,
        }
        for each in pieces
        if each.value
    ]
    inks = {each.part: theme.colour(each.meaning) for each in pieces}
    colour: Spec = {"field": "ink", "type": "nominal", "scale": None}
    if legend:
        known = [part for part in parts if part in inks]
        scheme = {"domain": known, "range": [inks[part] for part in known]}
        colour = {"field": "part", "type": "nominal", "scale": scheme, "legend": {"title": None}}
    step = 20 if len(rows) <= 12 else 14 if len(rows) <= 24 else 10
    shown = {"labelFontSize": 11 if step > 12 else 9, "labelOverlap": True, "ticks": False, "domain": False}
    whole = {"domainMax": 1 / scale.by} if unit == "ratio" else {}
    return {
        "width": width,
        "height": {"step": step},
        "autosize": FIT,
        "data": {"values": values},
        "mark": {"type": "bar", "stroke": theme.colour("paper"), "strokeWidth": 0.6},
        "encoding": {
            "y": {"field": "row", "type": "nominal", "sort": list(rows), "axis": {"title": what, **shown}},
            "x": {
                "field": "value",
                "type": "quantitative",
                "axis": {"title": scale.name or None, "tickCount": 5},
                "scale": {"nice": not whole, **whole},
            },
            "color": colour,
            "order": {"field": "at", "type": "quantitative"},
            "description": {"field": "told"},
            "tooltip": {"field": "told", "type": "nominal"},
        },
    }


def heat(cells: Sequence[Cell], rows: Sequence[str], theme: Theme, width: int = WIDTH) -> Spec:
    """A column for each rank, a row for each part."""
    columns = len({cell.column for cell in cells}) or 1
    values = [
        {
            "column": cell.column,
            "row": cell.row,
            "shade": round(cell.value, 4),
            "ink": theme.colour(cell.meaning),
            "told": cell.told,
        }
        for cell in cells
    ]
    every = max(1, -(-columns // 8))
    return {
        "width": width,
        "height": {"step": 24},
        "autosize": FIT,
        "data": {"values": values},
        "mark": {"type": "rect"},
        "encoding": {
            "x": {
                "field": "column",
                "type": "ordinal",
                "axis": {
                    "title": "rank",
                    "labelAngle": 0,
                    "values": [cell for at, cell in enumerate(_columns(cells)) if at % every == 0],
                    "domain": False,
                },
            },
            "y": {
                "field": "row",
                "type": "nominal",
                "sort": list(rows),
                "axis": {"title": None, "ticks": False, "domain": False},
            },
            "color": {"field": "ink", "type": "nominal", "scale": None},
            "opacity": {
                "field": "shade",
                "type": "quantitative",
                "scale": {"domain": [0, 1], "range": [0.04, 1]},
                "legend": None,
            },
            "description": {"field": "told"},
        },
    }


def _columns(cells: Sequence[Cell]) -> list[int]:
    return sorted({cell.column for cell in cells})
