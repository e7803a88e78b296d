"""A chart of memory over time: allocations as stacked rectangles, under the line of their total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracewarehouse.present.plot.bars import WIDTH
from tracewarehouse.present.plot.theme import DESCRIPTION, Scale, Spec, Theme, frame, number

HEIGHT = 260
# Narrower rectangles are not visible.
_FEWEST_SHARE = 1 / 700


@dataclass(frozen=True)
class Block:
    """An allocation: from and to are entry numbers; `category` is in the legend."""

    start: int
    end: int
    size: int
    category: str
    description: str


@dataclass(frozen=True)
class Rectangle:
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
    marks: Sequence[tuple[int, str]],
    theme: Theme,
) -> Spec:
    """The blocks and the total over entries; `colors`: category → color; `marks` are moments with a text."""
    scale = Scale.of([size for _, size in total], "bytes")
    length = max((entry for entry, _ in total), default=1) or 1
    values = [
        {
            "x": each.start,
            "x2": each.end,
            "y": each.low / scale.divisor,
            "y2": (each.low + each.block.size) / scale.divisor,
            "category": each.block.category,
            "description": each.block.description,
        }
        for each in stacked(blocks)
        if each.end - each.start >= length * _FEWEST_SHARE
    ]
    line = [{"x": entry, "y": size / scale.divisor} for entry, size in total]
    rules = [{"x": entry, "description": text} for entry, text in marks]
    used = [name for name in colors if any(block.category == name for block in blocks)]
    scheme = {"domain": used, "range": [theme.color(colors[name]) for name in used]}
    x_axis = {"title": "entry of the snapshot", "format": "d", "tickMinStep": 1, "grid": False}
    y_axis = {"title": scale.axis_title("memory"), "tickCount": 5}
    x = number("x", axis=x_axis, scale={"domain": [0, length], "nice": False})
    y = number("y", axis=y_axis, scale={"zero": True})
    color = {"field": "category", "type": "nominal", "scale": scheme, "legend": {"title": None, "columns": 8}}
    return {
        **frame([], WIDTH, HEIGHT),
        "layer": [
            {
                "data": {"values": values},
                "mark": {"type": "rect", "stroke": theme.color("paper"), "strokeWidth": 0.4},
                "encoding": {
                    "x": x,
                    "x2": {"field": "x2"},
                    "y": y,
                    "y2": {"field": "y2"},
                    "color": color,
                    "description": DESCRIPTION,
                },
            },
            {
                "data": {"values": line},
                "mark": {
                    "type": "line",
                    "interpolate": "step-after",
                    "color": theme.color("ink"),
                    "strokeWidth": 1.2,
                    "aria": False,
                },
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": rules},
                "mark": {
                    "type": "rule",
                    "color": theme.color("longer"),
                    "strokeWidth": 1.5,
                    "strokeDash": [4, 3],
                },
                "encoding": {"x": x, "description": DESCRIPTION},
            },
        ],
    }
