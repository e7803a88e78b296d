"""The lower bounds of dependencies are true: a part of the suite passes with the lowest version of each.

Packages come from PyPI, as wheels for the oldest supported Python.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from conftest import ROOT
from pythons import PYTHONS, installed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("plot", "hta", "nsys", "cloud", "shell")
# Tests that use each of them; what they need beside pytest.
CORE = (
    "tests/unit/contracts", "tests/unit/duck", "tests/unit/present/render", "tests/unit/test_result.py",
    "tests/system/test_warehouse_api.py", "tests/unit/formats/kineto",
    "tests/goldens/analyses/gpu", "tests/unit/cli/test_cli_frame.py",
    "tests/unit/compare/stats/test_shift.py",
)  # fmt: skip
OPTIONAL = (
    "tests/unit/present/plot", "tests/unit/hta", "tests/unit/formats/nsys",
    "tests/unit/test_notebook_magics.py",
    "tests/unit/cli/test_shell.py", "tests/unit/query/test_shell_file.py",
)  # fmt: skip


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement at its lower bound."""
    assert all(each.count(">=") == 1 and "," not in each for each in requirements), requirements
    return [each.replace(">=", "==") for each in requirements]


def test_every_dependency_has_a_lower_bound_alone() -> None:
    listed = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in EXTRAS)]
    assert all(lowest(each) for each in listed)
    assert lowest(["click>=8.4"]) == ["click==8.4"]


@pytest.mark.deep
@pytest.mark.parametrize(("extras", "tests"), [((), CORE), (EXTRAS, OPTIONAL)], ids=["core", "extras"])
def test_the_suite_passes_with_the_lowest_versions(
    extras: tuple[str, ...], tests: tuple[str, ...], tmp_path: Path
) -> None:
    bounds = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    packages = sorted({each for requirements in bounds for each in lowest(requirements)})
    bin_folder = installed(tmp_path / "venv", PYTHONS[0], *packages, "pytest", "pytest-xdist")
    command = [bin_folder / "python", "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    options = ["--basetemp", str(tmp_path / "tests"), *tests]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:]
