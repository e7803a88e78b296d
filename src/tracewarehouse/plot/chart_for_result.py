"""The picture that suits a result, by its contract: grain, units, and which way is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from tracewarehouse.contracts.columns import Column
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.plot.bars import Bar, bars
from tracewarehouse.plot.grids import Piece, stacks
from tracewarehouse.plot.lines import Span, binned, histogram, series, spans
from tracewarehouse.plot.theme import COLOURS, PLAIN, Spec, brief, meaning

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import Contract

Row = dict[str, Any]
TOP, ROWS = 20, 40  # bars and stacks of one picture
WIDTH = 520
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_LEVELS = ("queue_length", "allocated_bytes", "net_bytes", "total_bytes", "bandwidth_bytes_per_ns")
_LINES = 12  # of one picture
_PLACES = ("run_id", "rank", "device", "step", "occurrence", "stream")


class _Field(Protocol):
    """A column of a result."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def unit(self) -> str | None: ...


@dataclass(frozen=True)
class Shape:
    """What the choice goes by: what identifies a row, how rows are ordered, what the columns hold."""

    title: str
    grain: tuple[str, ...]
    order: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> set[str]:
        """The columns by name."""
        return {column.name for column in self.columns}

    @property
    def last(self) -> str:
        """The last column of the grain."""
        return self.grain[-1] if self.grain else ""


def shape(contract: Contract | None, fields: Sequence[_Field]) -> Shape:
    """The shape of a result; of a query texts name its rows, and every other number is a measure."""
    if contract is not None:
        return Shape(contract.summary, contract.grain, contract.order, contract.columns)
    columns = tuple(
        Column(each.name, each.type, "", each.unit or ("count" if _is_number(each) else None))
        for each in fields
    )
    grain = tuple(each.name for each in columns if each.type == "VARCHAR" or each.name in _PLACES)
    return Shape("Rows of a query", grain, (), columns)


def _is_number(field: _Field) -> bool:
    return field.name not in _PLACES and field.type.partition("(")[0] in _NUMBERS


def picture(shape: Shape, rows: Sequence[Row], measure: str | None = None) -> Spec:
    """The specification of the picture, with a title. Raises UnknownName for a measure it has not.

    Parts that add up are stacked by rank, what is told over time is a line, a row per event is a
    distribution, all else bars, the largest first.
    """
    if not rows:
        raise TwError("there are no rows to plot", "`.abstained` and `.notices` say why, where it is known")
    parts = [column.name for column in shape.columns if column.name in PARTS]
    if len(parts) > 2 and measure is None:
        told = [{**row, "part": part, "value": row[part]} for row in rows for part in parts]
        return _titled(_stacked(told, "part"), shape, "its parts")
    is_over_time = "ts_ns" in shape.names and shape.last in ("ts_ns", "position")
    selected = (_level(shape, rows) if is_over_time and measure is None else None) or _measure(shape, measure)
    goal = f", {selected.better} is better" if selected.better else ""
    made = _over_time(shape, rows, selected) if is_over_time else _made(shape, rows, selected)
    return _titled(made, shape, f"{selected.name}{goal}")


def _titled(made: Spec, shape: Shape, subtitle: str) -> Spec:
    cut = made.pop("cut", "")
    told = {"text": shape.title, "subtitle": f"{subtitle}{cut}", "limit": WIDTH}
    return {**made, "title": told}


