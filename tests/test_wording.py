"""The list of words that contracts do not use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracewarehouse.devtools import wording


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
        ("analyses and analysis of intervals; the intellectual standard", []),
        ("optimizer, normalized, synchronize, colored, plantation, exercise, otherwise, precise", []),
    ],
)  # fmt: skip
def test_words(text: str, found: list[str]) -> None:
    assert [word for word, _ in wording.words(text)] == found


def test_a_word_is_reported_with_its_place_and_a_better_one(tmp_path: Path) -> None:
    (tmp_path / "sql" / "views").mkdir(parents=True)
    (tmp_path / "sql" / "views" / "a.v1.sql").write_text("SELECT 1\n-- what stands around it\n")
    (found,) = wording.check(tmp_path)
    assert (found.location, found.message) == ("sql/views/a.v1.sql:2", "the word `stands around`")
    assert found.remedy == "write: encloses, is, contains"
