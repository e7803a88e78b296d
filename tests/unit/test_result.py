"""Results: the same rows as Arrow, Polars, dictionaries, CSV, JSON and Parquet, exact in each."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tracewarehouse.contracts.contract import Column
from tracewarehouse.errors import TwError
from tracewarehouse.exact_text import csv_text, json_text
from tracewarehouse.result import Provenance, Result, Skipped

BIG = 2**53 + 1
HOSTILE = 'a,"b"\nc'


def column(name: str, type_: str, unit: str | None = None) -> Column:
    return Column(name, type_, unit=unit, doc="")


COLUMNS = (
    column("run_id", "VARCHAR"),
    column("start_ns", "BIGINT", "ts"),
    column("busy_ns", "BIGINT", "ns"),
    column("busy", "DOUBLE", "ratio"),
    column("args", "JSON"),
    column("labels", "MAP(VARCHAR, VARCHAR)"),
)


def result(**changes: Any) -> Result:
    contract = SimpleNamespace(
        name="gpu_busy", version=2, summary="How busy.", grain=("run_id",), order=(), columns=COLUMNS
    )
    table = pa.table(
        {
            "run_id": pa.array([HOSTILE, "", None]),
            "start_ns": pa.array([BIG, 0, None], pa.int64()),
            "busy_ns": pa.array([BIG, -1, None], pa.int64()),
            "busy": pa.array([0.1 + 0.2, 1.0, None]),
            "args": pa.array(['{"x":1.10,"id":18446744073709551615}', "[]", None]),
            "labels": pa.array([{"k": "v"}, {}, None], pa.map_(pa.string(), pa.string())),
        }
    )
    parts: dict[str, Any] = {
        "table": table,
        "contract": cast(Any, contract),
        "provenance": Provenance(
            tool="0.1.0", runs=("a@v1",), analysis="gpu_busy", version=2, params={"g": 1}
        ),
        "skipped": (Skipped("a", 3, "no input shapes recorded"),),
        "notices": ("one damaged rank",),
    }
    return Result(**{**parts, **changes})


def test_csv_distinguishes_null_from_empty_and_keeps_every_digit() -> None:
    text = "".join(result().csv())
    assert text.splitlines()[0] == "run_id,start_ns,busy_ns,busy,args,labels"
    assert text.endswith("\n,,,,,\n")
    assert '\n"",0,-1,1.0,[],{}\n' in text
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert rows[0]["run_id"] == HOSTILE
    assert int(rows[0]["busy_ns"]) == BIG
    assert float(rows[0]["busy"]) == 0.1 + 0.2
    assert rows[0]["args"] == '{"x":1.10,"id":18446744073709551615}'
    assert json.loads(rows[0]["labels"]) == {"k": "v"}


def test_json_has_times_as_text_and_json_columns_verbatim() -> None:
    text = "".join(result().json())
    first, second, third = json.loads(text)
    assert first == {
        "run_id": HOSTILE,
        "start_ns": str(BIG),
        "busy_ns": BIG,
        "busy": 0.1 + 0.2,
        "args": {"x": 1.1, "id": 18446744073709551615},
        "labels": {"k": "v"},
    }
    assert '"args": {"x":1.10,"id":18446744073709551615}' in text
    assert second["run_id"] == "" and second["labels"] == {}
    assert set(third.values()) == {None}
    assert [json.loads(line) for line in "".join(result().jsonl()).splitlines()] == [first, second, third]


def test_no_rows_are_an_empty_array() -> None:
    empty = result().head(0)
    assert json.loads("".join(empty.json())) == []
    assert "".join(empty.csv()).count("\n") == 1
    assert "".join(empty.jsonl()) == ""


def test_chunks_join_to_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "".join(result().json()), "".join(result().csv())
    monkeypatch.setattr("tracewarehouse.result._ROWS_PER_BATCH", 1)
    assert ("".join(result().json()), "".join(result().csv())) == whole


@pytest.mark.parametrize(
    ("value", "csv_expected", "json_expected"),
    [
        (True, "true", "true"),
        (None, "", "null"),
        (1e-7, "1e-07", "1e-07"),
        (float("nan"), "nan", "null"),
        (5e-324, "5e-324", "5e-324"),
        (Decimal(2**70), "1180591620717411303424", "1180591620717411303424"),
        (" x", '" x"', '" x"'),
        ("=1+1", "=1+1", '"=1+1"'),
        ([1, None, "a"], '"[1, null, ""a""]"', '[1, null, "a"]'),
        (b"\x00\xff", "00ff", '"00ff"'),
        ("\u2028\x07", "\u2028\x07", '"\u2028\\u0007"'),
    ],
)
def test_one_spelling_per_value(value: object, csv_expected: str, json_expected: str) -> None:
    assert csv_text(value) == csv_expected
    assert json_text(value) == json_expected


def test_nanosecond_times_of_a_query_are_kept() -> None:
    table = pa.table({"at": pa.array([1_750_000_000_123_456_789], pa.timestamp("ns"))})
    text = "".join(result(table=table, contract=None).csv())
    assert text == "at\n2025-06-15 15:06:40.123456789\n"


def test_rows_polars_arrow_and_pandas_agree() -> None:
    found = result()
    assert found.rows()[0]["labels"] == {"k": "v"}
    assert found.polars()["busy_ns"].to_list() == [BIG, -1, None]
    assert found.arrow() is found.table
    pytest.importorskip("pandas")
    assert found.pandas()["run_id"].to_list()[:2] == [HOSTILE, ""]


def test_a_missing_pandas_is_reported() -> None:
    code = """
