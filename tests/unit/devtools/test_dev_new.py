"""An analysis is one `.sql` file and one golden file; nothing else is edited by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from later_release import edit

SQL = "sql/analyses/gpu/long_kernels.v1.sql"
GOLDEN = "tests/goldens/analyses/gpu/long_kernels.v1.golden"


def tw(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return run(checkout, "tracewarehouse", "dev", *command)


def run(checkout: Path, *module: str) -> subprocess.CompletedProcess[str]:
    """A module with its arguments, run by the code of the checkout."""
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with a new analysis as `tw dev new` writes it."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("sql", "src", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    done = tw(folder, "new", "long_kernels")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == [f"wrote {SQL}", f"wrote {GOLDEN}"]
    return folder


@pytest.mark.deep
def test_unedited_lines_of_the_skeletons_are_found(checkout: Path) -> None:
    done = tw(checkout, "check", "long_kernels")
    assert done.returncode == 1
    places = [line.partition(": ")[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert places == [f"{SQL}:5", f"{SQL}:15", f"{GOLDEN}:1"]


@pytest.fixture(scope="module")
def edited(checkout: Path) -> Path:
    """The checkout with the skeletons edited."""
    edit(checkout / SQL, "TODO: what a row is, in one sentence.", "Kernels of at least 20 ns per rank.")
    edit(checkout / SQL, "TODO: what is counted.", "Kernels of at least `least_ns`.")
    params = (
        '-- [params]\n-- least_ns = { type = "BIGINT", default = 20, unit = "ns", min = 0, doc = "Least." }\n'
    )
    edit(checkout / SQL, "--\n-- [columns]\n", f"--\n{params}--\n-- [columns]\n")
    edit(checkout / SQL, "FROM kernels\n", "FROM kernels\nWHERE dur_ns >= $least_ns\n")
    edit(
        checkout / GOLDEN,
        "# TODO: what the trace contains (see tests/support/sketch.py), and why these rows are expected.",
        "# One is long.",
    )
    edit(checkout / GOLDEN, "a,0,2", "a,0,1")
    return checkout


def test_sync_writes_the_method_of_a_new_analysis(edited: Path) -> None:
    assert tw(edited, "sync").returncode == 0
    stub = (edited / "src/tracewarehouse/analyses.pyi").read_text()
    assert "def long_kernels(self, *, least_ns: int | str = 20) -> T_co:" in stub


@pytest.mark.deep  # it runs the laws
def test_a_sql_file_and_a_golden_file_are_enough(edited: Path) -> None:
    assert tw(edited, "sync").returncode == 0
    done = tw(edited, "check", "long_kernels")
    assert (done.returncode, done.stdout) == (0, "no problems found\n"), done.stdout + done.stderr


@pytest.mark.deep  # it runs the laws
def test_a_finding_rule_is_its_condition_and_its_words(checkout: Path) -> None:
    """The skeleton needs texts and, because its rows repeat them, a golden file that is written again."""
    assert tw(checkout, "new", "long_copies", "--group", "findings").returncode == 0
    sql, golden = (
        checkout / f"{folder}/analyses/findings/long_copies.v1.{suffix}"
        for folder, suffix in (("sql", "sql"), ("tests/goldens", "golden"))
    )
    for path in (sql, golden):
        assert "TODO" in path.read_text()
        path.write_text(path.read_text().replace("TODO: ", "").replace("TODO", "copies"))
    assert tw(checkout, "sync").returncode == 0
    found = tw(checkout, "check", "long_copies").stdout
    assert found.startswith(f"{golden.relative_to(checkout)}: fails") and "--update-golden" in found
    updated = run(checkout, "pytest", "-n", "0", "-q", "--update-golden", str(golden))
    assert updated.returncode == 0, updated.stdout
    rows = golden.read_text().partition("result\n")[2]
    assert "a,0,copies,warning,0.1,0.1," in rows and "a,1,copies,none,0.099,0.1," in rows
    done = tw(checkout, "check", "long_copies")
    assert (done.returncode, done.stdout) == (0, "no problems found\n"), done.stdout + done.stderr


@pytest.mark.deep
def test_nothing_else_is_needed(edited: Path) -> None:
    assert tw(edited, "check").stdout == "no problems found\n"


@pytest.mark.deep
def test_a_wrong_row_is_found_by_its_golden_file(edited: Path) -> None:
    text = (edited / GOLDEN).read_text()
    (edited / GOLDEN).write_text(text.replace("a,0,", "a,0,9"))
    done = tw(edited, "check", "long_kernels")
    (edited / GOLDEN).write_text(text)
    assert done.returncode == 1
    assert done.stdout.startswith("tests/goldens/analyses/gpu/long_kernels.v1.golden: fails"), done.stdout


def test_a_name_that_exists_is_refused(checkout: Path) -> None:
    done = tw(checkout, "new", "kernel_summary")
    assert done.returncode == 1 and "kernel_summary already exists" in done.stderr


@pytest.mark.deep
def test_an_unsuitable_or_unknown_name_is_refused(checkout: Path) -> None:
    assert tw(checkout, "new", "Long-Kernels").returncode == 1
    assert tw(checkout, "check", "kernel_sumary").returncode == 1
