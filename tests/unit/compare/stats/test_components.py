"""Components of the spread: simulated deviations of runs and steps are found, with the advice."""

from __future__ import annotations

import numpy as np
import pytest

from tracewarehouse.compare.stats.two_sample import components, variance_shares


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


@pytest.mark.deep
def test_the_advice_is_that_of_the_true_components(capsys: pytest.CaptureFixture[str]) -> None:
    """100 settings of 30 runs: right if the true share between runs is in the class of the advice, +- 0.1."""
    chance, right = np.random.default_rng(20_261_123), 0
    for _ in range(100):
        run, step, steps = chance.uniform(0, 0.03), chance.uniform(0.005, 0.03), int(chance.integers(5, 30))
        sides = [
            [run * chance.standard_normal() + step * chance.standard_normal(steps) for _ in range(15)]
            for _ in range(2)
        ]
        found, share = components(sides), run**2 / (run**2 + step**2 / steps)
        assert found is not None
        bounds = {"more steps do not": (0.7, 1.0), "as much as more": (0.0, 0.3), "a little": (0.1, 0.9)}
        low, high = next(bounds[text] for text in bounds if text in found.advice)
        right += low <= share <= high
    with capsys.disabled():
        print(f"\nadvice right in {right} of 100 settings")
    assert right >= 90


def test_shares_of_the_variance_sum_to_one() -> None:
    """The first row has most of it, the second none, and the third shrinks where the first grows."""
    chance = np.random.default_rng(7)
    noise = chance.standard_normal((2, 40))
    rows = [(10 + 2 * side[:20], 12 + 2 * side[20:]) for side in noise[:1]]
    rows += [([5.0] * 20, [50.0] * 20), (3 - 0.5 * noise[0][:20], 4 - 0.5 * noise[0][20:])]
    shares = variance_shares(rows)
    assert shares == pytest.approx([4 / 3, 0, -1 / 3])
    assert variance_shares([([1.0], [2.0])]) is None
    assert variance_shares([([1.0, 1.0], [1.0, 1.0])]) is None
