"""Columns of `activities` from batches of source tables, for formats that store records in tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.base import Finding, Redaction
from tracewarehouse.formats.json_objects import json_objects, json_texts

if TYPE_CHECKING:
    from tracewarehouse.formats.base import Part
    from tracewarehouse.formats.redact import Redactor
    from tracewarehouse.formats.sqlite_file import Database

_TID_BITS: Final = 0xFFFFFF
_PID_SHIFT: Final = 24
# Maximum lengths of an example in a finding, and of the text that is searched for secrets before it is cut.
_EXAMPLE: Final = 120
_SEARCHED: Final = 4096
_INTEGER_TYPES: Final = ("INT", "BOOL")
_REAL_TYPES: Final = ("REAL", "FLOA", "DOUB")


@dataclass(frozen=True)
class Clock:
    """What is added to the times in the file. `name` is utc or unknown."""

    name: str
    base_ns: int


@dataclass
class Notes:
    """Findings while a part is read, one per rule: rows and the first example, as it is in the file."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, rule: str, rows: int, example: str) -> None:
        """Counts rows for a rule."""
        if rows:
            before, first = self.found.get(rule, (0, example[:_SEARCHED]))
            self.found[rule] = before + rows, first

    def findings(self, redactor: Redactor) -> tuple[Finding, ...]:
        """The findings by rule. Examples are cut after secrets are replaced, so that no part remains."""
        return tuple(
            Finding(rule, rows, short_text(example, redactor, _EXAMPLE))
            for rule, (rows, example) in sorted(self.found.items())
        )


