"""Real traces, if available: both scanners and the stored events yield the same rows."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from conftest import real_traces
from trace_reading import ReadTrace, check_stored, same
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import ACTIVITIES
from tracewarehouse.formats.kineto import library

FOLDER = real_traces()
QUICK_BYTES = 20_000
NEEDS_TRACES = pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")


def trace_files() -> list[Any]:
    """Every file that may hold a trace; the large ones are deep."""
    if FOLDER is None:
        return [pytest.param(None, marks=NEEDS_TRACES)]
    files = sorted(path for path in FOLDER.rglob("*") if path.name.endswith((".json", ".gz")))
    files = [path for path in files if "rocprofv3" not in path.name]  # another format, with one reader
    return [
        pytest.param(path, id=str(path.relative_to(FOLDER)), marks=_marks(path.stat().st_size))
        for path in files
    ]


def _marks(size: int) -> tuple[pytest.MarkDecorator, ...]:
    return () if size < QUICK_BYTES else (pytest.mark.deep,)


@pytest.mark.skipif(not library.available(), reason="the native scanner was not built")
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
    if found.outcome.status == "intact":
        text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert found.outcome.digest == hashlib.sha256(text).hexdigest()
        assert found.outcome.text_bytes == len(text)
    if path.parent.name != "odd-derived":
        assert found.outcome.findings == ()
    check_stored(found)
