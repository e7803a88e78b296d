"""Tables of a trace file as `activities`: batches of columns, look-ups, redaction and the order of events.

Formats that store records in tables produce one batch per source table and combine them here.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.formats.base import ACTIVITIES, Defect, Outcome, Part, Redaction, Request, once_per_file
from tracewarehouse.formats.file_text import Text, digest_of, digest_of_files, files_of, read_text
from tracewarehouse.formats.redact.text import Redactor

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Maximum lengths of an example in a finding, and of the text that is searched for secrets before it is cut.
_EXAMPLE: Final = 120
_SEARCHED: Final = 4096


class Notes(Struct):
    """Findings while a part is read, one per rule: rows and the first example, as it is in the file."""

    found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, rule: str, rows: int, example: str) -> None:
        """Counts rows for a rule."""
        if rows:
            before, first = self.found.get(rule, (0, example[:_SEARCHED]))
            self.found[rule] = before + rows, first

    def findings(self, redactor: Redactor) -> tuple[Defect, ...]:
        """The findings by rule. Examples are cut after secrets are replaced, so that no part remains."""
        return tuple(
            Defect(rule, rows, short_text(example, redactor, _EXAMPLE))
            for rule, (rows, example) in sorted(self.found.items())
        )


def header_of(devices: Sequence[Any], host: str | None = None) -> dict[str, Any]:
    """The properties of devices and the name of the host with Kineto's keys, as far as they are known."""
    return {key: each for key, each in (("deviceProperties", devices), ("host_name", host)) if each}


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
        clean, kinds_of = _without_secrets(words, redactor)
        if kinds_of:
            found += [Redaction(None, name, kind) for kinds in kinds_of.values() for kind in kinds]
            chunks = [pa.DictionaryArray.from_arrays(chunk.indices, clean) for chunk in column.chunks]
            table = table.set_column(at, name, pa.chunked_array(chunks))
    return table, tuple(found)


def _without_secrets(words: pa.Array, redactor: Redactor) -> tuple[pa.Array, dict[int, Sequence[str]]]:
    """Words without secrets, and the kinds of those in each word that may have one."""
    kinds: dict[int, Sequence[str]] = {}
    texts: list[Any] = []
    for place in redactor.suspects(words):
        texts = texts or words.to_pylist()
        texts[place], kinds[place] = redactor.clean(texts[place])
    return pa.array(texts, pa.string()) if kinds else words, kinds


def stacked(batches: Sequence[Mapping[str, pa.Array]]) -> pa.Table:
    """A table of batches whose columns may differ: each has the type that holds the values of all batches."""
    types: dict[str, pa.DataType] = {}
    for name, column in (each for batch in batches for each in batch.items()):
        types[name] = column.type if types.get(name) in (None, column.type) else pa.string()
    tables = [
        pa.table({name: column.cast(types[name]) for name, column in batch.items()}) for batch in batches
    ]
    return pa.concat_tables([pa.table({}), *tables], promote_options="default")


def declared_type(type_: str) -> pa.DataType:
    """The Arrow type of a column by its declaration."""
    if any(word in type_ for word in ("INT", "BOOL")):
        return pa.int64()
    return pa.float64() if any(word in type_ for word in ("REAL", "FLOA", "DOUB")) else pa.string()


def to_ints(column: pa.Array) -> pa.Array:
    """Numbers or texts as integers; null where they are none."""
    if pa.types.is_integer(column.type):
        return column
    if pa.types.is_floating(column.type):
        values = column.to_numpy(zero_copy_only=False)
        whole = np.isfinite(values) & (np.floor(values) == values) & (np.abs(values) < 2**63)
        return pa.array(np.where(whole, values, 0).astype(np.int64), mask=~whole)
    column = column.cast(pa.string())
    numbers = pc.match_substring_regex(column, r"^-?[0-9]{1,18}$")
    return pc.if_else(numbers, column, pa.scalar(None, pa.string())).cast(pa.int64())


