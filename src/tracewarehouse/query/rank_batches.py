"""Splits the selected ranks into batches for analyses whose ranks are independent of each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank

# Sorting and grouping larger batches takes longer per event.
BATCH_EVENTS = 2_000_000
_RANK_ORDER = ["run_id", "rank"]


def event_count(selected: Iterable[SelectedRun]) -> int:
    """The number of events of all selected ranks."""
    return sum(_events(rank) for each in selected for rank in each.by_rank)


def rank_batches(
    contract: Contract, read: Sequence[Contract], selected: Sequence[SelectedRun]
) -> list[tuple[SelectedRun, ...]]:
    """The selected ranks in batches, in the order of the result; one batch unless ranks are independent.

    `read` are all dependencies of the analysis.
    """
    built = any(each.is_built for each in read)
    if built or not is_by_rank(contract, read) or event_count(selected) <= BATCH_EVENTS:
        return [tuple(selected)]
    return event_batches(selected)


def is_by_rank(contract: Contract, read: Iterable[Contract]) -> bool:
    """Whether the rows of an analysis are those of each rank alone, one rank after the other."""
    order = list(dict.fromkeys((*contract.order, *contract.grain)))[:2]
    # Some rows of `data_quality` compare ranks.
    return (
        contract.scope == "rank"
        and order == _RANK_ORDER
        and all(each.name != "data_quality" for each in read)
    )


def event_batches(
    selected: Iterable[SelectedRun], most_events: int | None = None
) -> list[tuple[SelectedRun, ...]]:
    """Consecutive ranks with up to this number of events each (None: 2 million), in order of run and rank."""
    return list(_batches(sorted(selected, key=lambda each: each.run), most_events or BATCH_EVENTS))


def _batches(selected: Iterable[SelectedRun], most_events: int) -> Iterator[tuple[SelectedRun, ...]]:
    batch: list[SelectedRun] = []
    count = 0
    for each in selected:
        ranks: list[int] = []
        for rank in each.by_rank:
            if count and count + _events(rank) > most_events:
                yield (*batch, replace(each, ranks=tuple(ranks))) if ranks else tuple(batch)
                batch, ranks, count = [], [], 0
            ranks.append(rank.rank)
            count += _events(rank)
        batch.append(replace(each, ranks=tuple(ranks)))
    yield tuple(batch)


def _events(rank: Rank) -> int:
    count = rank.facts.get("events")
    return count if isinstance(count, int) else 0
