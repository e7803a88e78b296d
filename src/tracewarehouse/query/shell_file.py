"""`warehouse.duckdb`: the warehouse for DuckDB shells, a derived file that is always rewritten entirely.

It contains no events, only views over the Parquet files by absolute path. `tw ingest`, `tw refresh` and
`tw shell` write it; other commands leave it out of date. Its stamp identifies the versions it was built from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import copyfile

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.duck.engine import Connection, Error, connect, insert_rows
from tracewarehouse.errors import WarehouseError
from tracewarehouse.query.analysis_views import ABSTAINED, abstained_rows
from tracewarehouse.query.relations import Relations
from tracewarehouse.query.shell_template import (
    ABOUT,
    COLUMNS,
    SCHEMAS,
    Contracts,
    attach,
    relations_of,
    set_files,
    set_latest_run,
    template,
)
from tracewarehouse.runs.capabilities import with_capabilities
from tracewarehouse.runs.intact_files import intact_runs
from tracewarehouse.runs.notices import damaged_runs
from tracewarehouse.runs.selection import SelectedRun, select_runs
from tracewarehouse.runs.table_versions import ReadableRuns
from tracewarehouse.storage import Store, Versions, disk_errors
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.temp_folders import temporary_folder

NAME = "warehouse.duckdb"
# Each command that publishes a version writes the file: under constant writes, a later one completes it.
_TRIES = 3


def refresh(store: Store, catalog: Catalog, on_notice: Callable[[str], object] | None = None) -> Path:
    """Writes the file over the newest version of every run, and returns its path.

    Damaged runs are left out, with a notice each. It starts over if a version was published in the meantime,
    so that the last of several concurrent calls includes the newest versions. Raises WarehouseError.
    """
    path = store.path(NAME)
    for _ in range(_TRIES):
        newest = select_runs(store)
        readable = intact(store, catalog, newest, Level.SIZE)
        # DuckDB writes the log to a wrong place if the path contains a "?", so the file is built elsewhere.
        with temporary_folder() as folder, store.staging() as staging:
            write(Path(folder, NAME), store, catalog, readable.selected)
            with disk_errors(store.folder):
                copyfile(Path(folder, NAME), staging / NAME)
                (staging / NAME).replace(path)
        if [each.selector for each in select_runs(store)] == [each.selector for each in newest]:
            break
    if on_notice is not None:
        for notice in (*damaged_runs(store.unreadable()), *readable.notices):
            on_notice(hints.fill("{}: {}", NAME, notice))
    return path


def intact(store: Store, catalog: Catalog, selected: Sequence[SelectedRun], level: Level) -> ReadableRuns:
    """The runs whose files pass the check: the views of the others could not be created or read.

    Raises DamagedRunError for a damaged run that was selected by name.
    """
    tables = [table for table in catalog.tables() if table.is_stored]
    return intact_runs(store, catalog, tables, selected, level, allow_none=True)


def is_current(path: Path, store: Versions, catalog: Catalog, selected: Sequence[SelectedRun]) -> bool:
    """Whether the file was written for exactly these ranks, contracts and this folder."""
    if not path.exists():
        return False
    try:
        with connect(database=path, read_only=True) as con:
            found = con.execute(f"SELECT stamp FROM {ABOUT}").fetchone()
    except Error:
        return False
    return found == (_stamp(store, catalog, selected),)


def fault(path: Path) -> str | None:
    """The problem of a DuckDB file that cannot be read entirely; None if it is intact or missing."""
    if not path.exists():
        return None
    try:
        with connect(database=path, read_only=True) as con:
            listed = "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal"
            for schema, name in con.execute(listed).fetchall():
                con.execute(f"FROM {quote_name(schema)}.{quote_name(name)}").fetchall()
            con.execute("SELECT sql FROM duckdb_views()").fetchall()
    except Error as error:
        return f"damaged derived file: {str(error).partition(chr(10))[0]}"
    return None


def _stamp(store: Versions, catalog: Catalog, selected: Sequence[SelectedRun]) -> str:
    contracts = sorted(catalog.effective_hash(contract) for contract in catalog.contracts.values())
    ranks = [(each.selector, each.ranks) for each in selected]
    return sha256(repr((store.objects.url, contracts, ranks)).encode()).hexdigest()


def write(path: Path, store: Store, catalog: Catalog, selected: Sequence[SelectedRun]) -> None:
    """Writes a DuckDB file over the selected ranks. Raises WarehouseError."""
    path.write_bytes(template(catalog))
    con = connect()
    try:
        attach(con, path)
        con.execute("BEGIN")  # a single transaction: otherwise each statement would wait for the disk
        latest = tuple(selected[-1:])
        relations, contracts = relations_of(catalog, store, tuple(selected))
        for schema, part in zip(SCHEMAS, (relations, replace(relations, selected=latest)), strict=True):
            con.execute(f"USE tw_file.{schema}")
            _set_files(con, part, contracts)
        set_latest_run(con, latest[0].run if latest else None)
        con.execute("USE tw_file.main")
        _fill(con, catalog, relations, contracts)
        con.execute("COMMIT")
        con.execute("USE memory")
        con.execute("DETACH tw_file")
    except Error as error:
        raise WarehouseError(f"{path}: cannot be written: {str(error).partition(chr(10))[0]}") from error
    finally:
        con.close()


def _set_files(con: Connection, relations: Relations, contracts: Contracts) -> None:
    """Sets the files that the views of the current schema read; before, they read none."""
    for contract in contracts:
        if contract.is_stored and relations.has_rows(contract):
            set_files(con, relations, contract)


def _fill(con: Connection, catalog: Catalog, relations: Relations, contracts: Contracts) -> None:
    """Fills the tables: runs and ranks, ranks that analyses skip, and facts about the file."""
    store, selected = relations.store, relations.selected
    for contract in contracts:
        if contract.is_built:
            relations.create(con, contract, replace=True)
    abstained = {each: with_capabilities(each, selected).abstained for each in catalog.all("analysis")}
    ranks = {each.run: len(each.ranks) for each in selected}
    skipped = abstained_rows(ranks, abstained)
    rows = [dict(zip(COLUMNS[ABSTAINED], row, strict=True)) for row in skipped]
    insert_rows(con, ABSTAINED, COLUMNS[ABSTAINED], rows)
    about = {"stamp": _stamp(store, catalog, selected), "warehouse": store.objects.url}
    insert_rows(con, ABOUT, COLUMNS[ABOUT], [about])
