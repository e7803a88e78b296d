"""Analyses as relations in SQL: a macro with the parameters, and a view of its rows with their defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name, quote_text, replace_params
from tracewarehouse.duck.engine import Connection, Error, bind, create_from_rows, literal, ordered
from tracewarehouse.errors import WarehouseError
from tracewarehouse.query.relations import Relations
from tracewarehouse.result import Abstained

# The ranks that analyses skip; a row without a rank skips an entire run.
ABSTAINED: Final = "tw_abstained"
ABSTAINED_COLUMNS: Final = {
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
    arguments = {each.name: f"CAST({quote_name(each.name)} AS {each.type})" for each in contract.params}
    sql = _analysis_sql(catalog, relations, contract, schema, arguments)
    _run(con, contract, f"CREATE MACRO {name}({_parameters(contract)}) AS TABLE\n{sql}")
    _run(con, contract, f"CREATE VIEW {name} AS FROM {name}()")


def create_analysis_as_text(
    con: Connection, catalog: Catalog, relations: Relations, contract: Contract, schema: str
) -> None:
    """As `create_analysis`, but DuckDB keeps the text, see `as_text`: arguments must be constants.

    Needs the macro of `create_literal` in schema `main`. Raises WarehouseError.
    """
    name = quote_name(relations.names[contract.ref])
    marks = {each.name: f"CAST({_mark(each.name)} AS {each.type})" for each in contract.params}
    sql = quote_text(_analysis_sql(catalog, relations, contract, schema, marks))
    called, defaults = sql, sql
    for param, value in bind(contract, {}).items():
        called = called.replace(_mark(param), f"' || {_MAIN}.{_LITERAL}({quote_name(param)}) || '")
        defaults = defaults.replace(_mark(param), quote_text(_text_literal(value))[1:-1])
    _run(con, contract, f"CREATE MACRO {name}({_parameters(contract)}) AS TABLE FROM query({called})")
    _run(con, contract, f"CREATE VIEW {name} AS FROM query({defaults})")


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


def _text_literal(value: object) -> str:
    return "NULL" if value is None else literal(value, "VARCHAR")


def _parameters(contract: Contract) -> str:
    """The parameters of a macro with their types and defaults."""
    defaults = bind(contract, {})
    heads = (
        f"{quote_name(each.name)} {each.type} := {literal(defaults[each.name], each.type)}"
        for each in contract.params
    )
    return ", ".join(heads)


def _analysis_sql(
    catalog: Catalog, relations: Relations, contract: Contract, schema: str, arguments: dict[str, str]
) -> str:
    """The SELECT of an analysis over the relations in a schema, without the ranks that it skips."""
    keep = {ref: _not_abstained(contract, catalog.contracts[ref], schema) for ref in contract.requires}
    body = replace_params(contract.body, arguments)
    return ordered(contract, relations.body(contract, body, schema, keep))


def create_analyses(
    con: Connection,
    catalog: Catalog,
    relations: Relations,
    analyses: Mapping[Contract, Sequence[Abstained]],
) -> None:
    """Creates analyses, each without the ranks that it skips."""
    ranks = {each.run: len(each.ranks) for each in relations.selected}
    names = tuple(ABSTAINED_COLUMNS)
    rows = [dict(zip(names, row, strict=True)) for row in abstained_rows(ranks, analyses)]
    create_from_rows(con, ABSTAINED, ABSTAINED_COLUMNS, rows)
    for contract in analyses:
        create_analysis(con, catalog, relations, contract, _MAIN)


def create_empty(con: Connection, contracts: Iterable[Contract]) -> None:
    """Creates views with the columns of analyses and no rows, for SQL that only lists relations."""
    for contract in contracts:
        nulls = ", ".join(
            f"{literal(None, each.type)} AS {quote_name(each.name)}" for each in contract.columns
        )
        con.execute(f"CREATE VIEW {quote_name(contract.name)} AS SELECT {nulls} WHERE false")


def create_help(con: Connection, contracts: Iterable[Contract]) -> None:
    """Creates `tw_help`: a row per column and parameter of tables, views and analyses."""
    rows = [row for contract in contracts for row in help_rows(contract, contract.name)]
    create_from_rows(con, HELP, HELP_COLUMNS, [dict(zip(HELP_COLUMNS, row, strict=True)) for row in rows])


def help_rows(contract: Contract, name: str) -> list[tuple[object, ...]]:
    """A row per parameter and column of a contract, whose relation has this name."""
    head = (name, contract.kind, contract.version, contract.summary)
    rows: list[tuple[object, ...]] = []
    if contract.kind == "analysis":
        rows += [(*head, "parameter", each.name, each.type, each.unit, each.doc) for each in contract.params]
    rows += [(*head, "column", each.name, each.type, each.unit, each.doc) for each in contract.columns]
    return rows


def abstained_rows(
    ranks: Mapping[str, int], skipped: Mapping[Contract, Sequence[Abstained]]
) -> Iterator[tuple[object, ...]]:
    """A row per rank that an analysis skips, and one without a rank if it skips all `ranks` of a run."""
    for contract, abstained in skipped.items():
        for each in abstained:
            yield contract.name, contract.version, each.run_id, each.rank, each.reason
        for run, count in Counter(each.run_id for each in abstained).items():
            if count == ranks[run]:
                yield contract.name, contract.version, run, None, "all ranks are skipped"


def _not_abstained(analysis: Contract, required: Contract, schema: str) -> str:
    """The condition that excludes skipped ranks."""
    if required.is_constant:
        return ""
    table = f"{quote_name(schema)}.{ABSTAINED}"
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
        what = str(error).partition("\n")[0]
        raise WarehouseError(f"{contract.ref} cannot be created: {what}") from error
