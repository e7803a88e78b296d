"""Looks for secrets in trace files without storing them, and in everything that a warehouse holds.

A finding says where a secret is and which rule found it, never what it is.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from tracewarehouse.formats.base import Redaction, Request
from tracewarehouse.formats.file_text import EXPECTED_RESULTS, UnsupportedFormatError
from tracewarehouse.formats.redact import NO_POLICY, POLICY_FILE, Policy, Redactor, clean_name
from tracewarehouse.formats.registry import detect
from tracewarehouse.ingest.inbox import INBOX, NOTE_SUFFIX
from tracewarehouse.ingest.survey import discover
from tracewarehouse.storage import Versions, run_key
from tracewarehouse.temp_folders import temporary_folder

if TYPE_CHECKING:
    import pyarrow as pa

_PRINTABLE: Final = re.compile(rb"[\x20-\x7e]{8,}")
_BATCH_ROWS: Final = 65_536
_GZIP: Final = b"\x1f\x8b"
_INDEX: Final = re.compile(r"\[[0-9]+\]")


@dataclass(frozen=True)
class SecretFound:
    """Secrets that one rule found at one place: a file, where in it, and how many values.

    `run` is the key of the run that a stored file belongs to, "" for any other file.
    """

    file: str
    where: str
    rule: str
    values: int
    run: str = ""


@dataclass(frozen=True)
class NotScanned:
    """A file that could not be searched, and why."""

    file: str
    reason: str


@dataclass
class SecretReport:
    """What a search found, how many files it read, and which it could not."""

    found: list[SecretFound] = field(default_factory=list)
    files: int = 0
    failed: list[NotScanned] = field(default_factory=list)


def scan_traces(paths: Iterable[str | PathLike[str]], policy: Policy = NO_POLICY) -> SecretReport:
    """Reads trace files, and folders of them, and stores nothing. Other files are listed as not searched."""
    redactor = Redactor(b"", policy)
    candidates = discover(paths)
    report = SecretReport(failed=[NotScanned(str(one.path), one.reason) for one in candidates.refused])
    for other in candidates.skipped:
        report.failed.append(NotScanned(clean_name(redactor, str(other.path)), f"skipped: it {other.reason}"))
    for candidate in candidates.files:
        path = candidate.path
        shown = clean_name(redactor, str(path))
        report.found += _of_text(redactor, shown, "file name", path.name)
        _search_trace(report, path, shown, policy)
    return report


def _search_trace(report: SecretReport, path: Path, shown: str, policy: Policy, run: str = "") -> None:
    """Adds the secrets in a trace file to the report."""
    try:
        hits = _trace_redactions(path, policy)
    except UnsupportedFormatError as error:
        if error.format != EXPECTED_RESULTS:  # which `tw simulate` writes beside the traces
            report.failed.append(NotScanned(shown, f"skipped: it is {error.description}"))
        return
    except Exception as error:  # whatever a file does to its reader, the others are searched
        report.failed.append(NotScanned(shown, str(error) or type(error).__name__))
        return
    report.files += 1
    places = Counter((_place(hit), hit.kind) for hit in hits)
    report.found += [SecretFound(shown, *place, count, run) for place, count in sorted(places.items())]


def _trace_redactions(path: Path, policy: Policy) -> list[Redaction]:
    opened = detect(path).open(path)
    hits: list[Redaction] = []
    with temporary_folder() as spill:
        for part in opened.parts():
            source = opened.read(part, Request(b"", spill, policy=policy))
            for reader in source.tables.values():
                for _ in reader:
                    pass
            hits += source.outcome().redactions
    return hits


def _place(hit: Redaction) -> str:
    """Where in its event or header a secret is; elements of a list are one place."""
    return ("header " if hit.event_id is None else "event ") + _INDEX.sub("[]", hit.path)


def scan_warehouse(store: Versions, runs: Sequence[str] | None, policy: Policy = NO_POLICY) -> SecretReport:
    """Searches every file of a warehouse, or those of some runs only, and the traces in its inbox."""
    redactor = Redactor(b"", policy)
    keys = None if runs is None else {run_key(run) for run in runs}
    report = SecretReport()
    for entry in store.objects.walk(""):
        path, place = store.path(entry.key), PurePosixPath(entry.key)
        run = _run_of(place)
        if place.as_posix() == POLICY_FILE or (keys is not None and run not in keys):
            continue
        is_spooled = place.parts[0] == INBOX and path.suffix != NOTE_SUFFIX
        if is_spooled and path.name.startswith("."):  # still being written
            continue
        shown = "/".join(clean_name(redactor, part) for part in place.parts)
        report.found += _of_text(redactor, shown, "path", place.as_posix(), run)
        if is_spooled:
            _search_trace(report, path, shown, policy, run)
            continue
        try:
            for where, texts in _texts(path):
                report.found += _search(redactor, shown, where, texts, run)
        except Exception as error:  # a damaged file hides no other
            report.failed.append(NotScanned(shown, str(error) or type(error).__name__))
            continue
        report.files += 1
    return report


def _run_of(place: PurePosixPath) -> str:
    """The key of the run that a file belongs to, by its path."""
    parts = place.parts
    under_tw = {"sources", "runs", "receipts", "waiting", "kept", "quarantine"}
    if parts[0] in ("data", "results", "rollups") and len(parts) > 3:
        return parts[2]
    if parts[0] == "_tw" and len(parts) > 3 and parts[1] in under_tw:
        return parts[2]
    return parts[1].lower() if parts[0] == INBOX and len(parts) > 2 else ""


def _texts(path: Path) -> Iterator[tuple[str, pa.Array]]:
    """The texts in a file, with where they are."""
    import pyarrow as pa

    if path.suffix == ".parquet":
        yield from _parquet_texts(path)
    elif path.suffix == ".duckdb":
        yield from _duckdb_texts(path)
    elif path.parts[-3:-1] == ("_tw", "catalog"):
        content = path.read_bytes()  # of both kinds: the newest is plain
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
        yield "content", pa.array([content.decode(errors="replace")])
    elif path.suffix in (".json", ".tw"):
        yield "content", pa.array([path.read_text(encoding="utf-8", errors="replace")])
    else:
        parts = (match[0].decode() for match in _PRINTABLE.finditer(path.read_bytes()))
        yield "content", pa.array(list(dict.fromkeys(parts)), pa.string())


def _parquet_texts(path: Path) -> Iterator[tuple[str, pa.Array]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        said = file.schema_arrow.metadata or {}
        more = file.metadata.metadata or {}
        values = {key: value for key, value in {**more, **said}.items() if key != b"ARROW:schema"}
        yield "metadata", pa.array([value.decode(errors="replace") for value in values.values()], pa.string())
        for batch in file.iter_batches(_BATCH_ROWS):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if (texts := _text_column(column)) is not None:
                    yield f"column {name}", texts


def _duckdb_texts(path: Path) -> Iterator[tuple[str, pa.Array]]:
    """Definitions and rows, through DuckDB: texts that its file cuts in blocks would read as others."""
    import pyarrow as pa

    from tracewarehouse.contracts.sql_tokens import quote_name
    from tracewarehouse.duck.engine import connect

    definitions = "SELECT sql FROM duckdb_views() UNION ALL SELECT macro_definition FROM duckdb_functions()"
    listed = "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal"
    with connect(database=path, read_only=True) as con:
        found = (text for (text,) in con.execute(definitions).fetchall() if text)
        yield "definitions", pa.array(list(dict.fromkeys(found)), pa.string())
        for schema, name in con.execute(listed).fetchall():
            rows = con.sql(f"FROM {quote_name(schema)}.{quote_name(name)}").to_arrow_table()
            for column in rows.column_names:
                if (texts := _text_column(rows[column].combine_chunks())) is not None:
                    yield f"table {name}, column {column}", texts


def _text_column(column: pa.Array) -> pa.Array | None:
    """The distinct texts of a column; nested values as JSON. None for one that holds no text."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):  # JSON
        return _text_column(column.storage)
    if pa.types.is_dictionary(kind):
        return _text_column(column.dictionary)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.unique().drop_null().cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(
            [value.decode(errors="replace") for value in column.drop_null().to_pylist()], pa.string()
        )
    if pa.types.is_nested(kind):
        rows = (json.dumps(row, default=str) for row in column.to_pylist(maps_as_pydicts="lossy") if row)
        return pa.array(list(dict.fromkeys(rows)), pa.string())
    return None


def _search(redactor: Redactor, file: str, where: str, texts: pa.Array, run: str) -> Iterator[SecretFound]:
    kinds: Counter[str] = Counter()
    for at in redactor.flagged(texts):
        kinds.update(redactor.clean(texts[at].as_py())[1])
    yield from (SecretFound(file, where, kind, count, run) for kind, count in sorted(kinds.items()))


def _of_text(redactor: Redactor, file: str, where: str, text: str, run: str = "") -> Iterator[SecretFound]:
    yield from (SecretFound(file, where, kind, 1, run) for kind in redactor.clean(text)[1])
