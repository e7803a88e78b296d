"""The Kineto format: detection, the one pass over a file, and the source that yields `activities`."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import ACTIVITIES, Defect, Outcome, Part, Request
from tracewarehouse.formats.file_text import Text, digest_of, head_of, read_text
from tracewarehouse.formats.json_text import LONGEST_BYTES, LongStrings
from tracewarehouse.formats.kineto import columns, document
from tracewarehouse.formats.kineto.activities import (
    EPOCH_GAP_NS,
    ActivityBuilder,
    Clock,
    FileContext,
    match_pairs,
)
from tracewarehouse.formats.kineto.batches import BatchStore
from tracewarehouse.formats.kineto.columns import read_tokens
from tracewarehouse.formats.kineto.document import Document
from tracewarehouse.formats.kineto.event_array import Losses
from tracewarehouse.formats.kineto.library import scanned_ahead
from tracewarehouse.formats.kineto.scanner import (
    MOST_BYTES,
    RefusedError,
    Scanner,
    ScannerOfFile,
    State,
    new_scanner,
)
from tracewarehouse.formats.redact.text import redactor_of
from tracewarehouse.late_regex import late_regex

_LIST_START: Final = late_regex(rb"\s*\[")


class NotStrictError(Exception):
    """The document is incomplete, not strict JSON or starts with no event: use the tolerant reader."""


class Reading(Struct):
    """The result of reading a file: its batches and the facts about the complete file."""

    store: BatchStore
    members: Mapping[str, bytes]
    digest: str
    text_bytes: int
    stored_bytes: int
    losses: Losses = field(default_factory=Losses)
    repaired: list[int] = field(default_factory=list)
    # Lengths of strings that were too long to store.
    replaced: list[int] = field(default_factory=list)


def read(path: Path, request: Request) -> Reading:
    """Reads the complete file. Raises TraceFormatError if nothing in it can be read."""
    try:
        return _read_strict(path, request)
    except NotStrictError:
        return _read_tolerant(path, request)


def _read_strict(path: Path, request: Request) -> Reading:
    if not request.exact and (scanned := scanned_ahead(path)) is not None:
        with suppress(NotStrictError):
            return _read_pieces(scanned.stream, iter(scanned.pieces), ScannerOfFile(scanned), request)
    stream = Text(path)
    return _read_pieces(stream, iter(stream), new_scanner(exact=request.exact), request)


def _read_pieces(stream: Text, pieces: Iterator[bytes], scanner: Scanner, request: Request) -> Reading:
    store = _batch_store(request)
    try:
        found = _StrictReader(pieces, scanner, store, request)
        found.run()
        if stream.cut is not None or not store.rows:
            raise NotStrictError
    except BaseException:
        store.close()
        raise
    if request.progress is not None:
        request.progress(stream.size)
    return Reading(
        store, found.members, stream.digest, stream.size, stream.stored_bytes, replaced=found.replaced
    )


class _StrictReader(Struct, dict=True):
    """Reads a complete, strict document. Raises NotStrictError."""

    pieces: Iterator[bytes]
    scanner: Scanner
    store: BatchStore
    request: Request
    members: dict[str, bytes] = field(default_factory=dict)
    # Lengths of strings that were too long to store.
    replaced: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._read_bytes = 0
        self._strings: LongStrings | None = None
        self._text = self._pieces()
        self.scanner.longest_bytes = LONGEST_BYTES // 2

    def run(self) -> None:
        is_list, rest = self._head()
        self._feed(rest)
        while self.scanner.state is State.MORE and (piece := next(self._text, None)) is not None:
            self._feed(piece)
        self.store.add(iter(self.scanner.flush, None))
        if self.scanner.state is not State.CLOSED:
            raise NotStrictError
        tail = bytearray(self.scanner.take_rest())
        for piece in self._text:
            tail += piece
            tail = self._limit_length(tail)
        self._end_search()
        self._tail(is_list, bytes(tail))

    def _pieces(self) -> Iterator[bytes]:
        """The text; long strings are replaced while the search for them is active."""
        for piece in self.pieces:
            self._read_bytes += len(piece)
            if self.request.progress is not None:
                self.request.progress(self._read_bytes)
            # Parts are small enough that an element is detected as long before a long string in it ends.
            for at in range(0, len(piece), LONGEST_BYTES // 2):
                part = piece[at : at + LONGEST_BYTES // 2]
                yield part if self._strings is None else self._strings.feed(part)

    def _limit_length(self, text: bytearray) -> bytearray:
        """The text, which starts outside a string, without long strings; NotStrictError if it is long."""
        if len(text) > min(LONGEST_BYTES, document.MOST_HEADER_BYTES) and self._strings is None:
            text = bytearray(self._replace_long_strings(bytes(text)))
        if len(text) > document.MOST_HEADER_BYTES:
            raise NotStrictError
        return text

    def _replace_long_strings(self, text: bytes) -> bytes:
        """The text without long strings; starts the search for them, which lasts until an element ends."""
        self._strings = LongStrings(self.request.salt)
        return self._strings.feed(text)

    def _end_search(self) -> None:
        if self._strings is not None:
            self.replaced += self._strings.replaced
            self._strings = None

    def _feed(self, piece: bytes) -> None:
        """Feeds the scanner; a long element is fed without its long strings."""
        rows_before = self.scanner.rows
        self.store.add(self.scanner.feed(piece))
        if self.scanner.state is State.TOO_LONG:
            if self._strings is None:
                self.store.add(self.scanner.feed(self._replace_long_strings(self.scanner.take_rest())))
            if self.scanner.state is State.TOO_LONG:
                self.scanner.longest_bytes = MOST_BYTES
                self.store.add(self.scanner.feed(b""))
        elif self.scanner.rows > rows_before and not (self._strings is not None and self._strings.inside):
            self._end_search()
            self.scanner.longest_bytes = LONGEST_BYTES // 2
        if self.scanner.state in (State.REFUSED, State.TOO_LONG):
            raise NotStrictError

    def _head(self) -> tuple[bool, bytes]:
        """Reads up to the first event; returns whether the document is a list, and the text from there."""
        text, size = bytearray(), 0
        for piece in self._text:
            text += piece
            text = self._limit_length(text)
            if len(text) < size:
                continue
            if (found := self._events_start(bytes(text))) is not None:
                return found
            size = 4 * len(text)
        if (found := self._events_start(bytes(text))) is not None:
            return found
        raise NotStrictError

    def _events_start(self, text: bytes) -> tuple[bool, bytes] | None:
        first = text.lstrip()[:1]
        if first and first not in (b"{", b"["):
            raise NotStrictError
        if (start := _LIST_START.match(text)) is not None:
            return self._from(True, text, start.end())
        for start in document.EVENTS_START.finditer(text):
            if (found := document.members_before(text[: start.end()] + b"]}")) is not None:
                self.members = found
                return self._from(False, text, start.end())
        return None

    def _from(self, is_list: bool, text: bytes, start: int) -> tuple[bool, bytes] | None:
        """None if the text ends before the first event."""
        rest = text[start:]
        first = rest.lstrip()[:1]
        if not first:
            return None
        if first != b"{":
            raise NotStrictError
        return is_list, rest

    def _tail(self, is_list: bool, tail: bytes) -> None:
        """Reads the text after the events."""
        if is_list:
            if tail.strip(b" \t\r\n") != b"]":
                raise NotStrictError
            return
        found = document.members_after(tail)
        if found is None or not found.keys().isdisjoint(self.members):
            raise NotStrictError
        self.members |= found


def _batch_store(request: Request) -> BatchStore:
    return BatchStore(
        redactor_of(request.salt, request.policy), request.spill, in_ns=request.time_unit == "ns"
    )


def _read_tolerant(path: Path, request: Request) -> Reading:
    """Reads a document that is not strict JSON, as far as possible."""
    document = Document(read_text(path, request.spill))
    store = _batch_store(request)
    scanner = new_scanner(exact=request.exact)
    repaired: list[int] = []
    strings = LongStrings(request.salt)
    try:
        for chunk in document.chunks():
            repaired += [scanner.rows + at for at in chunk.repaired]
            array = chunk.array if len(chunk.array) <= LONGEST_BYTES else strings.feed(chunk.array)
            store.add(scanner.feed_array(array))
        store.add(iter(scanner.flush, None))
    except RefusedError:
        store.close()
        if request.exact:
            raise
        return _read_tolerant(path, replace(request, exact=True))
    except BaseException:
        store.close()
        raise
    text = document.text
    return Reading(
        store, document.members, text.digest, text.size, text.stored_bytes,
        document.losses, repaired, strings.replaced,
    )  # fmt: skip


NAME: Final = "kineto"
VERSION: Final = 1
_HEAD_BYTES: Final = 1 << 20
_WIDE_OR_MARKED: Final = (
    codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"[\0", b"\0{", b"\0[",
)  # fmt: skip
_EVENTS: Final = b'"traceEvents"'
# Process and time of an event.
_FIRST_ON_HOST: Final = late_regex(
    rb'"cat" ?: ?"(?:cpu_op|user_annotation|python_function|cuda_runtime)"[^{}]{0,2048}?'
    rb'"pid" ?: ?"?(\d{1,10})\b[^{}]{0,200}?"ts" ?: ?"?(\d{1,18})\b'
)
_EVENT_MARKERS: Final = (b'"ph"', b"'ph'", b"traceEvents")


class KinetoFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is JSON with a list of events, or may be a damaged file of that kind."""
        if file_text.is_container(head):
            return False
        if head.startswith(_WIDE_OR_MARKED) or _EVENTS in head:
            return True
        first = head.lstrip()[:1]
        if first == b"[":
            return True
        # Small JSON files, such as settings, are complete in `head` unless they are truncated.
        is_complete = len(head) < _HEAD_BYTES and head.rstrip().endswith(b"}")
        if first != b"{" or (is_complete and not any(word in head for word in _EVENT_MARKERS)):
            return False
        return file_text.object_format(file_text.top_keys(head)) == file_text.NO_EVENTS

    def open(self, path: Path) -> KinetoFile:
        """The file; nothing is read yet."""
        return KinetoFile(path)


