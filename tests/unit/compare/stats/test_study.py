"""Error rates and power of the statistics: within bounds, and equal to POWER.md."""

from __future__ import annotations

import pytest

from conftest import deep
from stats.simulated_runs import ALIKE, HEAVY
from stats.study import (
    BOUND,
    FILE,
    PAIRS,
    SHIFTS,
    STALLS,
    advised,
    alarm_line,
    called_different,
    fewest,
    from_truth,
    kernel_line,
    kernels_found,
    lines,
    mean_share,
    pairs,
    row_alarms,
    share,
    stalls_seen,
    true_spread,
    words,
    wrong,
)

KNOWN = FILE.read_text(encoding="utf-8").splitlines()


@pytest.mark.deep
def test_five_equal_runs_per_side_cause_few_false_alarms() -> None:
    found, flagged = words(5, HEAVY), row_alarms(5, HEAVY)
    print(f"{wrong(found)} verdicts and {flagged} pairs with a row of {PAIRS}")
    assert wrong(found) <= BOUND
    assert flagged <= BOUND
    assert alarm_line(5, HEAVY) in KNOWN


@pytest.mark.deep
def test_one_equal_run_per_side_causes_few_false_alarms() -> None:
    found, flagged = words(1, ALIKE), row_alarms(1, ALIKE)
    print(f"{wrong(found)} verdicts and {flagged} pairs with a row of {PAIRS}")
    assert wrong(found) <= BOUND
    assert flagged <= BOUND
    assert alarm_line(1, ALIKE) in KNOWN


@pytest.mark.parametrize("count", [20, *deep(60)])
def test_one_run_per_side_is_never_more_than_within_run(count: int) -> None:
    """If runs differ only by chance, one run per side cannot show it; the verdict says so."""
    for pair in pairs(1, HEAVY, count):
        found = pair.verdict()
        assert found.sample == "step" and "; runs of one job vary by 1–3 %" in found.line()


@pytest.mark.parametrize(("shift", "least"), [(0.03, 0.90), *deep((0.02, 0.60))])
def test_five_runs_per_side_find_what_they_should(shift: float, least: float) -> None:
    power = words(5, HEAVY, shift)["slower"] / PAIRS
    print(power)
    assert power >= least


def test_one_slow_kernel_of_many_is_found() -> None:
    found, _ = kernels_found(5, HEAVY)
    print(f"{found} of {PAIRS}")
    assert found >= 0.9 * PAIRS
    assert kernel_line(5) in KNOWN


@pytest.mark.parametrize("steps", [5, 8, *deep(6, 12)])
def test_few_steps_that_depend_on_each_other_cause_few_false_alarms(steps: int) -> None:
    for kept in (0.0, 0.3, 0.5, 0.6):
        false = called_different(kept, steps, count=100)
        assert false <= 0.10 * 100 + 2.33 * 3, kept


def test_means_hold_their_level_and_see_what_medians_do_not() -> None:
    assert mean_share(5, 0.0, 200) <= 0.05 + 2.33 * 0.0154
    assert mean_share(5, 0.03, 100) >= 0.90
    for slowed in STALLS.values():
        by_median, by_mean = stalls_seen(slowed, draws=20)
        assert by_mean == 1 and by_median < 0.5


@pytest.mark.deep
def test_the_complete_study_equals_power_md() -> None:
    assert list(lines()) == KNOWN


@pytest.mark.deep
def test_the_power_curve_holds_its_bounds() -> None:
    power = {
        (runs, shift): share(runs, shift, ("slower",)) for runs, shift in ((5, 0.02), (8, 0.02), (5, 0.03))
    }
    print(power)
    assert power[5, 0.02] >= 0.60
    assert power[8, 0.02] >= 0.90
    assert power[5, 0.03] >= 0.90


@pytest.mark.deep
def test_runs_needed_agree_with_the_power_curve() -> None:
    spread = true_spread()
    for shift in (0.0, *SHIFTS):
        measured = fewest(shift)
        for suggested in (from_truth(shift, spread), advised(shift, 3), advised(shift, 5)):
            print(shift, measured, suggested)
            assert 1 / 1.5 <= suggested / measured <= 1.5
