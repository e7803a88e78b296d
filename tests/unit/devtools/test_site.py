"""The source files of the documentation: a page of everything, and links that lead somewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog

_LINK = re.compile(r"\]\(([^)\s:]+)\)")


def test_the_site_has_a_page_of_each_guide_and_analysis_and_links_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "notebooks" / "site"), *sys.path])
    import build

    build.write_pages(tmp_path)
    pages = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.md")}
    guides = {f"guides/{path.name}" for path in (ROOT / "notebooks" / "guides").glob("*.md")}
    analyses = {f"reference/analyses/{each.name}.md" for each in Catalog.load().analyses()}
    assert guides | analyses <= pages.keys()
    assert "FROM collective_arrivals" in pages["reference/analyses/collective_waits.md"]
    for path, text in pages.items():
        for target in {found.partition("#")[0] for found in _LINK.findall(re.sub(r"`[^`]*`", "", text))}:
            linked = (tmp_path / path).parent / target
            assert linked.exists() or target.startswith("images/"), (path, target)
