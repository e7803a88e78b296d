"""How large a share of the wait_attribution chance explains: late in one step is not slow."""

from __future__ import annotations

import numpy as np
import pytest

from tracewarehouse.derive.wait_attribution import enough_steps, largest_share


def share(wait_attribution: list[list[int]]) -> float:
    """The share that chance explains, for the wait_attribution of each step by rank."""
    rows = [(step, rank, ns) for step, ranks in enumerate(wait_attribution) for rank, ns in enumerate(ranks)]
    step, rank, wait_ns = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    found = largest_share(step, rank, wait_ns, len(wait_attribution[0]))
    assert found is not None
    return found


def late(ranks: int, **wait_attribution: int) -> list[int]:
    """The wait_attribution of a step; `r5=900` is what rank 5 gets, others get 1."""
    return [wait_attribution.get(f"r{rank}", 1) for rank in range(ranks)]


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_late_in_one_step_and_a_little_in_the_next_is_chance(steps: int) -> None:
    # Another rank is late in each step; that of the first step is a little late in the second one, too.
    wait_attribution = [late(2_000, **{f"r{step}": 1_000}) for step in range(steps)]
    wait_attribution[1][0] = 30
    total = sum(map(sum, wait_attribution))
    assert 1_030 / total < share(wait_attribution) < 2_100 / total


@pytest.mark.parametrize("ranks", [8, 500])
def test_late_in_every_step_is_not_chance(ranks: int) -> None:
    wait_attribution = [late(ranks, r3=1_000 + 10 * step) for step in range(6)]
    assert share(wait_attribution) < sum(step[3] for step in wait_attribution) / sum(
        map(sum, wait_attribution)
    )


def test_two_ranks_that_are_late_in_every_step_are_not_chance() -> None:
    wait_attribution = [late(500, r3=1_000, r9=900) for _ in range(3)]
    assert share(wait_attribution) < 2_700 / sum(map(sum, wait_attribution))


def test_few_ranks_need_more_steps_and_two_are_never_enough() -> None:
    least = {ranks: next(n for n in range(20) if enough_steps(n, ranks)) for ranks in (2, 8, 64, 1_024)}
    assert least == {2: 8, 8: 4, 64: 3, 1_024: 3}
