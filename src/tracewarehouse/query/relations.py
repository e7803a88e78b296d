"""Tables, views and analyses as relations over just the files of the chosen ranks, in any database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.contracts.sql_tokens import names_read, quote_name, quote_text
from tracewarehouse.duck.arrow import table_of
from tracewarehouse.duck.engine import (
    Connection,
    bind,
    create_from_rows,
    insert_rows,
    literal,
    sql_with_params,
)
from tracewarehouse.errors import UnknownName
from tracewarehouse.result import lazy_frame
from tracewarehouse.runs.quality import run_rules
from tracewarehouse.runs.rows import built_rows
from tracewarehouse.runs.selection import SelectedRun

if TYPE_CHECKING:
    import polars


FilesByRanks = dict[tuple[int, ...] | None, list[str]]

_QUALITY = "data_quality"
# Literals are the quickest way in for the rows of so many ranks.
_TOLD_RANKS = 256
_RUN = "run_id"


@dataclass(frozen=True)
class Relations:
    """How the chosen ranks become relations. `names` says what each contract's relation is called."""

    root: Path
    selected: tuple[SelectedRun, ...]
    names: Mapping[Ref, str]

    def create(self, con: Connection, contract: Contract, replace: bool = False) -> None:
        """Makes the relation of a table or view in the current schema, or fills an empty one."""
        name = self.names[contract.ref]
        if contract.is_built:
            types = {column.name: column.type for column in contract.columns}
            made = insert_rows if replace else create_from_rows
            made(con, name, types, built_rows(self.root, contract, self.selected))
        else:
            verb = "CREATE OR REPLACE" if replace else "CREATE"
            con.execute(f"{verb} VIEW {quote_name(name)} AS\n{self.sql(contract)}")

    def holds(self, contract: Contract) -> bool:
        """Whether it differs from what it is over no run: it stands in files, or is made from versions."""
        if contract.name == _QUALITY or contract.is_built:
            return True
        return contract.is_stored and bool(data_files(self.root, contract, self.selected))

    def sql(self, contract: Contract) -> str:
        """The SELECT behind the relation of a stored table, a table of rules or a view."""
        if contract.is_stored:
            return self._stored_sql(contract)
        return self.body(contract, sql_with_params(contract, bind(contract, {})))

    def files_sql(self, contract: Contract) -> str:
        """The rows of a stored table as its files have them: in their types, with more columns perhaps."""
        files = data_files(self.root, contract, self.selected)
        parts = [_rows_sql("*", paths, ranks) for ranks, paths in files.items()]
        if contract.name == _QUALITY and (fired := run_rules(self.selected)):
            parts.append(_values_sql(contract.columns, map(vars, fired)))
        return "\nUNION ALL BY NAME\n".join(parts) if parts else _empty_sql(contract.columns)

    def body(
        self, contract: Contract, sql: str, schema: str | None = None, keep: Mapping[Ref, str] | None = None
    ) -> str:
        """`sql` with each name it requires bound to the right relation, whatever it is called and wherever.

        `schema` qualifies them, as a macro must; `keep` says by a WHERE which of their rows are read.
        """
        aliases = []
        for ref in contract.requires:
            name = self.names[ref]
            where = keep.get(ref, "") if keep else ""
            if name != ref.name or schema or where:
                place = f"{quote_name(schema)}.{quote_name(name)}" if schema else quote_name(name)
                source = f"SELECT * FROM {place} AS relation {where}".rstrip()
                aliases.append(f"{quote_name(ref.name)} AS NOT MATERIALIZED ({source})")
        if not aliases:
            return sql
        columns = ", ".join(quote_name(column.name) for column in contract.columns)
        listed = ",\n  ".join(aliases)
        return f"WITH\n  {listed}\nSELECT {columns} FROM (\n{sql}\n)"

    def common(self, contracts: Iterable[Contract], asked: str = "") -> str:
        """`WITH` and these tables and views, each after what it stands on; empty for none of them.

        `asked` is the question that reads them. Of a table's rows each reader takes just what it needs, and
        only columns that someone names are there; a view that several read is computed once. A single run
        is an ENUM of one value: joining, grouping and sorting by it costs next to nothing.
        """
        listed = tuple(contracts)
        named = [names_read(sql) for sql in (asked, *(each.body for each in listed if each.kind == "view"))]
        known = [names for names in named if names is not None]
        names = frozenset[str]().union(*known) if len(known) == len(named) else None
        parts = [f"{quote_name(self.names[each.ref])} AS {self._common(each, names)}" for each in listed]
        return f"WITH\n{', '.join(parts)}\n" if parts else ""

    def tells(self, contract: Contract) -> bool:
        """Whether `common` can tell a built table's rows; else the table has to be made."""
        return contract.name == "ranks" and sum(len(each.ranks) for each in self.selected) <= _TOLD_RANKS

    def _common(self, contract: Contract, names: Collection[str] | None) -> str:
        runs = {each.run for each in self.selected}
        run = runs.pop() if len(runs) == 1 else None
        if contract.is_stored:
            return f"NOT MATERIALIZED (\n{self._stored_sql(contract, names, run)}\n)"
        if contract.is_built:
            columns = _of_run(_named(contract, names), run)
            rows = built_rows(self.root, contract, self.selected, columns)
            return f"(\n{_values_sql(columns, rows) or _empty_sql(columns)}\n)"
        return f"(\n{self.sql(contract)}\n)"

    def _stored_sql(
        self, contract: Contract, names: Collection[str] | None = None, run: str | None = None
    ) -> str:
        """Only the columns of these names, None for all; `run` where no other is chosen."""
        files = data_files(self.root, contract, self.selected)
        columns = _of_run(_named(contract, None if contract.name == _QUALITY else names), run)
        parts = [_scan_sql(columns, paths, ranks, run) for ranks, paths in files.items()]
        fired = run_rules(self.selected) if contract.name == _QUALITY else []
        if fired:
            parts.append(_values_sql(columns, map(vars, fired)))
        return "\nUNION ALL\n".join(parts) if parts else _empty_sql(columns)


