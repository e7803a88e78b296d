"""From a file to the four relations of the reader, and to the short account of what the file is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tracewarehouse.catalog import Catalog
from tracewarehouse.engine import create_table
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.reader import formats
from tracewarehouse.reader.document import Document
from tracewarehouse.reader.findings import Loss
from tracewarehouse.reader.loader import Loader, Progress, batch
from tracewarehouse.reader.redact import Redaction, redact
from tracewarehouse.reader.source import Text, read_text
from tracewarehouse.reader.stream import Stream, Unusual
from tracewarehouse.reader.strict import prove

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Part of a unit's identity: raise it when the same bytes give other rows.
READER_VERSION: Final = 1
TABLES: Final = ("raw", "header", "losses", "redactions")


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
    document = _streamed_survey(path) or _read_survey(path)
    # What is not read may be one huge header: it is not kept, so nobody looks for secrets in it.
    is_read = document.format in formats.READABLE
    return _survey(document, redact(document.header_json(), salt)[0] if is_read else "{}")


def _streamed_survey(path: Path) -> Document | None:
    """None where the file is no whole, strict document."""
    stream = Stream(path, prove)
    try:
        events = sum(chunk.events for chunk in stream.chunks())
    except Unusual:
        return None
    return _document(stream, events)


def _read_survey(path: Path) -> Document:
    document = Document(read_text(path))
    for _ in document.chunks():
        pass
    return document


def _document(stream: Stream[Any], events: int) -> Document:
    """What is known of a document whose text went by."""
    flow = stream.flow
    text = Text(stream.path, flow.stored_bytes, flow.size, flow.digest, b"")
    return Document(text, members=stream.members, events=events, objects=True)


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
    keys = (run_id, rank)

    def loader() -> Loader:
        for table in TABLES:
            con.execute(f"DROP TABLE IF EXISTS {table}")
            create_table(con, Catalog.load().get(table, kind="table"))
        return Loader(con, *keys, salt, texts, progress)

    document, redactions = (_streamed(path, loader) if trust else None) or _read(path, trust, loader)
    if document.format not in formats.READABLE:
        raise not_a_trace(path, document.format)
    header, found = redact(document.header_json(), salt)
    con.execute("INSERT INTO header VALUES (?, ?, ?, ?)", [*keys, header, document.base_ns()])
    losses = [
        (loss.byte_from, loss.byte_to, loss.events_lost, loss.reason) for loss in document.findings.told()
    ]
    _insert(con, "losses", keys, losses)
    _insert(con, "redactions", keys, [(hit.event_id, hit.path, hit.kind) for hit in [*found, *redactions]])
    return _survey(document, header)


def _streamed(path: Path, loader: Callable[[], Loader]) -> tuple[Document, list[Redaction]] | None:
    """None where the file is no whole, strict document: nothing that was filled by then counts."""
    stream = Stream(path, batch)
    try:
        with loader() as into:
            for found in stream.chunks():
                into.add(found)
    except Unusual:
        return None
    return _document(stream, into.rows), into.redactions


def _read(path: Path, trust: bool, loader: Callable[[], Loader]) -> tuple[Document, list[Redaction]]:
    document = Document(read_text(path), trust)
    with loader() as into:
        for chunk in document.chunks():
            found = batch(chunk.array, chunk.mended)
            if found is None:
                raise msgspec.DecodeError("a proved chunk is not JSON")
            into.add(found)
    return document, into.redactions


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


def _insert(
    con: DuckDBPyConnection, table: str, keys: tuple[str, int], rows: Sequence[tuple[object, ...]]
) -> None:
    if rows:
        places = ", ".join("?" * (len(keys) + len(rows[0])))
        con.executemany(f"INSERT INTO {table} VALUES ({places})", [[*keys, *row] for row in rows])
