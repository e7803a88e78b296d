"""Gates with one run per side, and a baseline of few runs: their outcomes are within bounds."""

from __future__ import annotations

import pytest

from stats.gate_study import false_alarms, gate_lines, outcomes

PAIRS = 40


@pytest.mark.parametrize("recorded", [0, 3, 12])
def test_one_run_per_side_decides_what_is_clear_and_nothing_else(recorded: int) -> None:
    """The bound is +5 %: a change of 40 % fails, and a change of the bound is rarely decided."""
    equal, at_bound, clear = (outcomes(change, recorded, PAIRS) for change in (0.0, 0.05, 0.40))
    print(equal, at_bound, clear)
    assert clear["fail"] == PAIRS
    assert at_bound["fail"] + at_bound["pass"] <= 0.1 * PAIRS
    assert equal["fail"] == 0


def test_recorded_runs_decide_more_than_the_assumed_deviation() -> None:
    assumed, known = (outcomes(0.0, recorded, PAIRS)["pass"] for recorded in (0, 12))
    assert assumed == 0 and known >= PAIRS / 2


@pytest.mark.parametrize(("since", "heads"), [(3, 1), (3, 3), (5, 1), (8, 3)])
def test_a_baseline_of_few_runs_keeps_its_level(since: int, heads: int) -> None:
    known, _ = false_alarms(since, heads, 2_000, 0)
    assert 0.03 <= known <= 0.065


@pytest.mark.deep
def test_a_detected_change_point_keeps_the_level() -> None:
    known, detected = false_alarms(3, 3, detected=4_000)
    assert known <= 0.056 and 0 < detected <= 0.065


@pytest.mark.deep
def test_the_section_has_all_rows() -> None:
    assert sum(line.startswith("| ") for line in gate_lines()) == 13
