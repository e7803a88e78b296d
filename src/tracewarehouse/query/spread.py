"""Analyses on an engine: by groups of ranks, as map and reduce, or whole.

An analysis of single ranks runs per group of ranks, and its parts are concatenated in order. One that
compares ranks reads views, some of which are of single ranks: those are computed per group of ranks (map),
and the analysis runs unchanged over their rows (reduce). The contracts decide which views these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, Ref, computed_contract
from tracewarehouse.contracts.sql_tokens import names_read, quote_name
from tracewarehouse.duck.arrow import concatenate
from tracewarehouse.engines import Engine, cores, is_remote, results_in_order
from tracewarehouse.query.connections import ConnectionPool
from tracewarehouse.query.dependencies import Dependencies
from tracewarehouse.query.parts import ComputePart, PartRows, parts_folder, ranks_of
from tracewarehouse.query.rank_batches import BATCH_EVENTS, event_batches, event_count, is_by_rank
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Store
from tracewarehouse.storage.parquet_file import Level

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Spread:
    """Runs analyses on an engine; `part_events` is the size of a group of ranks."""

    store: Store
    catalog: Catalog
    engine: Engine
    level: Level
    part_events: int = BATCH_EVENTS

    def run(
        self, contract: Contract, bound: Mapping[str, object], selected: Sequence[SelectedRun]
    ) -> pa.Table | None:
        """The rows of an analysis; None if it cannot be spread. Raises TwError if a part fails."""
        read = Dependencies.of(self.catalog, [contract])
        by_rank = is_by_rank(contract, read.contracts)
        views = () if by_rank else mapped_views(self.catalog, contract)
        if not selected or not (by_rank or views):
            return None
        queries = [contract] if by_rank else [view_query(self.catalog, contract, view) for view in views]
        with parts_folder(on_this_machine=not is_remote(self.engine)) as folder:
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
    ) -> list[tuple[PartRows, ...]]:
        """The rows of the queries for each group of ranks, in order."""
        remote = is_remote(self.engine)
        share = -(-event_count(selected) // self.engine.slots)
        tasks = [
            ComputePart(
                self.store,
                self.catalog.custom_folder,
                tuple(queries),
                bound,
                ranks_of(group),
                self.level,
                folder,
                1 if remote else max(1, cores() // self.engine.slots),
            )
            for group in event_batches(selected, min(self.part_events, max(1, share)))
        ]
        return [one for one in results_in_order(self.engine, tasks) if isinstance(one, tuple)]


def _read(parts: Iterable[PartRows]) -> pa.Table:
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
