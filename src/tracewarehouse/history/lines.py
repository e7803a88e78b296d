"""A line of a history: its changes of level, and what is acknowledged of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from tracewarehouse.history.model import Change, Dot, Line
from tracewarehouse.stats.points import Point, change_points

Reasons = Mapping[tuple[str, str], str]  # (run, source) → why its metric changed


def line(name: str, definition: str, dots: Sequence[Dot], reasons: Reasons, min_effect: float) -> Line:
    """The runs in order of time, with the levels and changes of those that tell a value."""
    telling = [dot for dot in dots if dot.value is not None]
    values = [dot.value for dot in telling if dot.value is not None]
    points = change_points(values, min_effect)
    edges = [0, *(point.at for point in points), len(values)]
    levels = [median(values[start:end]) for start, end in zip(edges, edges[1:], strict=False) if end > start]
    changes = tuple(
        _change(telling, point, levels[at], levels[at + 1], reasons) for at, point in enumerate(points)
    )
    level_of = {dot: levels[sum(point.at <= at for point in points)] for at, dot in enumerate(telling)}
    return Line(name, definition, tuple(replace(dot, level=level_of.get(dot)) for dot in dots), changes)


def _change(telling: Sequence[Dot], point: Point, old: float, new: float, reasons: Reasons) -> Change:
    before, after, earliest, latest = (
        telling[at] for at in (point.at - 1, point.at, point.earliest, point.latest)
    )
    around = telling[min(point.earliest, point.at) - 1 : max(point.latest, point.at) + 1]
    why = (reasons.get((dot.run, dot.source)) for dot in around)
    return Change(
        before.name, after.name, point.change, point.low, point.high, earliest.name, latest.name, old, new,
        next((text for text in why if text), None),
    )  # fmt: skip
