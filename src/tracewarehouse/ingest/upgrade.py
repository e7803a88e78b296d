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
from tracewarehouse.ingest.worker import tables_told, too_much
from tracewarehouse.ingest.write import write_tables
from tracewarehouse.store import Changes, Json, RunVersion, Staged, Store, Unit, uid

EVENTS = "events"
# What the tables are made from: the events, and what was found while the file was read.
SOURCES = (EVENTS, "data_quality")


@dataclass(frozen=True)
class Rebuild:
    """Make tables of one stored rank anew, from its events alone."""

    unit: Unit
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
                        [[str(path) for path in paths], self.unit.rank],
                    )
            tables.rebuild(con, catalog, wanted)
            made = write_tables(con, catalog, wanted, self.folder)
        except Error as error:
            raise too_much(Path(f"{self.unit.run} rank {self.unit.rank}"), error) from error
        finally:
            con.close()
        facts: dict[str, Json] = {
            **self.unit.facts,
            "tables": tables_told(wanted, self.unit.facts.get("tables")),
        }
        unit = self.unit
        source = uid(unit.digest, unit.run, unit.rank, unit.reader, {"tables": facts["tables"]})
        return Staged(unit.run, unit.rank, source, unit.digest, unit.text_bytes, unit.reader, unit.status,
                      made, facts, kept=unit.files)  # fmt: skip


def upgrade(
    store: Store, catalog: Catalog, runs: Iterable[str], wanted: Sequence[Contract]
) -> tuple[str, ...]:
    """Give each run a version that also holds these tables; the tables it held stay. Gives the runs written.

    Raises SchemaVersionError where a run's events are of another version than the tables are made from.
    """
    written = []
    for run in runs:
        version = store.newest(run)
        todo = [unit for unit in version.units if _missing(unit, wanted)] if version else []
        if version and todo:
            written += _upgrade_run(store, catalog, version, todo, wanted)
    return tuple(written)


def _upgrade_run(
    store: Store, catalog: Catalog, version: RunVersion, todo: Sequence[Unit], wanted: Sequence[Contract]
) -> list[str]:
    jobs = min(machine.cores(), len(todo))
    with store.staging() as staging, Workers(jobs) as workers:
        tasks = [_task(store, catalog, version, unit, wanted, staging, jobs) for unit in todo]
        results = [
            value for _, value in sorted(workers.run(tasks, lambda *_: None), key=lambda item: item[0])
        ]
        for result in results:
            if isinstance(result, Failure):
                raise TwError(result.message, result.hint)
        units = store.commit([result for result in results if isinstance(result, Staged)])
        published = store.publish(version.run, Changes(units=units, rebuilt=True))
    return [version.run] if published.version else []


def _task(
    store: Store,
    catalog: Catalog,
    version: RunVersion,
    unit: Unit,
    wanted: Sequence[Contract],
    staging: Path,
    jobs: int,
) -> Rebuild:
    stored = {table: stored_files(store, catalog, version, unit, table) for table in SOURCES}
    missing = tuple(contract.ref for contract in _missing(unit, wanted))
    return Rebuild(unit, stored, missing, staging / f"{unit.rank:06d}", catalog.folder,
                   machine.threads(jobs), f"{machine.memory_bytes(jobs)}B")  # fmt: skip


def stored_files(
    store: Store, catalog: Catalog, version: RunVersion, unit: Unit, table: str
) -> tuple[Path, ...]:
    """The files that hold a table of the unit. Raises SchemaVersionError where its events are others."""
    needed = catalog.get(table, kind="table").version
    scans = version.scan_plan(table, needed, [unit.rank])
    if table == EVENTS and not scans and any(file.table == EVENTS for file in unit.files):
        raise SchemaVersionError(
            f"run {unit.run} rank {unit.rank} holds events of another version than {EVENTS}@{needed}",
            "ingest the trace again with --replace",
        )
    return tuple(store.path(scan.path) for scan in scans)


def _missing(unit: Unit, wanted: Sequence[Contract]) -> list[Contract]:
    from tracewarehouse.select.versions import held

    return [contract for contract in wanted if contract.version not in held(unit, contract.name)]
