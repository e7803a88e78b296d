"""Perfetto traces that rocprofv3 writes (`.pftrace`), as the tables of its records.

A record is a slice whose annotations have its times and IDs, so that clocks and the ends of slices are not
needed. From the public source of rocprofiler-sdk 1.0 (ROCm 7), of its rocpd2pftrace, and of Perfetto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import values_of
from tracewarehouse.formats.protobuf import DamagedError, Fields, Wire
from tracewarehouse.formats.source_tables import to_ints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


# Fields of the messages, by their numbers in Perfetto's .proto files.
_PACKET, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 1, 10, 11, 12, 13, 60
_CATEGORIES, _NAMES, _LABELS, _TEXTS = 1, 2, 3, 29
_CATEGORY_IID, _ANNOTATION, _TYPE, _NAME_IID, _TRACK, _CATEGORY, _NAME = 3, 4, 9, 10, 11, 22, 23
_LABEL_IID, _BOOL, _UNSIGNED, _SIGNED, _TEXT, _LABEL, _TEXT_IID = 1, 2, 3, 4, 6, 10, 17
_PROCESS, _THREAD = 3, 4
_COUNTER: Final = 4
# Annotations that are columns of the CSV files; others keep their name.
_COLUMNS: Final = {
    "begin_ns": "Start_Timestamp", "end_ns": "End_Timestamp", "corr_id": "Correlation_Id",
    "agent": "Agent_Id", "queue": "Queue_Id", "stream_id": "Stream_Id", "tid": "Thread_Id",
    "kernel_id": "Kernel_Id",
    "group_segment_size": "Group_Segment_Size", "copy_bytes": "bytes", "src_agent": "Source_Agent_Id",
    "dst_agent": "Destination_Agent_Id",
}  # fmt: skip
_LONGEST_NAME: Final = 1 << 16
_MOST_LABELS: Final = 200
# Values of annotations, at most as many as bytes, in small files more.
_LEAST_VALUES: Final = 2_000_000
_MOST_REPEATED: Final = 64
_LEAST_REPEATED: Final = 64 << 20


class Records(NamedTuple):
    """The records by category, the process, and how many events are of other kinds."""

    tables: dict[str, pa.Table]
    pid: int
    counters: int
    others: int


class _Packets(NamedTuple):
    """The packets of a trace. IDs of texts are those of a scope: a sequence up to the next restart."""

    wire: Wire
    fields: Fields
    scope: Numbers

    def named(self, kind: int, of: Fields, own: int, id_: int, scopes: Numbers) -> pa.Array:
        """The texts of a field in each message, or those with the ID in another field."""
        interned = self.fields.of(_INTERNED)
        entries = self.wire.fields(interned).of(kind)
        fields, count = self.wire.fields(entries), len(entries.start)
        known = _keys(self.scope[interned.message[entries.message]], fields.last(1, count), -2)
        places = _places(known, _keys(scopes, of.last(id_, len(scopes)), -1))
        texts = self.wire.texts_of(fields.of(2), count, _LONGEST_NAME)
        named = self.wire.repeated(texts, pa.array(places, mask=places < 0))
        return pc.coalesce(
            self.wire.texts_of(of.of(own), len(scopes), _LONGEST_NAME), named.dictionary_decode()
        )


def _keys(scopes: Numbers, ids: Numbers, none: int) -> Numbers:
    return np.where((ids > 0) & (ids < 1 << 32), scopes << 32 | ids, none)


def _places(known: Numbers, wanted: Numbers) -> Numbers:
    """The last place of each number, -1 if it is not there."""
    order = np.argsort(known, kind="stable")
    found = np.searchsorted(known[order], wanted, "right") - 1
    if not len(known):
        return np.full(len(wanted), -1)
    places = order[np.maximum(found, 0)]
    return np.where((found >= 0) & (known[places] == wanted), places, -1)


def records(data: NDArray[np.uint8], categories: Mapping[str, str]) -> Records:
    """The records in a trace, with the column that has the name in each category. Raises DamagedError."""
    wire = Wire(data, left_bytes=max(_LEAST_REPEATED, _MOST_REPEATED * len(data)))
    packets = wire.children(0, len(data)).of(_PACKET)
    fields, count = wire.fields(packets), len(packets.start)
    sequence, flags = fields.last(_SEQUENCE, count), fields.last(_FLAGS, count)
    order = np.argsort(sequence, kind="stable")
    is_new = np.diff(sequence[order], prepend=-1) != 0
    scope = np.zeros(count, np.int64)
    scope[order] = np.cumsum(is_new | (flags[order] & 1 == 1))
    found, events = _Packets(wire, fields, scope), fields.of(_EVENT)
    event, rows, scopes = wire.fields(events), len(events.start), scope[events.message]
    columns = _annotations(found, event, rows, scopes)
    streams, pid = _tracks(found, event.last(_TRACK, rows))
    columns["Stream_Id"] = (
        pc.coalesce(to_ints(columns["Stream_Id"]), streams) if "Stream_Id" in columns else streams
    )
    category = found.named(_CATEGORIES, event, _CATEGORY, _CATEGORY_IID, scopes)
    name = found.named(_NAMES, event, _NAME, _NAME_IID, scopes)
    is_timed = pc.is_valid(columns.get("Start_Timestamp", pa.nulls(rows)))
    tables = {}
    for each, named in categories.items():
        mask = pc.fill_null(pc.and_(pc.equal(category, each), is_timed), False)
        table = pa.table({**columns, named: name}).filter(mask).combine_chunks()
        tables[each] = table.select(
            [it for it in table.column_names if table.column(it).null_count < len(table)]
        )
    kinds = event.last(_TYPE, rows)
    slices = int(np.isin(kinds, (1, 3)).sum())
    read = sum(table.num_rows for table in tables.values())
    return Records(tables, pid, int((kinds == _COUNTER).sum()), slices - read)


def _tracks(found: _Packets, wanted: Numbers) -> tuple[pa.Array, int]:
    """The stream in the name of each track, and the process."""
    descriptors = found.fields.of(_DESCRIPTOR)
    track, count = found.wire.fields(descriptors), len(descriptors.start)
    names = pc.extract_regex(
        found.wire.texts_of(track.of(2), count, _LONGEST_NAME), r"STREAM \[(?P<stream>\d+)\]"
    )
    places = _places(track.last(1, count), wanted)
    streams = to_ints(pc.struct_field(names, "stream")).take(pa.array(places, mask=places < 0))
    owners = (found.wire.fields(track.of(number)).of(1).value for number in (_PROCESS, _THREAD))
    pids = np.concatenate([*owners, np.zeros(1, np.int64)])
    return streams, int(pids[0])


def _annotations(found: _Packets, event: Fields, rows: int, scopes: Numbers) -> dict[str, pa.Array]:
    """The annotations of events as columns: integers, or texts if one of them is a text."""
    given = event.of(_ANNOTATION)
    fields, count, scopes = found.wire.fields(given), len(given.start), scopes[given.message]
    labels = found.named(_LABELS, fields, _LABEL, _LABEL_IID, scopes)
    texts = found.named(_TEXTS, fields, _TEXT, _TEXT_IID, scopes)
    values, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
    for number in (_BOOL, _UNSIGNED, _SIGNED):
        numbers = fields.of(number)
        values[numbers.message], missing[numbers.message] = numbers.value, False
    integers, encoded = pa.array(values, mask=missing), labels.dictionary_encode()
    words, codes = encoded.dictionary.to_pylist(), values_of(encoded.indices, -1)
    if len(words) > _MOST_LABELS or len(words) * rows > max(_LEAST_VALUES, len(found.wire.data)):
        raise DamagedError(0, f"{len(words):,} names of annotations, from the message")
    columns: dict[str, pa.Array] = {}
    for number, word in enumerate(words):
        places, chosen = np.full(rows, -1), np.flatnonzero(codes == number)
        places[given.message[chosen]] = chosen
        at = pa.array(places, mask=places < 0)
        column, named = integers.take(at), texts.take(at)
        if named.null_count < rows:
            column = pc.coalesce(named, column.cast(pa.string()))
        name = _COLUMNS.get(word.lower(), word)
        is_known = name.lower() in {known.lower() for known in columns}
        columns[f"{name}#{number}" if is_known else name] = column
    return columns
