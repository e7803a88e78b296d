"""The line that names the largest part of a change."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from tracewarehouse.compare.diff.change import causes
from tracewarehouse.compare.diff.levels import Row
from tracewarehouse.display_names import category_name


def parts(**deltas: int) -> Any:
    """A breakdown with rows of these changes in µs, at every level the same."""
    rows = [Row(name, Fraction(0), Fraction(1000 * delta)) for name, delta in deltas.items()]
    rows.sort(key=lambda row: -abs(row.delta))
    return SimpleNamespace(
        per="step",
        delta=sum(row.delta for row in rows),
        level=lambda _: SimpleNamespace(rows=rows),
        own={},
    )


@pytest.mark.parametrize(
    ("deltas", "wanted"),
    [
        ({"host": 80, "sync": 20}, "largest part: {host} longer, +80 µs of the +100 µs change"),
        ({"host": 150, "sync": -50}, "largest part: {host} longer, +150 µs of the +100 µs change"),
        ({"host": 900, "sync": -800}, "parts cancel out: {host} longer, +900 µs and {sync} shorter, -800 µs"),
        ({"host": 800, "sync": -799}, "parts cancel out: {host} longer, +800 µs and {sync} shorter, -799 µs"),
        (
            {"host": 9, "sync": 9, "unknown": -17},
            "parts cancel out: {other} shorter, -17 µs and {host} longer, +9 µs",
        ),
    ],
)
def test_a_part_is_not_called_a_part_of_a_far_smaller_total(deltas: dict[str, int], wanted: str) -> None:
    (line,) = causes(parts(**{f"idle_{name}": delta for name, delta in deltas.items()}), is_unchanged=False)
    names = {name: category_name(f"idle_{name}") for name in ("host", "sync")}
    named = wanted.format(**names, other=category_name("idle_unknown"))
    assert line.replace(".000", "") == f"{named}, not tested"
