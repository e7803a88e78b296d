"""The benchmark at small sizes: every case runs and its results are correct. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench import HERE
from benchmarks.model import Row, Target
from benchmarks.report import OtherTable, before, page, with_earlier
from conftest import ROOT


@pytest.mark.deep
def test_every_case_has_correct_results(tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.benchmarks", "--smoke", "--json", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    assert not [row for row in rows if row["wrong"]]
    measured = {row["case"] for row in rows}
    assert {
        "ingest-one",
        "large",
        "ids",
        "tiny",
        "ranks-ingest",
        "size",
        "hta-analyses",
        "one-run",
        "many-ranks",
        "wait_attribution",
    } <= measured


def test_results_md_equals_its_json() -> None:
    data = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    assert (HERE / "RESULTS.md").read_text(encoding="utf-8") == page(
        list(map(Row.of, data["rows"])), data["about"]
    )


def test_rows_of_other_cases_are_kept(tmp_path: Path) -> None:
    old = [Row("size", "a", Target(0.8), (0.7, 0.9), "×"), Row("start", "b", None, (1.0,), "s")]
    new = [Row("start", "c", note="not measured")]
    assert with_earlier(new, old) == [old[0], *new]
    path, about = tmp_path / "rows.json", {"date": "today", "peer": "one"}
    assert before(path, about) == ([], about)
    path.write_text(json.dumps({"about": about, "rows": [row.as_json() for row in old]}), encoding="utf-8")
    assert before(path, about) == (old, about)
    assert before(path, {**about, "peer": "none: not set"}) == (old, about)


def test_incompatible_rows_are_never_overwritten(tmp_path: Path) -> None:
    path, about = tmp_path / "rows.json", {"date": "today", "peer": "none: not set"}
    path.write_text(json.dumps({"about": about, "rows": []}), encoding="utf-8")
    assert before(path, {**about, "peer": "one"}) == ([], {**about, "peer": "one"})
    with pytest.raises(OtherTable, match="another date"):
        before(path, {**about, "date": "tomorrow"})
