"""Checks of every contract without a trace: it binds, reads what it requires, and follows the style.

Rows of a version that `[changes]` declares compatible can be read by consumers of earlier versions. The proof
has three parts: the two contracts differ only in added nullable columns; no consumer of an older version
names an added column, which could be ambiguous or bind to another relation; and every consumer has the same
plan and the same hash with both sets of columns.

The hash of a SELECT changes with it. Tables that a builder fills have no such hash, so their golden rows are
locked instead: `sql/definitions.lock` has a line per golden file with the definition, a hash of the trace and
a hash of the rows.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from tracewarehouse.contracts.catalog import Catalog, Locked, read_lock
from tracewarehouse.contracts.contract import Column, Contract, Ref
from tracewarehouse.contracts.sql_tokens import names_read, quote_name, token_texts
from tracewarehouse.devtools.sql_style import Violation, check_style
from tracewarehouse.duck import engine
from tracewarehouse.errors import ContractError

# Properties that two compatible versions have in common, besides their columns.
_SHARED = ("kind", "scope", "grain", "transient", "derived", "definition")
# Properties of a column, without its description.
_MEANING = ("type", "unit", "better", "null", "signed", "aggregate")


def check_compatible(con: engine.Connection, catalog: Catalog) -> Iterator[Violation]:
    """Violations by versions that are declared compatible, and by their consumers."""
    for contract in sorted(catalog.contracts.values(), key=lambda each: each.source):
        yield from _lowest_required(catalog, contract)
        if contract.changes[0].compatible:
            yield from _declared_compatible(con, catalog, contract)


def _declared_compatible(con: engine.Connection, catalog: Catalog, contract: Contract) -> Iterator[Violation]:
    location = f"{contract.source}:1"
    previous = Ref(contract.name, contract.version - 1)
    before = catalog.contracts.get(previous)
    if contract.kind == "analysis" or contract.is_stored and contract.body:
        remedy = "only views and tables filled by a builder can be; remove `compatible`"
        yield Violation(location, f"{contract.ref} cannot be declared compatible", remedy)
        return
    if before is None:
        message = f"{contract.ref} is compatible with {previous}, which has no file"
        yield Violation(location, message, "add its file")
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
    columns_before = {column.name: column for column in before.columns}
    kept_names = [column.name for column in contract.columns if column.name in columns_before]
    if kept_names != list(columns_before):
        yield "columns are missing or in another order"
    for column in contract.columns:
        if column.name in columns_before and _meaning(column) != _meaning(columns_before[column.name]):
            yield f"column {column.name} is declared differently"
        elif column.name not in columns_before and not column.null:
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
        listed = ", ".join(sorted(names & added)) if names else "all columns"
        remedy = f"require {newer.ref}, or use another name for the column of {newer.ref}"
        yield Violation(location, f"names {listed}, added by {newer.ref}, but requires {older.ref}", remedy)
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
    with _tables(con, [version if contract.ref == older.ref else contract for contract in required]):
        sql = engine.sql_with_params(consumer, {})
        try:
            return engine.result_columns(con, sql), engine.logical_plan(con, sql)
        except engine.Error as error:
            return (str(error),)


@contextmanager
def _tables(con: engine.Connection, contracts: Sequence[Contract]) -> Iterator[None]:
    """Empty tables of these contracts until the block ends."""
    for contract in contracts:
        engine.create_table(con, contract)
    try:
        yield
    finally:
        for contract in contracts:
            con.execute(f"DROP TABLE {quote_name(contract.name)}")


def _lowest_required(catalog: Catalog, contract: Contract) -> Iterator[Violation]:
    """A violation for each required version of which the contract names only columns of an older one."""
    names = names_read(contract.body) if contract.body else None
    if names is None:
        return
    for ref in contract.requires:
        required = catalog.contracts[ref]
        named_columns = {column.name for column in required.columns} & names
        older = [version for version in catalog.compatible(required) if version.version < ref.version]
        enough = [each for each in older if named_columns <= {column.name for column in each.columns}]
        if enough:
            lowest = enough[-1].ref
            message = f"requires {ref}, but names only columns of {lowest}"
            yield Violation(f"{contract.source}:1", message, f"require {lowest}")


DEFINITIONS_FILE = "definitions.lock"
_HEADER = "# Written by `tw dev sync`. Golden rows of a table without a SELECT change with its definition.\n"
_SYNC = "run `tw dev sync`"


class LockedGolden(Struct, frozen=True):
    """The state of a golden file: the table's definition, a hash of the trace (`given`), one of the rows."""

    definition: int
    given: str
    rows: str


def current(catalog: Catalog, root: Path) -> dict[str, LockedGolden]:
    """Golden file in `tests/goldens/tables` → its state, for all tables with a definition."""
    states = {}
    for contract in catalog.all("table"):
        if contract.definition is None:
            continue
        stem = f"{contract.name}.v{contract.version}"
        for path in sorted((root / "tests" / "goldens" / "tables").glob(f"{stem}.*golden")):
            given, rows = _parts(path.read_text(encoding="utf-8"))
            states[path.name] = LockedGolden(contract.definition, _hash(given), _hash(rows))
    return states


