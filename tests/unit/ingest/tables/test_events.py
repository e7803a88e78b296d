"""Tables of selected activities: counters, and allocations with their operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from activity_rows import columns_of, memory_events, slice_

from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.events import counters
from tracewarehouse.ingest.tables.model import schemas
from tracewarehouse.ingest.tables.nesting import nest


def memory(ts: int | None, **more: Any) -> dict[str, Any]:
    return slice_("[memory]", 0, None, "cpu_instant_event") | {"ph": "i", "ts_ns": ts} | more


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = columns_of(rows)
    nesting = nest(columns, rules_of())
    columns.put("step", np.arange(len(rows)), np.arange(len(rows)) % 2 == 0)
    return memory_events(columns, nesting).to_pylist()  # type: ignore[no-any-return]


def operator(rows: list[dict[str, Any]], ts: int, **more: Any) -> int | None:
    (found,) = table([*rows, memory(ts, **more)])
    return found["op_id"]  # type: ignore[no-any-return]


HOST = [slice_("outer", 0, 100), slice_("inner", 10, 20), slice_("frame", 12, 5, "python_function")]


def test_the_innermost_operator_that_is_open() -> None:
    assert [operator(HOST, ts) for ts in (0, 10, 15, 29, 30, 99, 100)] == [0, 1, 1, 1, 0, 0, None]


def test_only_its_own_thread_counts() -> None:
    assert operator(HOST, 15, tid="2") is None
    assert operator([*HOST, slice_("other", 14, 9, tid="2")], 15, tid="2") == 3
    assert operator(HOST, 15, tid=None) is None
    assert operator(HOST, -5) is None


def test_annotations_are_not_operators() -> None:
    assert operator([*HOST, slice_("note", 14, 90, "user_annotation")], 15) == 1


def test_an_operator_that_outlives_its_parent() -> None:
    crossing = [slice_("outer", 0, 20), slice_("crossing", 10, 30)]
    assert [operator(crossing, ts) for ts in (15, 25, 45)] == [1, 1, None]
    ended = [slice_("outer", 0, 20), slice_("middle", 5, 40), slice_("inner", 6, 3)]
    assert operator(ended, 30) == 1


def test_deep_stacks_that_ended_together() -> None:
    deep = [slice_("around", 0, 5000)] + [slice_("op", 1 + n, 2000 - 2 * n) for n in range(900)]
    assert operator(deep, 2500) == 0
    assert operator(deep, 1000) == 900


def test_columns_and_order() -> None:
    values = {"device_type": 1, "device": 0, "address": 7, "bytes": -8, "total_allocated_bytes": 9,
            "total_reserved_bytes": 10, "event_index": 3}  # fmt: skip
    first, second, last = table(
        [memory(9, **values), memory(None), memory(4, ph="I"), memory(4, ph="C"), memory(4) | {"name": "x"}]
    )
    assert (first["event_id"], second["event_id"], last["event_id"]) == (2, 0, 1)
    assert {name: second[name] for name in values} == values
    assert (first["step"], second["step"], last["step"], last["ts_ns"]) == (2, 0, None, None)


def counter(name: str | None, ts: int | None, args: str | None, **more: Any) -> dict[str, Any]:
    return slice_(name, 0, None, None) | {"ph": "C", "ts_ns": ts, "args": args} | more


def values(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    found = counters(columns_of(rows), rules_of())
    assert found.schema.equals(schemas(rules_of())["counters"])
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
