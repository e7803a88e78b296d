"""The elements of an event array: in large chunks where it is valid JSON, one by one where it is damaged.

A chunk ends at a closing bracket before a comma and is validated by parsing `[chunk]`: a split inside a
string or nested value would leave something open. Where no chunk is valid, single elements are read or
repaired. Where that fails, too, the walker resumes at the next position that looks like the start of an event
and records the bytes between as lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tracewarehouse.formats.file_text import Buffer
from tracewarehouse.formats.json_text import elements, is_utf8, minify
from tracewarehouse.formats.kineto.repair import Losses, repair

Valid = TypeVar("Valid")

CHUNK_BYTES = 4 << 20
_CUT_TRIES = 8


@dataclass(frozen=True)
class Chunk:
    """A JSON array of consecutive events; `repaired` are the positions of events that are not verbatim."""

    array: bytes
    events: int
    repaired: tuple[int, ...] = ()


def cut(buffer: Buffer, at: int, end: int, size: int, *, last: bool) -> tuple[int, Chunk] | None:
    """One valid chunk from `at`: the position of its comma, and the chunk; `last`: `end` closes the array."""
    while True:
        stop = at + size
        if stop >= end:
            return _whole(buffer, at, end) if last else cut_before(buffer, at, end, parse_chunk)
        if (found := cut_before(buffer, at, stop, parse_chunk)) is not None:
            return found
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
        if (found := validate(_array(buffer, at, comma))) is not None:
            return comma, found
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
    found = elements(array)
    return Chunk(array, len(found)) if found is not None and is_utf8(array) else None


def _whole(buffer: Buffer, at: int, end: int) -> tuple[int, Chunk] | None:
    found = parse_chunk(_array(buffer, at, end))
    return (end, found) if found is not None else None


def _array(buffer: Buffer, at: int, stop: int) -> bytes:
    return b"[" + bytes(memoryview(buffer)[at:stop]) + b"]"


_EVENT_KEYS = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s)"\s*:'
# Not after a colon, where it is a value inside an event.
EVENT_START = re.compile(rb"[^:\s]\s*(\{\s*" + _EVENT_KEYS + rb")")
_ARRAY_GOES_ON = re.compile(rb"\]\s*,?\s*\{\s*" + _EVENT_KEYS)
_ARRAY_END = re.compile(rb'[}\]]\s*(\])\s*(?:,\s*"|\}|$)')
_STRAY_BRACKET = re.compile(rb"[\[,]\s*\[\s*\{\s*" + _EVENT_KEYS)
_WORD = re.compile(rb"[A-Za-z0-9]")
_FOLLOWS = re.compile(rb"\s*(?:[,\]]|$)")
# After a stray bracket, the list would end with the array: a header key or nothing follows.
_LIST_FOLLOWS = re.compile(rb'\s*(?:,\s*[^"\s]|\])')
_LINE_START = re.compile(rb"\n\s*(\{)")
_WHITESPACE = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]"]+', re.DOTALL)
_CLOSER = {b"{": b"}", b"[": b"]"}
# Maximum length of a single element that contains a list of objects that look like events.
_LIST_MOST = 1 << 22
_BULK_LEAST = 4096
_CONTAINERS = (b"{", b"[")


def skip_whitespace(buffer: Buffer, at: int) -> int:
    """The position of the next byte that is not whitespace."""
    found = _WHITESPACE.match(buffer, at)
    return found.end() if found else at


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


class ArrayWalker:
    """Iterates over the elements of an array; `at` is the position, `closed` whether the end was read."""

    def __init__(self, buffer: Buffer, at: int, losses: Losses, step: int, *, lines: bool = False) -> None:
        self.buffer = buffer
        self.at = at
        self.losses = losses
        self.step = step
        self.lines = lines
        self.closed = False
        self.limit = len(buffer)

    def walk(self, end: int | None = None) -> Iterator[Chunk]:
        """The chunks up to the closing bracket; `end`: its position, if strict JSON has found it."""
        size, after_value = self.step, False
        while not self._at_end(after_value):
            if self.buffer[self.at] == ord(","):
                if not after_value:
                    self.losses.repair(self.at, "a comma too many")
                self.at, after_value = self.at + 1, False
                continue
            if after_value and not self.lines:
                self.losses.repair(self.at, "a comma was missing")
            found = self._bulk(size, end) if size >= _BULK_LEAST else None
            if found is None and size >= _BULK_LEAST:
                size //= 8
                after_value = False
                continue
            chunk = found or self._element()
            size = min(max(size, 512) * 2, self.step)
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
        found = cut(self.buffer, self.at, limit, size, last=end is not None)
        if found is None or (end is None and _STRAY_BRACKET.search(found[1].array)):
            return None
        self.at, chunk = found
        return chunk

    def _bulk_lines(self, size: int) -> Chunk | None:
        stop = self.buffer.rfind(b"\n", self.at, self.at + size)
        lines = [
            line for line in bytes(self.buffer[self.at : max(stop, self.at)]).split(b"\n") if line.strip()
        ]
        array = b"[" + b",".join(lines) + b"]"
        found = elements(array) if lines else None
        if found is None or len(found) != len(lines) or not is_utf8(array):
            return None
        self.at = stop + 1
        return Chunk(array, len(found))

    def _element(self) -> Chunk | None:
        """The current element, verbatim or repaired; None if it is lost."""
        start = self.at
        next_start = self._next_start(start + 1, self.limit)
        stop, in_list = _scan(self.buffer, start, next_start or self.limit)
        if in_list and next_start is not None:
            # The apparent next event may be an item of a list in this element.
            stop = value_end(self.buffer, start, min(start + _LIST_MOST, self.limit))
        if stop is not None and (chunk := self._read_element(start, stop, next_start)) is not None:
            return chunk
        return self._broken_last(start) if next_start is None else self._broken(start, next_start)

    def _read_element(self, start: int, stop: int, next_start: int | None) -> Chunk | None:
        """The element in these bytes if it is valid, or repairable and contains no other event."""
        raw = bytes(self.buffer[start:stop])
        alone = next_start is None or stop <= next_start
        inside = alone or raw[:1] == b"{" or _LIST_FOLLOWS.match(self.buffer, stop)
        small = minify(raw) if inside else None
        if small is not None and (raw[:1] == b"{" or _FOLLOWS.match(self.buffer, stop)):
            self.at = stop
            return Chunk(b"[" + small + b"]", 1)
        repaired = repair(raw) if alone and raw[:1] in _CONTAINERS else None
        if repaired is None:
            return None
        for reason in repaired[1]:
            self.losses.repair(start, reason)
        self.at = stop
        return Chunk(b"[" + repaired[0] + b"]", 1, (0,))

    def _next_start(self, at: int, limit: int) -> int | None:
        found = (_LINE_START if self.lines else EVENT_START).search(self.buffer, max(at - 1, 0), limit)
        return found.start(1) if found else None

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
