"""All tables, views and analyses as a DuckDB file without runs: `warehouse.duckdb` is a copy with runs in it.

Views and macros do not depend on the runs, and binding them takes seconds: it is done once. What
differs by run is in macros that the views call: `tw_files_kernels()` names the files of a table,
`latest.tw_run()` the latest run. Replacing a macro costs little, and its view keeps its types and comments.
Tables of rows are in `main` only, and `latest` has views of them; of files it reads just those of its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text, replace_params
from tracewarehouse.duck.engine import (
    DUCKDB_VERSION,
    Connection,
    Error,
    bind,
    connect,
    create_from_rows,
    create_table,
    literal,
    ordered,
)
from tracewarehouse.errors import WarehouseError
from tracewarehouse.query import user_cache
from tracewarehouse.query.connections import create
from tracewarehouse.query.dependencies import Dependencies, dependencies
from tracewarehouse.query.relations import Relations, typed_sql
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.temp_folders import temporary_folder
from tracewarehouse.version import __version__

Contracts = tuple[Contract, ...]
SCHEMAS = ("main", "latest")
_MAIN, _LATEST = SCHEMAS
ABSTAINED = "tw_abstained"
ABOUT = "tw_about"
_HELP = "tw_help"
_RUN = "tw_run"
# The newest format that the shell on PyPI reads as well as we do.
_STORAGE_VERSION = "v1.4.0"
_LAYOUT = 2  # of what this module makes of the same contracts
COLUMNS = {
    ABOUT: {"stamp": "VARCHAR", "warehouse": "VARCHAR"},
    ABSTAINED: {
        "analysis": "VARCHAR",
        "version": "INTEGER",
        "run_id": "VARCHAR",
        "rank": "INTEGER",
        "reason": "VARCHAR",
    },
    _HELP: {
        "name": "VARCHAR",
        "kind": "VARCHAR",
        "version": "INTEGER",
        "summary": "VARCHAR",
        "part": "VARCHAR",
        "column_name": "VARCHAR",
        "type": "VARCHAR",
        "unit": "VARCHAR",
        "doc": "VARCHAR",
    },
}


def attach(con: Connection, path: Path) -> None:
    """Opens a file for writing under the name `tw_file`, a new one if it does not exist."""
    con.execute(f"ATTACH {quote_text(str(path))} AS tw_file (STORAGE_VERSION '{_STORAGE_VERSION}')")


def template_key(catalog: Catalog) -> str:
    """A hash of all that determines a template."""
    return sha256(repr((_LAYOUT, __version__, catalog.digest)).encode()).hexdigest()[:16]


def template(catalog: Catalog) -> bytes:
    """The file's bytes, built once per process. Raises WarehouseError."""
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
    """A hash of what turns contracts into a file: DuckDB's version and the modules of `query` and `runs`."""
    package = Path(__file__).parents[1]
    modules = sorted(path for name in ("query", "runs") for path in (package / name).glob("*.py"))
    parts = [DUCKDB_VERSION.encode(), *(module.read_bytes() for module in modules)]
    return sha256(b"\0".join(parts)).hexdigest()[:16]


_templates: dict[str, bytes] = {}
_lock = Lock()


def _write(path: Path, catalog: Catalog) -> None:
    with connect() as con:
        attach(con, path)
        con.execute("BEGIN")  # one for all: each statement alone would wait for the disk
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
    catalog: Catalog, root: Path, selected: tuple[SelectedRun, ...]
) -> tuple[Relations, Contracts]:
    """All that a file holds but the analyses, over some runs, and its contracts in order."""
    tables = [table for table in catalog.all("table") if not table.transient]
    analyses = catalog.all("analysis")
    contracts = dependencies(catalog, (*tables, *catalog.all("view"), *analyses))
    return Relations(root, selected, Dependencies.over(catalog, contracts, others=analyses)), contracts


def set_files(con: Connection, relations: Relations, contract: Contract) -> None:
    """Sets the files that a stored table's view in the current schema reads."""
    name = quote_name(f"tw_files_{relations.names[contract.ref]}")
    con.execute(f"CREATE OR REPLACE MACRO {name}() AS TABLE\n{relations.files_sql(contract)}")


def set_latest_run(con: Connection, run: str | None) -> None:
    """Sets the latest run, None for none."""
    con.execute(f"CREATE OR REPLACE MACRO {_LATEST}.{_RUN}() AS {literal(run, 'VARCHAR')}")


