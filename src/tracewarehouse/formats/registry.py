"""The supported formats, and detection of the format of a file from its content."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.databases import Database, check_complete, is_sqlite
from tracewarehouse.formats.file_text import head_of

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Format


_registered: list[Format] = []


def register(format: Format) -> None:
    """Adds a format, or replaces the one with that name. It takes precedence over the built-in formats."""
    unregister(format.name)
    _registered.insert(0, format)


def unregister(name: str) -> None:
    """Removes a registered format; a built-in format with that name becomes active again."""
    _registered[:] = [known for known in _registered if known.name != name]


def formats() -> tuple[Format, ...]:
    """All formats, in order of precedence; each name occurs once."""
    found = {format.name: format for format in reversed((*_registered, *_built_in()))}
    order = dict.fromkeys(format.name for format in (*_registered, *_built_in()))
    return tuple(found[name] for name in order)


def format_named(name: str) -> Format | None:
    """The format with that name, or None."""
    return next((format for format in formats() if format.name == name), None)


def is_picklable() -> bool:
    """Whether worker processes can load the registered formats: not if a script or notebook defines one."""
    try:
        return all(b"__main__" not in pickle.dumps(format) for format in _registered)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


@cache
def _built_in() -> tuple[Format, ...]:
    from tracewarehouse.formats.execution_trace import ExecutionTraceFormat
    from tracewarehouse.formats.flight_recorder import FlightRecorderFormat
    from tracewarehouse.formats.kineto.format import KinetoFormat
    from tracewarehouse.formats.memory_snapshot import MemorySnapshotFormat
    from tracewarehouse.formats.memory_timeline import MemoryTimelineFormat
    from tracewarehouse.formats.nsight_compute import NsightComputeFormat
    from tracewarehouse.formats.nsys.format import NsysFormat, NsysReportFormat
    from tracewarehouse.formats.rocpd import RocpdFormat
    from tracewarehouse.formats.rocprofv3 import Rocprofv3Format
    from tracewarehouse.formats.rpd import RpdFormat

    databases = NsysFormat(), NsysReportFormat(), RpdFormat(), RocpdFormat()
    additions = FlightRecorderFormat(), MemorySnapshotFormat(), MemoryTimelineFormat(), NsightComputeFormat()
    return *databases, Rocprofv3Format(), ExecutionTraceFormat(), *additions, KinetoFormat()


HEAD_BYTES: Final = 1 << 20


def detect(path: Path) -> Format:
    """The format of a file or folder.

    Raises UnsupportedFormatError for a known format without a reader, TraceFormatError for a file that
    cannot be read or is not a trace.
    """
    head = b"" if path.is_dir() else head_of(path, HEAD_BYTES)
    for format in formats():
        if format.detect(path, head):
            return format
    raise _error(path, head)


def is_trace_folder(path: Path) -> bool:
    """Whether a folder as a whole is a trace of one of the formats."""
    return any(format.detect(path, b"") for format in formats())


def _error(path: Path, head: bytes) -> Exception:
    if path.is_dir():
        head_of(path, 1)  # raises
    file_text.check_readable(path, head)
    if is_sqlite(head):
        return _sqlite_error(path)
    if head.lstrip()[:1] == b"{":
        return file_text.UnsupportedFormatError(path, file_text.object_format(file_text.top_keys(head)))
    return file_text.not_json(path, head, 0)


def _sqlite_error(path: Path) -> Exception:
    """Why a database is not ingested: damaged, of an unsupported format, or none of ours."""
    with path.open("rb") as file:
        if not is_sqlite(file.read(16)):
            return TraceFormatError(path, "a compressed SQLite database", hint="unpack it with gunzip")
    try:
        check_complete(path)
        with Database(path) as database:
            return file_text.UnsupportedFormatError(path, file_text.sqlite_format(database.tables))
    except TraceFormatError as error:
        return error
