"""Pictures with a line of text above each bar: they keep their size on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse.plot.theme import Scale, Spec, Theme

WIDTH = 340
_STEP, _TEXT, _BAR = 32, 13, 10  # pixels: of a row, to the foot of its text, of its bar


@dataclass(frozen=True)
class Bar:
    """A labelled bar; `text` stands at its right end, `told` is what a pointer or a reader is told of it."""

    label: str
    value: float
    meaning: str
    text: str
    told: str
    start: float = 0.0


@dataclass(frozen=True)
class Range:
    """A labelled line from the shortest to the longest, its middle part thick, its median a tick."""

    label: str
    low: float
    middle: float
    high: float
    most: float  # where the thick part ends
    meaning: str
    text: str
    told: str


def bars(rows: Sequence[Bar], theme: Theme, width: int = WIDTH, low: float | None = None) -> Spec:
    """Bars below one another, from `start` by `value`; where some fall below 0 a line marks it.

    With `low` the axis begins there, and what lies below is cut off.
    """
    least = min(0.0, *(min(row.start, row.start + row.value) for row in rows))
    high = max(0.0, *(max(row.start, row.start + row.value) for row in rows)) or 1.0
    low = least if low is None else low
    values = [
        {
            "label": row.label,
            "text": row.text,
            "told": row.told,
            "ink": theme.colour(row.meaning),
            "from": max(row.start, low),
            "to": row.start + row.value,
            **_place(at),
        }
        for at, row in enumerate(rows)
    ]
    return {
        **_frame(values, width),
        "layer": [
            *([_zero(theme)] if low < 0 < high else []),
            *_texts(width),
            {
                "mark": {"type": "rect", "cornerRadius": 1.5},
                "encoding": {
                    "x": {"field": "from", **_linear(low, high)},
                    "x2": {"field": "to"},
                    **_thick("top", "foot"),
                },
            },
        ],
    }


def ranges(rows: Sequence[Range], unit: str | None, theme: Theme, width: int = WIDTH) -> Spec:
    """Ranges below one another on one logarithmic axis."""
    scale = Scale.of([row.high for row in rows], unit)
    values = [
        {
            "label": row.label,
            "text": row.text,
            "told": row.told,
            "ink": theme.colour(row.meaning),
            **{
                name: max(value, 1) / scale.by
                for name, value in (
                    ("low", row.low),
                    ("middle", row.middle),
                    ("most", row.most),
                    ("high", row.high),
                )
            },
            **_place(at),
        }
        for at, row in enumerate(rows)
    ]
    axis = {"title": scale.title("length of a call"), "grid": True, "tickCount": 4, "format": "~g"}
    log = {"type": "quantitative", "scale": {"type": "log"}, "axis": axis}
    return {
        **_frame(values, width),
        "layer": [
            *_texts(width),
            {
                "mark": {"type": "rect", "opacity": 0.45},
                "encoding": {"x": {"field": "low", **log}, "x2": {"field": "high"}, **_thick("thin", "bed")},
            },
            {
                "mark": {"type": "rect", "cornerRadius": 1.5},
                "encoding": {
                    "x": {"field": "middle", **log},
                    "x2": {"field": "most"},
                    **_thick("top", "foot"),
                },
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2, "aria": False, "color": theme.colour("ink")},
                "encoding": {"x": {"field": "middle", **log}, "y": _pixel("top"), "y2": {"field": "foot"}},
            },
        ],
    }


def _place(at: int) -> dict[str, float]:
    top = at * _STEP + _TEXT + 4
    return {
        "line": at * _STEP + _TEXT,
        "top": top,
        "foot": top + _BAR,
        "thin": top + 3.5,
        "bed": top + _BAR - 3.5,
    }


def _frame(values: Sequence[Spec], width: int) -> Spec:
    return {
        "width": width,
        "height": len(values) * _STEP,
        "data": {"values": list(values)},
    }


def _texts(width: int) -> list[Spec]:
    """The label at the left, the value at the right."""
    plain = {"type": "text", "baseline": "alphabetic", "aria": False}
    return [
        {
            "mark": {**plain, "align": "left", "limit": width - 85},
            "encoding": {"x": {"value": 0}, "y": _pixel("line"), "text": {"field": "label"}},
        },
        {
            "mark": {**plain, "align": "right"},
            "encoding": {"x": {"value": "width"}, "y": _pixel("line"), "text": {"field": "text"}},
        },
    ]


def _thick(top: str, foot: str) -> Spec:
    return {
        "y": _pixel(top),
        "y2": {"field": foot},
        "color": {"field": "ink", "type": "nominal", "scale": None},
        "description": {"field": "told"},
    }


def _pixel(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "scale": None, "axis": None}


def _linear(low: float, high: float) -> Spec:
    scale = {"domain": [low, high], "nice": False, "zero": False}
    return {"type": "quantitative", "scale": scale, "axis": None}


def _zero(theme: Theme) -> Spec:
    return {
        "mark": {"type": "rule", "aria": False, "color": theme.colour("line")},
        "encoding": {
            "x": {"datum": 0, "type": "quantitative", "axis": None},
            "y": {"value": 0},
            "y2": {"value": "height"},
        },
    }
