"""Python versions on this machine, and clean environments made with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13")


def _found() -> Iterator[Path]:
    """An interpreter of each version: the running one, else one of pyenv or on the PATH."""
    for version in VERSIONS:
        if version == "{}.{}".format(*sys.version_info):
            yield Path(sys.executable)
        elif of_pyenv := sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
            yield of_pyenv[-1]
        elif (named := shutil.which(f"python{version}")) and _version(Path(named)) == version:
            yield Path(named)


def _version(python: Path) -> str:
    script = "import sys; print('{}.{}'.format(*sys.version_info))"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip()


PYTHONS = tuple(_found())


def installed(folder: Path, python: Path, *requirements: str) -> Path:
    """A new virtual environment with packages from PyPI, as wheels only; returns its folder of commands."""
    subprocess.run([python, "-m", "venv", folder], check=True, capture_output=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--only-binary=:all:"]
    environment = clean_environment(folder / "bin", Path.home())
    done = subprocess.run([*pip, *requirements], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def clean_environment(bin_folder: Path, home: Path) -> dict[str, str]:
    """Environment variables without the checkout, and with no compiler on the PATH."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP"))}
    return {**kept, "PATH": str(bin_folder), "HOME": str(home), "LC_ALL": "C.UTF-8"}
