"""Analyses computed in parts, by tasks of an engine, whose rows are combined.

A part is small and returned at once, or a Parquet file in a folder that all workers reach: TW_PARTS, or on
one machine the user's cache. The files are deleted when the answer is complete; nothing is written to the
warehouse.

An analysis of single ranks runs per group of ranks, and its parts are concatenated in order. One that
compares ranks reads views, some of which are of single ranks: those are computed per group of ranks (map),
and the analysis runs unchanged over their rows (reduce). The contracts decide which views these are.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref, computed_contract
from tracewarehouse.contracts.sql_tokens import names_read, quote_name
from tracewarehouse.duck.arrow import concatenate, from_bytes, read_file, to_bytes, write_file
from tracewarehouse.engines import Engine, TaskProgress, cores, is_remote, results_in_order
from tracewarehouse.errors import WarehouseError
from tracewarehouse.location import is_url
from tracewarehouse.query.connections import (
    BATCH_EVENTS,
    ConnectionPool,
    event_batches,
    event_count,
    is_by_rank,
)
from tracewarehouse.query.relations import Dependencies
from tracewarehouse.runs.readable import intact_runs
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage.parquet_file import Level
from tracewarehouse.storage.store import Store
from tracewarehouse.temp_folders import cache_folder

if TYPE_CHECKING:
    import pyarrow as pa


FOLDER: Final = "TW_PARTS"
# Smaller parts are returned by the task itself.
_INLINE_BYTES = 8 << 20
# Files of a process that was killed.
_OLD_S = 7 * 86_400.0

# Run, number of its version, ranks.
Ranks = tuple[str, int, tuple[int, ...]]


class GroupRows(Struct, frozen=True):
    """The rows of a part: as bytes, or the path of a file."""

    data: bytes = b""
    path: Path | None = None

    @classmethod
    def of(cls, rows: pa.Table, folder: Path | None) -> GroupRows:
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


class ComputePart(Struct, frozen=True):
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

    def run(self, progress: TaskProgress) -> tuple[GroupRows, ...]:
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
            found.append(GroupRows.of(rows, self.folder))
            progress(len(found), len(self.analyses))
        return tuple(found)


@contextmanager
def rows_folder(on_this_machine: bool) -> Iterator[Path | None]:
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
        with suppress(OSError):
            for path in shared.iterdir():
                if time.time() - path.stat().st_mtime > _OLD_S:
                    shutil.rmtree(path, ignore_errors=True)
        folder = shared / secrets.token_hex(8)
        folder.mkdir(mode=0o700, parents=True)
        return folder
    except (OSError, RuntimeError) as error:
        if named:
            raise WarehouseError(f"{FOLDER}: {error}", "name a folder that all workers reach") from error
        return None


class Distributed(Struct, frozen=True):
    """Runs analyses on an engine; `part_events` is the size of a group of ranks."""

    store: Store
    catalog: Catalog
    engine: Engine
    level: Level
    part_events: int = BATCH_EVENTS

    def rows(
        self, contract: Contract, bound: Mapping[str, object], selected: Sequence[SelectedRun]
    ) -> pa.Table | None:
        """The rows of an analysis; None if it cannot be spread. Raises TwError if a part fails."""
        read = Dependencies.of(self.catalog, [contract])
        by_rank = is_by_rank(contract, read.contracts)
        views = () if by_rank else mapped_views(self.catalog, contract)
        if not selected or not (by_rank or views):
            return None
        queries = [contract] if by_rank else [view_query(self.catalog, contract, view) for view in views]
        with rows_folder(on_this_machine=not is_remote(self.engine)) as folder:
            parts = self._parts(queries, bound, selected, folder)
            if by_rank:
                return _read(part[0] for part in parts)
            computed = ((view, _read(part[at] for part in parts)) for at, view in enumerate(views))
            pool = ConnectionPool(self.store, self.catalog)
            return pool.execute_over(selected, contract, bound, read, computed)

    def _parts(
        self,
        queries: Sequence[Contract],
        bound: Mapping[str, object],
        selected: Sequence[SelectedRun],
        folder: Path | None,
    ) -> list[tuple[GroupRows, ...]]:
        """The rows of the queries for each group of ranks, in order."""
        remote = is_remote(self.engine)
        share = -(-event_count(selected) // self.engine.slots)
        tasks = [
            ComputePart(
                self.store,
                self.catalog.custom_folder,
                tuple(queries),
                bound,
                tuple((each.run, each.version.number, each.ranks) for each in group),
                self.level,
                folder,
                1 if remote else max(1, cores() // self.engine.slots),
            )
            for group in event_batches(selected, min(self.part_events, max(1, share)))
        ]
        return [one for one in results_in_order(self.engine, tasks) if isinstance(one, tuple)]


def _read(parts: Iterable[GroupRows]) -> pa.Table:
    return concatenate([part.read() for part in parts])


def mapped_views(catalog: Catalog, analysis: Contract) -> tuple[Contract, ...]:
    """The views of single ranks that an analysis of several reads, directly or through views of several."""
    return tuple(each for each in _below(catalog, analysis) if each.kind == "view" and each.scope == "rank")


def _below(catalog: Catalog, analysis: Contract) -> tuple[Contract, ...]:
    """What an analysis reads, through views of several ranks, down to tables and views of single ranks."""
    found: dict[Ref, Contract] = {}

    def visit(contract: Contract) -> None:
        for each in (catalog.contracts[ref] for ref in contract.requires):
            if found.setdefault(each.ref, each) is each and each.kind == "view" and each.scope == "run":
                visit(each)

    if analysis.scope == "run":
        visit(analysis)
    return tuple(found.values())


def view_query(catalog: Catalog, analysis: Contract, view: Contract) -> Contract:
    """A view as an analysis, with the columns that its readers name."""
    readers = [analysis, *(each for each in _below(catalog, analysis) if each.scope == "run")]
    named = [names_read(each.body) for each in readers if each.kind != "table"]
    names = None if None in named else frozenset[str]().union(*(each for each in named if each is not None))
    columns = tuple(each for each in view.columns if names is None or each.name in names) or view.columns
    listed = ", ".join(quote_name(each.name) for each in columns)
    query = computed_contract(
        view.name,
        group=view.group or "",
        summary=view.summary,
        requires=(view.ref,),
        grain=(),
        order=tuple(each.name for each in columns if not each.type.startswith("MAP(")),
        columns=columns,
    )
    return replace(query, scope="rank", body=f"SELECT {listed} FROM {quote_name(view.name)}")
