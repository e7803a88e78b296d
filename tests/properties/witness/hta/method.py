"""What a method is to the comparison: HTA's answer, ours and the model's in one shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tracewarehouse as tw
from witness.hta.frame import Rank
from witness.hta.rules import Rules

# What is measured, to its numbers: times in ns, shares as HTA prints them.
Table = dict[tuple[Any, ...], tuple[Any, ...]]
US = 1_000


@dataclass(frozen=True)
class Method:
    """One method of HTA.

    `said` reads HTA's answer; `ours` runs our analyses, None if none computes this; `model` computes it
    from our tables under a set of rules: with none it is ours, with all of `rules` HTA's. `within` is what
    HTA rounds away, by column. `witnessed`: ours has its witness elsewhere, and the model knows HTA's rules
    only.
    """

    name: str
    rules: tuple[str, ...]
    said: Callable[[Any], Table]
    model: Callable[[tuple[Rank, ...], Rules], Table]
    ours: Callable[[tw.Warehouse], Table] | None = None
    within: tuple[float, ...] = ()
    note: str = ""
    witnessed: bool = False


def same(one: Table, other: Table, within: tuple[float, ...]) -> bool:
    """Whether two answers are about the same things and say the same, within the roundings."""
    if one.keys() != other.keys():
        return False
    return all(_same_row(row, other[key], within) for key, row in one.items())


def first_difference(one: Table, other: Table, within: tuple[float, ...]) -> str:
    """A first thing in which they differ."""
    for key in sorted(one.keys() | other.keys(), key=str):
        if key not in one or key not in other:
            return f"{key}: {one.get(key)} / {other.get(key)} ({len(one)} / {len(other)} rows)"
        if not _same_row(one[key], other[key], within):
            return f"{key}: {one[key]} / {other[key]}"
    return ""


def _same_row(one: tuple[Any, ...], other: tuple[Any, ...], within: tuple[float, ...]) -> bool:
    widths = within or (0.0,) * len(one)
    return len(one) == len(other) and all(map(_same, one, other, widths))


def _same(one: Any, other: Any, width: float) -> bool:
    if isinstance(one, float | int) and isinstance(other, float | int):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return abs(one - other) <= width + 1e-9 * max(abs(one), abs(other))
    return bool(one == other)


def columns(answer: Mapping[str, list[Any]], *names: str) -> list[tuple[Any, ...]]:
    """Rows of some columns of an answer."""
    return list(zip(*(answer[name] for name in names), strict=True))


def percent(part: float, whole: float) -> float:
    """A share in %; NaN of nothing."""
    return 100 * part / whole if whole else math.nan


def by_device(rows: list[dict[str, Any]]) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Rows of an analysis by (rank, device), where None is the only device of its rank."""
    devices: dict[int, set[int]] = {}
    for row in rows:
        devices.setdefault(row["rank"], set()).add(row["device"])
    return [((row["rank"], row["device"] if len(devices[row["rank"]]) > 1 else None), row) for row in rows]
