"""Profiles of JAX and XLA (`.xplane.pb`): an XSpace message of planes, with one part per device.

Messages are decoded by field number, all events of a part at once. A plane has lines of events, and names
its events and their statistics in two tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, PartFormat, once_per_file
from tracewarehouse.formats.file_text import read_text
from tracewarehouse.formats.mapped import arrow_table, contract_of, map_tables
from tracewarehouse.formats.protobuf import Fields, Wire, by_name, decoded
from tracewarehouse.formats.source_tables import TextSource, counted, stacked, to_ints
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tracewarehouse.formats.file_text import Text

    Numbers = NDArray[np.int64]


NAME: Final = "xplane"
_HINT: Final = "copy the file again, or record it again with jax.profiler.trace"
_SUFFIX: Final = late_regex(r"\.xplane\.pb(?:\.gz|\.zst)?$")
# The size of the first plane, its id if it has one, and its name.
_FIRST_PLANE: Final = late_regex(
    rb"\n[\x80-\xff]*[\0-\x7f](?:\x08[\x80-\xff]*[\0-\x7f])*\x12(?=[\0-\xff]{17})"
    rb"(?P<known>\x10Task Environment|[\x80-\xff]*[\0-\x7f]/(?:host|device):)?"
)
_DEVICE: Final = late_regex(r"/device:(GPU|TPU):(\d{1,6})(?!\d)")
_HOST: Final = "/host:"
_METADATA: Final = "/host:metadata"
_TASK: Final = "Task Environment"
# Fields of the messages, by their numbers in xplane.proto.
_PLANE, _HOSTNAME = 1, 4
_NAMED, _LINES, _EVENT_NAMES, _STAT_NAMES, _PLANE_STATS = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_NS, _EVENTS, _LINE_DISPLAY_NAME = 1, 2, 3, 4, 11
_METADATA_ID, _OFFSET_PS, _DURATION_PS, _STATS, _OCCURRENCES = 1, 2, 3, 4, 5
_DISPLAY_NAME, _METADATA_STATS = 4, 5
_DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _BYTES, _REFERENCE = 2, 3, 4, 5, 6, 7
# Larger files are not profiles.
_MOST_PLANES: Final = 500
_MOST_DEVICES: Final = 64
_MOST_RATIO: Final = 30
_MANY_BYTES: Final = 16 << 20
_MOST_LINES: Final = 20_000
_MOST_NAMES: Final = 250_000
_MOST_EVENTS: Final = 20_000_000
_MOST_STATS: Final = 200
_LONGEST_NAME: Final = 64
# Names are repeated for each event: this many bytes per byte of the file at most.
_MOST_REPEATED: Final = 40
_BATCH_BYTES: Final = 2 << 20
_EVENT_BYTES: Final = 32
# Later times count from the epoch; smaller ones from the start of the profile.
_ABSOLUTE_NS: Final = 10**17
_PS: Final = 1_000
# Statistic of a device → Kineto's key.
_PROPERTIES: Final = {
    "memory_size": "totalGlobalMem", "core_count": "numSms", "compute_cap_major": "computeMajor",
    "compute_cap_minor": "computeMinor", "memory_bandwidth": "memoryBandwidth", "clock_rate": "clockRate",
}  # fmt: skip


class _Names(NamedTuple):
    """A table of a plane: ids, a name and another name of each, and their statistics."""

    ids: Numbers
    names: pa.Array
    others: pa.Array
    stats: Fields

    def places(self, ids: Numbers) -> pa.Array:
        """The first place of each id in the table; null if it is not there."""
        return pc.index_in(pa.array(ids), pa.array(self.ids))


class _Plane(Struct, dict=True):
    """A plane, whose events are not read yet."""

    wire: Wire
    fields: Fields

    @cached_property
    def name(self) -> str:
        """The name; it may be empty."""
        return self.wire.texts_of(self.fields.of(_NAMED), 1)[0].as_py() or ""

    @property
    def device(self) -> tuple[str, int] | None:
        """GPU or TPU, and its number."""
        found = _DEVICE.match(self.name)
        return (found[1], int(found[2])) if found else None

    def texts(self, fields: Fields, number: int, count: int) -> pa.Array:
        """The text of a field in each of `count` messages; null if it is empty."""
        texts = self.wire.texts_of(fields.of(number), count)
        return pc.if_else(pc.equal(texts, ""), None, texts)

    def table(self, number: int) -> _Names:
        """A table of names, of events or of statistics."""
        entries = self.fields.of(number).at_most(_MOST_NAMES, "names")
        values = self.wire.fields(entries).of(_NAMED)
        fields, count = self.wire.fields(values), len(values.start)
        names, others = (self.texts(fields, each, count) for each in (_NAMED, _DISPLAY_NAME))
        return _Names(fields.last(_METADATA_ID, count), names, others, fields.of(_METADATA_STATS))

    def stats(self) -> dict[str, Any]:
        """The statistics of the plane itself."""
        found = _stat_columns(self.wire, self.fields.of(_PLANE_STATS), 1, self.table(_STAT_NAMES))
        return {name: value for name, column in found.items() if (value := column[0].as_py()) is not None}


def _stat_columns(wire: Wire, given: Fields, rows: int, names: _Names) -> dict[str, pa.Array]:
    """A column for each name of statistics: numbers if all values are, else texts; none for bytes."""
    fields, count = wire.fields(given), len(given.start)
    references = fields.last(_REFERENCE, count, -1)
    texts = wire.named(fields.of(_TEXT), references, names.ids, names.names)
    integers = fields.values(count, _UNSIGNED, _SIGNED)
    doubles = fields.values(count, _DOUBLE).view(pa.float64())
    ids = fields.last(_METADATA_ID, count)
    found = dict(by_name(ids, given.message, rows, (texts, integers, doubles)))
    words = names.names.take(names.places(np.array([*found], np.int64))).to_pylist()
    return {
        word if word and word.isprintable() and len(word) <= _LONGEST_NAME else f"stat {id_}": column
        for (id_, column), word in zip(found.items(), words, strict=True)
    }


def _events(plane: _Plane, offset_ns: int) -> Iterator[dict[str, pa.Array]]:
    """The events of a plane in batches of columns; `offset_ns` is added to times that are relative."""
    wire, (kind, ordinal) = plane.wire, plane.device or (None, None)
    event_names, stat_names = plane.table(_EVENT_NAMES), plane.table(_STAT_NAMES)
    of_names = _stat_columns(wire, event_names.stats, len(event_names.ids), stat_names)
    ids, texts, starts, events = _lines(plane, offset_ns)
    shown = pc.coalesce(event_names.others, event_names.names)
    full = pc.if_else(pc.equal(shown, event_names.names), None, event_names.names)
    texts, shown, full = (each.dictionary_encode() for each in (texts, shown, full))
    # Events that are read together have few bytes: their fields take much more memory.
    read = np.cumsum(events.end - events.start + _EVENT_BYTES) // _BATCH_BYTES
    edges = [0, *(np.flatnonzero(np.diff(read)) + 1).tolist(), len(read)]
    for first, last in pairwise(edges) if len(read) else ():
        some = events.at(slice(first, last))
        fields, rows, line = wire.fields(some), len(some.start), some.message
        place = event_names.places(fields.last(_METADATA_ID, rows))
        offset_ps, dur_ps = fields.last(_OFFSET_PS, rows), fields.last(_DURATION_PS, rows)
        begin, end = starts[line] + offset_ps // _PS, starts[line] + (offset_ps + dur_ps) // _PS
        count = pa.array(fields.last(_OCCURRENCES, rows, -1))
        is_timed = pc.less(count, 0)
        columns = {
            "plane.name": pa.repeat(plane.name, rows),
            "plane.device": pa.repeat(pa.scalar(kind, pa.string()), rows),
            "plane.ordinal": pa.repeat(pa.scalar(ordinal, pa.int64()), rows),
            "line.id": pa.array(ids[line]),
            "line.name": texts.take(pa.array(line)),
            "event.name": shown.take(place),
            "event.metadata_name": full.take(place),
            "event.start_ns": pc.if_else(is_timed, pa.array(begin), None),
            "event.end_ns": pc.if_else(is_timed, pa.array(end), None),
            "event.occurrences": pc.if_else(is_timed, None, count),
            **_stat_columns(wire, fields.of(_STATS), rows, stat_names),
        }
        for stat, column in of_names.items():
            own, found = columns.get(stat), column.take(place)
            if own is not None and own.type == found.type == pa.int64():
                found = pc.coalesce(own, found)
            elif own is not None:
                found = pc.coalesce(own.cast(pa.string()), found.cast(pa.string()))
            columns[stat] = found
        yield {name: wire.encoded(column) for name, column in columns.items()}


def _lines(plane: _Plane, offset_ns: int) -> tuple[Numbers, pa.Array, Numbers, Fields]:
    """The id, name and start of each line, and the events of all lines, of which `message` is the line."""
    lines = plane.fields.of(_LINES).at_most(_MOST_LINES, "lines")
    fields, count = plane.wire.children(lines), len(lines.start)
    events, starts = fields.of(_EVENTS).at_most(_MOST_EVENTS, "events"), fields.last(_LINE_NS, count)
    starts += np.where(np.abs(starts) < _ABSOLUTE_NS, offset_ns, 0)
    names = (plane.texts(fields, each, count) for each in (_LINE_DISPLAY_NAME, _LINE_NAME))
    return fields.last(_LINE_ID, count), pc.coalesce(*names), starts, events


class _Content(Struct, dict=True):
    """The planes of a file, and the names of its hosts."""

    planes: list[_Plane]
    hosts: list[str]

    def devices(self) -> list[tuple[str, int]]:
        """The devices, in order."""
        return sorted({plane.device for plane in self.planes if plane.device})

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the planes without events say about the file."""
        found: dict[str, Any] = {}
        for plane in self.planes:
            if plane.name in (_TASK, _METADATA):
                found |= plane.stats()
        return found


