"""The line that names the largest part of a change."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from tracewarehouse.diff.cause import causes
from tracewarehouse.diff.levels import Row


def parts(**deltas: int) -> Any:
    """A breakdown with rows of these changes in µs, at every level the same."""
    rows = [Row(name, Fraction(0), Fraction(1000 * delta)) for name, delta in deltas.items()]
    rows.sort(key=lambda row: -abs(row.delta))
    return SimpleNamespace(delta=sum(row.delta for row in rows), level=lambda _: SimpleNamespace(rows=rows))


@pytest.mark.parametrize(
    ("deltas", "ending"),
    [
        ({"idle_host": 80, "idle_sync": 20}, "longer, +80 µs of +100 µs, not significant"),
        ({"idle_host": 150, "idle_sync": -50}, "longer, +150 µs of +100 µs, not significant"),
        ({"idle_host": 900, "idle_sync": -800}, "longer, +900 µs, offset by other parts, not significant"),
    ],
)
def test_a_part_is_not_called_a_part_of_a_far_smaller_total(deltas: dict[str, int], ending: str) -> None:
    (line,) = causes(parts(**deltas), is_unchanged=False)
    assert line.replace(".000", "") == f"largest part: idle: waiting for launch {ending}"
