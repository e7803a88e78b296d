"""Tables of another version, rebuilt from the stored events into a new version of the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract, Ref
from tracewarehouse.errors import SchemaVersionError, TwError
from tracewarehouse.ingest import machine
from tracewarehouse.ingest.pool import Failure, Tell, Workers
from tracewarehouse.ingest.worker import definitions_of, tables_told, too_much
from tracewarehouse.ingest.write import write_tables
from tracewarehouse.storage import (
    Changes,
    Json,
    RankSource,
    RunVersion,
    Staged,
    StagedTable,
    Store,
    TableFile,
    uid,
)

EVENTS = "events"
# What the tables are made from: the events, and what was found while the file was read.
SOURCES = (EVENTS, "data_quality")


@dataclass(frozen=True)
class Rebuild:
    """Make tables of one stored rank anew, from its events alone."""

    source: RankSource
    header: str
    stored: Mapping[str, tuple[Path, ...]]
    wanted: tuple[Ref, ...]
    folder: Path
    sql: Path
    threads: int
    memory_limit: str

    def run(self, tell: Tell) -> Staged:
        from tracewarehouse.engine import Error, connect, create_table
        from tracewarehouse.ingest import sql_tables as tables

        catalog = Catalog.load(self.sql)
        wanted = tuple(catalog.contracts[ref] for ref in self.wanted)
        self.folder.mkdir(parents=True)
        con = connect(
            threads=self.threads, memory_limit=self.memory_limit, temp_directory=self.folder / "spill"
        )
        try:
            for table, paths in self.stored.items():
                create_table(con, catalog.get(table, kind="table"))
                if paths:
                    con.execute(
                        f"INSERT INTO {table} BY NAME FROM read_parquet(?, hive_partitioning = false) "
                        "WHERE rank = ?",
                        [[str(path) for path in paths], self.source.rank],
                    )
            tables.rebuild(con, catalog, wanted)
            made = write_tables(con, catalog, wanted, self.folder)
        except Error as error:
            raise too_much(Path(f"{self.source.run} rank {self.source.rank}"), error) from error
        finally:
            con.close()
        told = tables_told(wanted, self.source.facts.get("tables"))
        definitions = {**self.source.definitions, **definitions_of(wanted)}
        return rebuilt(self.source, self.header, made, {**self.source.facts, "tables": told}, definitions)


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
        options={name: facts.get(name) for name in ("tables", "derived")},
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
    with store.staging() as staging, Workers(jobs) as workers:
        tasks = [_task(store, catalog, version, one, wanted, staging, jobs) for one in todo]
        results = [
            value for _, value in sorted(workers.run(tasks, lambda *_: None), key=lambda item: item[0])
        ]
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
    jobs: int,
) -> Rebuild:
    stored = {table: stored_files(store, catalog, version, source, table) for table in SOURCES}
    missing = tuple(contract.ref for contract in _missing(source, wanted))
    header = store.headers([source]).get(source.name, "{}")
    return Rebuild(source, header, stored, missing, staging / source.name, catalog.folder,
                   machine.threads(jobs), f"{machine.memory_bytes(jobs)}B")  # fmt: skip


def stored_files(
    store: Store, catalog: Catalog, version: RunVersion, source: RankSource, table: str
) -> tuple[Path, ...]:
    """The files that hold a table of the source. Raises SchemaVersionError where its events are others."""
    needed = catalog.get(table, kind="table").version
    scans = version.scan_plan(table, needed, [source.rank])
    if table == EVENTS and not scans and any(file.table == EVENTS for file in source.files):
        raise SchemaVersionError(
            f"run {source.run} rank {source.rank} holds events of another version than {EVENTS}@{needed}",
            "ingest the trace again with --replace",
        )
    return tuple(store.path(scan.path) for scan in scans)


def _missing(source: RankSource, wanted: Sequence[Contract]) -> list[Contract]:
    from tracewarehouse.select.versions import held

    return [contract for contract in wanted if contract.version not in held(source, contract.name)]
