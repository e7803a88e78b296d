"""A Source whose tables come from the child process; here it is hashed, unpacked and searched for secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Finding, Outcome, Redaction, Request
from tracewarehouse.formats.file_text import GZIP_MAGIC, FileContent, TextStream, digest_of
from tracewarehouse.formats.pickles.reader import PlainFile, PlainTables, read_plain
from tracewarehouse.formats.redact import Redactor
from tracewarehouse.formats.source_tables import Notes, redacted

# Compressed content grows to this size at most.
_MOST_BYTES: Final = 4 << 30


class PlainSource:
    """A Source that a child process reads. `walk` names the tables to make, `what` the file in messages."""

    walk: str
    what: str

    def __init__(self, path: Path, request: Request) -> None:
        self._path, self._request = path, request
        self._redactor = Redactor(request.salt, request.policy)
        self._redactions: list[Redaction] = []
        self._notes = Notes()
        self._found: PlainTables | None = None
        self._tables: dict[str, pa.Table] = {}
        with _content(path, request.spill) as (content, file):
            self._content = content
            self._unchanged = request.known_digest == content.digest
            if not self._unchanged:
                self._read(file)

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The tables. They can be read once."""
        return {name: table.to_reader() for name, table in self._tables.items()}

    def outcome(self) -> Outcome:
        """The facts about the file."""
        stream, found = self._content, self._found
        if found is None:
            return Outcome(stream.digest, "{}", stream.size, stream.stored_bytes)
        header, hits = self._redactor.header(json.dumps(found.header, ensure_ascii=False))
        facts = dict(found.facts)
        return Outcome(
            digest=stream.digest,
            header_json=header,
            text_bytes=stream.size,
            stored_bytes=stream.stored_bytes,
            events=facts.pop("events", 0),
            rank=facts.pop("rank", None),
            redactions=(*hits, *self._redactions),
            findings=self._findings(),
            facts={"clock": "utc", **facts},
        )

    def check(self, tables: Mapping[str, pa.Table]) -> None:
        """Adds findings on inconsistent tables to `_notes`."""

    def _read(self, file: IO[bytes]) -> None:
        first = file.read(1)
        plain = PlainFile(self._path, file, self._content.size, self.walk, is_json=first in b"{[ \r\n\t")
        self._found = read_plain(plain, self._request.spill, self.what)
        for column, count in sorted(self._found.unusable.items()):
            self._notes.add("unusable_value", count, column)
        self.check(self._found.tables)
        for name, table in self._found.tables.items():
            self._tables[name], redactions = redacted(table, self._redactor)
            self._redactions += redactions

    def _findings(self) -> tuple[Finding, ...]:
        return self._notes.findings(self._redactor)


@contextmanager
def _content(path: Path, spill: Path) -> Iterator[tuple[FileContent, IO[bytes]]]:
    """Digest and sizes of the content, and an open file that holds it decompressed."""
    with path.open("rb") as file:
        compressed = file.read(2) == GZIP_MAGIC
    if not compressed:
        content = digest_of(path)
        with path.open("rb") as file:
            yield content, file
        return
    stream = TextStream(path)
    with TemporaryFile(dir=spill) as unpacked:
        for piece in stream:
            unpacked.write(piece)
            if stream.size > _MOST_BYTES:
                message = f"it holds more than {_MOST_BYTES >> 30} GiB"
                raise TraceFormatError(path, message, hint="record fewer entries (max_entries)")
        unpacked.flush()
        unpacked.seek(0)
        yield FileContent(stream.digest, stream.size, stream.stored_bytes), unpacked
