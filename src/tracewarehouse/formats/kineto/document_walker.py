"""A document that strict JSON refuses: header keys and event arrays, as far as they go.

Also what strict JSON allows and most parsers lose: a key that comes twice, a second document after the
first, one event per line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracewarehouse.formats.json_text import minify, unquote
from tracewarehouse.formats.kineto.array_walker import ArrayWalker, skip_blanks, value_end
from tracewarehouse.formats.kineto.losses import Losses
from tracewarehouse.formats.kineto.outline import Chunk
from tracewarehouse.formats.kineto.repair import repair
from tracewarehouse.formats.unpack import Buffer

_KEY = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*(?=\[)')
_LINE_MOST = 1 << 20
_DOCUMENT = re.compile(rb'\{\s*["}]|\[\s*[{\]]')
_ARRAY_CLOSED = re.compile(rb"\s*(?:,|\}|$)")
_END_MISSING = "the end is missing: more events may have followed"


def is_lines(buffer: Buffer) -> bool:
    """Whether the text is JSON lines, one event each: by its first line."""
    start = skip_blanks(buffer, 0)
    stop = buffer.find(b"\n", start)
    line = bytes(buffer[start : stop if stop >= 0 else len(buffer)][:_LINE_MOST]).rstrip()
    is_event = line.startswith(b"{") and line.endswith(b"}") and b'"ph"' in line
    return is_event and _EVENTS.search(buffer) is None


class DocumentWalker:
    """Walks over a whole text; `members` fills with header values, `closed` is whether it ended well."""

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
        while (at := skip_blanks(self.buffer, self.at)) < len(self.buffer):
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
        """Whether what follows the end can be read too; tells what it is."""
        if _DOCUMENT.match(self.buffer, at):
            self.losses.repair(at, "another document follows the first; its events are added")
            return True
        events = None if self.buffer.find(b'"ph"', at) >= 0 else 0
        self.losses.lose(
            at, len(self.buffer), events, "bytes after the end of the trace", damaged=events is None
        )
        self.at = len(self.buffer)
        return False

    def _holds_document(self, at: int) -> bool:
        """Whether the bracket is a stray one before an object with traceEvents."""
        found = _EVENTS.search(self.buffer, at)
        return found is not None and self.buffer.find(b'"ph"', at, found.start()) < 0

    def _stray_start(self, at: int) -> Iterator[Chunk]:
        """Text before the document, such as a log line: it goes on at the event array, if there is one."""
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
        """Blanks and commas between members; more than one comma, or one at the end, is told."""
        commas = 0
        while (at := skip_blanks(self.buffer, self.at)) < len(self.buffer) and self.buffer[at] == ord(","):
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
        """Reads a header value; False where it does not stand alone."""
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
        """The last value of a key that is not null wins; another one that goes is told."""
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
        """After something unreadable: on at the next event array, else at the end of the object."""
        found = _EVENTS.search(self.buffer, start if not self._arrays else self.at)
        goes_on = found is not None and found.start() > start
        stop = found.start() if found is not None and goes_on else len(self.buffer)
        events = None if not goes_on and self.buffer.find(b'"ph"', self.at) >= 0 else 0
        self.losses.lose(self.at, max(stop, self.at), events, "a part of the header that cannot be read")
        self.at = stop
        return goes_on
