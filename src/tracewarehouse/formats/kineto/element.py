"""One element of the event array, exactly: its columns from its text."""

from __future__ import annotations

import re
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Final, NamedTuple

from tracewarehouse.formats.json_text import members, quote, unquote

STRING_KEYS: Final = ("ph", "cat", "name")
JSON_KEYS: Final = ("pid", "tid", "id")
TIME_KEYS: Final = ("ts", "dur")
DUPLICATES: Final = "__duplicates__"

_FIRST_EXTRA: Final = ("bp", "s", *TIME_KEYS)
_PLAIN_TIME = re.compile(r"(-?)([0-9]+)(?:\.([0-9]{1,3}))?")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PICO: Final = 1_000_000
_STEP = Decimal("1e-9")
_EXACT = Context(prec=60)
_MOST_DIGITS: Final = 19
_LEAST: Final = -40

Row = dict[str, str | None]


class Time(NamedTuple):
    """A time of the file: whole nanoseconds, rounded down, and millionths of one; None: it has no usable time."""

    ns: int
    fraction: int


def row(text: str) -> Row:
    """The columns of an element from its minified text; times as text, the rest as in a batch.

    Of a key that comes twice the last value fills the column, as in most parsers; the earlier ones
    are in `extra` under `__duplicates__` as [key, value] pairs. What is no object is `extra` itself.
    """
    found: Row = dict.fromkeys((*STRING_KEYS, *JSON_KEYS, "ts_text", "dur_text", "args", "extra"))
    if not text.startswith("{"):
        found["extra"] = text
        return found
    earlier: list[str] = []
    last: dict[str, str] = {}
    for key, value in members(text):
        if key in last:
            earlier.append(f"[{quote(key)},{last[key]}]")
        last[key] = value
    extra = {key: value for key, value in last.items() if not _place(found, key, value)}
    if earlier:
        extra[DUPLICATES] = "[" + ",".join(earlier) + "]"
    elif len(extra) > 1 and extra.keys() <= frozenset(_FIRST_EXTRA):
        extra = {key: extra[key] for key in _FIRST_EXTRA if key in extra}
    if extra:
        found["extra"] = "{" + ",".join(f"{quote(key)}:{value}" for key, value in extra.items()) + "}"
    return found


def _place(found: Row, key: str, value: str) -> bool:
    """Puts a member into its column; False where `extra` must hold it (too)."""
    if value == "null":
        return False
    if key in STRING_KEYS and value[0] == '"':
        found[key] = unquote(value)
    elif key in JSON_KEYS or key == "args":
        found[key] = value
    elif key in TIME_KEYS and (value[0] == '"' or value[0] in "-0123456789"):
        found[f"{key}_text"] = unquote(value) if value[0] == '"' else value
        return value[0] != '"'
    else:
        return False
    return True


def time_of(text: str | None) -> Time | None:
    """A number of microseconds, cut after nine decimals; None where it is none or too large for 64 bits of ns."""
    if text is None:
        return None
    if (plain := _PLAIN_TIME.fullmatch(text)) is not None:
        ns = int(plain[2]) * 1000 + int((plain[3] or "").ljust(3, "0"))
        return _fitting(Time(-ns if plain[1] else ns, 0))
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number and not _LEAST < number.adjusted() < _MOST_DIGITS:
        return None if number.adjusted() > 0 else Time(0, 0)
    cut = number.quantize(_STEP, rounding="ROUND_DOWN", context=_EXACT)
    ns = int((cut * 1000).to_integral_value(ROUND_FLOOR))
    return _fitting(Time(ns, int((cut * 1000 - ns) * _PICO)))


def time_in_ns(text: str | None) -> Time | None:
    """A number of nanoseconds; None where it is none or too large for 64 bits."""
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number and not _LEAST < number.adjusted() < _MOST_DIGITS:
        return None if number.adjusted() > 0 else Time(0, 0)
    ns = int(number.to_integral_value(ROUND_FLOOR))
    return _fitting(Time(ns, int((number - ns) * _PICO)))


def _fitting(time: Time) -> Time | None:
    return time if -(2**63) <= time.ns < 2**63 else None


def printed(ns: int) -> str:
    """A time that is not negative as microseconds: whole, or with three decimals; "" for a negative one."""
    us, rest = divmod(ns, 1000)
    return "" if ns < 0 else f"{us}.{rest:03d}" if rest else f"{us}"
