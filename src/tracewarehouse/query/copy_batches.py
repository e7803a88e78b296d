"""Batches of ranks whose files fit the limit on local copies of a remote warehouse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank, Versions

_RANK_ORDER = ["run_id", "rank"]


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
    if limit is None or not _is_by_rank(contract, read):
        return []
    wanted = {each.ref for table in read if table.is_stored for each in catalog.compatible(table)}
    tables = frozenset((ref.name, ref.version) for ref in wanted)
    batches = list(_batches(sorted(selected, key=lambda each: each.run), tables, limit))
    fits = all(_bytes(each.by_rank, tables) <= limit for batch in batches for each in batch)
    return batches if len(batches) > 1 and fits else []


def _is_by_rank(contract: Contract, read: Iterable[Contract]) -> bool:
    order = list(dict.fromkeys((*contract.order, *contract.grain)))[:2]
    is_whole = any(each.is_built or each.name == "data_quality" for each in read)
    return contract.scope == "rank" and order == _RANK_ORDER and not is_whole


def _batches(
    selected: Iterable[SelectedRun], tables: frozenset[tuple[str, int]], limit: int
) -> Iterator[tuple[SelectedRun, ...]]:
    """Consecutive ranks of one or several runs; a file that several ranks share counts once."""
    batch: list[SelectedRun] = []
    held: dict[str, int] = {}
    for each in selected:
        ranks: list[int] = []
        for rank in each.by_rank:
            new = _files([rank], tables)
            if held and sum({**held, **new}.values()) > limit:
                yield (*batch, replace(each, ranks=tuple(ranks))) if ranks else tuple(batch)
                batch, ranks, held = [], [], {}
            ranks.append(rank.rank)
            held |= new
        batch.append(replace(each, ranks=tuple(ranks)))
    yield tuple(batch)


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
