"""Rebuilding tables of stored ranks from their events, for the versions that this release reads.

Each run is published as soon as its ranks are committed. A rank that a killed call had committed is not built
again: repeating the call resumes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.engines import LocalEngine, TaskProgress, results_in_order
from tracewarehouse.errors import DamagedRunError, SchemaVersionError, TwError, WarehouseError
from tracewarehouse.formats.base import Defect, Outcome
from tracewarehouse.ingest import resources
from tracewarehouse.ingest.build import definitions, kernel_rules_fact
from tracewarehouse.ingest.columns import Columns, read_table
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.resources import is_large, system_allocator
from tracewarehouse.ingest.rules import KernelRule, digest_of, kernel_rules_of, rules_of
from tracewarehouse.ingest.tables.quality import ADDED_TABLES
from tracewarehouse.runs.readable import expired_reason, is_outdated, stored_versions
from tracewarehouse.storage.layout import uid
from tracewarehouse.storage.model import (
    CLASSIFIED,
    KERNEL_RULES,
    Changes,
    Json,
    RankSource,
    RunVersion,
    Staged,
    StagedTable,
    TableFile,
    staged_again,
)
from tracewarehouse.storage.objects import disk_errors
from tracewarehouse.storage.parquet_file import Level, fault
from tracewarehouse.storage.store import Store
from tracewarehouse.temp_folders import temporary_folder

if TYPE_CHECKING:
    from tracewarehouse.ingest.parquet import Rows
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.build import Add


# Tables that a rank is rebuilt from: events, memory timeline or tables that a file adds, and findings of the
# file reader.
READ: Final = ("events", "memory_timeline", *ADDED_TABLES, "data_quality")
_OF_RANK: Final = ("run_id", "rank")
_QUALITY: Final = "data_quality"
_DERIVED: Final = "derived"
_STEP_RANGE: Final = "step_range"
# The facts that are options, if they are not empty; and those that identify rebuilt tables.
_OPTIONS: Final = (_DERIVED, "time_unit", _STEP_RANGE, KERNEL_RULES)
_STATED: Final = ("tables", _DERIVED)


def uid_of(
    source: RankSource, facts: Mapping[str, Json], definitions: Mapping[str, int], stated: Iterable[str] = ()
) -> str:
    """The uid of the same content with these facts and definitions, by its options and the `stated` facts."""
    options = {name: facts[name] for name in _OPTIONS if facts.get(name)}
    return uid(
        source.digest,
        source.run,
        source.rank,
        part=source.part,
        format=source.format,
        format_version=source.format_version,
        definitions=definitions,
        options=options | {name: facts.get(name) for name in stated},
    )


class Rebuild(Struct, frozen=True):
    """Rebuilds tables of a stored source from its files: the `wanted` ones, or all of them.

    `stored` maps the tables in READ to the paths of their files. `folder` is for the new files, `sql` that of
    the contracts. If all tables are rebuilt, `derived` names derived tables that are copied. `clean` returns
    the rows of a table without secrets. `own` are the users' rules for kernels.
    """

    source: RankSource
    header: str
    stored: Mapping[str, tuple[Path, ...]]
    folder: Path
    sql: Path
    wanted: tuple[Ref, ...] | None = None
    derived: tuple[str, ...] = ()
    clean: Callable[[str, pa.Table], pa.Table] | None = None
    own: tuple[KernelRule, ...] = ()

    def run(self, progress: TaskProgress) -> Staged:
        """Returns the source with the new tables, ready to be committed."""
        source, rules = self.source, rules_of(self.sql, self.own)
        large = is_large(source.text_bytes)
        with (
            disk_errors(self.folder),
            RankFiles(rules.catalog, self.folder, single=large, low_memory=large) as files,
            temporary_folder() as spill,
        ):
            self.folder.mkdir(parents=True, exist_ok=True)
            names = None if self.wanted is None else {ref.name for ref in self.wanted}

            def add(table: str, rows: Rows) -> None:
                if names is None or table in names:
                    files.add(source.run, (source.rank,), table, rows)

            facts = self.build(rules, add, spill)
            tables = files.staged(source.run).get(source.rank, ())
        if self.wanted is not None:
            digest = digest_of(self.own)
            versions, definitions_, kept_files = _replacement(rules.catalog, source, self.wanted, digest)
            return rebuilt(source, self.header, tables, {**facts, **versions}, definitions_, kept_files)
        facts |= kernel_rules_fact(digest_of(self.own), facts)
        source = replace(source, facts={**source.facts, KERNEL_RULES: facts.get(KERNEL_RULES)})
        staged = rebuilt(source, self.header, tables, facts, definitions(rules.catalog), ())
        own_uid = uid_of(source, source.facts, definitions(rules.catalog))
        return replace(staged, uid=own_uid, committed_at=source.committed_at)

    def build(self, rules: Rules, add: Add, spill: Path) -> dict[str, Json]:
        """Passes every table to `add` by name; returns the facts of the source with them."""
        from tracewarehouse.ingest.tables.build import RankTables, build

        source, outcome = self.source, self._outcome(rules)
        step_pattern = source.facts.get(_STEP_RANGE)
        with system_allocator() if is_large(source.text_bytes) else nullcontext(), ExitStack() as opened:
            tables = self._tables(outcome, spill, opened)
            pattern = step_pattern if isinstance(step_pattern, str) else None
            (built_rank,) = build([RankTables(source.rank, tables, outcome)], rules, add, pattern)
            for table in self.derived:
                batches = (batch for rows in self._rows(table) for batch in rows.to_batches())
                if (first := next(batches, None)) is not None:
                    add(table, chain((first,), batches))
        return {
            **source.facts,
            **built_rank.facts,
            "tables": self._table_versions(rules.catalog),
            **asdict(built_rank.coverage),
        }

    def _table_versions(self, catalog: Catalog) -> dict[str, Json]:
        """Table → its stored versions: tables that are built now, empty ones too, and derived tables."""
        versions: dict[str, Json] = {table.name: [table.version] for table in catalog.stored_tables()}
        before = self.source.facts.get("tables")
        derived = {contract.name for contract in catalog.tables() if contract.derived}
        if self.source.facts.get(_DERIVED) and isinstance(before, dict):
            versions |= {table: numbers for table, numbers in before.items() if table in derived}
        return versions

    def _tables(self, outcome: Outcome, spill: Path, opened: ExitStack) -> Mapping[str, Columns | pa.Table]:

        from tracewarehouse.formats.stored_source import StoredSource

        if added := {name: tuple(self._rows(name)) for name in ADDED_TABLES if self.stored.get(name)}:
            return {name: _with_texts(pa.concat_tables(rows)) for name, rows in added.items() if rows}
        table = "memory_timeline" if self.stored.get("memory_timeline") else "events"
        readers = StoredSource({table: self._rows(table)}, outcome).tables
        size = self.source.text_bytes
        return {name: read_table(name, reader, size, spill, opened) for name, reader in readers.items()}

    def _outcome(self, rules: Rules) -> Outcome:
        """The outcome of reading the file, with losses and redactions from rows of `data_quality`."""
        facts = self.source.facts

        def number(name: str) -> int | None:
            value = facts.get(name)
            return value if isinstance(value, int) and not isinstance(value, bool) else None

        return Outcome(
            digest=self.source.digest,
            header_json=self.header,
            text_bytes=self.source.text_bytes,
            stored_bytes=number("source_bytes") or 0,
            status=self.source.status,
            events=number("events") or 0,
            base_time_ns=number("base_time_ns") or 0,
            rank=number("rank_in_file"),
            world_size=number("world_size"),
            findings=tuple(self._findings(rules)),
        )

    def _findings(self, rules: Rules) -> Iterator[Defect]:
        for table in self._rows(_QUALITY):
            for row in table.select(["rule", "rows", "example"]).to_pylist():
                if row["rule"] in rules.quality and rules.quality[row["rule"]].source == "file":
                    yield Defect(row["rule"], row["rows"], row["example"])

    def _rows(self, table: str) -> Iterator[pa.Table]:
        """The rank's rows of a table, one row group at a time."""
        for path in self.stored.get(table, ()):
            for rows in rank_rows(path, self.source.rank):
                yield self.clean(table, rows) if self.clean else rows


