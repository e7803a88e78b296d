"""What charts are made of: colors per category, units; for pages SVG elements, axes with ticks, and legends.

CSS variables give the colors of SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

from msgspec import Struct

from tracewarehouse.display_names import category
from tracewarehouse.exact_text import one_line

# Category: color on a light and on a dark page, distinguishable also for color-blind readers. Communication
# is yellow (waiting), brown (transfer) or orange (not divided); idle time without a remedy is gray.
COLORS: Mapping[str, tuple[str, str]] = {
    "compute": ("#2451a8", "#5f90ee"),
    "exposed_comm": ("#f89606", "#f39909"),
    "exposed_wait": ("#ffe577", "#5b4302"),
    "exposed_transfer": ("#762f03", "#fbe48f"),
    "exposed_unassigned": ("#f89606", "#f39909"),
    "hidden_comm": ("#6a6a91", "#3f6791"),
    "comm_wait": ("#ffe577", "#5b4302"),
    "exposed_memory": ("#308b68", "#7bca9a"),
    "other": ("#81daff", "#adf1ff"),
    "idle_host": ("#e03c0a", "#df4d28"),
    "idle_dataloader": ("#4f0748", "#bc6aa8"),
    "idle_sync": ("#c990c2", "#cea0cc"),
    "idle_call": ("#fdb197", "#90492f"),
    "idle_latency": ("#939596", "#777c81"),
    "idle_queued": ("#4b4d4f", "#c3ccd4"),
    "idle_graph": ("#766a9f", "#5b62a1"),
    "idle_unknown": ("#c1c7d1", "#4a545d"),
    "idle_outside": ("#e6ecf1", "#313336"),
    "idle": ("#939596", "#777c81"),
    "longer": ("#b3123f", "#ff7a98"),
    "shorter": ("#157f8c", "#86e6f0"),
    "base": ("#929ba8", "#7f8a99"),
    "head": ("#3f4c5d", "#dbe3ec"),
    "plain": ("#53647a", "#a9b8cb"),
}
PAGE_COLORS: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b2530", "#e8edf2"),
    "soft": ("#5b6673", "#a3aeba"),
    "line": ("#d9dee4", "#36404b"),
    "paper": ("#ffffff", "#151b22"),
}


def color_key(name: str) -> str:
    """The key in `COLORS` of a column, kernel kind or idle cause; `plain` if it has no color."""
    key = category(name)
    return key if key in COLORS else "plain"


def css() -> str:
    """The CSS variables of a page, for light, dark and print."""
    light, dark = (
        "".join(f"--{name}:{pair[theme]};" for name, pair in {**PAGE_COLORS, **COLORS}.items())
        for theme in (0, 1)
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root:root{{color-scheme:light;{light}}}}}\n"
    )


_UNIT_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "ts": ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")),
    "bytes": ((1, "B"), (1024, "KiB"), (1024**2, "MiB"), (1024**3, "GiB"), (1024**4, "TiB")),
    "ratio": ((0.01, "%"),),
    "bytes_per_ns": ((1, "GB/s"),),
}


class Scale(Struct, frozen=True):
    """One unit for all values of a chart: divide a value by `divisor` to get it in `unit`."""

    divisor: float
    unit: str

    @classmethod
    def of(cls, values: Iterable[float], unit: str | None) -> Scale:
        """The largest unit in which the largest value is at least 1."""
        steps = _UNIT_STEPS.get(unit or "", ((1.0, ""),))
        top = max((abs(value) for value in values), default=0.0)
        divisor, name = next((step for step in reversed(steps) if top >= step[0]), steps[0])
        return cls(divisor, name)

    def axis_title(self, quantity: str) -> str:
        """`step time (ms)`."""
        return f"{quantity} ({self.unit})" if self.unit else quantity


def format_short(value: float, unit: str | None = None) -> str:
    """A value in three significant digits, as `12.3 ms`; a count in full."""
    if unit not in _UNIT_STEPS:
        return f"{value:,}" if isinstance(value, int) else _three_digits(value)
    scale = Scale.of([value], unit)
    if scale.divisor > 1 and round(abs(value) / scale.divisor) >= 1000 and unit == "ns" and scale.unit != "s":
        scale = Scale.of([value * 1.001], unit)
    return f"{_three_digits(value / scale.divisor)} {scale.unit}"


def _three_digits(value: float) -> str:
    """Three significant digits with thousands separators; an integer has no decimals."""
    magnitude = abs(value)
    if magnitude >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}" if magnitude >= 0.095 else f"{value:.2g}"


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
        point = f"{_short(float(x))} {_short(float(y))}"
        stepped = f"H{point.partition(' ')[0]}V{point.partition(' ')[2]}"
        path += f"M{point}" if not path else stepped if is_stepped else f"L{point}"
    return element("path", d=path, fill="none", **attributes)


def text_width(words: str, size: float = _LABEL) -> float:
    """An estimate of the width of a text, rather too large."""
    ems = sum(0.36 if character in _NARROW else 0.92 if character in _WIDE else 0.62 for character in words)
    return ems * size


def fitting(words: str, width: float) -> str:
    """The text, shortened to this width."""
    if text_width(words, _TEXT) <= width:
        return words
    while words and text_width(f"{words}…", _TEXT) > width:
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
        ticks = tuple(nth * step for nth in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1))
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
    candidates = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in candidates if low <= tick <= high]
    if len(ticks) > 7:
        ticks = [tick for power in powers if low <= (tick := 10.0**power) <= high]
    return tuple(ticks[:: -(-len(ticks) // 7) or 1])


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
    elements = [
        *items,
        text(0, top - 9, y.title) if y.title else "",
        element("g", grid, stroke=color("line")) if grid else "",
        *(text(left - 4, place_y(tick) + 4, y.label(tick), "end") for tick in y.ticks),
        *x_axis(x, place_x, bottom),
        marks,
    ]
    return Chart.of(bottom + (32 if x.title else 18), elements)


def x_axis(axis: Axis, place: Place, bottom: float) -> Iterator[str]:
    """The line below a chart, the ticks that do not overlap, and the title."""
    yield line([(place(axis.low), bottom), (place(axis.high), bottom)], stroke=color("line"))
    last_end = -10.0
    for tick in axis.ticks:
        words = axis.label(tick)
        half_width = text_width(words) / 2
        middle = min(place(tick), WIDTH - half_width)
        if middle - half_width > last_end + 4:
            yield line([(place(tick), bottom), (place(tick), bottom + 4)], stroke=color("line"))
            yield text(middle, bottom + 15, words, "middle")
            last_end = middle + half_width
    if axis.title:
        yield text((place(axis.low) + place(axis.high)) / 2, bottom + 28, axis.title, "middle")


def row_labels(rows: Sequence[str], step: float, title: str, top: float = 0) -> tuple[list[str], float]:
    """The names of rows at the left, and where the chart begins."""
    size = _LABEL if step > 12 else 9
    left = max((text_width(row, size) for row in rows), default=0) + 6
    head = [text(0, top - 6, title)] if title else []
    middle = top + step / 2 + size / 3
    names = [text(left - 4, middle + nth * step, row, "end", font_size=size) for nth, row in enumerate(rows)]
    return [*head, *names], left


def _legend(names: Mapping[str, str]) -> tuple[list[str], float]:
    """A square and a name for each category in lines above a chart, and their height."""
    items, x, y = [], 0.0, 10.0
    for name, key in names.items():
        width = 14 + text_width(name) + 10
        if x and x + width > WIDTH:
            x, y = 0.0, y + 16
        items.append(rect(x, x + 9, y - 8, y + 1, fill=color(key)))
        items.append(text(x + 13, y, name, fill=color("ink")))
        x += width
    return items, y + 4 if names else 0.0