def _made(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    text, last = _text_key(shape), shape.last
    if text and "share" in shape.names and selected.unit == "ns":
        return _stacked([{**row, "value": row[selected.name]} for row in rows], text)
    if last == "step":
        return _over_steps(rows, selected)
    if text is None and last not in _PLACES:
        return _spread(rows, selected)
    return _bars(shape, rows, selected)


def _level(shape: Shape, rows: Sequence[Row]) -> Column | None:
    """What stands at each moment, where a result tells such a thing."""
    told = {column.name: column for column in shape.columns}
    known = (name for name in _LEVELS if name in told and any(row[name] is not None for row in rows))
    return next((told[name] for name in known), None)


def _measure(shape: Shape, name: str | None) -> Column:
    """The column to draw: that of the name, else the first with a goal, else the first measure."""
    measures = [column for column in shape.columns if column.unit not in (None, "id", "ts", "depth")]
    if name is not None:
        found = next((column for column in measures if column.name == name), None)
        if found is None:
            raise UnknownName("measure", name, [column.name for column in measures])
        return found
    if not measures:
        raise TwError("there is no measure to plot", "polars() gives the rows")
    first = _first_of_order(shape, measures)
    return first or next((column for column in measures if column.better), measures[0])


def _first_of_order(shape: Shape, measures: Sequence[Column]) -> Column | None:
    by_size = [key[1:] for key in shape.order if key.startswith("-")]
    return next((column for column in measures if by_size and column.name == by_size[0]), None)


def _column(shape: Shape, name: str) -> Column:
    return next(column for column in shape.columns if column.name == name)


def _text_key(shape: Shape) -> str | None:
    """The last column of the grain that is a name, or None."""
    found = [key for key in shape.grain if key not in _PLACES and _column(shape, key).type == "VARCHAR"]
    return found[-1] if found else None


def _places(rows: Sequence[Row]) -> list[str]:
    """What tells each row's place from others': run, rank, device, step, where they differ."""
    names = [name for name in _PLACES if name in rows[0] and len({row[name] for row in rows}) > 1]
    return [
        " ".join(str(row[name]) if name == "run_id" else f"{name} {row[name]}" for name in names)
        for row in rows
    ]


def _cut(shown: int, count: int) -> str:
    return f", {shown:,} of {count:,}" if shown < count else ""


def _stacked(rows: Sequence[Row], key: str) -> Spec:
    places = [place or "all" for place in _places(rows)]
    parts = sorted({row[key] for row in rows}, key=lambda part: (_rank(part), part))
    stands = list(dict.fromkeys(places))
    shown = stands[:ROWS]
    pieces = [
        Piece(
            place,
            row[key],
            float(row["value"] or 0),
            meaning(row[key]),
            f"{place} {row[key]}: {brief(row['value'] or 0, 'ns')}",
        )
        for place, row in zip(places, rows, strict=True)
        if place in set(shown)
    ]
    made = stacks(pieces, shown, parts, "ns", PLAIN, what="", legend=True, width=WIDTH)
    return {**made, "cut": _cut(len(shown), len(stands))}


def _rank(part: str) -> int:
    return list(COLOURS).index(meaning(part))


def _over_steps(rows: Sequence[Row], selected: Column) -> Spec:
    """The ranks' values at each step, from lowest to highest."""
    steps: dict[int, list[float]] = {}
    for row in rows:
        if row[selected.name] is not None:
            steps.setdefault(row["step"], []).append(float(row[selected.name]))
    told = [
        Span(
            step,
            min(values),
            median(values),
            max(values),
            f"step {step}: {brief(median(values), selected.unit)}",
        )
        for step, values in sorted(steps.items())
    ]
    if not told:
        raise _no_value(selected)
    return {**spans(told, selected.name, "step", selected.unit, PLAIN), "width": WIDTH}


def _over_time(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    """A line for each of the first places; more than a picture can hold are left out of it."""
    known = [row for row in rows if row["ts_ns"] is not None and row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    start = min(row["ts_ns"] for row in known)
    others = [key for key in shape.grain if key not in ("ts_ns", "run_id", "position")]
    kept = [key for key in others if len({row[key] for row in known}) > 1]
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in known:
        name = " ".join(f"{key} {row[key]}" for key in kept) or selected.name
        lines.setdefault(name, []).append((row["ts_ns"] - start, row[selected.name]))
    inks = list(COLOURS)
    told = {name: (inks[at], points) for at, (name, points) in enumerate([*lines.items()][:_LINES])}
    return {**series(told, selected.name, selected.unit, PLAIN), "width": WIDTH}


def _spread(rows: Sequence[Row], selected: Column) -> Spec:
    values = [float(row[selected.name]) for row in rows if row[selected.name] is not None]
    bins = binned(values, selected.unit)
    if not bins:
        raise _no_value(selected)
    return {**histogram(bins, selected.name, selected.unit, PLAIN), "width": WIDTH}


def _no_value(selected: Column) -> TwError:
    return TwError(f"{selected.name} is null in every row", "choose another measure: plot('NAME')")


def _bars(shape: Shape, rows: Sequence[Row], selected: Column) -> Spec:
    known = [row for row in rows if row[selected.name] is not None]
    if not known:
        raise _no_value(selected)
    shown = sorted(zip(known, _places(known), strict=True), key=lambda pair: -abs(pair[0][selected.name]))[
        :TOP
    ]
    text = _text_key(shape)
    made = []
    for row, place in shown:
        label = " ".join(filter(None, [str(row[text]) if text else "", place])) or selected.name
        value = brief(row[selected.name], selected.unit)
        ink = meaning(str(row.get("kind") or row.get("cause") or row.get(text or "")))
        made.append(Bar(label, float(row[selected.name]), ink, value, f"{label}: {value}"))
    return {**bars(made, PLAIN, WIDTH), "cut": _cut(len(shown), len(known))}
