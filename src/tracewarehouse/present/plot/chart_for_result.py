"""Altair charts of results, selected by their contract: grain, units, and which direction is better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, islice
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse.contracts.contract import Column
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.exact_text import Field, one_line
from tracewarehouse.present.plot.charts import (
    Bar,
    RangeBar,
    Segment,
    bar_chart,
    histogram,
    histogram_bins,
    is_wide,
    line_chart,
    range_bars,
    stacked_bars,
)
from tracewarehouse.present.plot.parts import COLORS, PAGE_COLORS, Chart, Scale, color_key, format_short

if TYPE_CHECKING:
    import altair

    from tracewarehouse.contracts.contract import Contract

Row = dict[str, Any]
Spec = dict[str, Any]
WIDTH, HEIGHT = 520, 190  # pixels
_LINE_COLORS = tuple({pair: name for name, pair in COLORS.items()}.values())  # categories that look apart
_MAX_BARS, _MAX_STACKS, _MAX_LINES = 20, 40, 12  # in one chart
_BREAKDOWN = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_NUMBER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_LEVEL_MEASURES = ("queue_length", "allocated_bytes", "net_bytes", "total_bytes", "bandwidth_bytes_per_ns")
_MOMENTS = ("ts_ns", "position")
_LOCATION = ("run_id", "rank", "device", "step", "occurrence", "stream")


_SOFT, _LINE, _PAPER = (PAGE_COLORS[name][0] for name in ("soft", "line", "paper"))
# Quiet axes, no frame.
_CONFIG: Spec = {
    "font": "Arial, Helvetica, 'Liberation Sans', sans-serif",  # the fonts that vl-convert measures text with
    "view": {"stroke": None},
    "axis": {"gridColor": _LINE, "domainColor": _LINE, "tickColor": _LINE, "titleFontWeight": "normal"},
    "legend": {"orient": "top", "columns": 3},
    "title": {"anchor": "start", "subtitleColor": _SOFT, "fontSize": 14},
}
_TOOLTIP: Spec = {"field": "description", "type": "nominal"}


class Shape(Struct, frozen=True):
    """What determines the chart: the grain, order and columns of a result."""

    title: str
    grain: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> set[str]:
        """The names of the columns."""
        return {column.name for column in self.columns}

    @property
    def last_key(self) -> str:
        """The last column of the grain."""
        return self.grain[-1] if self.grain else ""


def shape_of(contract: Contract | None, fields: Sequence[Field]) -> Shape:
    """The shape of a result; in a query, text columns identify rows and every other number is a measure."""
    if contract is not None:
        return Shape(contract.summary, contract.grain, contract.order, contract.columns)

    def is_number(field: Field) -> bool:
        return field.name not in _LOCATION and field.type.partition("(")[0] in _NUMBER_TYPES

    columns = tuple(
        Column(each.name, each.type, "", each.unit or ("count" if is_number(each) else None))
        for each in fields
    )
    grain = tuple(column.name for column in columns if column.type == "VARCHAR" or column.name in _LOCATION)
    return Shape("Rows of a query", grain, (), columns)


def chart(spec: Spec) -> altair.TopLevelMixin:
    """The chart for a notebook. Raises TwError if Altair is not installed."""
    try:
        import altair
    except ImportError as error:
        raise TwError("altair is not installed", "pip install 'tracewarehouse[plot]'") from error
    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    drawn: altair.TopLevelMixin = altair.Chart.from_dict(
        {"$schema": schema, **_visible(spec), "config": _CONFIG}
    )
    return drawn


def _visible(part: Any) -> Any:
    """The part of a specification with control and bidirectional characters escaped: some end the process."""
    if isinstance(part, str):
        return one_line(part)
    if isinstance(part, dict):
        return {_visible(key): _visible(value) for key, value in part.items()}
    return [_visible(each) for each in part] if isinstance(part, list | tuple) else part


def chart_spec(shape: Shape, rows: Sequence[Row], measure: str | None = None) -> Spec:
    """The Vega-Lite specification of the chart, with a title. Raises UnknownName for an unknown measure.

    A breakdown is stacked by rank, values over time are lines, rows per event are a distribution, and
    everything else is bars, largest first.
    """
    kind, selected = _chosen(shape, rows, measure)
    if selected is None:
        return _titled(_stacked(_divided(shape, rows), "part"), shape, "by category")
    if kind == "shares":
        text = _text_key(shape) or ""
        spec = _stacked([{**row, "value": row[selected.name]} for row in rows], text)
    else:
        draw = {"time": _over_time, "steps": _over_steps, "distribution": _histogram, "bars": _bars}[kind]
        spec = draw(shape, rows, selected)
    goal = f", {selected.better} is better" if selected.better else ""
    return _titled(spec, shape, f"{selected.name}{goal}")


def _chosen(shape: Shape, rows: Sequence[Row], measure: str | None) -> tuple[str, Column | None]:
    """The kind of the chart and the column that it draws; a breakdown draws its parts."""
    if not rows:
        raise TwError("there are no rows to plot", "see `.skipped` and `.notices` for the reason")
    if len(_parts(shape)) > 2 and measure is None:
        return "parts", None
    has_time = "ts_ns" in shape.names and any(row["ts_ns"] is not None for row in rows)
    level = _level_measure(shape, rows) if has_time else None
    selected = (level if measure is None else None) or _measure(shape, measure)
    if not any(row[selected.name] is not None and isfinite(row[selected.name]) for row in rows):
        raise TwError(f"{selected.name} is null in every row", "choose another measure: plot('NAME')")
    if has_time and (level or shape.last_key in _MOMENTS):
        return "time", selected
    text = _text_key(shape)
    if text and "share" in shape.names and selected.unit == "ns":
        return "shares", selected
    if shape.last_key == "step" and any(row["step"] is not None for row in rows):
        return "steps", selected
    is_per_event = text is None and shape.last_key not in _LOCATION
    return "distribution" if is_per_event else "bars", selected


def _parts(shape: Shape) -> list[str]:
    """The columns that divide the time of a row."""
    return [column.name for column in shape.columns if column.name in _BREAKDOWN]


def _titled(spec: Spec, shape: Shape, subtitle: str) -> Spec:
    limit_note = spec.pop("limit_note", "")
    return {**spec, "title": {"text": shape.title, "subtitle": f"{subtitle}{limit_note}", "limit": WIDTH}}


def _level_measure(shape: Shape, rows: Sequence[Row]) -> Column | None:
    """The column with the value at each point in time, such as a queue depth, if the result has one."""
    columns = {column.name: column for column in shape.columns}
    names = (
        name for name in _LEVEL_MEASURES if name in columns and any(row[name] is not None for row in rows)
    )
    return next((columns[name] for name in names), None)


def _measure(shape: Shape, name: str | None) -> Column:
    """The column to draw: the named one, else the sort column, else the first with a goal, else the first."""
    candidates = measures(shape.columns)
    if name is not None:
        match = next((column for column in candidates if column.name == name), None)
        if match is None:
            raise UnknownName("measure", name, [column.name for column in candidates])
        return match
    if not candidates:
        raise TwError("there is no measure to plot", "use polars() to get the rows")
    by_size = [key[1:] for key in shape.order if key.startswith("-")]
    sorting = [column for column in candidates if column.name in by_size[:1]]
    with_goal = [column for column in candidates if column.better]
    return [*sorting, *with_goal, *candidates][0]


def _text_key(shape: Shape) -> str | None:
    """The last column of the grain that is a name, or None."""
    types = {column.name: column.type for column in shape.columns}
    names = [key for key in shape.grain if key not in _LOCATION and types[key] == "VARCHAR"]
    return names[-1] if names else None


def _row_labels(rows: Sequence[Row]) -> list[str]:
    """The run, rank, device and step of each row, as far as they differ between rows."""
    names = [name for name in _LOCATION if name in rows[0] and len({row[name] for row in rows}) > 1]
    return [
        " ".join(str(row[name]) if name == "run_id" else f"{name} {row[name]}" for name in names)
        for row in rows
    ]


def _limit_note(shown: int, count: int) -> str:
    return f", {shown:,} of {count:,}" if shown < count else ""


def _spec(
    values: Sequence[Spec], height: int | Spec, mark: Spec, x: Spec, y: Spec, **channels: object
) -> Spec:
    """A chart with marks of one type and a tooltip."""
    return {
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": list(values)},
        "mark": mark,
        "encoding": {"x": x, "y": y, **channels, "tooltip": _TOOLTIP, "description": _TOOLTIP},
    }


def _number(field: str, title: str | None, /, **options: object) -> Spec:
    return {"field": field, "type": "quantitative", "axis": {"title": title, "tickCount": 5}, **options}


def _name(field: str, names: Sequence[str]) -> Spec:
    """The rows of a chart in their order."""
    axis = {"title": None, "ticks": False, "domain": False, "labelLimit": WIDTH // 2}
    return {"field": field, "type": "nominal", "sort": list(names), "axis": axis}


def _colors(field: str, names: Mapping[str, str]) -> Spec:
    """The colors of names, by category."""
    scale = {"domain": list(names), "range": [COLORS[category][0] for category in names.values()]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": {"title": None}}


def _histogram(_: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    """The number of values in each bin; the axis is logarithmic if the bins are."""
    bins = histogram_bins([row[selected.name] for row in rows], selected.unit)
    scale = Scale.of([bins[-1].high], selected.unit)
    values = [
        {"low": bin_.low / scale.divisor, "high": bin_.high / scale.divisor, "count": bin_.count}
        | {"description": bin_.description}
        for bin_ in bins
        if bin_.count
    ]
    domain = [bins[0].low / scale.divisor, bins[-1].high / scale.divisor]
    kind = "log" if is_wide(bins[0].low, bins[-1].high) else "linear"
    x_scale = {"type": kind, "domain": domain, "nice": False}
    mark = {"type": "rect", "color": COLORS["plain"][0], "stroke": _PAPER}
    x = _number("low", scale.axis_title(selected.name), scale=x_scale)
    ends = {"x2": {"field": "high"}, "y2": {"datum": 0}}
    return _spec(values, HEIGHT, mark, x, _number("count", "count"), **ends)


def _divided(shape: Shape, rows: Sequence[Row]) -> list[Row]:
    """A row for each part of a breakdown."""
    return [{**row, "part": part, "value": row[part]} for row in rows for part in _parts(shape)]


def _segments(rows: Sequence[Row], key: str) -> tuple[list[Segment], list[str], str]:
    """The values of the first stacks by part, which `key` has; the stacks, and a note on the others."""
    labels = [label or "all" for label in _row_labels(rows)]
    stacks = list(dict.fromkeys(labels))
    shown_stacks = stacks[:_MAX_STACKS]
    segments = []
    for label, row in zip(labels, rows, strict=True):
        part, value = row[key], float(row["value"] or 0)
        if label in shown_stacks and value:
            text = f"{label} {part}: {format_short(value, 'ns')}"
            segments.append(Segment(label, part, value, color_key(part), text))
    order = list(COLORS)
    segments.sort(key=lambda each: (order.index(each.category), each.part))
    return segments, shown_stacks, _limit_note(len(shown_stacks), len(stacks))


def _stacked(rows: Sequence[Row], key: str) -> Spec:
    segments, stacks, note = _segments(rows, key)
    categories = {segment.part: segment.category for segment in segments}
    scale = Scale.of([sum(each.value for each in segments if each.row == row) for row in stacks], "ns")
    order_of = {part: number for number, part in enumerate(categories)}
    values = [
        {**asdict(each), "at": order_of[each.part], "value": each.value / scale.divisor} for each in segments
    ]
    height = {"step": 20 if len(stacks) <= 12 else 14}
    mark = {"type": "bar", "stroke": _PAPER, "strokeWidth": 0.6}
    order = {"field": "at", "type": "quantitative"}
    x, y = _number("value", scale.unit), _name("row", stacks)
    spec = _spec(values, height, mark, x, y, color=_colors("part", categories), order=order)
    return {**spec, "limit_note": note}


def _over_steps(_: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    """The ranks' values at each step: a line from lowest to highest, and a mark at the median."""
    step_values = [(row["step"], float(row[selected.name])) for row in rows if row[selected.name] is not None]
    scale = Scale.of([value for _, value in step_values], selected.unit)
    values = [{"step": step, "value": value / scale.divisor} for step, value in step_values]
    axis = {"title": "step", "tickMinStep": 1, "grid": False}
    y = _number("value", scale.axis_title(selected.name))
    spec = _spec(values, HEIGHT, {}, _number("step", "step", axis=axis, scale={"zero": False}), y)
    x = {"x": spec.pop("encoding")["x"]}
    low, middle = ({**x, "y": {**y, "aggregate": aggregate}} for aggregate in ("min", "median"))
    rule, point = ({"type": each, "color": COLORS["head"][0]} for each in ("rule", "point"))
    ends = {**low, "y2": {"field": "value", "aggregate": "max"}}
    of_range = {"mark": {**rule, "strokeWidth": 3, "opacity": 0.35}, "encoding": ends}
    del spec["mark"]
    return {**spec, "layer": [of_range, {"mark": {**point, "filled": True, "size": 45}, "encoding": middle}]}


