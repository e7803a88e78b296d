"""Gates: their syntax and their outcomes."""

from __future__ import annotations

import math
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import cli_runner
import sketch
import tracewarehouse
from conftest import ROOT
from tracewarehouse.compare.diff.gate import Gate, GateOptions, GateResult, decide, parse
from tracewarehouse.compare.diff.gate import _by_interval as by_interval
from tracewarehouse.compare.metric.expression import Measured, RunValue
from tracewarehouse.compare.metric.values import of_steps as measured_steps
from tracewarehouse.compare.metric.values import step_statistic
from tracewarehouse.compare.stats.two_sample import Earlier, ShiftTest, relative_shift
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import TwError, UnknownName


def gate(text: str) -> Gate:
    return parse(text, Catalog.load())


@pytest.mark.parametrize(
    ("text", "op", "bound", "signed"),
    [
        ("step_time<=+3%", "<=", 0.03, True),
        ("step_time < 120ms", "<", 120e6, False),
        ("step_time<=-0.5%", "<=", -0.005, True),
        ("step_time<=+250us", "<=", 250e3, True),
        (" temporal_breakdown.idle_ns > 1s ", ">", 1e9, False),
        ("kernel_summary.sum_ns[kind=communication]<=+5%", "<=", 0.05, True),
        ("kernel_summary.count<=1200", "<=", 1200, False),
        ("comm_comp_overlap.overlap>=80%", ">=", 0.8, False),
        ("memory_peak.peak_bytes<=80GiB", "<=", 80 * 1024**3, False),
        ("memory_peak.peak_bytes <= +1.5GB", "<=", 1.5e9, True),
        ("p99(step_time)<=120ms", "<=", 120e6, False),
        ("max( step_summary.host_ns ) <= +5%", "<=", 0.05, True),
    ],
)
def test_a_gate_is_a_metric_and_a_bound(text: str, op: str, bound: float, signed: bool) -> None:
    found = gate(text)
    assert (found.op, found.bound, found.signed) == (op, pytest.approx(bound, rel=1e-12), signed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step_time", "character 10: expected <=, <, >= or > and a bound"),
        ("step_time<=+3q", "character 10: unknown unit `q`"),
        ("memory_peak.peak_bytes<=80GX", "unknown unit `GX`"),
        ("step_time<=+1e-2%", "character 10: a bound has no exponent"),
        ("step_time<=+1%,step_time<=+2%", "character 10: unexpected `,`"),
        ("step_time=<+1%", "character 10: unknown operator `=<`"),
        ("step_time==1", "character 10: unknown operator `==`"),
        ("kernel_summary.max_ns[name=a,absent=0]<=1ms", "absent=0 applies to sums and counts"),
        ("kernel_summary.sum_ns[name=a,absent=1]<=1ms", "expected `=0` after absent"),
        ("kernel_summary.sum_ns[name=a<=+5%", "character 22: this `[` is not closed"),
        ("step_time<=3%", "character 13: % needs a sign"),
        ("step_time<=3", "character 13: expected a unit"),
        ("kernel_summary.count<=3ms", "character 24: kernel_summary.count is not a duration"),
        ("step_tme<=+3%", "character 1: unknown analysis: step_tme"),
        ("step_time<=80GiB", "character 14: step_time is not a number of bytes"),
        ("p98(step_time)<=+3%", "character 1: unknown statistic: p98"),
        ("p99(step_time<=+3%", "character 14: expected `)`"),
        ("p99(memory_peak.peak_bytes)<=1GB", "memory_peak.peak_bytes has no value per step"),
        ("absent(kernel_summary.count)<=3", "expected <="),
        ("step_time<=-100%", "no recording meets this bound"),
        ("step_time>0ms", "every recording meets this bound"),
        ("kernel_summary.count<-100%", "no recording meets this bound"),
        ("memory_peak.peak_bytes>=0B", "every recording meets this bound"),
        ("kernel_summary.sum_n<=+3%", "unknown measure of kernel_summary@1: sum_n"),
    ],
)
def test_a_bad_gate_points_at_the_position(text: str, message: str) -> None:
    with pytest.raises(TwError) as error:
        gate(text)
    assert message in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("text", "low", "high", "outcome"),
    [
        ("step_time<=+3%", -0.01, 0.03, "pass"),
        ("step_time<=+3%", 0.01, 0.04, "inconclusive"),
        ("step_time<=+3%", 0.031, 0.05, "fail"),
        ("step_time<+3%", -0.01, 0.03, "inconclusive"),
        ("step_time>=-2%", -0.03, 0.0, "inconclusive"),
        ("step_time>=-2%", -0.05, -0.03, "fail"),
    ],
)
def test_an_interval_across_the_bound_is_inconclusive(
    text: str, low: float, high: float, outcome: str
) -> None:
    result = by_interval(gate(text), 100.0, 102.0, ShiftTest((low + high) / 2, low, high, 0.5, "test"))
    assert result.outcome == outcome
    assert (result.reason is not None) == (outcome == "inconclusive")


