"""Each notebook runs from its first cell to its last, and says what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT

SAYS = {"first_look": "the other ranks wait for rank 2"}


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in (ROOT / "notebooks").iterdir()} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_notebook_runs(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "notebooks" / f"{name}.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert list(tmp_path.iterdir()) == []