@contextmanager
def _decoded(path: Path, text: Text) -> Iterator[_Content]:
    """The planes of a file. Raises TraceFormatError, also for what is damaged in them."""
    with decoded(text, "XSpace", _HINT, _MOST_REPEATED) as wire:
        if text.size > max(_MANY_BYTES, _MOST_RATIO * text.stored_bytes):
            raise TraceFormatError(path, f"unpacks to more than {_MOST_RATIO} times its size", hint=_HINT)
        top = wire.children(wire.whole())
        found, hosts = top.of(_PLANE).at_most(_MOST_PLANES, "planes"), top.of(_HOSTNAME)
        places = range(len(found.start))
        planes = [_Plane(wire, wire.children(found.at(slice(at, at + 1)))) for at in places]
        yield _Content(planes, wire.texts(hosts.start, hosts.end).to_pylist())


@once_per_file
def _parts(path: Path) -> tuple[Part, ...]:
    with _decoded(path, read_text(path, keep=True)) as content:
        if not content.planes:
            raise TraceFormatError(path, "the file contains no plane", hint=_HINT)
        devices = content.devices()
        if len(devices) > _MOST_DEVICES:
            raise TraceFormatError(path, f"the file contains more than {_MOST_DEVICES} devices", hint=_HINT)
        first, processes = _first_rank(path, content, max(len(devices), 1))
    if processes == 1 and len(devices) < 2:
        return (Part(),)
    labels = [f"{kind}:{number}" for kind, number in devices] or ["host"]
    return tuple(Part(label, rank=first + at) for at, label in enumerate(labels))