def test_junit_counts_failures() -> None:
    from xml.etree import ElementTree

    from tracewarehouse.cli.diff import junit

    results = [
        by_interval(
            gate("step_time<=+3%"), 100.0, 100.0 * (1 + change), ShiftTest(change, change, high, 0.5, "test")
        )
        for change, high in ((0.01, 0.02), (0.02, 0.04), (0.05, 0.06))
    ]
    for allowed, failures, skipped in ((True, "1", "1"), (False, "2", "0")):
        suite = ElementTree.fromstring(junit(results, "the verdict <&>", allowed))
        assert len(suite.findall("testcase/skipped")) == int(skipped)
        assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", failures, skipped)
        assert len(suite.findall("testcase/failure")) == int(failures)
        assert suite.findtext("system-out") == "the verdict <&>"


def measured(text: str, *values: float) -> Measured:
    runs = tuple(RunValue(f"run{number}", value, value) for number, value in enumerate(values))
    return Measured(gate(text).metric, "per rank", runs)


def test_the_interval_of_a_gate_has_the_requested_significance_level() -> None:
    text = "kernel_summary.count<=+4%"
    base, head = measured(text, 100, 101, 102, 101), measured(text, 102, 103, 105, 104)
    default, strict = (decided(text, base, head, alpha=alpha) for alpha in (0.05, 0.001))
    for found, alpha in ((default, 0.05), (strict, 0.001)):
        test = relative_shift(base.values, head.values, alpha)
        assert (found.value, found.low, found.high) == (103.5 / 101 - 1, test.low, test.high)
    assert strict.low is not None and default.low is not None and strict.low < default.low


@pytest.mark.deep
def test_a_gate_guards_against_the_return_of_a_kernel(tmp_path: Path) -> None:
    sketch.write(
        "a 0 gpu s7 gemm 0 50\n    b 0 gpu s7 old 0 50\n    b 0 gpu s7 gemm 60 50", tmp_path / "traces"
    )
    wh = tracewarehouse.open(tmp_path / "warehouse")
    for run in ("a", "b"):
        wh.ingest(tmp_path / "traces" / run, run=run)
    guard = "kernel_summary.sum_ns[name=old,absent=0]<=40ns"
    (passed,) = wh.diff("b", "a").changes(gates=[guard]).gates
    # Runs without steps are compared per second of the GPU window, here 50 of 110 ns.
    assert (passed.outcome, passed.base, passed.head) == ("pass", pytest.approx(50e9 / 110), 0.0)
    (failed,) = wh.diff("a", "b").changes(gates=[guard]).gates
    assert (failed.outcome, failed.head) == ("fail", passed.base)
    with pytest.raises(UnknownName, match="unknown name of kernel_summary"):
        wh.diff("a", "b").changes(gates=[guard.replace("old,absent=0", "none")])
    assert cli_runner.tw("diff", "a", "b", "-w", wh.root, "--gate", "step_time<=3q").code == 2
    assert cli_runner.tw("diff", "a", "b", "-w", wh.root, "--alpha", "many").code == 2
    assert cli_runner.tw("history", "step_tme", "-w", wh.root).code == 2


def of_steps(text: str, *runs: list[float]) -> Measured:
    """A side with these steps, in ms."""
    found = gate(text)
    values = tuple(
        RunValue(f"run{at}", fmean(steps), fmean(steps), tuple(steps)) for at, steps in enumerate(runs)
    )
    return measured_steps(found.value, Measured(found.metric, "per rank", values))


def decided(text: str, base: Measured, head: Measured, **options: Any) -> GateResult:
    return decide(gate(text), base, head, None, GateOptions(**options))


STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.0]


@pytest.mark.parametrize(
    ("text", "factor", "outcome"),
    [
        ("step_time<=+5%", 1.386, "fail"),
        ("step_time<=+5%", 1.18, "fail"),  # beyond 5 % + 3 * 3 % + the interval of the steps
        ("step_time<=+5%", 1.10, "inconclusive"),
        ("step_time<=+5%", 1.00, "inconclusive"),
        ("step_time<=+15%", 1.00, "pass"),
        ("step_time>=-15%", 1.00, "pass"),
        ("step_time>=-5%", 0.80, "fail"),
        ("median(step_time)<=+5%", 1.386, "fail"),
        ("worst(step_time)<=+5%", 1.386, "fail"),
        ("step_time<=+5ms", 1.386, "fail"),
        ("step_time<=+5ms", 1.00, "inconclusive"),
        ("step_time<=130ms", 1.25, "pass"),  # of this run, which is known
    ],
)
def test_one_run_per_side_fails_or_holds_beyond_three_deviations(
    text: str, factor: float, outcome: str
) -> None:
    ms = 1e6 if text.endswith("ms") else 1.0
    base, head = ([by * ms * step for step in STEADY] for by in (1.0, factor))
    result = decided(text, of_steps(text, base), of_steps(text, head))
    assert result.outcome == outcome
    if "<=130" not in text:
        assert result.reason is not None and "σ between runs 3 % (assumed)" in result.reason
        assert ("runs per side would decide" in result.reason) == (outcome == "inconclusive")


