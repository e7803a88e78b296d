"""Recorded runs as the baseline of one run, or as the spread of a comparison."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw
from recorded_runs import START_NS, recorded_runs
from tracewarehouse.compare.history.baseline import Compared, find_baseline
from tracewarehouse.compare.metric.expression import parse_metric
from tracewarehouse.compare.stats.two_sample import MIN_SINCE, history_notices, with_history
from tracewarehouse.errors import NoBaseline, ParamError, TwError
from tracewarehouse.hints import cli_text

EARLIER = 60
SAMPLES = "samples_per_step"
SIMULATED = ("--ranks", "1", "--layers", "1", "--steps", "8", "--no-stacks", "--no-memory")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two simulated runs after 60 recorded ones of the same period, which was 5 % longer in the first 10."""
    folder = tmp_path_factory.mktemp("baseline")
    for name, hour in (("head", 9), ("next", 10)):
        start = ("--start", f"2026-05-04T{hour:02}:00:00")
        assert cli_runner.tw("simulate", folder / "traces" / name, *SIMULATED, *start).code == 0
    tw.open(folder / "first").ingest(folder / "traces", jobs=1)
    head = tw.open(folder / "first")
    (row,) = head.query(
        "SELECT median(period_ns) AS ns FROM steps WHERE NOT partial AND run_id = 'head'"
    ).rows()
    facts = head.store.newest("head").by_rank[0].facts  # type: ignore[union-attr]
    same = {key: facts[key] for key in ("device_name", "framework_version") if facts.get(key) is not None}
    chance = random.Random(3)
    levels = [1.05] * 10 + [1.0] * (EARLIER - 10)
    periods = [round(row["ns"] * level * (1 + chance.gauss(0, 0.01))) for level in levels]
    labels = {at: {SAMPLES: "4"} | ({} if at % 2 else {"branch": "main"}) for at in range(EARLIER)}
    recorded_runs(folder / "warehouse", periods, labels, same)
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    wh.label("head", {SAMPLES: "4"})
    wh.label("next", {SAMPLES: "2"})
    return folder / "warehouse"


def test_one_run_is_tested_by_the_runs_since_the_last_change(root: Path) -> None:
    change = (
        tw.open(root).diff("@baseline", "head").changes(gates=["median(step_time)<=+3%", "step_time<=+3%"])
    )
    verdict = change.verdict
    assert (verdict.sample, verdict.test) == ("run", "history")
    assert verdict.low is not None and verdict.high is not None
    assert verdict.low < 0 < verdict.high < 0.06
    assert verdict.notices[0].startswith("base is 50 earlier runs (σ ")
    assert verdict.notices[-1].endswith("to rule out a bad run (0 of 50 earlier runs were bad)")
    gate, mean = change.gates
    assert (gate.low, gate.high, gate.test) == (verdict.low, verdict.high, "history")
    assert mean.test == "history" and mean.low != gate.low
    assert gate.detects is not None and 0.05 < gate.detects < 0.08


@pytest.mark.deep
def test_the_spread_of_earlier_runs_tests_one_run_per_side(root: Path) -> None:
    change = tw.open(root).diff("head", "next", noise="history").changes(gates=["step_time<=+9%"])
    assert (change.verdict.sample, change.verdict.test) == ("run", "history")
    assert change.gates[0].outcome == "pass"
    without = tw.open(root).diff("head", "next").changes(gates=["step_time<=+9%"])
    assert without.verdict.sample == "step" and without.gates[0].outcome == "pass"
    assert (without.gates[0].reason or "").endswith("(of 50 recorded runs)")


@pytest.mark.deep
def test_earlier_runs_are_per_sample(root: Path) -> None:
    """Each side and the earlier runs by their own work of a step, in verdict and gates."""
    diff = tw.open(root).diff("head", "next", noise="history")
    plain = diff.changes(gates=["step_time<=+9%"])
    change = diff.changes(normalize="sample", gates=["step_time<=+9%", "step_time<=+109%"])
    verdict = change.verdict
    assert (verdict.sample, verdict.test, verdict.word) == ("run", "history", "slower")
    assert verdict.base_median_ns == pytest.approx((plain.verdict.base_median_ns or 0) / 4)
    assert verdict.change == pytest.approx(2 * (1 + (plain.verdict.change or 0)) - 1)
    assert [gate.outcome for gate in (*plain.gates, *change.gates)] == ["pass", "fail", "pass"]
    assert (change.gates[0].low, change.gates[0].high) == (verdict.low, verdict.high)


def test_only_runs_that_agree_are_earlier_runs(root: Path) -> None:
    wh = tw.open(root)
    metric, runs = parse_metric("step_time", wh.catalog), wh.recorded_runs()
    head = tuple(each for each in runs if each.run == "head")
    found = find_baseline(wh.store, wh.catalog, metric, runs, Compared(None, head))
    assert [point.run for point in found.points] == [f"night-{at:04d}" for at in range(10, EARLIER)]
    assert found.earlier.head_at == (50,)
    found = find_baseline(wh.store, wh.catalog, metric, runs, Compared(None, head, ("branch",)))
    assert [point.run for point in found.points] == [f"night-{at:04d}" for at in range(11, EARLIER, 2)]
    middle = tuple(each for each in runs if each.run == "night-0040")
    found = find_baseline(wh.store, wh.catalog, metric, runs, Compared(None, middle, ("branch",)))
    assert [point.run for point in found.points] == [f"night-{at:04d}" for at in range(10, 40, 2)]
    assert found.points[0].time_ns > START_NS
    other = tuple(each for each in runs if each.run == "night-0005")
    with pytest.raises(TwError, match="no baseline: 5 recorded runs"):
        find_baseline(wh.store, wh.catalog, metric, runs, Compared(None, other))


