"""A metric over many runs: series, changes, acknowledgements, charts; in Python and on the command line."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec.structs import replace

import tracewarehouse as tw
from cli_runner import CliResult, environment, on_terminal, process
from cli_runner import tw as call
from recorded_runs import DAY_NS, START_NS, recorded_runs
from tracewarehouse.compare.history.history import _Axis, round_values
from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.storage.model import Changes

RUNS, CHANGE = 60, 40
KEYS = ["line", "definition", "run_id", "version", "stored", "time_ns", "value", "level"]
KEYS += ["change", "change_low", "change_high", "before", "earliest", "latest", "acknowledged", "reason"]


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 nights of 100 ms with 1 % noise, 5 % slower from the 40th on; odd ones on another GPU."""
    chance = random.Random(5)
    periods = [round(1e8 * (1.05 if at >= CHANGE else 1) * (1 + chance.gauss(0, 0.01))) for at in range(RUNS)]
    labels = {at: {"branch": "main", "gpu": ("A100", "<H100>")[at % 2]} for at in range(RUNS - 1)}
    return recorded_runs(tmp_path_factory.mktemp("history") / "warehouse", periods, labels).root


@pytest.fixture
def warehouse_path(shared_path: Path, tmp_path: Path) -> Path:
    """A copy that a test can change."""
    return Path(shutil.copytree(shared_path, tmp_path / "warehouse"))


def test_one_row_per_run_in_time_order(shared_path: Path) -> None:
    history = tw.open(shared_path).history("step_time")
    rows = history.rows()
    assert [row["run_id"] for row in rows] == [f"night-{at:04d}" for at in range(RUNS)]
    assert [row["time_ns"] for row in rows] == [START_NS + at * DAY_NS for at in range(RUNS)]
    assert list(rows[0]) == KEYS
    assert history.polars().shape == (RUNS, len(KEYS))
    assert {each.name: each.unit for each in history.result.columns()}["value"] == "ns"
    assert history.result.provenance.analysis == "step_summary"
    assert len({row["level"] for row in rows}) == 2


def test_a_change_has_a_position_and_a_size(shared_path: Path) -> None:
    history = tw.open(shared_path).history("step_time")
    (change,) = history.changes
    (row,) = [row for row in history.rows() if row["change"] is not None]
    assert (change.before, change.after) == (f"night-{CHANGE - 1:04d}", f"night-{CHANGE:04d}")
    assert (row["before"], row["run_id"]) == (change.before, change.after)
    assert 0.04 < row["change_low"] < row["change"] < row["change_high"] < 0.06
    assert row["change"] == (change.new - change.old) / change.old  # of the levels that are printed
    assert row["earliest"] <= f"night-{CHANGE:04d}" <= row["latest"]
    assert tw.open(shared_path).history("step_time", min_effect=0.2).changes == ()


def test_series_and_conditions(shared_path: Path) -> None:
    wh = tw.open(shared_path)
    series = wh.history("step_time", by="label.gpu").series
    assert [(each.name, len(each.points), len(each.changes)) for each in series] == [
        ("gpu=-", 1, 0), ("gpu=<H100>", 29, 1), ("gpu=A100", 30, 1),
    ]  # fmt: skip
    history = wh.history("step_time", where="label.gpu=A100", by=["label.branch", "label.gpu"])
    assert [each.name for each in history.series] == ["branch=main, gpu=A100"]
    assert len(wh.history("step_time", ["night-0007", "label:gpu=A100"]).rows()) == 31
    assert len(wh.select(["night-0001", "night-0002"]).history("step_time").rows()) == 2
    few = wh.history("step_time", "night-0007")
    assert "change detection needs at least 12 runs" in few.notices


