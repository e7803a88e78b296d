"""Contracts as relations of a connection: their order, views over stored files, and analyses as macros."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import (
    ARGS,
    ARGS_SQL,
    Column,
    Contract,
    Kind,
    Param,
    Ref,
    file_columns,
    has_template,
)
from tracewarehouse.contracts.sql_tokens import names_in, quote_name, quote_text, replace_params
from tracewarehouse.duck.arrow import table_of
from tracewarehouse.duck.engine import (
    Connection,
    Error,
    bind,
    create_from_rows,
    literal,
    ordered,
    sql_with_params,
)
from tracewarehouse.errors import UnknownName, WarehouseError
from tracewarehouse.late_regex import late_regex
from tracewarehouse.result import FileGroup, Skipped, lazy_frame
from tracewarehouse.runs.rows import built_rows, run_issues
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.model import RunVersion, once_per_version
from tracewarehouse.storage.results import RecordedAnalysis
from tracewarehouse.storage.versions import Versions

if TYPE_CHECKING:
    import polars
    import pyarrow as pa


_WORD: Final = late_regex(r"\w+")
# Words with these prefixes list relations, so all of them must exist.
_LISTS_RELATIONS: Final = ("show", "describe", "summarize", "duckdb_", "pragma", "information_schema", "pg_")


class Dependencies(Struct, frozen=True):
    """The tables and views that contracts read, each after its own dependencies.

    `names` has the name of each relation. `compatible` has the versions of each stored table whose rows can
    be read in its place, newest first; older versions lack some nullable columns. `recorded` has the analyses
    whose recorded results are read.
    """

    contracts: tuple[Contract, ...]
    names: Mapping[Ref, str]
    compatible: Mapping[Ref, tuple[Contract, ...]]
    recorded: Mapping[Ref, RecordedAnalysis] = {}

    @classmethod
    def of(cls, catalog: Catalog, contracts: Iterable[Contract]) -> Dependencies:
        """The dependencies of these contracts, including the tables and views among them."""
        contracts = tuple(contracts)
        direct = [ref for contract in contracts for ref in contract.requires]
        return cls.over(catalog, dependencies(catalog, contracts), direct)

    @classmethod
    def over(
        cls,
        catalog: Catalog,
        contracts: tuple[Contract, ...],
        unqualified: Iterable[Ref] = (),
        others: Iterable[Contract] = (),
    ) -> Dependencies:
        """These relations; `others` get names too. Versions in `unqualified` have names without a version."""
        names = relation_names((*contracts, *others), unqualified)
        compatible = {each.ref: catalog.compatible(each) for each in contracts if each.is_stored}
        recorded = {each.ref: RecordedAnalysis.of(each, catalog) for each in contracts if each.is_recorded}
        return cls(contracts, names, compatible, recorded)


def queryable(catalog: Catalog) -> tuple[Contract, ...]:
    """The newest version of every table and view that users can query, each after its dependencies."""
    tables = [table for table in catalog.tables() if not table.transient]
    return dependencies(catalog, (*tables, *catalog.views()))


class Mentioned(Struct, frozen=True):
    """What SQL may name: tables and views, each after its dependencies, and analyses.

    `lists`: the SQL lists relations, so all must exist; `has_help`: it reads `tw_help`.
    """

    contracts: tuple[Contract, ...]
    analyses: tuple[Contract, ...] = ()
    lists: bool = False
    has_help: bool = False


def mentioned(catalog: Catalog, sql: str, *, every: bool = False) -> Mentioned:
    """What the SQL may name; `every`: all tables and views."""
    words = {word.lower() for word in _WORD.findall(sql)}
    lists = every or any(word.startswith(_LISTS_RELATIONS) for word in words)
    analyses = _newest(catalog, "analysis", words)
    relations = (
        queryable(catalog) if lists else [*_newest(catalog, "table", words), *_newest(catalog, "view", words)]
    )
    stored = [contract for contract in relations if not contract.transient]
    return Mentioned(dependencies(catalog, (*stored, *analyses)), analyses, lists, "tw_help" in words)


def _newest(catalog: Catalog, kind: Kind, words: Collection[str]) -> tuple[Contract, ...]:
    names = {ref.name for ref in catalog.refs(kind)}
    return tuple(catalog.get(name) for name in sorted(names.intersection(words)))


def dependencies(catalog: Catalog, contracts: Iterable[Contract]) -> tuple[Contract, ...]:
    """The contracts (except analyses) and all tables and views they read, each after its dependencies."""
    order: dict[Ref, Contract] = {}

    def visit(contract: Contract) -> None:
        if contract.kind != "table":  # dependencies of tables are read at ingest only
            for ref in contract.requires:
                visit(catalog.contracts[ref])
        if contract.kind != "analysis":
            order.setdefault(contract.ref, contract)

    for contract in contracts:
        visit(contract)
    return tuple(order.values())


def needed(contracts: Sequence[Contract], requires: Iterable[Ref]) -> list[Contract]:
    """Those of the contracts, each after its dependencies, that are required directly or through views."""
    read = set(requires)
    contracts_needed = []
    for contract in reversed(contracts):  # readers before their dependencies
        if contract.ref in read:
            contracts_needed.append(contract)
            read |= set(contract.requires) if contract.kind == "view" else set()
    return contracts_needed[::-1]


def shared_views(catalog: Catalog, read: Iterable[Contract]) -> frozenset[Ref]:
    """The views that would be computed more than once if these analyses and views were read one by one.

    A view below others counts once for each statement that computes it: those below a shared view are
    computed with it, once.
    """
    read = tuple(read)
    computed_in: dict[Ref, set[Ref]] = defaultdict(set)
    for contract in read:
        for ref in (contract.ref,) if contract.kind == "view" else contract.requires:
            computed_in[ref].add(contract.ref)
    for contract in reversed(dependencies(catalog, read)):  # readers before their dependencies
        if contract.kind == "view":
            statements = computed_in[contract.ref]
            for ref in contract.requires:
                computed_in[ref] |= {contract.ref} if len(statements) > 1 else statements
    return frozenset(ref for ref, statements in computed_in.items() if len(statements) > 1)


def relation_names(contracts: Iterable[Contract], unqualified: Iterable[Ref] = ()) -> dict[Ref, str]:
    """Ref → name of its relation: `kernels` for the one in `unqualified` or the newest, else `kernels_v1`."""
    refs = {contract.ref for contract in contracts}
    bare = {ref.name: ref for ref in sorted(refs)} | {ref.name: ref for ref in unqualified if ref in refs}
    return {ref: ref.name if bare[ref.name] == ref else f"{ref.name}_v{ref.version}" for ref in refs}


_QUALITY = "data_quality"
_scan_plan = once_per_version(RunVersion.scan_plan)
# Up to this number of ranks, literals in the SQL are faster than a table.
_INLINE_RANKS = 256
_RUN = "run_id"


class Relations(Struct, frozen=True):
    """Creates the relations of tables and views over the selected ranks."""

    store: Versions
    selected: tuple[SelectedRun, ...]
    dependencies: Dependencies
    copies: Mapping[str, Path] = {}  # key → what is read in the place of the whole file

    @property
    def names(self) -> Mapping[Ref, str]:
        """The name of each contract's relation."""
        return self.dependencies.names

    @property
    def _only_run(self) -> str | None:
        runs = {run.run for run in self.selected}
        return runs.pop() if len(runs) == 1 else None

    def create(self, con: Connection, contract: Contract) -> None:
        """Creates the relation of a table or view in the current schema."""
        name = self.names[contract.ref]
        if contract.is_built:
            types = {column.name: column.type for column in contract.columns}
            create_from_rows(con, name, types, built_rows(self.store, contract, self.selected))
        else:
            con.execute(f"CREATE VIEW {quote_name(name)} AS\n{self.view_sql(contract)}")

    def create_computed(self, con: Connection, contract: Contract, rows: pa.Table) -> None:
        """Creates the relation of a view from rows that were computed before, with the columns they have."""
        columns = _of_run(_named(contract, frozenset(rows.column_names)), self._only_run)
        con.register("tw_rows", rows)
        name = quote_name(self.names[contract.ref])
        con.execute(f"CREATE TABLE {name} AS SELECT {_casts(contract, columns, None)} FROM tw_rows")
        con.unregister("tw_rows")

    def view_sql(self, contract: Contract) -> str:
        """The SELECT of a relation with all views below it in one `WITH` clause.

        Each is then bound once. Views that read views are bound once per path between them, of which there
        are many: planning takes seconds.
        """
        below = needed(self.dependencies.contracts, contract.requires if contract.kind == "view" else ())
        views = [each for each in below if each.kind == "view"]
        if not views:
            return self.sql(contract)
        columns = ", ".join(quote_name(column.name) for column in contract.columns)
        return f"{self.with_clause(views)}SELECT {columns} FROM (\n{self.sql(contract)}\n)"

    def sql(self, contract: Contract) -> str:
        """The SELECT behind the relation of a stored table, a table of rules or a view."""
        if contract.is_stored:
            return self._stored_sql(contract)
        if contract.ref in self.dependencies.recorded:
            return self._recorded_sql(contract)
        return self.body(contract, sql_with_params(contract, {}))

    def parts(self, contract: Contract) -> list[tuple[str, str, str]]:
        """SELECTs of the rows of a stored table, with the types in its files: begin, list and end of each.

        Those with the same begin and end are one SELECT with the lists joined by commas.
        """
        types = {column.name: column.type for column in file_columns(contract)}
        selects = []
        for group in self.files(contract):
            nulls = [f"{literal(None, types[name])} AS {quote_name(name)}" for name in sorted(group.missing)]
            selects.append(_files_part(", ".join(["*", *nulls]), group))
        if rows := _rows(self.store, contract, self.selected):
            selects.append(_values_part(contract.columns, rows))
        return selects

    def paths(self) -> frozenset[str]:
        """The files of all tables that the relations read."""
        stored = (contract for contract in self.dependencies.contracts if contract.is_stored)
        groups = [group for contract in stored for group in self.files(contract)]
        groups += [group for ref in self.dependencies.recorded for group in self._recorded(ref)]
        return frozenset(path for group in groups for path in group.paths)

    def _recorded(self, ref: Ref) -> list[FileGroup]:
        """The files of the recorded results of the selected runs, with the ranks of parts of runs."""
        versions = [each.version for each in self.selected]
        files = self.store.recorded_files(self.dependencies.recorded[ref], versions)
        groups: dict[tuple[int, ...] | None, list[str]] = {}
        for run in self.selected:
            if run.run in files:
                ranks = run.ranks if run.is_part else None
                groups.setdefault(ranks, []).append(str(files[run.run]))
        return [FileGroup(tuple(paths), ranks, frozenset()) for ranks, paths in groups.items()]

    def _recorded_sql(self, contract: Contract) -> str:
        columns = _casts(contract, contract.columns, None)
        selects = ["".join(_files_part(columns, group)) for group in self._recorded(contract.ref)]
        return "\nUNION ALL\n".join(selects) or empty_sql(contract.columns)

    def files(self, contract: Contract) -> tuple[FileGroup, ...]:
        """The Parquet files of a stored table, of each source in its newest compatible version."""
        columns = {column.name for column in contract.columns}
        compatible = self.dependencies.compatible[contract.ref]
        missing = {each.version: columns - {column.name for column in each.columns} for each in compatible}
        versions = tuple(missing)
        scans = [
            scan
            for each in self.selected
            for scan in _scan_plan(each.version, contract.name, versions, each.ranks)
        ]
        if self.store.is_remote:  # what is not local yet is downloaded, many files at once
            keys = {scan.path for scan in scans}.difference(self.copies)
            self.store.files.fetch(file for each in self.selected for file in each.files if file.path in keys)
        paths_by_group: dict[tuple[tuple[int, ...] | None, frozenset[str]], list[str]] = {}
        for scan in scans:
            group = scan.ranks, frozenset(missing[scan.version])
            path = self.copies.get(scan.path) or self.store.path(scan.path)
            paths_by_group.setdefault(group, []).append(str(path))
        return tuple(FileGroup(tuple(paths), *group) for group, paths in paths_by_group.items())

    def body(
        self, contract: Contract, sql: str, schema: str | None = None, keep: Mapping[Ref, str] | None = None
    ) -> str:
        """`sql` with each required name bound to its relation.

        `schema` qualifies the relations, as macros require; `keep` has a WHERE clause per relation.
        """
        aliases = []
        for ref in contract.requires:
            name = self.names[ref]
            condition = keep.get(ref, "") if keep else ""
            if name != ref.name or schema or condition:
                qualified = f"{quote_name(schema)}.{quote_name(name)}" if schema else quote_name(name)
                source = f"SELECT * FROM {qualified} AS relation {condition}".rstrip()
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
        names = names_in((query, *(each.body for each in listed if each.kind == "view")))
        run, ctes = self._only_run, []
        for contract in listed:
            hint = ""
            if contract.is_stored:
                hint, sql = "NOT MATERIALIZED ", self._stored_sql(contract, names, run)
            elif contract.is_built:
                columns = _of_run(_named(contract, names), run)
                rows = built_rows(self.store, contract, self.selected, columns)
                sql = "".join(_values_part(columns, rows)) if rows else empty_sql(columns)
            else:
                sql = self.sql(contract)
            ctes.append(f"{quote_name(self.names[contract.ref])} AS {hint}(\n{sql}\n)")
        return f"WITH\n{', '.join(ctes)}\n" if ctes else ""

    def can_inline(self, contract: Contract) -> bool:
        """Whether a built table is small enough for literals in the query; otherwise it must be created."""
        return contract.name == "ranks" and sum(len(run.ranks) for run in self.selected) <= _INLINE_RANKS

    def _stored_sql(
        self, contract: Contract, names: Collection[str] | None = None, run: str | None = None
    ) -> str:
        """Only the columns with these names, None for all; `run` if it is the only selected run."""
        columns = _of_run(_named(contract, None if contract.name == _QUALITY else names), run)
        files = self.files(contract)
        selects = [_files_part(_casts(contract, columns, run, group.missing), group) for group in files]
        if rows := _rows(self.store, contract, self.selected):
            selects.append(_values_part(columns, rows))
        return "\nUNION ALL\n".join(map("".join, selects)) or empty_sql(columns)


