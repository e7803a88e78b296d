"""Mutants of the list, judged once more."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from listing import NO_CHANGE, Line, read

LINES = read()
EVERY = [line for lines in LINES.values() for line in lines]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, prepared."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "laws"))
    import judge

    judge.prepare(str(tmp_path))
    yield judge
    judge.KILLERS.clear()


@pytest.mark.deep
def test_golden_files_catch_what_the_list_says(judge: Any) -> None:
    caught = [line for line in EVERY if line.killed_by.startswith("golden ")]
    for line in random.Random(7).sample(caught, 60):
        assert by_goldens(judge, line) == line.killed_by, line


@pytest.mark.deep
def test_laws_and_truth_catch_what_the_list_says_and_nothing_more(judge: Any) -> None:
    caught = [line for line in EVERY if line.killed_by.startswith(("law ", "truth "))]
    argued = [line for line in EVERY if line.killed_by == NO_CHANGE]
    for line in [*random.Random(7).sample(caught, min(20, len(caught))), *argued]:
        assert by_goldens(judge, line) in ("", NO_CHANGE), line
        (found,) = judge.by_laws(line.contract, [(line.change, line.place)], False)
        assert found.killed_by == line.killed_by


def by_goldens(judge: Any, line: Line) -> str:
    """The golden file that catches this one; the others are taken as known."""
    known = [replace(each, killed_by="known") for each in LINES[line.contract] if each != line]
    found: list[Line] = judge.by_goldens(line.contract, known, False)
    return next(each.killed_by for each in found if each.same(line))
