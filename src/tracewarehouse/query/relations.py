"""Tables, views and analyses as relations over the files of the selected ranks, in any database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracewarehouse.contracts.contract import Column, Contract, Ref
from tracewarehouse.contracts.sql_tokens import names_read, quote_name, quote_text
from tracewarehouse.duck.arrow import table_of
from tracewarehouse.duck.engine import (
    Connection,
    create_from_rows,
    insert_rows,
    literal,
    sql_with_params,
)
from tracewarehouse.errors import UnknownName
from tracewarehouse.query.dependencies import Dependencies
from tracewarehouse.result import FileGroup, lazy_frame
from tracewarehouse.runs.quality import run_issues
from tracewarehouse.runs.rows import built_rows
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Versions

if TYPE_CHECKING:
    import polars
    import pyarrow as pa


_QUALITY = "data_quality"
# Up to this number of ranks, literals in the SQL are faster than a table.
_INLINE_RANKS = 256
_RUN = "run_id"


@dataclass(frozen=True)
class Relations:
    """Creates the relations of tables and views over the selected ranks."""

    store: Versions
    selected: tuple[SelectedRun, ...]
    dependencies: Dependencies

    @property
    def names(self) -> Mapping[Ref, str]:
        """The name of each contract's relation."""
        return self.dependencies.names

    def create(self, con: Connection, contract: Contract, replace: bool = False) -> None:
        """Creates the relation of a table or view in the current schema, or fills an empty one."""
        name = self.names[contract.ref]
        if contract.is_built:
            types = {column.name: column.type for column in contract.columns}
            write = insert_rows if replace else create_from_rows
            write(con, name, types, built_rows(self.store, contract, self.selected))
        else:
            verb = "CREATE OR REPLACE" if replace else "CREATE"
            con.execute(f"{verb} VIEW {quote_name(name)} AS\n{self.view_sql(contract)}")

    def create_computed(self, con: Connection, contract: Contract, rows: pa.Table) -> None:
        """Creates the relation of a view from rows that were computed before, with the columns they have."""
        runs = {each.run for each in self.selected}
        names = frozenset(rows.column_names)
        columns = _of_run(_named(contract, names), runs.pop() if len(runs) == 1 else None)
        con.register("tw_rows", rows)
        name = quote_name(self.names[contract.ref])
        con.execute(f"CREATE TABLE {name} AS SELECT {_casts(columns, None)} FROM tw_rows")
        con.unregister("tw_rows")

    def view_sql(self, contract: Contract) -> str:
        """The SELECT of a relation with all views below it in one `WITH` clause.

        Each is then bound once. Views that read views are bound once per path between them, of which there
        are many: planning takes seconds.
        """
        views = self.dependencies.views_below(contract)
        if not views:
            return self.sql(contract)
        columns = ", ".join(quote_name(column.name) for column in contract.columns)
        return f"{self.with_clause(views)}SELECT {columns} FROM (\n{self.sql(contract)}\n)"

    def has_rows(self, contract: Contract) -> bool:
        """Whether it may have rows: it is stored in files, or built from the versions of runs."""
        if contract.name == _QUALITY or contract.is_built:
            return True
        return contract.is_stored and bool(self._files(contract))

    def sql(self, contract: Contract) -> str:
        """The SELECT behind the relation of a stored table, a table of rules or a view."""
        if contract.is_stored:
            return self._stored_sql(contract)
        return self.body(contract, sql_with_params(contract, {}))

    def files_sql(self, contract: Contract) -> str:
        """The rows of a stored table with the types in its files, which may have more columns."""
        types = {column.name: column.type for column in contract.columns}
        selects = []
        for group in self._files(contract):
            nulls = [f"{literal(None, types[name])} AS {quote_name(name)}" for name in sorted(group.missing)]
            selects.append(_rows_sql(", ".join(["*", *nulls]), group))
        if contract.name == _QUALITY and (issues := run_issues(self.selected)):
            selects.append(_values_sql(contract.columns, map(vars, issues)))
        return "\nUNION ALL BY NAME\n".join(selects) if selects else _empty_sql(contract.columns)

    def paths(self) -> frozenset[str]:
        """The files of all tables that the relations read."""
        stored = (contract for contract in self.dependencies.contracts if contract.is_stored)
        groups = (group for contract in stored for group in self._files(contract))
        return frozenset(path for group in groups for path in group.paths)

    def _files(self, contract: Contract) -> tuple[FileGroup, ...]:
        return data_files(self.store, contract, self.dependencies.compatible[contract.ref], self.selected)

    def body(
        self, contract: Contract, sql: str, schema: str | None = None, keep: Mapping[Ref, str] | None = None
    ) -> str:
        """`sql` with each required name bound to its relation.

        `schema` qualifies the relations, as macros require; `keep` has a WHERE clause per relation.
        """
        aliases = []
        for ref in contract.requires:
            name = self.names[ref]
            where = keep.get(ref, "") if keep else ""
            if name != ref.name or schema or where:
                qualified = f"{quote_name(schema)}.{quote_name(name)}" if schema else quote_name(name)
                source = f"SELECT * FROM {qualified} AS relation {where}".rstrip()
                aliases.append(f"{quote_name(ref.name)} AS NOT MATERIALIZED ({source})")
        if not aliases:
            return sql
        columns = ", ".join(quote_name(column.name) for column in contract.columns)
        listed = ",\n  ".join(aliases)
        return f"WITH\n  {listed}\nSELECT {columns} FROM (\n{sql}\n)"

    def with_clause(self, contracts: Iterable[Contract], query: str = "") -> str:
        """The `WITH` clause of these tables and views, each after its dependencies; empty without any.

        Tables are inlined into each reader with only the columns that are named; a view with several readers
        is computed once. A single run is an ENUM with one value, which is cheap to join, group and sort by.
        """
        listed = tuple(contracts)
        named = [names_read(sql) for sql in (query, *(each.body for each in listed if each.kind == "view"))]
        known = [names for names in named if names is not None]
        names = frozenset[str]().union(*known) if len(known) == len(named) else None
        ctes = [f"{quote_name(self.names[each.ref])} AS {self._cte(each, names)}" for each in listed]
        return f"WITH\n{', '.join(ctes)}\n" if ctes else ""

    def can_inline(self, contract: Contract) -> bool:
        """Whether a built table is small enough for literals in the query; otherwise it must be created."""
        return contract.name == "ranks" and sum(len(each.ranks) for each in self.selected) <= _INLINE_RANKS

    def _cte(self, contract: Contract, names: Collection[str] | None) -> str:
        runs = {each.run for each in self.selected}
        run = runs.pop() if len(runs) == 1 else None
        if contract.is_stored:
            return f"NOT MATERIALIZED (\n{self._stored_sql(contract, names, run)}\n)"
        if contract.is_built:
            columns = _of_run(_named(contract, names), run)
            rows = built_rows(self.store, contract, self.selected, columns)
            return f"(\n{_values_sql(columns, rows) or _empty_sql(columns)}\n)"
        return f"(\n{self.sql(contract)}\n)"

    def _stored_sql(
        self, contract: Contract, names: Collection[str] | None = None, run: str | None = None
    ) -> str:
        """Only the columns with these names, None for all; `run` if it is the only selected run."""
        columns = _of_run(_named(contract, None if contract.name == _QUALITY else names), run)
        selects = [_rows_sql(_casts(columns, run, group.missing), group) for group in self._files(contract)]
        issues = run_issues(self.selected) if contract.name == _QUALITY else []
        if issues:
            selects.append(_values_sql(columns, map(vars, issues)))
        return "\nUNION ALL\n".join(selects) if selects else _empty_sql(columns)


