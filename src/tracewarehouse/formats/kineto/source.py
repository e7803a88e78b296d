"""A Kineto trace being read: once, in pieces, while a thread unpacks it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from tracewarehouse.formats.base import ACTIVITIES, Finding, Outcome, Request
from tracewarehouse.formats.kineto import categories, header
from tracewarehouse.formats.kineto.activities import Activities, WholeFile
from tracewarehouse.formats.kineto.document import Document
from tracewarehouse.formats.kineto.gather import Gathered
from tracewarehouse.formats.kineto.identity import read_tokens
from tracewarehouse.formats.kineto.losses import Losses
from tracewarehouse.formats.kineto.pairs import pairs
from tracewarehouse.formats.kineto.scanner import MOST_BYTES, RefusedError, Scanner, State
from tracewarehouse.formats.kineto.scanners import new_scanner
from tracewarehouse.formats.kineto.times import EPOCH_GAP_NS, Clock
from tracewarehouse.formats.long_strings import LONGEST_BYTES, LongStrings
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.unpack import Flow, digest_of, read_text

_LIST_START: Final = re.compile(rb"\s*\[")
# A header that is longer is read by way of a file.
_MOST_HEADER_BYTES: Final = 256 << 20


class NotStrictError(Exception):
    """Not a whole, strict document that begins with an event: it must be read another way."""


@dataclass
class Reading:
    """A file that was read: its batches, and what is known of it as a whole."""

    gathered: Gathered
    members: Mapping[str, bytes]
    digest: str
    text_bytes: int
    stored_bytes: int
    losses: Losses = field(default_factory=Losses)
    repaired: list[int] = field(default_factory=list)
    # Lengths of strings that were too long to keep.
    replaced: list[int] = field(default_factory=list)


def read(path: Path, request: Request) -> Reading:
    """Reads the whole file. Raises TraceFormatError where nothing of it can be read."""
    try:
        return _read_strict(path, request)
    except NotStrictError:
        return _read_tolerant(path, request)


def _read_strict(path: Path, request: Request) -> Reading:
    flow = Flow(path)
    pieces = iter(flow)
    gathered = _gathered(request)
    try:
        found = _Strict(pieces, new_scanner(exact=request.exact), gathered, request)
        found.run()
        if flow.cut is not None or not gathered.rows:
            raise NotStrictError
    except BaseException:
        gathered.close()
        raise
    finally:
        pieces.close()  # type: ignore[attr-defined]
    return Reading(
        gathered, found.members, flow.digest, flow.size, flow.stored_bytes, replaced=found.replaced
    )


@dataclass
class _Strict:
    """Reads a whole, strict document. Raises NotStrictError."""

    pieces: Iterator[bytes]
    scanner: Scanner
    gathered: Gathered
    request: Request
    members: dict[str, bytes] = field(default_factory=dict)

    # Lengths of strings that were too long to keep.
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
        self._flush()
        if self.scanner.state is not State.CLOSED:
            raise NotStrictError
        tail = self.scanner.take_rest()
        for piece in self._text:
            tail = self._short(tail + piece)
        self._end_search()
        self._tail(is_list, tail)

    def _pieces(self) -> Iterator[bytes]:
        """The text, without long strings while they are searched for."""
        for piece in self.pieces:
            self._read_bytes += len(piece)
            if self.request.progress is not None:
                self.request.progress(self._read_bytes)
            # No part completes a string of more than LONGEST_BYTES before its element is found to be long.
            for at in range(0, len(piece), LONGEST_BYTES // 2):
                part = piece[at : at + LONGEST_BYTES // 2]
                yield part if self._strings is None else self._strings.feed(part)

    def _short(self, text: bytes) -> bytes:
        """A text that begins outside a string; once it is long, long strings are searched for."""
        if len(text) <= LONGEST_BYTES or self._strings is not None:
            return text
        return self._searched(text)

    def _searched(self, text: bytes) -> bytes:
        """The text without long strings; they are searched for until an element ends."""
        self._strings = LongStrings(self.request.salt)
        return self._strings.feed(text)

    def _end_search(self) -> None:
        if self._strings is not None:
            self.replaced += self._strings.replaced
            self._strings = None

    def _feed(self, piece: bytes) -> None:
        """Feeds the scanner; an element that is long is fed without its long strings."""
        rows = self.scanner.rows
        self.gathered.add(self.scanner.feed(piece))
        if self.scanner.state is State.TOO_LONG:
            if self._strings is None:
                self.gathered.add(self.scanner.feed(self._searched(self.scanner.take_rest())))
            if self.scanner.state is State.TOO_LONG:
                self.scanner.longest_bytes = MOST_BYTES
                self.gathered.add(self.scanner.feed(b""))
        elif self.scanner.rows > rows and not (self._strings is not None and self._strings.inside):
            self._end_search()
            self.scanner.longest_bytes = LONGEST_BYTES // 2
        if self.scanner.state in (State.REFUSED, State.TOO_LONG):
            raise NotStrictError

    def _flush(self) -> None:
        while (batch := self.scanner.flush()) is not None:
            self.gathered.add([batch])

    def _head(self) -> tuple[bool, bytes]:
        """Reads up to the first event; whether the document is a list, and the text from there on."""
        text, size = b"", 0
        for piece in self._text:
            text = self._short(text + piece)
            if len(text) < size:
                continue
            if (found := self._events_start(text)) is not None:
                return found
            size = 4 * len(text)
        if (found := self._events_start(text)) is not None:
            return found
        raise NotStrictError

    def _events_start(self, text: bytes) -> tuple[bool, bytes] | None:
        first = text.lstrip()[:1]
        if (first and first not in (b"{", b"[")) or len(text) > _MOST_HEADER_BYTES:
            raise NotStrictError
        if (start := _LIST_START.match(text)) is not None:
            return self._from(True, text, start.end())
        for start in header.EVENTS_START.finditer(text):
            found = header.members_before(text[: start.end()] + b"]}")
            if found is not None:
                self.members = found
                return self._from(False, text, start.end())
        return None

    def _from(self, is_list: bool, text: bytes, start: int) -> tuple[bool, bytes] | None:
        """None where the text ends before the first event."""
        rest = text[start:]
        first = rest.lstrip()[:1]
        if not first:
            return None
        if first != b"{":
            raise NotStrictError
        return is_list, rest

    def _tail(self, is_list: bool, tail: bytes) -> None:
        """Reads what follows the events."""
        if is_list:
            if tail.strip(b" \t\r\n") != b"]":
                raise NotStrictError
            return
        found = header.members_after(tail)
        if found is None or not found.keys().isdisjoint(self.members):
            raise NotStrictError
        self.members |= found


def _gathered(request: Request) -> Gathered:
    redactor = Redactor(request.salt, request.policy)
    return Gathered(redactor, request.spill, in_ns=request.time_unit == "ns")


def _read_tolerant(path: Path, request: Request) -> Reading:
    """Reads a document that is not strict JSON, as far as it goes."""
    document = Document(read_text(path, request.spill))
    gathered = _gathered(request)
    scanner = new_scanner(exact=request.exact)
    repaired: list[int] = []
    strings = LongStrings(request.salt)
    try:
        for chunk in document.chunks():
            repaired += [scanner.rows + at for at in chunk.repaired]
            array = chunk.array if len(chunk.array) <= LONGEST_BYTES else strings.feed(chunk.array)
            gathered.add(scanner.feed_array(array))
        while (batch := scanner.flush()) is not None:
            gathered.add([batch])
    except RefusedError:
        gathered.close()
        if request.exact:
            raise
        return _read_tolerant(path, replace(request, exact=True))
    except BaseException:
        gathered.close()
        raise
    text = document.text
    return Reading(
        gathered, document.members, text.digest, text.text_bytes, text.stored_bytes,
        document.losses, repaired, strings.replaced,
    )  # fmt: skip


class KinetoSource:
    """A Source: the file is read when it is made, rows are made when they are asked for."""

    def __init__(self, path: Path, request: Request) -> None:
        self._request = request
        self._unchanged: Outcome | None = None
        if request.known_digest is not None and (known := digest_of(path)).digest == request.known_digest:
            self._unchanged = Outcome(known.digest, "{}", known.size, known.stored_bytes)
            return
        self._reading = read(path, request)

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The activities, once."""
        if self._unchanged is not None:
            return {}
        reading, gathered = self._reading, self._reading.gathered
        made = Activities(gathered.words, _whole(reading))
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(made.schema, _batches(made, gathered))}

    def outcome(self) -> Outcome:
        """What the file is as a whole."""
        if self._unchanged is not None:
            return self._unchanged
        reading = self._reading
        redactor = reading.gathered.secrets.redactor
        text, hits = redactor.text(header.header_json(reading.members))
        return Outcome(
            digest=reading.digest,
            header_json=text,
            text_bytes=reading.text_bytes,
            stored_bytes=reading.stored_bytes,
            status=reading.losses.status,
            events=reading.gathered.rows,
            base_time_ns=header.base_time_ns(reading.members),
            rank=header.rank_of(reading.members),
            world_size=header.world_size_of(reading.members),
            losses=reading.losses.all(),
            redactions=(*hits, *reading.gathered.secrets.redactions),
            repaired=len(reading.repaired),
            findings=_findings(reading),
        )


