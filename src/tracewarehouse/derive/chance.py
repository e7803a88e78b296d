"""How large a share of the blame one rank gets by chance, if no rank is slower than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

QUANTILE = 0.99
_LEAST_STEPS = 3
_DRAWS = 1_000
_SEED = 0
_MOST_CELLS = 4_000_000  # draws that are held at once


def enough_steps(steps: int, ranks: int) -> bool:
    """Whether chance can be ruled out: one rank rarely gets the largest part of every step at random.

    Two steps are never enough: they follow each other, and what makes a rank late in one is felt in the next.
    """
    return steps >= _LEAST_STEPS and ranks ** (1 - steps) <= 1 - QUANTILE


def largest_share(step: Integers, rank: Integers, wait_ns: Integers, ranks: int) -> float | None:
    """The 99 % quantile of the largest share of one rank, if the blame of each step is dealt at random.

    None without blame. In each step the ranks are permuted, so that a rank that is late in many steps
    exceeds the quantile. The numbers of ranks make no difference. Among many ranks hardly any is first in two
    steps at random; but a rank that is late in one step often is a little late in the next one too, so the
    result is at least the share of a rank that is first in the two steps with the most.
    """
    total = int(wait_ns.sum())
    if not total:
        return None
    steps, row = np.unique(step, return_inverse=True)
    blame = np.zeros((len(steps), ranks))
    np.add.at(blame, (row, rank), wait_ns)
    blame.sort(axis=1)
    most = blame[:, -1]
    draw = np.random.default_rng(_SEED)
    at_once = max(1, _MOST_CELLS // ranks)
    largest = []
    for first in range(0, _DRAWS, at_once):
        sums = np.zeros((min(at_once, _DRAWS - first), ranks))
        for of_step in blame:
            sums += draw.permuted(np.broadcast_to(of_step, sums.shape), axis=1)
        largest.append(sums.max(axis=1))
    by_chance = np.quantile(np.concatenate(largest), QUANTILE, method="higher")
    first_in_two = np.sort(most)[-2:].sum()
    return float(max(by_chance, first_in_two) / total)
