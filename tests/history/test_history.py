"""A metric over many runs: lines, changes, acknowledgements, how it is drawn; as Python and as processes."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

import tracewarehouse as tw
from front_door import on_terminal, process
from front_door import tw as call
from recorded_runs import DAY_NS, START_NS, recorded_runs
from tracewarehouse.errors import ParamError, TwError, UnknownName
from tracewarehouse.storage import Changes

RUNS, CHANGE = 60, 40
KEYS = ["line", "definition", "run_id", "version", "stored", "time_ns", "value", "level"]
KEYS += ["change", "change_low", "change_high", "before", "earliest", "latest", "acknowledged", "reason"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 nights of 100 ms at 1 % noise, 5 % slower from the 40th on; odd ones on another GPU."""
    chance = random.Random(5)
    periods = [round(1e8 * (1.05 if at >= CHANGE else 1) * (1 + chance.gauss(0, 0.01))) for at in range(RUNS)]
    labels = {at: {"branch": "main", "gpu": ("A100", "<H100>")[at % 2]} for at in range(RUNS - 1)}
    return recorded_runs(tmp_path_factory.mktemp("history") / "warehouse", periods, labels).root


@pytest.fixture
def house(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "warehouse"))


def test_a_row_per_run_in_order_of_time(made: Path) -> None:
    found = tw.open(made).history("step_time")
    rows = found.rows()
    assert [row["run_id"] for row in rows] == [f"night-{at:04d}" for at in range(RUNS)]
    assert [row["time_ns"] for row in rows] == [START_NS + at * DAY_NS for at in range(RUNS)]
    assert list(rows[0]) == KEYS
    assert found.polars().shape == (RUNS, len(KEYS))
    assert {each.name: each.unit for each in found.result.columns()}["value"] == "ns"
    assert found.result.provenance.analysis == "step_summary"
    assert len({row["level"] for row in rows}) == 2


def test_the_change_has_its_place_and_size(made: Path) -> None:
    found = tw.open(made).history("step_time")
    (change,) = found.changes
    (row,) = [row for row in found.rows() if row["change"] is not None]
    assert (change.before, change.after) == (f"night-{CHANGE - 1:04d}", f"night-{CHANGE:04d}")
    assert (row["before"], row["run_id"]) == (change.before, change.after)
    assert 0.04 < row["change_low"] < row["change"] < row["change_high"] < 0.06
    assert row["earliest"] <= f"night-{CHANGE:04d}" <= row["latest"]
    assert tw.open(made).history("step_time", min_effect=0.2).changes == ()


def test_lines_and_conditions(made: Path) -> None:
    wh = tw.open(made)
    lines = wh.history("step_time", by="label.gpu").lines
    assert [(line.name, len(line.dots), len(line.changes)) for line in lines] == [
        ("gpu=-", 1, 0), ("gpu=<H100>", 29, 1), ("gpu=A100", 30, 1),
    ]  # fmt: skip
    found = wh.history("step_time", where="label.gpu=A100", by=["label.branch", "label.gpu"])
    assert [line.name for line in found.lines] == ["branch=main, gpu=A100"]
    assert len(wh.history("step_time", ["night-0007", "label:gpu=A100"]).rows()) == 31
    assert len(wh.select(["night-0001", "night-0002"]).history("step_time").rows()) == 2
    few = wh.history("step_time", "night-0007")
    assert "fewer than 12 runs: no change is looked for" in few.notices


def test_runs_of_other_machines_are_told(house: Path) -> None:
    wh = tw.open(house)
    assert not any("machine" in notice for notice in wh.history("step_time").notices)
    version = wh.store.newest("night-0007")
    assert version is not None
    stored = version.sources[0]
    source = replace(stored, attempt="other", facts={**stored.facts, "device_name": "H100"})
    wh.store.publish("night-0007", Changes(sources=(source,), rebuilt=True))
    kinds = "a line has runs of 2 kinds of machine (1 × H100, 1 × unknown)"
    told = f"{kinds}: --where or --by a label keeps them apart"
    assert told in tw.open(house).history("step_time").notices
    assert told not in tw.open(house).history("step_time", where="label.gpu=A100").notices
    wh.store.relabel("night-0007", {"gpu": "other"})
    assert told not in tw.open(house).history("step_time", by="label.gpu").notices


