"""`warehouse.duckdb`: the warehouse for DuckDB shells, a derived file of views made from a cached template.

Binding the views and macros takes seconds, but does not depend on the runs, so it is done once and cached.
What depends on the runs is in small macros that the views call: `tw_files_kernels()` reads the files of a
table, `latest.tw_run()` returns the latest run. Replacing them is fast, and the views keep their types and
comments. Schema `latest` has views on the tables in `main`, and reads only the files of the latest run.

The cache belongs to the user and is shared by all warehouses: its entries contain no data of a warehouse, so
removing runs need not delete them. It is private and limited in size. If it is not usable, or an entry is
damaged, the template is built again.

The file contains no events, only views over the Parquet files by absolute path. `tw ingest`, `tw refresh` and
`tw shell` write it; other commands leave it out of date. Its stamp identifies the versions it was built from.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.duck.engine import (
    DUCKDB_VERSION,
    Connection,
    Error,
    connect,
    create_from_rows,
    create_table,
    insert_rows,
    literal,
)
from tracewarehouse.errors import WarehouseError
from tracewarehouse.query.connections import create
from tracewarehouse.query.relations import (
    ABSTAINED,
    ABSTAINED_COLUMNS,
    HELP,
    HELP_COLUMNS,
    Dependencies,
    Relations,
    abstained_rows,
    as_text,
    create_analysis_as_text,
    create_literal,
    dependencies,
    help_rows,
    typed_sql,
)
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.readable import ReadableRuns, intact_runs, with_capabilities
from tracewarehouse.runs.rows import damaged_runs
from tracewarehouse.runs.selection import SelectedRun, select_runs
from tracewarehouse.storage import Store, Versions, disk_errors
from tracewarehouse.storage.objects import LocalObjects
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.temp_folders import cache_folder, temporary_folder
from tracewarehouse.version import __version__

Contracts = tuple[Contract, ...]
SCHEMAS = ("main", "latest")
_MAIN, _LATEST = SCHEMAS
ABOUT = "tw_about"
_RUN = "tw_run"
# The newest format that both this package and the DuckDB shell on PyPI can read.
_STORAGE_VERSION = "v1.4.0"
COLUMNS = {
    ABOUT: {"stamp": "VARCHAR", "warehouse": "VARCHAR"},
    ABSTAINED: ABSTAINED_COLUMNS,
    HELP: HELP_COLUMNS,
}


def attach(con: Connection, path: Path) -> None:
    """Attaches a file for writing as `tw_file`; creates it if it does not exist."""
    con.execute(f"ATTACH {quote_text(str(path))} AS tw_file (STORAGE_VERSION '{_STORAGE_VERSION}')")


def template(catalog: Catalog) -> bytes:
    """The bytes of the template, cached per process and user. Raises WarehouseError."""
    with _lock:
        if catalog.digest not in _templates:
            _templates.clear()
            # The hash is of the code that builds the file.
            package = Path(__file__).parents[1]
            modules = sorted(path for name in ("query", "runs") for path in (package / name).glob("*.py"))
            versions = f"{__version__} {DUCKDB_VERSION}".encode()
            code = sha256(b"\0".join((versions, *(module.read_bytes() for module in modules)))).hexdigest()
            name = f"{catalog.digest[:16]}-{code[:16]}.duckdb"
            if (found := cached(name)) is None:
                cache(name, found := _build(catalog))
            _templates[catalog.digest] = found
        return _templates[catalog.digest]


_templates: dict[str, bytes] = {}
_lock = Lock()
# Entries of the cache differ by version of the tool and of its contracts.
_MAX_FILES = 8
_MAX_BYTES = 256 << 20
_DIGEST_BYTES = sha256().digest_size


def cached(name: str) -> bytes | None:
    """The bytes cached under that name; None if they are missing or damaged."""
    with suppress(OSError, RuntimeError):
        path = cache_folder() / name
        stored = path.read_bytes()
        digest, data = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if sha256(data).digest() == digest:
            path.touch()
            return data
    return None


def cache(name: str, data: bytes) -> None:
    """Caches the bytes if possible, and deletes the least recently used files above the limits."""
    with suppress(OSError, RuntimeError):
        target = cache_folder()
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.chmod(0o700)
        part = target / f".{name}.{secrets.token_hex(8)}"
        try:
            part.write_bytes(sha256(data).digest() + data)
            part.replace(target / name)
        finally:
            part.unlink(missing_ok=True)
        known = [(path.stat(), path) for path in target.iterdir() if path.is_file()]
        total = 0
        for number, (stat, path) in enumerate(sorted(known, key=lambda each: -each[0].st_mtime_ns)):
            total += stat.st_size
            if number >= _MAX_FILES or total > _MAX_BYTES:
                path.unlink(missing_ok=True)


def _build(catalog: Catalog) -> bytes:
    with temporary_folder() as folder, connect() as con:
        path = folder / "template.duckdb"
        attach(con, path)
        con.execute("BEGIN")  # a single transaction: otherwise each statement would wait for the disk
        for schema in SCHEMAS:
            con.execute(f"CREATE SCHEMA IF NOT EXISTS tw_file.{schema}")
            con.execute(f"USE tw_file.{schema}")
            _Schema(con, catalog, schema).fill()
        con.execute("USE tw_file.main")
        create_from_rows(con, ABOUT, COLUMNS[ABOUT], [])
        con.execute("COMMIT")
        con.execute("USE memory")
        con.execute("DETACH tw_file")
        return path.read_bytes()


def relations_of(
    catalog: Catalog, store: Versions, selected: tuple[SelectedRun, ...]
) -> tuple[Relations, Contracts]:
    """All tables and views of a file over some runs, and their contracts in order."""
    tables = [table for table in catalog.all("table") if not table.transient]
    analyses = catalog.all("analysis")
    contracts = dependencies(catalog, (*tables, *catalog.all("view"), *analyses))
    return Relations(store, selected, Dependencies.over(catalog, contracts, others=analyses)), contracts


def set_files(con: Connection, relations: Relations, contract: Contract) -> None:
    """Sets the files that the view of a stored table in the current schema reads."""
    name = quote_name(f"tw_files_{relations.names[contract.ref]}")
    con.execute(f"CREATE OR REPLACE MACRO {name}() AS TABLE\n{relations.files_sql(contract)}")


def set_latest_run(con: Connection, run: str | None) -> None:
    """Sets the latest run; None without runs."""
    con.execute(f"CREATE OR REPLACE MACRO {_LATEST}.{_RUN}() AS {literal(run, 'VARCHAR')}")


class _Schema(Struct, frozen=True):
    """Builds all tables, views and analyses, without runs, in the current schema of a connection."""

    con: Connection
    catalog: Catalog
    name: str

    def fill(self) -> None:
        relations, contracts = relations_of(self.catalog, Versions(LocalObjects(Path())), ())
        analyses = self.catalog.all("analysis")
        for contract in contracts:
            create_table(self.con, contract, name=relations.names[contract.ref])
        if self.name == _LATEST:
            set_latest_run(self.con, None)
        else:
            create_literal(self.con)
        self._create_table(ABSTAINED, [], by_run=True)
        for contract in analyses:
            create_analysis_as_text(self.con, self.catalog, relations, contract, self.name)
        # Readers before their dependencies: binding against tables is faster than against nested views.
        for contract in reversed(contracts):
            self.con.execute(f"DROP TABLE {quote_name(relations.names[contract.ref])}")
            self._relation(relations, contract)
        rows = []
        for contract in (*contracts, *analyses):
            name = relations.names[contract.ref]
            rows += help_rows(contract, name)
            self.con.execute(";".join(_comments(contract, quote_name(name), self.name)))
        self._create_table(HELP, rows, by_run=False)

    def _relation(self, relations: Relations, contract: Contract) -> None:
        name = relations.names[contract.ref]
        if contract.is_stored:
            set_files(self.con, relations, contract)
            typed = typed_sql(contract, f"{quote_name(f'tw_files_{name}')}()")
            self._view(name, typed)
        elif not contract.is_built:
            self._view(name, relations.view_sql(contract))
        elif self.name == _LATEST:
            self._of_main(name, by_run=True)
        else:
            create(self.con, relations, contract)

    def _view(self, name: str, sql: str) -> None:
        self.con.execute(f"CREATE VIEW {quote_name(name)} AS {as_text(sql)}")

    def _of_main(self, name: str, by_run: bool) -> None:
        """A view on the relation with that name in `main`; with `by_run`, on its rows of the latest run."""
        where = f" WHERE run_id = {_RUN}()" if by_run else ""
        self.con.execute(f"CREATE VIEW {quote_name(name)} AS FROM {_MAIN}.{quote_name(name)}{where}")

    def _create_table(self, table: str, rows: Sequence[Sequence[object]], by_run: bool) -> None:
        if self.name == _LATEST:
            self._of_main(table, by_run)
            return
        columns = COLUMNS[table]
        create_from_rows(self.con, table, columns, [dict(zip(columns, row, strict=True)) for row in rows])


def _comments(contract: Contract, name: str, schema: str) -> Iterator[str]:
    """The comments on a relation and, in `main` only, on each of its columns: over a thousand in total."""
    comment = quote_text(contract.summary)
    table = contract.is_built and schema == _MAIN
    yield f"COMMENT ON {'TABLE' if table else 'VIEW'} {name} IS {comment}"
    if contract.kind == "analysis":
        yield f"COMMENT ON MACRO TABLE {name} IS {comment}"
    for column in contract.columns if schema == _MAIN else ():
        unit = f" [{column.unit}]" if column.unit else ""
        yield f"COMMENT ON COLUMN {name}.{quote_name(column.name)} IS {quote_text(column.doc + unit)}"


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
            for contract in contracts:  # before, the views read no files
                if contract.is_stored and part.has_rows(contract):
                    set_files(con, part, contract)
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


@contextmanager
def shell_file(
    selection: Selection, refresh: Callable[[], object], on_notice: Callable[[str], object] | None
) -> Iterator[Path]:
    """The updated `warehouse.duckdb`, or a temporary file over the selection; see `Warehouse.shell_file`."""
    store, catalog = selection.store, selection.catalog
    level = Level.FULL if selection.level is Level.FULL else Level.SIZE
    readable = intact(store, catalog, selection.selected(), level)
    if on_notice is not None:
        for notice in (*damaged_runs(selection.left_out), *readable.notices):
            on_notice(notice)
    if selection.runs is None:
        path = store.path(NAME)
        if is_current(path, store, catalog, readable.selected) or _is_written(refresh):
            yield path
            return
    with temporary_folder() as folder:
        write(folder / NAME, store, catalog, readable.selected)
        yield folder / NAME


def _is_written(refresh: Callable[[], object]) -> bool:
    try:
        refresh()
    except (WarehouseError, OSError):
        return False
    return True
