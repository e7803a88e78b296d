"""Writes profiles of JAX (XSpace messages) from planes of lines and events, and reads them field by field."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Value = int | float | str | bytes


class Event(NamedTuple):
    """An event: its name, start and duration in ps, and statistics. A text `ref:x` refers to a name."""

    name: str
    offset_ps: int
    dur_ps: int
    stats: Mapping[str, Value] = {}


class Line(NamedTuple):
    """A line: its id, name and start in ns, and its events."""

    id: int
    name: str
    start_ns: int
    events: Sequence[Event]


class Plane(NamedTuple):
    """A plane: its name, lines and statistics; `names` has a display name and statistics of names."""

    name: str
    lines: Sequence[Line] = ()
    stats: Mapping[str, Value] = {}
    names: Mapping[str, tuple[str, Mapping[str, Value]]] = {}


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def field(number: int, value: int | float | bytes | str) -> bytes:
    """A field: a number, a double or content with a length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def xspace(*planes: Plane, hosts: Sequence[str] = ("node7",)) -> bytes:
    """The bytes of a profile."""
    return b"".join([*(field(1, _plane(plane)) for plane in planes), *(field(4, host) for host in hosts)])


def _plane(plane: Plane) -> bytes:
    stats: dict[str, int] = defaultdict(lambda: len(stats) + 1)
    names: dict[str, int] = defaultdict(lambda: len(names) + 1)
    lines = [field(3, _line(line, names, stats)) for line in plane.lines]
    entries = []
    for name, number in list(names.items()):
        display, of_name = plane.names.get(name, ("", {}))
        text = field(1, number) + field(2, name) + (field(4, display) if display else b"")
        entries.append(field(4, field(1, number) + field(2, text + _stats(5, of_name, stats))))
    own = _stats(6, plane.stats, stats)
    known = [
        field(5, field(1, number) + field(2, field(1, number) + field(2, name)))
        for name, number in stats.items()
    ]
    return field(2, plane.name) + b"".join([*lines, *entries, *known]) + own


def _line(line: Line, names: dict[str, int], stats: dict[str, int]) -> bytes:
    head = field(1, line.id) + field(2, line.name) + field(3, line.start_ns)
    return head + b"".join(
        field(
            4,
            field(1, names[event.name])
            + field(2, event.offset_ps)
            + field(3, event.dur_ps)
            + _stats(4, event.stats, stats),
        )
        for event in line.events
    )


def _stats(number: int, values: Mapping[str, Value], stats: dict[str, int]) -> bytes:
    return b"".join(
        field(number, field(1, stats[name]) + _value(value, stats)) for name, value in values.items()
    )


def _value(value: Value, stats: dict[str, int]) -> bytes:
    if isinstance(value, float):
        return field(2, value)
    if isinstance(value, bytes):
        return field(6, value)
    if isinstance(value, str):
        return field(7, stats[value[4:]]) if value.startswith("ref:") else field(5, value)
    return field(4, value)


def events_in(content: bytes) -> Iterator[tuple[str, str, str, int, int, dict[str, Any]]]:
    """Plane, line, name, start and end in ns, and statistics of each event, read one by one."""
    for plane in _messages(content)[1]:
        parts = _messages(plane)
        stats = {key: _text(value, 2) for key, value in _table(parts[5])}
        names = {key: _text(value, 2) for key, value in _table(parts[4])}
        for line in map(_messages, parts[3]):
            for event in map(_messages, line[4]):
                start = line[3][-1] if line[3] else 0
                offset, dur = (event[at][-1] if event[at] else 0 for at in (2, 3))
                found = {}
                for stat in map(_messages, event[4]):
                    (value,) = ((at, each[-1]) for at, each in stat.items() if at > 1 and each)
                    found[stats[stat[1][-1]]] = stats[value[1]] if value[0] == 7 else value[1]
                yield (
                    parts[2][-1].decode(),
                    line[2][-1].decode(),
                    names[event[1][-1]],
                    start + offset // 1000,
                    start + (offset + dur) // 1000,
                    found,
                )


def _table(entries: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    for entry in map(_messages, entries):
        yield (entry[1][-1] if entry[1] else 0), entry[2][-1]


def _text(content: bytes, number: int) -> str:
    found = _messages(content)[number]
    return str(found[-1].decode()) if found else ""


def _messages(content: bytes) -> dict[int, list[Any]]:
    """The values of each field of a message."""
    found: dict[int, list[Any]] = defaultdict(list)
    at = 0
    while at < len(content):
        key, at = _number(content, at)
        if key & 7 == 0:
            value, at = _number(content, at)
            found[key >> 3].append(value)
        else:
            size, at = _number(content, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            found[key >> 3].append(content[at : at + size])
            at += size
    return found


def _number(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while content[at] > 127:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return value | content[at] << shift, at + 1
