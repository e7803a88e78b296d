"""Answers computed by groups of ranks: tasks of an engine, what they return, and where large parts are kept.

A part is small and returned at once, or a Parquet file in a folder that all workers reach: TW_PARTS, or on
one machine the user's cache. The files are deleted when the answer is complete; nothing is written to the
warehouse.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.duck.arrow import from_bytes, read_file, to_bytes, write_file
from tracewarehouse.engines import TaskProgress
from tracewarehouse.errors import WarehouseError
from tracewarehouse.location import is_url
from tracewarehouse.query.connections import ConnectionPool
from tracewarehouse.query.dependencies import Dependencies
from tracewarehouse.query.user_cache import folder as cache_folder
from tracewarehouse.runs.intact_files import intact_runs
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Store
from tracewarehouse.storage.parquet_file import Level

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER: Final = "TW_PARTS"
# Smaller parts are returned by the task itself.
_INLINE_BYTES = 8 << 20
# Files of a process that was killed.
_OLD_S = 7 * 86_400.0

# Run, number of its version, ranks.
Ranks = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True)
class PartRows:
    """The rows of a part: as bytes, or the path of a file."""

    data: bytes = b""
    path: Path | None = None

    @classmethod
    def of(cls, rows: pa.Table, folder: Path | None) -> PartRows:
        """Small rows as bytes, all of them without a folder."""
        if folder is None or rows.nbytes < _INLINE_BYTES:
            return cls(to_bytes(rows))
        path = folder / f"{secrets.token_hex(8)}.parquet"
        write_file(rows, path)
        return cls(path=path)

    def read(self) -> pa.Table:
        """The rows. Raises WarehouseError if this process does not reach the folder of parts."""
        if self.path is None:
            return from_bytes(self.data)
        try:
            return read_file(self.path)
        except FileNotFoundError:
            hint = f"{FOLDER} must name a folder that the workers and this process share"
            raise WarehouseError(f"{self.path}: a worker wrote it, but it is not here", hint) from None


@dataclass(frozen=True)
class ComputePart:
    """Computes analyses, or views as such, on some ranks; the worker checks and opens the files.

    `threads`: of DuckDB, None for one per core.
    """

    store: Store
    sql: Path | None
    analyses: tuple[Contract, ...]
    bound: Mapping[str, object]
    ranks: tuple[Ranks, ...]
    level: Level
    folder: Path | None
    threads: int | None

    def run(self, progress: TaskProgress) -> tuple[PartRows, ...]:
        """The rows of each analysis."""
        catalog = Catalog.load(self.sql)
        selected = [
            SelectedRun(self.store.get(run, number), ranks, named=True) for run, number, ranks in self.ranks
        ]
        pool = ConnectionPool(self.store, catalog, self.threads)
        found = []
        for analysis in self.analyses:
            read = Dependencies.of(catalog, [analysis])
            intact_runs(self.store, catalog, read.contracts, selected, self.level)
            rows = pool.execute(selected, analysis, self.bound, read)
            found.append(PartRows.of(rows, self.folder))
            progress(len(found), len(self.analyses))
        return tuple(found)


def ranks_of(selected: Sequence[SelectedRun]) -> tuple[Ranks, ...]:
    """What a task needs to select the same ranks."""
    return tuple((each.run, each.version.number, each.ranks) for each in selected)


@contextmanager
def parts_folder(on_this_machine: bool) -> Iterator[Path | None]:
    """A new folder for the parts of one answer, deleted afterwards; None if there is none that all reach.

    Raises WarehouseError if the folder that TW_PARTS names cannot be written.
    """
    folder = _new_folder(on_this_machine)
    try:
        yield folder
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _new_folder(on_this_machine: bool) -> Path | None:
    named = os.environ.get(FOLDER)
    if is_url(named):
        raise WarehouseError(f"{FOLDER} is a URL", "name a folder that all workers reach")
    try:
        if not named and not on_this_machine:
            return None
        shared = Path(named).absolute() if named else cache_folder() / "parts"
        _delete_old(shared)
        folder = shared / secrets.token_hex(8)
        folder.mkdir(mode=0o700, parents=True)
        return folder
    except (OSError, RuntimeError) as error:
        if named:
            raise WarehouseError(f"{FOLDER}: {error}", "name a folder that all workers reach") from error
        return None


def _delete_old(shared: Path) -> None:
    with suppress(OSError):
        for path in shared.iterdir():
            if time.time() - path.stat().st_mtime > _OLD_S:
                shutil.rmtree(path, ignore_errors=True)
