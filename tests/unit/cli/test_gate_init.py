"""`tw gate init`: workflows that are valid, and whose commands run."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

import cli_runner
from tracewarehouse.cli.app import app
from tracewarehouse.cli.diff import diff
from tracewarehouse.compare.diff.gate import parse
from tracewarehouse.contracts.catalog import Catalog

PLACES = {
    "github": ".github/workflows/performance.yml",
    "gitlab": ".gitlab/performance.yml",
    "slurm": "tw-epilog.sh",
}
SIZE = ("--ranks", "1", "--layers", "1", "--steps", "4", "--no-stacks", "--no-memory")


@pytest.mark.parametrize(("system", "place"), PLACES.items())
def test_a_workflow_is_written_once_and_its_commands_are_understood(
    system: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli_runner.tw("gate", "init", system)
    assert (done.code, done.out) == (0, f"wrote {place}\n")
    text = (tmp_path / place).read_text(encoding="utf-8")
    again = cli_runner.tw("gate", "init", system)
    assert again.code == 1 and f"{place} exists" in again.err
    assert (tmp_path / place).read_text(encoding="utf-8") == text
    assert "inconclusive" in text and " 5" in text
    commands = re.findall(r"(?:^|(?<=[ ;]))tw (ingest|record|diff) ([^#\n]*?)(?= >|;|$| \|\|)", text, re.M)
    assert [name for name, _ in commands if name != "record"] == ["ingest", "diff"]
    assert len(commands) == 3
    for name, rest in commands:
        words = shlex.split(rest)
        command = app.get_command(click.Context(app), name)
        assert command is not None
        command.make_context(name, words, resilient_parsing=True)  # knows the options
    gates = re.findall(r"--gate '([^']+)'", text)
    assert len(gates) == 2 and all(parse(gate, Catalog.load()).relative for gate in gates)
    assert any("--allow-inconclusive" in option.opts for option in diff.params)


@pytest.mark.parametrize("system", ["github", "gitlab"])
def test_a_workflow_is_valid_yaml(system: str, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    path = tmp_path / "folder" / "ci.yml"
    assert cli_runner.tw("gate", "init", system, "--output", path).code == 0
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    job = found["jobs"]["gates"]["steps"] if system == "github" else found["performance"]["script"]
    assert sum("tw diff @baseline" in str(step) for step in job) == 1


def test_the_slurm_epilog_compares_and_records_a_job(tmp_path: Path) -> None:
    (tmp_path / "tw").write_text(
        f"#!/bin/sh\nexec '{cli_runner.TW[0]}' -c 'from tracewarehouse.cli import main; main()' \"$@\"\n"
    )
    (tmp_path / "tw").chmod(0o755)
    script = tmp_path / "tw-epilog.sh"
    assert cli_runner.tw("gate", "init", "slurm", "-o", script).code == 0
    assert cli_runner.tw("simulate", tmp_path / "traces", *SIZE).code == 0
    job = {"SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "17", "TW_WAREHOUSE": str(tmp_path / "warehouse")}
    env = cli_runner.environment({"PATH": f"{tmp_path}:/usr/bin:/bin", **job})
    done = subprocess.run([script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = tmp_path / "train-17-gates.txt"
    assert (
        f"train-17: inconclusive, for example with fewer than 12 recorded runs, see {report}" in done.stdout
    )
    assert "no baseline: 0 recorded runs" in report.read_text(encoding="utf-8")
    history = cli_runner.tw("history", "step_time", "-w", tmp_path / "warehouse", "-f", "csv")
    assert "train-17" in history.out
