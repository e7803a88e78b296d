"""The supported formats, and detection of the format of a file from its content."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracewarehouse.contracts.catalog import OWN_FOLDER
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
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


def formats(head: bytes | None = None) -> Iterator[Format]:
    """The formats in order of precedence; with `head`, without those that no file with this beginning has."""
    yield from _registered
    if os.environ.get(OWN_FOLDER):
        from tracewarehouse.formats.mapped import own_formats

        yield from own_formats()
    replaced = {format.name for format in _registered}
    has_events = head is not None and head.lstrip()[:1] == b"{" and b'"traceEvents"' in head
    for module, name, words in _BUILT_IN:
        sought = _OF_EVENTS.get(name, ()) if has_events else words
        if head is not None and not any(word in head for word in sought):
            continue
        if (format := _built_in(module, name)).name not in replaced:
            yield format


def format_named(name: str) -> Format | None:
    """The format with that name, or None."""
    return next((format for format in formats() if format.name == name), None)


def is_picklable() -> bool:
    """Whether worker processes can load the registered formats: not if a script or notebook defines one."""
    try:
        return all(b"__main__" not in pickle.dumps(format) for format in _registered)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


_ANY: Final = b""
# The built-in formats in order of precedence, and what the beginnings of their files have, one of it. Most
# processes read one format: the modules of others are not imported.
_BUILT_IN: Final = (
    ("nsys", "NsysFormat", (b"SQLite",)),
    ("nsys", "NsysReportFormat", (_ANY,)),
    ("rocpd", "RpdFormat", (b"SQLite",)),
    ("rocpd", "RocpdFormat", (b"SQLite",)),
    ("rocprofv3", "Rocprofv3Format", (b"rocprofiler-sdk-tool", b"Start_Timestamp", b"begin_ns")),
    ("xplane", "XplaneFormat", (b"/host:", b"/device:", b"Task Environment")),
    ("execution_trace", "ExecutionTraceFormat", (b'"nodes"',)),
    ("pickled", "FlightRecorderFormat", (_ANY,)),
    ("pickled", "MemorySnapshotFormat", (_ANY,)),
    ("memory_timeline", "MemoryTimelineFormat", (_ANY,)),
    ("nccl_profiler", "NcclProfilerFormat", (b'"GROUP', b'"COLL', b'"P2P', b'"PROXY', b'"GPU"')),
    ("nsight_compute", "NsightComputeFormat", (b"Kernel Name",)),
    ("kineto.format", "KinetoFormat", (_ANY,)),
)

# Those whose files may be an object with events, and what it then has.
_OF_EVENTS: Final[Mapping[str, tuple[bytes, ...]]] = {
    "Rocprofv3Format": (b"rocprofiler-sdk-tool",),
    "ExecutionTraceFormat": (b'"nodes"',),
    "MemorySnapshotFormat": (b'"device_traces"',),
    "KinetoFormat": (_ANY,),
}


@cache
def _built_in(module: str, name: str) -> Format:
    format: Format = getattr(import_module(f"tracewarehouse.formats.{module}"), name)()
    return format


HEAD_BYTES: Final = 1 << 20


def detect(path: Path) -> Format:
    """The format of a file or folder.

    Raises UnsupportedFormatError for a known format without a reader, TraceFormatError for a file that
    cannot be read or is not a trace.
    """
    is_folder = path.is_dir()
    head = b"" if is_folder else head_of(path, HEAD_BYTES)
    for format in formats(None if is_folder else head):
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
    if path.suffix.lower() == ".pftrace":
        return file_text.UnsupportedFormatError(path, "perfetto")
    if head.startswith(file_text.SQLITE_MAGIC):
        return _sqlite_error(path)
    if head.lstrip()[:1] == b"{":
        return file_text.UnsupportedFormatError(path, file_text.object_format(file_text.top_keys(head)))
    return file_text.not_json(path, head, 0)


def _sqlite_error(path: Path) -> Exception:
    """Why a database is not ingested: damaged, of an unsupported format, or none of ours."""
    from tracewarehouse.formats.databases import Database, check_complete

    if file_text.is_compressed_database(path):
        return TraceFormatError(path, "a compressed SQLite database", hint="unpack it with gunzip")
    try:
        check_complete(path)
        with Database(path) as database:
            return file_text.UnsupportedFormatError(path, file_text.sqlite_format(database.tables))
    except TraceFormatError as error:
        return error
