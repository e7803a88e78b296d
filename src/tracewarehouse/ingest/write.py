"""Tables as Parquet files in a folder, each written while the next is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.catalog import Catalog
from tracewarehouse.contract import Contract
from tracewarehouse.ingest.memory import Memory
from tracewarehouse.sqltext import quote_name
from tracewarehouse.storage import StagedTable

if TYPE_CHECKING:
    from tracewarehouse.engine import Connection

# Numbers that rarely come again are a third the size as differences: measured on real traces, 1,000 to 2,000
# values are where a dictionary begins to cost more than it saves.
_DICTIONARY_VALUES = 1_500
_ZSTD_LEVEL = 9
# What one rank's table cannot be told apart by.
_OF_THE_RANK = ("run_id", "rank")


def write_tables(
    con: Connection, catalog: Catalog, contracts: Iterable[Contract], folder: Path
) -> tuple[StagedTable, ...]:
    """Each table that has rows as a Parquet file in the folder, in the order of its contract."""
    with Writer(con, catalog, folder, Memory(con)) as writer:
        for contract in contracts:
            writer.add(contract)
    return writer.staged()


@dataclass
class Writer:
    """Writes tables that are made, one after the other, in a thread; at its end all are written."""

    con: Connection
    catalog: Catalog
    folder: Path
    memory: Memory
    _files: list[Future[StagedTable | None]] = field(default_factory=list)

    def __enter__(self) -> Writer:
        self._thread = ThreadPoolExecutor(1)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown(cancel_futures=kind is not None)

    def add(self, contract: Contract) -> None:
        """The next table that is ready: nothing of it changes any more."""
        cursor = self.con.cursor()
        write = partial(_write, cursor, self.catalog, contract, self.folder)
        self._files.append(self._thread.submit(self._in_turn, contract, write))

    def _in_turn(self, contract: Contract, write: Callable[[], StagedTable | None]) -> StagedTable | None:
        with self.memory.turn(len(contract.columns)):
            return self.memory.enough_for(write)

    def staged(self) -> tuple[StagedTable, ...]:
        """The files, by the names of their tables; none for a table without rows."""
        written = [one for file in self._files if (one := file.result()) is not None]
        return tuple(sorted(written, key=lambda one: (one.table, one.version)))


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
    """ORDER BY as the contract says; nothing where the rows stand so already, for sorting takes memory."""
    from tracewarehouse.engine import order_by

    keys = [key for key in contract.order if key not in _OF_THE_RANK]
    if len(keys) == 1 and not keys[0].startswith("-"):
        key = quote_name(keys[0])
        before = f"SELECT {key} <= lag({key}) OVER () AS wrong FROM {contract.name}"
        found = con.execute(f"SELECT count(*) FILTER (wrong) FROM ({before})").fetchone()
        if found == (0,):
            return ""
    return order_by(contract)
