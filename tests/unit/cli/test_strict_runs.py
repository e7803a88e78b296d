"""Answers that leave runs out say so: in a line, as `left_out` in JSON, and by --strict-runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli_runner import CliResult, tw
from ingesting import take, write
from tracewarehouse.storage import parquet_file
from tracewarehouse.warehouse import Warehouse

RUNS = tuple(f"r{number}" for number in range(8))
DAMAGED = RUNS[1:6]
LINE = "5 of 8 runs left out: file missing (r1, r2, r3, …); tw verify lists the damage"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strict")
    for run in RUNS:
        write(folder / run, range(1), mark=run)
        take(folder / "wh", folder / run, run=run, jobs=1)
    Warehouse(folder / "wh").record(["r0", "r7"], analyses="step_summary")
    return folder / "wh"


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy with five runs whose kernels are lost."""
    copied = Path(shutil.copytree(whole, tmp_path / "wh"))
    for run in DAMAGED:
        shutil.rmtree(copied / "data" / "kernels" / run)
    parquet_file._passed.clear()
    return copied


COMMANDS = {
    "show": ("show", "kernel_summary"),
    "query": ("query", "SELECT count(*) FROM kernels"),
    "check": ("check",),
    "diff": ("diff", "r*", "r0"),
    "diff of an analysis": ("diff", "r*", "r0", "kernel_summary"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_answer_says_which_runs_it_leaves_out(root: Path, whole: Path, name: str) -> None:
    command = (*COMMANDS[name], "-w", root)
    plain = tw(*command)
    assert plain.code == 0 and plain.errors.count(LINE) == 1, plain.err
    assert sum("left out" in line for line in plain.errors) == 1
    strict = tw(*command, "--strict-runs")
    assert strict.code == 4 and strict.out == plain.out
    assert strict.errors[-1] == "--strict-runs: runs left out: 5"
    said = json.loads(tw(*command, "--json").out)
    assert [each["run_id"] for each in said["left_out"]] == list(DAMAGED)
    assert all(each["reason"].endswith("file missing") for each in said["left_out"])
    sound = tw(*COMMANDS[name], "-w", whole, "--strict-runs", "--json")
    assert sound.code == 0 and json.loads(sound.out)["left_out"] == []


def test_few_runs_have_a_line_each(whole: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(whole, tmp_path / "wh"))
    for run in DAMAGED[:2]:
        shutil.rmtree(root / "data" / "kernels" / run)
    lines = [line for line in tw("show", "kernel_summary", "-w", root).errors if "left out" in line]
    assert [line.partition(":")[0] for line in lines] == [
        f"run {run} is damaged and left out" for run in DAMAGED[:2]
    ]


def test_runs_that_an_answer_is_not_about_do_not_count(root: Path) -> None:
    where = "SELECT count(*) FROM kernels WHERE run_id = 'r0'"
    assert tw("query", where, "--strict-runs", "-w", root).code == 0
    assert tw("show", "kernel_summary", "--run", "r0", "--strict-runs", "-w", root).code == 0
    # The damage is in a table that is not read.
    assert tw("show", "step_summary", "--strict-runs", "-w", root).code == 0


def test_a_history_lacks_runs_that_are_not_recorded_or_cannot_be_read(root: Path) -> None:
    def history(*words: str) -> CliResult:
        return tw("history", "step_time", "--strict-runs", "-w", root, "--json", *words)

    assert history("--run", "r0", "--run", "r7").code == 0
    for run in RUNS[1:7]:
        shutil.rmtree(root / "_tw" / "versions" / run)
    all_runs = history()
    assert all_runs.code == 4
    assert [each["run_id"] for each in json.loads(all_runs.out)["left_out"]] == list(RUNS[1:7])


def test_a_page_over_runs_says_what_it_leaves_out(root: Path, tmp_path: Path) -> None:
    done = tw("report", "--runs", "r*", "-w", root, "-o", tmp_path / "runs.html", "--strict-runs")
    assert done.code == 4, done.err
    assert LINE in (tmp_path / "runs.html").read_text()
    assert Warehouse(root).analyze("kernel_summary").left_out.keys() == set(DAMAGED)


def test_many_files_that_fail_alike_have_one_line(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for rank in range(9):
        (tmp_path / "job" / f"rank{rank}.json").write_text("no trace")
    done = tw("ingest", tmp_path / "job", "-w", tmp_path / "wh", "--min-age", "0", "--jobs", "1")
    refused = [line for line in done.errors if line.startswith("refused")]
    assert len(refused) == 1
    assert refused[0].startswith(f"refused: 9 files such as {tmp_path / 'job' / 'rank0.json'}: ")
