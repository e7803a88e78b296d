"""The data that the repository carries is what its scripts make."""

from __future__ import annotations

import gzip
import runpy
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
MADE: dict[str, bytes] = runpy.run_path(str(DATA / "make_first_steps.py"))["files"]()


def content(name: str, stored: bytes) -> bytes:
    # A zlib of another release may pack the same content into other bytes.
    return gzip.decompress(stored) if name.endswith(".gz") else stored


@pytest.mark.parametrize("name", sorted(MADE))
def test_first_steps_is_fresh(name: str) -> None:
    stored = (DATA / name).read_bytes()
    assert content(name, stored) == content(name, MADE[name]), "run: python tests/data/make_first_steps.py"


def test_first_steps_has_no_other_file() -> None:
    folder = DATA / "first-steps"
    stored = {f"first-steps/{path.name}" for path in folder.iterdir()}
    assert stored == {name for name in MADE if name.startswith("first-steps/")}


def test_first_steps_says_that_it_is_drawn() -> None:
    for name in MADE:
        if name.endswith(".gz"):
            assert b'"synthetic"' in gzip.decompress((DATA / name).read_bytes())
