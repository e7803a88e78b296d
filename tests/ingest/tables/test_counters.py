"""Counters: a row per key of the arguments of each row of phase C."""

from __future__ import annotations

from typing import Any

from activity_rows import columns_of, slice_

from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.events import COUNTERS_SCHEMA, counters


def counter(name: str | None, ts: int | None, args: str | None, **more: Any) -> dict[str, Any]:
    return slice_(name, 0, None, None) | {"ph": "C", "ts_ns": ts, "args": args} | more


def values(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = counters(columns_of(rows), rules_of())
    assert found.schema.equals(COUNTERS_SCHEMA)
    return [tuple(row[name] for name in ("event_id", "series", "value")) for row in found.to_pylist()]


def test_each_key_is_a_series() -> None:
    assert values(slice_("op", 0, 1), counter("gpu", 5, '{"b": 2, "a": 1.5}')) == [
        (1, "a", 1.5),
        (1, "b", 2.0),
    ]


def test_numbers_may_be_written_as_text() -> None:
    args = '{"a": "2.5", "b": "x", "c": null, "d": {"e": 1}, "f": true, "g": "1e3"}'
    assert values(counter("gpu", 5, args)) == [
        (0, "a", 2.5), (0, "b", None), (0, "c", None), (0, "d", None), (0, "f", None), (0, "g", 1000.0),
    ]  # fmt: skip


def test_keys_of_any_characters() -> None:
    assert values(counter("gpu", 5, '{"a/b~c": 1, "": 2, "é\\"": 3}')) == [
        (0, "", 2.0), (0, "a/b~c", 1.0), (0, 'é"', 3.0)
    ]  # fmt: skip


def test_a_key_that_comes_twice_is_one_row() -> None:
    assert values(counter("gpu", 5, '{"a": 1, "a": 2}')) == [(0, "a", 1.0)]


def test_what_is_no_object_has_no_values() -> None:
    rows = [counter("gpu", 5, args) for args in ("[1]", "5", None, "{}")]
    assert values(*rows, slice_("op", 0, 1) | {"args": '{"a": 1}'}) == []


def test_rows_come_by_name_series_and_time() -> None:
    rows = [counter("b", 1, '{"x": 1}'), counter("a", 9, '{"x": 1}'), counter("a", None, '{"x": 1}')]
    rows += [counter("a", 3, '{"x": 1, "w": 1}'), counter(None, 0, '{"x": 1}'), counter("a", 3, '{"x": 1}')]
    assert [(row, series) for row, series, _ in values(*rows)] == [
        (3, "w"), (3, "x"), (5, "x"), (1, "x"), (2, "x"), (0, "x"), (4, "x")
    ]  # fmt: skip
