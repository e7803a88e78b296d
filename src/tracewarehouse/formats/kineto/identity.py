"""Process, thread and flow ids: JSON values as text, and the numbers in them. Once per distinct value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracewarehouse.formats.kineto.rules_connection import evaluate

_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORD: Final = re.compile(r'"([^"\\0-9]*)"')
# A number is kept as its text, a string as itself.
_SELECT: Final = """
SELECT
  text,
  number,
  TRY_CAST(regexp_extract(text, '-?[0-9]+$') AS BIGINT) AS last_number,
  NOT (starts_with(token, '"') = (number::VARCHAR IS NOT DISTINCT FROM text)) AS keeps_type
FROM (
  SELECT place, token, text, TRY_CAST(text AS BIGINT) AS number
  FROM (SELECT place, token, token::JSON ->> '$' AS text FROM given)
)
ORDER BY place
"""


@dataclass
class Tokens:
    """Of each token: its text, that text as a number, the number at its end, and whether the text keeps its type.

    Numbers are None where there is none. A text keeps the type of the JSON value where it reads as a number
    exactly where the value is one.
    """

    texts: list[str | None]
    numbers: list[int | None]
    last_numbers: list[int | None]
    keeps_type: list[bool]


def read_tokens(tokens: Sequence[str]) -> Tokens:
    """What JSON tokens mean as ids."""
    count = len(tokens)
    found = Tokens([None] * count, [None] * count, [None] * count, [True] * count)
    unusual: list[int] = []
    for at, token in enumerate(tokens):
        if _INTEGER.fullmatch(token):
            found.texts[at] = token
            found.numbers[at] = found.last_numbers[at] = int(token)
        elif (word := _WORD.fullmatch(token)) is not None:
            found.texts[at] = word[1]
        else:
            unusual.append(at)
    if unusual:
        _read_unusual(tokens, unusual, found)
    return found


def _read_unusual(tokens: Sequence[str], places: Sequence[int], found: Tokens) -> None:
    given = {"place": pa.array(places), "token": pa.array([tokens[at] for at in places], pa.string())}
    for at, row in zip(places, evaluate(_SELECT, given).to_pylist(), strict=True):
        found.texts[at], found.numbers[at] = row["text"], row["number"]
        found.last_numbers[at] = row["last_number"]
        found.keeps_type[at] = row["keeps_type"]


def numbers_array(numbers: Sequence[int | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers and which of them are there."""
    return (
        np.array([number or 0 for number in numbers], np.int64),
        np.array([number is not None for number in numbers], np.bool_),
    )
