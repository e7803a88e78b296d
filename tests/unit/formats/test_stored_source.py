"""Stored ranks as sources."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from trace_reading import ReadTrace, check_stored, element
from trace_texts import SMALL_BYTES, event, trace, write
from tracewarehouse.formats.base import Outcome
from tracewarehouse.formats.memory_timeline import TABLE, rows
from tracewarehouse.formats.stored_source import StoredSource

KNOWN = Outcome("0", "{}", 1, 1)


def test_activities_are_restored_from_events(tmp_path: Path) -> None:
    check_stored(ReadTrace(write(tmp_path, SMALL_BYTES)))
    odd = [
        event(args={"correlation": "7", "grid": ["x", 2.5], "Collective name": "a"}), 17, {}, event(args="x"),
        event(args={"Input dims": [1.50], "Ev Idx": 3, "bytes": 2**70}), event(args=None), [1, 2, 3, 4],
    ]  # fmt: skip
    check_stored(ReadTrace(write(tmp_path, trace(odd))))
    check_stored(ReadTrace(write(tmp_path, trace([{"ph": "X", "ts": 1}]))))


def test_a_timeline_is_restored_from_its_table() -> None:
    texts = ["[-1,1,512,7]", "[5,2,8,0]", "[6,9,8,12]", "[7,2,1.5,0]", '"fifty"']
    stored = pa.Table.from_batches([rows(pa.array(texts), 0)])
    source = StoredSource({TABLE: [stored.slice(0, 2), stored.slice(2)]}, KNOWN)
    ((name, reader),) = source.tables.items()
    restored = reader.read_all().to_pylist()
    assert name == TABLE and [element(row) for row in restored] == texts
    assert [row["event_id"] for row in restored] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("first", [[-1, 1, 512, 7], 17])
def test_lists_among_events_are_not_a_timeline(tmp_path: Path, first: object) -> None:
    found = ReadTrace(write(tmp_path, trace([first, event()])))
    check_stored(found)
    assert json.loads(found.column("extra")[0]) == first
