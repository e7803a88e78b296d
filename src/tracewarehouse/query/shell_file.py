"""`warehouse.duckdb`: the warehouse for DuckDB shells, a derived file of views made from a cached template.

Binding the views and macros takes seconds, but does not depend on the runs, so it is done once and cached.
Each stored table has a macro: `kernels_of('run')` reads the files of a run, `kernels_of()`, which is the view
`kernels`, those of all runs. `tw ingest` replaces the lists of these files, which are in one macro, and the
rows of the runs that changed; the views stay. Schema `latest` has views on the tables in `main`, and reads
only the files of the latest run.

The cache belongs to the user and is shared by all warehouses: its entries contain no data of a warehouse, so
removing runs need not delete them. It is private and limited in size. If it is not usable, or an entry is
damaged, the template is built again.

The file contains no events, only views over the Parquet files by absolute path. `tw ingest`, `tw refresh` and
`tw shell` write it, always as a new file that replaces the old one; other commands leave it out of date.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from threading import Lock
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, file_columns
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
    scratch,
)
from tracewarehouse.errors import WarehouseError
from tracewarehouse.query.connections import create
from tracewarehouse.query.relations import (
    HELP,
    HELP_COLUMNS,
    SKIPPED,
    SKIPPED_COLUMNS,
    Dependencies,
    Relations,
    as_text,
    create_analysis_as_text,
    create_literal,
    dependencies,
    empty_sql,
    help_rows,
    skipped_rows,
    typed_sql,
)
from tracewarehouse.query.selection import Selection
from tracewarehouse.runs.readable import ReadableRuns, intact_runs, with_capabilities
from tracewarehouse.runs.rows import built_rows, catalog_row, damaged_runs
from tracewarehouse.runs.selection import SelectedRun, in_order
from tracewarehouse.storage.model import Brief
from tracewarehouse.storage.objects import LocalObjects, disk_errors
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.storage.store import Store
from tracewarehouse.storage.versions import Versions
from tracewarehouse.temp_folders import cache_folder, temporary_folder
from tracewarehouse.version import __version__

SCHEMAS = ("main", "latest")
_MAIN, _LATEST = SCHEMAS
ABOUT = "tw_about"
# The parts of the SELECTs behind the macros of stored tables, as JSON.
_PARTS = "tw_parts"
_FILES = "tw_files"
_RUN = "tw_run"
_RUN_ID = "run_id"
# As an argument of a macro.
_LATEST_RUN = "@latest"
# The newest format that both this package and the DuckDB shell on PyPI can read.
_STORAGE_VERSION = "v1.4.0"
COLUMNS = {
    ABOUT: {"stamp": "VARCHAR", "warehouse": "VARCHAR"},
    _PARTS: {_RUN_ID: "VARCHAR", "parts": "VARCHAR"},
    SKIPPED: SKIPPED_COLUMNS,
    HELP: HELP_COLUMNS,
}
# A stored table, and begin, list and end of a SELECT: those that differ only in lists become one.
_Part: TypeAlias = tuple[str, str, str, str]
_Grouped: TypeAlias = dict[tuple[str, str], list[str]]


@contextmanager
def _attached(path: Path) -> Iterator[Connection]:
    """A connection to a file, in a transaction of its schema `main`; creates it if it does not exist.

    A single transaction: otherwise each statement would wait for the disk. Raises WarehouseError.
    """
    name = f"tw_file_{secrets.token_hex(8)}"
    # Without a log: a new file replaces the old one only when it is complete.
    options = f"STORAGE_VERSION '{_STORAGE_VERSION}', RECOVERY_MODE NO_WAL_WRITES"
    try:
        with scratch(1) as con:
            con.execute(f"ATTACH {quote_text(str(path))} AS {name} ({options})")
            con.execute(f"USE {name}")
            con.execute("BEGIN")
            yield con
            con.execute("COMMIT")
            con.execute("USE memory")
            con.execute(f"DETACH {name}")
    except Error as error:
        raise WarehouseError(f"{path}: cannot be written: {str(error).partition(chr(10))[0]}") from error


def template(catalog: Catalog) -> bytes:
    """The bytes of the template, cached per process and user. Raises WarehouseError."""
    with _lock:
        name = f"{_key(catalog)}.duckdb"
        if name not in _templates:
            _templates.clear()
            if (data := cached(name)) is None:
                keep(name, data := _build(catalog))
            _templates[name] = data
        return _templates[name]


@cache
def _code() -> str:
    """A hash of what builds the file: these modules and DuckDB."""
    package = Path(__file__).parents[1]
    modules = sorted(path for name in ("query", "runs") for path in (package / name).glob("*.py"))
    versions = f"{__version__} {DUCKDB_VERSION}".encode()
    return sha256(b"\0".join((versions, *(module.read_bytes() for module in modules)))).hexdigest()


def _key(catalog: Catalog) -> str:
    return f"{catalog.digest[:16]}-{_code()[:16]}"


_templates: dict[str, bytes] = {}
_lock = Lock()
# Entries of the cache differ by version of the tool and of its contracts.
_MAX_FILES = 8
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


def keep(name: str, data: bytes) -> None:
    """Caches the bytes if possible, and deletes the least recently used files beyond the first ones."""
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
        files = [path for path in target.iterdir() if path.is_file()]
        for path in sorted(files, key=lambda file: -file.stat().st_mtime_ns)[_MAX_FILES:]:
            path.unlink(missing_ok=True)


def _build(catalog: Catalog) -> bytes:
    with temporary_folder() as folder:
        path = folder / "template.duckdb"
        with _attached(path) as con:
            con.execute(f"CREATE SCHEMA {_LATEST}")
            for schema in SCHEMAS:
                con.execute(f"USE {schema}")
                _Schema(con, catalog, schema).fill()
            con.execute(f"USE {_MAIN}")
            for name in (ABOUT, _PARTS):
                create_from_rows(con, name, COLUMNS[name], [])
        return path.read_bytes()


def _stored(catalog: Catalog) -> list[Contract]:
    return [table for table in catalog.all("table") if not (table.transient or table.is_recorded)]


def _analyses(catalog: Catalog) -> list[Contract]:
    """Without those of recorded results, which change without a new version of a run."""
    return [each for each in catalog.all("analysis") if each.scope != "fleet"]


def relations_of(
    store: Versions, selected: tuple[SelectedRun, ...], catalog: Catalog, contracts: tuple[Contract, ...]
) -> Relations:
    """These tables and views, and all analyses, over some runs."""
    dependencies = Dependencies.over(catalog, contracts, others=_analyses(catalog))
    return Relations(store, selected, dependencies)


def _create_reader(con: Connection, contract: Contract, name: str) -> None:
    """Creates the macro that reads the files of a stored table, with the types of its contract.

    The text of its SELECT is made when the macro is bound, from what `_set_files` sets.
    """
    run = f"CASE run WHEN '{_LATEST_RUN}' THEN {_LATEST}.{_RUN}() ELSE run END"
    files = f"{_MAIN}.{_FILES}({quote_text(name)}, {run})"
    rows = f"coalesce({files}, {quote_text(empty_sql(file_columns(contract)))})"
    begin, end = typed_sql(contract, "(;)").split("(;)")
    con.execute(
        f"CREATE MACRO {_MAIN}.{quote_name(f'{name}_of')}(run VARCHAR := NULL) AS TABLE"
        f" FROM query({quote_text(f'{begin}(')} || {rows} || {quote_text(f'){end}')})"
    )


def _set_files(con: Connection, parts: Mapping[str, Sequence[_Part]], latest: str | None) -> None:
    """Sets the files of each run, by its parts of SELECTs, and the latest run; None without runs.

    The SELECTs of a table are JSON with one text per run: as a single literal, those of a thousand runs are
    parsed in less than a millisecond.
    """
    grouped_of_all: dict[str, _Grouped] = defaultdict(_Grouped)
    select_of: dict[str, dict[str, str]] = defaultdict(dict)
    for run in sorted(parts):
        grouped_of_run: dict[str, _Grouped] = defaultdict(_Grouped)
        for relation, begin, listed, end in parts[run]:
            for grouped in (grouped_of_all[relation], grouped_of_run[relation]):
                grouped.setdefault((begin, end), []).append(listed)
        for relation, grouped in grouped_of_run.items():
            select_of[relation][run] = _union(grouped)
    all_rows = {relation: _union(grouped) for relation, grouped in grouped_of_all.items()}
    by_run = {relation: msgspec.json.encode(texts).decode() for relation, texts in select_of.items()}
    place = "'/' || replace(replace(run, '~', '~0'), '/', '~1')"
    con.execute(
        f"CREATE OR REPLACE MACRO {_MAIN}.{_FILES}(relation, run) AS"
        f" CASE WHEN run IS NULL THEN {_choice(all_rows)}"
        f" ELSE json_extract_string({_choice(by_run)}, {place}) END;"
        f"CREATE OR REPLACE MACRO {_LATEST}.{_RUN}() AS {literal(latest, 'VARCHAR')}"
    )


def _union(grouped: _Grouped) -> str:
    """One SELECT of parts that differ only in their lists."""
    return "\nUNION ALL BY NAME\n".join(
        f"{begin}{', '.join(lists)}{end}" for (begin, end), lists in sorted(grouped.items())
    )


def _choice(texts: Mapping[str, str]) -> str:
    """SQL: the text of `relation`, NULL without one."""
    cases = "".join(f" WHEN {quote_text(name)} THEN {quote_text(text)}" for name, text in texts.items())
    return f"CASE relation{cases} END" if cases else "CAST(NULL AS VARCHAR)"


class _Schema(Struct, frozen=True):
    """Builds all tables, views and analyses, without runs, in the current schema of a connection."""

    con: Connection
    catalog: Catalog
    name: str

    def fill(self) -> None:
        catalog, analyses = self.catalog, _analyses(self.catalog)
        contracts = dependencies(catalog, (*_stored(catalog), *catalog.all("view"), *analyses))
        relations = relations_of(Versions(LocalObjects(Path())), (), catalog, contracts)
        for contract in contracts:
            create_table(self.con, contract, name=relations.names[contract.ref])
        if self.name == _MAIN:
            _set_files(self.con, {}, None)
            create_literal(self.con)
        self._create_table(SKIPPED, [], by_run=True)
        for contract in analyses:
            create_analysis_as_text(self.con, self.catalog, relations, contract, self.name)
        # Readers before their dependencies: binding against tables is faster than against nested views.
        for contract in reversed(contracts):
            self.con.execute(f"DROP TABLE {quote_name(relations.names[contract.ref])}")
            self._relation(relations, contract)
        rows: list[dict[str, object]] = []
        for contract in (*contracts, *analyses):
            name = relations.names[contract.ref]
            rows += help_rows(contract, name)
            self.con.execute(";".join(_comments(contract, quote_name(name), self.name)))
        self._create_table(HELP, rows, by_run=False)

    def _relation(self, relations: Relations, contract: Contract) -> None:
        name = relations.names[contract.ref]
        if contract.is_stored:
            if self.name == _MAIN:
                _create_reader(self.con, contract, name)
            run = quote_text(_LATEST_RUN) if self.name == _LATEST else ""
            self.con.execute(
                f"CREATE VIEW {quote_name(name)} AS FROM {_MAIN}.{quote_name(f'{name}_of')}({run})"
            )
        elif not contract.is_built:
            text = as_text(relations.view_sql(contract))
            self.con.execute(f"CREATE VIEW {quote_name(name)} AS {text}")
        elif self.name == _LATEST:
            self._of_main(name, by_run=True)
        else:
            create(self.con, relations, contract)

    def _of_main(self, name: str, by_run: bool) -> None:
        """A view on the relation with that name in `main`; with `by_run`, on its rows of the latest run."""
        condition = f" WHERE run_id = {_RUN}()" if by_run else ""
        self.con.execute(f"CREATE VIEW {quote_name(name)} AS FROM {_MAIN}.{quote_name(name)}{condition}")

    def _create_table(self, table: str, rows: Sequence[Mapping[str, object]], by_run: bool) -> None:
        if self.name == _LATEST:
            self._of_main(table, by_run)
        else:
            create_from_rows(self.con, table, COLUMNS[table], rows)


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
# The lists of more runs take longer than the rest of an ingest.
_MAX_UPDATED_RUNS = 1_000


def refresh(store: Store, catalog: Catalog, on_notice: Callable[[str], object] | None = None) -> Path:
    """Writes the file over the newest version of every run, and returns its path.

    Damaged runs are left out, with a notice each. Raises WarehouseError.
    """
    on_notice = on_notice or (lambda _: None)
    return _write_newest(store, catalog, _newest(store), on_notice, NextFile(store, catalog, afresh=True))


# Of a DuckDB file: three headers, then blocks of a multiple of this size.
_HEADER_BYTES, _LEAST_BLOCK_BYTES = 3 * 4096, 16_384


class NextFile:
    """A file that may replace the last one: a copy of it, else a new one; `known`: its runs and versions.

    It may be opened by a thread before the runs that it is to show are published. Close it.
    """

    def __init__(self, store: Store, catalog: Catalog, afresh: bool = False) -> None:
        self._store, path = store, store.path(NAME)
        self._folders, self._attached = ExitStack(), ExitStack()
        try:
            self._staging = self._folders.enter_context(store.staging())
            # DuckDB writes its log to a wrong place if the path contains a "?".
            is_odd = "?" in str(self._staging)
            folder = self._folders.enter_context(temporary_folder()) if is_odd else self._staging
            self._built = folder / NAME
            last = None if afresh or _ends_within_a_block(path) else path
            self.con, self.known = self._copied(last, catalog) or self._new(catalog)
        except BaseException:
            self.close()
            raise

    def _copied(self, last: Path | None, catalog: Catalog) -> tuple[Connection, dict[str, int]] | None:
        # The last file is missing, damaged, or of other contracts.
        with suppress(WarehouseError, OSError), ExitStack() as attached:
            if last is not None:
                copyfile(last, self._built)
                con = attached.enter_context(_attached(self._built))
                known = _known(con, _stamp(self._store, catalog))
                self._attached = attached.pop_all()
                return con, known
        return None

    def _new(self, catalog: Catalog) -> tuple[Connection, dict[str, int]]:
        return self._attached.enter_context(_new(self._built, self._store, catalog)), {}

    def replace_last(self) -> None:
        """Completes the file, and puts it in the place of the last one."""
        self._attached.close()
        with disk_errors(self._store.folder):
            if self._built.parent != self._staging:
                copyfile(self._built, self._staging / NAME)
            (self._staging / NAME).replace(self._store.path(NAME))

    def close(self) -> None:
        """Deletes the file unless it replaced the last one."""
        with self._folders, suppress(WarehouseError):
            self._attached.close()


def update(
    store: Store, catalog: Catalog, on_notice: Callable[[str], object], opened: NextFile | None = None
) -> None:
    """Brings the file up to date with the runs that changed; leaves it as it is over too many runs.

    Damaged ones among them are left out, with a notice each. Raises WarehouseError.
    """
    newest = _newest(store)
    if len(newest) > _MAX_UPDATED_RUNS:
        often = hints.fill("{} or {} brings it up to date", hints.call("shell"), hints.call("refresh"))
        on_notice(f"{NAME} does not have the new runs, as there are {len(newest):,}: {often}")
        return
    try:
        _write_newest(store, catalog, newest, on_notice, opened or NextFile(store, catalog))
    except WarehouseError:  # the last file may be damaged
        _write_newest(store, catalog, newest, on_notice, NextFile(store, catalog, afresh=True))


def _newest(store: Store) -> dict[str, Brief]:
    """The newest version of each run, without removed and unreadable runs."""
    briefs = (entry.brief for entry in store.entries(catalog_row))
    return {brief.run: brief for brief in briefs if not brief.tombstone}


def _write_newest(
    store: Store,
    catalog: Catalog,
    newest: dict[str, Brief],
    on_notice: Callable[[str], object],
    file: NextFile,
) -> Path:
    """Replaces the file. It starts over if a version was published in the meantime, so that the last of
    several concurrent calls includes the newest versions.
    """
    for tries in range(1, _TRIES + 1):
        with closing(file):
            readable = _change(file, store, catalog, newest)
            file.replace_last()
        before, newest = newest, _newest(store)
        if newest == before or tries == _TRIES:
            break
        file = NextFile(store, catalog)
    for notice in damaged_runs((*store.unreadable(), *readable.left_out), len(newest)):
        on_notice(hints.fill("{}: {}", NAME, notice))
    return store.path(NAME)


def _ends_within_a_block(path: Path) -> bool:
    """Whether the file was cut: DuckDB notices it only if it reads that block."""
    return path.exists() and (path.stat().st_size - _HEADER_BYTES) % _LEAST_BLOCK_BYTES != 0


def _change(file: NextFile, store: Store, catalog: Catalog, newest: Mapping[str, Brief]) -> ReadableRuns:
    """Brings a file up to the newest versions; returns the runs that were read, without damaged ones."""
    unchanged = [run for run, brief in newest.items() if file.known.get(run) == brief.number]
    versions = (store.newest(run) for run in newest.keys() - unchanged)
    changed = in_order(SelectedRun(version, version.ranks) for version in versions if version is not None)
    readable = intact(store, catalog, changed, Level.SIZE)
    present = {*unchanged, *(each.run for each in readable.selected)}
    latest = max((newest[run].order for run in present), default=(0, None))[1]
    _fill(file.con, store, catalog, readable.selected, file.known.keys() - unchanged, latest)
    return readable


def _known(con: Connection, stamp: str) -> dict[str, int]:
    """The runs of a file and their versions; raises WarehouseError if it was written by other contracts."""
    if con.execute(f"SELECT stamp FROM {ABOUT}").fetchall() != [(stamp,)]:
        raise WarehouseError("written by other contracts or another version")
    return dict(con.execute("SELECT run_id, version FROM runs").fetchall())


def intact(store: Store, catalog: Catalog, selected: Sequence[SelectedRun], level: Level) -> ReadableRuns:
    """The runs whose files pass the check: the views of the others could not be created or read.

    Raises DamagedRunError for a damaged run that was selected by name.
    """
    tables = [table for table in catalog.tables() if table.is_stored]
    return intact_runs(store, catalog, tables, selected, level, allow_none=True)


def is_current(path: Path, store: Versions, catalog: Catalog, selected: Sequence[SelectedRun]) -> bool:
    """Whether the file was written for exactly these runs, all of whose ranks are selected."""
    if not path.exists():
        return False
    try:
        with connect(database=path, read_only=True) as con:
            known_numbers = _known(con, _stamp(store, catalog))
    except (Error, WarehouseError):
        return False
    return known_numbers == {run.run: run.version.number for run in selected}


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


def _stamp(store: Versions, catalog: Catalog) -> str:
    return f"{_key(catalog)} {store.objects.url}"


def write(path: Path, store: Store, catalog: Catalog, selected: Sequence[SelectedRun]) -> None:
    """Writes a DuckDB file over the selected ranks. Raises WarehouseError."""
    with _new(path, store, catalog) as con:
        _fill(con, store, catalog, selected, (), selected[-1].run if selected else None)


@contextmanager
def _new(path: Path, store: Store, catalog: Catalog) -> Iterator[Connection]:
    """A connection to a new file without runs, as from `_attached`."""
    path.write_bytes(template(catalog))
    with _attached(path) as con:
        about = {"stamp": _stamp(store, catalog), "warehouse": store.objects.url}
        insert_rows(con, ABOUT, COLUMNS[ABOUT], [about])
        yield con


def _fill(
    con: Connection,
    store: Store,
    catalog: Catalog,
    selected: Sequence[SelectedRun],
    old: Collection[str],
    latest: str | None,
) -> None:
    """Replaces the rows of the `old` runs by those of the selected ones, and all lists of files."""
    tables = tuple(_stored(catalog))
    relations = relations_of(store, tuple(selected), catalog, tables)
    parts = _parts(relations, tables)
    encoded = [{_RUN_ID: run, "parts": msgspec.json.encode(own).decode()} for run, own in parts.items()]
    skipped = {analysis: with_capabilities(analysis, selected).skipped for analysis in _analyses(catalog)}
    rows: dict[str, Sequence[Mapping[str, object]]] = {
        SKIPPED: skipped_rows({each.run: len(each.ranks) for each in selected}, skipped),
        _PARTS: encoded,
    }
    types = {name: COLUMNS[name] for name in rows}
    for contract in tables:
        if contract.is_built:
            name = relations.names[contract.ref]
            rows[name] = built_rows(store, contract, selected)
            types[name] = {column.name: column.type for column in contract.columns}
    stored = con.execute(f"FROM {_PARTS}").fetchall()
    parts |= {run: msgspec.json.decode(own) for run, own in stored if run not in old}
    for name in rows:
        if old:
            con.execute(f"DELETE FROM {quote_name(name)} WHERE run_id IN (SELECT unnest($1))", [list(old)])
        insert_rows(con, name, types[name], rows[name])
    _set_files(con, parts, latest)


def _parts(relations: Relations, tables: Sequence[Contract]) -> dict[str, Sequence[_Part]]:
    """Run → the parts of its SELECTs."""
    parts_by_run: dict[str, Sequence[_Part]] = {}
    for run in relations.selected:
        relations_of_run = replace(relations, selected=(run,))
        parts_by_run[run.run] = [
            (relations.names[contract.ref], *part)
            for contract in tables
            if contract.is_stored
            for part in relations_of_run.parts(contract)
        ]
    return parts_by_run


@contextmanager
def shell_file(
    selection: Selection, refresh: Callable[[], object], on_notice: Callable[[str], object] | None
) -> Iterator[Path]:
    """The updated `warehouse.duckdb`, or a temporary file over the selection; see `Warehouse.shell_file`."""
    store, catalog = selection.store, selection.catalog
    level = Level.FULL if selection.level is Level.FULL else Level.SIZE
    readable = intact(store, catalog, selection.selected(), level)
    if on_notice is not None:
        for notice in damaged_runs((*selection.left_out, *readable.left_out)):
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
