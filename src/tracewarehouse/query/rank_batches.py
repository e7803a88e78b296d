"""Splits the selected ranks into batches for analyses whose ranks are independent of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

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
    limit = most_events or BATCH_EVENTS
    return list(consecutive_ranks(selected, lambda: _EventBatch(limit)))


class Batch(Protocol):
    """A batch of ranks with a limit."""

    def add(self, rank: Rank) -> bool:
        """Whether the rank was added: it fits, or is the first one."""


def consecutive_ranks(
    selected: Iterable[SelectedRun], new_batch: Callable[[], Batch]
) -> Iterator[tuple[SelectedRun, ...]]:
    """The ranks of one or several runs in batches, in order of run and rank."""
    parts: list[SelectedRun] = []
    batch = new_batch()
    for each in sorted(selected, key=lambda each: each.run):
        ranks: list[int] = []
        for rank in each.by_rank:
            if not batch.add(rank):
                yield (*parts, replace(each, ranks=tuple(ranks))) if ranks else tuple(parts)
                parts, ranks, batch = [], [], new_batch()
                batch.add(rank)
            ranks.append(rank.rank)
        parts.append(replace(each, ranks=tuple(ranks)))
    yield tuple(parts)


@dataclass
class _EventBatch:
    limit: int
    events: int = 0

    def add(self, rank: Rank) -> bool:
        if self.events and self.events + _events(rank) > self.limit:
            return False
        self.events += _events(rank)
        return True


def _events(rank: Rank) -> int:
    count = rank.facts.get("events")
    return count if isinstance(count, int) else 0
