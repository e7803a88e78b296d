"""From what the reader found to all tables of a rank, and from stored events to tables of another version.

What is made, and in which order, stands in the contracts: each table's SELECT runs once, after those it
requires. A table's SELECT sees one rank at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType

from .. import engine
from ..catalog import Catalog
from ..contract import Contract
from ..errors import ContractError
from ..sqltext import quote_name
from . import around, nesting
from .memory import Memory

# What SQL would search for with joins of ranges is one pass over sorted rows.
_PROGRAMS: Mapping[str, Callable[[engine.Connection, Contract], None]] = {
    "nesting": nesting.fill,
    "around": around.fill,
}
_ROW_GROUP = 122_880  # of DuckDB
# Wide or much joined tables: the number that parts them, where its largest stands, how many a part spans.
_PARTED: dict[str, tuple[str, str, int]] = {
    "events": ("event_id", "parsed", 4 * _ROW_GROUP),
    "kernels": ("runtime_id", "launches", 8 * _ROW_GROUP),
    "kernel_owners": ("runtime_id", "launch_calls", 16 * _ROW_GROUP),
}


def stored_tables(catalog: Catalog) -> tuple[Contract, ...]:
    """The tables that an ingest writes to Parquet: newest versions, by name."""
    return tuple(table for table in catalog.tables() if not table.transient and _at_ingest(table))


def _at_ingest(table: Contract) -> bool:
    return not (table.filled_by_program or table.derived or table.is_constant)


def build(
    con: engine.Connection,
    catalog: Catalog,
    keep: Collection[str] | None = None,
    made: Callable[[Contract], object] = lambda _: None,
    memory: Memory | None = None,
) -> None:
    """Makes every table that has a SELECT; the connection holds what the reader found in one file.

    With `keep` a transient table that is not named there goes as soon as no other is made of it. `made` is
    called with each table when it is there. `memory` grows where a table needs more.
    Raises ContractError where two contracts of one name are needed.
    """
    wanted = [table for table in catalog.tables() if _at_ingest(table) and table.scope == "rank"]
    # What stands on little comes first: so the large tables of the reader can go early.
    wanted.sort(key=lambda table: len(catalog.closure(table)))
    order = list(_in_order(catalog, wanted, frozenset()))
    _make(con, order, {} if keep is None else _last_uses(catalog, order, keep), made, memory)


def rebuild(con: engine.Connection, catalog: Catalog, wanted: Iterable[Contract]) -> None:
    """Makes the wanted tables from the `events` of one rank, which the connection holds.

    Where it also holds the stored `data_quality`, what that says of reading the file is kept.
    """
    wanted = [contract for contract in wanted if contract.name != "events"]
    parsed, events = catalog.get("parsed", kind="table"), catalog.get("events", kind="table")
    order = list(_in_order(catalog, wanted, frozenset((parsed.name, events.name, "file_quality"))))
    columns = ", ".join(quote_name(column.name) for column in parsed.columns)
    engine.create_table(con, parsed, f"SELECT {columns} FROM events")
    _keep_file_quality(con, catalog)
    _make(con, order)


def _keep_file_quality(con: engine.Connection, catalog: Catalog) -> None:
    """Makes `file_quality` from the rules of the stored `data_quality` that only reading the file gives."""
    contract = catalog.get("file_quality", kind="table")
    stored = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'data_quality'").fetchone()
    if stored is None:
        engine.create_table(con, contract)
        return
    columns = ", ".join(quote_name(column.name) for column in contract.columns)
    rules = f"SELECT rule FROM ({_select(catalog.get('quality_rules', kind='table'))}) WHERE source = 'file'"
    engine.create_table(con, contract, f"SELECT {columns} FROM data_quality WHERE rule IN ({rules})")
    con.execute("DROP TABLE data_quality")


def _in_order(catalog: Catalog, wanted: Iterable[Contract], given: frozenset[str]) -> Iterator[Contract]:
    """What is wanted and all that it stands on, but for what is given; each after what it requires."""
    done: dict[str, Contract] = {}

    def visit(contract: Contract) -> Iterator[Contract]:
        known = done.setdefault(contract.name, contract)
        if known.version != contract.version:
            raise ContractError(f"{contract.ref} and {known.ref} are both needed", "rebuild one at a time")
        for ref in contract.requires:
            if ref.name not in given and ref.name not in done:
                yield from visit(catalog.contracts[ref])
        if not contract.filled_by_program or contract.name in _PROGRAMS:
            yield contract

    for contract in wanted:
        if contract.name not in done:
            yield from visit(contract)


def _last_uses(catalog: Catalog, order: Sequence[Contract], keep: Collection[str]) -> dict[str, list[str]]:
    """Table → the transient tables that nothing after it is made of."""
    last = {ref: contract.name for contract in order for ref in contract.requires}
    gone: dict[str, list[str]] = {}
    for ref, user in last.items():
        if catalog.contracts[ref].transient and ref.name not in keep:
            gone.setdefault(user, []).append(ref.name)
    return gone


def _make(
    con: engine.Connection,
    order: Iterable[Contract],
    gone: Mapping[str, Iterable[str]] = MappingProxyType({}),
    made: Callable[[Contract], object] = lambda _: None,
    memory: Memory | None = None,
) -> None:
    memory = memory or Memory(con)
    for contract in order:
        engine.create_table(con, contract)
        for fill in _fills(con, contract):
            memory.enough_for(fill)
        made(contract)
        for name in gone.get(contract.name, ()):
            con.execute(f"DROP TABLE {quote_name(name)}")


def _fills(con: engine.Connection, contract: Contract) -> Iterator[Callable[[], None]]:
    """What fills the table, each for rows of its own."""
    if contract.name in _PROGRAMS:
        yield partial(_PROGRAMS[contract.name], con, contract)
        return
    for where in _parts(con, contract):
        sql = _select(contract)
        part = f"SELECT * FROM (\n{sql}\n) AS made WHERE {where}" if where else sql
        yield partial(engine.fill_table, con, contract, part)


def _parts(con: engine.Connection, contract: Contract) -> Iterator[str]:
    """The conditions of its parts: what is joined to some events at a time does not outgrow memory."""
    if contract.name not in _PARTED:
        yield ""
        return
    number, table, at_once = _PARTED[contract.name]
    most = con.execute(f"SELECT max({number}) FROM {table}").fetchall()[0][0] or 0
    if most < at_once:
        yield ""
        return
    yield f"{number} IS NULL"
    for low in range(0, most + 1, at_once):
        yield f"{number} >= {low} AND {number} < {low + at_once}"


@cache
def _select(contract: Contract) -> str:
    return engine.sql_with_params(contract, engine.bind(contract, {}))