@pytest.mark.deep
def test_a_percentile_is_one_of_the_steps_of_each_run(tmp_path: Path) -> None:
    """100 steps a run: 99 of 100 ms, and one that is slower from the 12th run on."""
    steps = [[*[100_000_000] * 98, 100_000_001, 100_000_000 + 50_000_000 * (at >= 12)] for at in range(24)]
    wh = recorded_runs(tmp_path / "warehouse", [*steps, steps[0][:50]])
    assert {row["value"] for row in wh.history("step_time").rows()} == {100_000_000}
    slowest, p99 = wh.history("max(step_time)"), wh.history("p99( step_time )")
    assert [change.after for change in slowest.changes] == ["night-0012"]
    assert [row["value"] for row in p99.rows()] == [100_000_000] * 12 + [100_000_001] * 12 + [None]
    assert p99.rows()[-1]["reason"] == "p99 needs 100 complete steps per run; there are 50"
    assert p99.plot().startswith("p99(step_time), 24 runs, 0 changes")
    assert "values are the p99 of the complete steps, mean of their ranks" in p99.notices[0]
    wh.acknowledge("max(step_time)", "night-0012", "a larger checkpoint")
    assert wh.history("max(step_time)").changes[0].why == "a larger checkpoint"
    for text, problem in (
        ("p77(step_time)", "unknown statistic: p77"),
        ("absent(step_time)", "unknown statistic: absent"),
        ("p99(step_time", "expected `)`"),
        ("p99(step_time)x", "unexpected text"),
        ("p99(memory_peak.peak_bytes)", "has no value per step"),
    ):
        with pytest.raises(TwError, match=re.escape(problem)):
            wh.history(text)


def test_runs_on_other_hardware_are_other_series(warehouse_path: Path) -> None:
    wh = tw.open(warehouse_path)
    assert [each.name for each in wh.history("step_time").series] == [""]
    version = wh.store.newest("night-0007")
    assert version is not None
    stored = version.sources[0]
    source = replace(stored, attempt="other", facts={**stored.facts, "device_name": "H100"})
    wh.store.publish("night-0007", Changes(sources=(source,), rebuilt=True))
    wh = tw.open(warehouse_path)
    series = {each.name: len(each.points) for each in wh.history("step_time").series}
    assert series == {"1 × H100": 1, "1 × unknown GPU": RUNS - 1}
    assert [each.name for each in wh.history("step_time", where="label.gpu=A100").series] == [""]
    names = [each.name for each in wh.history("step_time", by="label.gpu").series]
    assert names == ["gpu=-", "gpu=<H100>, 1 × H100", "gpu=<H100>, 1 × unknown GPU", "gpu=A100"]


def test_invalid_requests_raise(shared_path: Path) -> None:
    wh = tw.open(shared_path)
    for metric, error, message in (
        ("temporal_breakdown.busy_ns", TwError, "no recorded results of temporal_breakdown@1 for 60 runs"),
        ("step_tim", UnknownName, "character 1: unknown analysis"),
        ("step_time[rank=7]", UnknownName, "unknown rank of step_summary@1: 7"),
    ):
        with pytest.raises(error, match=message):
            wh.history(metric)
    with pytest.raises(UnknownName, match="(?m)unknown label: label.gpu=A10$") as raised:
        wh.history("step_time", where="label.gpu=A10")
    assert raised.value.hint == "did you mean label.gpu=A100?"
    with pytest.raises(UnknownName, match="unknown label: label.gpx"):
        wh.history("step_time", by="label.gpx")
    with pytest.raises(ParamError, match="not a label: gpu"):
        wh.history("step_time", by="gpu")
    with pytest.raises(ParamError, match="not a condition: gpu=A100"):
        wh.history("step_time", where="gpu=A100")
    with pytest.raises(UnknownName, match="unknown run: nowhere"):
        wh.history("step_time", "nowhere")