def data_files(
    store: Versions, contract: Contract, compatible: Sequence[Contract], selected: Sequence[SelectedRun]
) -> tuple[FileGroup, ...]:
    """The Parquet files of a stored table, of each source in its newest compatible version."""
    wanted = {column.name for column in contract.columns}
    missing = {each.version: wanted - {column.name for column in each.columns} for each in compatible}
    found: dict[tuple[tuple[int, ...] | None, frozenset[str]], list[str]] = {}
    plans = (each.version.scan_plan(contract.name, tuple(missing), each.ranks) for each in selected)
    scans = [scan for plan in plans for scan in plan]
    if store.is_remote:
        _fetch(store, selected, {scan.path for scan in scans})
    for scan in scans:
        group = scan.ranks, frozenset(missing[scan.version])
        found.setdefault(group, []).append(str(store.path(scan.path)))
    return tuple(FileGroup(tuple(paths), *group) for group, paths in found.items())


def _fetch(store: Versions, selected: Sequence[SelectedRun], keys: Collection[str]) -> None:
    """Downloads the files that are not local yet, many at once."""
    files = (file for each in selected for source in each.sources for file in source.files)
    store.fetch(file for file in files if file.path in keys)


def _rows_sql(columns: str, group: FileGroup) -> str:
    # Never infer Hive partitions from paths: with two of them, ASOF JOIN returns wrong rows.
    listed = ", ".join(map(quote_text, group.paths))
    sql = f"SELECT {columns} FROM read_parquet([{listed}], hive_partitioning = false)"
    return sql if group.ranks is None else f"{sql} WHERE rank IN ({', '.join(map(str, group.ranks))})"