OUTPUT_ROWS: Final = 122_880
# More rows are usually stored in a file while tables are built, batch by batch.
_MOST_IN_ONE: Final = 4 * OUTPUT_ROWS
_LONG_TEXTS: Final = 1 << 30
# Columns with few distinct texts.
_DICTIONARIES: Final = (
    "ph", "category", "raw_category", "name", "pid", "tid", "shapes", "sync_kind", "collective",
    "process_group", "group_ranks", "collective_dtype", "dtypes",
)  # fmt: skip
_FLAGS: Final = ("has_collective", "repaired")
_DOUBLES: Final = ("occupancy", "blocks_per_sm", "warps_per_sm", "bandwidth_bytes_per_ns")
# Whether `args` has a text that may contain a secret; not a column of activities.
HAS_TEXT: Final = "has_text"
# Rows that start at the same time are in this order; not a column of activities either.
POSITION: Final = "position"
# The position of a row is its part, and in these bits its number in the part.
PART_BITS: Final = 40
# Columns of any text but JSON arguments.
_FREE_TEXTS: Final = ("ts_text", "dur_text", "flow_id", "extra")
_TEXTS: Final = (*_FREE_TEXTS, "args")


def column_type(name: str) -> pa.DataType:
    """The type of a column while rows are collected."""
    # Collected texts can exceed the 2 GB of 32-bit offsets.
    return pa.large_string() if name == "args" else activity_type(name)


class ActivityRows(Struct):
    """Collects batches of rows from source tables; `batches` returns them in the order of their start.

    Rows with equal start keep the order of `add`; rows without a start come last. `redactions` is complete
    after the last batch.
    """

    redactor: Redactor
    rows: int = 0
    redactions: list[Redaction] = field(default_factory=list)
    _collected: list[tuple[int, dict[str, pa.Array]]] = field(default_factory=list)

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Adds rows, with POSITION, `args` and HAS_TEXT; other columns that are missing are null.

        Columns with few distinct texts may be dictionary-encoded.
        """
        rows = len(columns[POSITION])
        self._collected.append((rows, {name: _collected(name, values) for name, values in columns.items()}))
        self.rows += rows

    def has(self, name: str, part: int) -> bool:
        """Whether rows of a part were added with a column."""
        positions = (columns[POSITION] for _, columns in self._collected if name in columns)
        return any(position[0].as_py() >> PART_BITS == part for position in positions)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows with their event ids, once."""
        if not self.rows:
            return
        starts, positions = (
            pa.chunked_array([columns[name] for _, columns in self._collected])
            for name in ("ts_ns", POSITION)
        )
        order = _order(starts, positions.to_numpy())
        rows = pa.array(order)
        names = self._names()
        # The pieces of a column are freed once it is in order.
        ordered = {name: self._ordered(name, rows) for name in names if name not in _TEXTS}
        texts = {name: _Texts(self._pieces(name)) for name in names if name in _TEXTS}
        self._collected.clear()
        # A batch holds all rows, unless there are many or they have very long texts.
        is_long = any(each.bytes > _LONG_TEXTS for each in texts.values())
        step = OUTPUT_ROWS if is_long or self.rows > _MOST_IN_ONE else self.rows
        for first in range(0, len(order), step):
            some = order[first : first + step]
            yield self._batch(
                {
                    name: texts[name].take(some) if name in texts else ordered[name].slice(first, step)
                    for name in names
                },
                first,
            )

    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        names = ("event_id", *(name for name in self._names() if name != HAS_TEXT))
        return pa.schema([(name, activity_type(name)) for name in names])

    def _names(self) -> list[str]:
        found = (name for _, columns in self._collected for name in columns)
        return [name for name in dict.fromkeys((*found, *_FLAGS)) if name != POSITION]

    def _pieces(self, name: str) -> list[pa.Array]:
        """The pieces of a column, which are no longer collected; null where it is missing."""
        return [
            columns.pop(name) if name in columns else pa.nulls(rows, column_type(name))
            for rows, columns in self._collected
        ]

    def _ordered(self, name: str, rows: pa.Array) -> pa.Array:
        """A column of numbers or of encoded texts, without secrets, in order."""
        pieces = self._pieces(name)
        if name not in _DICTIONARIES:
            return pa.concat_arrays(pieces).take(rows)
        found = pa.chunked_array(pieces).unify_dictionaries()
        codes = pa.concat_arrays([piece.indices for piece in found.chunks]).take(rows)
        words = self._clean_words(name, found.chunk(0).dictionary, codes)
        return pa.DictionaryArray.from_arrays(codes, words)

    def _batch(self, columns: dict[str, pa.Array], first: int) -> pa.RecordBatch:
        has_text, rows = columns.pop(HAS_TEXT), len(columns["ts_ns"])
        for name in columns.keys() & {*_FREE_TEXTS}:
            columns[name] = self._clean_texts(name, columns[name], first)
        columns["args"] = self._clean_args(columns["args"], has_text, first)
        for name in _FLAGS:
            columns[name] = pc.fill_null(columns[name], False)
        ids = pa.array(np.arange(first, first + rows))
        fields = {name: values.cast(activity_type(name)) for name, values in columns.items()}
        return pa.RecordBatch.from_pydict({"event_id": ids} | fields)

    def _clean_words(self, name: str, words: pa.Array, codes: pa.Array, first: int = 0) -> pa.Array:
        """The words of a column without secrets; `codes` are those of the rows from `first` on."""
        clean, kinds_of = _without_secrets(words, self.redactor)
        for word, kinds in kinds_of.items():
            for row in pc.indices_nonzero(pc.fill_null(pc.equal(codes, word), False)).to_pylist():
                self.redactions += [Redaction(first + row, f"$.{name}", kind) for kind in kinds]
        return clean

    def _clean_texts(self, name: str, column: pa.Array, first: int) -> pa.Array:
        if not self.redactor.suspects(column):
            return column
        encoded = column.dictionary_encode()
        words = self._clean_words(name, encoded.dictionary, encoded.indices, first)
        return pa.DictionaryArray.from_arrays(encoded.indices, words).cast(column.type)

    def _clean_args(self, args: pa.Array, has_text: pa.Array, first: int) -> pa.Array:
        rows: NDArray[np.int64] = (
            pc.indices_nonzero(pc.fill_null(has_text, False)).to_numpy().astype(np.int64)
        )
        if not rows.size:
            return args
        texts, hits = self.redactor.events(args.take(pa.array(rows)).cast(pa.string()), 0)
        self.redactions += [
            Redaction(first + int(rows[hit.event_id or 0]), f"$.args{hit.path[1:]}", hit.kind) for hit in hits
        ]
        if not texts:
            return args
        mask = np.zeros(len(args), np.bool_)
        mask[rows[list(texts)]] = True
        return pc.replace_with_mask(args, pa.array(mask), pa.array(list(texts.values()), args.type))