def _lines(shape: Shape, rows: Sequence[Row], selected: Column) -> dict[str, list[tuple[int, Any]]]:
    """Device or stream → time since the start of its run and value, in order; up to `_MAX_LINES`."""
    timed_rows = [row for row in rows if row["ts_ns"] is not None and row[selected.name] is not None]
    starts: dict[str, int] = {}
    for row in timed_rows:
        run = row.get("run_id", "")
        starts[run] = min(row["ts_ns"], starts.get(run, row["ts_ns"]))
    keys = [key for key in shape.grain if key not in (*_MOMENTS, "entry")]
    varying = [key for key in keys if len({row[key] for row in timed_rows}) > 1]
    lines: dict[str, list[tuple[int, Any]]] = {}
    for row in timed_rows:
        words = (str(row[key]) if key == "run_id" else f"{key} {row[key]}" for key in varying)
        point = row["ts_ns"] - starts[row.get("run_id", "")], row[selected.name]
        lines.setdefault(" ".join(words) or selected.name, []).append(point)
    return dict(islice(lines.items(), _MAX_LINES))


def _over_time(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    """One line per device or stream."""
    lines = _lines(shape, rows, selected)
    points = [(name, ns, value) for name, line in lines.items() for ns, value in line]
    time = Scale.of([ns for _, ns, _ in points], "ns")
    scale = Scale.of([value for _, _, value in points], selected.unit)
    values = []
    for name, ns, value in points:
        text = f"{name}: {format_short(value, selected.unit)} at {format_short(ns, 'ns')}"
        x, y = round(ns / time.divisor, 4), round(value / scale.divisor, 4)
        values.append({"line": name, "x": x, "y": y, "description": text})
    mark = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5}
    time_axis = _number("x", time.axis_title("time since start"), scale={"nice": False})
    value_axis = _number("y", scale.axis_title(selected.name))
    color = _colors("line", dict(zip(lines, _LINE_COLORS, strict=False)))
    return _spec(values, HEIGHT, mark, time_axis, value_axis, color=color)


