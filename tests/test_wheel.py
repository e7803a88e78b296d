"""The wheel, built offline, holds the package and every `.sql` file of the checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    (path,) = folder.glob("*.whl")
    return path


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_sql_file_is_inside(wheel: Path) -> None:
    sql = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sql").rglob("*") if path.is_file()}
    assert any(name.endswith(".sql") for name in sql)
    inside = {name.removeprefix("tracewarehouse/") for name in names(wheel) if "/sql/" in name}
    assert inside == sql


def test_every_module_is_inside(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert wanted <= names(wheel) and "tracewarehouse/py.typed" in names(wheel)


def test_the_catalog_of_the_wheel_is_the_one_of_the_checkout(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    script = (
        "from tracewarehouse.catalog import Catalog; c = Catalog.load(); print(c.folder, len(c.contracts))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    files = len(list((ROOT / "sql").rglob("*.sql"))) - len(list((ROOT / "sql" / "upgrades").rglob("*.sql")))
    assert done.stdout.split() == [str(tmp_path / "tracewarehouse" / "sql"), str(files)]
