"""Batches of a scanner: flagged rows are read again from their text, then all are buffered until the end.

Secrets are replaced and flagged rows are filled before a batch is buffered. Distinct strings are searched for
secrets once; rows are searched one by one only if a distinct string is a secret.

In typed arguments, a number may be written as a string, a value that does not fit the type of its column is
null, and the first value of a repeated key wins. Shapes and types of inputs are verbatim.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from tracewarehouse.formats.base import Redaction
from tracewarehouse.formats.json_text import members, quote, unquote
from tracewarehouse.formats.kineto.activities import BeginEndEvents, TimeUnit, printed
from tracewarehouse.formats.kineto.columns import (
    BatchColumns,
    Dictionaries,
    Fractions,
    read_tokens,
    run_sql_over,
    to_record_batch,
)
from tracewarehouse.formats.kineto.library import CODES, DOUBLES
from tracewarehouse.formats.kineto.scanner import (
    KEYS,
    ODD,
    SLOW,
    SUBNS,
    TYPED_INTS,
    TYPED_TEXTS,
    Batch,
)
from tracewarehouse.formats.redact.text import Redactor
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracewarehouse.formats.kineto.columns import ColumnDictionary, Rows


MEMORY_BYTES: Final = 128 << 20


class Spill:
    """Buffers batches in order; their columns may differ. Close it when they are no longer needed.

    The file in `folder` is unlinked when opened and readable by its owner only. It disappears when the
    process ends, even if the process is killed.
    """

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._file: IO[bytes] | None = None
        self._batches: list[pa.RecordBatch | int] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        """Appends a batch."""
        self._bytes += batch.get_total_buffer_size()
        self._batches.append(batch)
        if self._file is None and self._bytes <= self._memory_bytes:
            return
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115  closed by close()
        for index, batch in enumerate(self._batches):
            if isinstance(batch, pa.RecordBatch):
                self._batches[index] = self._write(batch)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            yield batch if isinstance(batch, pa.RecordBatch) else self._read(batch)

    def take(self) -> Iterator[pa.RecordBatch]:
        """Yields each batch once, in order, and releases it. Closes after the last batch."""
        try:
            for index, batch in enumerate(self._batches):
                self._batches[index] = -1
                yield batch if isinstance(batch, pa.RecordBatch) else self._read(batch)
        finally:
            self.close()

    def close(self) -> None:
        """Discards all batches."""
        self._batches.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, batch: pa.RecordBatch) -> int:
        assert self._file is not None
        place = self._file.seek(0, os.SEEK_END)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_stream(self._file, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        return place

    def _read(self, place: int) -> pa.RecordBatch:
        assert self._file is not None
        self._file.seek(place)
        return pa.ipc.open_stream(self._file).read_next_batch()


STRING_KEYS: Final = ("ph", "cat", "name")
JSON_KEYS: Final = ("pid", "tid", "id")
TIME_KEYS: Final = ("ts", "dur")
DUPLICATES: Final = "__duplicates__"

_FIRST_EXTRA: Final = ("bp", "s", *TIME_KEYS)
_PLAIN_TIME = late_regex(r"(-?)([0-9]{1,30})(?:\.([0-9]{1,3}))?")
_NUMBER = late_regex(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DECIMAL = late_regex(r"-?[0-9]+(\.[0-9]+)?")
_SCALARS: Final = '"-0123456789'
_PICO: Final = 1_000_000
_STEP = Decimal("1e-9")
_EXACT = Context(prec=60)
_MOST_DIGITS: Final = 19
_LEAST: Final = -40

Row = dict[str, str | None]


class Time(NamedTuple):
    """A time in the file: nanoseconds, rounded down, and millionths of a nanosecond."""

    ns: int
    fraction: int


def row(text: str) -> Row:
    """The columns of an element from its minified text; times as text, the others as in a batch.

    The last value of a repeated key fills the column, as in most parsers; the earlier ones are in `extra`
    under `__duplicates__` as [key, value] pairs. An element that is not an object is stored in `extra` as a
    whole.
    """
    columns: Row = dict.fromkeys((*STRING_KEYS, *JSON_KEYS, "ts_text", "dur_text", "args", "extra"))
    if not text.startswith("{"):
        columns["extra"] = text
        return columns
    earlier: list[str] = []
    last: dict[str, str] = {}
    for key, value in members(text):
        if key in last:
            earlier.append(f"[{quote(key)},{last[key]}]")
        last[key] = value
    extra = {key: value for key, value in last.items() if not _place(columns, key, value)}
    if earlier:
        extra[DUPLICATES] = "[" + ",".join(earlier) + "]"
    elif len(extra) > 1 and extra.keys() <= frozenset(_FIRST_EXTRA) and _is_usual(last):
        extra = {key: extra[key] for key in _FIRST_EXTRA if key in extra}
    if extra:
        columns["extra"] = "{" + ",".join(f"{quote(key)}:{value}" for key, value in extra.items()) + "}"
    return columns


def _is_usual(values: Mapping[str, str]) -> bool:
    """Whether ids are strings or numbers, and times are numbers or strings without an exponent."""
    are_ids_scalar = all(values[key][0] in _SCALARS for key in JSON_KEYS if key in values)
    times = (values[key].strip('"') for key in TIME_KEYS if key in values)
    return are_ids_scalar and "null" not in values.values() and all(map(_DECIMAL.fullmatch, times))


def _place(columns: Row, key: str, value: str) -> bool:
    """Stores a member in its column; False if `extra` must contain it (too)."""
    if value == "null":
        return False
    if key in STRING_KEYS and value[0] == '"':
        columns[key] = unquote(value)
    elif key in JSON_KEYS or key == "args":
        columns[key] = value
    elif key in TIME_KEYS and (value[0] == '"' or value[0] in "-0123456789"):
        columns[f"{key}_text"] = unquote(value) if value[0] == '"' else value
        return value[0] != '"'
    else:
        return False
    return True


def time_of(text: str | None) -> Time | None:
    """A number of microseconds, truncated to nine decimals; None if it exceeds 64 bits of ns."""
    if text is None:
        return None
    if (plain := _PLAIN_TIME.fullmatch(text)) is not None:
        ns = int(plain[2]) * 1000 + int((plain[3] or "").ljust(3, "0"))
        return _fitting(Time(-ns if plain[1] else ns, 0))
    return _time(text, lambda us: us.quantize(_STEP, rounding="ROUND_DOWN", context=_EXACT) * 1000)


def out_of_range_ns(text: str | None) -> int | None:
    """A number of microseconds that exceeds 64 bits, in ns; None for any other text."""
    if text is None or time_of(text) is not None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    return int(number * 1000) if number.adjusted() < _MOST_DIGITS else None


def time_in_ns(text: str | None) -> Time | None:
    """A number of nanoseconds; None if it is not a number or exceeds 64 bits."""
    return None if text is None else _time(text, lambda ns: ns)


def _time(text: str, in_ns: Callable[[Decimal], Decimal]) -> Time | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number and not _LEAST < number.adjusted() < _MOST_DIGITS:
        return None if number.adjusted() > 0 else Time(0, 0)
    exact = in_ns(number)
    ns = int(exact.to_integral_value(ROUND_FLOOR))
    return _fitting(Time(ns, int((exact - ns) * _PICO)))


def _fitting(time: Time) -> Time | None:
    return time if -(2**63) <= time.ns < 2**63 else None


def _printed_us(ns: int) -> str:
    """A time as microseconds, as an integer or with three decimals; "" if it is negative."""
    us, thousandths = divmod(ns, 1000)
    return "" if ns < 0 else f"{us}.{thousandths:03d}" if thousandths else f"{us}"


COLLECTIVE_KEY: Final = "Collective name"
_VERBATIM: Final = ("shapes", "dtypes")
_LISTS: Final = ("grid", "block")
_DIMENSIONS: Final = ("x", "y", "z")
_KNOWN: Final = frozenset(key for keys in KEYS.values() for key in keys)
# Text with fewer brackets is not nested too deeply for a parser.
_DEEP: Final = 500


def typed_arguments(args: pa.Array) -> pa.Table:
    """The typed columns of each argument text, and `has_collective`."""
    flat = pa.array([_flat(text) for text in args.to_pylist()], pa.string())
    table = run_sql_over(_select(), {"args": flat})
    verbatim = [_verbatim(text) for text in args.to_pylist()]
    for name in _VERBATIM:
        values = [next((inputs[key] for key in KEYS[name] if key in inputs), None) for inputs in verbatim]
        table = table.append_column(name, pa.array(values, pa.string()))
    return table


@cache
def _select() -> str:
    newer, older = _shape(0), _shape(1)
    columns = ", ".join(
        _column(name) for name in (*TYPED_INTS, *DOUBLES, *TYPED_TEXTS) if name not in _VERBATIM
    )
    return (
        f"SELECT {columns}, coalesce(json_exists(args, '$.\"{COLLECTIVE_KEY}\"'), false) AS has_collective"
        f" FROM (SELECT args, json_transform(args, '{newer}') AS arg0, json_transform(args, '{older}')"
        " AS arg1 FROM given)"
    )


def _shape(place: int) -> str:
    """The types of the first or second keys of all columns; DuckDB keys must not differ in case only."""
    types = {}
    for name, keys in KEYS.items():
        if name not in _VERBATIM and place < len(keys):
            types[keys[place]] = _type(name)
    return "{" + ", ".join(f'"{key}": "{type_}"' for key, type_ in types.items()) + "}"


def _type(name: str) -> str:
    if name in _LISTS:
        return "BIGINT[]"
    return "DOUBLE" if name in DOUBLES else "BIGINT" if name in TYPED_INTS else "VARCHAR"


def _column(name: str) -> str:
    if name[:-2] in _LISTS:
        return f"arg0.{name[:-2]}[{_DIMENSIONS.index(name[-1]) + 1}] AS {name}"
    keys = ", ".join(f'arg{place}."{key}"' for place, key in enumerate(KEYS[name]))
    return f"coalesce({keys}) AS {name}"


def _flat(text: str | None) -> str | None:
    """The text without values that are nested too deeply to be a known argument."""
    if text is None or text.count("[") + text.count("{") < _DEEP or not text.startswith("{"):
        return text
    shallow = [(key, value) for key, value in members(text) if key in _KNOWN and value.count("[") < _DEEP]
    return "{" + ",".join(f'"{key}":{value}' for key, value in shallow) + "}"


def _verbatim(text: str | None) -> dict[str, str]:
    """Shapes and types of inputs that are present and not null."""
    if text is None or not text.startswith("{") or ('"Input ' not in text and "\\" not in text):
        return {}
    values = dict(reversed(members(text)))  # the first value of a repeated key wins
    return {key: value for key, value in values.items() if value != "null" and key in _KNOWN}


_CODES = ("ph", "cat", "name", "pid", "tid", "extra")


def fill_odd(
    columns: BatchColumns,
    rows: Rows,
    texts: Sequence[str],
    dictionaries: Dictionaries,
    *,
    in_ns: bool = False,
) -> None:
    """Fills all columns of these rows except typed arguments; `in_ns`: times in the file are nanoseconds."""
    parsed = [row(text) for text in texts]
    _place_ids(parsed)
    for name in _CODES:
        values = pa.array([row[name] for row in parsed], pa.string())
        columns.set_codes(name, rows, dictionaries.of(name).codes_of(values))
    for name in ("args", "id"):
        values = pa.array([row[name] for row in parsed], pa.string())
        columns.set_texts("flow_id" if name == "id" else name, rows, values)
    fill_times(columns, rows, parsed, in_ns=in_ns)


def to_ns(columns: BatchColumns, rows: Rows) -> None:
    """Converts times of these rows that the scanner read as microseconds to the nanoseconds that they are.

    The digits of the file are stored in every row because formatting the time does not reproduce them.
    """
    fractions = {}
    for name in ("ts", "dur"):
        values, valid = columns.times(name)
        lacks_text = valid[rows]
        if (texts := columns.texts.get(f"{name}_text")) is not None:
            lacks_text &= texts.is_null().to_numpy(zero_copy_only=False)[rows]
        if (without_text := rows[lacks_text]).size:
            columns.set_texts(f"{name}_text", without_text, printed(values[without_text]))
        values[rows], remainder = np.divmod(values[rows], 1000)
        fractions[name] = (remainder * 1000).astype(np.int32)
    columns.add_fractions(Fractions(rows, **fractions))


def fill_arguments(columns: BatchColumns, rows: Rows, dictionaries: Dictionaries) -> None:
    """Fills the typed arguments of these rows from the column `args`."""
    args = columns.texts.get("args")
    if args is None:
        return
    table = typed_arguments(args if len(rows) == columns.rows else args.take(pa.array(rows)))
    for name in (*TYPED_INTS, *DOUBLES):
        column, dtype = table.column(name), np.float64 if name in DOUBLES else np.int64
        values = pc.fill_null(column, 0).to_numpy().astype(dtype, copy=False)
        columns.set_numbers(name, rows, values, column.is_valid().to_numpy().astype(np.bool_, copy=False))
    for name in TYPED_TEXTS:
        texts = table.column(name).cast(pa.string()).combine_chunks()
        if texts.null_count < len(texts) or name in columns.codes:
            columns.set_codes(name, rows, dictionaries.of(name).codes_of(texts))
    columns.collective[rows] = table.column("has_collective").to_numpy()


def _place_ids(parsed: Sequence[Row]) -> None:
    """Stores the ids as text; `extra` also contains those whose type the text does not show."""
    with_id = [row for row in parsed if row["id"] is not None]
    if not with_id:
        return
    tokens = [row["id"] or "" for row in with_id]
    ids = read_tokens(tokens)
    for row, token, text, keeps_type in zip(with_id, tokens, ids.texts, ids.keeps_type, strict=True):
        row["id"] = text
        if not keeps_type:
            other_extra = row["extra"]
            row["extra"] = f'{{"id": {token}, {other_extra[1:-1]}}}' if other_extra else f'{{"id": {token}}}'


def fill_times(columns: BatchColumns, rows: Rows, parsed: Sequence[Row], *, in_ns: bool = False) -> None:
    """Fills start and duration of these rows."""
    read_time = time_in_ns if in_ns else time_of
    texts = {name: [row[f"{name}_text"] for row in parsed] for name in ("ts", "dur")}
    times = {name: [read_time(text) for text in values] for name, values in texts.items()}
    for index, text in enumerate(texts["ts"]):
        if times["ts"][index] is None and (start_ns := out_of_range_ns(text)) is not None and not in_ns:
            columns.out_of_range_ns[int(rows[index])] = start_ns
    fractions = {}
    for name, values in times.items():
        ns = np.fromiter((time.ns if time else 0 for time in values), np.int64, len(values))
        valid = np.fromiter((time is not None for time in values), np.bool_, len(values))
        columns.set_numbers(name, rows, ns, valid)
        fractions[name] = np.fromiter(
            (time.fraction if time else 0 for time in values), np.int32, len(values)
        )
    has_fraction = (fractions["ts"] > 0) | (fractions["dur"] > 0) | in_ns
    for name, values in times.items():
        stored_texts = [
            text if keep or not time or text != _printed_us(time.ns) else None
            for text, time, keep in zip(texts[name], values, has_fraction.tolist(), strict=True)
        ]
        columns.set_texts(f"{name}_text", rows, pa.array(stored_texts, pa.string()))
    if has_fraction.any():
        selected = Fractions(
            rows[has_fraction], fractions["ts"][has_fraction], fractions["dur"][has_fraction]
        )
        columns.add_fractions(selected)


class BatchStore:
    """The buffered batches of one file, with its dictionaries, redactions and file-wide facts."""

    def __init__(self, redactor: Redactor, spill: Path, *, in_ns: bool = False) -> None:
        self._in_ns = in_ns
        self.dictionaries = Dictionaries()
        self.facts = FileFacts()
        self.secrets = SecretSearch(redactor)
        self.batches = Spill(spill)
        self.time_unit = TimeUnit()
        self.rows = 0

    def add(self, batches: Iterable[Batch]) -> None:
        """Appends batches, in file order."""
        for batch in batches:
            self.dictionaries.begin(batch.dictionaries, batch.restarted)
            columns = BatchColumns.of(batch)
            self.secrets.clean_batch(batch, columns, self.rows, self.dictionaries)
            if (batch.flags & (ODD | SLOW | SUBNS)).any():
                self._fill(batch, columns)
            if self._in_ns:
                to_ns(columns, np.flatnonzero((batch.flags & (ODD | SUBNS)) == 0))
            self.time_unit.add_times(columns)
            self.facts.add(columns, self.rows, self.dictionaries)
            self.batches.add(to_record_batch(columns, self.dictionaries))
            self.rows += batch.rows

    def close(self) -> None:
        """Discards all batches."""
        self.batches.close()

    def _fill(self, batch: Batch, columns: BatchColumns) -> None:
        odd = np.flatnonzero(batch.flags & ODD)
        if odd.size:
            texts = self.secrets.clean_elements(_texts(batch, odd), odd + self.rows)
            fill_odd(columns, odd, texts, self.dictionaries, in_ns=self._in_ns)
        typed = np.flatnonzero(batch.flags & (ODD | SLOW))
        if typed.size:
            fill_arguments(columns, typed, self.dictionaries)
        fractions = np.flatnonzero((batch.flags & (ODD | SUBNS)) == SUBNS)
        if fractions.size:
            parsed = [row(text) for text in _texts(batch, fractions).to_pylist()]
            fill_times(columns, fractions, parsed, in_ns=self._in_ns)


def _texts(batch: Batch, rows: NDArray[np.int64]) -> pa.Array:
    texts = batch.texts["text"]
    return texts if len(rows) == batch.rows else texts.take(pa.array(rows))


_SECOND: Final = 10**9


class FileFacts(Struct):
    """Facts that depend on all rows of the file.

    `first_ns` is the smallest positive start of a slice in ns since the base time, rounded up.
    `begin_end_events` are the B and E rows that have a time. `process_names` are (pid token, args) of
    process_name metadata.
    """

    first_ns: int | None = None
    begin_end_events: list[BeginEndEvents] = field(default_factory=list)
    process_names: set[tuple[str | None, str | None]] = field(default_factory=set)

    def add(self, columns: BatchColumns, first: int, dictionaries: Dictionaries) -> None:
        """Adds the facts of a batch whose first row is the event `first`."""
        phases = columns.codes.get("ph")
        if phases is None:
            return
        ph = {text: dictionaries.of("ph").codes_with(text) for text in "XBEM"}
        self._add_start(columns, np.isin(phases, ph["X"]))
        if np.isin(phases, ph["B"] + ph["E"]).any():
            self._add_begin_end(columns, first, dictionaries, ph)
        if (is_metadata := np.isin(phases, ph["M"])).any():
            self._add_processes(columns, is_metadata, dictionaries)

    def _add_start(self, columns: BatchColumns, is_slice: NDArray[np.bool_]) -> None:
        starts = [ns for row, ns in columns.out_of_range_ns.items() if ns > 0 and is_slice[row]]
        if self.first_ns is not None:
            starts.append(self.first_ns)
        if "ts" in columns.ints:
            values, valid = columns.ints["ts"]
            if columns.fractions is not None:
                values = values.copy()
                values[columns.fractions.rows] += columns.fractions.ts > 0
            positive = values[is_slice & valid & (values > 0)]
            if positive.size:
                starts.append(int(positive.min()))
        self.first_ns = min(starts, default=None)

    def _add_begin_end(
        self, columns: BatchColumns, first: int, dictionaries: Dictionaries, ph: Mapping[str, list[int]]
    ) -> None:
        phases = columns.codes["ph"]
        values, valid = columns.times("ts")
        seconds, ns = np.divmod(values, _SECOND)
        for row, start_ns in columns.out_of_range_ns.items():
            seconds[row], ns[row] = divmod(start_ns, _SECOND)
        is_timed = valid.copy()
        is_timed[list(columns.out_of_range_ns)] = True
        rows = np.flatnonzero(np.isin(phases, ph["B"] + ph["E"]) & is_timed)
        fractions = np.zeros(columns.rows, np.int32)
        if columns.fractions is not None:
            fractions[columns.fractions.rows] = columns.fractions.ts
        tracks = [_texts_at(columns, name, rows, dictionaries) for name in ("pid", "tid")]
        is_begin = np.isin(phases[rows], ph["B"])
        self.begin_end_events.append(
            BeginEndEvents(rows + first, is_begin, seconds[rows], ns[rows], fractions[rows], *tracks)
        )

    def _add_processes(
        self, columns: BatchColumns, is_metadata: NDArray[np.bool_], dictionaries: Dictionaries
    ) -> None:
        names = columns.codes.get("name")
        args = columns.texts.get("args")
        if names is None or args is None:
            return
        codes = dictionaries.of("name").codes_with("process_name")
        rows = np.flatnonzero(is_metadata & np.isin(names, codes))
        pids = _texts_at(columns, "pid", rows, dictionaries).to_pylist()
        self.process_names.update(zip(pids, args.take(pa.array(rows)).to_pylist(), strict=True))


def _texts_at(
    columns: BatchColumns, name: str, rows: NDArray[np.int64], dictionaries: Dictionaries
) -> pa.Array:
    codes = columns.codes.get(name)
    return pa.nulls(len(rows), pa.string()) if codes is None else dictionaries.of(name).texts(codes[rows])


# Columns whose dictionary values are JSON, not strings.
_JSON: Final = frozenset(("pid", "tid", "extra", "shapes", "dtypes"))
_EVENT_FIELDS: Final = tuple(name for name in CODES if name not in TYPED_TEXTS)


class SecretSearch(Struct):
    """Replaces secrets batch by batch; `redactions` lists where they were."""

    redactor: Redactor
    redactions: list[Redaction] = field(default_factory=list)
    # Whether a distinct string is a secret or the key of one, so that each row must be searched.
    _search_rows: bool = False
    _searched: dict[str, int] = field(default_factory=dict)

    def clean_elements(self, texts: pa.Array, ids: Rows) -> list[str]:
        """The texts of complete elements without secrets."""
        clean, hits = self.redactor.events(texts, 0)
        self.redactions += [Redaction(int(ids[hit.event_id or 0]), hit.path, hit.kind) for hit in hits]
        elements: list[str] = texts.to_pylist()
        for index, text in clean.items():
            elements[index] = text
        return elements

    def clean_batch(
        self, batch: Batch, columns: BatchColumns, first: int, dictionaries: Dictionaries
    ) -> None:
        """Replaces the secrets in the columns filled by the scanner; `first` is the id of the first row."""
        self._search_new(batch, dictionaries)
        for name in _EVENT_FIELDS:
            if name in columns.codes:
                self._note_values(name, columns, first, dictionaries.of(name))
        if self._search_rows:
            self._clean_rows(columns, first)

    def _search_new(self, batch: Batch, dictionaries: Dictionaries) -> None:
        """Searches the new strings of a batch, all with one scan."""
        searched = [(name, *self._new_values(name, batch)) for name in batch.dictionaries]
        strings = batch.new_strings
        if strings is None:
            self._search_rows = True
            strings = pa.array([], pa.string())
        places = self.redactor.flagged(pa.concat_arrays([*(values for _, _, values in searched), strings]))
        first = 0
        for name, start, values in searched:
            mine = [place - first for place in places if first <= place < first + len(values)]
            dictionary = dictionaries.of(name)
            for index in mine:
                value = values[index].as_py()
                clean, _ = self.redactor.text(value) if name in _JSON else self.redactor.clean(value)
                if clean != value:
                    dictionary.clean[start + index] = clean
                    # The arguments contain the value, too.
                    self._search_rows = self._search_rows or name in TYPED_TEXTS
            first += len(values)
        if not self._search_rows:
            decoded = (_decoded(strings[place - first].as_py()) for place in places if place >= first)
            self._search_rows = any(
                self.redactor.is_weak_key(string) or self.redactor.is_suspect(string) for string in decoded
            )

    def _new_values(self, name: str, batch: Batch) -> tuple[int, pa.Array]:
        """The values of a dictionary that were not searched before, and the code of the first."""
        values = batch.dictionaries[name]
        start = 0 if name in batch.restarted else self._searched.get(name, 0)
        self._searched[name] = len(values)
        return start, values.slice(start)

    def _note_values(
        self, name: str, columns: BatchColumns, first: int, dictionary: ColumnDictionary
    ) -> None:
        """Records a redaction for each row whose value contains a secret."""
        secret = np.array([code for code in dictionary.clean if code >= 0], np.int32)
        if not secret.size:
            return
        codes = columns.codes[name]
        for row in np.flatnonzero(np.isin(codes, secret)).tolist():
            value = dictionary.of_scanner[int(codes[row])].as_py()
            if name != "extra":
                value = f'{{"{name}":{value if name in _JSON else quote(value)}}}'
            self.redactions += self.redactor.text(value, first + row)[1]

    def _clean_rows(self, columns: BatchColumns, first: int) -> None:
        """Replaces secrets in arguments and flow ids."""
        for name, key in (("args", "args"), ("flow_id", "id")):
            texts = columns.texts.get(name)
            if texts is None:
                continue
            is_json = name == "args"
            places = self.redactor.flagged(texts) if is_json else self.redactor.suspects(texts)
            clean = [self._clean_cell(key, texts[row].as_py(), first + row, is_json) for row in places]
            changed = [index for index, text in enumerate(clean) if text is not None]
            if changed:
                rows = np.array([places[index] for index in changed], np.int64)
                columns.set_texts(name, rows, pa.array([clean[index] for index in changed], pa.string()))

    def _clean_cell(self, key: str, value: str, event_id: int, is_json: bool) -> str | None:
        """The cell without its secrets; None if it has none."""
        text = f'{{"{key}":{value if is_json else quote(value)}}}'
        clean, hits = self.redactor.text(text, event_id)
        if not hits:
            return None
        self.redactions += hits
        cell = clean[len(key) + 4 : -1]
        return cell if is_json else unquote(cell)


def _decoded(text: str) -> str:
    return text if "\\" not in text else str(msgspec.json.decode(f'"{text}"'))
