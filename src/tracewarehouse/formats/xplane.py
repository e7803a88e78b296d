"""Profiles of JAX and XLA (`.xplane.pb`): an XSpace message of planes, with one part per device.

Messages are decoded by field number, all events of a part at once. A plane has lines of events, and names
its events and their statistics in two tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, PartFormat, once_per_file
from tracewarehouse.formats.file_text import read_text
from tracewarehouse.formats.mapped import arrow_table, contract_of, map_tables
from tracewarehouse.formats.protobuf import LENGTH, DamagedError, Fields, Wire, by_row, field_at
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
_FIRST_FIELDS: Final = 4
_LONGEST_NAME: Final = 64
# Names are repeated for each event: this many bytes per byte of the file at most, in small files more.
_MOST_REPEATED: Final = 40
_LEAST_REPEATED: Final = 32 << 20
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


class _Plane(Struct):
    """A plane, whose events are not read yet."""

    wire: Wire
    name: str
    children: Fields

    @property
    def device(self) -> tuple[str, int] | None:
        """GPU or TPU, and its number."""
        found = _DEVICE.match(self.name)
        return (found[1], int(found[2])) if found else None

    def table(self, number: int) -> _Names:
        """A table of names, of events or of statistics."""
        entries = self.children.of(number)
        if len(entries.start) > _MOST_NAMES:
            raise DamagedError(int(entries.start[0]), f"more than {_MOST_NAMES:,} names")
        values = self.wire.fields(entries).of(_NAMED)
        count = len(values.start)
        of_values = self.wire.fields(values)
        texts = (self.wire.texts_of(of_values.of(each), count) for each in (_NAMED, _DISPLAY_NAME))
        names, others = (pc.if_else(pc.equal(each, ""), None, each) for each in texts)
        if number == _STAT_NAMES:
            others = pa.nulls(count, pa.string())
        ids = of_values.last(_METADATA_ID, count)
        return _Names(ids, names, others, of_values.of(_METADATA_STATS))

    def stats(self) -> dict[str, Any]:
        """The statistics of the plane itself."""
        given = self.children.of(_PLANE_STATS)
        found = _stat_columns(self.wire, given, 1, self.table(_STAT_NAMES))
        return {name: value for name, column in found.items() if (value := column[0].as_py()) is not None}


def _stat_columns(wire: Wire, given: Fields, rows: int, names: _Names) -> dict[str, pa.Array]:
    """A column for each name of statistics; of several values of a row the last."""
    fields = wire.fields(given)
    values = Fields(*(each[fields.number > _METADATA_ID] for each in fields))
    name_ids = fields.last(_METADATA_ID, len(given.start))[values.message]
    row = given.message[values.message]
    order = np.argsort(name_ids, kind="stable")
    ids, first = np.unique(name_ids[order], return_index=True)
    texts = names.names.take(names.places(ids)).to_pylist()
    found: dict[str, pa.Array] = {}
    for id_, text, some in zip(ids.tolist(), texts, np.split(order, first[1:]), strict=len(ids) > 0):
        kinds = np.unique(values.number[some]).tolist()
        part = Fields(*(each[some] for each in values))
        if (column := _stat_column(wire, part, kinds, names)) is None:
            continue
        name = text if text and text.isprintable() and len(text) <= _LONGEST_NAME else f"stat {id_}"
        found[name] = by_row(column, row[some], rows)
    return found


def _stat_column(wire: Wire, values: Fields, kinds: list[int], names: _Names) -> pa.Array | None:
    """Values of statistics as numbers if all are, else as texts; None for bytes."""
    if set(kinds) <= {_UNSIGNED, _SIGNED}:
        return pa.array(values.value)
    if kinds == [_DOUBLE]:
        return pa.array(values.value.view(np.float64))
    if kinds == [_REFERENCE]:
        return wire.repeated(names.names, names.places(values.value))
    if kinds == [_TEXT]:
        return wire.texts(values.start, values.end)
    if set(kinds) <= {_BYTES}:
        return None
    texts = pa.array(values.value).cast(pa.string())
    for kind in kinds:
        if kind in (_DOUBLE, _REFERENCE, _TEXT):
            some = np.flatnonzero(values.number == kind)
            column = _stat_column(wire, Fields(*(each[some] for each in values)), [kind], names)
            if column is not None:
                is_kind = pa.array(values.number == kind)
                texts = pc.replace_with_mask(texts, is_kind, column.cast(pa.string()))
    return texts


def _events(plane: _Plane, offset_ns: int) -> Iterator[dict[str, pa.Array]]:
    """The events of a plane in batches of columns; `offset_ns` is added to times that are relative."""
    event_names, stat_names = plane.table(_EVENT_NAMES), plane.table(_STAT_NAMES)
    of_names = _stat_columns(plane.wire, event_names.stats, len(event_names.ids), stat_names)
    ids, texts, starts, events = _lines(plane, offset_ns)
    shown = pc.coalesce(event_names.others, event_names.names)
    full = pc.if_else(pc.equal(shown, event_names.names), None, event_names.names)
    # Events that are read together have few bytes: their fields take much more memory.
    read = np.cumsum(events.end - events.start + _EVENT_BYTES) // _BATCH_BYTES
    edges = [0, *(np.flatnonzero(np.diff(read)) + 1).tolist(), len(read)]
    for first, last in pairwise(edges) if len(read) else ():
        some = Fields(*(each[first:last] for each in events))
        rows, line = len(some.start), some.message
        fields = plane.wire.fields(some)
        given = fields.of(_STATS)
        place = event_names.places(fields.last(_METADATA_ID, rows))
        offset_ps, dur_ps = fields.last(_OFFSET_PS, rows), fields.last(_DURATION_PS, rows)
        begin, end = starts[line] + offset_ps // _PS, starts[line] + (offset_ps + dur_ps) // _PS
        count = pa.array(fields.last(_OCCURRENCES, rows, -1))
        is_timed = pc.less(count, 0)
        columns = {
            "line.id": pa.array(ids[line]),
            "line.name": plane.wire.repeated(texts, pa.array(line)),
            "event.name": plane.wire.repeated(shown, place),
            "event.metadata_name": plane.wire.repeated(full, place),
            "event.start_ns": pc.if_else(is_timed, pa.array(begin), None),
            "event.end_ns": pc.if_else(is_timed, pa.array(end), None),
            "event.occurrences": pc.if_else(is_timed, None, count),
        }
        stats = _stat_columns(plane.wire, given, rows, stat_names)
        for stat, column in of_names.items():
            own, is_text = stats.get(stat), column.type == pa.string()
            found = plane.wire.repeated(column, place) if is_text else column.take(place)
            if own is not None and own.type == found.type == pa.int64():
                found = pc.coalesce(own, found)
            elif own is not None:
                found = pc.coalesce(own.cast(pa.string()), found.cast(pa.string()))
            stats[stat] = found
        texts_of = {name: each for name, each in stats.items() if pa.types.is_string(each.type)}
        yield columns | stats | {name: each.dictionary_encode() for name, each in texts_of.items()}


def _lines(plane: _Plane, offset_ns: int) -> tuple[Numbers, pa.Array, Numbers, Fields]:
    """The id, name and start of each line, and the events of all lines, of which `message` is the line."""
    lines = plane.children.of(_LINES)
    if len(lines.start) > _MOST_LINES:
        raise DamagedError(int(lines.start[0]), f"more than {_MOST_LINES:,} lines")
    ids, texts, starts = [], [], []
    events = [Fields(*np.zeros((5, 0), np.int64))]
    for number, (first, last) in enumerate(zip(lines.start.tolist(), lines.end.tolist(), strict=True)):
        line = plane.wire.children(first, last)
        start = int(line.last(_LINE_NS, 1)[0])
        names = [
            plane.wire.texts(each.start, each.end)[-1].as_py()
            for each in (line.of(_LINE_DISPLAY_NAME), line.of(_LINE_NAME))
            if len(each.start)
        ]
        ids.append(int(line.last(_LINE_ID, 1)[0]))
        texts.append(next((name for name in names if name), None))
        starts.append(start + (offset_ns if abs(start) < _ABSOLUTE_NS else 0))
        of_line = line.of(_EVENTS)
        events.append(of_line._replace(message=np.full(len(of_line.start), number)))
    found = Fields(*(np.concatenate(each) for each in zip(*events, strict=True)))
    if len(found.start) > _MOST_EVENTS:
        raise DamagedError(int(found.start[0]), f"more than {_MOST_EVENTS:,} events")
    return np.array(ids, np.int64), pa.array(texts, pa.string()), np.array(starts, np.int64), found


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


def _decoded(path: Path, text: Text) -> _Content:
    """The planes of a file. Raises TraceFormatError."""
    if text.cut is not None:
        raise TraceFormatError(path, text.cut, hint=_HINT)
    if text.text_bytes > max(_MANY_BYTES, _MOST_RATIO * text.stored_bytes):
        raise TraceFormatError(path, f"unpacks to more than {_MOST_RATIO} times its size", hint=_HINT)
    data = np.frombuffer(text.buffer, np.uint8)
    wire = Wire(data, left_bytes=max(_LEAST_REPEATED, _MOST_REPEATED * len(data)))
    try:
        top = wire.children(0, len(data))
        hosts, planes = top.of(_HOSTNAME), []
        if len(top.of(_PLANE).start) > _MOST_PLANES:
            raise DamagedError(int(top.of(_PLANE).start[_MOST_PLANES]), f"more than {_MOST_PLANES} planes")
        for first, last in zip(*top.of(_PLANE)[3:], strict=True):
            children = wire.children(int(first), int(last))
            name = children.of(_NAMED)
            label = wire.texts(name.start, name.end)[-1].as_py() if len(name.start) else ""
            planes.append(_Plane(wire, label, children))
        return _Content(planes, wire.texts(hosts.start, hosts.end).to_pylist())
    except DamagedError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: DamagedError) -> TraceFormatError:
    return TraceFormatError(path, f"not a complete XSpace: {error}", hint=_HINT)


@once_per_file
def _parts(path: Path) -> tuple[Part, ...]:
    content = _decoded(path, read_text(path, keep=True))
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
        content = _decoded(self._path, self._take_text())
        devices = content.devices()
        named = [each for each in devices if "{}:{}".format(*each) == self._part.name]
        own = next(iter(named or devices), None)
        planes = (plane for plane in content.planes if own is not None and plane.device == own)
        self._properties = [_properties(plane) for plane in islice(planes, 1)]
        self._facts_of_file, self._hosts = content.facts, content.hosts
        start_ns = content.facts.get("profile_start_time")
        self.base_time_ns = start_ns if isinstance(start_ns, int) else 0
        is_first = devices[:1] == [own] or own is None
        try:
            tables, unread = _tables(content.planes, own, is_first, self.base_time_ns)
            contract = contract_of(NAME)
            readers = {one.name: arrow_table(one, NAME, tables[one.name]) for one in contract.raw_tables}
            params = {"pid": str(content.facts.get("process_id", 0)), "is_first": is_first}
            map_tables(contract, readers, params, self._rows, self._notes)
        except DamagedError as error:
            raise _refused(self._path, error) from error
        for example in unread:
            self._notes.add("table_not_read", 1, example)
        if not self._rows.rows:
            raise TraceFormatError(self._path, "the file contains no events", hint=_HINT)
        if not self.base_time_ns:
            self._notes.add("clock_not_utc", 1, "the file does not say when the profile started")
        if self._part.rank is not None and "process_index" not in content.facts:
            reason = f"{self._part.name} is rank {self._part.rank} by its number and the order of hosts"
            self._notes.add("rank_assumed", 1, reason)

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {NAME: self._facts_of_file}
        if self._hosts:
            header["host_name"] = self._hosts[0]
        if version := self._facts_of_file.get("jax_version"):
            header["framework_version"] = version
        return header | ({"deviceProperties": self._properties} if self._properties else {})

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
            if lines := len(plane.children.of(_LINES).start):
                unread.append(f"{plane.name}: {counted(lines, 'line')}")
        elif plane.device in (own, None):
            for each in _events(plane, start_ns):
                columns = _labels(plane, each) | each
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


def _labels(plane: _Plane, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The plane of each event."""
    rows, (kind, number) = len(columns["line.id"]), plane.device or (None, None)
    return {
        "plane.name": pa.repeat(plane.name, rows).dictionary_encode(),
        "plane.device": pa.repeat(pa.scalar(kind, pa.string()), rows).dictionary_encode(),
        "plane.ordinal": pa.repeat(pa.scalar(number, pa.int64()), rows),
    }


class XplaneFormat(PartFormat):
    """A Format: a part per device."""

    name = NAME
    source = XplaneSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this begins with a plane, by its name, or has the name of a profile."""
        if head[:1] != b"\n":
            return False
        try:
            _, _, at, _ = field_at(memoryview(head + b"\0" * 16), 0, 1 << 62)
            for _ in range(_FIRST_FIELDS):
                key, _, start, at = field_at(memoryview(head), at, len(head))
                if key == _NAMED << 3 | LENGTH:
                    name = head[start:at]
                    return name.startswith((b"/host:", b"/device:")) or name == _TASK.encode()
        except (DamagedError, IndexError):
            pass
        return _SUFFIX.search(path.name) is not None

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The devices by kind and number; one part if there is none. Raises TraceFormatError."""
        return _parts(path)
