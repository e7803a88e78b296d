"""Tables of a derivation as Parquet files, and the stored rank source with them, ready to be committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import DERIVATIONS, Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.errors import TwError
from tracewarehouse.ingest.rebuild import rebuilt, table_versions_fact
from tracewarehouse.runs.readable import FACT
from tracewarehouse.storage import Json, RankSource, Staged, StagedTable

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection

# Mostly distinct numbers are a third the size as differences: measured on real traces, 1,000 to 2,000
# values are the point where a dictionary costs more than it saves.
_DICTIONARY_VALUES = 1_500
_ZSTD_LEVEL = 9
# Constant within one rank, so they do not order its rows.
_OF_THE_RANK = ("run_id", "rank")


def stored_tables(catalog: Catalog, name: str) -> tuple[Contract, ...]:
    """The stored tables of a derivation."""
    return tuple(each for each in catalog.tables() if each.derived == name and not each.transient)


def sources(catalog: Catalog, name: str) -> tuple[Contract, ...]:
    """The stored tables that a derivation reads, through views too."""
    last = catalog.get(DERIVATIONS[name], kind="table")
    return tuple(each for each in catalog.closure(last) if each.is_stored and each.derived != name)


def definition(catalog: Catalog, name: str) -> str:
    """The hash of what defines a derivation."""
    return catalog.effective_hash(catalog.get(DERIVATIONS[name], kind="table"))


def with_derived(
    catalog: Catalog,
    source: RankSource,
    header: str,
    name: str,
    files: tuple[StagedTable, ...],
    fact: Mapping[str, Json],
) -> Staged:
    """The source with these files in place of the tables of the derivation that it may have.

    `fact` is recorded with the definition.
    """
    contracts = stored_tables(catalog, name)
    names = {contract.name for contract in contracts}
    tables, known = source.facts.get("tables"), source.facts.get(FACT)
    others = {table: versions for table, versions in _dict(tables).items() if table not in names}
    facts: dict[str, Json] = {
        **source.facts,
        name: True,
        "tables": table_versions_fact(contracts, others),
        FACT: {**_dict(known), name: {"hash": definition(catalog, name), **fact}},
    }
    kept = tuple(file for file in source.files if file.table not in names)
    return rebuilt(source, header, files, facts, source.definitions, kept)


def _dict(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, dict) else {}


def write_tables(
    con: Connection, catalog: Catalog, contracts: Iterable[Contract], folder: Path
) -> tuple[StagedTable, ...]:
    """Each table that has rows as a Parquet file in the folder, in the order of its contract."""
    written = [_write(con, catalog, contract, folder) for contract in contracts]
    return tuple(sorted(filter(None, written), key=lambda one: (one.table, one.version)))


def _write(con: Connection, catalog: Catalog, contract: Contract, folder: Path) -> StagedTable | None:
    path = folder / f"{contract.name}.v{contract.version}.parquet"
    count = con.execute(f"SELECT count(*) FROM {contract.name}").fetchone()
    if not count or not count[0]:
        return None
    columns = ", ".join(quote_name(column.name) for column in contract.columns)
    about = f"contract: '{contract.ref}', contract_hash: '{catalog.effective_hash(contract)}'"
    con.execute(
        f"COPY (SELECT {columns} FROM {contract.name} {_order(con, contract)}) TO ? "
        f"(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {_ZSTD_LEVEL}, PARQUET_VERSION v2,"
        f" DICTIONARY_SIZE_LIMIT {_DICTIONARY_VALUES}, KV_METADATA {{{about}}})",
        [str(path)],
    )
    return StagedTable(contract.name, contract.version, path, count[0])


def _order(con: Connection, contract: Contract) -> str:
    """The ORDER BY of the contract; empty if the rows are in order already: sorting takes memory."""
    from tracewarehouse.duck.engine import order_by

    keys = [key for key in contract.order if key not in _OF_THE_RANK]
    if len(keys) == 1 and not keys[0].startswith("-"):
        key = quote_name(keys[0])
        before = f"SELECT {key} <= lag({key}) OVER () AS wrong FROM {contract.name}"
        found = con.execute(f"SELECT count(*) FILTER (wrong) FROM ({before})").fetchone()
        if found == (0,):
            return ""
    return order_by(contract)


def too_much(place: str, error: Exception) -> TwError:
    """A failure of DuckDB with a remedy if memory or disk ran out."""
    first = str(error).strip().partition("\n")[0]
    if "memory" in first.lower():
        return TwError(
            f"{place}: not enough memory: {first}",
            hints.Hint("derive one rank at a time: ranks=0", "derive one rank at a time: --rank 0"),
        )
    if "no space" in first.lower():
        return TwError(f"{place}: no space left to write", "free some space and repeat")
    return TwError(
        f"{place}: {first}",
        hints.Hint("internal error; please report it", "internal error; rerun with --debug and report it"),
    )
