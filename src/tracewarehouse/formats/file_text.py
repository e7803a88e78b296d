"""The decompressed text of a trace file, plain or gzip, with its digest.

Truncated and corrupt files are read as far as possible.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import IO, Protocol, TypeAlias, cast

from isal import isal_zlib
from isal.igzip_lib import IsalError

from tracewarehouse import hints
from tracewarehouse.errors import TraceFormatError

Buffer: TypeAlias = bytes | bytearray | mmap.mmap

GZIP_MAGIC = b"\x1f\x8b"
# Its type stub names no exception class.
_ISAL_ERROR = cast(type[Exception], IsalError)
# Traces compress about 20:1: larger pieces would not fit in the CPU caches once decompressed, and each would
# need a new memory mapping.
_PIECE_BYTES = 16 << 10
_AHEAD = 32
# Longer text goes to a memory-mapped temporary file, which bounds memory.
SPILL_BYTES = 256 << 20


@dataclass(frozen=True)
class Text:
    """The decompressed text of a file; `cut` is the reason if the file is truncated or corrupt."""

    path: Path
    stored_bytes: int
    text_bytes: int
    digest: str
    buffer: Buffer
    cut: str | None = None


class _Sink(Protocol):
    """Receives text in pieces."""

    size: int

    def write(self, piece: bytes) -> None: ...


class _TextBuffer:
    """Collects text in memory, or in a memory-mapped temporary file if it is large."""

    def __init__(self, spill: Path | None) -> None:
        self._spill = spill
        self.sha = hashlib.sha256()
        self.size = 0
        self._memory = bytearray()
        self._file: IO[bytes] | None = None

    def write(self, piece: bytes) -> None:
        self.sha.update(piece)
        self.size += len(piece)
        if self._file is None and self.size > SPILL_BYTES:
            self._file = TemporaryFile(dir=self._spill)  # noqa: SIM115  closed with the mapping
            self._file.write(self._memory)
            self._memory = bytearray()
        if self._file is None:
            self._memory += piece
        else:
            self._file.write(piece)

    def buffer(self) -> Buffer:
        if self._file is None:
            return self._memory
        self._file.flush()
        with self._file as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_text(path: Path, spill: Path | None = None) -> Text:
    """The complete decompressed content. Raises TraceFormatError if the file cannot be read.

    Long text is memory-mapped from an unlinked temporary file in the folder `spill`.
    """
    try:
        with _open(path) as file:
            sink, pieces = _TextBuffer(spill), _Pieces(file)
            cut = _decompress(file, pieces, sink)
            stored = pieces.size()
    except OSError as error:
        raise _unreadable(path, error) from error
    return Text(path, stored, sink.size, sink.sha.hexdigest(), sink.buffer(), cut)


def _decompress(file: IO[bytes], pieces: _Pieces, sink: _Sink) -> str | None:
    """Writes the decompressed content to the sink; returns the reason if the file is truncated or corrupt."""
    if file.peek(2)[:2] == GZIP_MAGIC:  # type: ignore[attr-defined]
        return _gunzip(pieces, sink)
    for piece in pieces:
        sink.write(piece)
    return None


class _Stopped(Exception):
    """The reader needs no more text."""


@dataclass
class TextStream:
    """The text of a file in pieces, decompressed by a background thread that stays a few pieces ahead.

    After the iteration ends, `stored_bytes`, `size` and `digest` are valid, and `cut` is the reason if the
    file is truncated or corrupt. Raises TraceFormatError if the file cannot be read.
    """

    path: Path
    size: int = 0
    stored_bytes: int = 0
    digest: str = ""
    cut: str | None = None
    _ahead: Queue[bytes | None] = field(default_factory=lambda: Queue(_AHEAD))
    _stopped: Event = field(default_factory=Event)
    _error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        thread = Thread(target=self._read, daemon=True)
        thread.start()
        try:
            while (piece := self._ahead.get()) is not None:
                yield piece
        finally:
            self._stopped.set()
            with suppress(Empty):
                while True:
                    self._ahead.get_nowait()
            thread.join()
        if isinstance(self._error, OSError):
            raise _unreadable(self.path, self._error) from self._error
        if self._error is not None:
            raise self._error

    def joined(self, most_bytes: int, too_long: str, hint: str) -> bytes:
        """The entire text. Raises TraceFormatError if it has more than `most_bytes`."""
        pieces = []
        for piece in self:
            pieces.append(piece)
            if self.size > most_bytes:
                raise TraceFormatError(self.path, too_long, hint=hint)
        return b"".join(pieces)

    def write(self, piece: bytes) -> None:
        """Queues a piece for the iterator."""
        if self._stopped.is_set():
            raise _Stopped
        self._sha.update(piece)
        self.size += len(piece)
        self._ahead.put(piece)

    def _read(self) -> None:
        self._sha = hashlib.sha256()
        try:
            with _open(self.path) as file:
                pieces = _Pieces(file)
                self.cut = _decompress(file, pieces, self)
                self.stored_bytes = pieces.size()
            self.digest = self._sha.hexdigest()
        except BaseException as error:
            self._error = None if isinstance(error, _Stopped) else error
        finally:
            if not self._stopped.is_set():
                self._ahead.put(None)


def prefix_digest(path: Path, length: int) -> str | None:
    """SHA-256 of the first `length` bytes of the decompressed text; None if the text is shorter."""
    text = read_text(path)
    if text.text_bytes < length:
        return None
    return hashlib.sha256(memoryview(text.buffer)[:length]).hexdigest()


class _Digest:
    """Hashes a text."""

    def __init__(self) -> None:
        self.sha = hashlib.sha256()
        self.size = 0

    def write(self, piece: bytes) -> None:
        self.sha.update(piece)
        self.size += len(piece)


@dataclass(frozen=True)
class FileContent:
    """Digest and size of the decompressed text of a file, and the size of the file."""

    digest: str
    size: int
    stored_bytes: int


def digest_of(path: Path) -> FileContent:
    """Digest and sizes of the complete file. Raises TraceFormatError if it cannot be read."""
    try:
        with _open(path) as file:
            sink, pieces = _Digest(), _Pieces(file)
            _decompress(file, pieces, sink)
            return FileContent(sink.sha.hexdigest(), sink.size, pieces.size())
    except OSError as error:
        raise _unreadable(path, error) from error


def digest_of_folder(path: Path) -> FileContent:
    """The digest of the names and digests of all files in a folder, in order of their names."""
    total, size = hashlib.sha256(), 0
    for file in sorted(each for each in path.iterdir() if each.is_file()):
        found = digest_of(file)
        total.update(f"{file.name}\0{found.digest}\n".encode(errors="surrogateescape"))
        size += found.stored_bytes
    return FileContent(total.hexdigest(), size, size)


class _Head:
    """Collects the first bytes of a text."""

    def __init__(self, length: int) -> None:
        self.size = 0
        self.text = bytearray()
        self._length = length

    def write(self, piece: bytes) -> None:
        self.text += piece[: self._length - self.size]
        self.size += len(piece)
        if self.size >= self._length:
            raise _Stopped


def head_of(path: Path, length: int) -> bytes:
    """The first bytes of the decompressed text, as far as they can be read.

    Raises TraceFormatError if nothing can be read.
    """
    head = _Head(length)
    try:
        with _open(path) as file, suppress(_Stopped):
            _decompress(file, _Pieces(file), head)
    except OSError as error:
        raise _unreadable(path, error) from error
    return bytes(head.text)


class _Pieces:
    """The stored bytes in pieces; bytes after a gzip member can be pushed back."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pushed_back = b""
        self.taken = 0

    def __iter__(self) -> Iterator[bytes]:
        while piece := self.next():
            yield piece

    def next(self) -> bytes:
        if self._pushed_back:
            piece, self._pushed_back = self._pushed_back, b""
            return piece
        piece = self._file.read(_PIECE_BYTES)
        self.taken += len(piece)
        return piece

    def push_back(self, rest: bytes) -> None:
        self._pushed_back = rest

    def at(self) -> int:
        """The file offset of the next piece."""
        return self.taken - len(self._pushed_back)

    def reread(self, at: int) -> Iterator[bytes]:
        """Rereads the pieces from the offset `at` on; `next` must not be called afterwards."""
        self._file.seek(at)
        while piece := self._file.read(min(_PIECE_BYTES, self.taken - at)):
            at += len(piece)
            yield piece

    def size(self) -> int:
        """The size of the file, including bytes after a corrupt position that were not read."""
        return max(self.taken, os.fstat(self._file.fileno()).st_size)