import sys
import pyarrow as pa
from tracewarehouse.result import Result, Provenance
from tracewarehouse.contracts.contract import Column
from tracewarehouse.errors import TwError
rows = Result(pa.table({"a": [1]}), Provenance("0", ()))
sys.modules["pandas"] = None
try:
    rows.pandas()
except TwError as error:
    print(error.message, "|", error.hint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pandas is not installed | pip install 'tracewarehouse[pandas]'\n"


def test_parquet_carries_contract_and_provenance(tmp_path: Path) -> None:
    path = result().write(tmp_path / "busy.parquet")
    read = parquet.read_table(str(path))
    assert read.column("start_ns").to_pylist() == [BIG, 0, None]
    stored = json.loads(parquet.read_schema(str(path)).metadata[b"tracewarehouse"])
    assert stored["provenance"]["runs"] == ["a@v1"]
    column = stored["contract"]["columns"][1]
    assert (column["name"], column["type"], column["unit"]) == ("start_ns", "BIGINT", "ts")
    assert stored["skipped"] == [{"run_id": "a", "rank": 3, "reason": "no input shapes recorded"}]
    assert stored["notices"] == ["one damaged rank"]


def test_write_selects_the_format_by_extension_and_leaves_no_partial_file(tmp_path: Path) -> None:
    for ending in ("csv", "json", "jsonl", "PARQUET"):
        assert result().write(tmp_path / f"x.{ending}").stat().st_size > 0
    with pytest.raises(TwError, match="unsupported file extension"):
        result().write(tmp_path / "x.xlsx")
    for name in ("x.csv", "x.parquet"):
        with pytest.raises(TwError, match="cannot be written") as error:
            result().write(tmp_path / "no" / name)
        assert error.value.message.endswith(f"{name}: cannot be written: No such file or directory")
        assert error.value.hint == "use a file in an existing, writable folder"
    assert len(list(tmp_path.iterdir())) == 4


def test_columns_of_a_query_have_types_but_no_units() -> None:
    found = [(each.name, each.type, each.unit) for each in result(contract=None).columns()]
    assert found[1] == ("start_ns", "BIGINT", None)
    assert result().columns()[1].unit == "ts"
