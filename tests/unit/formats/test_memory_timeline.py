"""The memory timeline format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trace_reading import ReadTrace, element
from trace_texts import gz, write
from tracewarehouse.formats.base import ACTIVITIES, Defect
from tracewarehouse.formats.memory_timeline import TABLE

ROWS = [[-1, 1, 37888, 7], [10, 2, 512, 4], [20, 3, -30, 5], [30, 4, -50, 0], [40, 9, 8, 12]]


def test_rows_and_outcome(tmp_path: Path) -> None:
    data = json.dumps(ROWS).encode()
    found = ReadTrace(write(tmp_path, gz(data)))
    assert list(found.tables) == [TABLE]
    rows = found.tables[TABLE].to_pylist()
    assert [(row["ts_ns"], row["action"], row["bytes"], row["category"]) for row in rows] == [
        (None, "preexisting", 37888, "unknown"), (10, "create", 512, "activation"),
        (20, "increment_version", -30, "gradient"), (30, "destroy", -50, "parameter"), (40, None, 8, None),
    ]  # fmt: skip
    assert (rows[0]["file_time_ns"], rows[4]["file_action"], rows[4]["file_category"]) == (-1, 9, 12)
    assert [json.loads(element(row)) for row in rows] == ROWS
    outcome = found.outcome
    assert (outcome.status, outcome.events, outcome.header_json) == ("intact", 5, "{}")
    assert outcome.text_bytes == len(data)


@pytest.mark.parametrize(
    "more",
    ["[1, 2, 3]", "[1, 2, 1.50, 3]", '"x"', "[-0, 1, 2, 3]", f"[1, 2, {2**70}, 3]", "[1, -2, 3, 4]",
     '"{}"', '[1, 2, {"a": [{}]}, 4]', '"[{"'],
)  # fmt: skip
def test_other_elements_are_stored_verbatim(tmp_path: Path, more: str) -> None:
    found = ReadTrace(write(tmp_path, f"[[5, 2, 8, 0], {more}]".encode()))
    rows = found.tables[TABLE].to_pylist()
    assert [element(row) for row in rows] == ["[5,2,8,0]", more.replace(" ", "")]
    assert rows[1]["bytes"] is None


def test_a_list_that_contains_an_object_is_not_a_timeline(tmp_path: Path) -> None:
    found = ReadTrace(write(tmp_path, b'[[5, 2, 8, 0], "[", {"ph": "i", "name": "a", "ts": 1}]'))
    assert list(found.tables) == [ACTIVITIES]


def test_complete_rows_of_a_damaged_timeline_are_read(tmp_path: Path) -> None:
    text = json.dumps(ROWS).encode()
    found = ReadTrace(write(tmp_path, text[:-25]))
    assert found.tables[TABLE].num_rows == 3 and found.outcome.status == "damaged" and found.outcome.losses


def test_repaired_elements_of_a_timeline_are_reported(tmp_path: Path) -> None:
    text = json.dumps(ROWS).encode().replace(b"512", b"NaN").replace(b"-50", b"+50")
    found = ReadTrace(write(tmp_path, text))
    assert found.tables[TABLE].num_rows == 5 and found.outcome.status == "repaired"
    assert found.outcome.repaired == 2
    assert found.outcome.findings == (Defect("repaired_event", 2, "#1"),)


def test_a_secret_in_a_timeline_is_redacted(tmp_path: Path) -> None:
    secret = "hf" + "_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    found = ReadTrace(write(tmp_path, f'[[5, 2, 8, 0], "{secret}"]'.encode()))
    assert secret not in str(found.tables[TABLE].to_pylist())
    assert [(hit.event_id, hit.path) for hit in found.outcome.redactions] == [(1, "$")]
