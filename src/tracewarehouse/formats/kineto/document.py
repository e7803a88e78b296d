"""Tolerant reading of trace files that are not strict JSON: header, events in chunks, losses.

It also handles valid JSON that most parsers lose: repeated keys, a second document after the first, one event
per line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import other_formats
from tracewarehouse.formats.base import AFTER_THE_END
from tracewarehouse.formats.file_text import Buffer, Text
from tracewarehouse.formats.json_text import elements, minify, unquote
from tracewarehouse.formats.kineto.event_array import (
    CHUNK_BYTES,
    ArrayWalker,
    Chunk,
    skip_whitespace,
    value_end,
)
from tracewarehouse.formats.kineto.header import outline
from tracewarehouse.formats.kineto.repair import Losses, repair

_WIDE = (
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"{\0", "utf-16-le"),
    (b"[\0", "utf-16-le"),
    (b"\0{", "utf-16-be"),
    (b"\0[", "utf-16-be"),
)


@dataclass
class Document:
    """A tolerant reader; `members`, `events` and `losses` are complete once `chunks()` is exhausted."""

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
        """The events in file order. Raises TraceFormatError if there is none."""
        yield from self.elements()
        self._check_events()

    def elements(self) -> Iterator[Chunk]:
        """The elements of the list in file order, of any type. Raises TraceFormatError."""
        self.buffer = self.text.buffer
        other_formats.check_readable(self.text.path, self.buffer)
        if (other := other_formats.binary_format(self.buffer)) is not None:
            raise other_formats.UnsupportedFormatError(self.text.path, other)
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
            raise other_formats.not_json(self.text.path, self.buffer, self.losses.shift)

    def _note_cut(self) -> None:
        """Records a truncated or corrupt container; harmless only if the document was already complete."""
        if self.text.cut is not None:
            harmless = self._closed and "cut" in self.text.cut
            end = len(self.buffer)
            self.losses.lose(end, end, 0 if harmless else None, self.text.cut, damaged=not harmless)

    def _check_events(self) -> None:
        """Raises if there is no event, and identifies the format of the file."""
        if self.objects:
            return
        path, wrong = self.text.path, self._wrong_events
        if wrong is not None:
            what = "null" if wrong.startswith("null") else "not a list"
            raise TraceFormatError(
                path, f"traceEvents is {what}", hint="the profiler recorded no events; record again"
            )
        if self.losses.damaged:
            at = self.losses.losses[0].byte_from
            raise TraceFormatError(
                path, "no complete event found", offset=at, hint="copy or record the trace again"
            )
        name = other_formats.list_format(msgspec.json.decode(self.first)) if self.first else None
        raise other_formats.UnsupportedFormatError(path, name or other_formats.object_format(self.members))


_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*(?=\[)')
_LINE_MOST = 1 << 20
_DOCUMENT = re.compile(rb'\{\s*["}]|\[\s*[{\]]')
_ARRAY_CLOSED = re.compile(rb"\s*(?:,|\}|$)")
_END_MISSING = "the end is missing: more events may have followed"


def is_lines(buffer: Buffer) -> bool:
    """Whether the text is JSON Lines with one event per line, judging by its first line."""
    start = skip_whitespace(buffer, 0)
    stop = buffer.find(b"\n", start)
    line = bytes(buffer[start : stop if stop >= 0 else len(buffer)][:_LINE_MOST]).rstrip()
    is_event = line.startswith(b"{") and line.endswith(b"}") and b'"ph"' in line
    return is_event and _EVENTS.search(buffer) is None


class DocumentWalker:
    """Iterates over a complete text; fills `members` with header values; `closed`: it ended properly."""

    def __init__(self, buffer: Buffer, losses: Losses, step: int) -> None:
        self.buffer = buffer
        self.losses = losses
        self.step = step
        self.members: dict[str, bytes] = {}
        self.wrong_events: str | None = None
        self.starts = True
        self.closed = False
        self.at = 0
        self._arrays = 0

    def walk(self) -> Iterator[Chunk]:
        """The chunks of every event array, in file order."""
        if is_lines(self.buffer):
            self.losses.repair(0, "one event per line, not one JSON document")
            yield from self._array(self.at, lines=True)
            return
        documents = 0
        while (at := skip_whitespace(self.buffer, self.at)) < len(self.buffer):
            self.at = at
            if documents and not self._another_document(at):
                return
            documents += 1
            if self.buffer[at] == ord("[") and not self._holds_document(at):
                yield from self._array(at + 1)
            elif self.buffer[at] == ord("{"):
                yield from self._object(at + 1)
            else:
                yield from self._stray_start(at)

    def _another_document(self, at: int) -> bool:
        """Whether another document follows the end; records what follows."""
        if _DOCUMENT.match(self.buffer, at):
            self.losses.repair(at, "another document follows the first; its events are added")
            return True
        events = None if self.buffer.find(b'"ph"', at) >= 0 else 0
        self.losses.lose(at, len(self.buffer), events, AFTER_THE_END, damaged=events is None)
        self.at = len(self.buffer)
        return False

    def _holds_document(self, at: int) -> bool:
        """Whether the bracket is misplaced before an object with traceEvents."""
        found = _EVENTS.search(self.buffer, at)
        return found is not None and self.buffer.find(b'"ph"', at, found.start()) < 0

    def _stray_start(self, at: int) -> Iterator[Chunk]:
        """Skips text before the document, such as a log line, up to the event array, if there is one."""
        if (found := _EVENTS.search(self.buffer, at)) is None:
            self.starts = False
            self.at = len(self.buffer)
            return
        self.losses.lose(at, found.start(), 0, "bytes before the events that are not JSON")
        yield from self._object(found.start())

    def _array(self, at: int, *, lines: bool = False) -> Iterator[Chunk]:
        self._arrays += 1
        walker = ArrayWalker(self.buffer, at, self.losses, self.step, lines=lines)
        yield from walker.walk()
        self.at, self.closed = walker.at, walker.closed
        lost = self.losses.losses
        if not walker.closed and not (lost and lost[-1].byte_to - self.losses.shift == len(self.buffer)):
            self.losses.lose(len(self.buffer), len(self.buffer), None, _END_MISSING)

    def _object(self, at: int) -> Iterator[Chunk]:
        """The members of an object, to its closing brace."""
        self.at, self.closed = at, False
        start = at
        while True:
            self._skip_commas()
            if self.at >= len(self.buffer):
                self._end_missing()
                return
            if self.buffer[self.at] == ord("}"):
                self.at, self.closed = self.at + 1, True
                return
            key = _KEY.match(self.buffer, self.at)
            if key is not None and self._is_events(key):
                start = self.at
                yield from self._array(key.end() + 1)
                if not self.closed:
                    return
                self.closed = False
            elif key is not None and self._member(key):
                start = key.start()
            elif not self._resync(start):
                return

    def _skip_commas(self) -> None:
        """Skips whitespace and commas between members; records superfluous commas."""
        commas = 0
        while (at := skip_whitespace(self.buffer, self.at)) < len(self.buffer):
            if self.buffer[at] != ord(","):
                break
            self.at, commas = at + 1, commas + 1
        self.at = at
        if commas > 1 or (commas and self.buffer[at : at + 1] == b"}"):
            self.losses.repair(at, "a comma too many")

    def _is_events(self, key: re.Match[bytes]) -> bool:
        if key.group(1) != b'"traceEvents"':
            return False
        sign = bytes(self.buffer[key.end() : key.end() + 1])
        if sign == b"[" and self._arrays:
            self.losses.repair(key.start(), "traceEvents occurs more than once; the events of each are kept")
        elif sign != b"[":
            self.wrong_events = bytes(self.buffer[key.end() : key.end() + 4]).decode(errors="replace")
        return sign == b"["

    def _member(self, key: re.Match[bytes]) -> bool:
        """Reads a header value; False if it is not complete."""
        at = key.end()
        stop = value_end(self.buffer, at, len(self.buffer)) if at < len(self.buffer) else None
        if stop is None or _ARRAY_CLOSED.match(self.buffer, stop) is None:
            return False
        raw = bytes(self.buffer[at:stop])
        name = self._key_name(key)
        value = minify(raw)
        if value is None and not _EVENTS.search(raw) and (repaired := repair(raw)) is not None:
            value = repaired[0]
            for reason in repaired[1]:
                self.losses.repair(at, reason)
        if value is None or name is None:
            return False
        self._keep(name, value, key.start(), stop)
        self.at = stop
        return True

    def _key_name(self, key: re.Match[bytes]) -> str | None:
        token = key.group(1)
        if minify(token) is None:
            repaired = repair(token)
            if repaired is None:
                return None
            token = repaired[0]
            for reason in repaired[1]:
                self.losses.repair(key.start(), reason)
        return unquote(token.decode())

    def _keep(self, name: str, value: bytes, start: int, stop: int) -> None:
        """Stores a value; the last value of a key that is not null wins, and a replaced one is recorded."""
        before = self.members.get(name)
        if before is None or before == value:
            self.members[name] = value
            if before == value:
                self.losses.repair(start, f"the key {name!r} comes more than once with the same value")
            return
        if value != b"null":
            self.members[name] = value
        reason = f"the key {name!r} occurs more than once; the last value that is not null is kept"
        self.losses.lose(start, stop, 0, reason, damaged=False)

    def _end_missing(self) -> None:
        reason = (
            _END_MISSING
            if not self._arrays
            else "the closing brace is missing: header keys may have followed"
        )
        self.losses.lose(len(self.buffer), len(self.buffer), None if not self._arrays else 0, reason)

    def _resync(self, start: int) -> bool:
        """Resumes after unreadable text at the next event array, else at the end of the object."""
        found = _EVENTS.search(self.buffer, start if not self._arrays else self.at)
        goes_on = found is not None and found.start() > start
        stop = found.start() if found is not None and goes_on else len(self.buffer)
        events = None if not goes_on and self.buffer.find(b'"ph"', self.at) >= 0 else 0
        self.losses.lose(self.at, max(stop, self.at), events, "a part of the header that cannot be read")
        self.at = stop
        return goes_on