def typed_sql(contract: Contract, source: str) -> str:
    """A SELECT that casts the contract's columns in `source` to their declared types."""
    return f"SELECT {_casts(contract.columns, None)} FROM {source}"


def _casts(columns: Iterable[Column], run: str | None, missing: Collection[str] = ()) -> str:
    """Each column cast to its declared type; the single run and missing columns are constants."""
    constants = dict.fromkeys(map(quote_name, missing), "NULL")
    if run is not None:
        constants[quote_name(_RUN)] = quote_text(run)
    named = ((quote_name(column.name), column.type) for column in columns)
    return ", ".join(f"CAST({constants.get(name, name)} AS {type_}) AS {name}" for name, type_ in named)


def _of_run(columns: Iterable[Column], run: str | None) -> list[Column]:
    """The columns; with a single run, `run_id` is an ENUM of its name."""
    if run is None:
        return list(columns)
    type_ = f"ENUM({quote_text(run)})"
    return [replace(column, type=type_) if column.name == _RUN else column for column in columns]


def _empty_sql(columns: Iterable[Column]) -> str:
    nulls = (f"{literal(None, column.type)} AS {quote_name(column.name)}" for column in columns)
    return f"SELECT {', '.join(nulls)} WHERE false"


def _values_sql(columns: Sequence[Column], rows: Iterable[Mapping[str, object]]) -> str:
    """The rows as literals; empty without rows."""
    listed = [", ".join(literal(row.get(column.name), column.type) for column in columns) for row in rows]
    names = ", ".join(quote_name(column.name) for column in columns)
    values = ", ".join(f"({row})" for row in listed)
    return f"SELECT {names} FROM (VALUES {values}) AS literal({names})" if listed else ""


def _named(contract: Contract, names: Collection[str] | None) -> list[Column]:
    """The columns with these names, None for all; all of them if none matches."""
    named = [column for column in contract.columns if names is None or column.name in names]
    return named or list(contract.columns)


def scan(
    store: Versions, contract: Contract, compatible: Sequence[Contract], selected: Sequence[SelectedRun]
) -> polars.LazyFrame:
    """The table's columns of the selected ranks. Raises UnknownName for views and analyses."""
    if not (contract.is_stored or contract.is_built):
        raise UnknownName("stored table", contract.name, [], "views and analyses are read with query or run")
    files = data_files(store, contract, compatible, selected) if contract.is_stored else ()
    return lazy_frame(files, table_of(contract, _rows(store, contract, selected)))


def _rows(store: Versions, contract: Contract, selected: Sequence[SelectedRun]) -> list[dict[str, object]]:
    """The rows that are not stored in files."""
    if contract.is_built:
        return built_rows(store, contract, selected)
    if contract.name == _QUALITY:
        return [vars(issue) for issue in run_issues(selected)]
    return []
