"""The contracts of a later release, for tests of upgrades."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog

ADDED = '-- wave = { type = "BIGINT", null = true, unit = "count", doc = "Blocks over slots." }\n'
COMPATIBLE = '-- [changes]\n-- 2 = { text = "Adds wave.", compatible = true }\n'
WAVES = """-- /// tw
-- kind     = "analysis"
-- name     = "waves"
-- version  = 1
-- summary  = "Kernels with a wave."
-- requires = ["kernels@2"]
-- grain    = ["run_id", "rank"]
--
-- [columns]
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank   = { type = "INTEGER", doc = "The rank." }
-- count  = { type = "BIGINT", unit = "count", doc = "Kernels." }
--
-- [changes]
-- 1 = "First version."
-- ///
SELECT run_id, rank, count(*) - count(wave) AS count
FROM kernels
GROUP BY run_id, rank
"""


def add_kernels_2(folder: Path, old: str = "", new: str = "", added: str = ADDED) -> Path:
    """Writes kernels.v2.sql, compatible with version 1: one more column, and an edit."""
    text = (folder / "tables/kernels.v1.sql").read_text()
    text = text.replace("-- version    = 1", "-- version    = 2")
    text = text.replace("--\n-- [changes]\n", f"{added}--\n{COMPATIBLE}")
    assert old in text
    path = folder / "tables/kernels.v2.sql"
    path.write_text(text.replace(old, new) if old else text)
    return path


def edit(path: Path, old: str, new: str) -> None:
    """Replaces text of a file that must be in it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def newer_sql(folder: Path) -> Path:
    """A copy of the contracts with kernels@2 and an analysis of its new column."""
    sql = Path(shutil.copytree(ROOT / "sql", folder / "sql"))
    add_kernels_2(sql)
    (sql / "analyses/gpu/waves.v1.sql").write_text(WAVES)
    return sql


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
