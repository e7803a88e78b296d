"""`--normalize`: times and sizes per sample, per token or per unit of another label, in verdict and gates."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import CliResult
from cli_runner import tw as call
from simulated import section
from tracewarehouse.errors import ParamError, TwError
from tracewarehouse.simulation import Noise

SETTINGS: dict[str, Any] = {"ranks": 2, "layers": 1, "steps": 5, "stacks": False}
BATCHES = {"four": 4, "eight": 8}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("normalize")
    for name, batch in BATCHES.items():
        tw.simulate(folder / "sim" / name, **SETTINGS, batch=batch, noise=Noise(0, 0, 0, 0))
    tw.simulate(folder / "sim" / "plain", **SETTINGS, noise=Noise(0, 0, 0, 0))
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    for name, batch in BATCHES.items():
        work = {"samples_per_step": str(batch), "tokens_per_step": str(512 * batch), "pixels": "0"}
        warehouse.label(name, work)
    return warehouse


def mean_ns(wh: tw.Warehouse, run: str) -> Fraction:
    """The mean complete step according to the scheduler."""
    rows = section(wh.root.parent / "sim" / run, "step_summary")
    periods = [row["period_ns"] for row in rows if not row["partial"]]
    return Fraction(sum(periods), len(periods))


def diff(wh: tw.Warehouse, *args: str) -> CliResult:
    return call("diff", "four", "eight", *args, "-w", wh.root)


def test_the_breakdown_is_per_sample_and_adds_up(wh: tw.Warehouse) -> None:
    parts = wh.diff("four", "eight").changes(normalize="sample").breakdown
    assert parts is not None
    means = [mean_ns(wh, run) / batch for run, batch in BATCHES.items()]
    assert [parts.base_mean, parts.head_mean] == means
    for level in parts.levels:
        assert [level.base, level.head] == means, level.name
    # Twice the work in as many calls: each call takes longer per step, and not more often.
    calls = {row.part: row for row in parts.level("kernels").rows if row.calls is not None}
    assert all(row.calls == 0 for row in calls.values() if row.base_count == row.head_count)


@pytest.mark.deep
def test_the_verdict_is_per_sample(wh: tw.Warehouse) -> None:
    change = wh.diff("four", "eight").changes(normalize="sample")
    truth = float(mean_ns(wh, "eight") / mean_ns(wh, "four") / 2 - 1)
    assert change.verdict.change == pytest.approx(truth, abs=0.01)
    assert change.verdict.word == "faster" and change.line.startswith("median step per sample ")
    assert wh.diff("four", "eight").changes().verdict.word == "slower"


@pytest.mark.deep
def test_times_per_token_are_of_a_thousand_tokens(wh: tw.Warehouse) -> None:
    out = diff(wh, "--normalize", "token").out
    assert "median step per 1,000 tokens " in out and "mean step per 1,000 tokens " in out
    change = wh.diff("four", "eight").changes(normalize="token")
    parts, verdict = change.breakdown, change.verdict
    assert parts is not None and parts.base_mean == mean_ns(wh, "four") * 1_000 / (512 * 4)
    assert verdict.base_median_ns == pytest.approx(float(parts.base_mean), rel=0.01)


@pytest.mark.deep
def test_gates_are_per_unit(wh: tw.Warehouse) -> None:
    per_sample = float(mean_ns(wh, "eight") / 8)
    above, below = (f"step_time<={round(per_sample * factor)}ns" for factor in (1.1, 0.9))
    memory = "memory_peak.peak_bytes[device=0,rank=0]<=+1%"
    count = "kernel_summary.count<=+0%"
    gates = [text for gate in (above, "step_time<=+10%", memory, count) for text in ("--gate", gate)]
    passed = diff(wh, "--normalize", "sample", *gates, "--json")
    (row,) = json.loads(passed.out)["result"]
    assert [gate["outcome"] for gate in row["gates"]] == ["pass"] * 4, row["gates"]
    assert row["gates"][0]["head"] == pytest.approx(per_sample, rel=0.01)
    assert diff(wh, "--normalize", "sample", "--gate", below).code == 3
    for text in (memory, "step_time<=+10%"):  # of the step itself
        assert diff(wh, "--gate", text).code == 3


@pytest.mark.deep
def test_a_label_counts_the_work(wh: tw.Warehouse) -> None:
    by_label = wh.diff("four", "eight").changes(normalize="label.samples_per_step")
    assert by_label.verdict.change == wh.diff("four", "eight").changes(normalize="sample").verdict.change
    assert "per unit of samples_per_step" in by_label.line


def test_what_cannot_be_normalized_is_refused(wh: tw.Warehouse) -> None:
    with pytest.raises(TwError, match="run plain lacks the label samples_per_step"):
        wh.diff("four", "plain").changes(normalize="sample")
    with pytest.raises(TwError, match="pixels=0, not a number above 0"):
        wh.diff("four", "eight").changes(normalize="label.pixels")
    with pytest.raises(ParamError, match="unknown normalize 'steps'"):
        wh.diff("four", "eight").changes(normalize="steps")
    with pytest.raises(ParamError, match="only times of complete steps"):
        wh.diff("four", "eight").changes(normalize="sample", interval="window")
    assert diff(wh, "kernel_summary", "--normalize", "sample").code == 2


@pytest.mark.deep
def test_different_work_is_noted(wh: tw.Warehouse) -> None:
    noted = "samples_per_step: base 4, head 8; times per sample: --normalize sample"
    assert noted in diff(wh).out
    assert noted not in call("diff", "four", "plain", "-w", wh.root).out
