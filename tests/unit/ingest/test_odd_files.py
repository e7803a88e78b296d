"""Files with odd values through a complete ingest: nothing is lost, and replaced values are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from trace_texts import EVENT, KINETO_HEAD, event, trace
from tracewarehouse.formats import json_text
from tracewarehouse.formats.json_text import LongStrings
from tracewarehouse.formats.kineto import format

LONGEST_BYTES = 1 << 18


def ingested(folder: Path, text: bytes) -> tw.Warehouse:
    """A warehouse with the text as the only rank of run `trace`."""
    path = folder / "job" / "trace.json"
    path.parent.mkdir()
    path.write_bytes(text)
    warehouse = tw.open(folder / "warehouse")
    assert [file.state for file in warehouse.ingest(path).files] == ["intact"]
    return warehouse


def rows(warehouse: tw.Warehouse, sql: str) -> list[dict[str, Any]]:
    return list(warehouse.query(sql).rows())


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_an_event_nested_deep_is_kept(tmp_path: Path, depth: int) -> None:
    args = '{"correlation":7,"a":' + "[" * depth + "]" * depth + "}"
    deep = EVENT[:-1] + b',"args":' + args.encode() + b"}"
    warehouse = ingested(tmp_path, KINETO_HEAD + EVENT + b"," + deep + b"," + EVENT + b"]}")
    found = rows(warehouse, "SELECT args::VARCHAR AS args, correlation FROM events ORDER BY event_id")
    assert [row["args"] for row in found] == [None, args, None]
    assert [row["correlation"] for row in found] == [None, 7, None]
    assert f'"args":{args}' in "".join(warehouse.export_trace("trace", plain=True)).replace(" ", "")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings are too long to be kept at 256 KB."""
    for module in (json_text, format):
        monkeypatch.setattr(module, "LONGEST_BYTES", LONGEST_BYTES)
    monkeypatch.setattr(LongStrings.__init__, "__defaults__", (LONGEST_BYTES,))


@pytest.mark.usefixtures("short")
def test_a_string_too_long_to_be_kept_is_counted(tmp_path: Path) -> None:
    check_replaced(tmp_path, 3 << 20)


@pytest.mark.deep
def test_a_string_of_more_than_64_megabytes(tmp_path: Path) -> None:
    check_replaced(tmp_path, (64 << 20) + 1)


def check_replaced(folder: Path, size: int) -> None:
    long = "x" * size
    events = [event(name=f"op {at}", args={"at": at, "a": long if at == 10 else "short"}) for at in range(20)]
    warehouse = ingested(folder, trace(events))
    (rule,) = rows(warehouse, "SELECT * FROM data_quality WHERE rule = 'replaced_value'")
    assert (rule["severity"], rule["rows"], rule["affected_ns"]) == ("info", 1, None)
    assert rule["example"] == f"a string of {size} bytes is replaced by its length and hash"
    found = rows(warehouse, "SELECT name, args::VARCHAR AS args FROM events ORDER BY event_id")
    assert [row["name"] for row in found] == [f"op {at}" for at in range(20)]
    args = json.loads(found[10]["args"])
    assert args["at"] == 10 and args["a"].startswith(f"[replaced: {size} bytes, sha256 ")
