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
from tracewarehouse.formats.protobuf import DamagedError, Fields, Wire, by_row
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
_MOST_REPEATED: Final = 64
_LEAST_REPEATED: Final = 64 << 20
_MOST_SEQUENCES: Final = 1 << 16


class Records(NamedTuple):
    """The records by category, the process, and how many events are of other kinds."""

    tables: dict[str, pa.Table]
    pid: int
    counters: int
    others: int


class _Reader:
    """Reads packets one piece after the other. IDs of texts are those of a sequence, until it restarts."""

    def __init__(self, wire: Wire, categories: Mapping[str, str]) -> None:
        self._wire = wire
        self._categories = categories
        self._scope_of: dict[int, int] = {}
        self._scopes = 0
        # The texts that each kind of IDs has in these scopes.
        self._texts: dict[int, tuple[Numbers, pa.Array]] = {}
        self._words: dict[str, int] = {}
        self._rows = 0
        self.batches: dict[str, list[dict[str, pa.Array]]] = {name: [] for name in categories}
        self.streams: dict[int, int | None] = {}
        self.pids: dict[int, int] = {}
        self.counters = self.slices = 0

    def read(self, found: Fields) -> None:
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
            self.batches[each].append({
                key: _compact(column) for key, column in kept.items() if column.null_count < len(column)
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
        keys = _keys(self._scope[interned.message[entries.message]], fields.last(1, count), -2)
        texts = wire.texts_of(fields.of(2), count, _LONGEST_NAME)
        known, known_texts = self._texts.get(kind, (keys[:0], texts[:0]))
        # Of several texts with one ID the last one counts.
        backward = np.concatenate((known, keys))[::-1]
        keys, last = np.unique(backward, return_index=True)
        texts = pa.concat_arrays([known_texts, texts]).take(pa.array(len(backward) - 1 - last))
        is_live = np.isin(keys >> 32, list(self._scope_of.values()))
        self._texts[kind] = keys[is_live], texts.filter(pa.array(is_live))
        wanted = _keys(scopes, of.last(id_, len(scopes)), -1)
        places = values_of(pc.index_in(pa.array(wanted), pa.array(keys)), -1).astype(np.int64)
        given = of.of(own)
        places[given.message] = len(texts) + np.arange(len(given.message))
        texts = pa.concat_arrays([texts, wire.texts(given.start, given.end, _LONGEST_NAME)])
        return wire.repeated(texts, pa.array(places, mask=places < 0))

    def _annotations(self, event: Fields, rows: int, scopes: Numbers) -> dict[str, pa.Array]:
        """The annotations of events as columns: integers, or texts if one of them is a text."""
        given = event.of(_ANNOTATION)
        fields, count, scopes = self._wire.fields(given), len(given.start), scopes[given.message]
        words = self._word_of(_compact(self._named(_LABELS, fields, _LABEL, _LABEL_IID, scopes)))
        texts = self._named(_TEXTS, fields, _TEXT, _TEXT_IID, scopes)
        values, missing = np.zeros(count, np.int64), np.ones(count, np.bool_)
        for number in (_BOOL, _UNSIGNED, _SIGNED):
            numbers = fields.of(number)
            values[numbers.message], missing[numbers.message] = numbers.value, False
        integers = pa.array(values, mask=missing)
        columns: dict[str, pa.Array] = {}
        for word, number in self._words.items():
            chosen = np.flatnonzero(words == number)
            column, named = (
                by_row(each.take(pa.array(chosen)), given.message[chosen], rows) for each in (integers, texts)
            )
            if named.null_count < rows:
                if column.null_count < rows:
                    named = pc.coalesce(named.cast(pa.string()), column.cast(pa.string())).dictionary_encode()
                column = named
            name = _COLUMNS.get(word.lower(), word)
            is_known = name.lower() in {known.lower() for known in columns}
            columns[f"{name}#{number}" if is_known else name] = column
        return columns

    def _word_of(self, labels: pa.DictionaryArray) -> Numbers:
        """The number of each label."""
        known = labels.dictionary.to_pylist()
        for word in known:
            self._words.setdefault(word, len(self._words))
        numbers = np.array([*map(self._words.get, known), -1], np.int64)
        words = len(self._words)
        if words > _MOST_LABELS or words * self._rows > max(_LEAST_VALUES, len(self._wire.data)):
            raise DamagedError(0, f"{words:,} names of annotations, from the message")
        return np.take(numbers, values_of(labels.indices, -1))  # the last is that of no label

    def _add_tracks(self) -> None:
        """Adds the stream in the name of each track, and the processes."""
        descriptors = self._packets.of(_DESCRIPTOR)
        track, count = self._wire.fields(descriptors), len(descriptors.start)
        names = pc.extract_regex(
            self._wire.texts_of(track.of(2), count, _LONGEST_NAME), r"STREAM \[(?P<stream>\d+)\]"
        )
        streams = to_ints(pc.struct_field(names, "stream"))
        self.streams |= zip(track.last(1, count).tolist(), streams.to_pylist(), strict=True)
        if max(len(self.streams), len(self._scope_of)) > _MOST_SEQUENCES:
            raise DamagedError(0, f"more than {_MOST_SEQUENCES:,} sequences or tracks, from the message")
        for number in (_PROCESS, _THREAD):
            pids = self._wire.fields(track.of(number)).of(1).value
            if len(pids):
                self.pids.setdefault(number, int(pids[0]))


def _keys(scopes: Numbers, ids: Numbers, none: int) -> Numbers:
    return np.where((ids > 0) & (ids < 1 << 32), scopes << 32 | ids, none)


def _compact(column: pa.Array) -> pa.Array:
    """The column, whose dictionary has only the texts of its rows."""
    if not pa.types.is_dictionary(column.type):
        return column
    used = column.indices.dictionary_encode()
    return pa.DictionaryArray.from_arrays(used.indices, column.dictionary.take(used.dictionary))


def records(data: NDArray[np.uint8], categories: Mapping[str, str]) -> Records:
    """The records in a trace, with the column that has the name in each category. Raises DamagedError."""
    wire = Wire(data, left_bytes=max(_LEAST_REPEATED, _MOST_REPEATED * len(data)))
    reader = _Reader(wire, categories)
    for fields in wire.pieces(0, len(data)):
        if (packets := fields.of(_PACKET)).start.size:
            reader.read(packets)
    tables = {}
    for each, batches in reader.batches.items():
        table = stacked(batches)
        batches.clear()
        if table.num_rows:
            tracks = table.column(_ON).combine_chunks().dictionary_encode()
            known = pa.array(map(reader.streams.get, tracks.dictionary.to_pylist()), pa.int64())
            streams = known.take(tracks.indices)
            if _STREAM in table.column_names:
                streams = pc.coalesce(to_ints(table.column(_STREAM)), streams)
                table = table.set_column(table.column_names.index(_STREAM), _STREAM, streams)
            elif streams.null_count < len(streams):
                table = table.append_column(_STREAM, streams)
            table = table.drop_columns([_ON])
        tables[each] = table
    others = reader.slices - sum(table.num_rows for table in tables.values())
    pid = reader.pids.get(_PROCESS, reader.pids.get(_THREAD, 0))
    return Records(tables, pid, reader.counters, others)
