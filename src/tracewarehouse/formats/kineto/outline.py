"""Whole, strict JSON: the bounds of header and event array, and chunks whose cuts are proved.

A chunk ends at a `}` before a comma. It is right if `[chunk]` is a JSON array of its own: a cut inside
a string or a nested value leaves something open, which strict JSON refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import pyarrow as pa

from tracewarehouse.formats.json_text import elements, is_utf8, minify
from tracewarehouse.formats.unpack import Buffer

Proved = TypeVar("Proved")

CHUNK_BYTES = 4 << 20
EVENTS_KEY = "traceEvents"

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BETWEEN_MEMBERS = re.compile(rb'\s*[,{]\s*"(?:[^"\\]|\\.)*"\s*:\s*', re.DOTALL)
_CUT_TRIES = 8


@dataclass(frozen=True)
class Chunk:
    """A JSON array of consecutive events; `repaired` are the positions in it that are not verbatim."""

    array: bytes
    events: int
    repaired: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outline:
    """A whole document: its members but the events as (key, minified text), and the array's bounds."""

    members: tuple[tuple[str, bytes], ...]
    events: tuple[int, int] | None
    is_list: bool = False


def outline(buffer: Buffer) -> Outline | None:
    """Header and bounds of the event array; None where strict JSON refuses or a key comes twice."""
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
    header = []
    for key, raw in members.items():
        if key != EVENTS_KEY:
            if (small := minify(bytes(raw))) is None:
                return None
            header.append((key, small))
    return Outline(tuple(header), places.get(EVENTS_KEY))


def _each_key_once(buffer: Buffer, places: list[tuple[int, int]]) -> bool:
    """A key that comes twice leaves its first value between two members."""
    at = 0
    for start, end in places:
        match = _BETWEEN_MEMBERS.match(buffer, at, start)
        if match is None or match.end() != start:
            return False
        at = end
    return True


def _bounds(buffer: Buffer, raw: msgspec.Raw) -> tuple[int, int]:
    start = pa.py_buffer(raw).address - pa.py_buffer(buffer).address
    return start, start + len(memoryview(raw))


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
