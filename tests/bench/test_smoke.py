"""The bench in small: every case runs and its answers are right. No time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.bench import HERE
from bench.model import Row, Target
from bench.report import OtherTable, before, beside, page
from conftest import ROOT


def test_every_case_gives_right_answers(tmp_path: Path) -> None:
    told = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.bench", "--smoke", "--json", str(told)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(told.read_text(encoding="utf-8"))["rows"]
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
    } <= measured


def test_the_page_is_of_its_figures() -> None:
    data = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    assert (HERE / "RESULTS.md").read_text(encoding="utf-8") == page(
        list(map(Row.of, data["rows"])), data["about"]
    )


def test_other_cases_stay(tmp_path: Path) -> None:
    old = [Row("size", "a", Target(0.8), (0.7, 0.9), "×"), Row("start", "b", None, (1.0,), "s")]
    new = [Row("start", "c", note="not measured")]
    assert beside(new, old) == [old[0], *new]
    path, about = tmp_path / "rows.json", {"date": "today", "peer": "one"}
    assert before(path, about) == ([], about)
    path.write_text(json.dumps({"about": about, "rows": [row.told() for row in old]}), encoding="utf-8")
    assert before(path, about) == (old, about)
    assert before(path, {**about, "peer": "none: not set"}) == (old, about)


def test_a_part_never_throws_away_what_it_cannot_stand_beside(tmp_path: Path) -> None:
    path, about = tmp_path / "rows.json", {"date": "today", "peer": "none: not set"}
    path.write_text(json.dumps({"about": about, "rows": []}), encoding="utf-8")
    assert before(path, {**about, "peer": "one"}) == ([], {**about, "peer": "one"})
    with pytest.raises(OtherTable, match="another date"):
        before(path, {**about, "date": "tomorrow"})
