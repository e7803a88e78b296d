"""The table of licenses in LICENSES.md is complete, and agrees with what is installed."""

from __future__ import annotations

import re

import pytest

from conftest import ROOT, deep
from license_table import EXTRAS, PROJECT, all_licenses, normal

TABLE = (ROOT / "tests" / "LICENSES.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?:`\[(\w+)\]`|always) \| ([^|]+) \| (`.+`) \|$", TABLE, flags=re.MULTILINE)
# Extra ("" for always) → package → license.
LISTED: dict[str, dict[str, str]] = {}
for _extra, _license, _packages in ROWS:
    LISTED.setdefault(_extra, {}).update(dict.fromkeys(re.findall(r"`([^`]+)`", _packages), _license))
FAMILY = re.compile(r"MIT|BSD|Apache|PSF|ISC|MPL|Python Software Foundation")


def families(text: str) -> set[str]:
    """Kinds of licenses: metadata writes the same one in many ways."""
    return {each.replace("Python Software Foundation", "PSF") for each in FAMILY.findall(text)}


def direct(extra: str) -> list[str]:
    """The requirements of the package, or of an extra."""
    requirements: list[str] = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return requirements


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_every_direct_dependency_is_listed(extra: str) -> None:
    names = {normal(re.split(r"[<>=\[;]", each)[0]) for each in direct(extra)}
    assert names and names <= LISTED[extra].keys(), "python tests/support/license_table.py prints the table"


@pytest.mark.parametrize("extra", ["", *deep(*EXTRAS)])
def test_what_they_require_is_listed_with_its_license(extra: str) -> None:
    """Deep for extras: releases of other packages change what they require."""
    for package, found in all_licenses()[extra].items():
        assert package in LISTED[extra], f"{package}: python tests/support/license_table.py prints the table"
        assert found is None or families(found) & families(LISTED[extra][package]), (package, found)


def test_no_dependency_has_a_copyleft_license() -> None:
    found = [each or "" for packages in all_licenses().values() for each in packages.values()]
    assert not [
        each for each in found if re.search(r"\b[AL]?GPL|copyleft|unknown", each, flags=re.IGNORECASE)
    ]
