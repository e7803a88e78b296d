"""A file that is scanned ahead leads to the same as one that is read when it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trace_reading import ReadTrace, same
from trace_texts import event, gz, trace, write
from tracewarehouse.formats.kineto import format, library
from tracewarehouse.formats.kineto.library import scan_ahead

pytestmark = pytest.mark.skipif(not library.available(), reason="needs the native scanner")
EVENTS = [
    event(ts=at, name=f"op {at % 7}", args={"correlation": at, f"key {at}": "text"}) for at in range(50)
]
TRACE = trace(EVENTS, schemaVersion=1, distributedInfo={"rank": 3, "world_size": 4})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Batches of 16 rows, pieces of 100 bytes, files of any size."""
    monkeypatch.setattr(library, "BATCH_ROWS", 16)
    monkeypatch.setattr(library, "_PIECE_BYTES", 100)
    monkeypatch.setattr(library, "_AHEAD_BYTES", range(1, 96 << 20))
    yield
    library._ahead.clear()


def read_ahead(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether reading the file uses what was scanned ahead; what it reads is the same."""
    expected = ReadTrace(path)
    used = []
    scanner = format.ScannerOfFile
    monkeypatch.setattr(format, "ScannerOfFile", lambda scanned: used.append(scanned) or scanner(scanned))
    scan_ahead([str(path)])
    found = ReadTrace(path)
    assert same(found, expected) == [] and found.outcome == expected.outcome
    return bool(used) and not library._ahead


@pytest.mark.parametrize(
    "data",
    [TRACE, gz(TRACE), gz(TRACE[:99]) + gz(TRACE[99:]), trace(EVENTS)[:-1] + b' , "rank" : {"a": [1]} }\n'],
    ids=["plain", "compressed", "two members", "members behind"],
)
def test_a_usual_file_is_scanned_ahead(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_ahead(write(tmp_path, data, "trace.json"), monkeypatch)


def test_a_list_of_events_is_scanned_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TRACE[TRACE.index(b"[") : TRACE.rindex(b"]") + 1]
    assert read_ahead(write(tmp_path, text, "trace.json"), monkeypatch)


@pytest.mark.parametrize(
    "data",
    [
        TRACE[:-40],
        TRACE.replace(b'"correlation": 9', b'"correlation": 09'),
        TRACE + b"{}",
        b'{"traceEvents": [7, ' + TRACE[TRACE.index(b"[") + 1 :],
        b'{"note": {"traceEvents": [{"a": 1}]}, ' + TRACE[1:],
        gz(TRACE)[:-9],
    ],
    ids=["cut short", "a wrong number", "bytes behind", "no object first", "another list first", "cut gzip"],
)
def test_any_other_file_is_read_again(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_ahead(write(tmp_path, data, "trace.json"), monkeypatch)


def test_a_full_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, TRACE, "trace.json")
    monkeypatch.setattr(library, "DICTIONARY_MAX_VALUES", 5)
    assert not read_ahead(path, monkeypatch)


def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, TRACE, "trace.json")
    scan_ahead([str(path)])
    assert library._ahead[0].is_of(path)
    write(tmp_path, trace(EVENTS[:9]), "trace.json")
    assert library.scanned_ahead(path) is None
    scan_ahead([str(path)])
    os.utime(path, ns=(1, 1))
    assert ReadTrace(path).outcome.events == 9 and not library._ahead


@pytest.mark.parametrize("args", [["ingest", "--run", "b.json"], ["missing.json"], ["ingest", "traces"], []])
def test_only_a_single_trace_is_scanned_ahead(args: list[str], tmp_path: Path) -> None:
    path = str(write(tmp_path, TRACE, "trace.json"))
    scan_ahead(["ingest", path, "--run", "b"])
    assert len(library._ahead) == 1
    scan_ahead([*args, *([path] if "--run" in args else [])])
    assert len(library._ahead) == 1