@dataclass(frozen=True)
class _Schema:
    """All tables, views and analyses, without runs, as the current schema of a connection."""

    con: Connection
    catalog: Catalog
    name: str

    def fill(self) -> None:
        relations, contracts = relations_of(self.catalog, Path(), ())
        analyses = self.catalog.all("analysis")
        for contract in contracts:
            create_table(self.con, contract, name=relations.names[contract.ref])
        if self.name == _LATEST:
            set_latest_run(self.con, None)
        self._create_table(ABSTAINED, [], by_run=True)
        for contract in analyses:
            self._analysis(relations, contract)
        # Readers before what they read: whatever is bound reads tables, not views upon views.
        for contract in reversed(contracts):
            self.con.execute(f"DROP TABLE {quote_name(relations.names[contract.ref])}")
            self._relation(relations, contract)
        self._explain(relations, (*contracts, *analyses))

    def _relation(self, relations: Relations, contract: Contract) -> None:
        name = relations.names[contract.ref]
        if contract.is_stored:
            set_files(self.con, relations, contract)
            typed = typed_sql(contract, f"{quote_name(f'tw_files_{name}')}()")
            self.con.execute(f"CREATE VIEW {quote_name(name)} AS\n{typed}")
        elif contract.is_built and self.name == _LATEST:
            self._of_main(name, by_run=True)
        else:
            create(self.con, relations, contract)

    def _of_main(self, name: str, by_run: bool) -> None:
        """A view of the relation of that name in `main`, with `by_run` of the latest run only."""
        where = f" WHERE run_id = {_RUN}()" if by_run else ""
        self.con.execute(f"CREATE VIEW {quote_name(name)} AS FROM {_MAIN}.{quote_name(name)}{where}")

    def _analysis(self, relations: Relations, contract: Contract) -> None:
        """A macro with the contract's parameters, and a view of its rows for their defaults.

        A macro is read where it is called, so it names the schema of what it reads; in a view it is read
        where the view stands, so that the view also answers in a database that is attached.
        """
        name = quote_name(relations.names[contract.ref])
        defaults = bind(contract, {})
        heads, arguments = [], {}
        for param in contract.params:
            value = quote_name(param.name)
            heads.append(f"{value} {param.type} := {literal(defaults[param.name], param.type)}")
            arguments[param.name] = f"CAST({value} AS {param.type})"
        body = self._body(relations, contract, arguments, self.name)
        self._run(contract, f"CREATE MACRO {name}({', '.join(heads)}) AS TABLE\n{ordered(contract, body)}")
        self._run(contract, f"CREATE VIEW {name} AS FROM {name}()")

    def _body(
        self,
        relations: Relations,
        contract: Contract,
        values: dict[str, str],
        schema: str | None,
    ) -> str:
        keep = {
            ref: _not_abstained(contract, self.catalog.contracts[ref], schema) for ref in contract.requires
        }
        return relations.body(contract, replace_params(contract.body, values), schema, keep)

    def _run(self, contract: Contract, sql: str) -> None:
        try:
            self.con.execute(sql)
        except Error as error:
            what = str(error).partition("\n")[0]
            raise WarehouseError(f"{contract.ref} cannot be created: {what}") from error

    def _explain(self, relations: Relations, contracts: Iterable[Contract]) -> None:
        rows = []
        for contract in contracts:
            name = relations.names[contract.ref]
            rows += _help_rows(contract, name)
            self.con.execute(";".join(_comments(contract, quote_name(name), self.name)))
        self._create_table(_HELP, rows, by_run=False)

    def _create_table(self, table: str, rows: Sequence[Sequence[object]], by_run: bool) -> None:
        if self.name == _LATEST:
            self._of_main(table, by_run)
            return
        columns = COLUMNS[table]
        create_from_rows(self.con, table, columns, [dict(zip(columns, row, strict=True)) for row in rows])


def _not_abstained(analysis: Contract, required: Contract, schema: str | None) -> str:
    """The condition that leaves out ranks that abstain."""
    if required.is_constant:
        return ""
    place = f"{quote_name(schema)}.{ABSTAINED}" if schema else ABSTAINED
    by_rank = any(column.name == "rank" for column in required.columns)
    rank = "(left_out.rank IS NULL OR left_out.rank = relation.rank)" if by_rank else "left_out.rank IS NULL"
    return (
        f"WHERE NOT EXISTS (SELECT 1 FROM {place} AS left_out"
        f" WHERE left_out.analysis = {quote_text(analysis.name)} AND left_out.version = {analysis.version}"
        f" AND left_out.run_id = relation.run_id AND {rank})"
    )


def _help_rows(contract: Contract, name: str) -> list[tuple[object, ...]]:
    head = (name, contract.kind, contract.version, contract.summary)
    rows: list[tuple[object, ...]] = []
    if contract.kind == "analysis":
        rows += [(*head, "parameter", each.name, each.type, each.unit, each.doc) for each in contract.params]
    rows += [(*head, "column", each.name, each.type, each.unit, each.doc) for each in contract.columns]
    return rows


def _comments(contract: Contract, name: str, schema: str) -> Iterator[str]:
    """The comments on a relation, and in `main` on each of its columns.

    There are over a thousand columns: once is enough.
    """
    comment = quote_text(contract.summary)
    table = contract.is_built and schema == _MAIN
    yield f"COMMENT ON {'TABLE' if table else 'VIEW'} {name} IS {comment}"
    if contract.kind == "analysis":
        yield f"COMMENT ON MACRO TABLE {name} IS {comment}"
    for column in contract.columns if schema == _MAIN else ():
        unit = f" [{column.unit}]" if column.unit else ""
        yield f"COMMENT ON COLUMN {name}.{quote_name(column.name)} IS {quote_text(column.doc + unit)}"