def _files_part(columns: str, group: FileGroup) -> tuple[str, str, str]:
    """The SELECT of files: what is before the list of their paths, the list, and what is after it."""
    # Never infer Hive partitions from paths: with two of them, ASOF JOIN returns wrong rows.
    condition = "" if group.ranks is None else f" WHERE rank IN ({', '.join(map(str, group.ranks))})"
    paths = ", ".join(map(quote_text, group.paths))
    return f"SELECT {columns} FROM read_parquet([", paths, f"], hive_partitioning = false){condition}"


def typed_sql(contract: Contract, source: str) -> str:
    """A SELECT that casts the contract's columns in `source` to their declared types."""
    return f"SELECT {_casts(contract, contract.columns, None)} FROM {source}"


def _casts(
    contract: Contract, columns: Iterable[Column], run: str | None, missing: Collection[str] = ()
) -> str:
    """Each column cast to its declared type; the single run and missing columns are constants."""
    sources = ({ARGS: ARGS_SQL} if has_template(contract) else {}) | dict.fromkeys(missing, "NULL")
    if run is not None:
        sources[_RUN] = quote_text(run)
    cells = ((column.name, quote_name(column.name), column.type) for column in columns)
    return ", ".join(
        f"CAST({sources.get(name, quoted)} AS {type_}) AS {quoted}" for name, quoted, type_ in cells
    )