class KinetoFile:
    """A TraceFile: one rank."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        """A single part, with rank and world size if the header before the events has them.

        Raises TraceFormatError.
        """
        head = head_of(self.path, _HEAD_BYTES)
        members = document.head_members(head)
        rank, world_size = document.rank_in_header(members), document.world_size_of(members)
        if (first := _FIRST_ON_HOST.search(head)) is None:
            return (Part(rank=rank, world_size=world_size),)
        start_ns = document.base_time_ns(members) + int(first[2]) * 1000
        return (Part(rank=rank, world_size=world_size, process=int(first[1]), start_ns=start_ns),)

    def read(self, part: Part, request: Request) -> KinetoSource:
        """Reads the file to its end. Raises TraceFormatError if nothing in it can be read."""
        return KinetoSource(self.path, request)


class KinetoSource:
    """A Source. The constructor reads the file; `tables` builds the rows."""

    def __init__(self, path: Path, request: Request) -> None:
        self._request = request
        self._unchanged: Outcome | None = None
        if request.known_digest is not None and (known := digest_of(path)).digest == request.known_digest:
            self._unchanged = Outcome(known.digest, "{}", known.size, known.stored_bytes)
            return
        self._reading = read(path, request)

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The activities. They can be read once."""
        if self._unchanged is not None:
            return {}
        reading, store = self._reading, self._reading.store
        builder = ActivityBuilder(store.dictionaries, _file_context(reading))
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(builder.schema, _batches(builder, store))}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        if self._unchanged is not None:
            return self._unchanged
        reading = self._reading
        redactor = reading.store.secrets.redactor
        text, hits = redactor.header(document.header_json(reading.members))
        return Outcome(
            digest=reading.digest,
            header_json=text,
            text_bytes=reading.text_bytes,
            stored_bytes=reading.stored_bytes,
            status=reading.losses.status,
            events=reading.store.rows,
            base_time_ns=document.base_time_ns(reading.members),
            rank=document.rank_in_header(reading.members),
            world_size=document.world_size_of(reading.members),
            losses=reading.losses.all(),
            redactions=(*hits, *reading.store.secrets.redactions),
            repaired=len(reading.repaired),
            findings=_findings(reading),
        )


