"""Selects the chart for a result from its contract: grain, units, and which direction is better."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tracewarehouse.contracts.contract import Column
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.exact_text import Field
from tracewarehouse.present.plot.bars import Bar, Segment, bar_chart, stacked_bars
from tracewarehouse.present.plot.lines import RangeBar, histogram, histogram_bins, line_chart, range_bars
from tracewarehouse.present.plot.theme import COLORS, PLAIN, Spec, color_key, format_short

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import Contract

Row = dict[str, Any]
WIDTH = 520  # pixels
_MAX_BARS, _MAX_STACKS, _MAX_LINES = 20, 40, 12  # in one chart
_BREAKDOWN = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_NUMBER_TYPES = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_LEVEL_MEASURES = ("queue_length", "allocated_bytes", "net_bytes", "total_bytes", "bandwidth_bytes_per_ns")
_LOCATION = ("run_id", "rank", "device", "step", "occurrence", "stream")


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
        return {**histogram(bins, selected.name, selected.unit, PLAIN), "width": WIDTH}
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


def _stacked(rows: Sequence[Row], key: str) -> Spec:
    labels = [label or "all" for label in _row_labels(rows)]
    parts = sorted({row[key] for row in rows}, key=lambda part: (list(COLORS).index(color_key(part)), part))
    stacks = list(dict.fromkeys(labels))
    shown = stacks[:_MAX_STACKS]
    segments = []
    for label, row in zip(labels, rows, strict=True):
        if label in shown:
            part, value = row[key], row["value"] or 0
            description = f"{label} {part}: {format_short(value, 'ns')}"
            segments.append(Segment(label, part, float(value), color_key(part), description))
    spec = stacked_bars(segments, shown, parts, "ns", PLAIN, axis_title="", legend=True, width=WIDTH)
    return {**spec, "limit_note": _limit_note(len(shown), len(stacks))}


def _over_steps(rows: Sequence[Row], selected: Column) -> Spec:
    """The ranks' values at each step, from lowest to highest."""
    steps: dict[int, list[float]] = {}
    for row in rows:
        if row[selected.name] is not None:
            steps.setdefault(row["step"], []).append(float(row[selected.name]))
    ranges = []
    for step, values in sorted(steps.items()):
        middle = median(values)
        text = f"step {step}: {format_short(middle, selected.unit)}"
        ranges.append(RangeBar(step, min(values), middle, max(values), text))
    if not ranges:
        raise _no_value(selected)
    return {**range_bars(ranges, selected.name, selected.unit, PLAIN), "width": WIDTH}


def _over_time(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    """One line per device or stream, up to `_MAX_LINES`."""
    known = [row for row in rows if row["ts_ns"] is not None and row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    start = min(row["ts_ns"] for row in known)
    others = [key for key in shape.grain if key not in ("ts_ns", "run_id", "position")]
    varying = [key for key in others if len({row[key] for row in known}) > 1]
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in known:
        name = " ".join(f"{key} {row[key]}" for key in varying) or selected.name
        lines.setdefault(name, []).append((row["ts_ns"] - start, row[selected.name]))
    colors = list(COLORS)
    shown = {name: (colors[at], points) for at, (name, points) in enumerate([*lines.items()][:_MAX_LINES])}
    return {**line_chart(shown, selected.name, selected.unit, PLAIN), "width": WIDTH}


def _no_value(selected: Column) -> TwError:
    return TwError(f"{selected.name} is null in every row", "choose another measure: plot('NAME')")


def _bars(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    known = [row for row in rows if row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    labeled = sorted(
        zip(known, _row_labels(known), strict=True), key=lambda pair: -abs(pair[0][selected.name])
    )
    shown = labeled[:_MAX_BARS]
    text = _text_key(shape)
    bars = []
    for row, location in shown:
        label = " ".join(filter(None, [str(row[text]) if text else "", location])) or selected.name
        value = format_short(row[selected.name], selected.unit)
        color = color_key(str(row.get("kind") or row.get("cause") or row.get(text or "")))
        bars.append(Bar(label, float(row[selected.name]), color, value, f"{label}: {value}"))
    return {**bar_chart(bars, PLAIN, WIDTH), "limit_note": _limit_note(len(shown), len(known))}