def _first_rank(path: Path, content: _Content, devices: int) -> tuple[int, int]:
    """The rank of the first device, by the number of the process, else by that of its host in the folder.

    The second number is that of the processes that are known.
    """
    process = content.facts.get("process_index")
    if isinstance(process, int):
        return process * devices, process + 2
    hosts = [path.name]
    if path.parent.parent.name == "profile" and _SUFFIX.search(path.name):
        hosts = sorted(each.name for each in path.parent.iterdir() if _SUFFIX.search(each.name))
    return hosts.index(path.name) * devices, len(hosts)


class XplaneSource(TextSource):
    """A Source with the events of one device. The constructor reads the file."""

    def _read(self) -> None:
        with _decoded(self._path, self._take_text()) as content:
            self._facts_of_file, self._hosts = content.facts, content.hosts
            start_ns = content.facts.get("profile_start_time")
            self.base_time_ns = start_ns if isinstance(start_ns, int) else 0
            self._add(content)
        if not self._rows.rows:
            raise TraceFormatError(self._path, "the file contains no events", hint=_HINT)
        if not self.base_time_ns:
            self._notes.add("clock_not_utc", 1, "the file does not say when the profile started")
        if self._part.rank is not None and "process_index" not in content.facts:
            reason = f"{self._part.name} is rank {self._part.rank} by its number and the order of hosts"
            self._notes.add("rank_assumed", 1, reason)

    def _add(self, content: _Content) -> None:
        """Adds the activities of the device."""
        devices = content.devices()
        named = [each for each in devices if "{}:{}".format(*each) == self._part.name]
        own = next(iter(named or devices), None)
        planes = [plane for plane in content.planes if plane.device and plane.device == own]
        self._properties = [_properties(plane) for plane in planes[:1]]
        is_first = devices[:1] == [own] or own is None
        tables, unread = _tables(content.planes, own, is_first, self.base_time_ns)
        contract = contract_of(NAME)
        readers = {one.name: arrow_table(one, NAME, tables[one.name]) for one in contract.raw_tables}
        params = {"pid": str(content.facts.get("process_id", 0)), "is_first": is_first}
        map_tables(contract, readers, params, self._rows, self._notes)
        for example in unread:
            self._notes.add("table_not_read", 1, example)

    def _header(self) -> dict[str, Any]:
        known = {
            "host_name": next(iter(self._hosts), None),
            "framework_version": self._facts_of_file.get("jax_version"),
            "deviceProperties": self._properties,
        }
        return {NAME: self._facts_of_file} | {key: each for key, each in known.items() if each}

    def _facts(self) -> Mapping[str, object]:
        # A device may be idle for a while after the profiler starts.
        start = {"recorded_from_ns": self.base_time_ns} if self.base_time_ns else {}
        return {"clock": "utc" if start else "unknown", "framework": "jax", **start}


