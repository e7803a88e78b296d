"""Values as text for programs, exact and with one spelling in every format; durations as people write them.

`30us`, `1.5ms`, `90s`, `30m`, `12h`, `90d`, `2w` are durations: only this module parses them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise

from msgspec import Struct

from tracewarehouse.late_regex import late_regex

# More ranks than any job has: a larger number of ranks is not believed.
MOST_RANKS = 1 << 20
# The most ranges of missing ranks that are named.
_NAMED_RANGES = 16
# Controls, DEL, line separators, bidirectional marks, and surrogates, which cannot be printed.
INVISIBLE = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_CONTROL = late_regex(f"[\x00-\x1f{INVISIBLE}]")
# What spreadsheets take for the beginning of a formula, also in its full-width form.
_FORMULA = late_regex("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBERS = frozenset((int, float))  # not bool
_NEEDS_QUOTES = late_regex('^$|^[ \t]|[ \t]$|[",\r\n]')


class Field(Struct, frozen=True):
    """A column of a result: its DuckDB type and unit, which determine the text of its values."""

    name: str
    type: str
    unit: str | None = None


def csv_text(value: object) -> str:
    """One CSV field, quoted if necessary."""
    if value is None:
        return ""
    if type(value) in _NUMBERS:
        return str(value)
    text = _text(value)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def spreadsheet_text(value: object) -> str:
    """One CSV field that no spreadsheet executes: a text that may be a formula begins with `'`.

    Control and bidirectional characters are escaped. Numbers are exact, as in `csv_text`.
    """
    if value is None or isinstance(value, bool | int | float | Decimal):
        return csv_text(value)
    text = _text(value)
    visible = one_line(text)
    return csv_text(f"'{visible}" if _FORMULA.match(text) else visible)


def one_line(text: str) -> str:
    """`text` with every control character, bidirectional mark and line break escaped."""
    return _CONTROL.sub(escape, text)


def escape(match: re.Match[str]) -> str:
    """A control character as `\\n`, `\\x1b` or `\\u202e`."""
    code = ord(match.group())
    if code == 10:
        return "\\n"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def json_text(value: object, *, unit: str | None = None, type_: str = "") -> str:
    """One JSON value; a value of a JSON column is copied unchanged."""
    if type_ == "JSON" and isinstance(value, str):
        return value
    if unit == "ts" and isinstance(value, int):
        return f'"{value}"'
    return _json(value)


def _json(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool | int | Decimal):
        return _text(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "null"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_string(_text(key))}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return "[" + ", ".join(map(_json, value)) + "]"
    return _string(_text(value))


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping | list | tuple):
        return _json(value)
    return str(value)


def rank_list(ranks: Iterable[int]) -> str:
    """`0-3, 7` for 0, 1, 2, 3, 7."""
    return _ranges_text(rank_ranges(ranks))


def _ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def missing_ranks(present: Iterable[int], expected: int | None) -> tuple[int, str]:
    """The number of expected ranks that are missing, and which, as by `rank_list`, up to `_NAMED_RANGES`."""
    count = expected or 0
    edges = [-1, *sorted(rank for rank in present if 0 <= rank < count), count]
    gaps = [(before + 1, after - 1) for before, after in pairwise(edges) if after - before > 1]
    ellipsis = ", …" if len(gaps) > _NAMED_RANGES else ""
    return sum(last - first + 1 for first, last in gaps), _ranges_text(gaps[:_NAMED_RANGES]) + ellipsis


def rank_ranges(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """The numbers as first and last of each range, ascending."""
    ranges: list[tuple[int, int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], rank)
        else:
            ranges.append((rank, rank))
    return ranges


UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "min": 60 * 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
    "w": 7 * 86_400 * 1_000_000_000,
}
# In times of a trace, `m` would be a typing error for `ms` more often than minutes: it must be `min`.
TRACE_UNITS = ("ns", "us", "µs", "ms", "s", "min", "h")
AGE_UNITS = ("s", "min", "m", "h", "d", "w")

_NUMBER = late_regex(r"([+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zµ]*)")
_MOST_DIGITS = 40  # longer ones are not durations, and take long to multiply


def trace_time_ns(text: str) -> int | None:
    """A time of a trace in ns, a bare number as ns; None if it is not a whole number of ns."""
    return _whole_ns(text, TRACE_UNITS, "ns")


def age_ns(text: str, default_unit: str | None = None) -> int | None:
    """An age or waiting time in ns, never negative; None if it is not one."""
    ns = _whole_ns(text, AGE_UNITS, default_unit)
    return ns if ns is not None and ns >= 0 else None


def _whole_ns(text: str, units: Iterable[str], default_unit: str | None) -> int | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or len(match[1]) > _MOST_DIGITS:
        return None
    unit: str | None = match[2] or default_unit
    if unit is None or unit not in units:
        return None
    whole, _, decimals = match[1].replace("_", "").partition(".")
    ns, remainder = divmod(int(whole + decimals) * UNITS_NS[unit], 10 ** len(decimals))
    return None if remainder else ns
