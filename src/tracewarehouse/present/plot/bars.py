"""Horizontal bar and distribution charts with a line of text above each bar, readable on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse.present.plot.theme import DESCRIPTION, OWN_COLOR, Scale, Spec, Theme, number

WIDTH = 340
_ROW_HEIGHT, _TEXT_HEIGHT, _BAR_HEIGHT = 32, 13, 10  # pixels


@dataclass(frozen=True)
class Bar:
    """A labeled bar; `text` is printed at its right end, `description` is its tooltip and ARIA label."""

    label: str
    value: float
    category: str
    text: str
    description: str
    start: float = 0.0


@dataclass(frozen=True)
class Distribution:
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
    bars = {
        "mark": {"type": "rect", "cornerRadius": 1.5},
        "encoding": {"x": x, "x2": {"field": "to"}, **_between("top", "bottom")},
    }
    zero = [_zero_line(theme)] if low < 0 < high else []
    track = [_track(theme)] if is_part else []
    return {**_frame(values, width), "layer": [*zero, *_row_text(width), *track, bars]}


def _track(theme: Theme) -> Spec:
    """The full width of each row."""
    x: Spec = {"x": {"value": 0}, "x2": {"value": "width"}}
    y: Spec = {"y": _pixel("top"), "y2": {"field": "bottom"}}
    mark = {"type": "rect", "cornerRadius": 1.5, "aria": False, "color": theme.color("line"), "opacity": 0.5}
    return {"mark": mark, "encoding": {**x, **y}}


def distribution_chart(
    rows: Sequence[Distribution], unit: str | None, theme: Theme, width: int = WIDTH
) -> Spec:
    """One distribution per row on a shared logarithmic axis."""
    scale = Scale.of([row.high for row in rows], unit)
    names = ("low", "median", "p95", "high")
    values = [
        {
            **_row_values(row, at, theme),
            **{name: max(getattr(row, name), 1) / scale.divisor for name in names},
        }
        for at, row in enumerate(rows)
    ]
    axis = {"title": scale.axis_title("duration of a call"), "grid": True, "tickCount": 4, "format": "~g"}
    low, median = (number(name, scale={"type": "log"}, axis=axis) for name in ("low", "median"))
    thin: Spec = {
        "mark": {"type": "rect", "opacity": 0.45},
        "encoding": {"x": low, "x2": {"field": "high"}, **_between("thin_top", "thin_bottom")},
    }
    thick: Spec = {
        "mark": {"type": "rect", "cornerRadius": 1.5},
        "encoding": {"x": median, "x2": {"field": "p95"}, **_between("top", "bottom")},
    }
    tick: Spec = {
        "mark": {"type": "rule", "strokeWidth": 2, "aria": False, "color": theme.color("ink")},
        "encoding": {"x": median, "y": _pixel("top"), "y2": {"field": "bottom"}},
    }
    return {**_frame(values, width), "layer": [*_row_text(width), thin, thick, tick]}


def _row_values(row: Bar | Distribution, at: int, theme: Theme) -> dict[str, object]:
    """The texts, color and vertical positions of row `at`."""
    return {
        "label": row.label,
        "text": row.text,
        "description": row.description,
        "color": theme.color(row.category),
        **_row_pixels(at),
    }


def _row_pixels(at: int) -> dict[str, float]:
    """Vertical positions in row `at`: the baseline of its text, its bar, and its thin line."""
    baseline = at * _ROW_HEIGHT + _TEXT_HEIGHT
    top = baseline + 4
    bottom = top + _BAR_HEIGHT
    return {
        "baseline": baseline,
        "top": top,
        "bottom": bottom,
        "thin_top": top + 3.5,
        "thin_bottom": bottom - 3.5,
    }


def _frame(values: Sequence[Spec], width: int) -> Spec:
    return {
        "width": width,
        "height": len(values) * _ROW_HEIGHT,
        "data": {"values": list(values)},
    }


def _row_text(width: int) -> list[Spec]:
    """The label on the left, the value on the right."""
    plain = {"type": "text", "baseline": "alphabetic", "aria": False}
    return [
        {
            "mark": {**plain, "align": "left", "limit": width - 85},
            "encoding": {"x": {"value": 0}, "y": _pixel("baseline"), "text": {"field": "label"}},
        },
        {
            "mark": {**plain, "align": "right"},
            "encoding": {"x": {"value": "width"}, "y": _pixel("baseline"), "text": {"field": "text"}},
        },
    ]


def _between(top: str, bottom: str) -> Spec:
    return {
        "y": _pixel(top),
        "y2": {"field": bottom},
        "color": OWN_COLOR,
        "description": DESCRIPTION,
    }


def _pixel(field: str) -> Spec:
    return number(field, scale=None, axis=None)


def _zero_line(theme: Theme) -> Spec:
    return {
        "mark": {"type": "rule", "aria": False, "color": theme.color("line")},
        "encoding": {
            "x": number(datum=0, axis=None),
            "y": {"value": 0},
            "y2": {"value": "height"},
        },
    }
