"""Change points: compared with brute force, and on several kinds of noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest

from tracewarehouse.compare.stats.change_points import MIN_RUNS, Point, _candidates, _noise, find_levels


def change_points(values: Sequence[float], min_effect: float = 0.01) -> tuple[Point, ...]:
    return find_levels(values, min_effect).points


RUNS, STEP, NOISE = 500, 0.03, 0.01
NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(0, NOISE),
    # Student's t with 3 degrees of freedom, of the same standard deviation.
    "heavy tails": lambda chance: (
        NOISE / math.sqrt(3) * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2) / 3)
    ),
    "spikes": lambda chance: (
        chance.gauss(0, NOISE) + (chance.expovariate(12.5) if chance.random() < 0.05 else 0)
    ),
    "skewed": lambda chance: NOISE * (chance.lognormvariate(0, 0.8) - 1) / 1.4,
}


def injected(chance: random.Random, kind: str, changes: int = 4) -> tuple[list[float], list[int]]:
    """500 runs at about 100, and the positions of level changes of ±3 %, at least 25 runs apart."""
    places: list[int] = []
    while len(places) < changes or any(b - a < 25 for a, b in zip(places, places[1:], strict=False)):
        places = sorted(chance.sample(range(25, RUNS - 25), changes))
    level, values = math.log(100), []
    for at in range(RUNS):
        level += chance.choice([-1, 1]) * math.log(1 + STEP) if at in places else 0
        values.append(math.exp(level + NOISES[kind](chance)))
    return values, places


def score(kind: str, series: int, seed: int) -> tuple[int, int, int, int, int]:
    """Counts: changes, located within one run, located elsewhere; intervals with the true position, size."""
    chance = random.Random(f"{kind} {seed}")
    hit = false = place = size = 0
    for _ in range(series):
        values, places = injected(chance, kind)
        for point in change_points(values):
            nearest = min(places, key=lambda at: abs(at - point.at))
            hit += abs(nearest - point.at) <= 1
            false += abs(nearest - point.at) > 5
            if abs(nearest - point.at) <= 5:
                assert None not in (point.change, point.low, point.high)
                truth = STEP if point.change > 0 else 1 / (1 + STEP) - 1  # type: ignore[operator]
                place += point.earliest <= nearest <= point.latest
                size += point.low <= truth <= point.high  # type: ignore[operator]
    return series * 4, hit, false, place, size


def test_the_candidates_are_the_optimum() -> None:
    """All ways to segment a short series, with their cost by definition."""
    chance = random.Random(7)

    def cost(part: Sequence[float]) -> float:
        pairs = sum(math.exp(-0.1 * (a - b) ** 2) for a in part for b in part)
        return len(part) - pairs / len(part)

    for _ in range(20):
        level = chance.choice([0.0, 4.0, 8.0])
        values = [chance.gauss(level if at > 6 else 0.0, 1) for at in range(13)]
        ways = [
            cut
            for count in range(4)
            for cut in combinations(range(3, 11), count)
            if all(b - a >= 3 for a, b in zip((0, *cut), (*cut, 13), strict=False))
        ]
        price = {
            cut: sum(cost(values[a:b]) for a, b in zip((0, *cut), (*cut, 13), strict=True))
            + 0.8 * math.log(13) * len(cut)
            for cut in ways
        }
        assert tuple(_candidates(np.array(values))) == min(price, key=lambda cut: price[cut])


@pytest.mark.parametrize("kind", NOISES)
def test_steps_of_3_percent_at_1_percent_noise_are_found(kind: str) -> None:
    injected, hit, false, place, size = score(kind, 10, seed=1)
    assert hit >= 0.9 * injected, (hit, injected)
    assert (false, place >= 0.9 * hit, size >= 0.85 * hit) == (0, True, True)


@pytest.mark.parametrize("kind", NOISES)
def test_500_runs_of_noise_have_no_change(kind: str) -> None:
    chance = random.Random(kind)
    assert [change_points([100 + 100 * NOISES[kind](chance) for _ in range(RUNS)]) for _ in range(3)] == [
        ()
    ] * 3


@pytest.mark.deep
@pytest.mark.parametrize("kind", NOISES)
def test_history_finds_its_changes_and_no_others(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    injected, hit, false, place, size = score(kind, 100, seed=2)
    chance = random.Random(f"{kind} alone")
    alone = [len(change_points([100 + 100 * NOISES[kind](chance) for _ in range(RUNS)])) for _ in range(100)]
    with capsys.disabled():
        print(f"\n{kind}: {hit} of {injected} steps of 3 % found within one run of {RUNS} in a series;")
        print(f"false points: {false} in 100 series with steps, {sum(alone)} in 100 without;")
        print(f"of {hit} intervals {place} hold the place, {size} the size")
    assert hit >= 0.9 * injected
    assert max(alone) <= 1 and false + sum(alone) <= 2
    assert place >= 0.95 * hit and size >= 0.9 * hit


def test_a_step_without_noise_is_located_and_sized_exactly() -> None:
    (point,) = change_points([100.0] * 20 + [103.0] * 20)
    assert (point.at, point.earliest, point.latest) == (20, 19, 21)
    assert (point.change, point.low, point.high) == (0.03, 0.03, 0.03)
    (back,) = change_points([103.0] * 20 + [100.0] * 20)
    assert back.change == -3 / 103


def test_two_changes_and_the_segment_between() -> None:
    chance = random.Random(3)
    values = [level + chance.gauss(0, 0.5) for level in [100] * 30 + [110] * 8 + [100] * 30]
    first, second = change_points(values)
    assert (first.at, second.at) == (30, 38)
    assert first.change is not None and 0.09 < first.change < 0.11
    assert second.change is not None and -0.10 < second.change < -0.08


def test_small_changes_are_reported_on_request() -> None:
    values = [100.0 + at % 2 / 10 for at in range(40)] + [100.5 + at % 2 / 10 for at in range(40)]
    assert change_points(values) == ()
    assert [point.at for point in change_points(values, min_effect=0.001)] == [40]


def test_spikes_and_short_series_have_no_change() -> None:
    assert change_points([]) == change_points([5.0]) == ()
    assert change_points([100.0] * 50) == change_points([0.0] * 50) == ()
    assert change_points([100.0] * 30 + [900.0] + [100.0] * 30) == ()
    assert change_points([100.0] * 5 + [200.0] * (MIN_RUNS - 6)) == ()
    assert len(change_points([100.0] * 6 + [200.0] * 6)) == 1


def test_spikes_before_a_rise_count_for_neither_level() -> None:
    chance = random.Random("spikes 2")
    for _ in range(34):
        values, places = injected(chance, "spikes")
    found = [point.at for point in change_points(values)]
    assert places == [65, 164, 253, 423] and values[415] > 113 and values[416] > 122
    assert found[:3] == places[:3] and abs(found[3] - 423) <= 3


def test_levels_of_0_and_below() -> None:
    (point,) = change_points([0.0] * 20 + [5.0] * 20)
    assert (point.at, point.change, point.low, point.high) == (20, None, None, None)
    (point,) = change_points([-100.0] * 20 + [-90.0] * 20)
    assert (point.at, point.change) == (20, 0.1)
    (point,) = change_points([4.0] * 20 + [0.0] * 20)
    assert (point.at, point.change) == (20, -1.0)


def test_noise_excludes_level_changes() -> None:
    chance = random.Random(4)
    values = [100 * (at // 50) + chance.gauss(0, 2) for at in range(400)]
    assert 1.6 < _noise(np.array(values)) < 2.4
    assert _noise(np.array([1.0] * 20 + [2.0] * 20)) > 0
