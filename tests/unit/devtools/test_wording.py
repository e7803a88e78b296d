"""The list of rejected words, and the files in which they are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import ROOT
from tracewarehouse.devtools import sql_style


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A GPU row that was told, and mended.", ["GPU row", "told", "mended"]),
        ("judged_ns and piece_ns", ["judged", "piece"]),
        ("Synchronising, colours", ["Synchronising", "colours"]),
        ("uncategorised behaviour", ["uncategorised", "behaviour"]),
        ("labelled neighbours analysed the licence", ["labelled", "neighbours", "analysed", "licence"]),
        ("a row that is no row", ["is no"]),
        ("null if there is no row", []),
        ("it is no longer used, and works out of the box is no idiom", ["works out", "is no"]),
        ("two arrows, an arrow", ["arrows", "arrow"]),
        ("standalone, a stand-in; work out of the loop", []),
        ("analyses and analysis of intervals; the intellectual standard", []),
        ("optimizer, normalized, synchronize, colored, plantation, exercise, otherwise, precise", []),
    ],
)  # fmt: skip
def test_words(text: str, found: list[str]) -> None:
    assert [word for word, _ in sql_style.words(text)] == found


def test_a_word_is_reported_with_its_location_and_a_better_one(tmp_path: Path) -> None:
    (tmp_path / "sql" / "views").mkdir(parents=True)
    (tmp_path / "sql" / "views" / "a.v1.sql").write_text("SELECT 1\n-- what stands around it\n")
    (found,) = sql_style.check_words(tmp_path)
    assert (found.location, found.message) == ("sql/views/a.v1.sql:2", "the word `stands around`")
    assert found.remedy == "write: encloses, is, contains"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("README.md", ["told"]),
        (".github/CONTRIBUTING.md", ["told"]),
        ("notebooks/guides/a.md", ["told"]),
        ("src/tracewarehouse/query/a.py", ["told"]),
        ("src/tracewarehouse/present/pages/templates/a.html", ["told"]),
        ("sql/views/a.v1.sql", ["told", "Arrow"]),
        ("src/tracewarehouse/devtools/sql_style.py", []),
        ("tests/a.py", ["told"]),
        ("tests/goldens/views/a.v1.golden", ["told"]),
        ("tests/data/a.json", []),
    ],
)
def test_checked_files(tmp_path: Path, name: str, found: list[str]) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("told\nan Arrow table\n")
    assert [each.message for each in sql_style.check_words(tmp_path)] == [
        f"the word `{word}`" for word in found
    ]


def test_every_exception_is_needed() -> None:
    for name in sql_style.NOT_CHECKED:
        assert (ROOT / name).exists(), name
