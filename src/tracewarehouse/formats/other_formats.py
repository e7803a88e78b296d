"""Identification of files that no format reader accepts, and the errors that say what they are."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.file_text import Buffer

NO_EVENTS: Final = "no_events"
EXPECTED_RESULTS: Final = "expected_results"

# Names of the formats in messages.
DESCRIPTIONS: Final = {
    "execution_trace": "a PyTorch execution trace",
    "memory_timeline": "a PyTorch memory timeline",
    "memory_snapshot": "a CUDA memory snapshot",
    "pickle": "a pickle that is neither a memory snapshot nor a flight recorder dump",
    "nsys_sqlite": "an Nsight Systems export",
    "rpd_sqlite": "an rpd database",
    "rocpd_sqlite": "a rocpd database of rocprofv3",
    "sqlite": "an SQLite database without profiler tables",
    "rocprofv3": "a rocprofv3 result",
    EXPECTED_RESULTS: "the truth.json of a simulated job",
    NO_EVENTS: "JSON without trace events",
}

REMEDIES: Final = {
    "pickle": "name a snapshot of torch.cuda.memory._dump_snapshot, a flight recorder dump, or a trace",
}

# Magic bytes, description, hint.
_MAGIC_BYTES: Final = (
    (b"PK\x03\x04", "a zip archive", "unpack it and name the trace inside"),
    (b"BZh", "bzip2 data", "unpack it with bunzip2; plain and gzip files are read"),
    (b"\xfd7zXZ\0", "xz data", "unpack it with unxz; plain and gzip files are read"),
    (b"\x28\xb5\x2f\xfd", "zstd data", "unpack it with zstd -d; plain and gzip files are read"),
    (b"\x7fELF", "a program", "name a trace file"),
    (b"PAR1", "a Parquet file", "name a trace file"),
)
# A JSON object with all keys of a row has that format.
_BY_KEYS: Final = (
    (("schema", "nodes"), "execution_trace"),
    (("rocprofiler-sdk-tool",), "rocprofv3"),
    (("segments", "device_traces"), "memory_snapshot"),
    (("truth", "job"), EXPECTED_RESULTS),
)
_PICKLE_NAME: Final = re.compile(r"\.(?:pickle|pkl)(?:\.gz)?$", re.IGNORECASE)
# Headers of tables that nsys stats prints.
_STATISTICS: Final = (b"time (%)", b"start (ns)", b"total time", b"duration (ns)")
_LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"
_DATABASES: Final = (".sqlite", ".sqlite3", ".db", ".rpd")
# An unclosed string is also one token; otherwise matching would restart at each quote inside it.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+\\?(?:"|\Z)|[{}\[\],]', re.DOTALL)


def binary_format(buffer: Buffer) -> str | None:
    """The name of a binary format; None if the content may be JSON."""
    return "pickle" if buffer[:1] == b"\x80" and buffer[1] <= 5 else None


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether this is a pickle by its first bytes, or by its name where those do not show it (protocol 0)."""
    if head[:1] == b"\x80" and head[1:2] <= b"\x05":
        return True
    return bool(head) and _PICKLE_NAME.search(path.name) is not None and not _is_other(head)


def _is_other(head: bytes) -> bool:
    return head.startswith((b"{", *(magic for magic, _, _ in _MAGIC_BYTES))) or not head.strip(b"\0 \t\r\n")


def sqlite_format(tables: Collection[str]) -> str:
    """The name of the format of an SQLite database, by its tables."""
    if "rocpd_op" in tables and "rocpd_api" in tables:
        return "rpd_sqlite"
    if any(name.startswith("rocpd_kernel_dispatch_") for name in tables):
        return "rocpd_sqlite"
    return "nsys_sqlite" if "StringIds" in tables else "sqlite"


def object_format(keys: Collection[str]) -> str:
    """The format of a JSON object without events, by its keys."""
    return next((name for wanted, name in _BY_KEYS if all(key in keys for key in wanted)), NO_EVENTS)


