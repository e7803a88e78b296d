"""Charts over time, steps or runs, and distributions of single values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.present.plot.bars import WIDTH
from tracewarehouse.present.plot.theme import (
    DESCRIPTION,
    OWN_COLOR,
    PAGE,
    Scale,
    Spec,
    Theme,
    format_short,
    frame,
    layer,
    number,
)

HEIGHT = 190
_MAX_READINGS = 150  # points of a line with a tooltip, evenly spaced
BINS = 24


class RangeBar(Struct, frozen=True):
    """The values at one step: lowest, middle and highest."""

    at: int
    low: float
    middle: float
    high: float
    description: str


class Bin(Struct, frozen=True):
    """A histogram bin: the number of values from `low` to `high`."""

    low: float
    high: float
    count: int
    description: str


def range_bars(rows: Sequence[RangeBar], quantity: str, unit: str | None, theme: Theme) -> Spec:
    """A line from lowest to highest at each position with a mark at the middle; a band if there are many."""
    scale = Scale.of([row.high for row in rows], unit)
    ends = ("low", "middle", "high")
    values = [{**asdict(row), **{end: getattr(row, end) / scale.divisor for end in ends}} for row in rows]
    axis = _position_axis("step")
    if len(rows) <= 12:
        axis["values"] = [row.at for row in rows]
    domain = {"domain": [rows[0].at - 0.5, rows[-1].at + 0.5], "nice": False}
    y = number(axis=_value_axis(scale, quantity), scale={"zero": True})
    color = theme.color("head")
    of_range = {"y": {"field": "low", **y}, "y2": {"field": "high"}}
    of_middle = {"y": {"field": "middle", **y}, "description": DESCRIPTION}
    if len(rows) > 60:
        band = layer("area", of_range, opacity=0.3, color=color, aria=False)
        middle = layer("line", of_middle, strokeWidth=1.5, color=color, opacity=1)
    else:
        band = layer("rule", of_range, strokeWidth=3, opacity=0.35, color=color, aria=False)
        middle = layer("point", of_middle, filled=True, size=45, color=color, opacity=1)
    x = number("at", axis=axis, scale=domain)
    return {**frame(values, WIDTH, HEIGHT), "encoding": {"x": x}, "layer": [band, middle]}


def _position_axis(title: str) -> Spec:
    """An axis of steps or runs."""
    return {"title": title, "tickMinStep": 1, "format": "d", "grid": False}


def _value_axis(scale: Scale, quantity: str, **options: object) -> Spec:
    return {"title": scale.axis_title(quantity), "tickCount": 5, **options}


def line_chart(
    lines: Mapping[str, tuple[str, Sequence[tuple[float, float]]]],
    quantity: str,
    unit: str | None,
    theme: Theme,
) -> Spec:
    """Step lines over time: name → category and (ns since the start, value) points."""
    time = Scale.of([x for _, points in lines.values() for x, _ in points], "ns")
    scale = Scale.of([y for _, points in lines.values() for _, y in points], unit)
    drawn = {
        name: [
            ({"line": name, "x": round(x / time.divisor, 4), "y": round(y / scale.divisor, 4)}, x, y)
            for x, y in points
        ]
        for name, (_, points) in lines.items()
    }
    values = [row for points in drawn.values() for row, _, _ in points]
    colors = {name: theme.color(category) for name, (category, _) in lines.items()}
    integer_ticks = {"tickMinStep": 1, "format": "d"} if unit in (None, "count") else {}
    time_axis = _value_axis(time, "time since start", grid=False)
    color = {
        "field": "line",
        "type": "nominal",
        "scale": {"domain": list(colors), "range": list(colors.values())},
        "legend": {"title": None, "symbolType": "stroke"} if len(colors) > 1 else None,
    }
    readings = [
        {**row, "description": f"{name}: {format_short(y, unit)} at {format_short(x, 'ns')}"}
        for name, points in drawn.items()
        for row, x, y in points[:: max(1, -(-len(points) // _MAX_READINGS))]
    ]
    read = {"description": DESCRIPTION, "tooltip": {**DESCRIPTION, "type": "nominal"}}
    return {
        **frame(values, WIDTH, HEIGHT),
        "encoding": {
            "x": number("x", axis=time_axis, scale={"nice": False}),
            "y": number("y", axis=_value_axis(scale, quantity, **integer_ticks)),
            "color": color,
        },
        "layer": [
            layer("line", {}, interpolate="step-after", strokeWidth=1.5),
            # Invisible points that answer to the pointer.
            layer("point", read, readings, filled=True, size=120, opacity=0),
        ],
    }


class Point(Struct, frozen=True):
    """A value at a position; `level` is the level of its series there, if known."""

    at: int
    value: float
    category: str
    description: str
    level: float | None = None


def point_chart(rows: Sequence[Point], quantity: str, unit: str | None) -> Spec:
    """One point per row, with the line of their levels behind them."""
    scale = Scale.of([row.value for row in rows], unit)
    values = [
        {
            "at": row.at,
            "value": row.value / scale.divisor,
            "level": None if row.level is None else row.level / scale.divisor,
            "color": PAGE.color(row.category),
            "description": row.description,
            "size": 30 if row.category == "plain" else 90,
        }
        for row in rows
    ]
    y = number(axis=_value_axis(scale, quantity), scale={"zero": False})
    of_point = {
        "y": {"field": "value", **y},
        "color": OWN_COLOR,
        "size": number("size", scale=None),
        "description": DESCRIPTION,
    }
    soft: Spec = {"interpolate": "step", "color": PAGE.color("soft"), "aria": False}
    layers = [
        layer("line", {"y": {"field": "level", **y}}, **soft),
        layer("point", of_point, filled=True, opacity=1),
    ]
    x = number("at", axis=_position_axis("run"), scale={"zero": False})
    return {**frame(values, WIDTH, HEIGHT), "encoding": {"x": x}, "layer": layers}


def strip_chart(lanes: Mapping[str, tuple[str, Sequence[tuple[float, str]]]]) -> Spec:
    """One lane per name → category and (value, description): a tick per value, a long one for the median."""
    scale = Scale.of([value for _, ticks in lanes.values() for value, _ in ticks], "ns")
    values = [
        {
            "lane": name,
            "value": value / scale.divisor,
            "color": PAGE.color(category),
            "description": description,
        }
        for name, (category, ticks) in lanes.items()
        for value, description in ticks
    ]
    x = number("value", scale={"zero": False}, axis=_value_axis(scale, "period"))
    axis = {"title": None, "ticks": False, "domain": False, "labelFontSize": 12}
    lane = {"field": "lane", "type": "nominal", "sort": list(lanes), "axis": axis}
    layers = [
        layer("tick", {"x": x, "description": DESCRIPTION}, thickness=2, size=22, opacity=0.75),
        layer("tick", {"x": {**x, "aggregate": "median"}}, thickness=3, size=44, aria=False),
    ]
    encoding = {"y": lane, "color": OWN_COLOR}
    return {**frame(values, WIDTH, {"step": 54}), "encoding": encoding, "layer": layers}


def histogram(bins: Sequence[Bin], quantity: str, unit: str | None, theme: Theme) -> Spec:
    """The number of values in each bin; the axis is logarithmic if the bins are."""
    scale = Scale.of([bins[-1].high], unit)
    values = [
        {**asdict(each), "low": each.low / scale.divisor, "high": each.high / scale.divisor}
        for each in bins
        if each.count
    ]
    is_log = _is_wide(bins[0].low, bins[-1].high)
    axis = _value_axis(scale, quantity, grid=False, **({"format": "~g"} if is_log else {}))
    domain = [bins[0].low / scale.divisor, bins[-1].high / scale.divisor]
    x_scale = {"type": "log" if is_log else "linear", "domain": domain, "nice": False}
    return {
        **frame(values, WIDTH, HEIGHT),
        "mark": {"type": "rect", "color": theme.color("plain"), "stroke": theme.color("paper")},
        "encoding": {
            "x": number("low", scale=x_scale, axis=axis),
            "x2": {"field": "high"},
            "y": number("count", axis={"title": "count", "tickCount": 4, "format": "~s", "tickMinStep": 1}),
            "y2": {"datum": 0},
            "description": DESCRIPTION,
        },
    }


def _is_wide(low: float, high: float) -> bool:
    """Whether values need a logarithmic axis."""
    return low > 0 and high / low > 50


def bin_edges(low: float, high: float, count: int = BINS) -> list[float]:
    """Edges of bins from `low` to `high`: logarithmic if they differ by more than a factor of 50."""
    if _is_wide(low, high):
        factor = (high / low) ** (1 / count)
        return [low * factor**at for at in range(count)] + [high]
    step = (high - low) / count or 1.0
    return [low + step * at for at in range(count + 1)]


def histogram_bins(values: Sequence[float], unit: str | None, count: int = BINS) -> list[Bin]:
    """The finite values counted into bins; no bins if there are none."""
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return []
    bounds = bin_edges(known[0], known[-1], count)
    counts = [0] * (len(bounds) - 1)
    at = 0
    for value in known:
        while at < len(counts) - 1 and value >= bounds[at + 1]:
            at += 1
        counts[at] += 1
    return [
        Bin(low, high, bin_count, describe_bin(bin_count, low, high, unit))
        for low, high, bin_count in zip(bounds, bounds[1:], counts, strict=False)
    ]


def describe_bin(count: int, low: float, high: float, unit: str | None) -> str:
    """The tooltip of a bin."""
    return f"{count:,} from {format_short(low, unit)} to {format_short(high, unit)}"
