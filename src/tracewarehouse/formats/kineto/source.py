"""A Kineto trace being read: once, in pieces, while a thread unpacks it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
from tracewarehouse.formats.kineto.scanner import RefusedError, Scanner, State
from tracewarehouse.formats.kineto.scanners import new_scanner
from tracewarehouse.formats.kineto.times import EPOCH_GAP_NS, Clock
from tracewarehouse.formats.redact import redact
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
    findings: list[Finding] = field(default_factory=list)


def read(path: Path, request: Request) -> Reading:
    """Reads the whole file. Raises TraceFormatError where nothing of it can be read."""
    try:
        return _read_strict(path, request)
    except NotStrictError:
        return _read_tolerant(path, request)


def _read_strict(path: Path, request: Request) -> Reading:
    flow = Flow(path)
    pieces = iter(flow)
    gathered = Gathered(request.salt, request.spill)
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
    return Reading(gathered, found.members, flow.digest, flow.size, flow.stored_bytes)


@dataclass
class _Strict:
    """Reads a whole, strict document. Raises NotStrictError."""

    pieces: Iterator[bytes]
    scanner: Scanner
    gathered: Gathered
    request: Request
    members: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read_bytes = 0
        self._text = self._pieces()

    def run(self) -> None:
        is_list, rest = self._head()
        self._feed(rest)
        while self.scanner.state is State.MORE and (piece := next(self._text, None)) is not None:
            self._feed(piece)
        self._flush()
        if self.scanner.state is not State.CLOSED:
            raise NotStrictError
        tail = b"".join([self.scanner.take_rest(), *self._text])
        self._tail(is_list, tail)

    def _pieces(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self._read_bytes += len(piece)
            if self.request.progress is not None:
                self.request.progress(self._read_bytes)
            yield piece

    def _feed(self, piece: bytes) -> None:
        self.gathered.add(self.scanner.feed(piece))
        if self.scanner.state in (State.REFUSED, State.TOO_LONG):
            raise NotStrictError

    def _flush(self) -> None:
        while (batch := self.scanner.flush()) is not None:
            self.gathered.add([batch])

    def _head(self) -> tuple[bool, bytes]:
        """Reads up to the first event; whether the document is a list, and the text from there on."""
        text, size = b"", 0
        for piece in self._text:
            text += piece
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


def _read_tolerant(path: Path, request: Request) -> Reading:
    """Reads a document that is not strict JSON, as far as it goes."""
    document = Document(read_text(path, request.spill))
    gathered = Gathered(request.salt, request.spill)
    scanner = new_scanner(exact=request.exact)
    repaired: list[int] = []
    try:
        for chunk in document.chunks():
            repaired += [scanner.rows + at for at in chunk.repaired]
            gathered.add(scanner.feed_array(chunk.array))
        if (batch := _flushed(scanner)) is not None:
            gathered.add([batch])
    except RefusedError:
        gathered.close()
        if request.exact:
            raise
        return _read_tolerant(path, _exact(request))
    except BaseException:
        gathered.close()
        raise
    text = document.text
    return Reading(
        gathered, document.members, text.digest, text.text_bytes, text.stored_bytes, document.losses, repaired
    )


def _flushed(scanner: Scanner):  # type: ignore[no-untyped-def]
    return scanner.flush()


def _exact(request: Request) -> Request:
    from dataclasses import replace

    return replace(request, exact=True)


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
        made = Activities(gathered.words, _whole(reading, self._request))
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(made.schema, _batches(made, gathered))}

    def outcome(self) -> Outcome:
        """What the file is as a whole."""
        if self._unchanged is not None:
            return self._unchanged
        reading = self._reading
        text, hits = redact(header.header_json(reading.members), self._request.salt)
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
            findings=tuple(reading.findings),
        )


def _batches(made: Activities, gathered: Gathered) -> Iterator[pa.RecordBatch]:
    first = 0
    for kept in gathered.batches.take():
        yield made.batch(kept, first)
        first += kept.num_rows


def _whole(reading: Reading, request: Request) -> WholeFile:
    facts = reading.gathered.facts
    in_ns = request.time_unit == "ns"
    gap = EPOCH_GAP_NS * (1000 if in_ns else 1)
    clock = Clock(
        header.base_time_ns(reading.members), facts.first_ns is not None and facts.first_ns > gap, in_ns
    )
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
