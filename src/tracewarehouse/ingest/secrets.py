"""Secrets that are stored already, or in trace files: finding them, and versions without them.

A finding says where a secret is and which rule found it, never what it is.

A rank is built again from its own events with their texts redacted, as after an upgrade; its file is not
needed. Until old versions are purged, they are readable as RUN@vN.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.formats.base import Redaction, Request
from tracewarehouse.formats.file_text import EXPECTED_RESULTS, UnsupportedFormatError
from tracewarehouse.formats.redact.rules import NO_POLICY, POLICY_FILE, Policy, policy_of
from tracewarehouse.formats.redact.text import Redactor, check_text, clean_name
from tracewarehouse.formats.registry import detect
from tracewarehouse.ingest.build import redacted_by
from tracewarehouse.ingest.inbox import INBOX, NOTE_SUFFIX
from tracewarehouse.ingest.rebuild import READ, Rebuild, built, stored_files
from tracewarehouse.ingest.rules import kernel_rules_of
from tracewarehouse.ingest.survey import discover
from tracewarehouse.late_regex import late_regex
from tracewarehouse.runs.rows import copied_rows, list_new_versions
from tracewarehouse.storage import layout
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.delta import complete
from tracewarehouse.storage.layout import check_labels, run_key, run_name
from tracewarehouse.storage.model import Changes, RankSource, RunVersion
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import temporary_folder

_PRINTABLE: Final = late_regex(rb"[\x20-\x7e]{8,}")
_BATCH_ROWS: Final = 65_536
_INDEX: Final = late_regex(r"\[[0-9]+\]")


class SecretFound(Struct, frozen=True):
    """Secrets that one rule found at one place: a file, where in it, and how many values.

    `run` is the key of the run that a stored file belongs to, "" for any other file.
    """

    file: str
    where: str
    rule: str
    values: int
    run: str = ""


class NotScanned(Struct, frozen=True):
    """A file that could not be searched, and why."""

    file: str
    reason: str


class SecretReport(Struct):
    """What a search found, how many files it read, and which it could not."""

    found: list[SecretFound] = field(default_factory=list)
    files: int = 0
    failed: list[NotScanned] = field(default_factory=list)


def scan_traces(paths: Iterable[str | PathLike[str]], policy: Policy = NO_POLICY) -> SecretReport:
    """Reads trace files, and folders of them, and stores nothing. Other files are listed as not searched."""
    redactor = Redactor(b"", policy)
    files, excluded = discover(paths)
    report = SecretReport()
    for outcome in excluded:
        name, reason = str(outcome.path), outcome.reason or ""
        if outcome.state == "skipped":
            name, reason = clean_name(redactor, name), f"skipped: it {reason}"
        report.failed.append(NotScanned(name, reason))
    for file in files:
        path = file.path
        clean_path = clean_name(redactor, str(path))
        report.found += _of_text(redactor, clean_path, "file name", path.name)
        _search_trace(report, path, clean_path, policy)
    return report


def _search_trace(report: SecretReport, path: Path, clean_path: str, policy: Policy, run: str = "") -> None:
    """Adds the secrets in a trace file to the report."""
    try:
        hits = _trace_redactions(path, policy)
    except UnsupportedFormatError as error:
        if error.format != EXPECTED_RESULTS:  # which `tw simulate` writes beside the traces
            report.failed.append(NotScanned(clean_path, f"skipped: it is {error.description}"))
        return
    except Exception as error:  # whatever a file does to its reader, the others are searched
        report.failed.append(NotScanned(clean_path, str(error) or type(error).__name__))
        return
    report.files += 1
    places = Counter((_place(hit), hit.kind) for hit in hits)
    report.found += [SecretFound(clean_path, *place, count, run) for place, count in sorted(places.items())]


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
    """Searches every file of a warehouse, or those of some runs only, and the traces in its inbox.

    Raises UnknownName for a run without any file.
    """
    redactor = Redactor(b"", policy)
    keys = None if runs is None else {run_key(run) for run in runs}
    report, found_runs = SecretReport(), set()
    for entry in store.objects.walk(""):
        path, place = store.path(entry.key), PurePosixPath(entry.key)
        run = _run_of(place)
        found_runs.add(run)
        if place.as_posix() == POLICY_FILE or (keys is not None and run not in keys):
            continue
        is_spooled = place.parts[0] == INBOX and path.suffix != NOTE_SUFFIX
        if is_spooled and path.name.startswith("."):  # still being written
            continue
        clean_path = "/".join(clean_name(redactor, part) for part in place.parts)
        report.found += _of_text(redactor, clean_path, "path", place.as_posix(), run)
        if is_spooled:
            _search_trace(report, path, clean_path, policy, run)
            continue
        try:
            for where, texts in _texts(path):
                kinds: Counter[str] = Counter()
                for index in redactor.flagged(texts):
                    kinds.update(redactor.clean(texts[index].as_py())[1])
                counts = sorted(kinds.items())
                report.found += (SecretFound(clean_path, where, kind, count, run) for kind, count in counts)
        except Exception as error:  # a damaged file hides no other
            report.failed.append(NotScanned(clean_path, str(error) or type(error).__name__))
            continue
        report.files += 1
    for unknown in (run for run in runs or () if run_key(run) not in found_runs):
        raise UnknownName("run", unknown, store.runs())
    return report


def _run_of(place: PurePosixPath) -> str:
    """The key of the run that a file belongs to, by its path."""
    names = place.parts
    if names[0] != INBOX:
        return layout.run_of(place.as_posix()) or ""
    return names[1].lower() if names[0] == INBOX and len(names) > 2 else ""


def _texts(path: Path) -> Iterator[tuple[str, pa.Array]]:
    """The texts in a file, with where they are."""
    if path.suffix == ".parquet":
        yield from _parquet_texts(path)
    elif path.suffix == ".duckdb":
        yield from _duckdb_texts(path)
    elif path.as_posix().endswith(layout.LISTS):
        yield "content", pa.array([gzip.decompress(path.read_bytes()).decode(errors="replace")])
    elif path.suffix in (".json", ".tw"):
        yield "content", pa.array([path.read_text(encoding="utf-8", errors="replace")])
    else:
        printable = (match[0].decode() for match in _PRINTABLE.finditer(path.read_bytes()))
        yield "content", pa.array(list(dict.fromkeys(printable)), pa.string())


def _parquet_texts(path: Path) -> Iterator[tuple[str, pa.Array]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        of_schema = file.schema_arrow.metadata or {}
        of_file = file.metadata.metadata or {}
        values = {key: value for key, value in {**of_file, **of_schema}.items() if key != b"ARROW:schema"}
        yield "metadata", pa.array([value.decode(errors="replace") for value in values.values()], pa.string())
        for batch in file.iter_batches(_BATCH_ROWS):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                if (texts := _text_column(column)) is not None:
                    yield f"column {name}", texts


def _duckdb_texts(path: Path) -> Iterator[tuple[str, pa.Array]]:
    """Definitions and rows, through DuckDB: texts that its file cuts in blocks would read as others."""

    from tracewarehouse.contracts.sql_tokens import quote_name
    from tracewarehouse.duck.engine import connect

    definitions = "SELECT sql FROM duckdb_views() UNION ALL SELECT macro_definition FROM duckdb_functions()"
    listed = "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal"
    with connect(database=path, read_only=True) as con:
        sql_texts = (text for (text,) in con.execute(definitions).fetchall() if text)
        yield "definitions", pa.array(list(dict.fromkeys(sql_texts)), pa.string())
        for schema, name in con.execute(listed).fetchall():
            rows = con.sql(f"FROM {quote_name(schema)}.{quote_name(name)}").to_arrow_table()
            for column in rows.column_names:
                if (texts := _text_column(rows[column].combine_chunks())) is not None:
                    yield f"table {name}, column {column}", texts


def _text_column(column: pa.Array) -> pa.Array | None:
    """The distinct texts of a column; nested values as JSON. None for one that holds no text."""
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


def _of_text(redactor: Redactor, file: str, where: str, text: str, run: str = "") -> Iterator[SecretFound]:
    yield from (SecretFound(file, where, kind, 1, run) for kind in redactor.clean(text)[1])


# Folders of `_tw` that have a folder for each run.
_FOLDERS: Final = (layout.VERSIONS, layout.COMMITS)


class CleanRows(Struct, frozen=True, dict=True):
    """Rows of a table with every text redacted; can be sent to another process."""

    salt: bytes
    policy: Policy

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self.salt, self.policy)

    def __call__(self, table: str, rows: pa.Table) -> pa.Table:
        """The same columns; each distinct text is looked at once."""
        columns = [self._clean_column(column) for column in rows.columns]
        return pa.Table.from_arrays(columns, names=rows.column_names)

    def _clean_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(column.type, pa.BaseExtensionType):  # JSON
            chunks = [self._clean(chunk.storage) for chunk in column.chunks]
            wrapped = [pa.ExtensionArray.from_storage(column.type, chunk) for chunk in chunks]
            return pa.chunked_array(wrapped, column.type)
        if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
            return column
        return pa.chunked_array([self._clean(chunk) for chunk in column.chunks], column.type)

    def _clean(self, texts: pa.Array) -> pa.Array:
        encoded = texts.dictionary_encode()
        distinct = encoded.dictionary.cast(pa.string())
        flagged = self._redactor.flagged(distinct)
        if not flagged:
            return texts
        clean = distinct.to_pylist()
        for index in flagged:
            clean[index] = self._redactor.clean(clean[index])[0]
        return pa.array(clean, texts.type).take(encoded.indices)


class SecretRemoval(Struct, frozen=True, dict=True):
    """Publishes clean versions of runs, by the rules under a policy."""

    store: Store
    catalog: Catalog
    policy: Policy

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self.store.salt, self.policy)

    def held_by_newest(self, run: str) -> frozenset[str]:
        """The keys of what the newest version of a run consists of; none for a run that was removed."""
        version = self.store.newest(run)
        if version is None:
            return frozenset()
        keys = {file.path for source in version.sources for file in source.files}
        keys |= {layout.commit(run, name) for name in version.summary.commits}
        return frozenset((*keys, layout.version(run, version.number), layout.entry(run)))

    def redact(self, run: str) -> str:
        """Publishes a version of the run without secrets; its name, which changes if it held one itself.

        Raises UnknownName for a run that readers do not see, TwError where a rank cannot be built again; then
        nothing is published.
        """
        version = self.store.existing(run)
        name = run_name(clean_name(self._redactor, version.run))[0]
        clean: Mapping[str, str] = json.loads(self._redactor.text(json.dumps(dict(version.labels)))[0])
        # What changes of the labels.
        labels: dict[str, str | None] = dict.fromkeys(version.labels.keys() - clean.keys())
        labels |= {key: value for key, value in clean.items() if version.labels.get(key) != value}
        with self.store.staging() as staging:
            tasks = self._tasks(version, name, staging)
            sources = self.store.commit(built(tasks)) if tasks else ()
            if name == version.run:
                self.store.publish(run, Changes(sources=sources, labels=labels, rebuilt=True))
            else:
                self.store.publish(name, Changes(sources=sources, labels={**version.labels, **labels}))
                self.store.remove(version.run)
        return name

    def _tasks(self, version: RunVersion, name: str, staging: Path) -> list[Rebuild]:
        headers = self.store.headers(version.sources)
        clean, own = CleanRows(self.store.salt, self.policy), kernel_rules_of(self.store)
        return [
            Rebuild(
                replace(source, run=name, facts=self._facts(source)),
                self._redactor.text(headers.get(source.name, "{}"))[0],
                {table: stored_files(self.store, self.catalog, version, source, table) for table in READ}
                | self._derived(source),
                staging / str(number),
                self.catalog.folder,
                derived=tuple(self._derived(source)),
                clean=clean,
                own=own,
            )
            for number, source in enumerate(version.sources)
        ]

    def _derived(self, source: RankSource) -> dict[str, Any]:
        if not source.facts.get("derived"):
            return {}
        names = sorted(contract.name for contract in self.catalog.tables() if contract.derived)
        return {
            name: tuple(self.store.path(file.path) for file in source.files if file.table == name)
            for name in names
        }

    def _facts(self, source: RankSource) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._redactor.text(json.dumps(dict(source.facts)))[0])
        file_name = clean_name(self._redactor, str(source.facts.get("source_name", "")))
        return facts | {"redaction": redacted_by(self.policy), "source_name": file_name}

    def redact_reasons(self) -> int:
        """Redacts the reasons of acknowledged changes; how many there were."""
        changed = 0
        for fields in self.store.acknowledged():
            text, hits = self._redactor.text(json.dumps({"reason": fields["why"]}))
            if hits:
                key = layout.acknowledgement_key(fields["metric"], fields["run"], fields["source"])
                self.store.acknowledge(key, {**fields, "why": json.loads(text)["reason"]})
                changed += 1
        return changed

    def purge(self, runs: Iterable[str], former: Sequence[str] = ()) -> None:
        """Deletes all versions of the runs but the newest, and all that is left of `former` names.

        It also deletes what `clean` deletes without a grace period: no other process may write. Raises
        TwError for a run that has pending ranks.
        """
        for run in runs:
            if self.store.pending(run):
                raise TwError(f"run {run} has pending ranks", "complete or remove it, then repeat")
            self.store.delete_history(run)
        data = self.store.objects.walk(f"{layout.DATA}/") if former else ()
        logs = [entry.key for entry in data if f"/{layout.DELTA_LOG}/" in entry.key]
        self.store.objects.delete(logs)  # they have the former names
        list_new_versions(self.store)  # other Delta logs name no file that is deleted
        clean(self.store, 0.0)
        if logs:
            complete(self.store, copied_rows)
        for name in former:
            prefixes = [f"{folder}/{run_key(name)}/" for folder in _FOLDERS]
            leftovers = [entry.key for prefix in prefixes for entry in self.store.objects.walk(prefix)]
            self.store.objects.delete([*leftovers, layout.entry(name), layout.waiting(name)])
        self.store.forget()


class RemovalReport(Struct, frozen=True):
    """What was done, a line each, and what still has secrets, with what to do about it."""

    lines: tuple[str, ...]
    left: tuple[str, ...] = ()


def check_no_secret(store: Store, what: str, texts: Mapping[str, str | None]) -> None:
    """Raises ParamError for a text (name → text) that looks like a secret."""
    check_text(Redactor(store.salt, policy_of(store.folder_with(POLICY_FILE))), what, texts)


def without_secrets(store: Store, labels: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The labels; raises ParamError for an invalid one, and for one that looks like a secret."""
    for name, value in check_labels(labels).items():
        check_no_secret(store, "a label", {name: value})
    return labels
