"""Real traces, where they are at hand: both scanners give the same rows, and stored rows give them again."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from conftest import real_traces
from trace_reading import ReadTrace, same
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import ACTIVITIES
from tracewarehouse.formats.kineto import native
from tracewarehouse.formats.stored import StoredSource

FOLDER = real_traces()
QUICK_BYTES = 60_000
NEEDS_TRACES = pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")


def trace_files() -> list[Any]:
    """Every file that may hold a trace; the large ones only in the long run."""
    if FOLDER is None:
        return [pytest.param(None, marks=NEEDS_TRACES)]
    files = sorted(path for path in FOLDER.rglob("*") if path.name.endswith((".json", ".gz")))
    return [
        pytest.param(path, id=str(path.relative_to(FOLDER)), marks=_marks(path.stat().st_size))
        for path in files
    ]


def _marks(size: int) -> tuple[pytest.MarkDecorator, ...]:
    return () if size < QUICK_BYTES else (pytest.mark.deep,)


@pytest.mark.skipif(not native.available(), reason="the native scanner was not built")
@pytest.mark.parametrize("path", trace_files())
def test_both_scanners_give_the_same_rows(path: Path) -> None:
    try:
        found = ReadTrace(path)
    except TraceFormatError as error:
        with pytest.raises(TraceFormatError) as again:
            ReadTrace(path, exact=True)
        assert again.value.message == error.message
        return
    if ACTIVITIES not in found.tables:
        return
    assert same(found, ReadTrace(path, exact=True)) == []
    data = path.read_bytes()
    if found.outcome.status == "whole":
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert found.outcome.digest == hashlib.sha256(text).hexdigest()
        assert found.outcome.text_bytes == len(text)
    if path.parent.name != "odd-derived":
        assert found.outcome.findings == ()
    check_stored(found)


def check_stored(found: ReadTrace) -> None:
    """Activities that went into `events` come back from there."""
    stored = found.activities.select([name for name in STORED if name in found.activities.column_names])
    parts = [stored.slice(at, 10_000) for at in range(0, max(stored.num_rows, 1), 10_000)]
    source = StoredSource({"events": [_as_stored(part) for part in parts]}, found.outcome)
    again = source.tables[ACTIVITIES].read_all()
    differing = [
        name
        for name in found.activities.column_names
        if name != "repaired" and again.column(name).to_pylist() != found.column(name)
    ]
    assert differing == [] and source.outcome() == found.outcome


def _as_stored(part: pa.Table) -> pa.Table:
    """With plain text columns, as Parquet gives them."""
    plain = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in part.columns
    ]
    return pa.Table.from_arrays(plain, names=part.column_names)


STORED = (
    "event_id", "ph", "category", "raw_category", "name", "pid", "tid", "ts_ns", "dur_ns", "ts_text", "dur_text",
    "correlation", "external_id", "stream", "device", "bytes", "sequence_number", "forward_thread", "python_id",
    "python_parent_id", "module_id", "shapes", "dtypes", "flow_id", "end_id", "args", "extra",
)  # fmt: skip
