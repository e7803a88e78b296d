"""The format of execution traces, JSON of PyTorch's ExecutionTraceObserver. It adds to a rank."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from tracewarehouse.formats import other_formats
from tracewarehouse.formats.base import Outcome, Redaction, Request
from tracewarehouse.formats.execution_trace.nodes import TABLE, Trace, decoded, node_table
from tracewarehouse.formats.file_text import TextStream
from tracewarehouse.formats.one_part_file import OnePartFile
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.source_tables import Notes, redacted, short_text

NAME: Final = "execution_trace"
VERSION: Final = 1
_MOST_BYTES: Final = 1 << 30
# The keys precede the nodes.
_SEARCHED_BYTES: Final = 4096


class ExecutionTraceFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a JSON object with a schema and nodes."""
        start = head[:_SEARCHED_BYTES]
        if start.lstrip()[:1] != b"{" or b'"schema"' not in start or b'"nodes"' not in start:
            return False
        return other_formats.object_format(other_formats.top_keys(start)) == NAME

    def open(self, path: Path) -> OnePartFile:
        """The file; nothing is read yet."""
        return OnePartFile(path, ExecutionTraceSource, NAME)


class ExecutionTraceSource:
    """A Source that fills `execution_nodes`."""

    def __init__(self, path: Path, request: Request) -> None:
        self._path = path
        self._redactor = Redactor(request.salt, request.policy)
        self._redactions: tuple[Redaction, ...] = ()
        self._notes = Notes()
        self._table: pa.Table | None = None
        self._stream = TextStream(path)
        text = self._stream.joined(
            _MOST_BYTES, f"it holds more than {_MOST_BYTES >> 30} GiB", "record fewer steps"
        )
        if request.known_digest != self._stream.digest:
            self._trace = decoded(text, path)
            table = node_table(self._trace, self._notes)
            self._table, self._redactions = redacted(table, self._redactor)

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The table. It can be read once."""
        return {} if self._table is None else {TABLE: self._table.to_reader()}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        stream = self._stream
        if self._table is None:
            return Outcome(stream.digest, "{}", stream.size, stream.stored_bytes)
        header, hits = self._redactor.header(json.dumps({NAME: _header(self._trace)}, ensure_ascii=False))
        return Outcome(
            digest=stream.digest,
            header_json=header,
            text_bytes=stream.size,
            stored_bytes=stream.stored_bytes,
            events=self._table.num_rows,
            redactions=(*hits, *self._redactions),
            findings=self._notes.findings(self._redactor),
            facts={"clock": "unknown", "source_schema": short_text(self._trace.schema, self._redactor, 40)},
        )


def _header(trace: Trace) -> dict[str, object]:
    return {"schema": trace.schema, "pid": trace.pid, "time": trace.time}