def _with_texts(rows: pa.Table) -> pa.Table:
    """The rows with JSON columns as the texts that a format provides."""
    columns = [
        column.cast(column.type.storage_type) if isinstance(column.type, pa.BaseExtensionType) else column
        for column in rows.itercolumns()
    ]
    return pa.table(columns, names=rows.schema.names)


def rank_rows(path: Path, rank: int, names: Iterable[str] | None = None) -> Iterator[pa.Table]:
    """The rows of one rank in a stored file, one row group at a time; those of other ranks are skipped.

    `names` are those of the columns that are read, None for all.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from tracewarehouse.ingest.parquet import in_files, with_args

    columns = None if names is None else ["rank", *in_files(names)]
    with pq.ParquetFile(path) as file:
        rank_column = file.schema_arrow.names.index("rank")
        for group in range(file.num_row_groups):
            bounds = file.metadata.row_group(group).column(rank_column).statistics
            has_bounds = bounds is not None and bounds.has_min_max
            if has_bounds and not bounds.min <= rank <= bounds.max:
                continue
            rows = file.read_row_group(group, columns=columns, use_threads=False)
            if not has_bounds or bounds.min != bounds.max:
                rows = rows.filter(pc.equal(rows.column("rank"), rank))
            yield with_args(rows.drop_columns([name for name in rows.column_names if name in _OF_RANK]))


EVENTS = "events"
_Todo = dict[str, tuple[RankSource, tuple[Ref, ...]]]  # name of a source → the source, tables to rebuild


def _replacement(
    catalog: Catalog, source: RankSource, wanted: Iterable[Ref], digest: str
) -> tuple[dict[str, Json], dict[str, int], tuple[TableFile, ...]]:
    """Changed facts, the definitions, and the files that stay, once the wanted tables are rebuilt.

    A rebuilt table replaces its compatible versions. `digest` is that of the users' rules for kernels.
    """
    contracts = [catalog.contracts[ref] for ref in wanted]
    replaced = {each.ref for contract in contracts for each in catalog.compatible(contract)}
    before = source.facts.get("tables")
    other_versions: dict[str, Json] = {
        table: [number for number in versions if Ref(table, number) not in replaced]  # type: ignore[arg-type]
        for table, versions in (before if isinstance(before, dict) else {}).items()
        if isinstance(versions, list)
    }
    changed: dict[str, Json] = {"tables": table_versions_fact(contracts, other_versions)}
    if not source.is_classified_by(digest):
        changed |= kernel_rules_fact(digest, source.facts) | outdated_derivations(source.facts)
    return (
        changed,
        {**source.definitions, **{each.name: each.definition or 0 for each in contracts}},
        tuple(file for file in source.files if Ref(file.table, file.version) not in replaced),
    )


def outdated_derivations(facts: Mapping[str, Json]) -> dict[str, Json]:
    """The fact `derived` of a source whose tables changed since: `tw derive` derives again."""
    derived = facts.get(_DERIVED)
    if not isinstance(derived, dict):
        return {}
    return {
        _DERIVED: {
            name: {**each, "hash": ""} if isinstance(each, dict) else each for name, each in derived.items()
        }
    }


def with_classified(
    catalog: Catalog, source: RankSource, wanted: Iterable[Ref], digest: str
) -> tuple[Ref, ...]:
    """The tables to rebuild; if the users' rules for kernels changed, all tables that depend on them."""
    refs = dict.fromkeys(wanted)
    if not source.is_classified_by(digest):
        newest = (catalog.get(table, kind="table").ref for table in CLASSIFIED - source.expired.keys())
        refs |= dict.fromkeys(newest)
    return tuple(sorted(refs))