def test_an_acknowledgement_is_shown_with_its_change(warehouse_path: Path) -> None:
    wh = tw.open(warehouse_path)
    assert (
        wh.acknowledge("step_time", f"night-{CHANGE - 1:04d}", " new driver ") == f"night-{CHANGE - 1:04d}@v1"
    )
    assert [change.why for change in wh.history("step_time").changes] == ["new driver"]
    assert [change.why for change in wh.history("step_summary@1.period_ns").changes] == ["new driver"]
    wh.acknowledge("step_summary.host_ns", f"night-{CHANGE:04d}", "of another metric")
    wh.acknowledge("step_time", "night-0003", "of no change")
    assert [change.why for change in wh.history("step_time").changes] == ["new driver"]
    wh.acknowledge("step_time", f"night-{CHANGE - 1:04d}", None)
    assert [change.why for change in wh.history("step_time").changes] == [None]
    with pytest.raises(ParamError, match="is empty"):
        wh.acknowledge("step_time", "night-0003", " ")
    with pytest.raises(UnknownName):
        wh.acknowledge("step_time", "nowhere", "why")
    with pytest.raises(TwError, match="has no acknowledgement of step_time") as raised:
        wh.acknowledge("step_time", f"night-{CHANGE - 1:04d}", None)
    assert raised.value.hint == "acknowledged: night-0003"


def test_the_acknowledgement_at_the_first_run_of_a_change_counts(warehouse_path: Path) -> None:
    def acknowledge(run: str, *reason: str) -> CliResult:
        return call("acknowledge", "step_time", run, *reason, "-w", warehouse_path)

    def chart() -> str:
        return call("history", "step_time", "-w", warehouse_path, "-f", "table").out

    nothing = acknowledge("night-0003", "--remove")
    assert (nothing.code, nothing.out) == (1, "")
    assert nothing.errors == [
        "tw: night-0003 has no acknowledgement of step_time",
        "hint: no run has one",
    ]
    assert acknowledge("night-0039", "first").out == "acknowledged: night-0039@v1: first\n"
    assert "; acknowledged: first" in chart()
    second = acknowledge("night-0040", "second")
    assert "; acknowledged: second" in chart() and "warning" not in second.err
    hidden = acknowledge("night-0039", "third")
    assert "; acknowledged: second" in chart()
    assert "warning: the change at night-0040 is acknowledged at night-0040@v1: second" in hidden.err
    still = acknowledge("night-0040", "--remove")
    assert still.out == "acknowledgement removed: night-0040@v1\n" and "; acknowledged: third" in chart()
    assert "warning: the change at night-0040 is acknowledged at night-0039@v1: third" in still.err
    other = acknowledge("night-0040", "--remove")
    assert other.code == 1 and other.errors[1] == "hint: acknowledged: night-0039"
    nowhere = acknowledge("night-0005", "no change here")
    assert nowhere.code == 0 and "warning: no change point of step_time at night-0005@v1" in nowhere.err
    assert acknowledge("night-0005").code == acknowledge("night-0005", "why", "--remove").code == 2


@pytest.mark.deep
def test_the_chart_on_a_terminal(shared_path: Path) -> None:
    done = on_terminal("history", "step_time", "-w", shared_path, columns=80)
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0] == "step_time, 60 runs, 1 change"
    assert max(map(len, lines[:13])) <= 80
    assert sum("┤" in line for line in lines) == 10
    assert "▲1" in lines[11] and lines[12].split() == ["2025-06-15", "2025-08-13"]
    assert (
        lines[13].startswith("▲1 99.816 ms → 105.128 ms, +5.3 % [")
        and " worse, night-0039 → night-0040" in lines[13]
    )
    narrow = on_terminal("history", "step_time", "-w", shared_path, columns=40).out.splitlines()
    assert max(map(len, narrow[:13])) <= 40


def test_the_html_page(warehouse_path: Path, tmp_path: Path) -> None:
    tw.open(warehouse_path).acknowledge("step_time", f"night-{CHANGE:04d}", "a <b> & c")
    path = tmp_path / "history.html"
    done = call("history", "step_time", "-w", warehouse_path, "-o", path, "--by", "label.gpu")
    assert (done.code, done.out) == (0, f"wrote {path}\n")
    text = path.read_text(encoding="utf-8")
    assert "<H100>" not in text and "gpu=&lt;H100&gt;" in text and "a &lt;b&gt; &amp; c" in text
    assert "default-src 'none'" in text and "script-src" not in text and "<script" not in text
    assert re.findall(r"https?:|//|(?:src|href)=\"(?!#|data:)", text) == []
    body = ET.fromstring(text[text.index("<body>") : text.index("</html>")])
    assert len(body.findall(".//svg")) == 3
    assert len(body.findall(".//circle")) == RUNS
    assert len(body.findall(".//tr")) == 4
    texts = [each.text for each in body.findall(".//svg//text")]
    assert {"98.000 ms", "100.000 ms", "start of the run"} <= set(texts), "round values, and a time axis"


