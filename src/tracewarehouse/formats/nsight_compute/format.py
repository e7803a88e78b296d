"""The format of CSV files that Nsight Compute writes (`ncu --csv`). It adds to a rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Outcome, Redaction, Request
from tracewarehouse.formats.file_text import TextStream
from tracewarehouse.formats.nsight_compute.table import TABLE, is_header, metrics, rows_of, table
from tracewarehouse.formats.one_part_file import OnePartFile
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.source_tables import Notes, redacted

NAME: Final = "nsight_compute"
VERSION: Final = 1
# Messages of the profiler and of the program may precede the header.
_SEARCHED_BYTES: Final = 1 << 16
_MOST_BYTES: Final = 256 << 20


class NsightComputeFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether a line is the header of the table of metrics."""
        if path.is_dir() or b"Kernel Name" not in head[:_SEARCHED_BYTES]:
            return False
        lines = head[:_SEARCHED_BYTES].decode(errors="replace").splitlines()
        return any(is_header(cells) for cells in rows_of(line for line in lines if "Kernel Name" in line))

    def open(self, path: Path) -> OnePartFile:
        """The file; nothing is read yet."""
        return OnePartFile(path, NsightComputeSource, NAME)


class NsightComputeSource:
    """A Source that fills `kernel_metrics`."""

    def __init__(self, path: Path, request: Request) -> None:
        self._path = path
        self._redactor = Redactor(request.salt, request.policy)
        self._redactions: tuple[Redaction, ...] = ()
        self._notes = Notes()
        self._table: pa.Table | None = None
        self._stream = TextStream(path)
        text = self._stream.joined(
            _MOST_BYTES, f"more than {_MOST_BYTES >> 20} MiB of metrics", "profile fewer launches"
        )
        if request.known_digest != self._stream.digest:
            self._table, self._redactions = redacted(self._parsed(text), self._redactor)

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The table. It can be read once."""
        return {} if self._table is None else {TABLE: self._table.to_reader()}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        return Outcome(
            digest=self._stream.digest,
            header_json="{}",
            text_bytes=self._stream.size,
            stored_bytes=self._stream.stored_bytes,
            events=0 if self._table is None else self._table.num_rows,
            redactions=self._redactions,
            findings=self._notes.findings(self._redactor),
        )

    def _parsed(self, text: bytes) -> pa.Table:
        lines = text.decode(errors="replace").splitlines()
        found = list(metrics(rows_of(lines), self._path))
        if not found:
            raise TraceFormatError(self._path, "no metrics", hint="no kernel was profiled; see its messages")
        return table(found, self._notes)
