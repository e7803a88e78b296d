"""Batches of ranks whose files fit the limit on local copies of a remote warehouse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.query.rank_batches import consecutive_ranks, is_by_rank
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank, Versions


def copy_batches(
    store: Versions,
    catalog: Catalog,
    contract: Contract,
    read: Sequence[Contract],
    selected: Sequence[SelectedRun],
) -> list[tuple[SelectedRun, ...]]:
    """The selected ranks in batches that fit, in the order of the result.

    Empty if all of them fit at once, if the ranks of the analysis are not independent, or if a single rank
    does not fit: then the download of the whole selection says so.
    """
    limit = store.files.budget()
    built = any(each.is_built for each in read)
    if limit is None or built or not is_by_rank(contract, read):
        return []
    wanted = {each.ref for table in read if table.is_stored for each in catalog.compatible(table)}
    tables = frozenset((ref.name, ref.version) for ref in wanted)
    batches = list(consecutive_ranks(selected, lambda: _CopyBatch(tables, limit)))
    fits = all(_bytes(each.by_rank, tables) <= limit for batch in batches for each in batch)
    return batches if len(batches) > 1 and fits else []


@dataclass
class _CopyBatch:
    """A file that several ranks share counts once."""

    tables: frozenset[tuple[str, int]]
    limit: int
    held: dict[str, int] = field(default_factory=dict)

    def add(self, rank: Rank) -> bool:
        new = _files([rank], self.tables)
        if self.held and sum({**self.held, **new}.values()) > self.limit:
            return False
        self.held |= new
        return True


def _bytes(ranks: Iterable[Rank], tables: frozenset[tuple[str, int]]) -> int:
    return sum(_files(ranks, tables).values())


def _files(ranks: Iterable[Rank], tables: frozenset[tuple[str, int]]) -> dict[str, int]:
    """Key → size of the files of these tables."""
    return {
        file.path: file.bytes
        for rank in ranks
        for source in rank.sources
        for file in source.files
        if (file.table, file.version) in tables
    }