def test_runs_lie_at_their_times_unless_these_coincide() -> None:
    assert _Axis.of([0, 10, 40]).is_time and not _Axis.of([7, 7, 7]).is_time
    first, second, third = _Axis.of([0, 10, 40]).places
    assert third - second == pytest.approx(3 * (second - first))
    cluster = _Axis.of([0, 1, 2, 3, 10**6])
    gaps = [b - a for a, b in zip(cluster.places, cluster.places[1:], strict=False)]
    assert not cluster.is_time and max(gaps) == pytest.approx(min(gaps))
    assert [round(value, 6) for value in round_values(0.13, 0.41)] == [0.2, 0.3, 0.4]
    assert [*round_values(97, 112)] == [100, 105, 110]


def test_output_formats(shared_path: Path) -> None:
    done = call("history", "step_time", "-w", shared_path)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert done.code == 0 and len(rows) == RUNS and rows[CHANGE]["before"] == f"night-{CHANGE - 1:04d}"
    assert done.err == "values are of the median complete step, mean of its ranks\n"
    envelope = json.loads(call("history", "step_time", "-w", shared_path, "--json").out)
    assert envelope["ok"] and envelope["provenance"]["analysis"] == "step_summary"
    assert envelope["result"][0]["time_ns"] == str(START_NS)
    assert "▲1" in call("history", "step_time", "-w", shared_path, "-f", "table").out


def test_exit_codes_and_errors(warehouse_path: Path, tmp_path: Path) -> None:
    wrong = call("history", "step_tim", "-w", warehouse_path)
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.errors[0] == "tw: metric 'step_tim', character 1: unknown analysis: step_tim"
    assert wrong.errors[1] == "hint: did you mean step_time?"
    nothing = call("history", "temporal_breakdown.busy_ns", "-w", warehouse_path)
    assert nothing.code == 1
    assert nothing.errors[1].startswith("hint: tw record --all --analysis temporal_breakdown")
    for usage in (
        ("record",),
        ("record", "--all", "night-0001"),
        ("history",),
        ("acknowledge", "step_time"),
    ):
        assert call(*usage, "-w", warehouse_path).code == 2, usage
    assert call("record", "nowhere", "-w", warehouse_path).code == 1
    assert call("record", "--all", "--analysis", "step_sumary", "-w", warehouse_path).code == 1
    assert call("history", "step_time", "-w", tmp_path / "none").code == 1
    done = call("acknowledge", "step_time", "night-0040", "agreed on", "-w", warehouse_path, "--json")
    assert json.loads(done.out)["result"] == [
        {"metric": "step_time", "run": "night-0040@v1", "reason": "agreed on"}
    ]
    assert call("acknowledge", "step_time", "night-0040", "--remove", "-w", warehouse_path).code == 0
    assert "acknowledged" not in call("history", "step_time", "-w", warehouse_path, "-f", "table").out
    done = call("record", "--all", "--analysis", "step_summary", "-w", warehouse_path)
    assert done.out == "nothing to record: 60 runs, 1 analysis; 60 already recorded\n"


@pytest.mark.deep
def test_recording_on_the_command_line(warehouse_path: Path) -> None:
    done = call("record", "night-0001", "night-0002", "--analysis", "quality", "--json", "-w", warehouse_path)
    (row,) = json.loads(done.out)["result"]
    assert (done.code, row["written"], row["present"], row["failed"]) == (0, 2, 0, [])
    assert row["runs"] == ["night-0001@v1", "night-0002@v1"]
    for path in (warehouse_path / "results" / "step_summary@1" / "night-0003").rglob("*.parquet"):
        path.write_bytes(b"")
    assert call("verify", "-w", warehouse_path).code == 1
    shown = on_terminal(
        "record", "night-0005", "--analysis", "quality", "-w", warehouse_path, env={"TERM": "xterm"}
    )
    assert shown.code == 0 and "recorded 1 result" in shown.out


