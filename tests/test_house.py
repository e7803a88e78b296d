"""The package does not grow unnoticed: bounds of its size. A bound is raised only with a reason beside it."""

from __future__ import annotations

import pytest

import house

# `python tests/house.py` prints these and the figures that have no bound.
BOUNDS = {
    "code lines of Python": 51_500,
    "lines of C and JavaScript": 1_900,
    "modules": 238,
    "import cycles": 0,
}


def test_the_package_is_within_its_bounds() -> None:
    figures = house.figures()
    too_large = {name: (figures[name], bound) for name, bound in BOUNDS.items() if figures[name] > bound}
    assert not too_large


def test_a_cycle_of_type_imports_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    monkeypatch.setattr(house, "imports", lambda: graph)
    assert house.cycles() == [["b", "c"]]


def test_the_small_trace_has_its_events() -> None:
    events = house.small_trace()["traceEvents"]
    assert isinstance(events, list) and len(events) == 92