def _gunzip(pieces: _Pieces, sink: _Sink) -> str | None:
    """Decompresses all members of a gzip file; returns the reason if the file is truncated or corrupt."""
    while True:
        if (cut := _member(pieces, sink)) is not None:
            return cut
        rest = _skip_padding(pieces)
        if not rest:
            return None
        if rest[:1] != GZIP_MAGIC[:1]:
            return "bytes that are not gzip follow the compressed data"
        pieces.push_back(rest)


def _member(pieces: _Pieces, sink: _Sink) -> str | None:
    member = isal_zlib.decompressobj(wbits=31)
    before, start = sink.size, pieces.at()
    while not member.eof:
        if not (piece := pieces.next()):
            _recover_member(pieces.reread(start), sink, before)
            return "the gzip stream is cut short"
        try:
            sink.write(member.decompress(piece))
        except _ISAL_ERROR:
            _recover_member(pieces.reread(start), sink, before)
            return "the gzip stream is corrupt"
    pieces.push_back(member.unused_data)
    return None


def _recover_member(stored: Iterable[bytes], sink: _Sink, before: int) -> None:
    """Writes the rest of a corrupt member up to the corrupt position."""
    skip = sink.size - before
    for out in _outputs(stored):
        sink.write(out[skip:])
        skip = max(skip - len(out), 0)


def _outputs(stored: Iterable[bytes]) -> Iterator[bytes]:
    """The text of a gzip member up to a corrupt position, found by bisection down to the last valid byte."""
    member = zlib.decompressobj(wbits=31)
    for piece in stored:
        at, size = 0, len(piece)
        while at < len(piece):
            trial = member.copy()
            try:
                out = trial.decompress(piece[at : at + size])
            except zlib.error:
                if not (size := size // 2):
                    return
                continue
            yield out
            member, at = trial, at + size


def _skip_padding(pieces: _Pieces) -> bytes:
    for piece in pieces:
        if rest := piece.lstrip(b"\0"):
            return rest
    return b""


def _open(path: Path) -> IO[bytes]:
    if path.is_dir():
        raise TraceFormatError(
            path,
            "this is a folder, not a file",
            hint=hints.fill("name a trace file; {} reads folders", hints.ingest()),
        )
    return path.open("rb")


def _unreadable(path: Path, error: OSError) -> TraceFormatError:
    if isinstance(error, FileNotFoundError):
        return TraceFormatError(path, "no such file", hint="check the path")
    if isinstance(error, PermissionError):
        return TraceFormatError(path, "permission denied", hint="check the file's permissions")
    return TraceFormatError(
        path, f"the file cannot be read: {error.strerror or error}", hint="check the disk and the path"
    )