def list_format(first: object) -> str:
    """The format of a JSON list without objects, by its first element."""
    return "memory_timeline" if isinstance(first, list) and len(first) == 4 else NO_EVENTS


def top_keys(head: bytes) -> list[str]:
    """The top-level keys of a JSON object in `head`, which may end anywhere."""
    keys: list[str] = []
    depth, at_key = 0, False
    for match in _TOKEN.finditer(head):
        token = match.group()
        if token in (b"{", b"["):
            depth += 1
            at_key = depth == 1
        elif token in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and token == b",":
            at_key = True
        elif at_key and depth == 1:
            keys.append(token[1:-1].decode(errors="replace"))
            at_key = False
    return keys


def holds_objects(head: bytes) -> bool:
    """Whether a JSON list in `head`, which may end anywhere, has an element that is an object."""
    if b"{" not in head:
        return False
    depth = 0
    for match in _TOKEN.finditer(head):
        token = match.group()
        if token == b"{" and depth == 1:
            return True
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
    return False


def is_container(head: bytes) -> bool:
    """Whether a file begins with the magic bytes of an archive, database, pickle or other binary format."""
    magics = tuple(magic for magic, _, _ in _MAGIC_BYTES)
    return head.startswith((*magics, b"SQLite format 3\0", b"\x80")) or head[257:262] == b"ustar"


def check_readable(path: Path, buffer: Buffer) -> None:
    """Raises TraceFormatError for an empty file, an archive or another binary file that is not a trace."""
    head = bytes(buffer[:4096])
    if not buffer[:1] or not head.strip(b"\0 \t\r\n"):
        raise TraceFormatError(path, "the file is empty", offset=0, hint="record or copy the trace again")
    for magic, what, hint in _MAGIC_BYTES:
        if head.startswith(magic):
            raise TraceFormatError(path, f"this is {what}, not a trace", offset=0, hint=hint)
    if head[257:262] == b"ustar":
        raise TraceFormatError(
            path, "a tar archive, not a trace", offset=0, hint="unpack it and name the folder"
        )


class UnsupportedFormatError(TraceFormatError):
    """The file has a known format without a reader, or contains no events; `format` names it.

    `reason` says more than the name of the format.
    """

    def __init__(self, path: Path | str, format: str, reason: str | None = None) -> None:
        self.format = format
        self.details = reason
        self.description = DESCRIPTIONS.get(format, f"a file of format {format}")
        self.remedy = REMEDIES.get(format, "name the Kineto trace instead")
        if reason is not None:
            super().__init__(path, reason, hint=self.remedy)
        elif format == NO_EVENTS:
            super().__init__(
                path, "it contains no events", hint="the profiler recorded no events; record again"
            )
        else:
            super().__init__(path, f"this is {self.description}, not a trace", hint=self.remedy)


def not_json(path: Path, buffer: Buffer, at: int) -> TraceFormatError:
    """The error for a file whose content does not begin like JSON."""
    head = bytes(buffer[at : at + 4096]).lstrip().lower()
    if head.startswith(_LFS_POINTER):
        hint = "fetch the content: git lfs pull"
        return TraceFormatError(path, "a Git LFS pointer, not the file itself", offset=at, hint=hint)
    if path.suffix.lower() in _DATABASES:
        hint = "export or copy the file again"
        return TraceFormatError(path, "not an SQLite database", offset=at, hint=hint)
    if head.startswith(b"<"):
        what = "an HTML page" if b"<html" in head or b"<!doctype html" in head else "markup (XML or HTML)"
        hint = "an error page was saved in place of the trace: download it again"
        return TraceFormatError(path, f"this is {what}, not JSON", offset=at, hint=hint)
    if head.startswith(_STATISTICS):
        hint = "export the report itself: nsys export --type sqlite FILE"
        return TraceFormatError(path, "a table of nsys stats, which has no events", offset=at, hint=hint)
    return TraceFormatError(
        path,
        "not a JSON object or array",
        offset=at,
        hint="a trace is a JSON object with traceEvents, or an array of events",
    )