def _properties(plane: _Plane) -> dict[str, Any]:
    """The properties of a device, with Kineto's keys."""
    stats = plane.stats()
    names = (stats.get(key) for key in ("device_type_string", "device_name", "device_vendor"))
    found = {"id": plane.device[1] if plane.device else None, "name": next(filter(None, names), None)}
    return found | {key: stats[name] for name, key in _PROPERTIES.items() if name in stats}


def _tables(
    planes: list[_Plane], own: tuple[str, int] | None, is_first: bool, start_ns: int
) -> tuple[dict[str, pa.Table], list[str]]:
    """The tables of the contract for one device: events of it and the host, and calls for other devices.

    The texts say what is not read.
    """
    batches: list[dict[str, pa.Array]] = []
    elsewhere: list[pa.Array] = []
    unread: list[str] = []
    # Names that differ in nothing but case → the one that is read.
    names: dict[str, str | None] = {}
    others: dict[str, None] = {}
    for plane in planes:
        if plane.device is None and not plane.name.startswith(_HOST):
            if lines := len(plane.fields.of(_LINES).start):
                unread.append(f"{plane.name}: {counted(lines, 'line')}")
        elif plane.device in (own, None):
            for columns in _events(plane, start_ns):
                for name in columns:
                    names.setdefault(name.casefold(), name if len(names) < _MOST_STATS else None)
                kept = {name: columns[name] for name in columns if names[name.casefold()] == name}
                others |= dict.fromkeys(f"statistic {name}" for name in columns if name not in kept)
                batches.append(kept)
        elif is_first:
            found = (each.get("correlation_id") for each in _events(plane, start_ns))
            elsewhere += (to_ints(each) for each in found if each)
    calls = pa.table({"correlation_id": pa.chunked_array(elsewhere, pa.int64())})
    return {"events": stacked(batches), "elsewhere": calls}, [*unread, *others]


class XplaneFormat(PartFormat):
    """A Format: a part per device."""

    name = NAME
    source = XplaneSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this begins with a plane, by its name, or has the name of a profile."""
        if found := _FIRST_PLANE.match(head):
            return found["known"] is not None
        return head[:1] == b"\n" and _SUFFIX.search(path.name) is not None

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The devices by kind and number; one part if there is none. Raises TraceFormatError."""
        return _parts(path)
