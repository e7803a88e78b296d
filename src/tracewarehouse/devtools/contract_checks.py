"""Checks of every contract without a trace: it binds, reads what it requires, and follows the style."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tracewarehouse.contracts.catalog import Catalog, Locked, read_lock
from tracewarehouse.contracts.contract import Contract, Ref
from tracewarehouse.contracts.sql_tokens import quote_name, token_texts
from tracewarehouse.devtools.compatibility import check_compatible
from tracewarehouse.devtools.sql_style import Violation, check_style
from tracewarehouse.duck import engine
from tracewarehouse.errors import ContractError


def check_catalog(catalog: Catalog) -> list[Violation]:
    """The violations of all contracts and of the lock, by file."""
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


def check_binding(con: engine.Connection, contract: Contract, required: list[Contract]) -> list[Violation]:
    """Binds the SELECT against empty tables: of all its requirements, then without one at a time."""
    for other in required:
        engine.create_table(con, other)
    try:
        return list(_binding_errors(con, contract)) or list(_unread(con, contract, required))
    finally:
        for other in required:
            con.execute(f"DROP TABLE {quote_name(other.name)}")


def _binding_errors(con: engine.Connection, contract: Contract) -> Iterator[Violation]:
    sql = engine.sql_with_params(contract, {})
    try:
        engine.check_columns(contract, engine.result_columns(con, sql))
    except ContractError as error:
        yield violation(error)
    except engine.Error as error:
        required = ", ".join(map(str, contract.requires)) or "nothing"
        reason = str(error).partition("\n")[0]
        location = engine.error_place(contract, error)
        yield Violation(
            location, f"does not bind: {reason}", f"it can only read what it requires: {required}"
        )


def _unread(con: engine.Connection, contract: Contract, required: list[Contract]) -> Iterator[Violation]:
    sql, text = engine.sql_with_params(contract, {}), " ".join(token_texts(contract.body))
    for other in required:
        # Reading it by name is proof enough, unless a CTE has the same name: binding without it is slow.
        name = re.escape(other.name)
        if re.search(rf"\b(FROM|JOIN) {name}\b", text) and not re.search(rf"\b{name} AS\b", text):
            continue
        con.execute(f"DROP TABLE {quote_name(other.name)}")
        try:
            engine.result_columns(con, sql)
        except engine.Error:
            pass
        else:
            remedy = "remove it from requires, or read it"
            yield Violation(f"{contract.source}:1", f"requires {other.ref}, but does not read it", remedy)
        engine.create_table(con, other)


def check_lock(catalog: Catalog) -> Iterator[Violation]:
    """Released contracts that were deleted or changed, and retired versions that are used again."""
    for ref, locked in read_lock(catalog.folder).items():
        contract = catalog.contracts.get(ref)
        if locked.status == "retired":
            if contract is not None:
                yield Violation(f"{contract.source}:1", f"{ref} is retired", "use the next number")
        elif contract is None:
            remedy = "restore its file, or retire the version (tw dev release --retire)"
            yield Violation("sql/released.lock", f"{ref} is released, but its file was deleted", remedy)
        elif catalog.effective_hash(contract) != locked.effective:
            yield _changed(catalog, contract, locked)


def _changed(catalog: Catalog, contract: Contract, locked: Locked) -> Violation:
    new = f"restore the released file and write {contract.name}.v{contract.version + 1}.sql"
    if catalog.own_hash(contract) != locked.own:
        return Violation(f"{contract.source}:1", f"{contract.ref} is released, but was changed", new)
    changed = ", ".join(map(str, _changed_dependencies(catalog, contract))) or "a dependency"
    return Violation(
        f"{contract.source}:1",
        f"{contract.ref} is released, but its dependency {changed} was changed",
        "add a new version of the dependency; the released contract keeps the old one",
    )


def _changed_dependencies(catalog: Catalog, contract: Contract) -> list[Ref]:
    lock = read_lock(catalog.folder)
    return [
        other.ref
        for other in catalog.closure(contract)
        if other.ref in lock and lock[other.ref].own != catalog.own_hash(other)
    ]


def violation(error: ContractError) -> Violation:
    """A ContractError as a violation; its message starts with `file:line: `."""
    location, _, message = error.message.partition(": ")
    return Violation(location, message, error.hint or "")
