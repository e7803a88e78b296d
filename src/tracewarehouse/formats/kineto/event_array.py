"""The elements of an event array: large chunks where it is valid JSON, else one by one with minimal repairs.

Values are never guessed: an invalid literal (NaN, 01, None) becomes a string with the same characters; bytes
that are not UTF-8 become `ÿ` in text. An incomplete value is not repaired but recorded as lost.

A chunk ends at a closing bracket before a comma and is validated by parsing `[chunk]`: a split inside a
string or nested value would leave something open. Where no chunk is valid, single elements are read or
repaired. Where that fails, too, the walker resumes at the next position that looks like the start of an event
and records the bytes between as lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec import Struct, field

from tracewarehouse.formats.base import Loss, Status
from tracewarehouse.formats.file_text import Buffer
from tracewarehouse.formats.json_text import elements, is_utf8, minify
from tracewarehouse.late_regex import late_regex


class Losses(Struct):
    """Collects losses while a file is read; repairs with the same reason become one entry with a count."""

    shift: int = 0
    damaged: bool = False
    losses: list[Loss] = field(default_factory=list)
    repairs: dict[str, tuple[int, int]] = field(default_factory=dict)

    def repair(self, at: int, *reasons: str) -> None:
        """Records a position where the text was repaired without loss, and how."""
        for reason in reasons:
            first, count = self.repairs.get(reason, (at, 0))
            self.repairs[reason] = first, count + 1

    def lose(self, start: int, end: int, events: int | None, reason: str, *, damaged: bool = True) -> None:
        """Records bytes that could not be read."""
        self.damaged = self.damaged or damaged
        self.losses.append(Loss(start + self.shift, end + self.shift, events, reason))

    @property
    def status(self) -> Status:
        """intact, repaired (the text was repaired, all events are present) or damaged (something is lost)."""
        if self.damaged:
            return "damaged"
        return "repaired" if self.losses or self.repairs else "intact"

    def all(self) -> tuple[Loss, ...]:
        """All losses and repairs, in file order."""
        repairs = [self._line(reason, *places) for reason, places in self.repairs.items()]
        return tuple(sorted([*self.losses, *repairs], key=lambda loss: (loss.byte_from, loss.byte_to)))

    def _line(self, reason: str, first: int, count: int) -> Loss:
        byte = first + self.shift
        times = f" ({count} times, first at byte {byte})" if count > 1 else ""
        return Loss(byte, byte, 0, reason + times)


_STRING = r'"(?:[^"\\]++|\\.)*+"'
# For unescaped quotes: a quote closes the string only where a string may end.
_LOOSE_STRING = r'"(?:.*?)"(?=\s*(?:[,:}\]]|$))'
_REST = r'|[{}\[\],:]|[^\s{}\[\],:"]+|"'
_STRICT_TOKEN = late_regex(_STRING + _REST, re.DOTALL)
_LOOSE_TOKEN = late_regex(_LOOSE_STRING + _REST, re.DOTALL)
# Kineto writes the process after the name: whatever quotes a name has, it ends there.
_NAME = late_regex(r'("name"\s*:\s*)(".*")(\s*,\s*"pid"\s*:)', re.DOTALL)
_PAIR = late_regex(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = frozenset('"\\/bfnrt')
_SURROGATE = late_regex(
    r"(\\\\)|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\)(u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_CONTROL = late_regex(r"[\x00-\x1f]")
_LITERAL = late_regex(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BARE_KEY = late_regex(r"[A-Za-z_][A-Za-z0-9_]*")


class _Repairer(Struct):
    """Rebuilds JSON from tokens; `run` returns None if the structure is incomplete."""

    reasons: dict[str, None] = field(default_factory=dict)
    out: list[str] = field(default_factory=list)
    closers: list[str] = field(default_factory=list)
    # With unescaped quotes a key could swallow the previous member: keys must not contain quotes then.
    loose: bool = False
    # Kind of the previous token: start of a container, key, colon, value or comma.
    last: str = "start"

    def run(self, tokens: list[str]) -> str | None:
        for index, token in enumerate(tokens):
            if index and not self.closers:
                return None
            step = {"{": self._open, "[": self._open, "}": self._close, "]": self._close}.get(token)
            step = step or {",": self._comma, ":": self._colon}.get(token, self._scalar)
            if not step(token):
                return None
        return None if self.closers or not self.out else "".join(self.out)

    def note(self, reason: str) -> None:
        self.reasons[reason] = None

    def _in_object(self) -> bool:
        return bool(self.closers) and self.closers[-1] == "}"

    def _before_value(self) -> bool:
        """Inserts a comma before a value or key if one is missing."""
        if self.last == "key":
            return False
        if self.last == "value" and self.closers:
            self.note("a comma was missing")
            self.out.append(",")
        if self.last == "comma":
            self.out.append(",")
        return True

    def _open(self, token: str) -> bool:
        if not self._before_value() or (self._in_object() and self.last != "colon"):
            return False
        self.out.append(token)
        self.closers.append("}" if token == "{" else "]")
        self.last = "start"
        return True

    def _close(self, token: str) -> bool:
        if not self.closers or self.closers[-1] != token or self.last == "key":
            return False
        if self.last == "comma":
            self.note("a comma before a closing bracket")
        if self.last == "colon":
            self._missing_value()
        self.out.append(self.closers.pop())
        self.last = "value"
        return True

    def _comma(self, token: str) -> bool:
        if self.last == "colon":
            self._missing_value()
        elif self.last == "comma" or self.last == "start":
            self.note("a comma too many")
            return bool(self.closers)
        elif self.last == "key":
            return False
        self.last = "comma"
        return True

    def _missing_value(self) -> None:
        self.note("a value was missing, read as null")
        self.out.append("null")

    def _colon(self, token: str) -> bool:
        follows_key = self.last == "key"
        self.out.append(":")
        self.last = "colon"
        return follows_key

    def _scalar(self, token: str) -> bool:
        if not self._before_value():
            return False
        is_key = self._in_object() and self.last != "colon"
        if is_key and self.loose and '\\"' in token:
            return False
        text = self._string(token) if token[0] == '"' else self._bare(token, is_key)
        if text is None:
            return False
        self.out.append(text)
        self.last = "key" if is_key else "value"
        return True

    def _bare(self, token: str, is_key: bool) -> str | None:
        if is_key:
            self.note("a key without quotes")
            return f'"{token}"' if _BARE_KEY.fullmatch(token) else None
        if _LITERAL.fullmatch(token):
            return token
        self.note("a value that is not JSON (NaN, Infinity, …) is kept as a string")
        return self._string(f'"{token}"')

    def _string(self, token: str) -> str | None:
        if len(token) < 2:
            return None
        return f'"{self._controls(self._surrogates(self._backslashes(token[1:-1])))}"'

    def _backslashes(self, body: str) -> str:
        """Escapes all backslashes if one escape is invalid: then the writer escaped none in this string."""
        pairs = _PAIR.findall(body)
        if all(pair in _ESCAPES or len(pair) == 5 for pair in pairs) and not _odd_tail(body):
            return body
        self.note("unescaped backslashes are read literally")
        body = _PAIR.sub(lambda m: m[0] if m[1] in '"\\' else f"\\\\{m[1]}", body)
        return body + "\\" if _odd_tail(body) else body

    def _surrogates(self, body: str) -> str:
        if "\\u" not in body:
            return body

        def literal(match: re.Match[str]) -> str:
            if match[2] is None:
                return match[0]
            self.note("half of a surrogate pair is kept as text")
            return f"\\\\{match[3]}"

        return _SURROGATE.sub(literal, body)

    def _controls(self, body: str) -> str:
        def escape(match: re.Match[str]) -> str:
            self.note("control characters inside a string are escaped")
            return f"\\u{ord(match[0]):04x}"

        return _CONTROL.sub(escape, body)


def _odd_tail(body: str) -> bool:
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def repair(raw: bytes) -> tuple[bytes, tuple[str, ...]] | None:
    """The value as minified valid JSON, and the repairs; None if it cannot be repaired completely."""
    text, reasons = _decode(raw)
    named = _NAME.sub(lambda match: f"{match[1]}{_escape_quotes(match[2])}{match[3]}", text, count=1)
    for pattern, candidate, is_loose in (
        (_STRICT_TOKEN, text, False),
        (_STRICT_TOKEN, named if named != text else "", True),
        (_LOOSE_TOKEN, text, True),
    ):
        quoting = ("quotes inside a string are escaped",) if is_loose else ()
        repairer = _Repairer(dict.fromkeys((*reasons, *quoting)), loose=is_loose)
        tokens = pattern.findall(candidate)
        if pattern is _LOOSE_TOKEN:
            tokens = [_escape_quotes(token) for token in tokens]
        rebuilt = repairer.run(tokens)
        minified = minify(rebuilt.encode()) if rebuilt is not None else None
        if minified is not None:
            return minified, tuple(repairer.reasons)
    return None


def _escape_quotes(token: str) -> str:
    if len(token) < 2 or token[0] != '"':
        return token
    body = token[1:-1]
    if _odd_tail(body):
        body += "\\"
    return '"' + re.sub(r'((?:\\\\)*)(\\?)"', lambda m: f'{m[1]}\\"', body) + '"'


def _decode(raw: bytes) -> tuple[str, tuple[str, ...]]:
    try:
        return raw.decode(), ()
    except UnicodeDecodeError:
        pass
    decoded: list[str] = []
    start = 0
    while start < len(raw):
        try:
            decoded.append(raw[start:].decode())
            break
        except UnicodeDecodeError as error:
            decoded.append(raw[start : start + error.start].decode())
            bad = raw[start + error.start : start + error.end]
            decoded.append("".join(f"\\\\x{byte:02x}" for byte in bad))
            start += error.end
    return "".join(decoded), (r"bytes that are not UTF-8 are kept as \xNN",)


Valid = TypeVar("Valid")

CHUNK_BYTES = 4 << 20
_CUT_TRIES = 8


class Chunk(Struct, frozen=True):
    """A JSON array of consecutive events; `repaired` are the positions of events that are not verbatim."""

    array: bytes
    events: int
    repaired: tuple[int, ...] = ()


def cut(buffer: Buffer, at: int, end: int, size: int, *, last: bool) -> tuple[int, Chunk] | None:
    """One valid chunk from `at`: the position of its comma, and the chunk; `last`: `end` closes the array."""
    while True:
        stop = at + size
        if stop >= end:
            if not last:
                return cut_before(buffer, at, end, parse_chunk)
            chunk = parse_chunk(_array(buffer, at, end))
            return None if chunk is None else (end, chunk)
        if (chunk_before := cut_before(buffer, at, stop, parse_chunk)) is not None:
            return chunk_before
        if not last:
            return None
        size *= 4


def cut_before(
    buffer: Buffer, at: int, stop: int, validate: Callable[[bytes], Valid | None]
) -> tuple[int, Valid] | None:
    """The last comma before `stop` up to which the text is valid, and the result of `validate` for it."""
    for _ in range(_CUT_TRIES):
        comma = _last_cut(buffer, at, stop)
        if comma is None:
            return None
        if (valid := validate(_array(buffer, at, comma))) is not None:
            return comma, valid
        stop = comma
    return None


def _last_cut(buffer: Buffer, at: int, stop: int) -> int | None:
    """The position of the last comma before `stop` that follows a closing bracket."""
    while (comma := buffer.rfind(b",", at, stop)) >= 0:
        before = comma - 1
        while before > at and buffer[before] in b" \t\r\n":
            before -= 1
        if buffer[before] in b"}]":
            return comma
        stop = comma
    return None


def parse_chunk(array: bytes) -> Chunk | None:
    """The array as a chunk; None if it is not strict JSON in UTF-8."""
    events = elements(array)
    return Chunk(array, len(events)) if events is not None and is_utf8(array) else None


def _array(buffer: Buffer, at: int, stop: int) -> bytes:
    return b"[" + bytes(memoryview(buffer)[at:stop]) + b"]"


_EVENT_KEYS = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s)"\s*:'
# Not after a colon, where it is a value inside an event.
EVENT_START = late_regex(rb"[^:\s]\s*(\{\s*" + _EVENT_KEYS + rb")")
_ARRAY_GOES_ON = late_regex(rb"\]\s*,?\s*\{\s*" + _EVENT_KEYS)
_ARRAY_END = late_regex(rb'[}\]]\s*(\])\s*(?:,\s*"|\}|$)')
_STRAY_BRACKET = late_regex(rb"[\[,]\s*\[\s*\{\s*" + _EVENT_KEYS)
_WORD = late_regex(rb"[A-Za-z0-9]")
_FOLLOWS = late_regex(rb"\s*(?:[,\]]|$)")
# After a stray bracket, the list would end with the array: a header key or nothing follows.
_LIST_FOLLOWS = late_regex(rb'\s*(?:,\s*[^"\s]|\])')
_LINE_START = late_regex(rb"\n\s*(\{)")
_WHITESPACE = late_regex(rb"[ \t\r\n]*")
_TOKEN = late_regex(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
_SCALAR = late_regex(rb'"(?:[^"\\]++|\\.)*+"|[^\s,:{}\[\]"]+', re.DOTALL)
_CLOSER = {b"{": b"}", b"[": b"]"}
# Maximum length of a single element that contains a list of objects that look like events.
_LIST_MOST = 1 << 22
_BULK_LEAST = 4096
_CONTAINERS = (b"{", b"[")


def skip_whitespace(buffer: Buffer, at: int) -> int:
    """The position of the next byte that is not whitespace."""
    match = _WHITESPACE.match(buffer, at)
    return match.end() if match else at


def value_end(buffer: Buffer, at: int, limit: int) -> int | None:
    """The end of the JSON value at `at`, by its brackets and quotes; None if it is beyond `limit`."""
    return _scan(buffer, at, limit)[0]


def _scan(buffer: Buffer, at: int, limit: int) -> tuple[int | None, bool]:
    """The end of the value at `at`; if it does not end, whether `limit` is inside a list of it."""
    if buffer[at] not in b"{[":
        scalar = _SCALAR.match(buffer, at, limit)
        return (scalar.end() if scalar else None), False
    closers: list[bytes] = []
    for match in _TOKEN.finditer(buffer, at, limit):
        token = match.group()
        if token in _CLOSER:
            closers.append(_CLOSER[token])
        elif len(token) == 1:
            if closers.pop() != token:
                return None, False
            if not closers:
                return match.end(), False
    return None, closers[-1:] == [b"]"]


class ArrayWalker(Struct, dict=True):
    """Iterates over the elements of an array; `at` is the position, `closed` whether the end was read."""

    buffer: Buffer
    at: int
    losses: Losses
    lines: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        self.limit = len(self.buffer)

    def walk(self, end: int | None = None) -> Iterator[Chunk]:
        """The chunks up to the closing bracket; `end`: its position, if strict JSON has found it."""
        size, after_value = CHUNK_BYTES, False
        while not self._at_end(after_value):
            if self.buffer[self.at] == ord(","):
                if not after_value:
                    self.losses.repair(self.at, "a comma too many")
                self.at, after_value = self.at + 1, False
                continue
            if after_value and not self.lines:
                self.losses.repair(self.at, "a comma was missing")
            bulk = self._bulk(size, end) if size >= _BULK_LEAST else None
            if bulk is None and size >= _BULK_LEAST:
                size //= 8
                after_value = False
                continue
            chunk = bulk or self._element()
            size = min(max(size, 512) * 2, CHUNK_BYTES)
            after_value = chunk is not None
            if chunk is not None and chunk.events:
                yield chunk

    def _at_end(self, after_value: bool) -> bool:
        """Whether the array ends here; records misplaced characters at the end."""
        self.at = skip_whitespace(self.buffer, self.at)
        if self.at >= self.limit:
            self.closed = self.lines
            return True
        if self.lines or self.buffer[self.at] != ord("]"):
            return False
        if _ARRAY_GOES_ON.match(self.buffer, self.at):
            self.losses.lose(self.at, self.at + 1, None, "a closing bracket in the middle of the events")
            self.at += 1
            return self._at_end(True)
        if not after_value and self._comma_before():
            self.losses.repair(self.at, "a comma before the closing bracket")
        self.at += 1
        self.closed = True
        return True

    def _comma_before(self) -> bool:
        before = self.at - 1
        while before > 0 and self.buffer[before] in b" \t\r\n":
            before -= 1
        return self.buffer[before] == ord(",")

    def _bulk(self, size: int, end: int | None) -> Chunk | None:
        if self.lines:
            return self._bulk_lines(size)
        limit = self.limit if end is None else end - 1
        cut_off = cut(self.buffer, self.at, limit, size, last=end is not None)
        if cut_off is None or (end is None and _STRAY_BRACKET.search(cut_off[1].array)):
            return None
        self.at, chunk = cut_off
        return chunk

    def _bulk_lines(self, size: int) -> Chunk | None:
        stop = self.buffer.rfind(b"\n", self.at, self.at + size)
        lines = [
            line for line in bytes(self.buffer[self.at : max(stop, self.at)]).split(b"\n") if line.strip()
        ]
        array = b"[" + b",".join(lines) + b"]"
        events = elements(array) if lines else None
        if events is None or len(events) != len(lines) or not is_utf8(array):
            return None
        self.at = stop + 1
        return Chunk(array, len(events))

    def _element(self) -> Chunk | None:
        """The current element, verbatim or repaired; None if it is lost."""
        start = self.at
        next_event = (_LINE_START if self.lines else EVENT_START).search(self.buffer, start, self.limit)
        next_start = next_event.start(1) if next_event else None
        stop, in_list = _scan(self.buffer, start, next_start or self.limit)
        if in_list and next_start is not None:
            # The apparent next event may be an item of a list in this element.
            stop = value_end(self.buffer, start, min(start + _LIST_MOST, self.limit))
        if stop is not None and (chunk := self._read_element(start, stop, next_start)) is not None:
            return chunk
        return self._broken(start, next_start)

    def _read_element(self, start: int, stop: int, next_start: int | None) -> Chunk | None:
        """The element in these bytes if it is valid, or repairable and contains no other event."""
        raw = bytes(self.buffer[start:stop])
        is_alone = next_start is None or stop <= next_start
        inside = is_alone or raw[:1] == b"{" or _LIST_FOLLOWS.match(self.buffer, stop)
        minified = minify(raw) if inside else None
        if minified is not None and (raw[:1] == b"{" or _FOLLOWS.match(self.buffer, stop)):
            self.at = stop
            return Chunk(b"[" + minified + b"]", 1)
        repaired = repair(raw) if is_alone and raw[:1] in _CONTAINERS else None
        if repaired is None:
            return None
        self.losses.repair(start, *repaired[1])
        self.at = stop
        return Chunk(b"[" + repaired[0] + b"]", 1, (0,))

    def _broken(self, start: int, next_start: int | None) -> Chunk | None:
        """An incomplete element: tries all bytes up to the next element, then records them as lost."""
        if next_start is None:
            return self._broken_last(start)
        stop = start + len(bytes(self.buffer[start:next_start]).rstrip(b" \t\r\n,"))
        if stop > start and (chunk := self._read_element(start, stop, next_start)) is not None:
            return chunk
        lost = bytes(self.buffer[start:next_start])
        events = 0 if not _WORD.search(lost) else 1 if lost.count(b'"ph"') == 1 else None
        self.losses.lose(
            start, next_start, events, "an event that cannot be read" if events != 0 else "stray signs"
        )
        self.at = next_start
        return None

    def _broken_last(self, start: int) -> Chunk | None:
        """The last element, incomplete: the array closes after it, or the text ends inside it."""
        if (close := _ARRAY_END.search(self.buffer, start)) is not None:
            self.losses.lose(start, close.start(1), None, "an event that cannot be read")
            self.at = close.start(1)
            return None
        self.losses.lose(start, self.limit, None, "the text ends inside an event; what followed is missing")
        self.at = self.limit
        return None
