"""The selected runs of a warehouse, with the store and the connections that read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.runs.selection import SelectedRun, narrow, only_ranks, select_runs
from tracewarehouse.storage import Store, parse_reference
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.query.connections import ConnectionPool
    from tracewarehouse.result import Result


class WarehouseBase:
    """A folder and its selected runs: all of them unless narrowed with `select`."""

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        catalog: Catalog | None = None,
        selected: Sequence[SelectedRun] | None = None,
        store: Store | None = None,
        pool: ConnectionPool | None = None,
    ) -> None:
        self.root = Path(path).absolute()
        self.catalog = catalog or Catalog.load()
        self._selected = None if selected is None else tuple(selected)
        self._store, self._opened_pool = store, pool

    def __repr__(self) -> str:
        if self._selected is None:
            return f"Warehouse({str(self.root)!r})"
        return f"Warehouse({str(self.root)!r}, runs={[each.selector for each in self._selected]})"

    @property
    def store(self) -> Store:
        """The files of the warehouse; raises WarehouseError if there is none."""
        if self._store is None:
            self._store = Store.open(self.root, tool=__version__)
        return self._store

    def selected(self) -> tuple[SelectedRun, ...]:
        """The selected runs in time order; without a selection, the newest version of every run."""
        return select_runs(self.store) if self._selected is None else self._selected

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
        return self._with(selected)

    def run(self, name: str, version: int | None = None, **params: object) -> Result:
        """The rows of an analysis."""
        raise NotImplementedError

    def query(self, sql: str) -> Result:
        """The rows of one SELECT over the tables and views."""
        raise NotImplementedError

    @property
    def _pool(self) -> ConnectionPool:
        if self._opened_pool is None:
            from tracewarehouse.query.connections import ConnectionPool

            self._opened_pool = ConnectionPool(self.root, self.catalog)
        return self._opened_pool

    def _with(self, selected: Sequence[SelectedRun]) -> Self:
        """A warehouse over other runs that shares the store (with its cached versions) and connections."""
        return type(self)(
            self.root, catalog=self.catalog, selected=selected, store=self.store, pool=self._pool
        )

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
