"""The spread between runs is attributed to the kernels and the rank that it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from simulated import SMALL
from tracewarehouse.compare.diff.causes import spread
from tracewarehouse.simulation import Noise

RUNS = 6


def test_the_windows_of_a_job_count_as_one_run(tmp_path: Path) -> None:
    for seed, runs in enumerate((("a", "a~2"), ("b", "b~2"), ("c",), ("d",))):
        for run in runs:
            tw.simulate(tmp_path / "t" / run, **{**SMALL, "ranks": 1, "steps": 4, "seed": seed, "layers": 1})
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "t", jobs=1)
    assert [run.job for run in wh.select("a~2").selected()] == ["a~2"]  # only its name looks like a window
    for run in ("a", "b"):
        wh.label(run, {"span": "1"})
        wh.label(f"{run}~2", {"span": "2"})
    change = wh.diff(["a", "a~2"], ["b", "b~2"]).changes(gates=["step_time<=+5%"])
    assert change.breakdown is not None and change.breakdown.replicate == "step"
    assert change.verdict.sample != "run" and change.gates[0].outcome == "inconclusive"
    notes = [each.message for each in change.differences if each.what == "windows"]
    assert notes[0] == "base: 2 runs are profiling windows of job a, and count as one run"
    # Two jobs on each side, one of two windows.
    several = wh.diff(["a", "a~2", "c"], ["b", "d"])
    parts = several.changes().breakdown
    assert parts is not None and parts.replicate == "run"
    assert all(len(row.base_replicates) == 2 for level in parts.levels for row in level.rows)
    assert any(row["q"] is not None for row in several.name_summary().rows())


@pytest.mark.deep
def test_the_rank_and_kernel_that_vary_are_named(tmp_path: Path) -> None:
    """Six equal runs a rank of which computes at another speed in each."""
    for run in range(RUNS):
        tw.simulate(
            tmp_path / "sim" / f"{'ab'[run % 2]}{run}",
            ranks=4,
            layers=1,
            steps=5,
            stacks=False,
            memory=False,
            seed=run,
            noise=Noise(0, 0.001, 0.001, 0),
            injections=[f"slow-rank:rank=2,what=compute,factor={1 + 0.05 * (run // 2)}"],
        )
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "sim", jobs=1)
    change = wh.diff("a*", "b*").changes()
    assert change.breakdown is not None and change.verdict.word == "inconclusive"
    shares = {
        level: {each.name: each.share for each in spread(change.breakdown) if each.level == level}
        for level in ("kernels", "ranks")
    }
    for of_level in shares.values():
        assert sum(of_level.values()) == pytest.approx(1)
    own = {name: share for name, share in shares["ranks"].items() if name.endswith(" (own work)")}
    assert max(own, key=lambda name: own[name]) == "rank 2 (own work)"
    out = call("diff", "a*", "b*", "-w", wh.root).out
    assert "note: the spread between runs comes from " in out and "is between runs: more runs help" in out
    assert "note: rank 2 varies most: " in out
    (row,) = json.loads(call("diff", "a*", "b*", "-w", wh.root, "--json").out)["result"]
    assert row["spread"][0]["share"] >= row["spread"][1]["share"]