def data_files(root: Path, contract: Contract, selected: Sequence[SelectedRun]) -> FilesByRanks:
    """The Parquet files of a stored table, by the ranks to keep of them, None for all."""
    found: FilesByRanks = {}
    for each in selected:
        for scan in each.version.scan_plan(contract.name, contract.version, each.ranks):
            found.setdefault(scan.ranks, []).append(str(root / scan.path))
    return found


def _scan_sql(
    columns: Iterable[Column], paths: Sequence[str], ranks: tuple[int, ...] | None, run: str | None
) -> str:
    return _rows_sql(_casts(columns, run), paths, ranks)


def _rows_sql(columns: str, paths: Sequence[str], ranks: tuple[int, ...] | None) -> str:
    # Hive partitions are never guessed from a path: with two of them ASOF JOIN gives wrong rows.
    listed = ", ".join(map(quote_text, paths))
    sql = f"SELECT {columns} FROM read_parquet([{listed}], hive_partitioning = false)"
    return sql if ranks is None else f"{sql} WHERE rank IN ({', '.join(map(str, ranks))})"


def typed_sql(contract: Contract, source: str) -> str:
    """A SELECT of the contract's columns in their declared types from rows that have them by name."""
    return f"SELECT {_casts(contract.columns, None)} FROM {source}"


def _casts(columns: Iterable[Column], run: str | None) -> str:
    """Each column in its declared type; the one run is not read but told."""
    named = ((quote_name(column.name), column.type) for column in columns)
    told = {} if run is None else {quote_name(_RUN): quote_text(run)}
    return ", ".join(f"CAST({told.get(name, name)} AS {type_}) AS {name}" for name, type_ in named)


def _of_run(columns: Iterable[Column], run: str | None) -> list[Column]:
    """The columns, with the one run, if there is one, as an ENUM of its name."""
    if run is None:
        return list(columns)
    type_ = f"ENUM({quote_text(run)})"
    return [replace(column, type=type_) if column.name == _RUN else column for column in columns]


def _empty_sql(columns: Iterable[Column]) -> str:
    nulls = (f"{literal(None, column.type)} AS {quote_name(column.name)}" for column in columns)
    return f"SELECT {', '.join(nulls)} WHERE false"


def _values_sql(columns: Sequence[Column], rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as literals; empty for none."""
    told = [", ".join(literal(row.get(column.name), column.type) for column in columns) for row in rows]
    names = ", ".join(quote_name(column.name) for column in columns)
    values = ", ".join(f"({row})" for row in told)
    return f"SELECT {names} FROM (VALUES {values}) AS told({names})" if told else ""


def _named(contract: Contract, names: Collection[str] | None) -> list[Column]:
    """The columns of these names, None for all; never none at all."""
    named = [column for column in contract.columns if names is None or column.name in names]
    return named or list(contract.columns)


def scan(root: Path, contract: Contract, selected: Sequence[SelectedRun]) -> polars.LazyFrame:
    """The table's columns and no others; of a file shared by ranks only the chosen ones.

    Raises UnknownName for what is not stored: views and analyses are SQL.
    """
    if not (contract.is_stored or contract.is_built):
        raise UnknownName("stored table", contract.name, [], "views and analyses are read with query or run")
    return lazy_frame(
        data_files(root, contract, selected), table_of(contract, _rows(root, contract, selected))
    )


def _rows(root: Path, contract: Contract, selected: Sequence[SelectedRun]) -> list[dict[str, object]]:
    """The rows that stand in no file."""
    if contract.is_built:
        return built_rows(root, contract, selected)
    if contract.name == "data_quality":
        return [vars(fired) for fired in run_rules(selected)]
    return []
