"""The Parquet files of a task: of one rank as its tables are built, of several side by side at the end."""

from __future__ import annotations

from collections import defaultdict, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.ingest.memory import give_back
from tracewarehouse.ingest.parquet import TableWriter, WrittenTable
from tracewarehouse.storage import StagedTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    Rows: TypeAlias = pa.Table | Iterable[pa.RecordBatch]


# Of a large rank, tables that are built and not yet written.
_QUEUED_BYTES: Final = 48 << 20


@dataclass
class RankFiles:
    """The tables of the ranks of one run.

    With `alone` there is one, large rank, and a thread writes each of its tables while the next ones are
    built; `frugal`: before the next one is built. Else tables are held until those of all ranks are there.
    """

    catalog: Catalog
    folder: Path
    alone: bool
    frugal: bool = False
    _held: dict[str, list[tuple[int, pa.Table]]] = field(default_factory=lambda: defaultdict(list))
    _writing: list[Future[WrittenTable | None]] = field(default_factory=list)
    _queued: deque[tuple[Future[WrittenTable | None], int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._writer = _writer(self.catalog.folder)
        self._thread = ThreadPoolExecutor(1)

    def add(self, run: str, rank: int, table: str, rows: Rows) -> None:
        """The rows of a table of a rank; nothing of them changes any more."""
        if not self.alone:
            self._held[table].append((rank, _together(rows)))
            return
        contract = self.catalog.get(table, kind="table")
        write = partial(self._writer.write, contract, rows, run_id=run, rank=rank, path=self._path(contract))
        self._writing.append(self._thread.submit(write))
        self._queued.append((self._writing[-1], _bytes(rows)))
        self._wait_for_room()
        if self.frugal:
            give_back()

    def _wait_for_room(self) -> None:
        """Tables that wait to be written are in memory: builders do not run far ahead of the writer."""
        while self._queued and (self.frugal or self._queued_bytes() > _QUEUED_BYTES):
            self._queued.popleft()[0].exception()

    def _queued_bytes(self) -> int:
        return sum(size for writing, size in self._queued if not writing.done())

    def drop(self, rank: int) -> None:
        """Forgets a rank whose source failed when some of its tables were built."""
        for table, held in self._held.items():
            self._held[table] = [one for one in held if one[0] != rank]

    def staged(self, run: str) -> dict[int, tuple[StagedTable, ...]]:
        """Rank → its tables in files, by name; none for a table without rows."""
        written = [each.result() for each in self._writing]
        for table, held in self._held.items():
            contract = self.catalog.get(table, kind="table")
            written.append(self._writer.write_packed(contract, held, run_id=run, path=self._path(contract)))
        self._held.clear()
        found: dict[int, list[StagedTable]] = defaultdict(list)
        for one in sorted(filter(None, written), key=lambda one: (one.table, one.version)):
            for rank, rows in zip(one.ranks, one.rows, strict=True):
                found[rank].append(_staged(one, rows))
        return {rank: tuple(tables) for rank, tables in found.items()}

    def __enter__(self) -> RankFiles:
        return self

    def __exit__(self, *_: object) -> None:
        # After a failure what is being written is waited for, and the rest left.
        self._thread.shutdown(cancel_futures=True)

    def _path(self, contract: Contract) -> Path:
        return self.folder / f"{contract.name}.v{contract.version}.parquet"


def _bytes(rows: Rows) -> int:
    """The memory of a table; batches are only made when they are written."""
    import pyarrow as pa

    return rows.nbytes if isinstance(rows, pa.Table) else 0


def _together(rows: Rows) -> pa.Table:
    import pyarrow as pa

    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(rows)


def _staged(one: WrittenTable, rows: int) -> StagedTable:
    return StagedTable(one.table, one.version, one.path, rows, sum(one.rows), one.ranks)


@cache
def _writer(sql: Path) -> TableWriter:
    """One per process: it remembers what each contract takes."""
    return TableWriter(Catalog.load(sql))
