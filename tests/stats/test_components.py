"""Components of the spread: simulated deviations of runs and steps are found, with the advice."""

from __future__ import annotations

import numpy as np
import pytest

from tracewarehouse.stats.components import components


@pytest.mark.parametrize(
    ("run", "step", "advice"),
    [
        (0.03, 0.01, "more steps do not"),
        (0.01, 0.01, "more steps do not"),
        (0.01, 0.03, "more steps a little"),
        (0.0, 0.03, "more steps help as much"),
    ],
)
def test_components_are_those_of_the_simulation(run: float, step: float, advice: str) -> None:
    """30 runs of 10 steps, on sides of different levels."""
    found = []
    for seed in range(20):
        chance = np.random.default_rng(seed)
        sides = [
            [level + run * chance.standard_normal() + step * chance.standard_normal(10) for _ in range(15)]
            for level in (18.0, 18.5)
        ]
        parts = components(sides)
        assert parts is not None
        found.append(parts)
    assert np.median([each.run for each in found]) == pytest.approx(run, rel=0.25, abs=0.003)
    assert np.median([each.step for each in found]) == pytest.approx(step, rel=0.25)
    assert sum(advice in each.advice for each in found) >= 16


def test_too_few_runs_or_steps_have_no_components() -> None:
    assert components([[[1.0] * 5], [[1.0] * 5]]) is None
    assert components([[[1.0, 2.0]] * 4, [[1.0, 2.0]] * 4]) is None
