"""The contracts of a later release, for tests of upgrades."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog


@pytest.fixture
def newer(tmp_path: Path) -> Catalog:
    """The contracts of a later release, which has a runtime@2."""
    folder = Path(shutil.copytree(ROOT / "sql", tmp_path / "sql"))
    old = (folder / "tables" / "runtime.v1.sql").read_text()
    new = old.replace("-- version    = 1", "-- version    = 2").replace(
        "-- 1 = ", '-- 2 = "Another definition."\n-- 1 = ', 1
    )
    assert new.count("= 2") == 1
    (folder / "tables" / "runtime.v2.sql").write_text(new)
    return Catalog.read(folder)
