"""The memory timeline format: a JSON list of [time, action, bytes, category]. Fills one table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Finding, Outcome, Redaction, Request
from tracewarehouse.formats.file_text import FileContent, TextStream, digest_of, read_text
from tracewarehouse.formats.kineto.document import Document
from tracewarehouse.formats.kineto.python_scanner import PythonScanner
from tracewarehouse.formats.kineto.repair import Losses
from tracewarehouse.formats.kineto.scanner import Batch, State
from tracewarehouse.formats.memory_timeline.rows import SCHEMA, TABLE, rows
from tracewarehouse.formats.one_part_file import OnePartFile
from tracewarehouse.formats.other_formats import holds_objects
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.spill import Spill

NAME: Final = "memory_timeline"
VERSION: Final = 1
_FIRST: Final = re.compile(rb"\s*\[\s*\[\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,\s*-?[0-9]+\s*\]")
_LIST_START: Final = re.compile(rb"\s*\[")


class MemoryTimelineFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a list that starts with a list of four integers and has no object in `head`."""
        return _FIRST.match(head) is not None and not holds_objects(head)

    def open(self, path: Path) -> OnePartFile:
        """The file; nothing is read yet."""
        return OnePartFile(path, MemoryTimelineSource)


class MemoryTimelineSource:
    """A Source that fills `memory_timeline` only."""

    def __init__(self, path: Path, request: Request) -> None:
        self._path, self._request = path, request
        self._batches = Spill(request.spill)
        self._rows = 0
        self._repaired: list[int] = []
        self._losses = Losses()
        self._redactor = Redactor(request.salt, request.policy)
        self._redactions: list[Redaction] = []
        self._unchanged = False
        self._stream: TextStream | FileContent
        if request.known_digest is not None and (content := digest_of(path)).digest == request.known_digest:
            self._stream, self._unchanged = content, True
        elif not self._read_strict():
            self._read_tolerant()

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The rows. They can be read once."""
        if self._unchanged:
            return {}
        return {TABLE: pa.RecordBatchReader.from_batches(SCHEMA, self._batches.take())}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        return Outcome(
            digest=self._stream.digest,
            header_json="{}",
            text_bytes=self._stream.size,
            stored_bytes=self._stream.stored_bytes,
            status=self._losses.status,
            events=self._rows,
            losses=self._losses.all(),
            redactions=tuple(self._redactions),
            repaired=len(self._repaired),
            findings=tuple(self._findings()),
        )

    def _findings(self) -> Iterator[Finding]:
        """A finding for repaired elements; the table has no column for them."""
        if self._repaired:
            yield Finding("repaired_event", len(self._repaired), f"#{self._repaired[0]}")

    def _read_strict(self) -> bool:
        """Reads the file if it is a complete list of strict JSON; else discards its rows: False."""
        stream = self._stream = TextStream(self._path)
        scanner = PythonScanner()
        pieces = iter(stream)
        head = b""
        for piece in pieces:
            head += piece
            if (start := _LIST_START.match(head)) is not None:
                self._add(scanner.feed(head[start.end() :]))
                break
        for piece in pieces:
            self._add(scanner.feed(piece))
            if self._request.progress is not None:
                self._request.progress(stream.size)
        while (batch := scanner.flush()) is not None:
            self._add([batch])
        is_whole = scanner.state is State.CLOSED and scanner.take_rest().strip(b" \t\r\n") == b"]"
        if is_whole and stream.cut is None:
            return True
        self._batches.close()
        self._rows = 0
        self._redactions.clear()
        return False

    def _read_tolerant(self) -> None:
        """Reads a damaged file as far as possible."""
        text = read_text(self._path, self._request.spill)
        document = Document(text)
        scanner = PythonScanner()
        for chunk in document.elements():
            self._repaired += [scanner.rows + at for at in chunk.repaired]
            self._add(scanner.feed_array(chunk.array))
        if (batch := scanner.flush()) is not None:
            self._add([batch])
        self._losses = document.losses
        if not self._rows:
            raise TraceFormatError(
                self._path, "no complete element found", hint="copy or record the timeline again"
            )

    def _add(self, found: Sequence[Batch]) -> None:
        for batch in found:
            texts = batch.texts["text"]
            clean, hits = self._redactor.events(texts, self._rows)
            self._redactions += hits
            found_texts = [clean.get(at, text) for at, text in enumerate(texts.to_pylist())]
            self._batches.add(rows([text.encode() for text in found_texts], self._rows))
            self._rows += batch.rows
