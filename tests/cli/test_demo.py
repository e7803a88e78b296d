"""`tw demo` as a newcomer meets it: it finds what was planted, fits the screen, and harms nothing."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median_low
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT
from front_door import TW, Told, environment, on_terminal, process
from tracewarehouse.demo import PARTS, PLANTED, jobs
from tracewarehouse.simulation import simulate

Again = tuple[dict[str, Any], list[Path], list[Path]]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """A folder, and what the first call there told."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, process("demo", cwd=folder)


@pytest.fixture(scope="module")
def again(first: tuple[Path, Told]) -> Again:
    """What a second call there answers, and the files of the warehouse before and after it."""
    folder, _ = first
    before = sorted((folder / "warehouse").rglob("*"))
    row = answer(folder)
    return row, before, sorted((folder / "warehouse").rglob("*"))


def answer(folder: Path) -> dict[str, Any]:
    told = process("demo", "--json", cwd=folder)
    assert told.code == 0, told.err
    envelope = json.loads(told.out)
    assert (envelope["ok"], envelope["command"], envelope["error"]) == (True, "demo", None)
    (row,) = envelope["result"]
    assert isinstance(row, dict)
    return row


def test_a_pipe_gets_the_answer_and_stderr_how_far_it_is(first: tuple[Path, Told]) -> None:
    _, told = first
    assert told.code == 0
    assert told.errors == [
        "simulating two runs of 8 ranks", "taking them into the warehouse", "asking what differs",
    ]  # fmt: skip
    assert max(map(len, told.out.splitlines())) <= 80
    assert not [line for line in told.out.splitlines() if line != line.rstrip()]
    assert "In demo-after the others wait for rank 5: its computation takes\n  25." in told.out


def test_a_terminal_of_80_columns_gets_the_same(first: tuple[Path, Told]) -> None:
    folder, _ = first
    shown = on_terminal("demo", "-w", folder / "warehouse", columns=80)
    assert shown.code == 0
    text = shown.out.rpartition("asking what differs\n")[2].partition("There already: ")[2]
    assert "Try next" in text and max(map(len, text.splitlines()[3:-9])) <= 80


def test_it_finds_what_was_planted_and_no_more(again: Again) -> None:
    found, *_ = again
    gemm, extra, *others = found["kernels"]
    assert PLANTED == (
        "slow-kernel:kernel=gemm,percent=15",
        "extra-kernel:us=80",
        "slow-rank:rank=5,factor=1.25",
    )
    assert "gemm" in gemm["name"] and abs(gemm["after_ns"] / gemm["before_ns"] - 1.15) < 0.01
    assert (extra["name"], extra["before_ns"]) == ("triton_poi_fused_clone_mul_0", None)
    assert abs(extra["after_ns"] - 80_000) < 2_000
    assert all(abs(each["after_ns"] / each["before_ns"] - 1) < 0.02 for each in others)
    before, after = found["stragglers"]
    assert before["share"] < 0.5 and before["compute_ns"] / before["median_compute_ns"] < 1.01
    assert (after["rank"], after["share"], after["last_at"]) == (5, 1.0, after["collectives"])
    assert after["waiting_ns"] > 10 * before["waiting_ns"]
    assert abs(after["compute_ns"] / after["median_compute_ns"] - 1.25) < 0.01


def test_its_figures_are_those_of_the_simulator(again: Again, tmp_path: Path) -> None:
    found, *_ = again
    for run, job in zip(found["runs"], jobs(), strict=True):
        truth = json.loads(simulate(tmp_path / run["run"], job).truth.read_text())["sections"]
        split, steps = (rows(truth[name]) for name in ("temporal_breakdown", "step_summary"))
        assert run["parts_ns"] == {part: sum(row[part] for row in split) for part in PARTS}
        assert run["step_ns"] == median_low(row["period_ns"] for row in steps if not row["partial"])
        assert run["window_ns"] == sum(run["parts_ns"].values())
        assert (run["ranks"], run["steps"]) == (8, 6)


def rows(section: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(section["columns"], row, strict=True)) for row in section["rows"]]


def test_a_second_call_writes_nothing(first: tuple[Path, Told], again: Again) -> None:
    folder, _ = first
    found, before, after = again
    assert found["taken_in"] is False
    assert after == before
    assert [row["run_id"] for row in tw.open(folder / "warehouse").runs().rows()] == [
        "demo-before",
        "demo-after",
    ]


@pytest.mark.deep
def test_a_run_of_another_making_stays_as_it_is(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "my warehouse")
    wh.ingest(ROOT / "tests" / "data" / "first-steps", run="demo-after")
    mine = wh.select(runs="demo-after").runs().rows()
    told = process("demo", "-w", wh.root)
    assert told.code == 0 and "demo-before-2 and demo-after-2" in told.out
    assert wh.select(runs="demo-after").runs().rows() == mine
    assert {row["run_id"] for row in wh.runs().rows()} == {"demo-after", "demo-before-2", "demo-after-2"}
    assert max(map(len, told.out.partition("Try next")[0].splitlines()[2:])) <= 80
    run_all(told, tmp_path)
    assert [row["run_id"] for row in wh.runs().rows()] == ["demo-after"]


def run_all(told: Told, folder: Path) -> None:
    """Runs what was printed under "Try next" as a shell would; the last takes the runs out again."""
    lines = told.out.partition("Try next\n")[2].splitlines()
    script = folder / "tw"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(TW)} "$@"\n')
    script.chmod(0o755)
    env = environment({"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin"})
    assert len(lines) == 8
    for line in lines:
        done = subprocess.run(["bash", "-euc", line], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip(), (line, done.stderr)
        assert done.stderr in ("", "… 12 more rows (--head)\n", "comparing\nworking out the page\ndrawing\n")


def test_printed_commands_leave_out_the_usual_warehouse(first: tuple[Path, Told]) -> None:
    folder, told = first
    assert " -w " not in told.out
    asked = process("demo", "--json", cwd=folder, env={"TW_WAREHOUSE": str(folder / "warehouse")})
    assert not [line for line in json.loads(asked.out)["result"][0]["next"] if " -w " in line]


def test_where_no_warehouse_can_be_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no warehouse")
    told = process("demo", "-w", tmp_path / "file")
    assert told.code == 1 and "Traceback" not in told.err and "file" in told.errors[-2]
