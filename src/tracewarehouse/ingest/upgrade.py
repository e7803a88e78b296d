"""Tables of another version, rebuilt from the stored events into a new version of the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.engines import Failure, LocalEngine, TaskProgress
from tracewarehouse.errors import SchemaVersionError, TwError
from tracewarehouse.ingest import machine
from tracewarehouse.ingest.memory import is_large
from tracewarehouse.ingest.rank_files import RankFiles
from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.stored_rank import READ, StoredRank
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
    uid,
)

if TYPE_CHECKING:
    from tracewarehouse.ingest.rank_files import Rows

EVENTS = "events"


@dataclass(frozen=True)
class Rebuild:
    """Make some tables of one stored rank anew, from what is stored of it."""

    source: RankSource
    header: str
    stored: Mapping[str, tuple[Path, ...]]
    wanted: tuple[Ref, ...]
    folder: Path
    sql: Path

    def run(self, progress: TaskProgress) -> Staged:
        catalog, source = Catalog.load(self.sql), self.source
        wanted = tuple(catalog.contracts[ref] for ref in self.wanted)
        rank = StoredRank(source, self.header, self.stored)
        large = is_large(source.text_bytes)
        try:
            self.folder.mkdir(parents=True)
            with (
                RankFiles(catalog, self.folder, alone=large, frugal=large) as files,
                TemporaryDirectory(prefix="tw-") as spill,
            ):
                rank.build(rules_of(self.sql), _Some(files, {ref.name for ref in self.wanted}), Path(spill))
                made = files.staged(source.run).get(source.rank, ())
        except OSError as error:
            raise disk_error(self.folder, error) from error
        told = tables_told(wanted, source.facts.get("tables"))
        definitions = {**source.definitions, **{each.name: each.definition or 0 for each in wanted}}
        return rebuilt(source, self.header, made, {**source.facts, "tables": told}, definitions)


@dataclass(frozen=True)
class _Some:
    """Takes the wanted tables of all that are built."""

    files: RankFiles
    wanted: Collection[str]

    def add(self, run: str, rank: int, table: str, rows: Rows) -> None:
        """The rows of a table."""
        if table in self.wanted:
            self.files.add(run, rank, table, rows)


def tables_told(made: Iterable[Contract], before: Json = None) -> dict[str, Json]:
    """Table → the versions a source holds, empty ones included: no rows, no file."""
    told: dict[str, Json] = dict(before) if isinstance(before, dict) else {}
    for contract in made:
        held = told.get(contract.name)
        versions: list[Json] = held if isinstance(held, list) else []
        told[contract.name] = versions if contract.version in versions else [*versions, contract.version]
    return told


def rebuilt(
    source: RankSource,
    header: str,
    tables: tuple[StagedTable, ...],
    facts: Mapping[str, Json],
    definitions: Mapping[str, int],
    kept: tuple[TableFile, ...] | None = None,
) -> Staged:
    """A stored source with these tables beside its own files (`kept`; None: all of them), to be committed."""
    key = uid(
        source.digest,
        source.run,
        source.rank,
        part=source.part,
        format=source.format,
        format_version=source.format_version,
        definitions=definitions,
        options={name: facts.get(name) for name in ("tables", "derived")}
        | ({"time_unit": unit} if (unit := facts.get("time_unit")) else {}),
    )
    return Staged(
        run=source.run,
        rank=source.rank,
        uid=key,
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


def upgrade(
    store: Store, catalog: Catalog, runs: Iterable[str], wanted: Sequence[Contract]
) -> tuple[str, ...]:
    """Give each run a version that also holds these tables; the tables it held stay. Gives the runs written.

    Raises SchemaVersionError where a run's events are of another version than the tables are made from.
    """
    written = []
    for run in runs:
        version = store.newest(run)
        todo = [one for one in version.sources if _missing(one, wanted)] if version else []
        if version and todo:
            written += _upgrade_run(store, catalog, version, todo, wanted)
    return tuple(written)


def _upgrade_run(
    store: Store,
    catalog: Catalog,
    version: RunVersion,
    todo: Sequence[RankSource],
    wanted: Sequence[Contract],
) -> list[str]:
    jobs = min(machine.cores(), len(todo))
    with store.staging() as staging, LocalEngine(jobs) as engine:
        tasks = [_task(store, catalog, version, one, wanted, staging) for one in todo]
        results = [value for _, value in sorted(engine.run(tasks, lambda *_: None), key=lambda item: item[0])]
        for result in results:
            if isinstance(result, Failure):
                raise TwError(result.message, result.hint)
        sources = store.commit([result for result in results if isinstance(result, Staged)])
        published = store.publish(version.run, Changes(sources=sources, rebuilt=True))
    return [version.run] if published.version else []


def _task(
    store: Store,
    catalog: Catalog,
    version: RunVersion,
    source: RankSource,
    wanted: Sequence[Contract],
    staging: Path,
) -> Rebuild:
    stored = {table: stored_files(store, catalog, version, source, table) for table in READ}
    missing = tuple(contract.ref for contract in _missing(source, wanted))
    header = store.headers([source]).get(source.name, "{}")
    return Rebuild(source, header, stored, missing, staging / source.name, catalog.folder)


def stored_files(
    store: Store, catalog: Catalog, version: RunVersion, source: RankSource, table: str
) -> tuple[Path, ...]:
    """The files that hold a table of the source. Raises SchemaVersionError where its events are others."""
    needed = catalog.get(table, kind="table").version
    scans = version.scan_plan(table, needed, [source.rank])
    if table == EVENTS and not scans and any(file.table == EVENTS for file in source.files):
        raise SchemaVersionError(
            f"run {source.run} rank {source.rank} holds events of another version than {EVENTS}@{needed}",
            hints.fill("ingest the trace again with {}", hints.option("replace")),
        )
    return tuple(store.path(scan.path) for scan in scans)


def _missing(source: RankSource, wanted: Sequence[Contract]) -> list[Contract]:
    from tracewarehouse.runs.capabilities import held

    return [contract for contract in wanted if contract.version not in held(source, contract.name)]
