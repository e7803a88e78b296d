"""Files during an ingest: kept open from survey to reading, or downloaded from an object store.

The survey downloads the first megabyte, the worker that builds the tables the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.engines import Failure, TaskProgress, attempt
from tracewarehouse.errors import StoreUnavailable, TraceFormatError, TwError
from tracewarehouse.formats.base import Format, Part
from tracewarehouse.formats.file_text import UnsupportedFormatError
from tracewarehouse.formats.registry import HEAD_BYTES
from tracewarehouse.storage.remote import SourceObject

CHANGED: Final = "changed while it was read"
GONE: Final = "no such object: it was deleted after it was listed"
_IN_FLIGHT: Final = 16


class ObjectChanged(TraceFormatError):
    """An object that was replaced after it was listed."""


class RemoteFile(Struct, frozen=True):
    """An object and the path of its copy on the machine of the call; `parts` is the number of its sources."""

    object: SourceObject
    copy: Path
    parts: int = 1

    @classmethod
    def of(cls, source: SourceObject, copies: Path) -> RemoteFile:
        """The file of an object, with its copy in a folder of the call."""
        folder = sha256(source.url.encode()).hexdigest()[:16]
        return cls(source, copies / folder / source.entry.key.rpartition("/")[2])

    def of_parts(self, parts: int) -> RemoteFile:
        """The same file with this number of parts."""
        return replace(self, parts=parts)

    def fetch(self, path: Path, up_to: int | None = None) -> Path:
        """Completes the copy at a path, and returns it. Raises TraceFormatError, StoreUnavailable."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            is_same = self.object.download(path, up_to)
        except FileNotFoundError:
            raise TraceFormatError(self.object.url, GONE, hint="ingest the folder again") from None
        except StoreUnavailable as error:
            raise TwError(error.message, error.hint) from error
        if not is_same:
            path.unlink(missing_ok=True)
            raise ObjectChanged(self.object.url, CHANGED, hint="ingest it again later")
        return path

    def local(self, folder: Path) -> Path:
        """The path for its copy: of an earlier one if it is on this machine, else in the folder."""
        return self.copy if self.copy.exists() else folder / "copies" / self.copy.parent.name / self.copy.name

    def forget(self, path: Path) -> None:
        """Deletes the copy at a path, unless other parts of the file are read from it."""
        if self.parts == 1:
            with suppress(OSError):
                path.unlink(missing_ok=True)
                path.parent.rmdir()


class _FetchHead(Struct, frozen=True):
    remote: RemoteFile

    def run(self, _: TaskProgress) -> None:
        with suppress(ObjectChanged):  # noticed again by what needs the copy
            self.remote.fetch(self.remote.copy, HEAD_BYTES)


def fetch_heads(remotes: Sequence[RemoteFile]) -> dict[RemoteFile, Failure]:
    """Downloads the beginning of each object, many at once; the failures."""
    if not remotes:
        return {}
    with ThreadPoolExecutor(min(_IN_FLIGHT, len(remotes))) as pool:
        done = pool.map(lambda remote: attempt(_FetchHead(remote), _ignore), remotes)
        return {
            remote: found for remote, found in zip(remotes, done, strict=True) if isinstance(found, Failure)
        }


def without_copy(failure: Failure, path: Path, local: Path) -> Failure:
    """The failure with the URL of the object in place of the path of its copy."""

    def named(text: str) -> str:
        return text.replace(str(local), str(path))

    hint = failure.hint
    if hint and str(local) in hint:
        hint = named(hint)
    return replace(failure, message=named(failure.message), hint=hint)


def _ignore(_done: int, _total: int) -> None:
    """Ignores progress."""


# Size and modification time: a difference means that the file was written to.
FileStamp: TypeAlias = tuple[int, int]
MEMORY_TIMELINE: Final = "memory_timeline"
# Formats whose files are recognized, and their parts known, from the first megabyte.
_READ_FROM_HEAD: Final = frozenset({"kineto", MEMORY_TIMELINE})
# Traces compress to between a tenth and a seventeenth; memory is planned for the larger text.
_TEXT_BYTES_PER_GZIP_BYTE: Final = 17
_GZIP: Final = b"\x1f\x8b"


class OpenedFile(Struct, frozen=True):
    """What the beginning of a file shows. `format` is None for a `kind` of file that cannot be read.

    The kind is CHANGED for an object that is not the listed one any more.
    """

    stamp: FileStamp
    kind: str
    format: Format | None = None
    parts: tuple[Part, ...] = ()
    text_bytes: int = 0


class OpenFiles(Struct, frozen=True):
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


class _OpenFile(Struct, frozen=True):
    path: Path
    remote: RemoteFile | None = None

    def run(self, progress: TaskProgress) -> OpenedFile:
        from tracewarehouse.formats.registry import detect

        path = self.remote.copy if self.remote else self.path
        before = self.remote.object.stamp if self.remote else file_stamp(path)
        try:
            if self.remote and not (path.exists() and _is_shown_by_head(path, self.remote)):
                self.remote.fetch(path)
        except ObjectChanged:
            return OpenedFile(before, CHANGED)
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