def _batches(builder: ActivityBuilder, store: BatchStore) -> Iterator[pa.RecordBatch]:
    first = 0
    for buffered in store.batches.take():
        batch = builder.batch(buffered, first)
        store.time_unit.add_copies(batch)
        yield batch
        first += buffered.num_rows


def _file_context(reading: Reading) -> FileContext:
    facts = reading.store.facts
    is_late = facts.first_ns is not None and facts.first_ns > EPOCH_GAP_NS
    clock = Clock(document.base_time_ns(reading.members), is_late)
    named = list(facts.process_names)
    texts = read_tokens([pid or '""' for pid, _ in named]).texts
    devices = columns.device_processes(
        (None if pid is None else text, args) for (pid, args), text in zip(named, texts, strict=True)
    )
    return FileContext(
        clock,
        devices,
        match_pairs(facts.begin_end_events) if facts.begin_end_events else None,
        np.array(reading.repaired, np.int64),
    )


def _findings(reading: Reading) -> tuple[Defect, ...]:
    found: list[Defect] = []
    if lengths := reading.replaced:
        example = f"a string of {max(lengths)} bytes is replaced by its length and hash"
        found.append(Defect("replaced_value", len(lengths), example))
    if (unit := reading.store.time_unit.finding()) is not None:
        found.append(unit)
    return tuple(found)
