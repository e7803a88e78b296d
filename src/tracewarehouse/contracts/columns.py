"""Columns of a contract: type, unit, goal, and how rows are aggregated.

A small module, because most packages need columns without the rest of a contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Column:
    """A column of the result; with a unit it is a measure.

    `fold` aggregates several rows: `sum`, `min`, `max`, or `a/b`, the ratio of two sums. Without it the
    column cannot be aggregated.
    """

    name: str
    type: str
    doc: str
    unit: str | None = None
    better: str | None = None
    null: bool = False
    signed: bool = False
    fold: str | None = None


Printer = Literal[
    "duration", "timestamp", "plain", "count", "bytes", "ratio", "bandwidth", "flop", "flop_rate"
]


@dataclass(frozen=True)
class Unit:
    """A unit; scaling all times by f scales its columns by f to the power of `time_power`."""

    name: str
    time_power: int
    suffix: str
    printer: Printer


UNITS: dict[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit("ns", 1, "_ns", "duration"),
        Unit("ts", 1, "_ns", "timestamp"),
        Unit("id", 0, "", "plain"),
        Unit("count", 0, "", "count"),
        Unit("bytes", 0, "_bytes", "bytes"),
        Unit("ratio", 0, "", "ratio"),
        Unit("bytes_per_ns", -1, "_bytes_per_ns", "bandwidth"),
        Unit("flop", 0, "_flop", "flop"),
        Unit("flop_per_ns", -1, "_flop_per_ns", "flop_rate"),
        Unit("depth", 0, "", "plain"),
    )
}
