"""Checks of compatible versions: only nullable columns were added, and no consumer is affected.

Rows of a version that `[changes]` declares compatible can be read by consumers of earlier versions. The proof
has three parts: the two contracts differ only in added nullable columns; no consumer of an older version
names an added column, which could be ambiguous or bind to another relation; and every consumer has the same
plan and the same hash with both sets of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Column, Contract, Ref
from tracewarehouse.contracts.sql_tokens import names_read, quote_name
from tracewarehouse.devtools.sql_style import Violation
from tracewarehouse.duck import engine

# Properties that two compatible versions have in common, besides their columns.
_SHARED = ("kind", "scope", "grain", "transient", "derived", "definition")
# Properties of a column, without its description.
_MEANING = ("type", "unit", "better", "null", "signed", "fold")


def check_compatible(con: engine.Connection, catalog: Catalog) -> Iterator[Violation]:
    """Violations by versions that are declared compatible, and by their consumers."""
    for contract in sorted(catalog.contracts.values(), key=lambda each: each.source):
        yield from _lowest_required(catalog, contract)
        if contract.changes[0].compatible:
            yield from _declared_compatible(con, catalog, contract)


def _declared_compatible(con: engine.Connection, catalog: Catalog, contract: Contract) -> Iterator[Violation]:
    location = f"{contract.source}:1"
    before = catalog.contracts.get(Ref(contract.name, contract.version - 1))
    if contract.kind == "analysis" or contract.is_stored and contract.body:
        remedy = "only views and tables filled by a builder can be; remove `compatible`"
        yield Violation(location, f"{contract.ref} cannot be declared compatible", remedy)
        return
    if before is None:
        missing = Ref(contract.name, contract.version - 1)
        yield Violation(
            location, f"{contract.ref} is compatible with {missing}, which has no file", "add its file"
        )
        return
    differences = list(_differences(before, contract))
    for difference in differences:
        remedy = "remove `compatible`, or only add nullable columns"
        yield Violation(location, f"{contract.ref} is not compatible with {before.ref}: {difference}", remedy)
    if not differences:
        for consumer, older in _consumers(catalog, contract):
            yield from _affected(con, catalog, consumer, older, contract)


def _differences(before: Contract, contract: Contract) -> Iterator[str]:
    """Differences other than added nullable columns."""
    for key in _SHARED:
        if getattr(before, key) != getattr(contract, key):
            yield f"{key} is {getattr(contract, key)!r}, was {getattr(before, key)!r}"
    known = {column.name: column for column in before.columns}
    kept = [column.name for column in contract.columns if column.name in known]
    if kept != list(known):
        yield "columns are missing or in another order"
    for column in contract.columns:
        if column.name in known and _meaning(column) != _meaning(known[column.name]):
            yield f"column {column.name} is declared differently"
        elif column.name not in known and not column.null:
            yield f"the added column {column.name} is not nullable"


def _meaning(column: Column) -> tuple[object, ...]:
    return tuple(getattr(column, key) for key in _MEANING)


def _consumers(catalog: Catalog, contract: Contract) -> Iterator[tuple[Contract, Contract]]:
    """The contracts that require an older version in whose place this one can be read, with that version."""
    served = {each.ref: each for each in catalog.compatible(contract) if each.version < contract.version}
    for consumer in sorted(catalog.contracts.values(), key=lambda each: each.source):
        yield from ((consumer, served[ref]) for ref in consumer.requires if ref in served)


def _affected(
    con: engine.Connection, catalog: Catalog, consumer: Contract, older: Contract, newer: Contract
) -> Iterator[Violation]:
    """Violations if the columns of the newer version affect a consumer of the older one."""
    if not consumer.body:
        return
    location, names = f"{consumer.source}:{consumer.body_line}", names_read(consumer.body)
    added = {column.name for column in newer.columns} - {column.name for column in older.columns}
    if names is None or names & added:
        named = ", ".join(sorted(names & added)) if names else "all columns"
        remedy = f"require {newer.ref}, or use another name for the column of {newer.ref}"
        yield Violation(location, f"names {named}, added by {newer.ref}, but requires {older.ref}", remedy)
        return
    required = [catalog.contracts[ref] for ref in consumer.requires]
    plans = [_plan(con, consumer, required, older, version) for version in (older, newer)]
    hashes = [catalog.hash_as_read(version, names) for version in (older, newer)]
    if plans[0] != plans[1] or hashes[0] != hashes[1]:
        remedy = "name each column, not the entire relation"
        yield Violation(location, f"has different plans for {newer.ref} and {older.ref}", remedy)


def _plan(
    con: engine.Connection,
    consumer: Contract,
    required: Iterable[Contract],
    older: Contract,
    version: Contract,
) -> tuple[object, ...]:
    """Columns and logical plan of a consumer over empty relations, with `version` in place of `older`."""
    relations = [version if each.ref == older.ref else each for each in required]
    for each in relations:
        engine.create_table(con, each)
    try:
        sql = engine.sql_with_params(consumer, {})
        return engine.result_columns(con, sql), engine.logical_plan(con, sql)
    except engine.Error as error:
        return (str(error),)
    finally:
        for each in relations:
            con.execute(f"DROP TABLE {quote_name(each.name)}")


def _lowest_required(catalog: Catalog, contract: Contract) -> Iterator[Violation]:
    """A violation for each required version of which the contract names only columns of an older one."""
    names = names_read(contract.body) if contract.body else None
    if names is None:
        return
    for ref in contract.requires:
        required = catalog.contracts[ref]
        named = {column.name for column in required.columns} & names
        older = [each for each in catalog.compatible(required) if each.version < ref.version]
        enough = [each for each in older if named <= {column.name for column in each.columns}]
        if enough:
            lowest = enough[-1].ref
            message = f"requires {ref}, but names only columns of {lowest}"
            yield Violation(f"{contract.source}:1", message, f"require {lowest}")
