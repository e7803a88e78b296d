"""A trace file that is not strict JSON, read as far as it goes: header, events in chunks, losses."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import foreign
from tracewarehouse.formats.json_text import elements
from tracewarehouse.formats.kineto.array_walker import ArrayWalker
from tracewarehouse.formats.kineto.document_walker import DocumentWalker, is_lines
from tracewarehouse.formats.kineto.losses import Losses
from tracewarehouse.formats.kineto.outline import CHUNK_BYTES, Chunk, outline
from tracewarehouse.formats.unpack import Buffer, Text

_WIDE = (
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"{\0", "utf-16-le"),
    (b"[\0", "utf-16-le"),
    (b"\0{", "utf-16-be"),
    (b"\0[", "utf-16-be"),
)

# Nanoseconds that 64 bits do not hold: the year 2262.
_TOO_LATE = 2**63


@dataclass
class Document:
    """Iterate `chunks()` to the end; then `members`, `events` and `losses` are complete."""

    text: Text
    members: dict[str, bytes] = field(default_factory=dict)
    events: int = 0
    objects: bool = False
    first: bytes | None = None
    losses: Losses = field(default_factory=Losses)
    buffer: Buffer = b""
    _wrong_events: str | None = None
    _closed: bool = True

    def chunks(self) -> Iterator[Chunk]:
        """The events in file order. Raises TraceFormatError where there is none."""
        yield from self.elements()
        self._judge()

    def elements(self) -> Iterator[Chunk]:
        """The elements of the list in file order, whatever they are. Raises TraceFormatError."""
        self.buffer = self.text.buffer
        foreign.check_readable(self.text.path, self.buffer)
        if (other := foreign.binary_format(self.buffer)) is not None:
            raise foreign.ForeignFileError(self.text.path, other)
        self._to_utf8()
        for chunk in self._read():
            self._count(chunk)
            yield chunk
        self._note_cut()

    def _count(self, chunk: Chunk) -> None:
        self.events += chunk.events
        if not self.objects:
            raws = elements(chunk.array) or []
            self.objects = any(bytes(raw)[:1] == b"{" for raw in raws)
            if self.first is None and raws:
                self.first = bytes(raws[0])

    def _to_utf8(self) -> None:
        if self.buffer[:3] == codecs.BOM_UTF8:
            self.losses.shift = 3
            self.losses.repair(-3, "a byte order mark before the text")
            self.buffer = self.buffer[3:]
            return
        head = bytes(self.buffer[:4])
        encoding = next((name for mark, name in _WIDE if head.startswith(mark)), None)
        if encoding is not None:
            self.losses.repair(0, "UTF-16 text; byte positions count in its UTF-8 form")
            even = len(self.buffer) - len(self.buffer) % 2
            text = bytes(self.buffer[:even]).decode(encoding, errors="surrogatepass")
            self.buffer = text.encode("utf-8", errors="surrogatepass")

    def _read(self) -> Iterator[Chunk]:
        found = outline(self.buffer)
        if found is None or (found.events is None and is_lines(self.buffer)):
            yield from self._salvage()
            return
        self.members = dict(found.members)
        if found.events is None:
            return
        start, end = found.events
        if self.buffer[start] == ord("["):
            yield from ArrayWalker(self.buffer, start + 1, self.losses, CHUNK_BYTES).walk(end)
        else:
            self._wrong_events = bytes(self.buffer[start : start + 4]).decode(errors="replace")

    def _salvage(self) -> Iterator[Chunk]:
        walker = DocumentWalker(self.buffer, self.losses, CHUNK_BYTES)
        yield from walker.walk()
        if self.losses.status == "intact":
            self.losses.repair(0, "the text is not strict JSON")
        self.members, self._wrong_events = walker.members, walker.wrong_events
        self._closed = walker.closed
        if not walker.starts:
            raise foreign.not_json(self.text.path, self.buffer, self.losses.shift)

    def _note_cut(self) -> None:
        """A container that ended early: harmless only where the document had ended before."""
        if self.text.cut is not None:
            harmless = self._closed and "cut" in self.text.cut
            end = len(self.buffer)
            self.losses.lose(end, end, 0 if harmless else None, self.text.cut, damaged=not harmless)

    def _judge(self) -> None:
        """Raises for what holds no event, and names what it is instead."""
        if self.objects:
            return
        path, wrong = self.text.path, self._wrong_events
        if wrong is not None:
            what = "null" if wrong.startswith("null") else "no list"
            raise TraceFormatError(
                path, f"traceEvents is {what}", hint="the profiler recorded no events; record again"
            )
        if self.losses.damaged:
            at = self.losses.losses[0].byte_from
            raise TraceFormatError(
                path, "no complete event found", offset=at, hint="copy or record the trace again"
            )
        name = foreign.list_format(msgspec.json.decode(self.first)) if self.first else None
        raise foreign.ForeignFileError(path, name or foreign.object_format(self.members))
