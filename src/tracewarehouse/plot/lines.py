"""Pictures over time, over steps, or of how often what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse.plot.bars import WIDTH
from tracewarehouse.plot.grids import FIT
from tracewarehouse.plot.theme import Scale, Spec, Theme, brief

HEIGHT = 190
BINS = 24


@dataclass(frozen=True)
class Span:
    """What was measured at one place of a row of places (a step): lowest, middle, highest."""

    at: int
    low: float
    middle: float
    high: float
    told: str


@dataclass(frozen=True)
class Bin:
    """How many values lie from `low` to `high`."""

    low: float
    high: float
    count: int
    told: str


def spans(rows: Sequence[Span], what: str, of: str, unit: str | None, theme: Theme) -> Spec:
    """A line from lowest to highest at each place, a mark in its middle; a band where there are many."""
    scale = Scale.of([row.high for row in rows], unit)
    values = [
        {
            "at": row.at,
            "low": row.low / scale.by,
            "middle": row.middle / scale.by,
            "high": row.high / scale.by,
            "told": row.told,
        }
        for row in rows
    ]
    axis: Spec = {"title": of, "tickMinStep": 1, "format": "d", "grid": False}
    x: Spec = {"field": "at", "type": "quantitative", "axis": axis}
    if len(rows) <= 12:
        x["axis"]["values"] = [row.at for row in rows]
    x["scale"] = {"domain": [rows[0].at - 0.5, rows[-1].at + 0.5], "nice": False}
    y = {
        "type": "quantitative",
        "axis": {"title": scale.title(what), "tickCount": 5},
        "scale": {"zero": True},
    }
    ink = theme.colour("head")
    many = len(rows) > 60
    band = {"type": "area", "opacity": 0.3} if many else {"type": "rule", "strokeWidth": 3, "opacity": 0.35}
    middle = {"type": "line", "strokeWidth": 1.5} if many else {"type": "point", "filled": True, "size": 45}
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": FIT,
        "data": {"values": values},
        "encoding": {"x": x},
        "layer": [
            {
                "mark": {**band, "color": ink, "aria": False},
                "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}},
            },
            {
                "mark": {**middle, "color": ink, "opacity": 1},
                "encoding": {"y": {"field": "middle", **y}, "description": {"field": "told"}},
            },
        ],
    }


def series(
    lines: Mapping[str, tuple[str, Sequence[tuple[float, float]]]],
    what: str,
    unit: str | None,
    theme: Theme,
    *,
    legend: bool = True,
) -> Spec:
    """Lines over time: name → meaning and (ns since the start, value), each value held until the next."""
    times = [x for _, points in lines.values() for x, _ in points]
    time = Scale.of(times, "ns")
    scale = Scale.of([y for _, points in lines.values() for _, y in points], unit)
    values = [
        {"line": name, "x": round(x / time.by, 4), "y": round(y / scale.by, 4)}
        for name, (_, points) in lines.items()
        for x, y in points
    ]
    known = {name: theme.colour(meant) for name, (meant, _) in lines.items()}
    whole = {"tickMinStep": 1, "format": "d"} if unit in (None, "count") else {}
    colour = {
        "field": "line",
        "type": "nominal",
        "scale": {"domain": list(known), "range": list(known.values())},
        "legend": {"title": None, "symbolType": "stroke"} if legend and len(known) > 1 else None,
    }
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": FIT,
        "data": {"values": values},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5},
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "axis": {"title": f"time since the first, {time.name}", "tickCount": 5, "grid": False},
                "scale": {"nice": False},
            },
            "y": {
                "field": "y",
                "type": "quantitative",
                "axis": {"title": scale.title(what), "tickCount": 5, **whole},
            },
            "color": colour,
        },
    }


@dataclass(frozen=True)
class Dot:
    """A value at a place of a row of places; `level` is that of its stretch, where there is one."""

    at: int
    value: float
    meaning: str
    told: str
    level: float | None = None


def dots(rows: Sequence[Dot], what: str, of: str, unit: str | None, theme: Theme) -> Spec:
    """Dots in a row, the line of their levels behind them."""
    scale = Scale.of([row.value for row in rows], unit)
    values = [
        {
            "at": row.at,
            "value": row.value / scale.by,
            "level": None if row.level is None else row.level / scale.by,
            "ink": theme.colour(row.meaning),
            "told": row.told,
            "size": 30 if row.meaning == "plain" else 90,
        }
        for row in rows
    ]
    axis: Spec = {"title": of, "tickMinStep": 1, "format": "d", "grid": False}
    y = {
        "type": "quantitative",
        "axis": {"title": scale.title(what), "tickCount": 5},
        "scale": {"zero": False},
    }
    line = {"type": "line", "interpolate": "step", "color": theme.colour("soft"), "aria": False}
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": FIT,
        "data": {"values": values},
        "encoding": {"x": {"field": "at", "type": "quantitative", "axis": axis, "scale": {"zero": False}}},
        "layer": [
            {"mark": line, "encoding": {"y": {"field": "level", **y}}},
            {
                "mark": {"type": "point", "filled": True, "opacity": 1},
                "encoding": {
                    "y": {"field": "value", **y},
                    "color": {"field": "ink", "type": "nominal", "scale": None},
                    "size": {"field": "size", "type": "quantitative", "scale": None},
                    "description": {"field": "told"},
                },
            },
        ],
    }


def strips(
    lanes: Mapping[str, tuple[str, Sequence[tuple[float, str]]]], what: str, unit: str, theme: Theme
) -> Spec:
    """A lane for each name → meaning and (value, words): a tick for each value, a long one for the median."""
    scale = Scale.of([value for _, ticks in lanes.values() for value, _ in ticks], unit)
    values = [
        {"lane": name, "value": value / scale.by, "ink": theme.colour(meant), "told": told}
        for name, (meant, ticks) in lanes.items()
        for value, told in ticks
    ]
    axis = {"title": scale.title(what), "tickCount": 5}
    x: Spec = {"type": "quantitative", "scale": {"zero": False}, "axis": axis}
    lane = {
        "field": "lane",
        "type": "nominal",
        "sort": list(lanes),
        "axis": {"title": None, "ticks": False, "domain": False, "labelFontSize": 12},
    }
    return {
        "width": WIDTH,
        "height": {"step": 54},
        "autosize": FIT,
        "data": {"values": values},
        "encoding": {"y": lane, "color": {"field": "ink", "type": "nominal", "scale": None}},
        "layer": [
            {
                "mark": {"type": "tick", "thickness": 2, "size": 22, "opacity": 0.75},
                "encoding": {"x": {"field": "value", **x}, "description": {"field": "told"}},
            },
            {
                "mark": {"type": "tick", "thickness": 3, "size": 44, "aria": False},
                "encoding": {"x": {"field": "value", "aggregate": "median", **x}},
            },
        ],
    }


def histogram(bins: Sequence[Bin], what: str, unit: str | None, theme: Theme, meaning: str = "plain") -> Spec:
    """How many values lie where, on a logarithmic axis where the bins are such."""
    scale = Scale.of([bins[-1].high], unit)
    values = [
        {"low": each.low / scale.by, "high": each.high / scale.by, "count": each.count, "told": each.told}
        for each in bins
        if each.count
    ]
    is_log = bins[0].low > 0 and bins[-1].high / bins[0].low > 50
    axis = {"title": scale.title(what), "tickCount": 5, "grid": False, **({"format": "~g"} if is_log else {})}
    x = {
        "type": "quantitative",
        "scale": {
            "type": "log" if is_log else "linear",
            "domain": [bins[0].low / scale.by, bins[-1].high / scale.by],
            "nice": False,
        },
        "axis": axis,
    }
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "autosize": FIT,
        "data": {"values": values},
        "mark": {"type": "rect", "color": theme.colour(meaning), "stroke": theme.colour("paper")},
        "encoding": {
            "x": {"field": "low", **x},
            "x2": {"field": "high"},
            "y": {
                "field": "count",
                "type": "quantitative",
                "axis": {"title": "how many", "tickCount": 4, "format": "~s"},
            },
            "y2": {"datum": 0},
            "description": {"field": "told"},
        },
    }


def edges(low: float, high: float, count: int = BINS) -> list[float]:
    """Bounds of bins from `low` to `high`: by factors where they lie far apart, else by equal steps."""
    if low > 0 and high / low > 50:
        by = (high / low) ** (1 / count)
        return [low * by**at for at in range(count)] + [high]
    step = (high - low) / count or 1.0
    return [low + step * at for at in range(count + 1)]


def binned(values: Sequence[float], unit: str | None, count: int = BINS) -> list[Bin]:
    """How many of the values lie in each of the bins between them; none of no values."""
    known = sorted(value for value in values if math.isfinite(value))
    if not known:
        return []
    bounds = edges(known[0], known[-1], count)
    counts = [0] * (len(bounds) - 1)
    at = 0
    for value in known:
        while at < len(counts) - 1 and value >= bounds[at + 1]:
            at += 1
        counts[at] += 1
    return [
        Bin(low, high, found, f"{found:,} from {brief(low, unit)} to {brief(high, unit)}")
        for low, high, found in zip(bounds, bounds[1:], counts, strict=False)
    ]
