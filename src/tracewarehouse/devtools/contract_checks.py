"""What is checked of every contract without a trace: it binds, reads what it says, and keeps the style."""

from __future__ import annotations

from collections.abc import Iterator

from tracewarehouse.contracts.catalog import Catalog, Locked, read_lock
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.devtools.compatibility import check_compatible
from tracewarehouse.devtools.sql_style import Finding, check_style
from tracewarehouse.duck import engine
from tracewarehouse.errors import ContractError


def check_catalog(catalog: Catalog) -> list[Finding]:
    """Findings over all contracts and the lock, in the order of the files."""
    found = []
    with engine.connect(threads=1) as con:
        con.execute("SET enable_external_access = false")
        keywords = engine.keywords(con)
        for contract in sorted(catalog.contracts.values(), key=lambda c: c.source):
            if contract.body:
                required = [catalog.contracts[ref] for ref in contract.requires]
                found += check_style(contract, required, keywords)
                found += check_binding(con, contract, required)
        found += check_compatible(con, catalog)
    return found + list(check_lock(catalog))


def check_binding(con: engine.Connection, contract: Contract, required: list[Contract]) -> list[Finding]:
    """Binds the SELECT against empty tables of what it requires: all of it, then all but one."""
    for other in required:
        engine.create_table(con, other)
    try:
        return list(_bound(con, contract)) or list(_spare(con, contract, required))
    finally:
        for other in required:
            con.execute(f"DROP TABLE {quote_name(other.name)}")


def _bound(con: engine.Connection, contract: Contract) -> Iterator[Finding]:
    sql = engine.sql_with_params(contract, {})
    try:
        engine.check_columns(contract, engine.result_columns(con, sql))
    except ContractError as error:
        yield finding(error)
    except engine.Error as error:
        known = ", ".join(map(str, contract.requires)) or "nothing"
        reason = str(error).partition("\n")[0]
        place = engine.error_place(contract, error)
        yield Finding(place, f"does not bind: {reason}", f"it may read what it requires: {known}")


def _spare(con: engine.Connection, contract: Contract, required: list[Contract]) -> Iterator[Finding]:
    sql = engine.sql_with_params(contract, {})
    for other in required:
        con.execute(f"DROP TABLE {quote_name(other.name)}")
        try:
            engine.result_columns(con, sql)
        except engine.Error:
            pass
        else:
            remedy = "take it out of requires, or read it"
            yield Finding(f"{contract.source}:1", f"requires {other.ref}, but does not read it", remedy)
        engine.create_table(con, other)


def check_lock(catalog: Catalog) -> Iterator[Finding]:
    """Released contracts that are gone or changed, and retired numbers used again."""
    for ref, locked in read_lock(catalog.folder).items():
        contract = catalog.contracts.get(ref)
        if locked.status == "retired":
            if contract is not None:
                yield Finding(f"{contract.source}:1", f"{ref} is retired", "take the next number")
        elif contract is None:
            remedy = "put its file back; a version that is given up is marked retired"
            yield Finding("sql/released.lock", f"{ref} is released, but its file is gone", remedy)
        elif catalog.effective_hash(contract) != locked.effective:
            yield _moved(catalog, contract, locked)


def _moved(catalog: Catalog, contract: Contract, locked: Locked) -> Finding:
    new = f"leave it as released and write {contract.name}.v{contract.version + 1}.sql"
    if catalog.own_hash(contract) != locked.own:
        return Finding(f"{contract.source}:1", f"{contract.ref} is released, but it changed", new)
    below = ", ".join(map(str, _changed_below(catalog, contract))) or "what it requires"
    return Finding(
        f"{contract.source}:1",
        f"{contract.ref} is released, but {below} under it changed",
        "give what changed a new version; the released one keeps the old",
    )


def _changed_below(catalog: Catalog, contract: Contract) -> list[Ref]:
    lock = read_lock(catalog.folder)
    return [
        other.ref
        for other in catalog.closure(contract)
        if other.ref in lock and lock[other.ref].own != catalog.own_hash(other)
    ]


def finding(error: ContractError) -> Finding:
    """A ContractError as a finding; its message begins with `file:line: `."""
    place, _, message = error.message.partition(": ")
    return Finding(place, message, error.hint or "")
