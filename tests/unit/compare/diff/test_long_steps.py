"""A mean that moves where the median does not: what a comparison says of the long steps."""

from __future__ import annotations

from pathlib import Path

import pytest

import sketch
import tracewarehouse as tw
from tracewarehouse.compare.stats.verdict import StepTimes, verdict
from tracewarehouse.present.answers import github_comment

STEPS, USUAL = 22, 1_000


def put(folder: Path, run: str, long: dict[int, int]) -> None:
    """A run of one rank: a kernel at the start of each step; `long` steps wait that long for a launch."""
    lines, at = [], 0
    for step in range(STEPS):
        extra = long.get(step, 0)
        length = USUAL + extra + (step * 7 + len(run)) % 3
        lines += [
            f"{run} 0 step t1 {step} {at} {length}",
            f"{run} 0 call t1 cudaLaunchKernel {at + 10 + extra} 10 id={step + 1}",
            f"{run} 0 gpu s7 k {at + 30 + extra} 900 id={step + 1}",
        ]
        at += length
    sketch.write("\n".join(lines), folder)


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("long")
    for number in range(3):
        put(folder / "t", f"base{number}", {})
        put(folder / "t", f"one{number}", {12: 20_000})
        put(folder / "t", f"tenth{number}", {5: 2_000, 15: 2_000})
    warehouse = tw.open(folder / "wh")
    warehouse.ingest(folder / "t", jobs=1)
    return warehouse


def test_one_long_step_is_named_with_its_cause(wh: tw.Warehouse) -> None:
    change = wh.diff("base?", "one?").changes()
    assert change.verdict.word == "usual step unchanged"
    assert "mean +" in change.line and change.line.endswith(
        ", because 3 of 60 steps of head took 21 × as long (step 12 of one0: idle: waiting for launch)"
    )
    assert "no change" not in change.line
    assert github_comment(change, ("breakdown",), 5).startswith("## ⚠️ tw diff: usual step unchanged")


def test_every_tenth_step(wh: tw.Warehouse) -> None:
    change = wh.diff("base?", "tenth?").changes()
    assert change.verdict.word == "usual step unchanged"
    assert "because 6 of 60 steps of head took 3 × as long (step 15 of tenth0: " in change.line
    assert "because 6 of 60 steps of base took 3 ×" in wh.diff("tenth?", "base?").changes().line


def test_without_long_steps_nothing_is_said(wh: tw.Warehouse) -> None:
    change = wh.diff("base0", "base1").changes()
    assert change.long_steps is None and "because" not in change.line


@pytest.mark.parametrize(
    ("head_mean", "word"),
    [(101.5, "usual step unchanged"), (98.5, "usual step unchanged"), (100.5, "no change")],
)
def test_no_change_is_never_said_if_the_mean_moved(head_mean: float, word: str) -> None:
    side = StepTimes(((100, 101, 100),) * 3)
    assert verdict(side, side, total_means=(100.0, head_mean)).word == word
