"""What identifies a Parquet file, and its check when a process first opens it.

The footer has the sizes and offsets of all pages and the minimum and maximum of `run_id` and `rank`; its hash
in the version therefore identifies the file. It does not cover the pages: only a hash of the file does.
"""

from __future__ import annotations

import hashlib
import os
from enum import IntEnum
from pathlib import Path

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.model import TableFile

_TAIL_BYTES = 8  # length of the Parquet metadata, and the magic
_MAGIC = b"PAR1"


class FileFacts(Struct, frozen=True):
    """Identity of a Parquet file; the footer is the metadata with its length and the closing magic."""

    bytes: int
    sha256: str
    footer_bytes: int
    footer_sha256: str


def file_facts(path: Path) -> FileFacts:
    """The facts of a Parquet file, read once from start to end; the file must have a footer."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        size = file.seek(-8, 2) + 8
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(0)
        rest = size - footer_bytes
        while rest:
            piece = file.read(min(rest, 1 << 20))
            digest.update(piece)
            rest -= len(piece)
        footer = file.read()
    digest.update(footer)
    return FileFacts(size, digest.hexdigest(), footer_bytes, hashlib.sha256(footer).hexdigest())


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def footer_bytes(path: Path) -> bytes:
    """The Parquet metadata with its length and the magic; raises WarehouseError if there is none."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _TAIL_BYTES, 0))
        tail = file.read()
        length = int.from_bytes(tail[:4], "little") + _TAIL_BYTES
        if tail[4:] != _MAGIC or length > size:
            raise WarehouseError(
                f"{path}: not a Parquet file: it has no footer", hints.fill("run {}", hints.call("verify"))
            )
        file.seek(size - length)
        return file.read()


UNREADABLE = "permission denied"


class Level(IntEnum):
    """How much of a file is compared with what was written."""

    SIZE = 1
    FOOTER = 2
    FULL = 3


# (path, inode, size, time of change in ns, footer hash) → the highest level that was passed in this process.
_passed: dict[tuple[str, int, int, int, str], Level] = {}


def default_level() -> Level:
    """The level for reading: FOOTER, or FULL if the environment variable TW_VERIFY is 1."""
    return Level.FULL if os.environ.get("TW_VERIFY", "") not in ("", "0") else Level.FOOTER


def fault(path: Path, file: TableFile, level: Level) -> str | None:
    """The problem of a file, None if it passes; each level is checked once per process and file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "file missing"
    if found.st_size != file.bytes:
        return f"{found.st_size} bytes, {file.bytes} were written"
    key = (str(path), found.st_ino, found.st_size, found.st_mtime_ns, file.footer_sha256)
    if _passed.get(key, Level.SIZE) >= level:
        return None
    what = _content_fault(path, file, level)
    if what is None:
        _passed[key] = level
    return what


def _content_fault(path: Path, file: TableFile, level: Level) -> str | None:
    try:
        with path.open("rb") as opened:
            opened.seek(-file.footer_bytes, os.SEEK_END)
            footer = opened.read()
    except PermissionError:
        return UNREADABLE
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if hashlib.sha256(footer).hexdigest() != file.footer_sha256:
        return "the footer is not the one that was written"
    if level is Level.FULL and sha256(path) != file.sha256:
        return "checksum differs: the content changed after it was written"
    return None