def test_a_removed_run_can_keep_its_results(warehouse_path: Path) -> None:
    before = call("remove", "night-0004", "--keep-results", "--dry-run", "-w", warehouse_path)
    removed = call("remove", "night-0004", "--keep-results", "-w", warehouse_path)
    assert removed.out == "removed night-0004: 1 rank, 0 B; kept 1 recorded result\n"
    assert before.out == removed.out.replace("removed", "would remove")
    kept = warehouse_path / "_tw" / "versions" / "night-0004" / "000001.json"
    kept.write_bytes(kept.read_bytes()[:-9])
    problems = json.loads(call("verify", "--json", "-w", warehouse_path).out)
    assert [row["path"] for row in problems["result"]] == ["_tw/versions/night-0004/000001.json"]


def test_a_history_imports_few_libraries(shared_path: Path) -> None:
    code = f"""
import atexit, sys
from tracewarehouse.cli import main
unused = {{"numpy.ma", "scipy", "typing_extensions", "pandas"}}
atexit.register(lambda: print(unused & set(sys.modules), file=sys.stderr))
sys.argv = ["tw", "history", "step_time", "-w", {str(shared_path)!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "set()")


@pytest.mark.deep
def test_a_history_of_500_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs as a process; prints the time without a bound, and finds the injected changes."""
    chance = random.Random(9)
    positions, level, periods = [90, 200, 310, 420], 1e8, []
    for at in range(500):
        level *= 1.03 if at in positions else 1
        periods.append(round(level * (1 + chance.gauss(0, 0.01))))
    root = recorded_runs(tmp_path / "warehouse", periods).root
    began = time.perf_counter()
    done = process("history", "step_time", "-w", root)
    seconds = time.perf_counter() - began
    detected = [at for at, row in enumerate(csv.DictReader(io.StringIO(done.out))) if row["change"]]
    with capsys.disabled():
        print(f"\n500 runs: {seconds:.2f} s; injected at {positions}, found at {detected}")
    assert len(detected) == len(positions)
    assert all(abs(a - b) <= 1 for a, b in zip(detected, positions, strict=True))


def test_a_new_change_fails_the_job(warehouse_path: Path) -> None:
    history = ("history", "step_time", "-w", warehouse_path, "-f", "table")
    assert call(*history, "--fail-on-change").code == 0  # it is older than 12 runs
    failed = call(*history, "--fail-on-change", "--since", "night-0040")
    assert failed.code == 3 and failed.out.startswith("step_time, 60 runs, 1 change")
    assert "between night-0039 and night-0040" in failed.err
    assert call(*history, "--fail-on-change", "--since", "night-0041").code == 0
    assert call(*history, "--fail-on-change", "any", "--since", "21d").code == 3
    assert call(*history, "--fail-on-change", "--since", "20h").code == 0
    assert call(*history, "--fail-on-change", "--since", "nowhere").code != 0
    assert call("acknowledge", "step_time", "night-0040", "agreed", *history[2:4]).code == 0
    assert call(*history, "--fail-on-change", "--since", "night-0040").code == 0


@pytest.mark.deep
def test_a_ramp_is_a_trend(tmp_path: Path) -> None:
    chance = random.Random(8)
    ramp = [round(1e8 * (1 + 0.001 * at + chance.gauss(0, 0.01))) for at in range(60)]
    found = recorded_runs(tmp_path / "ramp", ramp).history("step_time")
    (series,) = found.series
    assert series.changes == () and series.trend is not None
    assert 0.04 < series.trend.low < series.trend.change < series.trend.high < 0.08
    assert series.remarks() == [f"trend {series.trend}, from the first run to the last"]
    assert found.plot().splitlines()[-1] in series.remarks() and series.remarks()[0] in found.notices
