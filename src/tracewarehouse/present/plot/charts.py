"""The charts of pages, as SVG: bars, stacks, distributions, blocks, rooflines, lines and points."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from msgspec import Struct

from tracewarehouse.present.plot.parts import (
    HEIGHT,
    WIDTH,
    Axis,
    Chart,
    Place,
    Scale,
    circle,
    color,
    element,
    fitting,
    format_short,
    framed,
    line,
    rect,
    row_labels,
    strong,
    text,
    text_width,
    x_axis,
)

_ROW_HEIGHT, _BASELINE, _TOP, _BOTTOM = 32, 13, 17, 27  # of a row of bars
_MAX_READINGS = 60  # points of a line with a tooltip, evenly spaced
_BINS = 24


class Bar(Struct, frozen=True):
    """A labeled bar; `text` is printed at its right end, `description` is its tooltip and ARIA label.

    A level is a line at the value: one end of floating bars, which need no axis from 0.
    """

    label: str
    value: float
    category: str
    text: str
    description: str
    start: float = 0.0
    is_level: bool = False

    @property
    def end(self) -> float:
        """Where it ends on the axis."""
        return self.start + self.value


class Distribution(Struct, frozen=True):
    """A labeled distribution: a line from `low` to `high`, thick from `median` to `p95`."""

    label: str
    low: float
    median: float
    p95: float
    high: float
    category: str
    text: str
    description: str


def bar_chart(rows: Sequence[Bar], low: float | None = None, high: float | None = None) -> Chart:
    """One bar per row, from `start` to `start + value`; a vertical line marks 0 if bars extend below it.

    The axis begins at 0, or at `low` for floating bars between levels. With `high` it ends there, and the
    rest of the width is drawn as a track, so that bars read as parts of a whole.
    """
    is_part = high is not None
    lowest = min(0.0, *(min(row.start, row.end) for row in rows)) if low is None else low
    axis = Axis(lowest, high or max(0.0, *(max(row.start, row.end) for row in rows)) or 1.0)

    def place(value: float) -> float:
        return axis.share(value) * WIDTH

    def bars(number: int, row: Bar) -> Iterator[str]:
        top, bottom = number * _ROW_HEIGHT + _TOP, number * _ROW_HEIGHT + _BOTTOM
        mark = {"label": row.description, "fill": color(row.category)}
        if is_part:
            yield rect(0, WIDTH, top, bottom, rx=1.5, fill=color("line"), opacity=0.5)
        if row.is_level:
            end = max(place(row.end), 3.0)
            yield rect(end - 3, end, top - 1, bottom + 4, **mark)
        else:
            yield rect(place(row.start), place(row.end), top, bottom, rx=1.5, **mark)
        if axis.low < 0 < axis.high:
            yield rect(place(0) - 0.5, place(0) + 0.5, top - 2, bottom + 2, fill=color("soft"))

    return Chart.of(len(rows) * _ROW_HEIGHT, _rows_with_text(rows, bars))


def _rows_with_text(rows: Sequence[Bar | Distribution], draw: Callable[..., Iterable[str]]) -> Iterator[str]:
    """For each row the label on the left, the value on the right, and the marks below them."""
    for number, row in enumerate(rows):
        baseline = number * _ROW_HEIGHT + _BASELINE
        room = WIDTH - text_width(row.text, 12) - 8
        yield strong(0, baseline, fitting(row.label, room))
        yield strong(WIDTH, baseline, row.text, "end")
        yield from draw(number, row)


def distribution_chart(rows: Sequence[Distribution]) -> Chart:
    """One distribution per row on a shared logarithmic axis."""
    scale = Scale.of([row.high for row in rows], "ns")
    low = min(max(row.low, 1) for row in rows) / scale.divisor
    high = max(max(row.high for row in rows) / scale.divisor, 1.1 * low)
    axis = Axis.of(low, high, scale.axis_title("duration of a call"), is_log=True)
    height = len(rows) * _ROW_HEIGHT

    def place(value: float) -> float:
        return axis.share(value) * WIDTH

    def bars(number: int, row: Distribution) -> Iterator[str]:
        top, bottom = number * _ROW_HEIGHT + _TOP, number * _ROW_HEIGHT + _BOTTOM
        ends = (row.low, row.median, row.p95, row.high)
        low_x, median_x, p95_x, high_x = (place(max(value, 1) / scale.divisor) for value in ends)
        mark = {"label": row.description, "fill": color(row.category)}
        yield rect(low_x, max(high_x, low_x + 1), top + 3.5, bottom - 3.5, opacity=0.45, **mark)
        yield rect(median_x, max(p95_x, median_x + 1), top, bottom, rx=1.5, **mark)
        yield rect(median_x - 1, median_x + 1, top, bottom, fill=color("ink"))

    grid = "".join(line([(place(tick), 0), (place(tick), height)]) for tick in axis.ticks)
    behind = element("g", grid, stroke=color("line")) if grid else ""
    return Chart.of(height + 32, [behind, *_rows_with_text(rows, bars), *x_axis(axis, place, height)])


class Segment(Struct, frozen=True):
    """A segment of a stacked bar; `row` is the bar it belongs to."""

    row: str
    part: str
    value: float
    category: str
    description: str


class Cell(Struct, frozen=True):
    """A cell of a heat map; its opacity is `value`, from 0 to 1."""

    column: int
    row: str
    value: float
    category: str
    description: str


def stacked_bars(
    segments: Sequence[Segment], rows: Sequence[str], parts: Sequence[str], axis_title: str = "rank"
) -> Chart:
    """One horizontal stack of durations for each of `rows`, with segments in the order of `parts`."""
    scale = Scale.of([sum(each.value for each in segments if each.row == row) for row in rows], "ns")
    ends = dict.fromkeys(rows, 0.0)
    step = 20 if len(rows) <= 12 else 14 if len(rows) <= 24 else 10
    top = 16 if axis_title else 0
    labels, label_width = row_labels(rows, step, axis_title, top)
    placed: list[tuple[Segment, float, float]] = []
    for segment in sorted(segments, key=lambda segment: parts.index(segment.part)):
        start = ends[segment.row]
        ends[segment.row] += segment.value / scale.divisor
        placed.append((segment, start, ends[segment.row]))
    axis = Axis.of(0, max(ends.values(), default=0.0), scale.unit, is_nice=True)

    def place(value: float) -> float:
        return label_width + axis.share(value) * (WIDTH - 6 - label_width)

    tops = {row: top + number * step for number, row in enumerate(rows)}
    bars = ""
    for each, start, end in placed:
        if each.value:
            row, mark = tops[each.row], {"label": each.description, "fill": color(each.category)}
            bars += rect(place(start), place(end), row + 1, row + step - 1, **mark)
    bottom = top + len(rows) * step
    drawn = element("g", bars, stroke=color("paper"), stroke_width=0.6) if bars else ""
    return Chart.of(bottom + 32, [*labels, *x_axis(axis, place, bottom), drawn])


def heat_map(cells: Sequence[Cell], rows: Sequence[str]) -> Chart:
    """One column per rank and one row per category."""
    columns = sorted({cell.column for cell in cells})
    labels, left = row_labels(rows, 24, "")
    width = (WIDTH - 6 - left) / len(columns)

    def edge(number: float) -> float:
        return left + number * width

    marks = []
    for cell in cells:
        number, top = columns.index(cell.column), 24 * rows.index(cell.row)
        mark = {"fill": color(cell.category), "fill_opacity": f"{0.04 + 0.96 * cell.value:.3g}"}
        marks.append(rect(edge(number), edge(number + 1), top, top + 24, label=cell.description, **mark))
    bottom = 24 * len(rows)
    interval = max(1, -(-len(columns) // 8))
    names = [
        text(edge(number + 0.5), bottom + 14, str(columns[number]), "middle")
        for number in range(0, len(columns), interval)
    ]
    title = text((left + WIDTH) / 2, bottom + 28, "rank", "middle")
    return Chart.of(bottom + 32, [*labels, *marks, *names, title])


BLOCK_HEIGHT = 260
# Narrower rectangles are not visible.
_FEWEST_SHARE = 1 / 700


class Block(Struct, frozen=True):
    """An allocation: from and to are entry numbers; `category` is in the legend."""

    start: int
    end: int
    size: int
    category: str
    description: str


class Rectangle(Struct, frozen=True):
    """A block, or its part between two moments at which blocks below it are freed."""

    block: Block
    start: int
    end: int
    low: int


def stacked(blocks: Sequence[Block]) -> list[Rectangle]:
    """The rectangles: each block lies on the blocks that started before it, and sinks when one is freed."""
    pile: list[tuple[Block, int, int]] = []  # block, since, low
    rectangles: list[Rectangle] = []
    starts = sorted(blocks, key=lambda block: block.start)
    moments = sorted({next_start for block in blocks for next_start in (block.start, block.end)})
    next_start = 0
    for moment in moments:
        pile = _without_freed(pile, moment, rectangles)
        while next_start < len(starts) and starts[next_start].start == moment:
            top = pile[-1][2] + pile[-1][0].size if pile else 0
            pile.append((starts[next_start], moment, top))
            next_start += 1
    return rectangles


def _without_freed(
    pile: list[tuple[Block, int, int]], moment: int, rectangles: list[Rectangle]
) -> list[tuple[Block, int, int]]:
    """The pile after the blocks that end at this moment; closes the rectangles that end or sink."""
    new_pile: list[tuple[Block, int, int]] = []
    low = 0
    for block, since, bottom in pile:
        if block.end > moment and bottom == low:
            new_pile.append((block, since, bottom))
        else:
            rectangles.append(Rectangle(block, since, moment, bottom))
            if block.end > moment:
                new_pile.append((block, moment, low))
        low += block.size if block.end > moment else 0
    return new_pile


def block_chart(
    blocks: Sequence[Block],
    total: Sequence[tuple[int, int]],
    colors: Mapping[str, str],
    marks: Sequence[tuple[int, str]],
) -> Chart:
    """The blocks and the total over entries; `colors`: category → color; `marks`: moments with a text."""
    scale = Scale.of([size for _, size in total], "bytes")
    length = max((entry for entry, _ in total), default=1) or 1
    top = max((size for _, size in total), default=0) / scale.divisor

    def draw(x: Place, y: Place) -> Iterator[str]:
        drawn = ""
        for each in stacked(blocks):
            if each.end - each.start >= length * _FEWEST_SHARE:
                low, high = each.low / scale.divisor, (each.low + each.block.size) / scale.divisor
                mark = {"label": each.block.description, "fill": color(colors[each.block.category])}
                drawn += rect(x(each.start), x(each.end), y(high), y(low), **mark)
        yield element("g", drawn, stroke=color("paper"), stroke_width=0.4)
        points = [(x(entry), y(size / scale.divisor)) for entry, size in total]
        yield line(points, is_stepped=True, stroke=color("ink"), stroke_width=1.2)
        for entry, words in marks:
            ends = [(x(entry), y(0)), (x(entry), y(axis.high))]
            yield line(ends, stroke=color("longer"), stroke_width=1.5, stroke_dasharray="4 3")
            yield rect(x(entry) - 3, x(entry) + 3, y(axis.high), y(0), words, fill_opacity=0)

    axis = Axis.of(0, top, scale.axis_title("memory"), is_nice=True)
    entries = Axis.of(0, length, "entry of the snapshot", is_integer=True)
    used = {name: colors[name] for name in colors if any(block.category == name for block in blocks)}
    return framed(entries, axis, draw, BLOCK_HEIGHT, used)


_TERA = 1_000  # FLOP per ns in a TFLOP/s


class Dot(Struct, frozen=True):
    """A kernel: FLOP per byte, FLOP per ns, and its share of the time of all dots."""

    intensity: float
    flop_per_ns: float
    share: float
    category: str
    description: str


class Roof(Struct, frozen=True):
    """The limits of a device: FLOP per ns for a type of arithmetic, and bytes per ns."""

    name: str
    flop_per_ns: float
    bytes_per_ns: float

    def rate(self, intensity: float) -> float:
        """The limit at an intensity: the slope of the bandwidth up to the flat peak rate."""
        return min(intensity * self.bytes_per_ns, self.flop_per_ns)


def roofline_chart(dots: Sequence[Dot], roofs: Sequence[Roof]) -> Chart:
    """One dot per kernel, both axes logarithmic; its area grows with its share of the time."""
    low = min(dot.intensity for dot in dots) / 2
    ridges = [roof.flop_per_ns / roof.bytes_per_ns for roof in roofs]
    high = max([dot.intensity for dot in dots] + ridges) * 4
    rates = [dot.flop_per_ns for dot in dots] + [roof.rate(at) for roof in roofs for at in (low, high)]
    intensities = Axis.of(low, high, "FLOP per byte", is_log=True)
    tera_flop = Axis.of(min(rates) / _TERA / 1.3, max(rates) / _TERA * 1.3, "TFLOP/s", is_log=True)

    def draw(at_x: Place, at_y: Place) -> Iterator[str]:
        for roof, ridge in zip(roofs, ridges, strict=True):
            corners = [(at_x(at), at_y(roof.rate(at) / _TERA)) for at in (low, max(ridge, low), high)]
            yield line(corners, stroke=color("soft"), stroke_width=1.5)
            yield text(corners[-1][0], corners[-1][1] - 4, roof.name, "end")
        for dot in dots:
            x, y = at_x(dot.intensity), at_y(dot.flop_per_ns / _TERA)
            radius = math.sqrt((40 + 500 * dot.share) / math.pi)
            yield circle(x, y, radius, dot.description, fill=color(dot.category), opacity=0.75)

    return framed(intensities, tera_flop, draw, BLOCK_HEIGHT)


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


def range_bars(rows: Sequence[RangeBar], quantity: str, unit: str | None) -> Chart:
    """A line through the middles at each position, with the ranges; a band of them if there are many."""
    scale = Scale.of([row.high for row in rows], unit)
    head = color("head")

    def draw(x: Place, y: Place) -> Iterator[str]:
        points = [
            (x(row.at), *(y(value / scale.divisor) for value in (row.low, row.middle, row.high)))
            for row in rows
        ]
        if len(rows) > 60:
            ends = [(at, high) for at, _, _, high in points] + [(at, low) for at, low, _, _ in points[::-1]]
            band = " ".join(f"{at:.1f},{end:.1f}" for at, end in ends)
            yield element("polygon", points=band, fill=head, opacity=0.3)
        yield line([(at, middle) for at, _, middle, _ in points], stroke=head, stroke_width=1.5)
        for (at, low, middle, high), row in zip(points, rows, strict=True):
            if len(rows) <= 60:
                yield line([(at, high), (at, low)], stroke=head, stroke_width=3, opacity=0.35)
            yield circle(at, middle, 3.8, row.description, fill=head, fill_opacity=int(len(rows) <= 60))

    x = Axis.of(rows[0].at - 0.5, rows[-1].at + 0.5, "step", is_integer=True)
    top = max(row.high for row in rows) / scale.divisor
    return framed(x, Axis.of(0, top, scale.axis_title(quantity), is_nice=True), draw)


def line_chart(
    lines: Mapping[str, tuple[str, Sequence[tuple[float, float]]]], quantity: str, unit: str | None
) -> Chart:
    """Step lines over time: name → category and (ns since the start, value) points."""
    points_of_all = [point for _, points in lines.values() for point in points]
    time, scale = Scale.of([x for x, _ in points_of_all], "ns"), Scale.of([y for _, y in points_of_all], unit)
    starts = [x / time.divisor for x, _ in points_of_all]
    values = [0.0, *(y / scale.divisor for _, y in points_of_all)]

    def draw(x: Place, y: Place) -> Iterator[str]:
        for name, (category, points) in lines.items():
            drawn = [(x(at / time.divisor), y(value / scale.divisor)) for at, value in points]
            yield line(drawn, is_stepped=True, stroke=color(category), stroke_width=1.5)
            # Invisible points that answer to the pointer.
            for at in range(0, len(points), max(1, -(-len(points) // _MAX_READINGS))):
                words = f"{name}: {format_short(points[at][1], unit)} at {format_short(points[at][0], 'ns')}"
                yield circle(*drawn[at], 6, words, fill_opacity=0)

    is_count = unit in (None, "count")
    title = scale.axis_title(quantity)
    y = Axis.of(min(values), max(values), title, is_nice=True, is_integer=is_count)
    legend = {name: category for name, (category, _) in lines.items()} if len(lines) > 1 else {}
    x = Axis.of(min(starts), max(starts), time.axis_title("time since start"))
    return framed(x, y, draw, HEIGHT, legend)


class Point(Struct, frozen=True):
    """A value at a position; `level` is the level of its series there, if known."""

    at: int
    value: float
    category: str
    description: str
    level: float | None = None


def point_chart(rows: Sequence[Point], quantity: str, unit: str | None) -> Chart:
    """One point per row, with the line of their levels behind them."""
    scale = Scale.of([row.value for row in rows], unit)

    def draw(x: Place, y: Place) -> Iterator[str]:
        levels = [
            (x(row.at + side), y(row.level / scale.divisor))
            for row in rows
            if row.level is not None
            for side in (-0.5, 0.5)
        ]
        if levels:
            yield line(levels, stroke=color("soft"), stroke_width=2)
        for row in rows:
            radius, y_at = 3.1 if row.category == "plain" else 5.4, y(row.value / scale.divisor)
            yield circle(x(row.at), y_at, radius, row.description, fill=color(row.category))

    values = [row.value for row in rows] + [row.level for row in rows if row.level is not None]
    low, high = min(values) / scale.divisor, max(values) / scale.divisor
    margin = (high - low) / 10 or 0.05 * high
    y = Axis.of(max(0.0, low - margin), high + margin, scale.axis_title(quantity), is_nice=True)
    return framed(Axis.of(rows[0].at - 0.5, rows[-1].at + 0.5, "run", is_integer=True), y, draw)


def strip_chart(lanes: Mapping[str, tuple[str, Sequence[tuple[float, str]]]]) -> Chart:
    """One lane per name → category and (value, description): a tick per value, a long one for the median."""
    all_values = [value for _, ticks in lanes.values() for value, _ in ticks]
    scale, step = Scale.of(all_values, "ns"), 54
    labels, label_width = row_labels([*lanes], step, "")
    margin = (max(all_values) - min(all_values)) / 20 or 0.05 * max(all_values)
    low, high = max(0.0, min(all_values) - margin) / scale.divisor, (max(all_values) + margin) / scale.divisor
    axis = Axis.of(low, high, scale.axis_title("period"), is_nice=True)

    def place(value: float) -> float:
        return label_width + axis.share(value) * (WIDTH - 6 - label_width)

    marks = []
    for number, (category, ticks) in enumerate(lanes.values()):
        middle = (number + 0.5) * step
        for value, words in ticks:
            x = place(value / scale.divisor)
            marks.append(rect(x - 1, x + 1, middle - 11, middle + 11, words, fill=color(category)))
        x = place(median(value for value, _ in ticks) / scale.divisor)
        marks.append(rect(x - 1.5, x + 1.5, middle - 22, middle + 22, fill=color(category)))
    bottom = step * len(lanes)
    return Chart.of(bottom + 32, [*labels, *x_axis(axis, place, bottom), *marks])


def histogram(bins: Sequence[Bin], quantity: str, unit: str | None) -> Chart:
    """The number of values in each bin; the axis is logarithmic if the bins are."""
    scale = Scale.of([bins[-1].high], unit)

    def draw(x: Place, y: Place) -> Iterator[str]:
        bars = ""
        for bin_ in bins:
            if bin_.count:
                left, right = x(bin_.low / scale.divisor), x(bin_.high / scale.divisor)
                bars += rect(left, right, y(bin_.count), y(0), bin_.description)
        yield element("g", bars, fill=color("plain"), stroke=color("paper"))

    low, high = bins[0].low / scale.divisor, bins[-1].high / scale.divisor
    x = Axis.of(low, high, scale.axis_title(quantity), is_log=is_wide(low, high))
    return framed(
        x, Axis.of(0, max(each.count for each in bins), "count", is_nice=True, is_integer=True), draw
    )


def is_wide(low: float, high: float) -> bool:
    """Whether values need a logarithmic axis."""
    return low > 0 and high / low > 50


def bin_edges(low: float, high: float) -> list[float]:
    """Edges of bins from `low` to `high`: logarithmic if they differ by more than a factor of 50."""
    if is_wide(low, high):
        factor = (high / low) ** (1 / _BINS)
        return [low * factor**number for number in range(_BINS)] + [high]
    step = (high - low) / _BINS or 1.0
    return [low + step * number for number in range(_BINS + 1)]


def histogram_bins(values: Sequence[float | None], unit: str | None) -> list[Bin]:
    """The finite values counted into bins; no bins if there are none."""
    finite = sorted(float(value) for value in values if value is not None and math.isfinite(value))
    if not finite:
        return []
    bounds = bin_edges(finite[0], finite[-1])
    counts = Counter(bisect_right(bounds, value, 1, len(bounds) - 1) for value in finite)
    return [
        Bin(low, high, counts[number], describe_bin(counts[number], low, high, unit))
        for number, (low, high) in enumerate(pairwise(bounds), 1)
    ]


def describe_bin(count: int, low: float, high: float, unit: str | None) -> str:
    """The tooltip of a bin."""
    return f"{count:,} from {format_short(low, unit)} to {format_short(high, unit)}"
