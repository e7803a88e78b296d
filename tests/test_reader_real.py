"""Real traces, where they are at hand: nothing lost, two paths that agree, outcomes as expected."""

from __future__ import annotations

import gzip
import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conftest import real_traces
from reader_cases import SALT, Loaded
from test_reader_exact import COLUMNS, rebuilt
from tracewarehouse import reader
from tracewarehouse.errors import TraceFormatError

FOLDER = real_traces()
QUICK_BYTES = 120_000
NEEDS_TRACES = pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")


def trace_files() -> list[Any]:
    """Every file that may hold a trace; the large ones only in the long run."""
    if FOLDER is None:
        return []
    files = sorted(path for path in FOLDER.rglob("*") if path.name.endswith((".json", ".gz")))
    return [
        pytest.param(path, id=str(path.relative_to(FOLDER)), marks=_marks(path.stat().st_size))
        for path in files
    ]


def _marks(size: int) -> tuple[pytest.MarkDecorator, ...]:
    return () if size < QUICK_BYTES else (pytest.mark.deep,)


def text_of(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


FILES = trace_files() or [pytest.param(None, marks=NEEDS_TRACES)]


@pytest.mark.parametrize("path", FILES)
def test_whole_files_come_back_by_both_paths(path: Path) -> None:
    try:
        found = reader.survey(path, SALT)
    except TraceFormatError:
        assert path.parent.name == "odd-derived"
        return
    if found.format != "kineto" or found.status != "whole":
        assert found.format != "kineto" or path.parent.name == "odd-derived", path
        return
    bulk = Loaded(path)
    text = text_of(path)
    document = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    wanted = document["traceEvents"] if isinstance(document, dict) else document
    assert bulk.con.execute("SELECT count(*) FROM redactions WHERE event_id IS NOT NULL").fetchone() == (0,)
    assert [rebuilt(row) for row in bulk.rows(COLUMNS)] == wanted
    assert bulk.column("event_id") == list(range(len(wanted)))
    assert found.digest == hashlib.sha256(text).hexdigest() == bulk.survey.digest
    one_by_one = Loaded(path, trust=False)
    assert one_by_one.survey == bulk.survey
    assert one_by_one.con.execute("SELECT count(*) FROM raw WHERE repaired").fetchone() == (0,)
    assert one_by_one.relation() == bulk.relation()


def expected() -> dict[str, dict[str, Any]]:
    if FOLDER is None:
        return {}
    files: dict[str, dict[str, Any]] = json.loads((FOLDER / "odd-derived" / "EXPECT.json").read_text())[
        "files"
    ]
    return files


REFUSED = ("empty.json", "empty.json.gz", "null_events.json", "html_error.json.gz")
DAMAGED = ("truncated_gzip.json.gz", "truncated_json.json.gz", "no_tail.json")
REPAIRED = (
    *("trailing_comma.json.gz", "trailing_garbage.json.gz", "nan_infinity.json.gz", "control_chars.json.gz"),
    *("invalid_utf8_name.json.gz", "windows_backslash.json.gz", "lone_surrogate.json.gz"),
    *("bom.json", "duplicate_keys.json.gz"),
)
OUTCOMES = {
    "no_events.json": "no_events",
    **dict.fromkeys(REFUSED, "refused"),
    **dict.fromkeys(DAMAGED, "damaged"),
    **dict.fromkeys(REPAIRED, "repaired"),
}


def outcome(path: Path) -> str:
    try:
        found = reader.survey(path, SALT)
    except TraceFormatError as error:
        assert str(path) in error.message and error.hint
        return "refused"
    return found.status if found.format == "kineto" else found.format


@NEEDS_TRACES
@pytest.mark.parametrize("name", sorted(expected()) or ["-"])
def test_derived_files_end_as_expected(name: str) -> None:
    assert FOLDER is not None
    path, entry = FOLDER / "odd-derived" / name, expected()[name]
    assert outcome(path) == OUTCOMES.get(name, "whole")
    if outcome(path) not in ("whole", "repaired", "damaged"):
        return
    loaded = Loaded(path)
    rows = len(loaded.column("event_id"))
    assert rows == loaded.survey.events
    if "truncated_gzip" in name:
        assert rows == 1268 and [loss.events_lost for loss in loaded.survey.losses] == [None, None]
    else:
        assert rows == entry.get("complete_events", entry["events_total"])
    assert loaded.survey.status == "whole" or loaded.survey.losses
    non_objects = [text for text in loaded.column("text") if not text.startswith("{")]
    assert len(non_objects) == (3 if name == "odd_types.json.gz" else 0)


@NEEDS_TRACES
@pytest.mark.parametrize(
    "pattern, format_, least",
    [
        ("**/*.sqlite", "nsys_sqlite", 2),
        ("**/*.pickle", "memory_snapshot", 1),
        ("**/*_et.json.gz", "execution_trace", 3),
        ("et-*/*.json.gz", "execution_trace", 9),
        ("**/memory_timeline*", "memory_timeline_raw", 1),
        ("**/rocprofv3*", "rocprofv3", 1),
    ],
)
def test_other_formats_are_named(pattern: str, format_: str, least: int) -> None:
    assert FOLDER is not None
    found = [reader.survey(path, SALT).format for path in FOLDER.glob(pattern)]
    assert len(found) >= least
    assert set(found) == {format_}
