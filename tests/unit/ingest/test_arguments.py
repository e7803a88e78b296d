"""Arguments as templates and numbers in files: every reader gets the text of the trace back."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracewarehouse as tw
from conftest import ROOT, deep
from tracewarehouse.contracts.contract import ARGS_SQL, NUMBERS, PRINTED, REPEATED, TEMPLATE
from tracewarehouse.formats.kineto.scanner import NativeScanner
from tracewarehouse.ingest import parquet

GUIDE = (ROOT / "notebooks" / "guides" / "how_it_works.md").read_text(encoding="utf-8")
ODD = [
    None,
    "",
    "{}",
    '{"a":1}',
    '{"a":-1,"b":-0,"c":0,"d":00}',
    '{"a":1.5,"b":1.50,"c":1.0,"d":1.00,"e":0.000123,"f":-1.5,"g":-0.5}',
    '{"a":1e5,"b":1.5E-3,"c":2e+7,"d":1e999}',
    '{"a":999999999999999999,"b":1000000000000000000,"c":9223372036854775807,"d":-9223372036854775808}',
    '{"a":123456789012345678901234567890,"b":0.1234567890123456789}',
    '{"100 %":5,"%d":"%1$d %% %","x\\\\":"\\"7\\" \\\\","y":["\\u0025d",3]}',
    '{"a":NaN,"b":-Infinity,"c":-}',
    '{"日本":"3 – 4","n":[1,2,[3,[4,{"5":6}]]],"t":true}',
    "12",
    '"12"',
    "[" + ",".join(map(str, range(40))) + "]",
    '{"open":"12',
    '{"open":"1\\',
]


def columns(texts: list[str | None], **known: Any) -> dict[str, pa.ChunkedArray]:
    """The columns that `split` reads; those that are not given are null."""
    found = {name: pa.nulls(len(texts), pa.int64()) for name in REPEATED}
    found |= {name: pa.array(values, pa.int64()) for name, values in known.items()}
    found["args"] = pa.array(texts, pa.string())
    return {name: pa.chunked_array([column]) for name, column in found.items()}


def printed(made: dict[str, pa.ChunkedArray]) -> list[str | None]:
    """The texts again, as the views print them."""
    given = pa.table(made)  # noqa: F841  DuckDB reads it by its name
    return [text for (text,) in duckdb.connect().sql(f"SELECT {ARGS_SQL} FROM given").fetchall()]


def split(given: dict[str, pa.ChunkedArray]) -> dict[str, pa.ChunkedArray]:
    """The columns of a file."""
    return {name: column for name, column in given.items() if name != "args"} | parquet.split_args(given)


def test_odd_texts_come_back() -> None:
    for texts in (ODD, ODD * 2, ["", *ODD][3:], [text for text in ODD if text]):
        assert printed(split(columns(texts))) == texts


def test_numbers_are_cut_out_once() -> None:
    rows = range(100)
    texts = [
        f'{{"External id":{row},"again":{row},"k":7,"x":{row * row},"y":{row % 3}.0{row}}}' for row in rows
    ]
    made = split(columns(texts, external_id=list(rows)))
    (template,) = pa.table(made)[TEMPLATE].unique().to_pylist()
    second, eleventh = PRINTED.index("external_id") + 1, len(REPEATED) + 1
    assert template.startswith(
        f'{{"External id":%{second}$d,"again":%{eleventh}$d,"k":7,"x":%{eleventh + 1}$d'
    )
    assert made["args_2"].to_pylist() == [row * row for row in rows]
    assert made["args_5"].null_count == 100
    assert printed(made) == texts


def test_a_column_that_is_null_counts_as_zero() -> None:
    texts = ['{"stream":0}', '{"stream":7}', '{"stream":0}']
    made = split(columns(texts, stream=[None, 7, 0]))
    assert len(made[TEMPLATE].unique()) == 1 and made["args_1"].null_count == 3
    assert printed(made) == texts
    wrong = split(columns(texts, stream=[5, None, 0]))
    assert wrong["args_1"].null_count == 0 and printed(wrong) == texts


def test_rows_of_a_slice_are_those_of_the_slice() -> None:
    texts = [f'{{"id":{row},"n":{row % 7}}}' if row % 5 else None for row in range(1_000)]
    ids = [row if row % 3 else None for row in range(1_000)]
    whole = pa.table(columns(texts, correlation=ids))
    for low, high in ((1, 9), (13, 800), (999, 1_000)):
        part = whole.slice(low, high - low)
        made = split(dict(zip(part.column_names, part.columns, strict=True)))
        assert printed(made) == texts[low:high]


def test_numbers_beyond_the_last_column_are_text() -> None:
    lists = [[row * at % 11 for at in range(30)] for row in range(50)]
    texts = [json.dumps({"dims": numbers}) for numbers in lists]
    made = split(columns(texts))
    assert made[NUMBERS[-1]].null_count == 0 and len(made[TEMPLATE].unique()) > 1
    assert printed(made) == texts


def test_texts_with_too_many_templates_are_stored_as_they_are() -> None:
    texts = [f'{{"key {row} %":{row}}}' for row in range(20_001)]
    made = split(columns(texts))
    assert made[TEMPLATE].type == pa.string() and all(made[name].null_count == 20_001 for name in NUMBERS)
    assert printed(made) == texts
    assert pa.types.is_dictionary(split(columns(texts[1:]))[TEMPLATE].type)


def test_without_native_scanner_or_memory_they_are_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for text in ODD if text]
    native = NativeScanner.split
    for allocations in range(40):

        def short(self: NativeScanner, *given: Any, left: int = allocations) -> Any:
            return native(NativeScanner(allocations=left), *given)

        monkeypatch.setattr(NativeScanner, "split", short)
        assert printed(split(columns(texts))) == texts
    monkeypatch.setattr(parquet, "available", lambda: False)
    assert printed(split(columns(texts))) == texts


@pytest.mark.parametrize("rounds", [15, *deep(60)])
def test_random_texts_come_back(rounds: int) -> None:
    chance = random.Random(7)
    parts = ['"', "\\", "%", "%d", "1", "0", "-", ".", "e", "{", "}", ",", ":", "a", "007", "12.50", "é", " "]
    for _ in range(rounds):
        texts = ["".join(chance.choices(parts, k=chance.randrange(30))) for _ in range(200)]
        ids = [chance.choice([None, 0, 1, 7]) for _ in texts]
        assert printed(split(columns(texts, correlation=ids, stream=ids))) == texts


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Warehouse, Path, pa.ChunkedArray]:
    """A warehouse with a simulated rank, its file of `events`, and its arguments."""
    folder = tmp_path_factory.mktemp("arguments")
    tw.simulate(folder / "traces", ranks=1, layers=2, steps=2)
    wh = tw.open(folder / "wh")
    wh.ingest(folder / "traces" / "rank0.json.gz", run="run")
    rows = wh.query("SELECT args::VARCHAR AS args FROM events ORDER BY event_id").arrow()
    (path,) = (folder / "wh").glob("data/events/**/*.parquet")
    return wh, path, rows["args"]


def test_every_reader_gets_the_same_text(stored: tuple[tw.Warehouse, Path, pa.ChunkedArray]) -> None:
    wh, path, args = stored
    assert args.null_count < len(args)
    scanned = wh.scan("events").sort("event_id").collect()["args"]
    assert scanned.to_list() == args.to_pylist()
    (rows,) = parquet.with_args(pq.read_table(path)).select(["args"]).columns
    assert rows.to_pylist() == args.to_pylist()


def test_the_expression_of_the_guide_prints_the_arguments(
    stored: tuple[tw.Warehouse, Path, pa.ChunkedArray],
) -> None:
    """Spark's format_string and DuckDB's printf read the same templates."""
    _, path, args = stored
    (sql,) = re.findall(r"```sql\n(SELECT format_string.*?)```", GUIDE, re.DOTALL)
    sql = sql.replace("format_string", "printf").replace("FROM events", f"FROM '{path}'")
    assert [text for (text,) in duckdb.connect().sql(sql).fetchall()] == args.to_pylist()
