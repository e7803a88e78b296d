"""`warehouse.duckdb`: the warehouse for people with a DuckDB shell. Derived, and written anew as a whole.

It holds no events, only views over the Parquet files by absolute path: after a move it is written again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.engine import Connection, Error, bind, connect, create_from_rows, literal, ordered
from tracewarehouse.errors import WarehouseError
from tracewarehouse.result import Abstained
from tracewarehouse.select.chosen import Chosen, choose
from tracewarehouse.select.needs import able
from tracewarehouse.select.relations import Relations, below, is_built, names_of
from tracewarehouse.select.session import create
from tracewarehouse.sqltext import quote_name, quote_text, replace_params
from tracewarehouse.store import Store, disk_errors

NAME = "warehouse.duckdb"
# The newest format that the shell on PyPI reads as well as we do.
STORAGE_VERSION = "v1.4.0"
_ABSTAINED = "tw_abstained"
_HELP = "tw_help"
_ABOUT = "tw_about"


def refresh(store: Store, catalog: Catalog) -> Path:
    """Writes the file over the newest version of every run, and gives its path.

    Whoever publishes refreshes afterwards, so the last one to rename has seen the last version.
    Raises WarehouseError.
    """
    path = store.root / NAME
    while True:
        chosen = choose(store)
        # DuckDB misplaces the log of a file whose path holds a "?": a warehouse's path may.
        with TemporaryDirectory(prefix="tw-") as made, store.staging() as staging:
            write(Path(made, NAME), store.root, catalog, chosen)
            with disk_errors(store.root):
                copyfile(Path(made, NAME), staging / NAME)
                (staging / NAME).replace(path)
        if [each.selector for each in choose(store)] == [each.selector for each in chosen]:
            return path


def is_current(path: Path, root: Path, catalog: Catalog, chosen: Sequence[Chosen]) -> bool:
    """Whether the file is over just these ranks, by these contracts and in this place."""
    if not path.exists():
        return False
    try:
        with connect(database=path, read_only=True) as con:
            found = con.execute(f"SELECT stamp FROM {_ABOUT}").fetchone()
    except Error:
        return False
    return found == (_stamp(root, catalog, chosen),)


def _stamp(root: Path, catalog: Catalog, chosen: Sequence[Chosen]) -> str:
    contracts = sorted(catalog.effective_hash(contract) for contract in catalog.contracts.values())
    ranks = [(each.selector, each.ranks) for each in chosen]
    return sha256(repr((str(root), contracts, ranks)).encode()).hexdigest()


def write(path: Path, root: Path, catalog: Catalog, chosen: Sequence[Chosen]) -> None:
    """Writes a DuckDB file over just the chosen ranks; `root` is the warehouse. Raises WarehouseError."""
    con = connect()
    try:
        con.execute(f"ATTACH {quote_text(str(path))} AS tw_file (STORAGE_VERSION '{STORAGE_VERSION}')")
        con.execute("BEGIN")  # one for all: each statement alone would wait for the disk
        for schema, part in (("main", tuple(chosen)), ("latest", tuple(chosen[-1:]))):
            con.execute(f"CREATE SCHEMA IF NOT EXISTS tw_file.{schema}")
            con.execute(f"USE tw_file.{schema}")
            _Schema(con, root, catalog, part, schema).fill()
        about = {"stamp": _stamp(root, catalog, chosen), "warehouse": str(root)}
        con.execute("USE tw_file.main")
        create_from_rows(con, _ABOUT, dict.fromkeys(about, "VARCHAR"), [about])
        con.execute("COMMIT")
        con.execute("USE memory")
        con.execute("DETACH tw_file")
    except Error as error:
        raise WarehouseError(f"{path}: cannot be written: {str(error).partition(chr(10))[0]}") from error
    finally:
        con.close()


@dataclass(frozen=True)
class _Schema:
    """Everything there is to ask, over some runs, as the current schema of a connection."""

    con: Connection
    root: Path
    catalog: Catalog
    chosen: tuple[Chosen, ...]
    name: str

    def fill(self) -> None:
        tables = [table for table in self.catalog.all("table") if not table.transient]
        analyses = self.catalog.all("analysis")
        contracts = below(self.catalog, (*tables, *self.catalog.all("view"), *analyses))
        relations = Relations(self.root, self.chosen, names_of((*contracts, *analyses)))
        for contract in contracts:
            create(self.con, relations, contract)
        abstained = {each: able(each, self.chosen).abstained for each in analyses}
        self._insert(_ABSTAINED, _abstained_rows(self.chosen, abstained))
        for contract, left_out in abstained.items():
            self._analysis(relations, contract, bool(left_out))
        self._explain(relations, (*contracts, *analyses))

    def _analysis(self, relations: Relations, contract: Contract, abstains: bool) -> None:
        name = quote_name(relations.names[contract.ref])
        defaults = bind(contract, {})
        literals = {param.name: literal(defaults[param.name], param.type) for param in contract.params}
        view = self._body(relations, contract, literals, abstains, None)
        self._run(contract, f"CREATE VIEW {name} AS\n{ordered(contract, view)}")
        # A macro is read where it is called, so it names the schema of what it reads.
        arguments = {
            param.name: f"CAST({quote_name(param.name)} AS {param.type})" for param in contract.params
        }
        macro = self._body(relations, contract, arguments, abstains, self.name)
        heads = [
            f"{quote_name(param.name)} {param.type} := {literals[param.name]}" for param in contract.params
        ]
        self._run(contract, f"CREATE MACRO {name}({', '.join(heads)}) AS TABLE\n{ordered(contract, macro)}")

    def _body(
        self,
        relations: Relations,
        contract: Contract,
        values: dict[str, str],
        abstains: bool,
        schema: str | None,
    ) -> str:
        keep = {
            ref: _not_abstained(contract, self.catalog.contracts[ref], schema) if abstains else ""
            for ref in contract.requires
        }
        return relations.body(contract, replace_params(contract.body, values), schema, keep)

    def _run(self, contract: Contract, sql: str) -> None:
        try:
            self.con.execute(sql)
        except Error as error:
            what = str(error).partition("\n")[0]
            raise WarehouseError(f"{self.root}: {contract.ref} cannot be made: {what}") from error

    def _explain(self, relations: Relations, contracts: Iterable[Contract]) -> None:
        rows = []
        for contract in contracts:
            name = relations.names[contract.ref]
            rows += _help_rows(contract, name)
            self.con.execute(";".join(_comments(contract, quote_name(name))))
        self._insert(_HELP, rows)

    def _insert(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        columns = _COLUMNS[table]
        create_from_rows(self.con, table, columns, [dict(zip(columns, row, strict=True)) for row in rows])


_COLUMNS = {
    _ABSTAINED: {
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


def _abstained_rows(
    chosen: Sequence[Chosen], abstained: Mapping[Contract, Sequence[Abstained]]
) -> list[tuple[object, ...]]:
    """A row per rank that an analysis leaves out, and one without a rank where no rank of a run is left."""
    rows: list[tuple[object, ...]] = []
    ranks = {each.run: len(each.ranks) for each in chosen}
    for contract, left_out in abstained.items():
        rows += [(contract.name, contract.version, each.run_id, each.rank, each.reason) for each in left_out]
        for run, count in Counter(each.run_id for each in left_out).items():
            if count == ranks[run]:
                rows.append((contract.name, contract.version, run, None, "no rank is left"))
    return rows


def _not_abstained(analysis: Contract, required: Contract, schema: str | None) -> str:
    """The condition that keeps what an analysis may look at."""
    if required.is_constant:
        return ""
    place = f"{quote_name(schema)}.{_ABSTAINED}" if schema else _ABSTAINED
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


def _comments(contract: Contract, name: str) -> Iterator[str]:
    told = quote_text(contract.summary)
    yield f"COMMENT ON {'TABLE' if is_built(contract) else 'VIEW'} {name} IS {told}"
    if contract.kind == "analysis":
        yield f"COMMENT ON MACRO TABLE {name} IS {told}"
    for column in contract.columns:
        unit = f" [{column.unit}]" if column.unit else ""
        yield f"COMMENT ON COLUMN {name}.{quote_name(column.name)} IS {quote_text(column.doc + unit)}"