class _Texts:
    """A column of texts, of which each piece is freed once all of its rows are taken."""

    def __init__(self, pieces: list[pa.Array]) -> None:
        self._pieces = pieces
        lengths = list(map(len, pieces))
        self._starts, self._left = np.cumsum([0, *lengths]), np.array(lengths)
        # NumPy sorts small integers in linear time.
        self._piece_of = np.repeat(np.arange(len(pieces), dtype=np.min_scalar_type(len(pieces))), lengths)
        self.bytes = sum(piece.nbytes for piece in pieces)

    def take(self, rows: NDArray[np.int64]) -> pa.Array:
        """The texts of these rows, each of which is taken once."""
        if len(rows) == len(self._piece_of):
            whole = pa.concat_arrays(self._pieces)
            self._pieces.clear()
            return whole.take(pa.array(rows))
        piece_of = self._piece_of[rows]
        order = np.argsort(piece_of, kind="stable")
        counts = np.bincount(piece_of, minlength=len(self._pieces))
        self._left -= counts
        taken = []
        for number, some in enumerate(np.split(rows[order], np.cumsum(counts)[:-1])):
            if len(some):
                taken.append(self._pieces[number].take(pa.array(some - self._starts[number])))
            if not self._left[number]:
                self._pieces[number] = None
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        found = pa.concat_arrays(taken)
        del taken
        return found.take(pa.array(place))


