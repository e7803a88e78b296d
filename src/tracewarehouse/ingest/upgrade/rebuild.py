"""Rebuilding of tables with an older version or definition from stored events, as a new version of the run.

Each run is published as soon as its ranks are committed. A rank that a killed call had committed is not built
again: repeating the call resumes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.engines import LocalEngine, TaskProgress, results_in_order
from tracewarehouse.errors import DamagedRunError, SchemaVersionError, TwError, WarehouseError
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.resources import is_large
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.upgrade.stored_rank import READ, StoredRank, uid_with
from tracewarehouse.runs.retention import expired_reason
from tracewarehouse.runs.table_versions import EXPIRED_HINT
from tracewarehouse.storage import (
    Changes,
    Json,
    RankSource,
    RunVersion,
    Staged,
    StagedTable,
    Store,
    TableFile,
    disk_error,
)
from tracewarehouse.storage.parquet_file import Level, fault
from tracewarehouse.temp_folders import temporary_folder

if TYPE_CHECKING:
    from tracewarehouse.ingest.parquet import Rows


EVENTS = "events"
_Todo = dict[str, tuple[RankSource, tuple[Ref, ...]]]  # name of a source → the source, tables to rebuild


@dataclass(frozen=True)
class Rebuild:
    """Rebuilds some tables of one stored rank from its events."""

    source: RankSource
    header: str
    stored: Mapping[str, tuple[Path, ...]]
    wanted: tuple[Ref, ...]
    folder: Path
    sql: Path

    def run(self, progress: TaskProgress) -> Staged:
        """Returns the source with the new tables, ready to be committed."""
        catalog, source = Catalog.load(self.sql), self.source
        new = _Replacement.of(catalog, source, self.wanted)
        rank = StoredRank(source, self.header, self.stored)
        large = is_large(source.text_bytes)
        try:
            self.folder.mkdir(parents=True)
            with (
                RankFiles(catalog, self.folder, single=large, low_memory=large) as files,
                temporary_folder() as spill,
            ):
                some = _SomeTables(files, {ref.name for ref in self.wanted})
                built = rank.build(rules_of(self.sql), some, spill)
                tables = files.staged(source.run).get(source.rank, ())
        except OSError as error:
            raise disk_error(self.folder, error) from error
        facts = {**built.facts, "tables": new.facts["tables"]}
        return rebuilt(source, self.header, tables, facts, new.definitions, new.kept)


@dataclass(frozen=True)
class _SomeTables:
    """Passes on only the wanted tables."""

    files: RankFiles
    wanted: Collection[str]

    def add(self, run: str, rank: int, table: str, rows: Rows) -> None:
        """The rows of a table."""
        if table in self.wanted:
            self.files.add(run, rank, table, rows)


@dataclass(frozen=True)
class _Replacement:
    """A source after some of its tables are rebuilt, without their files."""

    facts: Mapping[str, Json]
    definitions: Mapping[str, int]
    kept: tuple[TableFile, ...]

    @classmethod
    def of(cls, catalog: Catalog, source: RankSource, wanted: Iterable[Ref]) -> _Replacement:
        """The replacement of a source: a rebuilt table replaces its compatible versions; others stay."""
        contracts = [catalog.contracts[ref] for ref in wanted]
        replaced = {each.ref for contract in contracts for each in catalog.compatible(contract)}
        held = source.facts.get("tables")
        others: dict[str, Json] = {
            table: [number for number in versions if Ref(table, number) not in replaced]  # type: ignore[arg-type]
            for table, versions in (held if isinstance(held, dict) else {}).items()
            if isinstance(versions, list)
        }
        return cls(
            {**source.facts, "tables": table_versions_fact(contracts, others)},
            {**source.definitions, **{each.name: each.definition or 0 for each in contracts}},
            tuple(file for file in source.files if Ref(file.table, file.version) not in replaced),
        )


def table_versions_fact(built: Iterable[Contract], before: Json = None) -> dict[str, Json]:
    """Table → its stored versions, including tables without rows, which have no file."""
    fact: dict[str, Json] = dict(before) if isinstance(before, dict) else {}
    for contract in built:
        held = fact.get(contract.name)
        versions: list[Json] = held if isinstance(held, list) else []
        fact[contract.name] = versions if contract.version in versions else [*versions, contract.version]
    return fact


def rebuilt(
    source: RankSource,
    header: str,
    tables: tuple[StagedTable, ...],
    facts: Mapping[str, Json],
    definitions: Mapping[str, int],
    kept: tuple[TableFile, ...] | None = None,
) -> Staged:
    """A stored source to be committed with these new tables and the files `kept` (None: all of its files)."""
    return Staged(
        run=source.run,
        rank=source.rank,
        uid=_uid(source, facts, definitions),
        digest=source.digest,
        part=source.part,
        text_bytes=source.text_bytes,
        format=source.format,
        format_version=source.format_version,
        definitions=definitions,
        status=source.status,
        tables=tables,
        facts=facts,
        header=header,
        kept=source.files if kept is None else kept,
    )


def _uid(source: RankSource, facts: Mapping[str, Json], definitions: Mapping[str, int]) -> str:
    options = {name: facts.get(name) for name in ("tables", "derived")}
    for name in ("time_unit", "step_range"):
        if value := facts.get(name):
            options[name] = value
    return uid_with(source, definitions, options)


def upgrade(
    store: Store, catalog: Catalog, runs: Iterable[str]
) -> tuple[tuple[str, ...], dict[str, TwError]]:
    """Rebuilds the outdated tables of each run into a new version of it.

    Returns a line per run and table, and the errors of runs that could not be rebuilt: damaged files, or
    events of another version than the tables are built from.
    """
    lines: list[str] = []
    failed: dict[str, TwError] = {}
    for run in runs:
        try:
            lines += _upgraded(store, catalog, run)
        except TwError as error:
            failed[run] = error
    return tuple(lines), failed


def _upgraded(store: Store, catalog: Catalog, run: str) -> list[str]:
    version = store.newest(run)
    todo = _outdated(catalog, version) if version else {}
    if not version or not todo:
        return []
    _check_files(store, [source for source, _ in todo.values()])
    _upgrade_run(store, catalog, version, todo)
    refs = sorted({ref for _, wanted in todo.values() for ref in wanted})
    return [f"{ref} was rebuilt for {version.run}" for ref in refs]


def _check_files(store: Store, sources: Iterable[RankSource]) -> None:
    """Raises DamagedRunError if a file that is read, and derived tables stored from, is damaged."""
    files = {file.path: (source, file) for source in sources for file in source.files if file.table in READ}
    for key, (source, file) in files.items():
        if (what := fault(store.path(key), file, Level.FULL)) is not None:
            message = f"run {source.run} is damaged: {key}: {what}"
            raise DamagedRunError(message, hints.repair(source.run))


def _outdated(catalog: Catalog, version: RunVersion) -> _Todo:
    """The sources with tables of another version or an older definition than in this release."""
    from tracewarehouse.ingest.tables.build import stored_tables
    from tracewarehouse.runs.table_versions import is_outdated, stored_versions

    found: _Todo = {}
    for source in version.sources:
        wanted = []
        for table in stored_tables(catalog):
            if table.name in source.expired:
                continue
            held = stored_versions(source, table.name)
            if held is not None and table.version not in held or is_outdated(source, table):
                wanted.append(table.ref)
        if wanted:
            found[source.name] = source, tuple(wanted)
    return found


def _upgrade_run(store: Store, catalog: Catalog, version: RunVersion, todo: _Todo) -> None:
    committed = {(one.rank, one.uid): one for one in store.unpublished(version.run)}
    done: list[RankSource] = []
    remaining: list[tuple[RankSource, tuple[Ref, ...]]] = []
    for source, wanted in todo.values():
        new = _Replacement.of(catalog, source, wanted)
        before = committed.get((source.rank, _uid(source, new.facts, new.definitions)))
        if before is not None:
            done.append(before)
        else:
            remaining.append((source, wanted))
    headers = store.headers(source for source, _ in remaining)
    with store.staging() as staging:
        tasks = [
            Rebuild(
                source,
                headers.get(source.name, "{}"),
                {table: stored_files(store, catalog, version, source, table) for table in READ},
                wanted,
                staging / source.name,
                catalog.folder,
            )
            for source, wanted in remaining
        ]
        done += store.commit(_built(tasks)) if tasks else ()
        store.publish(version.run, Changes(sources=tuple(done), rebuilt=True))


def _built(tasks: Sequence[Rebuild]) -> list[Staged]:
    with LocalEngine(resources.rebuild_jobs(task.source.text_bytes for task in tasks)) as engine:
        return [result for result in results_in_order(engine, tasks) if isinstance(result, Staged)]


def stored_files(
    store: Store, catalog: Catalog, version: RunVersion, source: RankSource, table: str
) -> tuple[Path, ...]:
    """The files of a table of the source. Raises SchemaVersionError if its events have another version."""
    if table in source.expired:
        raise WarehouseError(
            f"run {source.run} rank {source.rank}: {expired_reason({table: source.expired[table]})}",
            EXPIRED_HINT,
        )
    needed = catalog.get(table, kind="table")
    versions = [each.version for each in catalog.compatible(needed)]
    scans = version.scan_plan(table, versions, [source.rank])
    if table == EVENTS and not scans and any(file.table == EVENTS for file in source.files):
        raise SchemaVersionError(
            f"run {source.run} rank {source.rank} holds events of another version than {needed.ref}",
            hints.fill("ingest the trace again with {}", hints.option("replace")),
        )
    return tuple(store.path(scan.path) for scan in scans)