def _of_run(columns: Iterable[Column], run: str | None) -> list[Column]:
    """The columns; with a single run, `run_id` is an ENUM of its name."""
    if run is None:
        return list(columns)
    type_ = f"ENUM({quote_text(run)})"
    return [replace(column, type=type_) if column.name == _RUN else column for column in columns]


def empty_sql(columns: Iterable[Column]) -> str:
    """A SELECT of these columns without rows."""
    nulls = (f"{literal(None, column.type)} AS {quote_name(column.name)}" for column in columns)
    return f"SELECT {', '.join(nulls)} WHERE false"


def _values_part(columns: Sequence[Column], rows: Iterable[Mapping[str, object]]) -> tuple[str, str, str]:
    """The SELECT of rows as literals: what is before the list of them, the list, and what is after it."""
    names = ", ".join(quote_name(column.name) for column in columns)
    texts = ([literal(row.get(column.name), column.type) for column in columns] for row in rows)
    listed = ", ".join(f"({', '.join(row)})" for row in texts)
    return f"SELECT {names} FROM (VALUES ", listed, f") AS literal({names})"


def _named(contract: Contract, names: Collection[str] | None) -> list[Column]:
    """The columns with these names, None for all; all of them if none matches."""
    columns = [column for column in contract.columns if names is None or column.name in names]
    return columns or list(contract.columns)


