"""The roofline plot: rate of arithmetic over FLOP per byte, with the limits of the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracewarehouse.present.plot.bars import WIDTH
from tracewarehouse.present.plot.theme import DESCRIPTION, OWN_COLOR, Spec, Theme, frame, number

_HEIGHT = 260
_TERA = 1_000  # FLOP per ns in a TFLOP/s


@dataclass(frozen=True)
class Dot:
    """A kernel: FLOP per byte, FLOP per ns, and its share of the time of all dots."""

    intensity: float
    flop_per_ns: float
    share: float
    category: str
    description: str


@dataclass(frozen=True)
class Roof:
    """The limits of a device: FLOP per ns for a type of arithmetic, and bytes per ns."""

    name: str
    flop_per_ns: float
    bytes_per_ns: float


def roofline_chart(dots: Sequence[Dot], roofs: Sequence[Roof], theme: Theme) -> Spec:
    """One dot per kernel, both axes logarithmic; its area grows with its share of the time."""
    low = min(dot.intensity for dot in dots) / 2
    high = max([dot.intensity for dot in dots] + [roof.flop_per_ns / roof.bytes_per_ns for roof in roofs]) * 4
    values = [
        {
            "x": dot.intensity,
            "y": dot.flop_per_ns / _TERA,
            "size": round(40 + 500 * dot.share, 1),
            "color": theme.color(dot.category),
            "description": dot.description,
        }
        for dot in dots
    ]
    x = number("x", axis={"title": "FLOP per byte", "format": "~g", "tickCount": 6}, scale=_log(low, high))
    y = number("y", axis={"title": "TFLOP/s", "format": "~g", "tickCount": 6}, scale={"type": "log"})
    area = number("size", scale=None)
    layers: list[Spec] = [layer for roof in roofs for layer in _roof(roof, low, high, theme)]
    return {
        **frame(values, WIDTH, _HEIGHT),
        "encoding": {"x": x, "y": y},
        "layer": [
            *layers,
            {
                "mark": {"type": "point", "filled": True, "opacity": 0.75},
                "encoding": {"size": area, "color": OWN_COLOR, "description": DESCRIPTION},
            },
        ],
    }


def _log(low: float, high: float) -> Spec:
    return {"type": "log", "domain": [low, high], "nice": False}


def _roof(roof: Roof, low: float, high: float, theme: Theme) -> list[Spec]:
    """The slope of the memory bandwidth up to the ridge, and the flat part of the peak rate."""
    ridge = min(max(roof.flop_per_ns / roof.bytes_per_ns, low), high)
    corners = [(low, low * roof.bytes_per_ns), (ridge, roof.flop_per_ns), (high, roof.flop_per_ns)]
    values = [{"x": x, "y": min(y, roof.flop_per_ns) / _TERA} for x, y in corners]
    color = theme.color("soft")
    label = {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "color": color, "aria": False}
    return [
        {
            "data": {"values": values},
            "mark": {"type": "line", "color": color, "strokeWidth": 1.5, "aria": False},
        },
        {
            "data": {"values": [{**values[-1], "label": roof.name}]},
            "mark": label,
            "encoding": {"text": {"field": "label"}},
        },
    ]
