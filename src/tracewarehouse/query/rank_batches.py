"""Very many ranks, some at a time: what an analysis says of ranks it says of each of them alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tracewarehouse.contracts.contract import Contract
from tracewarehouse.runs.selection import SelectedRun
from tracewarehouse.storage import Rank

# So many are asked about at once: sorting and grouping more takes longer for each.
SLICE_EVENTS = 2_000_000
_FIRST = ["run_id", "rank"]


def events(selected: Iterable[SelectedRun]) -> int:
    """The events of all chosen ranks."""
    return sum(_events(rank) for each in selected for rank in each.by_rank)


def slices(
    contract: Contract, read: Iterable[Contract], selected: Sequence[SelectedRun]
) -> list[tuple[SelectedRun, ...]]:
    """Ranks to ask about together, in the order of the answer; all at once where it is not of ranks alone.

    `read` is all that the analysis stands on.
    """
    of_run = contract.scope == "run" or any(each.is_built or each.name == "data_quality" for each in read)
    order = list(dict.fromkeys((*contract.order, *contract.grain)))[:2]
    if of_run or order != _FIRST or events(selected) <= SLICE_EVENTS:
        return [tuple(selected)]
    return list(_cut(sorted(selected, key=lambda each: each.run)))


def _cut(selected: Iterable[SelectedRun]) -> Iterator[tuple[SelectedRun, ...]]:
    taken: list[SelectedRun] = []
    count = 0
    for each in selected:
        ranks: list[int] = []
        for rank in each.by_rank:
            if count and count + _events(rank) > SLICE_EVENTS:
                yield (*taken, replace(each, ranks=tuple(ranks))) if ranks else tuple(taken)
                taken, ranks, count = [], [], 0
            ranks.append(rank.rank)
            count += _events(rank)
        taken.append(replace(each, ranks=tuple(ranks)))
    yield tuple(taken)


def _events(rank: Rank) -> int:
    count = rank.facts.get("events")
    return count if isinstance(count, int) else 0
