"""The Kineto format: detection, the facts in the header, and the source that yields `activities`."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from tracewarehouse.formats import other_formats
from tracewarehouse.formats.base import ACTIVITIES, Finding, Outcome, Part, Request
from tracewarehouse.formats.file_text import digest_of, head_of
from tracewarehouse.formats.kineto import distinct_values, header
from tracewarehouse.formats.kineto.activities import ActivityBuilder, FileContext
from tracewarehouse.formats.kineto.batch_store import BatchStore
from tracewarehouse.formats.kineto.distinct_values import read_tokens
from tracewarehouse.formats.kineto.reader import Reading, read
from tracewarehouse.formats.kineto.times import EPOCH_GAP_NS, Clock, match_pairs

NAME: Final = "kineto"
VERSION: Final = 1
_HEAD_BYTES: Final = 1 << 20
_WIDE_OR_MARKED: Final = (
    codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"{\0", b"[\0", b"\0{", b"\0[",
)  # fmt: skip
_EVENTS: Final = b'"traceEvents"'
_EVENT_MARKERS: Final = (b'"ph"', b"'ph'", b"traceEvents")


class KinetoFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is JSON with a list of events, or may be a damaged file of that kind."""
        if other_formats.is_container(head):
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
        return other_formats.object_format(other_formats.top_keys(head)) == other_formats.NO_EVENTS

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
        members = self._members
        return (Part(rank=header.rank_of(members), world_size=header.world_size_of(members)),)

    def read(self, part: Part, request: Request) -> KinetoSource:
        """Reads the file to its end. Raises TraceFormatError if nothing in it can be read."""
        return KinetoSource(self.path, request)

    @cached_property
    def _members(self) -> header.Members:
        return header.head_members(head_of(self.path, _HEAD_BYTES))


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
        text, hits = redactor.header(header.header_json(reading.members))
        return Outcome(
            digest=reading.digest,
            header_json=text,
            text_bytes=reading.text_bytes,
            stored_bytes=reading.stored_bytes,
            status=reading.losses.status,
            events=reading.store.rows,
            base_time_ns=header.base_time_ns(reading.members),
            rank=header.rank_of(reading.members),
            world_size=header.world_size_of(reading.members),
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
    clock = Clock(header.base_time_ns(reading.members), is_late)
    named = list(facts.process_names)
    texts = read_tokens([pid or '""' for pid, _ in named]).texts
    devices = distinct_values.device_processes(
        (None if pid is None else text, args) for (pid, args), text in zip(named, texts, strict=True)
    )
    return FileContext(
        clock,
        devices,
        match_pairs(facts.begin_end_events) if facts.begin_end_events else None,
        np.array(reading.repaired, np.int64),
    )


def _findings(reading: Reading) -> tuple[Finding, ...]:
    found: list[Finding] = []
    if lengths := reading.replaced:
        example = f"a string of {max(lengths)} bytes is replaced by its length and hash"
        found.append(Finding("replaced_value", len(lengths), example))
    if (unit := reading.store.time_unit.finding()) is not None:
        found.append(unit)
    return tuple(found)