def scan(
    store: Versions, catalog: Catalog, contract: Contract, selected: tuple[SelectedRun, ...]
) -> polars.LazyFrame:
    """The table's columns of the selected ranks. Raises UnknownName for views and analyses."""
    if not (contract.is_stored or contract.is_built):
        raise UnknownName("stored table", contract.name, [], "views and analyses are read with query or run")
    relations = Relations(store, selected, Dependencies.over(catalog, (contract,)))
    files = relations.files(contract) if contract.is_stored else ()
    return lazy_frame(files, table_of(contract, _rows(store, contract, selected)), has_template(contract))


def _rows(store: Versions, contract: Contract, selected: Sequence[SelectedRun]) -> list[dict[str, object]]:
    """The rows that are not stored in files."""
    if contract.is_built:
        return built_rows(store, contract, selected)
    if contract.name == _QUALITY:
        return [asdict(issue) for issue in run_issues(selected)]
    return []


# The ranks that analyses skip; a row without a rank skips an entire run.
SKIPPED: Final = "tw_skipped"
SKIPPED_COLUMNS: Final = {
    "analysis": "VARCHAR",
    "version": "INTEGER",
    "run_id": "VARCHAR",
    "rank": "INTEGER",
    "reason": "VARCHAR",
}
HELP: Final = "tw_help"
HELP_COLUMNS: Final = {
    "name": "VARCHAR",
    "kind": "VARCHAR",
    "version": "INTEGER",
    "summary": "VARCHAR",
    "part": "VARCHAR",
    "column_name": "VARCHAR",
    "type": "VARCHAR",
    "unit": "VARCHAR",
    "doc": "VARCHAR",
}
_MAIN: Final = "main"
_LITERAL: Final = "tw_literal"