def _order(starts: pa.ChunkedArray, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows by start, then by position; rows without a start last."""
    values = pc.fill_null(starts, 0).to_numpy()
    if starts.null_count or not (positions[1:] >= positions[:-1]).all():
        return np.lexsort((positions, values, starts.is_null().to_numpy()))
    return np.argsort(values, kind="stable")  # merges runs, as source tables are usually sorted


def _collected(name: str, values: pa.Array) -> pa.Array:
    """A column to be collected, in its type."""
    type_ = column_type(name)
    if name not in _DICTIONARIES:
        # A copy: what DuckDB returned is freed with the last of its columns. Arguments are made from it.
        return values.cast(type_) if name == "args" else pa.concat_arrays([values.cast(type_)])
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, encoded.dictionary.cast(type_.value_type))


@cache
def declared_columns(table: str, *, encoded: bool = False) -> pa.Schema:
    """The columns that a format fills of a stored table, by its contract; texts may be dictionary-encoded."""
    from tracewarehouse.contracts.catalog import Catalog
    from tracewarehouse.duck.arrow import type_of

    columns = Catalog.load().get(table, kind="table").columns
    types = {each.name: type_of(each.type) for each in columns if each.name not in ("run_id", "rank")}
    text = pa.dictionary(pa.int32(), pa.string()) if encoded else pa.string()
    return pa.schema([(name, text if type_ == pa.string() else type_) for name, type_ in types.items()])


def activity_type(name: str) -> pa.DataType:
    """The type of a column of activities."""
    if name in _DICTIONARIES:
        return pa.dictionary(pa.int32(), pa.string())
    if name in _TEXTS:
        return pa.string()
    if name in _FLAGS or name == HAS_TEXT:
        return pa.bool_()
    return pa.float64() if name in _DOUBLES else pa.int64()


class FileSource(ABC):
    """A Source of a file that the constructor reads, unless its content is known.

    `base_time_ns` is the origin of the times in the file, 0 if they are absolute; `clock` names their clock.
    """

    base_time_ns: int = 0
    clock: ClassVar[str] = ""
    _content: Text

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        self._path, self._part, self._request = path, part, request
        self._redactor = Redactor(request.salt, request.policy)
        self._redactions: list[Redaction] = []
        self._notes = Notes()
        self._unchanged = False
        self._tables: dict[str, pa.RecordBatchReader] = {}
        self._events = 0

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The tables. They can be read once."""
        return self._tables

    def _header(self) -> Mapping[str, Any]:
        """The metadata of the file; device properties and host name with Kineto's keys."""
        return {}

    def _facts(self) -> Mapping[str, object]:
        """Columns of `ranks`."""
        return {"clock": self.clock} if self.clock else {}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        content = self._content
        if self._unchanged:
            return Outcome(content.digest, "{}", content.size, content.stored_bytes)
        header, hits = self._redactor.header(json.dumps(self._header(), ensure_ascii=False))
        facts: dict[str, Any] = dict(self._facts())
        return Outcome(
            digest=content.digest,
            header_json=header,
            text_bytes=content.size,
            stored_bytes=content.stored_bytes,
            events=self._events,
            base_time_ns=self.base_time_ns,
            rank=facts.pop("rank", self._part.rank),
            redactions=(*hits, *self._redactions),
            findings=self._notes.findings(self._redactor),
            facts=facts,
        )


class RecordSource(FileSource):
    """A Source with tables of records, the first of which has a row per record.

    `most_bytes` is the size of the text at most, and what an error says about a longer one.
    """

    most_bytes: ClassVar[tuple[int, str, str]]

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        super().__init__(path, part, request)
        self._content = Text(path)
        with TemporaryFile(dir=request.spill) as content:
            content.writelines(self._content.within(*self.most_bytes))
            content.seek(0)
            self._unchanged = request.known_digest == self._content.digest
            for name, table in () if self._unchanged else self._walk(content):
                clean, redactions = redacted(table, self._redactor)
                self._events = self._events if self._tables else table.num_rows
                self._tables[name] = clean.to_reader()
                self._redactions += redactions

    @abstractmethod
    def _walk(self, content: IO[bytes]) -> Iterable[tuple[str, pa.Table]]:
        """The names and tables of the records in the text. Raises TraceFormatError."""


class CollectedSource(FileSource):
    """A Source with the activities of one process. The constructor reads the file with `_read`."""

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        super().__init__(path, part, request)
        self._content = self._digest()
        self._unchanged = request.known_digest == self._content.digest
        if self._unchanged:
            return
        self._rows = ActivityRows(self._redactor, redactions=self._redactions)
        self._read()
        self._events = self._rows.rows
        batches = pa.RecordBatchReader.from_batches(self._rows.schema(), self._rows.batches())
        self._tables[ACTIVITIES] = batches

    def _digest(self) -> Text:
        """Digest and sizes of the content. The files of a folder may change without it."""
        files = files_of(self._path)
        return _content(self._path) if files == [self._path] else digest_of_files(self._path, files)

    @abstractmethod
    def _read(self) -> None:
        """Adds the activities to `_rows` and the findings to `_notes`. Raises TraceFormatError."""


class TextSource(CollectedSource):
    """A CollectedSource whose file is read as a whole, once. It is kept for other parts."""

    _text: Text

    def _digest(self) -> Text:
        self._text = read_text(self._path, self._request.spill, keep=bool(self._part.name))
        return replace(self._text, buffer=b"")

    def _take_text(self) -> Text:
        """The text, once: it is freed when it is read."""
        text = self._text
        del self._text
        return text


# A file with several parts is hashed once per process.
_content: Final = once_per_file(digest_of)
