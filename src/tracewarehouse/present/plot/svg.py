"""Parts of SVG charts for pages: elements, axes with ticks, and legends. CSS variables give the colors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

from msgspec import Struct

from tracewarehouse.exact_text import one_line

WIDTH, HEIGHT = 340, 190
_LABEL, _TEXT = 11, 12  # font sizes
_NARROW, _WIDE = frozenset(" .,:;|'`!()[]{}/\\ijlIftr1-"), frozenset("mwMW@%→…")


class Chart(Struct, frozen=True):
    """A chart: its size, and its elements as SVG text."""

    width: float
    height: float
    body: str

    @classmethod
    def of(cls, height: float, elements: Iterable[str], width: float = WIDTH) -> Chart:
        """A chart made of these elements."""
        return cls(width, height, "".join(elements))

    def svg(self, label: str) -> str:
        """The SVG element, with its ARIA label."""
        size = f"0 0 {_short(self.width)} {_short(self.height)}"
        return element(
            "svg", self.body, label, viewBox=size, role="group", font_size=_LABEL, fill=color("soft")
        )


def color(name: str) -> str:
    """The CSS variable of a category, or of ink, soft, line, paper."""
    return f"var(--{name})"


def element(name: str, body: str = "", label: str = "", **attributes: Any) -> str:
    """An SVG element around other elements; a `label` makes it a mark with a tooltip and an ARIA label."""
    if label:
        attributes = {"role": "graphics-symbol", **attributes, "aria-label": escape(one_line(label))}
    pairs = "".join(f' {key.replace("_", "-")}="{_short(value)}"' for key, value in attributes.items())
    return f"<{name}{pairs}>{body}</{name}>" if body else f"<{name}{pairs}/>"


def _short(value: object) -> str:
    return f"{round(value, 1):.10g}" if isinstance(value, float) else str(value)


def text(x: float, y: float, words: str, anchor: str = "start", **attributes: Any) -> str:
    """A text whose baseline is at `y`."""
    if anchor != "start":
        attributes["text_anchor"] = anchor
    return element("text", escape(one_line(words)), x=x, y=y, **attributes)


def strong(x: float, y: float, words: str, anchor: str = "start") -> str:
    """A text in the ink of the page."""
    return text(x, y, words, anchor, font_size=_TEXT, fill=color("ink"))


def rect(left: float, right: float, top: float, bottom: float, label: str = "", **attributes: Any) -> str:
    """A rectangle between these edges."""
    attributes |= {"width": abs(right - left), "height": bottom - top}
    return element("rect", label=label, x=min(left, right), y=top, **attributes)


def circle(x: float, y: float, radius: float, label: str, **attributes: Any) -> str:
    """A dot as a mark."""
    return element("circle", label=label, cx=x, cy=y, r=radius, **attributes)


def line(points: Iterable[tuple[float, float]], *, is_stepped: bool = False, **attributes: Any) -> str:
    """A line through the points; a stepped one keeps each value until the next point."""
    path = ""
    for x, y in points:
        place = f"{_short(float(x))} {_short(float(y))}"
        stepped = f"H{place.partition(' ')[0]}V{place.partition(' ')[2]}"
        path += f"M{place}" if not path else stepped if is_stepped else f"L{place}"
    return element("path", d=path, fill="none", **attributes)


def text_width(words: str, size: float = _LABEL) -> float:
    """An estimate of the width of a text, rather too large."""
    ems = sum(0.36 if each in _NARROW else 0.92 if each in _WIDE else 0.62 for each in words)
    return ems * size


def fitting(words: str, width: float, size: float = _TEXT) -> str:
    """The text, shortened to this width."""
    if text_width(words, size) <= width:
        return words
    while words and text_width(f"{words}…", size) > width:
        words = words[:-1]
    return f"{words}…"


class Axis(Struct, frozen=True):
    """The values from `low` to `high` in one direction of a chart, and where its ticks are."""

    low: float
    high: float
    title: str = ""
    ticks: tuple[float, ...] = ()
    decimals: int = 0
    is_log: bool = False

    @classmethod
    def of(
        cls,
        low: float,
        high: float,
        title: str = "",
        *,
        is_nice: bool = False,
        is_integer: bool = False,
        is_log: bool = False,
    ) -> Axis:
        """An axis with about five ticks; a `nice` one begins and ends at a tick."""
        if is_log:
            return cls(low, high, title, _log_ticks(low, high), is_log=True)
        high = high if high > low else low + 1
        fifth = (high - low) / 5
        power = 10 ** floor(log10(fifth))
        step = next(digit * power for digit in (1, 2, 5, 10) if fifth < 1.5 * digit * power)
        step = max(step, 1) if is_integer else step
        if is_nice:
            low, high = floor(low / step + 1e-9) * step, ceil(high / step - 1e-9) * step
        ticks = tuple(at * step for at in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1))
        return cls(low, high, title, ticks, max(0, -floor(log10(step) + 1e-9)))

    def share(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        if self.is_log:
            return log10(max(value, self.low) / self.low) / (log10(self.high / self.low) or 1.0)
        return (value - self.low) / (self.high - self.low or 1.0)

    def label(self, tick: float) -> str:
        """The text at a tick."""
        return f"{tick:,.10g}" if self.is_log else f"{tick:,.{self.decimals}f}"


def _log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Powers of ten, with twice and five times them if there is room."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    few = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    shown = [tick for tick in few if low <= tick <= high]
    if len(shown) > 7:
        shown = [tick for power in powers if low <= (tick := 10.0**power) <= high]
    return tuple(shown[:: -(-len(shown) // 7) or 1])


Place = Callable[[float], float]


def framed(
    x: Axis,
    y: Axis,
    draw: Callable[[Place, Place], Iterable[str]],
    height: float = HEIGHT,
    legend: Mapping[str, str] | None = None,
) -> Chart:
    """A chart with both axes; `draw` gets the functions from values to places. `legend`: name → category."""
    items, legend_height = _legend(legend or {})
    top = legend_height + (20 if y.title else 6)
    left = max((text_width(y.label(tick)) for tick in y.ticks), default=0) + 6
    right, bottom = WIDTH - 6.0, top + height

    def place_x(value: float) -> float:
        return left + x.share(value) * (right - left)

    def place_y(value: float) -> float:
        return bottom - y.share(value) * height

    marks = "".join(draw(place_x, place_y))
    grid = "".join(line([(left, place_y(tick)), (right, place_y(tick))]) for tick in y.ticks)
    parts = [
        *items,
        text(0, top - 9, y.title) if y.title else "",
        element("g", grid, stroke=color("line")) if grid else "",
        *(text(left - 4, place_y(tick) + 4, y.label(tick), "end") for tick in y.ticks),
        *x_axis(x, place_x, bottom),
        marks,
    ]
    return Chart.of(bottom + (32 if x.title else 18), parts)


def x_axis(axis: Axis, place: Place, bottom: float) -> Iterator[str]:
    """The line below a chart, the ticks that do not overlap, and the title."""
    yield line([(place(axis.low), bottom), (place(axis.high), bottom)], stroke=color("line"))
    end = -10.0
    for tick in axis.ticks:
        words = axis.label(tick)
        half = text_width(words) / 2
        middle = min(place(tick), WIDTH - half)
        if middle - half > end + 4:
            yield line([(place(tick), bottom), (place(tick), bottom + 4)], stroke=color("line"))
            yield text(middle, bottom + 15, words, "middle")
            end = middle + half
    if axis.title:
        yield text((place(axis.low) + place(axis.high)) / 2, bottom + 28, axis.title, "middle")


def row_labels(rows: Sequence[str], step: float, title: str, top: float = 0) -> tuple[list[str], float]:
    """The names of rows at the left, and where the chart begins."""
    size = _LABEL if step > 12 else 9
    left = max((text_width(row, size) for row in rows), default=0) + 6
    head = [text(0, top - 6, title)] if title else []
    middle = top + step / 2 + size / 3
    names = [text(left - 4, middle + at * step, row, "end", font_size=size) for at, row in enumerate(rows)]
    return [*head, *names], left


def _legend(names: Mapping[str, str]) -> tuple[list[str], float]:
    """A square and a name for each category in lines above a chart, and their height."""
    items, x, y = [], 0.0, 10.0
    for name, category in names.items():
        width = 14 + text_width(name) + 10
        if x and x + width > WIDTH:
            x, y = 0.0, y + 16
        items.append(rect(x, x + 9, y - 8, y + 1, fill=color(category)))
        items.append(text(x + 13, y, name, fill=color("ink")))
        x += width
    return items, y + 4 if names else 0.0
