"""One event at a time, exactly: for the few whose shape the bulk SQL does not handle."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Context, Decimal
from typing import Final

from tracewarehouse.reader.walk import members, quote, unquote

STRING_KEYS: Final = ("ph", "cat", "name")
JSON_KEYS: Final = ("pid", "tid", "id")
TIME_KEYS: Final = ("ts", "dur")
DUPLICATES: Final = "__duplicates__"

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_STEP = Decimal("1e-9")
_EXACT = Context(prec=60, rounding=ROUND_DOWN)

Row = dict[str, str | None]


def row(text: str) -> Row:
    """The columns of `raw` from the text of one element; decimals are cut, not rounded, at the ninth.

    Of a key that comes twice the last value fills the column, as in most parsers; the earlier ones
    stand in `extra` under `__duplicates__` as [key, value] pairs.
    """
    found: Row = dict.fromkeys((*STRING_KEYS, *JSON_KEYS, "ts", "dur", "ts_text", "dur_text", "args"))
    earlier: list[str] = []
    last: dict[str, str] = {}
    for key, value in members(text) if text.startswith("{") else ():
        if key in last:
            earlier.append(f"[{quote(key)},{last[key]}]")
        last[key] = value
    extra = {key: value for key, value in last.items() if not _place(found, key, value)}
    if earlier:
        extra[DUPLICATES] = "[" + ",".join(earlier) + "]"
    pairs = ",".join(f"{quote(key)}:{value}" for key, value in extra.items())
    found["extra"] = "{" + pairs + "}" if pairs else None
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
        found[key] = decimal_text(found[f"{key}_text"] or "")
        return value[0] != '"'
    else:
        return False
    return True


def decimal_text(text: str) -> str | None:
    """The number as a DECIMAL(28,9), cut after nine decimals; None where it is none or does not fit."""
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number and not -40 < number.adjusted() < 19:
        return None if number.adjusted() > 0 else "0"
    return f"{number.quantize(_STEP, context=_EXACT):f}"