def test_what_is_asked_wrongly(made: Path) -> None:
    wh = tw.open(made)
    for metric, error, says in (
        ("temporal_breakdown.busy_ns", TwError, "nothing is recorded of temporal_breakdown@1 for 60 runs"),
        ("step_tim", UnknownName, "character 1: unknown analysis"),
        ("step_time[rank=7]", UnknownName, "unknown rank of step_summary@1: 7"),
    ):
        with pytest.raises(error, match=says):
            wh.history(metric)
    with pytest.raises(UnknownName, match="(?m)unknown label: label.gpu=A10$") as told:
        wh.history("step_time", where="label.gpu=A10")
    assert told.value.hint == "did you mean label.gpu=A100, label.gpu=<H100>?"
    with pytest.raises(UnknownName, match="unknown label: label.gpx"):
        wh.history("step_time", by="label.gpx")
    with pytest.raises(ParamError, match="not a label: gpu"):
        wh.history("step_time", by="gpu")
    with pytest.raises(ParamError, match="not a condition: gpu=A100"):
        wh.history("step_time", where="gpu=A100")
    with pytest.raises(UnknownName, match="unknown run: nowhere"):
        wh.history("step_time", "nowhere")


def test_an_acknowledgement_stands_beside_its_change(house: Path) -> None:
    wh = tw.open(house)
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
    with pytest.raises(ParamError, match="says nothing"):
        wh.acknowledge("step_time", "night-0003", " ")
    with pytest.raises(UnknownName):
        wh.acknowledge("step_time", "nowhere", "why")


def test_it_is_drawn_on_a_terminal(made: Path) -> None:
    told = on_terminal("history", "step_time", "-w", made, columns=80)
    lines = told.out.splitlines()
    assert told.code == 0
    assert lines[0] == "step_time, 60 runs, 1 change"
    assert max(map(len, lines[:13])) <= 80
    assert sum("┤" in line for line in lines) == 10
    assert "▲1" in lines[11] and lines[12].split() == ["2025-06-15", "2025-08-13"]
    assert (
        lines[13].startswith("▲1 99.816 ms → 105.128 ms, +5.2 % [")
        and " worse, night-0039 → night-0040" in lines[13]
    )
    narrow = on_terminal("history", "step_time", "-w", made, columns=40).out.splitlines()
    assert max(map(len, narrow[:13])) <= 40


def test_it_is_drawn_in_a_page(house: Path, tmp_path: Path) -> None:
    tw.open(house).acknowledge("step_time", f"night-{CHANGE:04d}", "a <b> & c")
    path = tmp_path / "history.html"
    told = call("history", "step_time", "-w", house, "-o", path, "--by", "label.gpu")
    assert (told.code, told.out) == (0, f"wrote {path}\n")
    text = path.read_text(encoding="utf-8")
    assert "<H100>" not in text and "gpu=&lt;H100&gt;" in text and "a &lt;b&gt; &amp; c" in text
    assert "http" not in text and "<script" not in text
    body = ET.fromstring(text[text.index("<body>") : text.index("</html>")])
    assert len(body.findall(".//svg")) == 3
    assert len(body.findall(".//circle")) == RUNS
    assert len(body.findall(".//tr")) == 4


def test_its_formats(made: Path) -> None:
    told = call("history", "step_time", "-w", made)
    rows = list(csv.DictReader(io.StringIO(told.out)))
    assert told.code == 0 and len(rows) == RUNS and rows[CHANGE]["before"] == f"night-{CHANGE - 1:04d}"
    assert told.err == "values are of the median complete step, mean of its ranks\n"
    envelope = json.loads(call("history", "step_time", "-w", made, "--json").out)
    assert envelope["ok"] and envelope["provenance"]["analysis"] == "step_summary"
    assert envelope["result"][0]["time_ns"] == str(START_NS)
    assert "▲1" in call("history", "step_time", "-w", made, "-f", "table").out