def _batches(made: Activities, gathered: Gathered) -> Iterator[pa.RecordBatch]:
    first = 0
    for kept in gathered.batches.take():
        batch = made.batch(kept, first)
        gathered.time_unit.add_copies(batch)
        yield batch
        first += kept.num_rows


def _whole(reading: Reading) -> WholeFile:
    facts = reading.gathered.facts
    is_late = facts.first_ns is not None and facts.first_ns > EPOCH_GAP_NS
    clock = Clock(header.base_time_ns(reading.members), is_late)
    named = list(facts.process_names)
    texts = read_tokens([pid or '""' for pid, _ in named]).texts
    devices = categories.device_processes(
        (None if pid is None else text, args) for (pid, args), text in zip(named, texts, strict=True)
    )
    return WholeFile(
        clock,
        devices,
        pairs(facts.brackets) if facts.brackets else None,
        np.array(reading.repaired, np.int64),
    )


def _findings(reading: Reading) -> tuple[Finding, ...]:
    found: list[Finding] = []
    if lengths := reading.replaced:
        example = f"a string of {max(lengths)} bytes is replaced by its length and hash"
        found.append(Finding("replaced_value", len(lengths), example))
    if (unit := reading.gathered.time_unit.finding()) is not None:
        found.append(unit)
    return tuple(found)