def _largest(
    shape: Shape,
    rows: Sequence[Row],
    selected: Column,
    labels_of: Callable[[list[str], list[str]], list[str]],
) -> tuple[list[Bar], str]:
    """The bars of the largest values, and a note on the others; labels are of names and places."""
    rows_with_value = [row for row in rows if row[selected.name] is not None]
    placed = list(zip(rows_with_value, _row_labels(rows_with_value), strict=True))
    placed = sorted(placed, key=lambda pair: -abs(pair[0][selected.name]))[:_MAX_BARS]
    text = _text_key(shape)
    names = [str(row[text]) if text else "" for row, _ in placed]
    bars = []
    for label, (row, _) in zip(labels_of(names, [place for _, place in placed]), placed, strict=True):
        value, name = format_short(row[selected.name], selected.unit), label or selected.name
        color = color_key(str(row.get("kind") or row.get("cause") or row.get(text or "")))
        bars.append(Bar(name, float(row[selected.name]), color, value, f"{name}: {value}"))
    return bars, _limit_note(len(bars), len(rows_with_value))


def _numbered(names: list[str], places: list[str]) -> list[str]:
    counts, labels = Counter[str](), []
    for each in map(" ".join, zip(names, places, strict=True)):
        counts[each] += 1
        labels.append(each.strip() if counts[each] == 1 else f"{each.strip()} ({counts[each]})")
    return labels


