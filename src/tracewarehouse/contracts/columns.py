"""The columns that a contract declares: type, unit, goal, and how several rows become one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tracewarehouse.contracts.front_matter import Place, flag, section

COLUMN_KEYS = ("type", "doc", "unit", "better", "null", "signed", "fold")
NO_GOAL = (None, "id", "ts", "depth")
FOLDS = ("sum", "min", "max")
FOLDED_TYPES = ("BIGINT", "INTEGER", "DOUBLE")

_SCALAR = (
    r"(?:BIGINT|INTEGER|SMALLINT|TINYINT|UBIGINT|HUGEINT|DOUBLE|BOOLEAN|VARCHAR|JSON|BLOB|TIMESTAMP"
    r"|DECIMAL\(\d+,\d+\))"
)
_TYPE = re.compile(rf"(?:{_SCALAR}|MAP\({_SCALAR}, {_SCALAR}\))(?:\[\])*")


@dataclass(frozen=True)
class Column:
    """A column of the result; with a unit it is a measure.

    `fold` says what it is of several rows taken as one: their sum, min or max, or `a/b`, a sum over another.
    Without it they do not tell.
    """

    name: str
    type: str
    doc: str
    unit: str | None = None
    better: str | None = None
    null: bool = False
    signed: bool = False
    fold: str | None = None


def parse_columns(head: Mapping[str, Any], place: Place) -> tuple[Column, ...]:
    """The entries of `[columns]`, in order; raises ContractError."""
    found = section(head, "columns", COLUMN_KEYS, place)
    if not found:
        raise place.error("there are no columns", "declare each column of the result", "", "columns")
    columns = tuple(_column(name, entry, place) for name, entry in found.items())
    for column in columns:
        _check_fold(column, columns, place)
    return columns


def _column(name: str, entry: Mapping[str, Any], place: Place) -> Column:
    if not _TYPE.fullmatch(entry["type"]):
        raise place.error(
            f"type {entry['type']!r} of `{name}` is not known",
            "write BIGINT, INTEGER, DOUBLE, BOOLEAN, VARCHAR, JSON, DECIMAL(28,9), VARCHAR[] or the like",
            name,
            "columns",
        )
    column = Column(
        name=name,
        type=entry["type"],
        doc=entry["doc"],
        unit=unit_of(name, entry, place, "columns"),
        better=entry.get("better"),
        null=flag(entry, "null", place, name),
        signed=flag(entry, "signed", place, name),
        fold=entry.get("fold"),
    )
    _check_goal(column, place)
    return column


def unit_of(name: str, entry: Mapping[str, Any], place: Place, section: str) -> str | None:
    """The unit of a column or parameter, which its name tells too; raises ContractError."""
    unit = entry.get("unit")
    if unit is None:
        if name.endswith("_ns"):
            raise place.error(f"`{name}` has no unit", 'add unit = "ns" or "ts"', name, section)
        return None
    if unit not in UNITS:
        raise place.error(
            f"unit {unit!r} of `{name}` is not known", f"known are {', '.join(UNITS)}", name, section
        )
    word = UNITS[unit].suffix
    if word and f"{word}_" not in f"_{name}_":
        raise place.error(f"`{name}` does not name its unit {unit}", f"call it {name}{word}", name, section)
    return str(unit)


def _check_goal(column: Column, place: Place) -> None:
    if column.better not in (None, "lower", "higher"):
        hint = "write lower or higher, or leave it out where the goal is not clear"
        raise place.error(
            f"better {column.better!r} of `{column.name}` is not known", hint, column.name, "columns"
        )
    if column.better and column.unit in NO_GOAL:
        hint = "only a measure has a goal: leave `better` out, or give the column its unit"
        raise place.error(f"`{column.name}` cannot be better or worse", hint, column.name, "columns")
    if column.signed and column.unit is None:
        hint = "leave `signed` out, or give the column its unit"
        raise place.error(f"`{column.name}` is signed but no measure", hint, column.name, "columns")


def _check_fold(column: Column, columns: Sequence[Column], place: Place) -> None:
    """A fold is of a number; one over the other, of columns that are summed."""
    if column.fold is None:
        return
    summed = {each.name for each in columns if each.fold == "sum"}
    parts = column.fold.split("/") if isinstance(column.fold, str) else []
    known = column.fold in FOLDS or len(parts) == 2 and set(parts) <= summed
    if not known or column.type not in FOLDED_TYPES:
        raise place.error(
            f"fold {column.fold!r} of `{column.name}` cannot be",
            f'of a number write {", ".join(FOLDS)}, or "a/b" of two columns with fold = "sum"',
            column.name,
            "columns",
        )


Printer = Literal[
    "duration", "timestamp", "plain", "count", "bytes", "ratio", "bandwidth", "flop", "flop_rate"
]


@dataclass(frozen=True)
class Unit:
    """A unit: `time_power` says how a column scales when all times are stretched."""

    name: str
    time_power: int
    suffix: str
    printer: Printer
    adds_up: bool


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit("ns", 1, "_ns", "duration", adds_up=True),
        Unit("ts", 1, "_ns", "timestamp", adds_up=False),
        Unit("id", 0, "", "plain", adds_up=False),
        Unit("count", 0, "", "count", adds_up=True),
        Unit("bytes", 0, "_bytes", "bytes", adds_up=True),
        Unit("ratio", 0, "", "ratio", adds_up=False),
        Unit("bytes_per_ns", -1, "_bytes_per_ns", "bandwidth", adds_up=False),
        Unit("flop", 0, "_flop", "flop", adds_up=False),
        Unit("flop_per_ns", -1, "_flop_per_ns", "flop_rate", adds_up=False),
        Unit("depth", 0, "", "plain", adds_up=False),
    )
}