def counted(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def rank_reason(part: Part, device: int | None, first_devices: Sequence[int | None]) -> str:
    """Why a process has its rank: ranks follow the order of `first_devices`, of all processes, then of IDs.

    The device is None without GPU activities.
    """
    sharing = first_devices.count(device)
    if device is None:
        reason = "process ID: no process has GPU activities"
    elif sharing > 1:
        reason = f"process ID: {sharing} processes use device {device}"
    else:
        reason = f"its device, {device}"
    return f"{part.name} is rank {part.rank} by {reason}"


def short_text(text: str, redactor: Redactor, length: int) -> str:
    """The beginning of a text, without secrets."""
    return redactor.clean(text[:_SEARCHED])[0][:length]


def redacted(table: pa.Table, redactor: Redactor) -> tuple[pa.Table, tuple[Redaction, ...]]:
    """The table with secrets in its dictionary-encoded texts replaced, and what was replaced by column."""
    found: list[Redaction] = []
    for at, name in enumerate(table.column_names):
        if not pa.types.is_dictionary(table.schema.field(at).type):
            continue
        column = table.column(at).unify_dictionaries()
        words = column.chunk(0).dictionary if column.num_chunks else pa.array([], pa.string())
        suspects = redactor.suspects(words)
        if not suspects:
            continue
        texts: list[Any] = words.to_pylist()
        for place in suspects:
            texts[place], kinds = redactor.clean(texts[place])
            found += [Redaction(None, name, kind) for kind in kinds]
        clean = pa.array(texts, pa.string())
        chunks = [pa.DictionaryArray.from_arrays(chunk.indices, clean) for chunk in column.chunks]
        table = table.set_column(at, name, pa.chunked_array(chunks))
    return table, tuple(found)


@dataclass(frozen=True)
class Context:
    """Everything that the mappings of one part share; `prefix` marks arguments named like source columns.

    `alone`: the file has no other part. Then rows of other processes are counted in `others`, by table and
    process.
    """

    database: Database
    pid: int
    clock: Clock
    strings: Mapping[int, str]
    notes: Notes
    prefix: str
    alone: bool = False
    others: Counter[tuple[str, int]] = field(default_factory=Counter)


def process_ids(ids: pa.Array) -> pa.Array:
    """The processes of `globalTid` or `globalPid`."""
    return pc.bit_wise_and(pc.shift_right(ids, _PID_SHIFT), _TID_BITS)


def declared_types(database: Database, table: str) -> dict[str, pa.DataType]:
    """The columns of a table with the Arrow types of their declarations."""
    return {name: _declared(type_) for name, type_ in database.tables[table].items()}


def _declared(type_: str) -> pa.DataType:
    if any(word in type_ for word in _INTEGER_TYPES):
        return pa.int64()
    return pa.float64() if any(word in type_ for word in _REAL_TYPES) else pa.string()


@dataclass
class SourceBatch:
    """A batch of a source table. Columns that were not used end up in the arguments."""

    context: Context
    table: str
    batch: pa.RecordBatch

    def __post_init__(self) -> None:
        self._unused = dict.fromkeys(self.batch.schema.names)
        self._no_text = pa.nulls(self.rows, pa.string())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.batch.num_rows)

    def ints(self, name: str) -> pa.Array:
        """An integer column; nulls if the table lacks it."""
        self._unused.pop(name, None)
        place = self.batch.schema.get_field_index(name)
        if place < 0:
            return pa.nulls(self.rows, pa.int64())
        column = self.batch.column(place)
        return column if column.type == pa.int64() else _to_ints(column)

    def texts(self, name: str) -> pa.Array:
        """A text column; nulls if the table lacks it."""
        self._unused.pop(name, None)
        place = self.batch.schema.get_field_index(name)
        return self._no_text if place < 0 else self.batch.column(place).cast(pa.string())

    def binaries(self, name: str) -> pa.Array:
        """A column of bytes; nulls if the table lacks it."""
        self._unused.pop(name, None)
        place = self.batch.schema.get_field_index(name)
        return pa.nulls(self.rows, pa.binary()) if place < 0 else self.batch.column(place).cast(pa.binary())

    def strings(self, name: str, change: Callable[[str], str] = str) -> pa.DictionaryArray:
        """The texts of a column of string ids, each changed by a function; ids without a text are null."""
        ids = self.ints(name).dictionary_encode()
        found = [self.context.strings.get(key) for key in ids.dictionary.to_pylist()]
        texts = pa.array([None if text is None else change(text) for text in found], pa.string())
        return encoded_texts(ids.indices, texts)

    def first_strings(self, *names: str) -> pa.Array:
        """The text of the first of several columns of string ids that has one."""
        found = [self.strings(name) for name in names]
        if not found[0].null_count:
            return found[0]
        return pc.coalesce(*(each.cast(pa.string()) for each in found))

    def text(self) -> pa.Array:
        """The column `text`, else the text of the string id in `textId`."""
        text, ids = self.texts("text"), self.strings("textId")
        return pc.coalesce(text, ids.cast(pa.string())) if text.null_count else text

    def labels(self, name: str, known: Mapping[int, str], default: str | None = None) -> pa.Array:
        """The names of the values of an enumeration; reports values without one."""
        encoded = self.ints(name).dictionary_encode()
        values = encoded.dictionary.to_pylist()
        labels = pa.array([known.get(value, default) for value in values], pa.string())
        unknown = pa.array([value not in known for value in values], pa.bool_()).take(encoded.indices)
        rows = pc.sum(unknown).as_py() or 0
        if rows:
            example = next(value for value in values if value not in known)
            self.context.notes.add("kind_unknown", rows, f"{self.table}.{name} = {example}")
        return labels.take(encoded.indices)

    def times(self, start: str = "start", end: str | None = "end") -> dict[str, pa.Array]:
        """`ts_ns` and `dur_ns`; an end before the start leaves no duration but its digits in `dur_text`."""
        starts = self.ints(start)
        base = self.context.clock.base_ns
        found = {"ts_ns": pc.add(starts, base) if base else starts}
        if end is None:
            return found
        length = pc.subtract(self.ints(end), starts)
        negative = pc.fill_null(pc.less(length, 0), False)
        if pc.any(negative).as_py():
            found["dur_text"] = _negative_texts(length, negative)
            length = pc.if_else(negative, pa.scalar(None, pa.int64()), length)
        return found | {"dur_ns": length}

    def thread(self, name: str = "globalTid") -> dict[str, pa.Array]:
        """`pid` and `tid` of a host activity."""
        ids = self.ints(name).dictionary_encode()
        pids, tids = process_ids(ids.dictionary), pc.bit_wise_and(ids.dictionary, _TID_BITS)
        return {
            name: encoded_texts(ids.indices, numbers.cast(pa.string()))
            for name, numbers in (("pid", pids), ("tid", tids))
        }

    def arguments(
        self, typed: Mapping[str, pa.Array] | None = None, *, skip: tuple[str, ...] = ()
    ) -> pa.Array:
        """The JSON arguments: the given ones, and every unused column of the table as `<prefix>.<column>`.

        Integer arrays are written as numbers; text arrays must be JSON.
        """
        members: dict[str, Any] = dict(typed or {})
        for name in self._unused:
            if name in skip:
                continue
            column = self.batch.column(name)
            members[f"{self.context.prefix}.{name}"] = (
                json_texts(column) if pa.types.is_string(column.type) else column
            )
        return json_objects(members, self.rows)

    @property
    def has_text(self) -> pa.Scalar:
        """Whether an unused column holds text."""
        return pa.scalar(any(pa.types.is_string(self.batch.column(name).type) for name in self._unused))


def encoded_texts(codes: pa.Array, words: pa.Array) -> pa.DictionaryArray:
    """The word at each position; words may repeat or be null."""
    distinct = words.dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(codes), distinct.dictionary)


def encoded_numbers(values: pa.Array) -> pa.DictionaryArray:
    """Integers with few distinct values as text."""
    encoded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(pa.string()))


def number_texts(values: pa.Array) -> pa.Array:
    """Integers as text."""
    return encoded_numbers(values).cast(pa.string())


def _to_ints(column: pa.Array) -> pa.Array:
    """A column whose declared type is not an integer."""
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        whole = np.isfinite(values) & (np.floor(values) == values) & (np.abs(values) < 2**63)
        return pa.array(np.where(whole, values, 0).astype(np.int64), mask=~whole)
    numbers = pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")
    return pc.if_else(numbers, column, pa.scalar(None, pa.string())).cast(pa.int64())


def _negative_texts(lengths: pa.Array, negative: pa.Array) -> pa.Array:
    """Negative durations as microseconds, as Kineto would write them."""
    values = [f"-{-ns // 1000}.{-ns % 1000:03d}" for ns in lengths.filter(negative).to_pylist()]
    return pc.replace_with_mask(pa.nulls(len(lengths), pa.string()), negative, pa.array(values, pa.string()))