def _bars(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    bars, note = _largest(shape, rows, selected, _numbered)
    scale = Scale.of([bar.value for bar in bars], selected.unit)
    values = []
    for bar in bars:
        value = {"label": bar.label, "value": bar.value / scale.divisor, "color": COLORS[bar.category][0]}
        values.append({**value, "description": bar.description})
    color = {"field": "color", "type": "nominal", "scale": None}
    x = _number("value", scale.axis_title(selected.name))
    y = _name("label", [bar.label for bar in bars])
    return {**_spec(values, {"step": 20}, {"type": "bar"}, x, y, color=color), "limit_note": note}


def page_chart(
    contract: Contract,
    rows: Sequence[Row],
    labels_of: Callable[[list[str], list[str]], list[str]],
    measure: str | None = None,
) -> tuple[str, Chart, tuple[tuple[str, str], ...]]:
    """The title, chart and legend of a page: by the rules of `chart_spec`, but shares are bars, too.

    `labels_of` makes labels of names and places. Raises TwError if there is nothing to draw.
    """
    shape = shape_of(contract, ())
    kind, selected = _chosen(shape, rows, measure)
    if selected is None:
        segments, stacks, note = _segments(_divided(shape, rows), "part")
        categories = {segment.part: segment.category for segment in segments}
        legend = tuple((category, part) for part, category in categories.items())
        return f"by category{note}", stacked_bars(segments, stacks, [*categories], ""), legend
    name, unit = selected.name, selected.unit
    if kind == "time":
        lines = _lines(shape, rows, selected)
        colored = {line: (color, lines[line]) for line, color in zip(lines, _LINE_COLORS, strict=False)}
        return f"{name} over time", line_chart(colored, name, unit), ()
    if kind == "steps":
        return f"{name} by step", range_bars(_ranges(rows, selected), name, unit), ()
    if kind == "distribution":
        return (
            f"distribution of {name}",
            histogram(histogram_bins([row[name] for row in rows], unit), name, unit),
            (),
        )
    bars, note = _largest(shape, rows, selected, labels_of)
    return f"{name}, largest first{note}", bar_chart(bars), ()


def measures(columns: Iterable[Column]) -> list[Column]:
    """The columns that a chart can draw."""
    return [column for column in columns if column.unit not in (None, "id", "ts", "depth")]


def _ranges(rows: Sequence[Row], selected: Column) -> list[RangeBar]:
    """The lowest, middle and highest value of the ranks at each step."""
    pairs = ((row["step"], row[selected.name]) for row in rows)
    step_values = sorted(pair for pair in pairs if None not in pair)
    ranges = []
    for step, group in groupby(step_values, key=lambda each: each[0]):
        values = [float(value) for _, value in group]
        low, middle, high = min(values), median(values), max(values)
        text = f"step {step}: {format_short(middle, selected.unit)}"
        if len(values) > 1:
            text += f", {format_short(low, selected.unit)} to {format_short(high, selected.unit)}"
        ranges.append(RangeBar(step, low, middle, high, text))
    return ranges
