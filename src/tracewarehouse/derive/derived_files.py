"""Tables that DuckDB derived as Parquet files in a folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.contracts.sql_tokens import quote_name
from tracewarehouse.errors import TwError
from tracewarehouse.storage import StagedTable

if TYPE_CHECKING:
    from tracewarehouse.duck.engine import Connection

# Mostly distinct numbers are a third the size as differences: measured on real traces, 1,000 to 2,000
# values are the point where a dictionary costs more than it saves.
_DICTIONARY_VALUES = 1_500
_ZSTD_LEVEL = 9
# Constant within one rank, so they do not order its rows.
_OF_THE_RANK = ("run_id", "rank")


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
    """The ORDER BY of the contract; empty if the rows already come in this order, since sorting takes memory."""
    from tracewarehouse.duck.engine import order_by

    keys = [key for key in contract.order if key not in _OF_THE_RANK]
    if len(keys) == 1 and not keys[0].startswith("-"):
        key = quote_name(keys[0])
        before = f"SELECT {key} <= lag({key}) OVER () AS wrong FROM {contract.name}"
        found = con.execute(f"SELECT count(*) FILTER (wrong) FROM ({before})").fetchone()
        if found == (0,):
            return ""
    return order_by(contract)


def too_much(path: Path, error: Exception) -> TwError:
    """DuckDB's own failure as ours: out of memory and out of disk are the two a user can act on."""
    first = str(error).strip().partition("\n")[0]
    if "memory" in first.lower():
        return TwError(
            f"{path}: not enough memory: {first}",
            hints.fill("ingest fewer files at once: {}", hints.option("jobs", 1)),
        )
    if "no space" in first.lower():
        return TwError(f"{path}: no space left to write", "free some space and repeat")
    return TwError(
        f"{path}: {first}",
        hints.Hint("internal error; please report it", "internal error; rerun with --debug and report it"),
    )
