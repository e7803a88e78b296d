"""The template of `warehouse.duckdb`: a DuckDB file with all tables, views and analyses, but no runs.

Binding the views and macros takes seconds, but does not depend on the runs, so it is done once and cached.
What depends on the runs is in small macros that the views call: `tw_files_kernels()` reads the files of a
table, `latest.tw_run()` returns the latest run. Replacing them is fast, and the views keep their types and
comments. Schema `latest` has views on the tables in `main`, and reads only the files of the latest run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text
from tracewarehouse.duck.engine import (
    DUCKDB_VERSION,
    Connection,
    connect,
    create_from_rows,
    create_table,
    literal,
)
from tracewarehouse.query import user_cache
from tracewarehouse.query.analysis_views import (
    ABSTAINED,
    ABSTAINED_COLUMNS,
    HELP,
    HELP_COLUMNS,
    as_text,
    create_analysis_as_text,
    create_literal,
    help_rows,
)
from tracewarehouse.query.connections import create
from tracewarehouse.query.dependencies import Dependencies, dependencies
from tracewarehouse.query.relations import Relations, typed_sql
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions
from tracewarehouse.storage.objects import LocalObjects
from tracewarehouse.temp_folders import temporary_folder
from tracewarehouse.version import __version__

Contracts = tuple[Contract, ...]
SCHEMAS = ("main", "latest")
_MAIN, _LATEST = SCHEMAS
ABOUT = "tw_about"
_RUN = "tw_run"
# The newest format that both this package and the DuckDB shell on PyPI can read.
_STORAGE_VERSION = "v1.4.0"
_LAYOUT = 3  # raised when this module builds another file from the same contracts
COLUMNS = {
    ABOUT: {"stamp": "VARCHAR", "warehouse": "VARCHAR"},
    ABSTAINED: ABSTAINED_COLUMNS,
    HELP: HELP_COLUMNS,
}


def attach(con: Connection, path: Path) -> None:
    """Attaches a file for writing as `tw_file`; creates it if it does not exist."""
    con.execute(f"ATTACH {quote_text(str(path))} AS tw_file (STORAGE_VERSION '{_STORAGE_VERSION}')")


def template_key(catalog: Catalog) -> str:
    """A hash of everything that determines the template."""
    return sha256(repr((_LAYOUT, __version__, catalog.digest)).encode()).hexdigest()[:16]


def template(catalog: Catalog) -> bytes:
    """The bytes of the template, cached per process and user. Raises WarehouseError."""
    key = template_key(catalog)
    with _lock:
        if key not in _templates:
            _templates.clear()
            name = f"{key}-{_code_hash()}.duckdb"
            if (found := user_cache.get(name)) is None:
                user_cache.put(name, found := _build(catalog))
            _templates[key] = found
        return _templates[key]


def _build(catalog: Catalog) -> bytes:
    with temporary_folder() as folder:
        path = folder / "template.duckdb"
        _write(path, catalog)
        return path.read_bytes()


def _code_hash() -> str:
    """A hash of the code that builds the file: DuckDB's version and the modules of `query` and `runs`."""
    package = Path(__file__).parents[1]
    modules = sorted(path for name in ("query", "runs") for path in (package / name).glob("*.py"))
    parts = [DUCKDB_VERSION.encode(), *(module.read_bytes() for module in modules)]
    return sha256(b"\0".join(parts)).hexdigest()[:16]


_templates: dict[str, bytes] = {}
_lock = Lock()


def _write(path: Path, catalog: Catalog) -> None:
    with connect() as con:
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


@dataclass(frozen=True)
class _Schema:
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
        self._explain(relations, (*contracts, *analyses))

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

    def _explain(self, relations: Relations, contracts: Iterable[Contract]) -> None:
        rows = []
        for contract in contracts:
            name = relations.names[contract.ref]
            rows += help_rows(contract, name)
            self.con.execute(";".join(_comments(contract, quote_name(name), self.name)))
        self._create_table(HELP, rows, by_run=False)

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
