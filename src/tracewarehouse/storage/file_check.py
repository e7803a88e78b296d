"""Checks of Parquet files when a process first opens them, so that no other bytes are read than were written.

The footer has the sizes and offsets of all pages and the minimum and maximum of `run_id` and `rank`; its hash
in the version therefore identifies the file. It does not cover the pages: only a hash of the file does.
"""

from __future__ import annotations

import hashlib
import os
from enum import IntEnum
from pathlib import Path

from tracewarehouse.storage.model import TableFile
from tracewarehouse.storage.parquet_file import sha256

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
