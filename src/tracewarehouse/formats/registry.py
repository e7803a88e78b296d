"""The formats that are read, in the order in which they are asked whether a file is theirs.

Which format a file is of, by its content."""

from __future__ import annotations

import mmap
import pickle
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracewarehouse.formats import other_formats
from tracewarehouse.formats.file_text import head_of

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Format


_registered: list[Format] = []


def register(format: Format) -> None:
    """Adds a format, or replaces the one of that name. It is asked before those of the package."""
    unregister(format.name)
    _registered.insert(0, format)


def unregister(name: str) -> None:
    """Takes a registered format out; one that comes with the package is there again."""
    _registered[:] = [known for known in _registered if known.name != name]


def formats() -> tuple[Format, ...]:
    """Every format, each name once."""
    found = {format.name: format for format in reversed((*_registered, *_of_the_package()))}
    order = dict.fromkeys(format.name for format in (*_registered, *_of_the_package()))
    return tuple(found[name] for name in order)


def format_named(name: str) -> Format | None:
    """The format of that name."""
    return next((format for format in formats() if format.name == name), None)


def can_be_sent() -> bool:
    """Whether worker processes can load what is registered: no class of a script, notebook or function."""
    try:
        return all(b"__main__" not in pickle.dumps(format) for format in _registered)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


@cache
def _of_the_package() -> tuple[Format, ...]:
    from tracewarehouse.formats.kineto.format import KinetoFormat
    from tracewarehouse.formats.memory_timeline import MemoryTimelineFormat

    return MemoryTimelineFormat(), KinetoFormat()


HEAD_BYTES: Final = 1 << 20
# How much of a database or a pickle is searched for names that tell whose it is.
_SEARCHED_BYTES: Final = 256 << 20
_BINARY: Final = (b"SQLite format 3\0", b"\x80")


def detect(path: Path) -> Format:
    """The format of a file or folder.

    Raises ForeignFileError for a file of a known format that is not read, TraceFormatError for what
    cannot be read or is no trace at all.
    """
    head = b"" if path.is_dir() else head_of(path, HEAD_BYTES)
    for format in formats():
        if format.detect(path, head):
            return format
    raise _error(path, head)


def _error(path: Path, head: bytes) -> Exception:
    if path.is_dir():
        head_of(path, 1)  # raises
    other_formats.check_readable(path, head)
    if head.startswith(_BINARY) and (name := other_formats.binary_format(_more(path))) is not None:
        return other_formats.ForeignFileError(path, name)
    if head.lstrip()[:1] == b"{":
        return other_formats.ForeignFileError(path, other_formats.object_format(other_formats.top_keys(head)))
    return other_formats.not_json(path, head, 0)


def _more(path: Path) -> bytes | mmap.mmap:
    """Enough of a binary file to tell whose it is."""
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            size = path.stat().st_size
            return mmap.mmap(file.fileno(), min(size, _SEARCHED_BYTES), access=mmap.ACCESS_READ)
    return head_of(path, _SEARCHED_BYTES)