def test_few_runs_since_a_change_are_a_baseline(root: Path) -> None:
    """The step became shorter at night-0010: the baseline of a run after three more is these."""
    wh = tw.open(root)
    metric, runs = parse_metric("step_time", wh.catalog), wh.recorded_runs()
    head = tuple(each for each in runs if each.run == "night-0015")
    found = find_baseline(wh.store, wh.catalog, metric, runs, Compared(None, head))
    assert [point.run for point in found.points] == [f"night-{at:04d}" for at in range(10, 15)]
    assert found.earlier.since == "night-0010"
    test = with_history([], [math.log(found.earlier.median)], found.earlier, 0.05)
    assert test.method == "Student's t" and test.p > 0.05
    (notice,) = history_notices(([], [1.0]), found.earlier)
    assert notice.startswith("base is 5 runs since the change at night-0010 (σ ")
    with pytest.raises(NoBaseline, match="5 recorded runs"):  # their noise alone takes 12
        find_baseline(wh.store, wh.catalog, metric, runs, Compared(head, head))
    alike = find_baseline(wh.store, wh.catalog, metric, runs, Compared(head, head), least=MIN_SINCE)
    assert len(alike.points) == 5


def test_gates_without_a_baseline_are_inconclusive(root: Path, tmp_path: Path) -> None:
    """The baseline of night-0005 is 5 runs; a run on a new branch has none, and one that is not recorded."""
    report = tmp_path / "gates.xml"
    diff = ("diff", "@baseline", "night-0005", "-w", root)
    gates = ("--gate", "step_time<=+3%", "--gate", "max(step_time)<=+3%")
    why = "no baseline: 5 recorded runs of step_time before night-0005 of the same configuration"
    hint = "hint: compare with a run, or a set of runs, until there are 12"
    without = cli_runner.tw(*diff)
    assert (without.code, without.out) == (1, "")
    assert without.errors[0].startswith(f"tw: {why}") and without.errors[1] == hint
    for form, begin in (
        ("table", why),
        ("md", f"### {why}"),
        ("github", "## ⚠️ tw diff: inconclusive\n\n### no"),
    ):
        done = cli_runner.tw(*diff, *gates, "--junit", report, "-f", form)
        assert done.code == 5 and done.out.startswith(begin) and "max(step_time)<=+3%" in done.out, done
        assert f"warning: gate step_time<=+3% is inconclusive: {why}" in done.err and hint in done.err
    assert 'tests="2" failures="2" skipped="0"' in report.read_text()
    allowed = cli_runner.tw(*diff, *gates, "--allow-inconclusive", "--junit", report, "--json")
    (row,) = json.loads(allowed.out)["result"]
    assert allowed.code == 0 and [each["outcome"] for each in row["gates"]] == ["inconclusive"] * 2
    assert 'failures="0" skipped="2"' in report.read_text() and hint in allowed.err
    assert cli_runner.tw(*diff, "--gate", "step_tim<=+3%").code == 2
    wh = tw.open(root)
    wh.label("head", {"branch": "feature"})
    wh.label("next", {"branch": "feature"})
    with pytest.raises(NoBaseline) as raised:
        wh.diff("@baseline", "next", match_label="branch")
    alike = "of the same configuration with label.branch=feature since the last change; it takes 12"
    assert raised.value.message == f"no baseline: 0 recorded runs of step_time before next {alike}"
    assert cli_text(raised.value.hint or "") == (
        "tw record --all --analysis step_summary stores results of 1 earlier run"
    )


@pytest.mark.deep
def test_the_baseline_on_the_command_line(root: Path) -> None:
    done = cli_runner.tw("diff", "@baseline", "head", "-w", root, "--gate", "step_time<=+3%", "--json")
    (found,) = json.loads(done.out)["result"]
    assert found["verdict"]["test"] == "history" and found["gates"][0]["power_at_twice"] > 0.5
    tw.open(root).label("head", {"branch": "feature"})
    for usage in (("--match-label", "branch"), ("--match-label", "label.nothing")):
        assert cli_runner.tw("diff", "@baseline", "head", "-w", root, *usage).code != 0
    with pytest.raises(ParamError, match="unknown noise 'all'"):
        tw.open(root).diff("head", "next", noise="all")


EQUAL, HEADS = 50, 40
RED = 5  # 98.6 % of counts of 40 with a true rate of 5 % are at most 5


@pytest.mark.deep
def test_forty_equal_heads_are_rarely_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50 recorded runs and 40 heads like them, simulated with 1 % noise between runs, seeds 0 to 89."""
    for at in range(EQUAL + HEADS):
        start = ("--start", f"2026-05-{1 + at // 24:02}T{at % 24:02}:00:00", "--seed", str(at))
        noise = ("--noise-run", "0.01", *start)
        done = cli_runner.tw("simulate", tmp_path / "traces" / f"run-{at:02}", *SIMULATED, *noise)
        assert done.code == 0, done.err
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "traces", jobs=1)
    recorded, heads = (
        [f"run-{at:02}" for at in part] for part in (range(EQUAL), range(EQUAL, EQUAL + HEADS))
    )
    warehouse.record(recorded, analyses=["step_summary"])
    words, codes = [], []
    for head in heads:
        gates = ("--gate", "step_time<=+3%", "--json")
        done = cli_runner.tw("diff", "@baseline", head, *gates, "-w", warehouse.root)
        words.append(json.loads(done.out)["result"][0]["verdict"]["word"])
        codes.append(done.code)
    red = sum(word in ("slower", "faster") for word in words)
    with capsys.disabled():
        print(f"\n{red} of {HEADS} verdicts name a change, {codes.count(3)} gates of +3 % fail")
    assert red <= RED and codes.count(3) <= 1