def lock_text(catalog: Catalog, root: Path) -> str:
    """The updated lock; lines that `check` reports are kept, so updating cannot accept changed rows."""
    locked, present = read(catalog.folder), current(catalog, root)
    lines = []
    for name, new in sorted(present.items()):
        state = locked[name] if name in locked and _has_changed_rows(locked[name], new) else new
        hashes = f'given = "{state.given}", rows = "{state.rows}"'
        lines.append(f'"{name}" = {{ definition = {state.definition}, {hashes} }}\n')
    return _HEADER + "".join(lines) if lines else ""


def check_definitions(catalog: Catalog, root: Path) -> Iterator[Violation]:
    """Golden rows that changed without a new definition, and missing or obsolete lines."""
    locked, present = read(catalog.folder), current(catalog, root)
    for name, new in present.items():
        location = f"tests/goldens/tables/{name}"
        if name in locked and _has_changed_rows(locked[name], new):
            remedy = (
                "raise `definition` or add a version; if the locked rows were never released,"
                f" delete the line of the file in sql/{DEFINITIONS_FILE} and run `tw dev sync`"
            )
            yield Violation(location, f"the rows changed, but not definition {new.definition}", remedy)
        elif locked.get(name) != new:
            yield Violation(location, f"sql/{DEFINITIONS_FILE} is out of date", _SYNC)
    for name in sorted(locked.keys() - present.keys()):
        yield Violation(f"sql/{DEFINITIONS_FILE}", f"{name} does not exist", _SYNC)


def read(folder: Path) -> Mapping[str, LockedGolden]:
    """The lines of the lock; empty without a lock. Raises ContractError."""
    path = folder / DEFINITIONS_FILE
    if not path.exists():
        return {}
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
        return {name: LockedGolden(**entry) for name, entry in entries.items()}
    except (tomllib.TOMLDecodeError, ValueError, TypeError) as error:
        raise ContractError(
            f"sql/{DEFINITIONS_FILE}: not readable: {error}", "restore it from version control"
        ) from None


def _has_changed_rows(locked: LockedGolden, new: LockedGolden) -> bool:
    """Whether the same trace has other rows under the same definition."""
    return (locked.definition, locked.given) == (new.definition, new.given) and locked.rows != new.rows


def _parts(text: str) -> tuple[str, str]:
    """The input of a golden file, without comments and blank lines, and the expected rows."""
    given, _, rows = text.partition("\nresult\n")
    lines = [line.rstrip() for line in given.splitlines()]
    return "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith("#")), rows


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def check_catalog(catalog: Catalog) -> list[Violation]:
    """The violations of all contracts and of the lock, by file."""
    violations: list[Violation] = []
    with engine.connect(threads=1) as con:
        con.execute("SET enable_external_access = false")
        keywords = engine.keywords(con)
        for contract in sorted(catalog.contracts.values(), key=lambda c: c.source):
            violations += _check_sums(contract)
            # Others name the tables and columns that a format reads.
            if contract.body and contract.kind != "format":
                required = [catalog.contracts[ref] for ref in contract.requires]
                violations += check_style(contract, required, keywords)
                violations += check_binding(con, contract, required)
        violations += check_compatible(con, catalog)
    return violations + list(check_lock(catalog))


def _check_sums(contract: Contract) -> Iterator[Violation]:
    """A violation if an analysis does not say what its sums cover: they cannot be compared then."""
    has_sums = contract.kind == "analysis" and any(column.aggregate == "sum" for column in contract.columns)
    if has_sums and "step" not in contract.grain and contract.per is None:
        remedy = 'add per = "window" if they grow with the length of the recording, else "step" or "rank"'
        yield Violation(f"{contract.source}:1", "has sums, but does not say what they cover", remedy)


def check_binding(con: engine.Connection, contract: Contract, required: list[Contract]) -> list[Violation]:
    """Binds the SELECT against empty tables: of all its requirements, then without one at a time."""
    with _tables(con, required):
        return list(_binding_errors(con, contract)) or list(_unread(con, contract, required))


def _binding_errors(con: engine.Connection, contract: Contract) -> Iterator[Violation]:
    sql = engine.sql_with_params(contract, {})
    try:
        engine.check_columns(contract, engine.result_columns(con, sql))
    except ContractError as error:
        yield violation(error)
    except engine.Error as error:
        required = ", ".join(map(str, contract.requires)) or "nothing"
        reason = str(error).partition("\n")[0]
        remedy = f"it can only read what it requires: {required}"
        yield Violation(engine.error_place(contract, error), f"does not bind: {reason}", remedy)


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
    advice = f"restore the released file and write {contract.name}.v{contract.version + 1}.sql"
    if catalog.own_hash(contract) != locked.own:
        return Violation(f"{contract.source}:1", f"{contract.ref} is released, but was changed", advice)
    lock = read_lock(catalog.folder)
    below = [each for each in catalog.closure(contract) if each.ref in lock]
    changed = [str(each.ref) for each in below if lock[each.ref].own != catalog.own_hash(each)]
    return Violation(
        f"{contract.source}:1",
        f"{contract.ref} is released, but its dependency {', '.join(changed) or 'a dependency'} was changed",
        "add a new version of the dependency; the released contract keeps the old one",
    )


def violation(error: ContractError) -> Violation:
    """A ContractError as a violation; its message starts with `file:line: `."""
    location, _, message = error.message.partition(": ")
    return Violation(location, message, error.hint or "")