def create_analysis(
    con: Connection, catalog: Catalog, relations: Relations, contract: Contract, schema: str
) -> None:
    """Creates macro and view in the current schema, whose name is `schema`. Raises WarehouseError.

    DuckDB resolves names of a macro at its caller, so they are qualified with a schema. It resolves those of
    a view in the view's database, so the view also works in an attached database.
    """
    name = quote_name(relations.names[contract.ref])
    arguments = {param.name: f"CAST({quote_name(param.name)} AS {param.type})" for param in contract.params}
    sql = _analysis_sql(catalog, relations, contract, schema, arguments)
    _run(con, contract, f"CREATE MACRO {name}({parameters(contract)}) AS TABLE\n{sql}")
    _run(con, contract, f"CREATE VIEW {name} AS FROM {name}()")


def create_analysis_as_text(
    con: Connection, catalog: Catalog, relations: Relations, contract: Contract, schema: str
) -> None:
    """As `create_analysis`, but DuckDB keeps the text, see `as_text`: arguments must be constants.

    Needs the macro of `create_literal` in schema `main`. Raises WarehouseError.
    """
    name = quote_name(relations.names[contract.ref])
    marks = {each.name: f"CAST({_mark(each.name)} AS {each.type})" for each in contract.params}
    text = _analysis_sql(catalog, relations, contract, schema, marks).replace("{", "{{").replace("}", "}}")
    values = []
    for number, each in enumerate(contract.params):
        text = text.replace(_mark(each.name), f"{{{number}}}")
        values.append(f"{_MAIN}.{_LITERAL}({quote_name(each.name)})")
    sql = f"format({', '.join((quote_text(text), *values))})"
    _run(con, contract, f"CREATE MACRO {name}({parameters(contract)}) AS TABLE FROM query({sql})")
    _run(con, contract, f"CREATE VIEW {name} AS FROM {quote_name(schema)}.{name}()")


def as_text(sql: str) -> str:
    """A query that DuckDB keeps as text and parses when it is used.

    Opening or writing a DuckDB file with hundreds of parsed queries takes several times as long.
    """
    return f"FROM query({quote_text(sql)})"


def create_literal(con: Connection) -> None:
    """Creates the macro that returns a value as the text of a literal."""
    quoted = "'''' || replace(CAST(value AS VARCHAR), '''', '''''') || ''''"
    con.execute(f"CREATE MACRO {_LITERAL}(value) AS coalesce({quoted}, 'NULL')")


