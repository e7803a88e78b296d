"""Random and damaged texts: rows as computed in Python, accepted like strict JSON, any piece size."""

from __future__ import annotations

import random

import msgspec
import pytest
from scanner_results import accepts, element, elements, expected, rows, scan, strict

from conftest import deep
from tracewarehouse.formats.kineto.library import why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

BITS = [b'"', b"\\", b"\\u00e9", b"\\ud800", b"\\ud83d\\ude00", b"{", b"}", b"[", b"]", b",", b":", b"1e5"]
BITS += [b"-", b"0", b".5", b"null", b"true", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
BITS += [b"\x01", b"\t", b"\n", b" ", b'"ph":"X",', b"01", b"\x00", b"}", b'"', b"\x7f"]


def check_rows(seed: int) -> None:
    """Checks the rows of a valid array, fed in pieces."""
    chance = random.Random(seed)
    text = (", ".join(element(chance) for _ in range(chance.randrange(1, 40))) + " ]").encode()
    wanted = [expected(each) for each in elements(text)]
    scanner, batches = scan(text, chance.choice((1, 7, 64, 1000, 1 << 20)), batch_rows=chance.choice((3, 50)))
    assert accepts(scanner, text)
    assert rows(batches) == wanted
    assert scanner.rows == len(wanted)


def damaged(chance: random.Random) -> bytes:
    text = bytearray(", ".join(element(chance) for _ in range(chance.randrange(8))).encode() + b"]")
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at, kind = chance.randrange(len(text) + 1), chance.randrange(3)
        text[at : at + chance.randrange(1, 4) * (kind == 2)] = b"" if kind == 2 else chance.choice(BITS)
    return bytes(text)


def check_verdict(seed: int) -> bool:
    """Checks that a text is accepted exactly if it is strict JSON, with the same rows for any pieces."""
    chance = random.Random(seed)
    text = damaged(chance)
    scanner, batches = scan(text)
    wanted = strict(text)
    assert accepts(scanner, text) == wanted
    found = rows(batches)
    other, pieces = scan(text, chance.choice((1, 3, 17, 333)))
    assert (rows(pieces), other.state, other.offset) == (found, scanner.state, scanner.offset)
    if wanted and b"1e" not in text:
        assert found == [expected(each) for each in elements(text)]
    return wanted


@pytest.mark.parametrize("first", [0, *deep(100, 200)])
def test_random_rows(first: int) -> None:
    for seed in range(first, first + 100):
        check_rows(seed)


def test_damaged_texts_get_the_verdict_of_strict_json() -> None:
    sound = sum(check_verdict(seed) for seed in range(400))
    assert 40 < sound < 360


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 21_000, 5000))
def test_many_random_and_damaged_texts(first: int) -> None:
    for seed in range(first, first + 5000):
        check_rows(seed)
        check_verdict(seed)


def test_the_witness_accepts_regular_events() -> None:
    """A witness that flags every row ODD would prove nothing."""
    chance = random.Random(0)
    flags = [expected(msgspec.json.format(element(chance), indent=-1))["flags"] for _ in range(500)]
    assert sum(flag & 3 == 0 for flag in flags) > 100