def table_versions_fact(built: Iterable[Contract], before: Json = None) -> dict[str, Json]:
    """Table → its stored versions, including tables without rows, which have no file."""
    fact: dict[str, Json] = dict(before) if isinstance(before, dict) else {}
    for contract in built:
        stored = fact.get(contract.name)
        versions: list[Json] = stored if isinstance(stored, list) else []
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
    kept = source.files if kept is None else kept
    uid = uid_of(source, facts, definitions, _STATED)
    changes = {"uid": uid, "facts": facts, "definitions": definitions, "committed_at": None, "unknown": ()}
    return staged_again(source, header, tables, kept, **changes)


def upgrade(
    store: Store, catalog: Catalog, runs: Iterable[str]
) -> tuple[tuple[str, ...], dict[str, TwError]]:
    """Rebuilds the outdated tables of each run into a new version of it.

    Returns a line per run and table, and the errors of runs that could not be rebuilt: damaged files, or
    events of another version than the tables are built from. Raises PolicyError for broken rules of users.
    """
    own = kernel_rules_of(store)
    lines: list[str] = []
    failed: dict[str, TwError] = {}
    for run in runs:
        try:
            lines += _upgraded(store, catalog, run, own)
        except TwError as error:
            failed[run] = error
    return tuple(lines), failed


