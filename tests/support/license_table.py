"""The dependencies of the package with their licenses, from the metadata of what is installed.

python tests/support/license_table.py      # prints the table of tests/LICENSES.md

Run it where the package is installed with all extras.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Extras of contributors: what they install is not needed to use the package.
CONTRIBUTORS = ("dev", "docs", "wheels")
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name not in CONTRIBUTORS]
NAMES = {"MIT License": "MIT", "BSD License": "BSD", "ISC License (ISCL)": "ISC", "Apache 2.0": "Apache-2.0"}


def normal(name: str) -> str:
    """The name of a package as PyPI writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def license_of(found: Distribution) -> str:
    """The license by the metadata: expression, else classifiers, else the field."""
    metadata = found.metadata
    classifiers = [
        each.rpartition(" :: ")[2] for each in metadata.get_all("Classifier") or () if "License ::" in each
    ]
    text = (
        metadata.get("License-Expression") or "; ".join(classifiers) or metadata.get("License") or "unknown"
    )
    return NAMES.get(text, text.partition("\n")[0])


def licenses(requirements: Iterable[str], extras: Iterable[str] = ()) -> dict[str, str | None]:
    """Package → license, of the requirements and all that they require; None if it is not installed."""
    found: dict[str, str | None] = {}
    _add(requirements, tuple(extras), found)
    return found


def _add(requirements: Iterable[str], extras: tuple[str, ...], found: dict[str, str | None]) -> None:
    for requirement in map(Requirement, requirements):
        name, marker = normal(requirement.name), requirement.marker
        if name in found or marker and not any(marker.evaluate({"extra": each}) for each in ("", *extras)):
            continue
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            found[name] = None
            continue
        found[name] = license_of(installed)
        _add(installed.requires or (), tuple(requirement.extras), found)


def all_licenses() -> dict[str, dict[str, str | None]]:
    """Extra, or "" for the package without one → the packages that it adds, with their licenses."""
    core = licenses(PROJECT["dependencies"])
    optional: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
    more = {extra: licenses(optional[extra]) for extra in EXTRAS}
    return {"": core} | {
        e: {n: each for n, each in found.items() if n not in core} for e, found in more.items()
    }


def table() -> str:
    """The table as Markdown, a row per license and extra."""
    lines = ["| installed with | license | packages |", "|---|---|---|"]
    for extra, found in all_licenses().items():
        for name in sorted({each or "not installed" for each in found.values()}):
            packages = ", ".join(
                f"`{p}`" for p, each in sorted(found.items()) if (each or "not installed") == name
            )
            lines.append(f"| {f'`[{extra}]`' if extra else 'always'} | {name} | {packages} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(), end="")
