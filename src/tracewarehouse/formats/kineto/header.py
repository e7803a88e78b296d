"""The header of a trace: all top-level keys except the events, and the facts in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa

from tracewarehouse.formats.file_text import Buffer
from tracewarehouse.formats.json_text import deep_members, is_utf8, minify, quote, unquote

MAX_RANK: Final = 999_999
# First value in ns that exceeds 64 bits: year 2262.
_TOO_LATE: Final = 2**63
EVENTS_START: Final = re.compile(rb'"traceEvents"\s*:\s*\[')

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


def rank_of(members: Members) -> int | None:
    """The rank in `distributedInfo`, if any."""
    rank = _count(_distributed(members).get("rank"))
    return rank if rank is not None and rank <= MAX_RANK else None


def world_size_of(members: Members) -> int | None:
    """The world size in `distributedInfo`, if any."""
    return _count(_distributed(members).get("world_size"))


def members_before(text: bytes) -> dict[str, bytes] | None:
    """The members of a document that ends with an empty list of events; None if it is not strict JSON."""
    found = _pairs(text)
    if found is None or not found or found[-1] != (EVENTS_KEY, b"[]"):
        return None
    return dict(found[:-1])


def members_after(text: bytes) -> dict[str, bytes] | None:
    """The members after the events; `text` starts with the closing `]`. None if it is not strict JSON."""
    found = _pairs(_REST_HEAD + text)
    if found is None or found[0] != (EVENTS_KEY, b"[]"):
        return None
    return dict(found[1:])


def _pairs(text: bytes) -> list[tuple[str, bytes]] | None:
    """Keys and minified values of an object; None if it is not strict JSON or a key is repeated."""
    found = outline(text)
    if found is not None and found.events is not None:
        start, end = found.events
        events = (EVENTS_KEY, text[start:end])
        return [*found.members, events] if end == len(text) - 1 else [events, *found.members]
    if text.count(b"[") + text.count(b"{") < _DEEP:
        return None
    deep = deep_members(text)
    if deep is None or not is_utf8(text):
        return None
    pairs = [(unquote(key.decode()), value) for key, value in deep]
    return pairs if len({key for key, _ in pairs}) == len(pairs) else None


def head_members(head: bytes) -> dict[str, bytes]:
    """The members before the events; empty if the events do not start in `head`."""
    for start in EVENTS_START.finditer(head):
        if (found := members_before(head[: start.end()] + b"]}")) is not None:
            return found
    return {}


def _distributed(members: Members) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(members.get("distributedInfo", b"null"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: object) -> int | None:
    """A non-negative integer written as a number or string; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


EVENTS_KEY = "traceEvents"

_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BETWEEN_MEMBERS = re.compile(rb'\s*[,{]\s*"(?:[^"\\]|\\.)*"\s*:\s*', re.DOTALL)


@dataclass(frozen=True)
class Outline:
    """A complete document: its members except the events as (key, minified text), and the array bounds."""

    members: tuple[tuple[str, bytes], ...]
    events: tuple[int, int] | None
    is_list: bool = False


def outline(buffer: Buffer) -> Outline | None:
    """Header and bounds of the event array; None if the text is not strict JSON or a key is repeated."""
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
    """Whether no key is repeated: the first value of a repeated key would lie between two members."""
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
