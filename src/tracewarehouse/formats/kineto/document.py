"""Tolerant reading of trace files that are not strict JSON: header and its facts, events in chunks, losses.

It also handles valid JSON that most parsers lose: repeated keys, a second document after the first, one event
per line.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Struct, field

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import AFTER_THE_END, number, rank_number
from tracewarehouse.formats.file_text import Buffer, Text
from tracewarehouse.formats.json_text import deep_members, elements, is_utf8, minify, quote, unquote
from tracewarehouse.formats.kineto.event_array import (
    ArrayWalker,
    Chunk,
    Losses,
    repair,
    skip_whitespace,
    value_end,
)
from tracewarehouse.late_regex import late_regex

# First value in ns that exceeds 64 bits: year 2262.
_TOO_LATE: Final = 2**63
EVENTS_START: Final = late_regex(rb'"traceEvents"\s*:\s*\[')

# Real headers have some 20 KB; a process group of 16,384 ranks adds 100 KB.
MOST_HEADER_BYTES: Final = 4 << 20
_REST_HEAD: Final = b'{"traceEvents":['
# Parsers may refuse deeper nesting.
_DEEP: Final = 400

Members = Mapping[str, bytes]


def header_json(members: Members) -> str:
    """The members as one JSON object; values are verbatim except for whitespace."""
    return "{" + ",".join(f"{quote(key)}:{value.decode()}" for key, value in members.items()) + "}"


def base_time_ns(members: Members) -> int:
    """`baseTimeNanoseconds`; 0 if it is missing, not a number or out of range."""
    try:
        base = Decimal(members.get("baseTimeNanoseconds", b"0").decode().strip('"'))
        return int(base) if -_TOO_LATE <= base < _TOO_LATE else 0
    except (InvalidOperation, ValueError):
        return 0


def rank_in_header(members: Members) -> int | None:
    """The rank in `distributedInfo`, if any."""
    return rank_number(_distributed(members).get("rank"))


def world_size_of(members: Members) -> int | None:
    """The world size in `distributedInfo`, if any."""
    return number(_distributed(members).get("world_size"))


def members_before(text: bytes) -> dict[str, bytes] | None:
    """The members of a document that ends with an empty list of events; None if it is not strict JSON."""
    pairs = _pairs(text)
    if pairs is None or not pairs or pairs[-1] != (EVENTS_KEY, b"[]"):
        return None
    return dict(pairs[:-1])


def members_after(text: bytes) -> dict[str, bytes] | None:
    """The members after the events; `text` starts with the closing `]`. None if it is not strict JSON."""
    pairs = _pairs(_REST_HEAD + text)
    if pairs is None or pairs[0] != (EVENTS_KEY, b"[]"):
        return None
    return dict(pairs[1:])


def _pairs(text: bytes) -> list[tuple[str, bytes]] | None:
    """Keys and minified values of an object; None if it is not strict JSON or a key is repeated."""
    parsed = outline(text)
    if parsed is not None and parsed.events is not None:
        start, end = parsed.events
        events = (EVENTS_KEY, text[start:end])
        return [*parsed.members, events] if end == len(text) - 1 else [events, *parsed.members]
    if text.count(b"[") + text.count(b"{") < _DEEP:
        return None
    pairs = deep_members(text) if is_utf8(text) else None
    return pairs if pairs is not None and len(dict(pairs)) == len(pairs) else None


def head_members(head: bytes) -> dict[str, bytes]:
    """The members before the events; empty if the events do not start in `head`."""
    for start in EVENTS_START.finditer(head):
        if (members := members_before(head[: start.end()] + b"]}")) is not None:
            return members
    return {}


def _distributed(members: Members) -> Mapping[str, Any]:
    try:
        info = msgspec.json.decode(members.get("distributedInfo", b"null"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return info if isinstance(info, dict) else {}


EVENTS_KEY = "traceEvents"

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BETWEEN_MEMBERS = late_regex(rb'\s*[,{]\s*"(?:[^"\\]++|\\.)*+"\s*:\s*', re.DOTALL)


class Outline(Struct, frozen=True):
    """A complete document: its members except the events as (key, minified text), and the array bounds."""

    members: tuple[tuple[str, bytes], ...]
    events: tuple[int, int] | None
    is_list: bool = False


def outline(buffer: Buffer) -> Outline | None:
    """Header and bounds of the event array.

    None if the text is not strict JSON, a key is repeated or the header is longer than MOST_HEADER_BYTES.
    """
    first = bytes(buffer[:4096]).lstrip()[:1]
    try:
        if first == b"[":
            raw = msgspec.json.decode(buffer, type=msgspec.Raw)
            return Outline((), _bounds(buffer, raw), is_list=True)
        members = msgspec.json.decode(buffer, type=dict[str, msgspec.Raw])
    except _BROKEN:
        return None
    return _object_outline(buffer, members)


def _object_outline(buffer: Buffer, members: dict[str, msgspec.Raw]) -> Outline | None:
    places = {key: _bounds(buffer, raw) for key, raw in members.items()}
    if not _each_key_once(buffer, sorted(places.values())):
        return None
    if sum(end - start for key, (start, end) in places.items() if key != EVENTS_KEY) > MOST_HEADER_BYTES:
        return None
    header = []
    for key, raw in members.items():
        if key != EVENTS_KEY:
            if (minified := minify(bytes(raw))) is None:
                return None
            header.append((key, minified))
    return Outline(tuple(header), places.get(EVENTS_KEY))


def _each_key_once(buffer: Buffer, places: list[tuple[int, int]]) -> bool:
    """Whether no key is repeated: the first value of a repeated key would lie between two members."""
    previous_end = 0
    for start, end in places:
        match = _BETWEEN_MEMBERS.match(buffer, previous_end, start)
        if match is None or match.end() != start:
            return False
        previous_end = end
    return True


def _bounds(buffer: Buffer, raw: msgspec.Raw) -> tuple[int, int]:
    start = pa.py_buffer(raw).address - pa.py_buffer(buffer).address
    return start, start + len(memoryview(raw))


_WIDE = (
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"{\0", "utf-16-le"),
    (b"[\0", "utf-16-le"),
    (b"\0{", "utf-16-be"),
    (b"\0[", "utf-16-be"),
)


class Document(Struct):
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
        file_text.check_readable(self.text.path, self.buffer)
        if (format_name := file_text.binary_format(self.buffer)) is not None:
            raise file_text.UnsupportedFormatError(self.text.path, format_name)
        self._to_utf8()
        for chunk in self._read():
            self._count(chunk)
            yield chunk
        if self.text.cut is not None:
            # A truncated or corrupt container is harmless only if the document was already complete.
            harmless = self._closed and "cut" in self.text.cut
            end = len(self.buffer)
            self.losses.lose(end, end, 0 if harmless else None, self.text.cut, damaged=not harmless)

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
        parsed = outline(self.buffer)
        if parsed is None or (parsed.events is None and is_lines(self.buffer)):
            yield from self._salvage()
            return
        self.members = dict(parsed.members)
        if parsed.events is None:
            return
        start, end = parsed.events
        if self.buffer[start] == ord("["):
            yield from ArrayWalker(self.buffer, start + 1, self.losses).walk(end)
        else:
            self._wrong_events = bytes(self.buffer[start : start + 4]).decode(errors="replace")

    def _salvage(self) -> Iterator[Chunk]:
        walker = DocumentWalker(self.buffer, self.losses)
        yield from walker.walk()
        if self.losses.status == "intact":
            self.losses.repair(0, "the text is not strict JSON")
        self.members, self._wrong_events = walker.members, walker.wrong_events
        self._closed = walker.closed
        if not walker.starts:
            raise file_text.not_json(self.text.path, self.buffer, self.losses.shift)

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
            offset = self.losses.losses[0].byte_from
            raise TraceFormatError(
                path, "no complete event found", offset=offset, hint="copy or record the trace again"
            )
        name = None
        with suppress(RecursionError):
            name = file_text.list_format(msgspec.json.decode(self.first)) if self.first else None
        raise file_text.UnsupportedFormatError(path, name or file_text.object_format(self.members))


_KEY = late_regex(rb'("(?:[^"\\]++|\\.)*+")\s*:\s*', re.DOTALL)
_EVENTS = late_regex(rb'"traceEvents"\s*:\s*(?=\[)')
_LINE_MOST = 1 << 20
_DOCUMENT = late_regex(rb'\{\s*["}]|\[\s*[{\]]')
_ARRAY_CLOSED = late_regex(rb"\s*(?:,|\}|$)")
_END_MISSING = "the end is missing: more events may have followed"


def is_lines(buffer: Buffer) -> bool:
    """Whether the text is JSON Lines with one event per line, judging by its first line."""
    start = skip_whitespace(buffer, 0)
    stop = buffer.find(b"\n", start, start + _LINE_MOST)
    line = bytes(buffer[start : stop if stop >= 0 else start + _LINE_MOST]).rstrip()
    is_event = line.startswith(b"{") and line.endswith(b"}") and b'"ph"' in line
    return is_event and _EVENTS.search(buffer) is None


class DocumentWalker(Struct):
    """Iterates over a complete text; fills `members` with header values; `closed`: it ended properly."""

    buffer: Buffer
    losses: Losses
    members: dict[str, bytes] = field(default_factory=dict)
    wrong_events: str | None = None
    starts: bool = True
    closed: bool = False
    at: int = 0
    _arrays: int = 0
    _header_bytes: int = 0

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
        events = _EVENTS.search(self.buffer, at)
        return events is not None and self.buffer.find(b'"ph"', at, events.start()) < 0

    def _stray_start(self, at: int) -> Iterator[Chunk]:
        """Skips text before the document, such as a log line, up to the event array, if there is one."""
        if (events := _EVENTS.search(self.buffer, at)) is None:
            self.starts = False
            self.at = len(self.buffer)
            return
        self.losses.lose(at, events.start(), 0, "bytes before the events that are not JSON")
        yield from self._object(events.start())

    def _array(self, at: int, *, lines: bool = False) -> Iterator[Chunk]:
        self._arrays += 1
        walker = ArrayWalker(self.buffer, at, self.losses, lines=lines)
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
                end = len(self.buffer)
                if self._arrays:
                    self.losses.lose(
                        end, end, 0, "the closing brace is missing: header keys may have followed"
                    )
                else:
                    self.losses.lose(end, end, None, _END_MISSING)
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
        limit = min(len(self.buffer), at + MOST_HEADER_BYTES - self._header_bytes)
        stop = value_end(self.buffer, at, limit) if at < limit else None
        if stop is None or _ARRAY_CLOSED.match(self.buffer, stop) is None:
            return False
        raw = bytes(self.buffer[at:stop])
        name = self._key_name(key)
        value = minify(raw)
        if value is None and not _EVENTS.search(raw) and (repaired := repair(raw)) is not None:
            value = repaired[0]
            self.losses.repair(at, *repaired[1])
        if value is None or name is None:
            return False
        self._header_bytes += len(value)
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
            self.losses.repair(key.start(), *repaired[1])
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

    def _resync(self, start: int) -> bool:
        """Resumes after unreadable text at the next event array, else at the end of the object."""
        next_array = _EVENTS.search(self.buffer, start if not self._arrays else self.at)
        goes_on = next_array is not None and next_array.start() > start
        stop = next_array.start() if next_array is not None and goes_on else len(self.buffer)
        events = None if not goes_on and self.buffer.find(b'"ph"', self.at) >= 0 else 0
        self.losses.lose(self.at, max(stop, self.at), events, "a part of the header that cannot be read")
        self.at = stop
        return goes_on
