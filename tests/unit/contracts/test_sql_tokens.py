"""SQL tokens: no text is lost, comments and spacing do not count, only parameters are replaced."""

from __future__ import annotations

import random

import pytest

from conftest import ROOT
from tracewarehouse.contracts.sql_tokens import (
    names_read,
    quote_name,
    quote_text,
    replace_params,
    token_texts,
    tokens,
)
from tracewarehouse.duck import engine

BODY = (ROOT / "tests/data/sql/analyses/gpu/gpu_busy.v2.sql").read_text().partition("-- ///\n")[2]


def test_tokens_know_line_and_depth() -> None:
    sql = "SELECT a, -- one\n  (b + [c][1])::BIGINT /* two\n  lines */ AS d\nFROM 'x\ny' AS \"e f\""
    found = {token.text: (token.kind, token.line, token.depth) for token in tokens(sql, first_line=10)}
    assert found["a"] == ("word", 10, 0)
    assert found["b"] == ("word", 11, 1) and found["c"] == ("word", 11, 2)
    assert found["("] == found[")"] == ("mark", 11, 0)
    assert found["::"] == ("mark", 11, 0)
    assert found["d"] == ("word", 12, 0)
    assert found["'x\ny'"] == ("string", 13, 0) and found['"e f"'] == ("quoted", 14, 0)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("'it''s -- no comment'", ["'it''s -- no comment'"]),
        ("E'a\\'b' 'c'", ["E'a\\'b'", "'c'"]),
        ("a->>'$.b'", ["a", "->>", "'$.b'"]),
        ("1_000 .5 1.5e-3 a1", ["1_000", ".5", "1.5e-3", "a1"]),
        ("$gap_ns+$b", ["$gap_ns", "+", "$b"]),
        ("a<=b<>c//d", ["a", "<=", "b", "<>", "c", "//", "d"]),
        ("grün", ["grün"]),
    ],
)
def test_what_a_token_is(sql: str, wanted: list[str]) -> None:
    assert list(token_texts(sql)) == wanted


@pytest.mark.parametrize("seed", range(5))
def test_comments_and_spacing_do_not_count(seed: int) -> None:
    chance = random.Random(seed)
    gaps = [" ", "\n", "\t ", " -- $gap_ns 'x\n", " /* ( */ "]
    other = "".join(text + chance.choice(gaps) for text in token_texts(BODY))
    assert other != BODY and token_texts(other) == token_texts(BODY)
    with engine.connect(threads=1) as con:
        con.execute("CREATE TABLE kernels (run_id VARCHAR, rank INTEGER, event_id BIGINT)")
        con.execute("ALTER TABLE kernels ADD ts_ns BIGINT")
        con.execute("ALTER TABLE kernels ADD dur_ns BIGINT")
        same = [engine.result_columns(con, replace_params(sql, {"gap_ns": "0"})) for sql in (BODY, other)]
    assert same[0] == same[1] and len(same[0]) == 5


def test_values_go_in_for_parameters_only() -> None:
    sql = "SELECT $a, '$a', \"$a\" -- $a\n/* $a */ + $ab"
    assert replace_params(sql, {"a": "1", "ab": "2"}) == "SELECT 1, '$a', \"$a\" -- $a\n/* $a */ + 2"


@pytest.mark.parametrize("text", ["a'b", 'a"b', "'; DROP TABLE kernels; --", "$gap_ns", "\\", ""])
def test_quoted_texts_are_read_back(text: str) -> None:
    with engine.connect(threads=1) as con:
        assert con.execute(f"SELECT {quote_text(text)}").fetchone() == (text,)
        if text:
            assert con.sql(f"SELECT 1 AS {quote_name(text)}").columns == [text]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM a",
        "SELECT DISTINCT * FROM a",
        "SELECT b, * EXCLUDE (c) FROM a",
        "SELECT a.* FROM a",
        "FROM a",
        "SELECT b FROM (FROM a)",
        "SELECT COLUMNS('x.*') FROM a",
        "SELECT b FROM a natural JOIN c",
        "TABLE a",
    ],
)
def test_what_reads_columns_without_a_name_is_known(sql: str) -> None:
    assert names_read(sql) is None


def test_all_names_that_a_select_reads_are_known() -> None:
    names = names_read(
        """SELECT count(*) * 2 AS n, t."Big one", 'text' -- none\nFROM (SELECT x FROM a) AS t"""
    )
    assert names is not None and names >= {"n", "t", "big one", "x", "a"} and "none" not in names
