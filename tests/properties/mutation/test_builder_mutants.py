"""Mutants of builders are caught by the tests of the builders, or have a reason why no test can."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from builder_mutants import BROKEN, Edit, count, modules, mutant, mutants

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Module → edit → why its rows equal those of the original.
EQUIVALENT = tomllib.loads((HERE / "equivalent_builders.toml").read_text(encoding="utf-8"))
# Edits of one module that are checked together.
MOST = 8
# The tests of the builders: brute force first, then golden rows.
TESTS = (
    "tests/unit/ingest/tables",
    "tests/goldens/tables",
    "tests/properties/witness/test_modules.py",
    "tests/goldens/views",
)
# Seconds for the tests with these marks: several times what they take when nothing is broken.
TIMEOUTS = {"not deep": 300, "deep": 1200}


def caught(edit: Edit, number: int) -> bool:
    """Whether a test of the builders fails with it, one that always runs or, if none does, a deep one."""
    return any(_fails(edit, number, marks) for marks in TIMEOUTS)


def _fails(edit: Edit, number: int, marks: str) -> bool:
    """Whether one of these tests fails; a test that does not end counts as failed."""
    paths = os.pathsep.join([str(HERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": paths, BROKEN: f"{edit.module}:{number}"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "builder_mutants",
               "-p", "no:cacheprovider", "-m", marks, *TESTS]  # fmt: skip
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, timeout=TIMEOUTS[marks], check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return ended.returncode != pytest.ExitCode.OK


@pytest.mark.deep
@pytest.mark.parametrize("module", modules())
def test_broken_builders_are_caught(module: str) -> None:
    numbers = random.Random(module).sample(range(count(module)), min(MOST, count(module)))
    selected = [(number, mutant(module, number)) for number in numbers]
    known = EQUIVALENT.get(module, {})
    alive = [edit for number, edit in selected if edit.what not in known and not caught(edit, number)]
    assert not alive, "\n".join(f"{edit.module}.py:{edit.line}: {edit.what}" for edit in alive)


@pytest.mark.deep
def test_each_reason_is_of_an_edit() -> None:
    edits = {(edit.module, edit.what) for module in EQUIVALENT for edit in mutants(module)}
    reasons = {(module, what) for module, known in EQUIVALENT.items() for what in known}
    assert reasons <= edits


def test_every_builder_can_be_broken() -> None:
    assert [module for module in modules() if not count(module)] == []
