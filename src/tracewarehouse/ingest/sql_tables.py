"""From what the reader found to all tables of a rank, and from stored events to tables of another version.

What is made, and in which order, stands in the contracts: each table's SELECT runs once, after those it
requires. A table's SELECT sees one rank at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_PART = "part"


@dataclass(frozen=True)
class Cut:
    """A table that is made in parts: so many ids at a time of those of its rows, in what it is made of.

    `by` says of each table which is read in part by which number; all others are read whole.
    """

    at_once: int
    by: Mapping[str, str]


# Wide or much joined tables, which would outgrow memory.
_CUTS: dict[str, Cut] = {
    "events": Cut(4 * _ROW_GROUP, {"parsed": "event_id", "nesting": "event_id", "launches": "kernel_id"}),
    "runtime": Cut(16 * _ROW_GROUP, {"calls": "event_id"}),
    "kernel_owners": Cut(16 * _ROW_GROUP, {"launch_calls": "runtime_id"}),
    "kernels": Cut(4 * _ROW_GROUP, {"launches": "kernel_id"}),
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
        with memory.turn(len(contract.columns)):
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
    fill = partial(engine.fill_table, con, contract, _select(contract))
    cut = _CUTS.get(contract.name)
    most = _most(con, cut) if cut else 0
    if cut is None or most < cut.at_once:
        yield fill
        return
    con.execute(f"CREATE SCHEMA {_PART}")
    for low in range(0, most + 1, cut.at_once):
        yield partial(_fill_part, con, cut, low, fill)
    con.execute(f"DROP SCHEMA {_PART} CASCADE")


def _most(con: engine.Connection, cut: Cut) -> int:
    """The largest id by which a table is cut."""
    table, number = next(iter(cut.by.items()))
    return con.execute(f"SELECT coalesce(max({number}), 0) FROM {table}").fetchall()[0][0]  # type: ignore[no-any-return]


def _fill_part(con: engine.Connection, cut: Cut, low: int, fill: Callable[[], None]) -> None:
    """Fills in what is made of the ids from `low` on: its SELECT finds the part by the table's name."""
    for table, number in cut.by.items():
        part = f"{number} >= {low} AND {number} < {low + cut.at_once}"
        con.execute(f"CREATE OR REPLACE VIEW {_PART}.{table} AS SELECT * FROM main.{table} WHERE {part}")
    con.execute(f"SET search_path = '{_PART},main'")
    try:
        fill()
    finally:
        con.execute("SET search_path = 'main'")


@cache
def _select(contract: Contract) -> str:
    return engine.sql_with_params(contract, engine.bind(contract, {}))
