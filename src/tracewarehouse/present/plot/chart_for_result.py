"""Altair charts of results, selected by their contract: grain, units, and which direction is better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracewarehouse.contracts.contract import Column
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.exact_text import Field, one_line
from tracewarehouse.present.plot.charts import Bin, histogram_bins, is_wide
from tracewarehouse.present.plot.theme import COLORS, PAGE_COLORS, Scale, color_key, format_short

if TYPE_CHECKING:
    import altair

    from tracewarehouse.contracts.contract import Contract

Row = dict[str, Any]
Spec = dict[str, Any]
WIDTH, HEIGHT = 520, 190  # pixels
_MAX_BARS, _MAX_STACKS, _MAX_LINES = 20, 40, 12  # in one chart
_BREAKDOWN = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_NUMBER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_LEVEL_MEASURES = ("queue_length", "allocated_bytes", "net_bytes", "total_bytes", "bandwidth_bytes_per_ns")
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
    grain = tuple(each.name for each in columns if each.type == "VARCHAR" or each.name in _LOCATION)
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
    if not rows:
        raise TwError("there are no rows to plot", "see `.skipped` and `.notices` for the reason")
    parts = [column.name for column in shape.columns if column.name in _BREAKDOWN]
    if len(parts) > 2 and measure is None:
        long_rows = [{**row, "part": part, "value": row[part]} for row in rows for part in parts]
        return _titled(_stacked(long_rows, "part"), shape, "by category")
    is_over_time = "ts_ns" in shape.names and shape.last_key in ("ts_ns", "position")
    selected = (_level_measure(shape, rows) if is_over_time and measure is None else None) or _measure(
        shape, measure
    )
    goal = f", {selected.better} is better" if selected.better else ""
    spec = _over_time(shape, rows, selected) if is_over_time else _by_grain(shape, rows, selected)
    return _titled(spec, shape, f"{selected.name}{goal}")


def _titled(spec: Spec, shape: Shape, subtitle: str) -> Spec:
    limit_note = spec.pop("limit_note", "")
    return {**spec, "title": {"text": shape.title, "subtitle": f"{subtitle}{limit_note}", "limit": WIDTH}}


def _by_grain(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    text, last = _text_key(shape), shape.last_key
    if text and "share" in shape.names and selected.unit == "ns":
        return _stacked([{**row, "value": row[selected.name]} for row in rows], text)
    if last == "step":
        return _over_steps(rows, selected)
    if text is None and last not in _LOCATION:
        values = [float(row[selected.name]) for row in rows if row[selected.name] is not None]
        bins = histogram_bins(values, selected.unit)
        if not bins:
            raise _no_value(selected)
        return _histogram(bins, selected)
    return _bars(shape, rows, selected)


def _level_measure(shape: Shape, rows: Sequence[Row]) -> Column | None:
    """The column with the value at each point in time, such as a queue depth, if the result has one."""
    columns = {column.name: column for column in shape.columns}
    names = (
        name for name in _LEVEL_MEASURES if name in columns and any(row[name] is not None for row in rows)
    )
    return next((columns[name] for name in names), None)


def _measure(shape: Shape, name: str | None) -> Column:
    """The column to draw: the named one, else the sort column, else the first with a goal, else the first."""
    measures = [column for column in shape.columns if column.unit not in (None, "id", "ts", "depth")]
    if name is not None:
        match = next((column for column in measures if column.name == name), None)
        if match is None:
            raise UnknownName("measure", name, [column.name for column in measures])
        return match
    if not measures:
        raise TwError("there is no measure to plot", "use polars() to get the rows")
    by_size = [key[1:] for key in shape.order if key.startswith("-")]
    sorting = [column for column in measures if column.name in by_size[:1]]
    with_goal = [column for column in measures if column.better]
    return [*sorting, *with_goal, *measures][0]


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


def _histogram(bins: Sequence[Bin], selected: Column) -> Spec:
    """The number of values in each bin; the axis is logarithmic if the bins are."""
    scale = Scale.of([bins[-1].high], selected.unit)
    values = [
        {"low": each.low / scale.divisor, "high": each.high / scale.divisor, "count": each.count}
        | {"description": each.description}
        for each in bins
        if each.count
    ]
    domain = [bins[0].low / scale.divisor, bins[-1].high / scale.divisor]
    kind = "log" if is_wide(bins[0].low, bins[-1].high) else "linear"
    x_scale = {"type": kind, "domain": domain, "nice": False}
    mark = {"type": "rect", "color": COLORS["plain"][0], "stroke": _PAPER}
    x = _number("low", scale.axis_title(selected.name), scale=x_scale)
    ends = {"x2": {"field": "high"}, "y2": {"datum": 0}}
    return _spec(values, HEIGHT, mark, x, _number("count", "count"), **ends)


def _stacked(rows: Sequence[Row], key: str) -> Spec:
    labels = [label or "all" for label in _row_labels(rows)]
    parts = sorted({row[key] for row in rows}, key=lambda part: (list(COLORS).index(color_key(part)), part))
    stacks = list(dict.fromkeys(labels))
    shown = stacks[:_MAX_STACKS]
    totals = dict.fromkeys(shown, 0.0)
    values = []
    for label, row in zip(labels, rows, strict=True):
        part, value = row[key], float(row["value"] or 0)
        if label in totals and value:
            totals[label] += value
            description = f"{label} {part}: {format_short(value, 'ns')}"
            values.append({"row": label, "part": part, "at": parts.index(part), "value": value})
            values[-1]["description"] = description
    scale = Scale.of(totals.values(), "ns")
    for each in values:
        each["value"] /= scale.divisor
    height = {"step": 20 if len(shown) <= 12 else 14}
    mark = {"type": "bar", "stroke": _PAPER, "strokeWidth": 0.6}
    color = _colors("part", {part: color_key(part) for part in parts})
    order = {"field": "at", "type": "quantitative"}
    x, y = _number("value", scale.unit), _name("row", shown)
    spec = _spec(values, height, mark, x, y, color=color, order=order)
    return {**spec, "limit_note": _limit_note(len(shown), len(stacks))}


def _over_steps(rows: Sequence[Row], selected: Column) -> Spec:
    """The ranks' values at each step: a line from lowest to highest, and a mark at the median."""
    known = [(row["step"], float(row[selected.name])) for row in rows if row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    scale = Scale.of([value for _, value in known], selected.unit)
    values = [{"step": step, "value": value / scale.divisor} for step, value in known]
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


def _over_time(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    """One line per device or stream, up to `_MAX_LINES`."""
    known = [row for row in rows if row["ts_ns"] is not None and row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    start = min(row["ts_ns"] for row in known)
    others = [key for key in shape.grain if key not in ("ts_ns", "run_id", "position")]
    varying = [key for key in others if len({row[key] for row in known}) > 1]
    names = [" ".join(f"{key} {row[key]}" for key in varying) or selected.name for row in known]
    shown = [*dict.fromkeys(names)][:_MAX_LINES]
    time = Scale.of([row["ts_ns"] - start for row in known], "ns")
    scale = Scale.of([row[selected.name] for row in known], selected.unit)
    values = []
    for name, row in zip(names, known, strict=True):
        ns, value = row["ts_ns"] - start, row[selected.name]
        text = f"{name}: {format_short(value, selected.unit)} at {format_short(ns, 'ns')}"
        x, y = round(ns / time.divisor, 4), round(value / scale.divisor, 4)
        values.append({"line": name, "x": x, "y": y, "description": text})
    drawn = [each for each in values if each["line"] in shown]
    mark = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.5}
    time_axis = _number("x", time.axis_title("time since start"), scale={"nice": False})
    value_axis = _number("y", scale.axis_title(selected.name))
    color = _colors("line", dict(zip(shown, COLORS, strict=False)))
    return _spec(drawn, HEIGHT, mark, time_axis, value_axis, color=color)


def _no_value(selected: Column) -> TwError:
    return TwError(f"{selected.name} is null in every row", "choose another measure: plot('NAME')")


def _bars(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    known = [row for row in rows if row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    labeled = sorted(
        zip(known, _row_labels(known), strict=True), key=lambda pair: -abs(pair[0][selected.name])
    )
    text = _text_key(shape)
    scale = Scale.of([row[selected.name] for row in known], selected.unit)
    values, seen = [], Counter[str]()
    for row, location in labeled[:_MAX_BARS]:
        label = " ".join(filter(None, [str(row[text]) if text else "", location])) or selected.name
        description = f"{label}: {format_short(row[selected.name], selected.unit)}"
        seen[label] += 1
        label = label if seen[label] == 1 else f"{label} ({seen[label]})"
        color = COLORS[color_key(str(row.get("kind") or row.get("cause") or row.get(text or "")))][0]
        value = float(row[selected.name])
        values.append({"label": label, "value": value / scale.divisor, "color": color})
        values[-1]["description"] = description
    own = {"field": "color", "type": "nominal", "scale": None}
    x, y = (
        _number("value", scale.axis_title(selected.name)),
        _name("label", [str(each["label"]) for each in values]),
    )
    spec = _spec(values, {"step": 20}, {"type": "bar"}, x, y, color=own)
    return {**spec, "limit_note": _limit_note(len(values), len(known))}