def _upgraded(store: Store, catalog: Catalog, run: str, own: tuple[KernelRule, ...]) -> list[str]:
    version = store.newest(run)
    outdated = _outdated(catalog, version, digest_of(own)) if version else {}
    if not version or not outdated:
        return []
    # The files that are read, and derived tables stored from.
    sources = [source for source, _ in outdated.values()]
    files = {file.path: (source, file) for source in sources for file in source.files if file.table in READ}
    for key, (source, file) in files.items():
        if (what := fault(store.path(key), file, Level.FULL)) is not None:
            message = f"run {source.run} is damaged: {key}: {what}"
            raise DamagedRunError(message, hints.repair(source.run))
    _upgrade_run(store, catalog, version, outdated, own)
    refs = sorted({ref for _, tables in outdated.values() for ref in tables})
    return [f"{ref} was rebuilt for {version.run}" for ref in refs]


def _outdated(catalog: Catalog, version: RunVersion, digest: str) -> _Todo:
    """The sources with tables of another version, definition or classification of kernels than now."""
    outdated: _Todo = {}
    for source in version.sources:
        tables = []
        for table in catalog.stored_tables():
            if table.name in source.expired:
                continue
            stored = stored_versions(source, table.name)
            if stored is not None and table.version not in stored or is_outdated(source, table):
                tables.append(table.ref)
        if refs := with_classified(catalog, source, tables, digest):
            outdated[source.name] = source, refs
    return outdated


def _upgrade_run(
    store: Store, catalog: Catalog, version: RunVersion, outdated: _Todo, own: tuple[KernelRule, ...]
) -> None:
    with store.staging() as staging:
        committed = {(source.rank, source.uid): source for source in store.unpublished(version.run)}
        finished: list[RankSource] = []
        remaining: list[tuple[RankSource, tuple[Ref, ...]]] = []
        for source, refs in outdated.values():
            versions, definitions_, _ = _replacement(catalog, source, refs, digest_of(own))
            uid = uid_of(source, {**source.facts, **versions}, definitions_, _STATED)
            before = committed.get((source.rank, uid))
            if before is not None:
                finished.append(before)
            else:
                remaining.append((source, refs))
        headers = store.headers(source for source, _ in remaining)
        tasks = [
            Rebuild(
                source,
                headers.get(source.name, "{}"),
                {table: stored_files(store, catalog, version, source, table) for table in READ},
                staging / source.name,
                catalog.folder,
                refs,
                own=own,
            )
            for source, refs in remaining
        ]
        finished += store.commit(built(tasks)) if tasks else ()
        store.publish(version.run, Changes(sources=tuple(finished), rebuilt=True))


def built(tasks: Sequence[Rebuild]) -> list[Staged]:
    """What the tasks built, in several processes if that is worth it."""
    with LocalEngine(resources.rebuild_jobs(task.source.text_bytes for task in tasks)) as engine:
        return [result for result in results_in_order(engine, tasks) if isinstance(result, Staged)]


def stored_files(
    store: Store, catalog: Catalog, version: RunVersion, source: RankSource, table: str
) -> tuple[Path, ...]:
    """The files of a table of the source. Raises SchemaVersionError if its events have another version."""
    if table in source.expired:
        raise WarehouseError(
            f"run {source.run} rank {source.rank}: {expired_reason({table: source.expired[table]})}",
            hints.ingest_again(),
        )
    contract = catalog.get(table, kind="table")
    versions = [each.version for each in catalog.compatible(contract)]
    scans = version.scan_plan(table, versions, [source.rank])
    if table == EVENTS and not scans and any(file.table == EVENTS for file in source.files):
        raise SchemaVersionError(
            f"run {source.run} rank {source.rank} holds events of another version than {contract.ref}",
            hints.fill("ingest the trace again with {}", hints.option("replace")),
        )
    return tuple(store.path(scan.path) for scan in scans)