def test_exit_codes_and_errors_of_processes(house: Path, tmp_path: Path) -> None:
    wrong = process("history", "step_tim", "-w", house)
    assert (wrong.code, wrong.out) == (1, "")
    assert wrong.errors[0] == "tw: metric 'step_tim', character 1: unknown analysis: step_tim"
    assert wrong.errors[1].startswith("hint: did you mean step_time, ")
    nothing = process("history", "temporal_breakdown.busy_ns", "-w", house)
    assert nothing.code == 1
    assert nothing.errors[1].startswith("hint: tw record --all --analysis temporal_breakdown")
    for usage in (
        ("record",),
        ("record", "--all", "night-0001"),
        ("history",),
        ("history", "step_time", "--ack", "x"),
    ):
        assert call(*usage, "-w", house).code == 2, usage
    assert call("record", "nowhere", "-w", house).code == 1
    assert call("record", "--all", "--analysis", "step_sumary", "-w", house).code == 1
    assert call("history", "step_time", "-w", tmp_path / "none").code == 1
    told = call("history", "step_time", "--ack", "night-0040", "agreed on", "-w", house, "-f", "table")
    assert "acknowledged: agreed on" in told.out and "acknowledged: night-0040@v1" in told.err
    told = call("history", "step_time", "--unack", "night-0040", "-w", house, "-f", "table")
    assert told.code == 0 and "acknowledged" not in told.out
    done = call("record", "--all", "--analysis", "step_summary", "-w", house)
    assert done.out == "nothing to record: 60 runs, 1 analysis; 60 were there\n"


def test_recording_on_the_command_line(house: Path) -> None:
    done = call("record", "night-0001", "night-0002", "--analysis", "quality", "--json", "-w", house)
    (row,) = json.loads(done.out)["result"]
    assert (done.code, row["written"], row["present"], row["failed"]) == (0, 2, 0, [])
    assert row["runs"] == ["night-0001@v1", "night-0002@v1"]
    for path in (house / "results" / "step_summary@1" / "night-0003").rglob("*.parquet"):
        path.write_bytes(b"")
    assert call("verify", "-w", house).code == 1
    shown = on_terminal("record", "night-0005", "--analysis", "quality", "-w", house, env={"TERM": "xterm"})
    assert shown.code == 0 and "1 result recorded" in shown.out


def test_removing_all_but_the_results(house: Path) -> None:
    before = call("remove", "night-0004", "--keep-results", "--dry-run", "-w", house)
    gone = call("remove", "night-0004", "--keep-results", "-w", house)
    assert gone.out == "removed night-0004: 1 ranks, 0 B; 1 recorded results are kept\n"
    assert before.out == gone.out.replace("removed", "would remove")
    (kept,) = (house / "_tw" / "kept" / "night-0004").iterdir()
    kept.write_bytes(kept.read_bytes()[:-9])
    found = json.loads(call("verify", "--json", "-w", house).out)
    assert [row["path"] for row in found["result"]] == ["_tw/kept/night-0004/v000001.parquet"]


@pytest.mark.deep
def test_500_runs_are_answered_quickly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a process, from recorded results: the time is told, not judged; the changes are the planted ones."""
    chance = random.Random(9)
    places, level, periods = [90, 200, 310, 420], 1e8, []
    for at in range(500):
        level *= 1.03 if at in places else 1
        periods.append(round(level * (1 + chance.gauss(0, 0.01))))
    root = recorded_runs(tmp_path / "warehouse", periods).root
    began = time.perf_counter()
    told = process("history", "step_time", "-w", root)
    seconds = time.perf_counter() - began
    found = [at for at, row in enumerate(csv.DictReader(io.StringIO(told.out))) if row["change"]]
    with capsys.disabled():
        print(f"\n500 runs: {seconds:.2f} s; planted at {places}, found at {found}")
    assert len(found) == len(places)
    assert all(abs(a - b) <= 1 for a, b in zip(found, places, strict=True))
