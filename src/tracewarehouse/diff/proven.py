"""Which rows of an account changed by more than their noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from tracewarehouse.diff.amounts import Amounts
from tracewarehouse.diff.levels import Row


def tested(rows: Sequence[Row], sides: tuple[Amounts, Amounts], alpha: float) -> list[Row]:
    """The rows with their tests (`stats.rows`): by run, or by blocks of steps where a side has one run."""
    from tracewarehouse.stats import rows as tests

    blocks = [list(_blocks(side)) for side in sides]
    base = [_means(row.base_units, blocks[0]) for row in rows]
    head = [_means(row.head_units, blocks[1]) for row in rows]
    whole = [max(side.length_ns, 1) / side.units for side in sides]
    weights = [max(float(row.base) / whole[0], float(row.head) / whole[1]) for row in rows]
    found = tests(base, head, weights, alpha=alpha)
    return [replace(row, test=test) for row, test in zip(rows, found, strict=True)]


def _blocks(side: Amounts) -> Iterator[list[int]]:
    """Replicates that count as one, by their place: each run alone, or blocks of the steps of a run."""
    from tracewarehouse.stats import blocks

    places = range(len(side.replicates))
    for _, found in groupby(places, key=lambda place: side.replicates[place][0]):
        steps = list(found)
        yield from ([steps[at] for at in block] for block in blocks([side.lengths[at] for at in steps]))


def _means(values: Sequence[float], blocks: Sequence[Sequence[int]]) -> list[float]:
    return [sum(values[at] for at in block) / len(block) for block in blocks]
