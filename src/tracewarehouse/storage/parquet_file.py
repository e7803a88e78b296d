"""What identifies a Parquet file, and its check when a process first opens it.

The footer has the sizes and offsets of all pages and the minimum and maximum of `run_id` and `rank`; its hash
in the version therefore identifies the file. It does not cover the pages: a checksum of the file does.
"""

from __future__ import annotations

import hashlib
import os
from enum import IntEnum
from io import FileIO
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from tracewarehouse.storage.model import TableFile

# Files are read for their CRC-32 in pieces that stay in the cache of a core.
_PIECE_BYTES, _LARGE_BYTES = 1 << 16, 4 << 20


class FileFacts(Struct, frozen=True):
    """Identity of a Parquet file; the footer is the metadata with its length and the closing magic."""

    bytes: int
    sha256: str
    footer_bytes: int
    footer_sha256: str
    crc32: int


def file_facts(path: Path) -> FileFacts:
    """The facts of a Parquet file, read once from start to end; the file must have a footer."""
    digest, crc = hashlib.sha256(), 0
    with path.open("rb") as file:
        size = file.seek(-8, 2) + 8
        footer_bytes = int.from_bytes(file.read(4), "little") + 8
        file.seek(0)
        while piece := file.read(min(size - footer_bytes - file.tell(), 1 << 20)):
            digest.update(piece)
            crc = crc32(piece, crc)
        footer = file.read()
    digest.update(footer)
    footer_sha256 = hashlib.sha256(footer).hexdigest()
    return FileFacts(size, digest.hexdigest(), footer_bytes, footer_sha256, crc32(footer, crc))


def sha256(path: Path) -> str:
    """The sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def has_size(path: Path, bytes_: int) -> bool:
    """Whether there is a file of this size."""
    try:
        return path.stat().st_size == bytes_
    except OSError:
        return False


def content_fault(path: Path, bytes_: int, sha256_: str) -> str | None:
    """The problem of a file that was written with this size and checksum, None if it is the same."""
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return "file missing"
    if size != bytes_:
        return f"{size} bytes, {bytes_} were written"
    return None if sha256(path) == sha256_ else _CHANGED


UNREADABLE = "permission denied"


_CHANGED = "checksum differs: the content changed after it was written"


class Level(IntEnum):
    """How a file is compared with what was written; CRC and FULL read every byte, FULL for the SHA-256."""

    SIZE = 1
    FOOTER = 2
    CRC = 3
    FULL = 4


# (path, inode, size, time of change in ns, footer hash, CRC-32) → the highest level passed in this process.
_passed: dict[tuple[str, int, int, int, str, int], Level] = {}


def default_level() -> Level:
    """The level for reading: CRC, or FULL if the environment variable TW_VERIFY is 1."""
    return Level.FULL if os.environ.get("TW_VERIFY", "") not in ("", "0") else Level.CRC


def fault(path: Path, file: TableFile, level: Level) -> str | None:
    """The problem of a file, None if it passes; each level is checked once per process and file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "file missing"
    if found.st_size != file.bytes:
        return f"{found.st_size} bytes, {file.bytes} were written"
    key = (str(path), found.st_ino, found.st_size, found.st_mtime_ns, file.footer_sha256, file.crc32)
    if _passed.get(key, Level.SIZE) >= level:
        return None
    what = _content_fault(path, file, level)
    if what is None:
        _passed[key] = level
    return what


def _content_fault(path: Path, file: TableFile, level: Level) -> str | None:
    """The problem of a file of the right size; a version of an early release may not have its CRC-32."""
    try:
        with path.open("rb", buffering=0) as opened:
            if level is Level.CRC and file.crc32:
                return None if _crc32(opened, file.bytes) == file.crc32 else _CHANGED
            opened.seek(-file.footer_bytes, os.SEEK_END)
            if hashlib.sha256(opened.read()).hexdigest() != file.footer_sha256:
                return "the footer is not the one that was written"
    except PermissionError:
        return UNREADABLE
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return _CHANGED if level is Level.FULL and sha256(path) != file.sha256 else None


def _crc32(file: FileIO, size: int) -> int:
    """The CRC-32 of an open file; isal takes a quarter of the time, and 3 ms to be imported."""
    update = crc32
    if size > _LARGE_BYTES:
        from isal.isal_zlib import crc32 as update
    piece, crc = memoryview(bytearray(min(size, _PIECE_BYTES))), 0
    while count := file.readinto(piece):
        crc = update(piece[:count], crc)
    return crc
