"""Perfetto traces that rocprofv3 writes (`.pftrace`), as the tables of its records.

A record is a slice whose annotations have its times and IDs, so that clocks and the ends of slices are not
needed. From the public source of rocprofiler-sdk 1.0 (ROCm 7), of its rocpd2pftrace, and of Perfetto.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import values_of
from tracewarehouse.formats.protobuf import DamagedError, Fields, Wire, by_name
from tracewarehouse.formats.source_tables import stacked, to_ints

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
_STREAM: Final = "Stream_Id"
# The track of each record, which names its stream.
_ON: Final = ""
_INTEGERS: Final = (_BOOL, _UNSIGNED, _SIGNED)
# Annotations that are columns of the CSV files; others keep their name.
_COLUMNS: Final = {
    "begin_ns": "Start_Timestamp", "end_ns": "End_Timestamp", "corr_id": "Correlation_Id",
    "agent": "Agent_Id", "queue": "Queue_Id", "stream_id": _STREAM, "tid": "Thread_Id",
    "kernel_id": "Kernel_Id",
    "group_segment_size": "Group_Segment_Size", "copy_bytes": "bytes", "src_agent": "Source_Agent_Id",
    "dst_agent": "Destination_Agent_Id",
}  # fmt: skip
_LONGEST_NAME: Final = 1 << 16
_MOST_LABELS: Final = 200
# Values of annotations, at most as many as bytes, in small files more.
_LEAST_VALUES: Final = 2_000_000
_MOST_SEQUENCES: Final = 1 << 16


class Records:
    """The records of each category, the process, and how many events are of other kinds.

    Packets are added one piece after the other. IDs of texts are those of a sequence, until it restarts.
    """

    def __init__(self, wire: Wire, categories: Mapping[str, str]) -> None:
        self._wire, self._categories = wire, categories
        self._scope_of: dict[int, int] = {}
        self._scopes = self._rows = 0
        # The texts that each kind of IDs has in these scopes, the last ones first.
        self._texts: dict[int, tuple[Numbers, pa.Array]] = {}
        # The column of each name of annotations.
        self._columns: dict[str, str] = {}
        self._batches: dict[str, list[dict[str, pa.Array]]] = {name: [] for name in categories}
        self._streams: dict[int, int | None] = {}
        self._pids: dict[int, int] = {}
        self.counters = self.slices = 0
        for fields in wire.pieces(0, len(wire.data)):
            self._read(fields.of(_PACKET))

    @property
    def pid(self) -> int:
        """The number of the process, 0 if it is not known."""
        return self._pids.get(_PROCESS, self._pids.get(_THREAD, 0))

    def tables(self) -> dict[str, pa.Table]:
        """The records, with the column that has the name in each category. They are freed."""
        known, streams = (pa.array(each, pa.int64()) for each in (self._streams, self._streams.values()))
        found = {}
        for name in self._categories:
            table = stacked(self._batches.pop(name))
            columns = dict(zip(table.column_names, table.columns, strict=True))
            if on := columns.pop(_ON, None):
                of_track = streams.take(pc.index_in(on, known).combine_chunks())
                own = to_ints(columns.get(_STREAM, pa.nulls(table.num_rows, pa.int64())))
                columns[_STREAM] = pc.coalesce(own, of_track)
            found[name] = pa.table(columns)
        return found

    def _read(self, found: Fields) -> None:
        """Adds the records and tracks in packets, which follow those that were read before."""
        fields, count = self._wire.fields(found), len(found.start)
        scope = self._new_scopes(fields.last(_SEQUENCE, count), fields.last(_FLAGS, count) & 1 == 1)
        self._packets, self._scope, events = fields, scope, fields.of(_EVENT)
        event, rows, scopes = self._wire.fields(events), len(events.start), scope[events.message]
        self._rows += rows
        columns = self._annotations(event, rows, scopes) | {_ON: pa.array(event.last(_TRACK, rows))}
        category = self._named(_CATEGORIES, event, _CATEGORY, _CATEGORY_IID, scopes)
        name = self._named(_NAMES, event, _NAME, _NAME_IID, scopes)
        is_timed = pc.is_valid(columns.get("Start_Timestamp", pa.nulls(rows)))
        for each, named in self._categories.items():
            is_named = pc.equal(category.dictionary, each).take(category.indices)
            mask = pc.fill_null(pc.and_(is_named, is_timed), False)
            kept = {key: column.filter(mask) for key, column in {**columns, named: name}.items()}
            self._batches[each].append({
                key: self._wire.encoded(column)
                for key, column in kept.items()
                if column.null_count < len(column)
            })  # fmt: skip
        kinds = event.last(_TYPE, rows)
        self.counters += int((kinds == _COUNTER).sum())
        self.slices += int(np.isin(kinds, (1, 3)).sum())
        self._add_tracks()

    def _new_scopes(self, sequence: Numbers, is_restart: NDArray[np.bool_]) -> Numbers:
        """The scope of each packet."""
        scopes = []
        for number, begins in zip(sequence.tolist(), is_restart.tolist(), strict=True):
            if begins or number not in self._scope_of:
                self._scopes += 1
                self._scope_of[number] = self._scopes
            scopes.append(self._scope_of[number])
        return np.array(scopes, np.int64)

    def _named(self, kind: int, of: Fields, own: int, id_: int, scopes: Numbers) -> pa.DictionaryArray:
        """The texts of a field in each message, or those with the ID in another field."""
        interned, wire = self._packets.of(_INTERNED), self._wire
        entries = wire.fields(interned).of(kind)
        fields, count = wire.fields(entries), len(entries.start)
        keys = _keys(self._scope[interned.message[entries.message]], fields.last(1, count), -2)[::-1]
        texts = wire.texts_of(fields.of(2), count, _LONGEST_NAME).take(pa.array(np.arange(count)[::-1]))
        known, known_texts = self._texts.get(kind, (keys[:0], texts[:0]))
        keys, texts = np.concatenate((keys, known)), pa.concat_arrays([texts, known_texts])
        is_live = np.isin(keys >> 32, list(self._scope_of.values()))
        self._texts[kind] = keys[is_live], texts.filter(pa.array(is_live))
        wanted = _keys(scopes, of.last(id_, len(scopes)), -1)
        return wire.named(of.of(own), wanted, keys, texts, _LONGEST_NAME)

    def _annotations(self, event: Fields, rows: int, scopes: Numbers) -> dict[str, pa.Array]:
        """The annotations of events as columns: integers, or texts if one of them is a text."""
        given = event.of(_ANNOTATION)
        fields, count, scopes = self._wire.fields(given), len(given.start), scopes[given.message]
        labels = self._named(_LABELS, fields, _LABEL, _LABEL_IID, scopes)
        texts = self._named(_TEXTS, fields, _TEXT, _TEXT_IID, scopes)
        values = texts, fields.values(count, *_INTEGERS)
        numbers = self._columns_of(self._wire.encoded(labels))
        columns = [*self._columns.values(), ""]
        found = {columns[at]: each for at, each in by_name(numbers, given.message, rows, values)}
        return {name: found[name] for name in columns if name and name in found}

    def _columns_of(self, labels: pa.DictionaryArray) -> Numbers:
        """The number of the column of each label, -1 without one. Those that differ in case are numbered."""
        known = {name.lower() for name in self._columns.values()}
        words = labels.dictionary.to_pylist()
        for word in words:
            name = _COLUMNS.get(word.lower(), word)
            if word not in self._columns:
                count = len(self._columns)
                self._columns[word] = name = f"{name}#{count}" if name.lower() in known else name
                known.add(name.lower())
        count, place = len(self._columns), {word: at for at, word in enumerate(self._columns)}
        if count > _MOST_LABELS or count * self._rows > max(_LEAST_VALUES, len(self._wire.data)):
            raise DamagedError(0, f"{count:,} names of annotations, from the message")
        numbers = np.array([*map(place.get, words), -1], np.int64)
        return np.take(numbers, values_of(labels.indices, -1))  # the last is that of no label

    def _add_tracks(self) -> None:
        """Adds the stream in the name of each track, and the processes."""
        descriptors = self._packets.of(_DESCRIPTOR)
        track, count = self._wire.fields(descriptors), len(descriptors.start)
        names = self._wire.texts_of(track.of(2), count, _LONGEST_NAME)
        streams = to_ints(pc.struct_field(pc.extract_regex(names, r"STREAM \[(?P<stream>\d+)\]"), "stream"))
        self._streams |= zip(track.last(1, count).tolist(), streams.to_pylist(), strict=True)
        if max(len(self._streams), len(self._scope_of)) > _MOST_SEQUENCES:
            raise DamagedError(0, f"more than {_MOST_SEQUENCES:,} sequences or tracks, from the message")
        for number in (_PROCESS, _THREAD):
            for pid in self._wire.fields(track.of(number)).of(1).value[:1].tolist():
                self._pids.setdefault(number, pid)


def _keys(scopes: Numbers, ids: Numbers, none: int) -> Numbers:
    return np.where((ids > 0) & (ids < 1 << 32), scopes << 32 | ids, none)
