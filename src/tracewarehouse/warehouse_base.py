"""The selected runs of a warehouse, with the store and the connections that read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Self

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.location import Location, StoreUrl, location
from tracewarehouse.runs.readable import ReadableRuns, file_faults, intact_runs, queryable_runs, readable_runs
from tracewarehouse.runs.rows import catalog_row, damaged_runs
from tracewarehouse.runs.selection import SelectedRun, narrow, only_ranks, select_runs
from tracewarehouse.storage import Store, UnreadableRun, parse_reference
from tracewarehouse.storage.parquet_file import Level, default_level
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.engines import EngineOrName
    from tracewarehouse.query.connections import ConnectionPool
    from tracewarehouse.result import Result


class WarehouseBase:
    """A folder or URL and its selected runs: all of them unless narrowed with `select`.

    Each file is checked when it is first opened: size and footer, with `verify` (or TW_VERIFY=1) every byte.
    """

    def __init__(
        self,
        path: str | PathLike[str] | StoreUrl,
        *,
        storage_options: Mapping[str, object] | None = None,
        catalog: Catalog | None = None,
        selected: Sequence[SelectedRun] | None = None,
        left_out: Sequence[UnreadableRun] = (),
        store: Store | None = None,
        pool: ConnectionPool | None = None,
        verify: bool = False,
        engine: EngineOrName | None = None,
    ) -> None:
        self.root: Location = location(path, storage_options)
        self.catalog = catalog or Catalog.load()
        self._selected = None if selected is None else tuple(selected)
        self._left_out = tuple(left_out)
        self._store, self._opened_pool = store, pool
        self._level = Level.FULL if verify else default_level()
        self._engine = engine

    def __repr__(self) -> str:
        if self._selected is None:
            return f"Warehouse({str(self.root)!r})"
        return f"Warehouse({str(self.root)!r}, runs={[each.selector for each in self._selected]})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections of this warehouse; a `with` statement does so at its end.

        Connections are opened on demand: a closed warehouse can be used again.
        """
        if self._opened_pool is not None:
            self._opened_pool.close()

    @property
    def store(self) -> Store:
        """The files of the warehouse; raises WarehouseError if there is none."""
        if self._store is None:
            self._store = Store.open(self.root, tool=__version__)
        return self._store

    def _list_new_versions(self) -> None:
        """Adds what this warehouse published to the lists of runs, if it published anything."""
        if self._store is not None:
            self._store.list_new_versions(catalog_row)

    def selected(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; without a selection, the newest version of every run."""
        return select_runs(self.store) if self._selected is None else self._selected

    @property
    def left_out(self) -> tuple[UnreadableRun, ...]:
        """The damaged runs that `selected` leaves out; naming one of them is an error instead."""
        return self.store.unreadable() if self._selected is None else self._left_out

    def select(
        self, runs: str | Iterable[str] | None = None, ranks: int | Iterable[int] | None = None
    ) -> Self:
        """The same warehouse narrowed to runs (selectors) and ranks, each run in its current version.

        Raises UnknownName for a selector or rank without a match.
        """
        selected = (
            self.selected() if runs is None else self._matching([runs] if isinstance(runs, str) else runs)
        )
        if ranks is not None:
            selected = only_ranks(selected, [ranks] if isinstance(ranks, int) else ranks)
        named = bool(selected) and all(each.named for each in selected)
        return self._with(selected, () if named else self._unreadable())

    def _unreadable(self) -> tuple[UnreadableRun, ...]:
        if self._selected is not None:
            return self._left_out
        self.store.entries(catalog_row)
        return self.store.unreadable()

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis."""
        raise NotImplementedError

    def run_or_skip(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis, without runs that lack a table of it."""
        raise NotImplementedError

    def check(self, *, passed: bool = False) -> Result:
        """The findings."""
        raise NotImplementedError

    def query_all(self, sql: str) -> Result:
        """The rows of one SELECT over the tables and views, without limits."""
        raise NotImplementedError

    @property
    def _pool(self) -> ConnectionPool:
        if self._opened_pool is None:
            from tracewarehouse.query.connections import ConnectionPool

            self._opened_pool = ConnectionPool(self.store, self.catalog)
        return self._opened_pool

    def _with(self, selected: Sequence[SelectedRun], left_out: Sequence[UnreadableRun] = ()) -> Self:
        """A warehouse over other runs that shares the store (with its cached versions) and connections."""
        return type(self)(
            self.root,
            catalog=self.catalog,
            selected=selected,
            left_out=left_out,
            store=self.store,
            pool=self._pool,
            verify=self._level is Level.FULL,
            engine=self._engine,
        )

    def on(self, engine: EngineOrName) -> Self:
        """The same warehouse with analyses computed by the workers of an engine, with the same rows.

        `engine` is `"local"`, `"ray"`, or one that `tw.engine` made, which several analyses can use. Groups
        of ranks are read by workers: `wh.select("fp8-on").on("ray").kernel_summary()`. Raises EngineError
        later, when an analysis runs.
        """
        narrowed = copy(self)
        narrowed._engine = engine
        return narrowed

    def _verified(self, selected: Sequence[SelectedRun]) -> Self:
        """The warehouse over other runs, for reads whose result is stored: hashes files entirely, and damage
        is an error.
        """
        narrowed = self._with([replace(each, named=True) for each in selected])
        narrowed._level = Level.FULL
        return narrowed

    def _readable(
        self, contracts: Iterable[Contract], selected: Sequence[SelectedRun], level: Level | None = None
    ) -> ReadableRuns:
        """The selected runs that hold these tables in intact files, and notices about the others."""
        contracts = tuple(contracts)
        return self._intact(contracts, readable_runs(self.catalog, contracts, selected), level)

    def _queryable(
        self,
        contracts: Iterable[Contract],
        selected: Sequence[SelectedRun],
        names: Collection[str] | None,
        level: Level | None = None,
        may_be_absent: bool = False,
    ) -> ReadableRuns:
        """Like `_readable`, for SQL of a user that names these columns (None: it may name all)."""
        contracts = tuple(contracts)
        runs = queryable_runs(self.catalog, contracts, selected, names, may_be_absent)
        return self._intact(contracts, runs, level)

    def _intact(self, contracts: Iterable[Contract], runs: ReadableRuns, level: Level | None) -> ReadableRuns:
        level = self._level if level is None else level
        intact = intact_runs(self.store, self.catalog, contracts, runs.selected, level)
        notices = (*damaged_runs(self.left_out), *intact.notices, *runs.notices)
        return ReadableRuns(intact.selected, notices)

    def _verified_files(self, selected: Sequence[SelectedRun]) -> dict[str, str]:
        """Run → its first damaged file and the problem, if files are verified entirely."""
        return file_faults(self.store, selected, self._level) if self._level is Level.FULL else {}

    def _matching(self, runs: Iterable[str]) -> tuple[SelectedRun, ...]:
        return select_runs(self.store, runs) if self._selected is None else narrow(self._selected, runs)

    def _one(self, run: str) -> Self:
        """The warehouse narrowed to a single run; raises UnknownName if the selector matches several."""
        matches = self._matching([run])
        if len(matches) != 1:
            names = ", ".join(each.run for each in matches)
            raise UnknownName("single run", run, [], f"it matches {names}")
        return self._with(matches)

    def _unversioned(self, run: str, what: str) -> str:
        """The selector itself; raises ParamError if it selects one version, since `what` applies to all."""
        name, version = parse_reference(run)
        if version is not None:
            raise ParamError(f"{run} is one version, and {what} applies to the run", f"use {name}")
        return run
