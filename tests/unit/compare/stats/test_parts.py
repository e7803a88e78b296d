"""Changes in many series at once: injected ones are found, and few others."""

from __future__ import annotations

import numpy as np
import pytest

from tracewarehouse.compare.stats.many_series import part_changes, scan_p

PARTS, RUNS, MOVED = 200, 40, 3


def rows(seed: int, moved: int = 0) -> np.ndarray:
    """200 parts with 2 % noise each; some are 5 % larger from run 30 of 40 on."""
    values = np.exp(0.02 * np.random.default_rng(seed).standard_normal((PARTS, RUNS)))
    values[:moved, 30:] *= 1.05
    return values


def study(seeds: int) -> tuple[float, float, float]:
    """Shares: of injected changes found, of false ones among all found, of studies with any without one."""
    hits = false = alarms = 0
    for seed in range(seeds):
        found = {each.part for each in part_changes(rows(seed, MOVED).tolist())}
        hits += len(found & set(range(MOVED)))
        false += len(found - set(range(MOVED)))
        alarms += bool(part_changes(rows(10_000 + seed).tolist()))
    return hits / (MOVED * seeds), false / max(hits + false, 1), alarms / seeds


def test_three_parts_of_200_that_move_are_found() -> None:
    found, false, alarms = study(8)
    assert found >= 0.8 and false <= 0.2 and alarms <= 0.25


@pytest.mark.deep
def test_false_discoveries_are_controlled(capsys: pytest.CaptureFixture[str]) -> None:
    found, false, alarms = study(200)
    with capsys.disabled():
        print(f"\n+5 % at run 30 of 40: {found:.3f} found, {false:.3f} false; without change {alarms:.3f}")
    assert found >= 0.90 and false <= 0.07 and alarms <= 0.05 + 0.036


def test_a_new_kernel_changes_exactly_where_it_appears() -> None:
    chance = np.random.default_rng(1)
    series = [[0.0] * 18 + [8.0] * 10, chance.standard_normal(28).tolist()]
    (found,) = part_changes(series)
    assert (found.part, found.at, found.before, found.after) == (0, 18, 0.0, 8.0)
    assert part_changes([[1.0] * 28, [1.0] * 5]) == [] == part_changes([])


def test_p_continues_beyond_the_simulation() -> None:
    values = [scan_p(each, 40) for each in (2.0, 3.0, 3.5, 4.0, 5.0)]
    assert values == sorted(values, reverse=True) and 0 < values[-1] < 1e-4
