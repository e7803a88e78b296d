"""Checks of compatible versions: only nullable columns were added, and no consumer notices them.

A version that `[changes]` calls compatible serves the consumers of the versions before it. The proof has
three parts: the two contracts differ in added nullable columns only; no consumer of an older version names an
added column, which would make the name ambiguous or bind to another relation; and every consumer binds
against both column sets with the same plan and has the same hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.contracts.sql_tokens import names_read, quote_name
from tracewarehouse.devtools.sql_style import Finding
from tracewarehouse.duck import engine

# What two compatible versions have in common beside their columns.
_SHARED = ("kind", "scope", "grain", "transient", "derived", "definition")
# What a column is, whatever its description says.
_MEANING = ("type", "unit", "better", "null", "signed", "fold")


def check_compatible(con: engine.Connection, catalog: Catalog) -> Iterator[Finding]:
    """Findings about every version that is declared compatible, and about its consumers."""
    for contract in sorted(catalog.contracts.values(), key=lambda each: each.source):
        yield from _lowest_required(catalog, contract)
        if contract.changes[0].compatible:
            yield from _declared_compatible(con, catalog, contract)


def _declared_compatible(con: engine.Connection, catalog: Catalog, contract: Contract) -> Iterator[Finding]:
    place = f"{contract.source}:1"
    before = catalog.contracts.get(Ref(contract.name, contract.version - 1))
    if contract.kind == "analysis" or contract.is_stored and contract.body:
        remedy = "only views and tables that a builder fills can be; leave `compatible` out"
        yield Finding(place, f"{contract.ref} cannot be declared compatible", remedy)
        return
    if before is None:
        missing = Ref(contract.name, contract.version - 1)
        yield Finding(
            place, f"{contract.ref} is compatible with {missing}, which has no file", "add its file"
        )
        return
    differences = list(_differences(before, contract))
    for difference in differences:
        remedy = "leave `compatible` out, or only add nullable columns"
        yield Finding(place, f"{contract.ref} is not compatible with {before.ref}: {difference}", remedy)
    if not differences:
        for consumer, older in _consumers(catalog, contract):
            yield from _unnoticed(con, catalog, consumer, older, contract)


def _differences(before: Contract, contract: Contract) -> Iterator[str]:
    """What else differs than added nullable columns."""
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
    """The contracts that require an older version which this one serves, each with that version."""
    served = {each.ref: each for each in catalog.compatible(contract) if each.version < contract.version}
    for consumer in sorted(catalog.contracts.values(), key=lambda each: each.source):
        yield from ((consumer, served[ref]) for ref in consumer.requires if ref in served)


def _unnoticed(
    con: engine.Connection, catalog: Catalog, consumer: Contract, older: Contract, newer: Contract
) -> Iterator[Finding]:
    """Findings where a consumer of the older version is affected by the columns of the newer one."""
    if not consumer.body:
        return
    place, names = f"{consumer.source}:{consumer.body_line}", names_read(consumer.body)
    added = {column.name for column in newer.columns} - {column.name for column in older.columns}
    if names is None or names & added:
        named = ", ".join(sorted(names & added)) if names else "all columns"
        remedy = f"require {newer.ref}, or use another name for the column of {newer.ref}"
        yield Finding(place, f"names {named}, added by {newer.ref}, but requires {older.ref}", remedy)
        return
    required = [catalog.contracts[ref] for ref in consumer.requires]
    plans = [_plan(con, consumer, required, older, version) for version in (older, newer)]
    hashes = [catalog.hash_as_read(version, names) for version in (older, newer)]
    if plans[0] != plans[1] or hashes[0] != hashes[1]:
        remedy = "name each column that is read, not the relation as a whole"
        yield Finding(place, f"reads {newer.ref} in another way than {older.ref}", remedy)


def _plan(
    con: engine.Connection,
    consumer: Contract,
    required: Iterable[Contract],
    older: Contract,
    version: Contract,
) -> tuple[object, ...]:
    """Columns and logical plan of a consumer over empty relations, with `version` in the place of `older`."""
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


def _lowest_required(catalog: Catalog, contract: Contract) -> Iterator[Finding]:
    """A finding for each required version that has no column the contract names beyond an older one's."""
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
            yield Finding(f"{contract.source}:1", message, f"require {lowest}")
