"""`tw demo`: finds the injected faults, fits the screen, and changes no other run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import TW, CliResult, environment, on_terminal, process
from cli_runner import tw as call
from conftest import ROOT
from tracewarehouse.cli.demo import INJECTED, jobs
from tracewarehouse.simulation import simulate

Again = tuple[dict[str, Any], list[Path], list[Path]]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CliResult]:
    """A folder, and the result of the first call there."""
    folder = tmp_path_factory.mktemp("demo")
    return folder, process("demo", cwd=folder)


@pytest.fixture(scope="module")
def again(first: tuple[Path, CliResult]) -> Again:
    """The result of a second call, and the files of the warehouse before and after it."""
    folder, _ = first
    before = sorted((folder / "warehouse").rglob("*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TW_WAREHOUSE", str(folder / "warehouse"))
        row = answer(call("demo", "--json"))
    return row, before, sorted((folder / "warehouse").rglob("*"))


def answer(cli: CliResult) -> dict[str, Any]:
    """The row in the envelope of a call that succeeds."""
    assert cli.code == 0, cli.err
    envelope = json.loads(cli.out)
    assert (envelope["ok"], envelope["command"], envelope["error"]) == (True, "demo", None)
    (row,) = envelope["result"]
    assert isinstance(row, dict)
    return row


def test_stdout_has_the_text_and_stderr_the_progress(first: tuple[Path, CliResult]) -> None:
    _, cli = first
    assert cli.code == 0
    assert cli.errors == [
        "simulating two runs of 8 ranks", "ingesting", "comparing",
    ]  # fmt: skip
    assert max(map(len, cli.out.splitlines())) <= 80
    assert not [line for line in cli.out.splitlines() if line != line.rstrip()]
    text = " ".join(cli.out.split())
    assert "slow_rank (collectives) in demo-after rank 5: Rank 5 is late: its computation takes 25 %" in text


@pytest.mark.deep
def test_the_text_fits_80_columns(first: tuple[Path, CliResult]) -> None:
    folder, _ = first
    shown = on_terminal("demo", "-w", folder / "warehouse", columns=80)
    assert shown.code == 0
    text = shown.out.rpartition("comparing\n")[2].partition(" already has ")[2]
    assert "Try next" in text and max(map(len, text.splitlines()[3:-9])) <= 80


def test_the_demo_finds_exactly_the_injected_faults(again: Again) -> None:
    found, *_ = again
    assert INJECTED == (
        "slow-kernel:kernel=gemm,percent=15",
        "extra-kernel:us=80",
        "slow-rank:rank=5,factor=1.25",
    )
    # Rank 5 takes 25 % longer for all its kernels, so the mean of 8 ranks does for a 32nd.
    changed = {row["name"]: row for row in found["diff"]["breakdown"] if row["level"] == "kernels"}
    gemm = next(row for name, row in changed.items() if "gemm" in name)
    assert abs(gemm["head_ns"] / gemm["base_ns"] - 1.15 * (1 + 0.25 / 8)) < 0.01
    added = [row for row in changed.values() if row["base_ns"] == 0 and row["head_ns"]]
    assert [row["name"] for row in added] == ["triton_poi_fused_clone_mul_0"]
    assert abs(added[0]["head_ns"] / (1 + 0.25 / 8) - 80_000) < 2_000
    others = [row for row in changed.values() if row not in (gemm, *added) and row["base_ns"] > 10_000]
    on_gpu = [row for row in others if not row["name"].startswith(("nccl", "idle_"))]
    assert len(on_gpu) > 5
    assert all(abs(row["head_ns"] / row["base_ns"] - (1 + 0.25 / 8)) < 0.02 for row in on_gpu)
    (finding,) = found["findings"]
    assert (finding["rule"], finding["rank"], finding["severity"]) == ("slow_rank", 5, "warning")
    assert "computation takes 25 % longer" in finding["observation"]


@pytest.mark.deep
def test_figures_equal_those_of_the_simulator(again: Again, tmp_path: Path) -> None:
    found, *_ = again
    verdict = found["diff"]["verdict"]
    for side, job in zip(("base", "head"), jobs(), strict=True):
        truth = json.loads(simulate(tmp_path / side, job).truth.read_text())["sections"]["step_summary"]
        periods: dict[int, list[int]] = {}
        for row in (dict(zip(truth["columns"], row, strict=True)) for row in truth["rows"]):
            if not row["partial"]:
                periods.setdefault(row["step"], []).append(row["period_ns"])
        steps = [sum(ns) / len(ns) for ns in periods.values()]
        assert abs(verdict[f"{side}_median_ns"] - median(steps)) <= 1
        assert abs(verdict[f"{side}_mean_ns"] - sum(steps) / len(steps)) <= 1


def test_a_second_call_changes_nothing(first: tuple[Path, CliResult], again: Again) -> None:
    folder, _ = first
    found, before, after = again
    assert found["ingested"] is False
    assert after == before
    assert [row["run_id"] for row in tw.open(folder / "warehouse").runs().rows()] == [
        "demo-before",
        "demo-after",
    ]


@pytest.mark.deep
def test_other_runs_of_the_same_name_are_kept(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "my warehouse")
    wh.ingest(ROOT / "tests" / "data" / "first-steps", run="demo-after")
    mine = wh.select(runs="demo-after").runs().rows()
    cli = process("demo", "-w", wh.root)
    assert cli.code == 0 and "demo-before-2 and demo-after-2" in cli.out
    assert wh.select(runs="demo-after").runs().rows() == mine
    assert {row["run_id"] for row in wh.runs().rows()} == {"demo-after", "demo-before-2", "demo-after-2"}
    assert max(map(len, cli.out.partition("Try next")[0].splitlines()[2:])) <= 80
    run_all(cli, tmp_path)
    assert [row["run_id"] for row in wh.runs().rows()] == ["demo-after"]


def run_all(cli: CliResult, folder: Path) -> None:
    """Runs the commands printed under "Try next" in a shell; the last one removes the runs."""
    lines = cli.out.partition("Try next\n")[2].splitlines()
    script = folder / "tw"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(TW)} "$@"\n')
    script.chmod(0o755)
    env = environment({"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin"})
    assert len(lines) == 8
    for line in lines:
        done = subprocess.run(["bash", "-euc", line], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip(), (line, done.stderr)
        assert done.stderr in (
            "",
            "… 12 more rows (use --limit N)\n",
            "comparing\nworking out the page\nrendering\n",
        )


def test_commands_omit_the_default_warehouse(first: tuple[Path, CliResult], again: Again) -> None:
    _, cli = first
    assert " -w " not in cli.out
    found, *_ = again
    assert found["next"] and not [line for line in found["next"] if " -w " in line]


def test_an_invalid_warehouse_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no warehouse")
    cli = call("demo", "-w", tmp_path / "file")
    assert cli.code == 1 and "Traceback" not in cli.err and "file" in cli.errors[-2]