def test_one_run_per_side_uses_the_deviation_of_recorded_runs() -> None:
    """0.5 % between five recorded runs decides what 3 % leaves open; so does a time without steps."""
    values = tuple(100.0 * (1 + by) for by in (-0.005, 0.005, 0.0, 0.004, -0.004))
    alike = Earlier(values, (0,), (1,))
    for side in (of_steps, measured):
        text = "step_time<=+5%"
        base, head = (side(text, STEADY), side(text, STEADY)) if side is of_steps else (side(text, 1e8),) * 2
        assert decided(text, base, head).outcome == "inconclusive"
        found = decided(text, base, head, alike=lambda metric, value: alike)
        assert found.outcome == "pass"
        assert found.reason is not None and found.reason.endswith("% (of 5 recorded runs)")


def test_one_slow_step_of_many_does_not_pass() -> None:
    """One step of 22 takes 20 times as long, in each run of head, or in one: the median does not see it."""
    steady = [*STEADY, *STEADY, *STEADY[:6]]
    slow = [*steady[:12], 2000.0, *steady[13:]]
    gates = ("step_time<=+3%", "median(step_time)<=+3%")
    for head, outcome in (((slow, slow, slow), "fail"), ((slow, steady, steady), "inconclusive")):
        results = [decided(text, of_steps(text, *[steady] * 3), of_steps(text, *head)) for text in gates]
        assert [each.outcome for each in results] == [outcome, "pass"]


def test_counts_and_bytes_of_one_run_are_exact() -> None:
    def outcome(text: str, base: float, head: float) -> str:
        return decided(text, measured(text, base), measured(text, head)).outcome

    assert outcome("kernel_summary.count<=+3%", 100, 200) == "fail"
    assert outcome("memory_peak.peak_bytes<=+3%", 100, 101) == "pass"
    assert outcome("comm_comp_overlap.overlap>=-3%", 0.8, 0.4) == "inconclusive"


def test_a_change_that_is_not_tested_says_so() -> None:
    def reason(text: str, *values: float) -> str | None:
        return decided(text, measured(text, *values), measured(text, *values)).reason

    assert reason("step_time<=+3ms", 1e8, 1e8) == "not tested: only changes in % have an interval"
    assert reason("temporal_breakdown.idle_ns<=+3%", 0, 1) == "not tested: a run has the value 0"
    overlap = reason("comm_comp_overlap.overlap>=-3%", 0.8)
    assert overlap is not None and overlap.startswith("not tested: one run per side")
    assert reason("step_time<=+3%", 1e8, 1e8) is None
    assert reason("step_time<=120ms", 1e8) is None
    assert reason("kernel_summary.count<=+3%", 100) is None


def test_a_gate_has_its_own_power() -> None:
    """sigma 1 %, 5 + 5 runs: the interval reaches 1.46 %, the standard error is 0.63 %."""
    reach = 0.01 * math.sqrt(2 / 5) * 2.306
    test = ShiftTest(0.0, math.expm1(-reach), math.expm1(reach), 1.0, "test")
    found = by_interval(gate("step_time<=+3%"), 100.0, 100.0, test, 0.05, 8)
    assert found.power_at_bound == pytest.approx(0.025, abs=0.001)
    assert found.power_at_twice == pytest.approx(0.986, abs=0.01)
    assert found.detects == pytest.approx(0.05, abs=0.002)
    less = by_interval(gate("step_time>=-3%"), 100.0, 100.0, test, 0.05, 8)
    assert less.detects == pytest.approx(-0.05, abs=0.002)


def test_percentiles_are_values_of_steps() -> None:
    steps = [float(step) for step in range(1, 201)]
    assert [step_statistic(name, steps) for name in ("p50", "p90", "p99")] == [100, 180, 198]
    assert [step_statistic(name, steps) for name in ("min", "mean", "median", "max")] == [
        1,
        100.5,
        100.5,
        200,
    ]
    assert step_statistic("p99", [3.0]) == 3


def test_gates_of_the_guide_are_understood() -> None:
    guide = (ROOT / "notebooks" / "guides" / "comparisons.md").read_text(encoding="utf-8")
    texts = re.findall(r"--gate '([^']+)'", guide)
    others = guide[guide.index("Other gates: ") :].partition("--format")[0].rpartition(".")[0]
    inline = re.findall(r"`([^`]+)`", others)
    assert len(texts) >= 3 and len(inline) >= 3
    assert [gate(text).text for text in (*texts, *inline)] == [*texts, *inline]
