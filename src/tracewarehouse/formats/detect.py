"""Which format a file is of, by its content."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracewarehouse.formats import foreign
from tracewarehouse.formats.registry import formats
from tracewarehouse.formats.unpack import head_of

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Format

HEAD_BYTES: Final = 1 << 20
# How much of a database or a pickle is searched for names that tell whose it is.
_SEARCHED_BYTES: Final = 256 << 20
_BINARY: Final = (b"SQLite format 3\0", b"\x80")


def detect(path: Path) -> Format:
    """The format of a file or folder.

    Raises ForeignFileError for a file of a format that is known and not read, TraceFormatError for what cannot
    be read or is no trace at all.
    """
    head = b"" if path.is_dir() else head_of(path, HEAD_BYTES)
    for format in formats():
        if format.detect(path, head):
            return format
    raise _error(path, head)


def _error(path: Path, head: bytes) -> Exception:
    if path.is_dir():
        head_of(path, 1)  # raises
    foreign.check_readable(path, head)
    if head.startswith(_BINARY) and (name := foreign.binary_format(_more(path))) is not None:
        return foreign.ForeignFileError(path, name)
    if head.lstrip()[:1] == b"{":
        return foreign.ForeignFileError(path, foreign.object_format(foreign.top_keys(head)))
    return foreign.not_json(path, head, 0)


def _more(path: Path) -> bytes | mmap.mmap:
    """Enough of a binary file to tell whose it is."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            size = path.stat().st_size
            return mmap.mmap(file.fileno(), min(size, _SEARCHED_BYTES), access=mmap.ACCESS_READ)
    return head_of(path, _SEARCHED_BYTES)
