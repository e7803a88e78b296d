"""From a file to the four relations of the reader, and to the short account of what the file is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from tracewarehouse.catalog import Catalog
from tracewarehouse.engine import create_table
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.reader import formats
from tracewarehouse.reader.document import Document
from tracewarehouse.reader.findings import Loss
from tracewarehouse.reader.redact import Redaction, redact, redact_events
from tracewarehouse.reader.source import Text, read_text
from tracewarehouse.reader.strict import CHUNK_BYTES, Chunk, elements, minify
from tracewarehouse.reader.typed import RawWriter

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Part of a unit's identity: raise it when the same bytes give other rows.
READER_VERSION: Final = 1
TABLES: Final = ("raw", "header", "losses", "redactions")

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Survey:
    """What a file is. `digest` is sha256 of the decompressed text, `header_json` every key but the events.

    `format` is kineto, memory_timeline_raw, or the name of what the file is instead; `status` is whole,
    repaired or damaged.
    """

    path: Path
    name: str
    stored_bytes: int
    text_bytes: int
    digest: str
    format: str
    header_json: str
    events: int
    status: str
    losses: tuple[Loss, ...]


def survey(path: Path, salt: bytes) -> Survey:
    """What the file is, without tables. Raises TraceFormatError where nothing of it can be read."""
    document = Document(read_text(path))
    for _ in document.chunks():
        pass
    # What is not read may be one huge header: it is not kept, so nobody looks for secrets in it.
    is_read = document.format in formats.READABLE
    return _survey(document, redact(document.header_json(), salt)[0] if is_read else "{}")


def load(
    con: DuckDBPyConnection,
    path: Path,
    *,
    run_id: str,
    rank: int,
    salt: bytes,
    progress: Progress | None = None,
    trust: bool = True,
    texts: bool = True,
) -> Survey:
    """Fills `raw`, `header`, `losses` and `redactions` in `con`; `progress` gets the bytes of text so far.

    `trust` false reads event by event even what strict JSON could read in bulk; the rows are the same.
    `texts` false leaves `raw.text` null where the other columns hold the whole event: half the memory.
    Raises TraceFormatError where the file is no trace.
    """
    catalog = Catalog.load()
    for table in TABLES:
        create_table(con, catalog.get(table, kind="table"))
    document = Document(read_text(path), trust)
    loader = _Loader(RawWriter(con, run_id, rank, texts=texts), salt, progress)
    for chunk in document.chunks():
        loader.add(chunk)
    loader.flush()
    if document.format not in formats.READABLE:
        raise not_a_trace(path, document.format)
    header, found = redact(document.header_json(), salt)
    keys = (run_id, rank)
    con.execute("INSERT INTO header VALUES (?, ?, ?, ?)", [*keys, header, document.base_ns()])
    losses = [
        (loss.byte_from, loss.byte_to, loss.events_lost, loss.reason) for loss in document.findings.told()
    ]
    _insert(con, "losses", keys, losses)
    _insert(
        con, "redactions", keys, [(hit.event_id, hit.path, hit.kind) for hit in [*found, *loader.redactions]]
    )
    return _survey(document, header)


def not_a_trace(path: Path, format: str) -> TraceFormatError:
    """The error for a file of another format that was named as a trace."""
    if format == formats.NO_EVENTS:
        return TraceFormatError(
            path, "there are no events in it", hint="the profiler wrote no events: record again"
        )
    return TraceFormatError(
        path, f"this is a file of format {format}, not a trace", hint="name the Kineto trace instead"
    )


def _survey(document: Document, header: str) -> Survey:
    text: Text = document.text
    return Survey(
        path=text.path,
        name=text.path.name,
        stored_bytes=text.stored_bytes,
        text_bytes=text.text_bytes,
        digest=text.digest,
        format=document.format,
        header_json=header,
        events=document.events if document.format in formats.READABLE else 0,
        status=document.findings.status,
        losses=document.findings.told(),
    )


@dataclass
class _Loader:
    """Gathers small chunks, so that each insert is worth its while."""

    writer: RawWriter
    salt: bytes
    progress: Progress | None
    redactions: list[Redaction] = field(default_factory=list)
    _texts: list[bytes] = field(default_factory=list)
    _mended: list[int] = field(default_factory=list)
    _bytes: int = 0
    _done: int = 0

    def add(self, chunk: Chunk) -> None:
        small = minify(chunk.array)
        texts = elements(small) if small is not None else None
        if texts is None:
            raise msgspec.DecodeError("a proved chunk is not JSON")
        self._mended += [len(self._texts) + at for at in chunk.mended]
        self._texts += map(bytes, texts)
        self._bytes += len(chunk.array)
        if self._bytes >= CHUNK_BYTES // 2:
            self.flush()

    def flush(self) -> None:
        """The gathered events to the table, without their secrets."""
        if not self._texts:
            return
        array = pa.array(self._texts, pa.string())
        hits = list(redact_events(self._texts, array, self.salt, self.writer.rows))
        self.redactions += hits
        self.writer.append(pa.array(self._texts, pa.string()) if hits else array, self._mended)
        self._done += self._bytes
        if self.progress is not None:
            self.progress(self._done)
        self._texts, self._mended, self._bytes = [], [], 0


def _insert(
    con: DuckDBPyConnection, table: str, keys: tuple[str, int], rows: Sequence[tuple[object, ...]]
) -> None:
    if rows:
        places = ", ".join("?" * (len(keys) + len(rows[0])))
        con.executemany(f"INSERT INTO {table} VALUES ({places})", [[*keys, *row] for row in rows])
