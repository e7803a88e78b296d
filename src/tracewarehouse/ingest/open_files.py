"""Opens files and objects to see their format and the parts that describe one rank each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from tracewarehouse.engines import Failure, TaskProgress, attempt
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Format, Part
from tracewarehouse.formats.file_text import UnsupportedFormatError
from tracewarehouse.ingest.remote_file import CHANGED, ObjectChanged, RemoteFile, fetch_heads, without_copy

# Size and modification time: a difference means that the file was written to.
FileStamp: TypeAlias = tuple[int, int]
MEMORY_TIMELINE: Final = "memory_timeline"
# Formats whose files are recognized, and their parts known, from the first megabyte.
_READ_FROM_HEAD: Final = frozenset({"kineto", MEMORY_TIMELINE})
# Traces compress to between a tenth and a seventeenth; memory is planned for the larger text.
_TEXT_BYTES_PER_GZIP_BYTE: Final = 17
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True)
class OpenedFile:
    """What the beginning of a file shows. `format` is None for a `kind` of file that cannot be read.

    The kind is CHANGED for an object that is not the listed one any more.
    """

    stamp: FileStamp
    kind: str
    format: Format | None = None
    parts: tuple[Part, ...] = ()
    text_bytes: int = 0


@dataclass(frozen=True)
class OpenFiles:
    """Opens files one after the other; returns an OpenedFile or a Failure for each.

    Of objects, the beginning is downloaded first, of all of them at the same time.
    """

    files: tuple[tuple[Path, RemoteFile | None], ...]

    def run(self, progress: TaskProgress) -> tuple[OpenedFile | Failure, ...]:
        unread = fetch_heads([remote for _, remote in self.files if remote])
        found = []
        for number, (path, remote) in enumerate(self.files):
            failed = unread.get(remote) if remote else None
            opened = failed or attempt(_OpenFile(path, remote), progress)
            if isinstance(opened, Failure) and remote:
                opened = without_copy(opened, path, remote.copy)
            assert isinstance(opened, OpenedFile | Failure)
            found.append(opened)
            progress(number, 0)
        return tuple(found)


@dataclass(frozen=True)
class _OpenFile:
    path: Path
    remote: RemoteFile | None = None

    def run(self, progress: TaskProgress) -> OpenedFile:
        path = self.remote.copy if self.remote else self.path
        before = self.remote.object.stamp if self.remote else file_stamp(path)
        try:
            if self.remote and not (path.exists() and _is_shown_by_head(path, self.remote)):
                self.remote.fetch(path)
        except ObjectChanged:
            return OpenedFile(before, CHANGED)
        return self._opened(path, before)

    def _opened(self, path: Path, before: FileStamp) -> OpenedFile:
        from tracewarehouse.formats.registry import detect

        try:
            found = detect(path)
        except UnsupportedFormatError as error:
            return OpenedFile(before, error.format)
        parts = found.open(path).parts()
        return OpenedFile(before, found.name, found, parts, text_bytes(path, before[0]))


def _is_shown_by_head(path: Path, remote: RemoteFile) -> bool:
    """Whether the beginning of the object, which is there, shows its format and ranks."""
    from tracewarehouse.formats.registry import detect

    if path.stat().st_size == remote.object.entry.bytes:
        return True
    try:
        return detect(path).name in _READ_FROM_HEAD
    except (UnsupportedFormatError, TraceFormatError):
        return False


def file_stamp(path: Path) -> FileStamp:
    """Size and modification time of a file, for a folder of its files; (-1, -1) if it does not exist."""
    try:
        found = [path.stat()]
        if path.is_dir():
            found = [file.stat() for file in path.iterdir() if file.is_file()]
    except OSError:
        return -1, -1
    return sum(each.st_size for each in found), max((each.st_mtime_ns for each in found), default=-1)


def text_bytes(path: Path, stored_bytes: int) -> int:
    """The estimated size of a file's text."""
    if path.is_dir():
        return stored_bytes
    with path.open("rb") as file:
        is_compressed = file.read(2) == _GZIP
    return stored_bytes * _TEXT_BYTES_PER_GZIP_BYTE if is_compressed else stored_bytes
