"""A release freezes the contracts of this checkout: then changes are refused, compatible versions accepted.

Each case works on a copy of the checkout; the real `released.lock` is only read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_runner import CliResult, tw
from conftest import ROOT
from later_release import add_kernels_2, edit
from tracewarehouse.contracts.catalog import read_lock
from tracewarehouse.contracts.contract import Ref
from tracewarehouse.devtools import checkout as devtools

pytestmark = pytest.mark.deep
SUMMARY = "sql/analyses/gpu/kernel_summary.v1.sql"


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with all contracts released."""
    root = tmp_path_factory.mktemp("released")
    for name in ("sql", "src", "tests/goldens"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "_scan-*"))
    shutil.copy(ROOT / "README.md", root)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert tw("dev", "release").code == 0
        assert tw("dev", "release").out == "nothing to release\n"
    return root


@pytest.fixture
def checkout(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the released checkout, as the working folder."""
    root = Path(shutil.copytree(released, tmp_path / "checkout"))
    monkeypatch.chdir(root)
    return root


def check() -> CliResult:
    """`tw dev check`, after the generated files are up to date."""
    assert tw("dev", "sync").code == 0
    return tw("dev", "check")


def test_a_release_freezes_every_contract(checkout: Path) -> None:
    lock, catalog = read_lock(checkout / "sql"), devtools.Catalog.read(checkout / "sql")
    assert lock.keys() == catalog.contracts.keys() and len(lock) > 150
    assert check().code == 0


def changed_sql(root: Path) -> None:
    edit(root / SUMMARY, "FROM kernels", "FROM kernels AS kernels")


def changed_unit(root: Path) -> None:
    edit(
        root / "sql/tables/memory_events.v1.sql", 'unit = "id", doc = "0 CPU', 'unit = "count", doc = "0 CPU'
    )


def changed_nulls(root: Path) -> None:
    edit(
        root / SUMMARY, 'unit = "count", aggregate = "sum"', 'unit = "count", null = true, aggregate = "sum"'
    )


def changed_fold(root: Path) -> None:
    edit(root / SUMMARY, 'unit = "ns", aggregate = "min"', 'unit = "ns", aggregate = "max"')


def changed_definition(root: Path) -> None:
    edit(root / "sql/tables/kernels.v1.sql", "-- definition = ", "-- definition = 9")


def column_added_in_place(root: Path) -> None:
    column = '-- wave = { type = "BIGINT", null = true, unit = "count", doc = "Blocks over slots." }\n'
    edit(root / "sql/tables/kernels.v1.sql", "--\n-- [changes]\n", f"{column}--\n-- [changes]\n")


def deleted(root: Path) -> None:
    (root / "sql/analyses/findings/slow_rank.v1.sql").unlink()


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (changed_sql, "kernel_summary@1 is released, but was changed"),
        (changed_unit, "memory_events@1 is released, but was changed"),
        (changed_nulls, "kernel_summary@1 is released, but was changed"),
        (changed_fold, "kernel_summary@1 is released, but was changed"),
        (changed_definition, "kernels@1 is released, but was changed"),
        (column_added_in_place, "kernels@1 is released, but was changed"),
        (deleted, "slow_rank@1 is released, but its file was deleted"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_changed_contract_is_refused(change: Callable[[Path], None], refused: str, checkout: Path) -> None:
    change(checkout)
    result = check()
    assert result.code == 1 and refused in result.out
    assert tw("dev", "release").code == 1


def test_a_compatible_version_is_accepted_and_released(checkout: Path) -> None:
    add_kernels_2(checkout / "sql")
    for golden in (checkout / "tests/goldens/tables").glob("kernels.v1.*golden"):
        shutil.copy(golden, golden.with_name(golden.name.replace(".v1.", ".v2.")))
    result = check()
    assert result.code == 0, result.out
    assert tw("dev", "release").out == "released kernels@2\n"
    assert Ref("kernels", 2) in read_lock(checkout / "sql")


def test_a_new_version_is_accepted(checkout: Path) -> None:
    new = checkout / SUMMARY.replace(".v1.", ".v2.")
    shutil.copy(checkout / SUMMARY, new)
    edit(new, "-- version  = 1", "-- version  = 2")
    edit(new, "-- [changes]\n", '-- [changes]\n-- 2 = "Another definition."\n')
    edit(new, "FROM kernels", "FROM kernels AS kernels")
    for golden in (checkout / "tests/goldens/analyses/gpu").glob("kernel_summary.v1.*golden"):
        shutil.copy(golden, golden.with_name(golden.name.replace(".v1.", ".v2.")))
    result = check()
    assert result.code == 0, result.out
    assert tw("dev", "release").out == "released kernel_summary@2\n"
