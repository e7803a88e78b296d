"""JSON objects from columns, against those that the standard library writes for each row."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from tracewarehouse.formats.json_text import json_lists, json_objects, json_texts
from tracewarehouse.formats.redact.text import Redactor
from tracewarehouse.formats.source_tables import HAS_TEXT, POSITION, ActivityRows

ROWS = 3_000


def expected(columns: dict[str, list[Any]]) -> list[str | None]:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    some = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return [json.dumps(row, separators=(",", ":"), ensure_ascii=False) if row else None for row in some]


@pytest.mark.parametrize("share", [0, 0.3, 0.999])
def test_each_row_has_the_members_that_are_not_null(share: float) -> None:
    chosen = random.Random(7)

    def column(low: int, high: int) -> list[int | None]:
        return [None if chosen.random() < share else chosen.randrange(low, high) for _ in range(ROWS)]

    few, many, far = column(0, 3), column(0, 10**6), column(-(2**62), 2**62)
    words = [None if number is None else f'a "{number}"\n' for number in column(0, 5)]
    ids = [None if number is None else f"é{number}" for number in many]
    columns: dict[str, list[Any]] = {
        'k"': few,
        "words": words,
        "many": many,
        "ids": ids,
        "far": far,
        "one": few,
    }
    texts = {"words": json_texts(pa.array(words)), "ids": json_texts(pa.array(ids))}
    members = {name: texts.get(name, pa.array(values)) for name, values in columns.items()}
    assert json_objects(members, ROWS).to_pylist() == expected(columns)


def test_constants_and_columns_of_nulls() -> None:
    members = {"no": pa.nulls(2, pa.int64()), "one": pa.array([1, 1]), "real": pa.array([0.5, float("nan")])}
    assert json_objects(members, 2).to_pylist() == ['{"one":1,"real":0.5}', '{"one":1}']
    assert json_objects({"no": pa.nulls(2, pa.int64())}, 2).to_pylist() == [None, None]


def test_lists_of_numbers() -> None:
    found = json_lists(pa.array([[1, 2], [None, 2], [1, 2], [-3, 10], None, [7]]))
    assert found.to_pylist() == ["[1,2]", None, "[1,2]", "[-3,10]", None, "[7]"]


def test_many_rows_are_the_same_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def batches() -> list[pa.RecordBatch]:
        rows = ActivityRows(Redactor(b"salt"))
        name = pa.array(["b", "hf_" + "aB3dE5fG7hJ9kL1m" * 2, None])
        args = pa.array(['{"a":1}', None, '{"b":2}'], pa.large_string())
        rows.add(
            {"ts_ns": pa.array([5, 1, None]), "name": name, "args": args, "stream": pa.array([1, 2, 3])}
            | {POSITION: pa.array([0, 1, 2]), HAS_TEXT: pa.array([True] * 3)}
        )
        rows.add(
            {"ts_ns": pa.array([1, 4]), "ph": pa.array(["X", "X"]), "bytes": pa.array([None, 8])}
            | {POSITION: pa.array([3, 4]), HAS_TEXT: pa.array([False] * 2), "args": args[1:2].take([0, 0])}
        )
        return [*rows.batches()]

    (whole,) = batches()
    assert whole.column("ts_ns").to_pylist() == [1, 1, 4, 5, None]
    assert whole.column("bytes").to_pylist() == [None, None, 8, None, None]
    assert whole.column("ph").to_pylist() == [None, "X", "X", None, None]
    assert whole.column("name").to_pylist()[0].startswith("[redacted:")
    monkeypatch.setattr("tracewarehouse.formats.source_tables._MOST_IN_ONE", 1)
    monkeypatch.setattr("tracewarehouse.formats.source_tables.OUTPUT_ROWS", 2)
    parts = batches()
    assert len(parts) == 3
    assert pa.Table.from_batches(parts).to_pylist() == pa.Table.from_batches([whole]).to_pylist()
