"""A Source whose activities are collected from source tables, for formats that store records in tables."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracewarehouse.formats.activity_rows import ActivityRows
from tracewarehouse.formats.base import ACTIVITIES, Outcome, Part, Request
from tracewarehouse.formats.file_text import FileContent, digest_of, digest_of_folder
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.source_tables import Notes


class CollectedSource(ABC):
    """A Source with the activities of one process. The constructor reads the file with `_read`.

    `base_time_ns` is the origin of the times in the file, 0 if they are absolute.
    """

    base_time_ns: int = 0

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        stat = path.stat()
        # The files of a folder may change without it.
        self._content = (
            digest_of_folder(path) if path.is_dir() else _content(path, stat.st_mtime_ns, stat.st_size)
        )
        self._path, self._part, self._request = path, part, request
        self._unchanged = request.known_digest == self._content.digest
        if self._unchanged:
            return
        self._notes = Notes()
        self._rows = ActivityRows(Redactor(request.salt, request.policy))
        self._read()

    @abstractmethod
    def _read(self) -> None:
        """Adds the activities to `_rows` and the findings to `_notes`. Raises TraceFormatError."""

    @abstractmethod
    def _header(self) -> Mapping[str, Any]:
        """The metadata of the file; device properties and host name with Kineto's keys."""

    @abstractmethod
    def _facts(self) -> Mapping[str, object]:
        """Columns of `ranks`."""

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The activities. They can be read once."""
        if self._unchanged:
            return {}
        return {ACTIVITIES: pa.RecordBatchReader.from_batches(self._rows.schema(), self._rows.batches())}

    def outcome(self) -> Outcome:
        """The facts about the process and the file."""
        content = self._content
        if self._unchanged:
            return Outcome(content.digest, "{}", content.size, content.stored_bytes)
        header, hits = self._rows.redactor.header(json.dumps(self._header(), ensure_ascii=False))
        return Outcome(
            digest=content.digest,
            header_json=header,
            text_bytes=content.size,
            stored_bytes=content.stored_bytes,
            events=self._rows.rows,
            base_time_ns=self.base_time_ns,
            rank=self._part.rank,
            redactions=(*hits, *self._rows.redactions),
            findings=self._notes.findings(self._rows.redactor),
            facts=self._facts(),
        )


@lru_cache(maxsize=8)
def _content(path: Path, modified_ns: int, size: int) -> FileContent:
    """Digest and sizes; a file with several parts is hashed once per process."""
    return digest_of(path)
