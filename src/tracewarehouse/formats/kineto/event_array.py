"""Whole, strict JSON: the bounds of header and event array, and chunks whose cuts are proved.

A chunk ends at a `}` before a comma. It is right if `[chunk]` is a JSON array of its own: a cut inside
a string or a nested value leaves something open, which strict JSON refuses.


The event array, in bulk where it is sound and event by event where it is not.

It knows three states: a proved chunk, an element that stands alone, and a place where nothing fits. There
it goes on at the next thing that looks like the start of an event, and tells what lies between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tracewarehouse.formats.file_text import Buffer
from tracewarehouse.formats.json_text import elements, is_utf8, minify
from tracewarehouse.formats.kineto.repair import Losses, repair

Proved = TypeVar("Proved")

CHUNK_BYTES = 4 << 20
_CUT_TRIES = 8


@dataclass(frozen=True)
class Chunk:
    """A JSON array of consecutive events; `repaired` are the positions in it that are not verbatim."""

    array: bytes
    events: int
    repaired: tuple[int, ...] = ()


def cut(buffer: Buffer, at: int, end: int, size: int, *, last: bool) -> tuple[int, Chunk] | None:
    """One proved chunk from `at`: where its comma stands, and the chunk; `last`: `end` closes the array."""
    while True:
        stop = at + size
        if stop >= end:
            return _whole(buffer, at, end) if last else cut_before(buffer, at, end, prove)
        if (found := cut_before(buffer, at, stop, prove)) is not None:
            return found
        if not last:
            return None
        size *= 4


def cut_before(
    buffer: Buffer, at: int, stop: int, prove: Callable[[bytes], Proved | None]
) -> tuple[int, Proved] | None:
    """Where the last comma before `stop` stands up to which all is events, and what `prove` makes of them."""
    for _ in range(_CUT_TRIES):
        comma = _last_cut(buffer, at, stop)
        if comma is None:
            return None
        if (found := prove(_array(buffer, at, comma))) is not None:
            return comma, found
        stop = comma
    return None


def _last_cut(buffer: Buffer, at: int, stop: int) -> int | None:
    """The last comma before `stop` that follows a closing bracket."""
    while (comma := buffer.rfind(b",", at, stop)) >= 0:
        before = comma - 1
        while before > at and buffer[before] in b" \t\r\n":
            before -= 1
        if buffer[before] in b"}]":
            return comma
        stop = comma
    return None


def prove(array: bytes) -> Chunk | None:
    """The chunk, if it is strict JSON and UTF-8."""
    found = elements(array)
    return Chunk(array, len(found)) if found is not None and is_utf8(array) else None


def _whole(buffer: Buffer, at: int, end: int) -> tuple[int, Chunk] | None:
    found = prove(_array(buffer, at, end))
    return (end, found) if found is not None else None


def _array(buffer: Buffer, at: int, stop: int) -> bytes:
    return b"[" + bytes(memoryview(buffer)[at:stop]) + b"]"


_EVENT_KEYS = rb'"(?:ph|name|cat|pid|tid|ts|dur|id|args|bp|s)"\s*:'
# Not after a colon: there it is a value inside an event.
EVENT_START = re.compile(rb"[^:\s]\s*(\{\s*" + _EVENT_KEYS + rb")")
_ARRAY_GOES_ON = re.compile(rb"\]\s*,?\s*\{\s*" + _EVENT_KEYS)
_ARRAY_END = re.compile(rb'[}\]]\s*(\])\s*(?:,\s*"|\}|$)')
_STRAY_BRACKET = re.compile(rb"[\[,]\s*\[\s*\{\s*" + _EVENT_KEYS)
_WORD = re.compile(rb"[A-Za-z0-9]")
_FOLLOWS = re.compile(rb"\s*(?:[,\]]|$)")
# After a stray bracket the list would end with the array: a header key or nothing follows.
_LIST_FOLLOWS = re.compile(rb'\s*(?:,\s*[^"\s]|\])')
_LINE_START = re.compile(rb"\n\s*(\{)")
_BLANKS = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_SCALAR = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s,:{}\[\]"]+', re.DOTALL)
_CLOSER = {b"{": b"}", b"[": b"]"}
# An element with a list of things that look like events is read up to this length, when not in bulk.
_LIST_MOST = 1 << 22
_BULK_LEAST = 4096
_CONTAINERS = (b"{", b"[")


def skip_blanks(buffer: Buffer, at: int) -> int:
    """The next byte that is no blank."""
    found = _BLANKS.match(buffer, at)
    return found.end() if found else at


def value_end(buffer: Buffer, at: int, limit: int) -> int | None:
    """Where the JSON value at `at` ends, by its brackets and quotes; None if it does not before `limit`."""
    return _scan(buffer, at, limit)[0]


def _scan(buffer: Buffer, at: int, limit: int) -> tuple[int | None, bool]:
    """Where the value at `at` ends, and, where it does not, whether `limit` stands inside a list of it."""
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
    """Walks over the elements of an array; `at` is where it stands, `closed` whether it met the end."""

    def __init__(self, buffer: Buffer, at: int, losses: Losses, step: int, *, lines: bool = False) -> None:
        self.buffer = buffer
        self.at = at
        self.losses = losses
        self.step = step
        self.lines = lines
        self.closed = False
        self.limit = len(buffer)

    def walk(self, end: int | None = None) -> Iterator[Chunk]:
        """The chunks up to the closing bracket; `end`: where strict JSON has found it."""
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
        """Whether nothing more follows; tells what stands at the end that should not."""
        self.at = skip_blanks(self.buffer, self.at)
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
        """The element at hand, as it is or repaired; None where it is lost."""
        start = self.at
        next_start = self._next_start(start + 1, self.limit)
        stop, in_list = _scan(self.buffer, start, next_start or self.limit)
        if in_list and next_start is not None:
            # What looks like the next event may be an item of a list in this one.
            stop = value_end(self.buffer, start, min(start + _LIST_MOST, self.limit))
        if stop is not None and (chunk := self._sound(start, stop, next_start)) is not None:
            return chunk
        return self._broken_last(start) if next_start is None else self._broken(start, next_start)

    def _sound(self, start: int, stop: int, next_start: int | None) -> Chunk | None:
        """The element in these bytes, if it can stand; repaired only where it holds no other event."""
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
        """An element that does not stand alone: all up to the next one is tried, then given up."""
        if next_start is None:
            return self._broken_last(start)
        stop = start + len(bytes(self.buffer[start:next_start]).rstrip(b" \t\r\n,"))
        if stop > start and (chunk := self._sound(start, stop, next_start)) is not None:
            return chunk
        lost = bytes(self.buffer[start:next_start])
        events = 0 if not _WORD.search(lost) else 1 if lost.count(b'"ph"') == 1 else None
        self.losses.lose(
            start, next_start, events, "an event that cannot be read" if events != 0 else "stray signs"
        )
        self.at = next_start
        return None

    def _broken_last(self, start: int) -> Chunk | None:
        """No event follows: either the array closes after this, or the text ends inside it."""
        if (close := _ARRAY_END.search(self.buffer, start)) is not None:
            self.losses.lose(start, close.start(1), None, "an event that cannot be read")
            self.at = close.start(1)
            return None
        self.losses.lose(start, self.limit, None, "the text ends inside an event; what followed is missing")
        self.at = self.limit
        return None
