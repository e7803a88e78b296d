"""A trace file as a document: header, events in chunks, and everything there is to tell about it."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import msgspec

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.reader import formats
from tracewarehouse.reader.findings import Findings
from tracewarehouse.reader.salvage import DocumentWalker, is_lines
from tracewarehouse.reader.source import Buffer, Text
from tracewarehouse.reader.strict import CHUNK_BYTES, Chunk, elements, outline
from tracewarehouse.reader.tolerant import ArrayWalker
from tracewarehouse.reader.walk import quote

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
    """Iterate `chunks()` to the end; then `members`, `events` and `findings` are complete.

    `trust` false reads event by event even where bulk would do; both give the same.
    """

    text: Text
    trust: bool = True
    members: dict[str, bytes] = field(default_factory=dict)
    events: int = 0
    objects: bool = False
    first: bytes | None = None
    format: str = formats.KINETO
    findings: Findings = field(default_factory=Findings)
    buffer: Buffer = b""
    _wrong_events: str | None = None
    _closed: bool = True

    def chunks(self) -> Iterator[Chunk]:
        """The events in file order. Raises TraceFormatError where there is nothing to save."""
        self.buffer = self.text.buffer
        formats.check_readable(self.text.path, self.buffer)
        if (other := formats.binary_format(self.buffer)) is not None:
            self.format = other
            return
        self._to_utf8()
        for chunk in self._read():
            self._count(chunk)
            yield chunk
        self._tell_cut()
        self._judge()

    def header_json(self) -> str:
        """Every top-level key but the events, values verbatim but for blanks."""
        return "{" + ",".join(f"{quote(key)}:{value.decode()}" for key, value in self.members.items()) + "}"

    def base_ns(self) -> int:
        """`baseTimeNanoseconds`, 0 where it is missing, no number or none that a time can have."""
        try:
            base = Decimal(self.members.get("baseTimeNanoseconds", b"0").decode().strip('"'))
            return int(base) if -_TOO_LATE <= base < _TOO_LATE else 0
        except (InvalidOperation, ValueError):
            return 0

    def _count(self, chunk: Chunk) -> None:
        self.events += chunk.events
        if not self.objects:
            raws = elements(chunk.array) or []
            self.objects = any(bytes(raw)[:1] == b"{" for raw in raws)
            if self.first is None and raws:
                self.first = bytes(raws[0])

    def _to_utf8(self) -> None:
        if self.buffer[:3] == codecs.BOM_UTF8:
            self.findings.shift = 3
            self.findings.mend(-3, "a byte order mark before the text")
            self.buffer = self.buffer[3:]
            return
        head = bytes(self.buffer[:4])
        encoding = next((name for mark, name in _WIDE if head.startswith(mark)), None)
        if encoding is not None:
            self.findings.mend(0, "UTF-16 text; byte positions count in its UTF-8 form")
            even = len(self.buffer) - len(self.buffer) % 2
            text = bytes(self.buffer[:even]).decode(encoding, errors="surrogatepass")
            self.buffer = text.encode("utf-8", errors="surrogatepass")

    def _read(self) -> Iterator[Chunk]:
        found = outline(self.buffer) if self.trust else None
        if found is None or (found.events is None and is_lines(self.buffer)):
            yield from self._salvage()
            return
        self.members = dict(found.members)
        if found.events is None:
            return
        start, end = found.events
        if self.buffer[start] == ord("["):
            yield from ArrayWalker(self.buffer, start + 1, self.findings, CHUNK_BYTES).walk(end)
        else:
            self._wrong_events = bytes(self.buffer[start : start + 4]).decode(errors="replace")

    def _salvage(self) -> Iterator[Chunk]:
        walker = DocumentWalker(self.buffer, self.findings, CHUNK_BYTES if self.trust else 1)
        yield from walker.walk()
        if self.trust and self.findings.status == "whole":
            self.findings.mend(0, "the text is not strict JSON")
        self.members, self._wrong_events = walker.members, walker.wrong_events
        self._closed = walker.closed
        if not walker.starts:
            raise formats.not_json(self.text.path, self.buffer, self.findings.shift)

    def _tell_cut(self) -> None:
        """A container that ended early: harmless only where the document had ended before."""
        if self.text.cut is not None:
            harmless = self._closed and "cut" in self.text.cut
            end = len(self.buffer)
            self.findings.lose(end, end, 0 if harmless else None, self.text.cut, damaged=not harmless)

    def _judge(self) -> None:
        """Raises for what holds nothing to save, and names what is no trace."""
        if self.objects:
            return
        path, wrong = self.text.path, self._wrong_events
        if wrong is not None:
            what = "null" if wrong.startswith("null") else "no list"
            raise TraceFormatError(
                path, f"traceEvents is {what}", hint="the profiler wrote no events: record again"
            )
        listed = formats.list_format(msgspec.json.decode(self.first)) if self.first else None
        if listed == formats.MEMORY_TIMELINE:
            self.format = listed
            return
        if self.findings.damaged:
            at = self.findings.losses[0].byte_from
            raise TraceFormatError(
                path, "no complete event is left", offset=at, hint="copy or record the trace again"
            )
        self.format = listed or formats.object_format(self.members)