def _mark(param: str) -> str:
    """A placeholder for a parameter in the text of an analysis."""
    return f"$tw_{param}$"


def parameters(contract: Contract) -> str:
    """The parameters of a macro with their types and defaults."""
    defaults = bind(contract, {})
    return ", ".join(
        f"{quote_name(param.name)} {param.type} := {literal(defaults[param.name], param.type)}"
        for param in contract.params
    )


def _analysis_sql(
    catalog: Catalog, relations: Relations, contract: Contract, schema: str, arguments: dict[str, str]
) -> str:
    """The SELECT of an analysis over the relations in a schema, without the ranks that it skips."""
    keep = {ref: _not_skipped(contract, catalog.contracts[ref], schema) for ref in contract.requires}
    body = replace_params(contract.body, arguments)
    return ordered(contract, relations.body(contract, body, schema, keep))


def create_analyses(
    con: Connection,
    catalog: Catalog,
    relations: Relations,
    analyses: Mapping[Contract, Sequence[Skipped]],
) -> None:
    """Creates analyses, each without the ranks that it skips."""
    ranks = {run.run: len(run.ranks) for run in relations.selected}
    create_from_rows(con, SKIPPED, SKIPPED_COLUMNS, skipped_rows(ranks, analyses))
    for contract in analyses:
        create_analysis(con, catalog, relations, contract, _MAIN)


def create_empty(con: Connection, contracts: Iterable[Contract]) -> None:
    """Creates views with the columns of analyses and no rows, for SQL that only lists relations."""
    for contract in contracts:
        con.execute(f"CREATE VIEW {quote_name(contract.name)} AS {empty_sql(contract.columns)}")


def create_help(con: Connection, contracts: Iterable[Contract]) -> None:
    """Creates `tw_help`: a row per column and parameter of tables, views and analyses."""
    rows = [row for contract in contracts for row in help_rows(contract, contract.name)]
    create_from_rows(con, HELP, HELP_COLUMNS, rows)


def help_rows(contract: Contract, name: str) -> list[dict[str, object]]:
    """A row per parameter and column of a contract, whose relation has this name."""
    params = contract.params if contract.kind == "analysis" else ()
    parts: dict[str, Sequence[Param | Column]] = {"parameter": params, "column": contract.columns}
    head = (name, contract.kind, contract.version, contract.summary)
    cells = [
        (*head, part, member.name, member.type, member.unit, member.doc)
        for part, members in parts.items()
        for member in members
    ]
    return [dict(zip(HELP_COLUMNS, row, strict=True)) for row in cells]


def skipped_rows(
    ranks: Mapping[str, int], skipped: Mapping[Contract, Sequence[Skipped]]
) -> list[dict[str, object]]:
    """A row per rank that an analysis skips, and one without a rank if it skips all `ranks` of a run."""
    rows: list[dict[str, object]] = []
    for contract, skipped_ranks in skipped.items():
        head = {"analysis": contract.name, "version": contract.version}
        rows += [head | asdict(rank) for rank in skipped_ranks]
        counts = Counter(each.run_id for each in skipped_ranks)
        whole = [run for run, count in counts.items() if count == ranks[run]]
        rows += [{**head, "run_id": run, "rank": None, "reason": "all ranks are skipped"} for run in whole]
    return rows


def _not_skipped(analysis: Contract, required: Contract, schema: str) -> str:
    """The condition that excludes skipped ranks."""
    if required.is_constant:
        return ""
    table = f"{quote_name(schema)}.{SKIPPED}"
    by_rank = any(column.name == "rank" for column in required.columns)
    rank = "(skipped.rank IS NULL OR skipped.rank = relation.rank)" if by_rank else "skipped.rank IS NULL"
    return (
        f"WHERE NOT EXISTS (SELECT 1 FROM {table} AS skipped"
        f" WHERE skipped.analysis = {quote_text(analysis.name)} AND skipped.version = {analysis.version}"
        f" AND skipped.run_id = relation.run_id AND {rank})"
    )


def _run(con: Connection, contract: Contract, sql: str) -> None:
    try:
        con.execute(sql)
    except Error as error:
        message = str(error).partition("\n")[0]
        raise WarehouseError(f"{contract.ref} cannot be created: {message}") from error
