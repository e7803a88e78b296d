"""Numbers and units as Nsight Compute prints them: separators by locale, and scaled units."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# A single separator with groups of three digits behind it says nothing: 1,215 is 1215 or 1.215.
_GROUPED: Final = r"[+-]?[1-9]\d{0,2}(?:\SEP\d{3})+"
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:[.,]\d+)*|inf|nan)(?:e[+-]?\d+)?", re.IGNORECASE)
# Thousands may also be separated by spaces, narrow ones included, or by apostrophes.
_SPACES: Final = re.compile(r"(?<=\d)[\s\u00a0\u202f'\u2019](?=\d{3})")
_PREFIXES: Final = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "k": 1e3}
_SCALED: Final = re.compile(
    r"([KMGTk])(?=(?:byte|inst|cycle|sector|request|wavefront|Hz|hz|thread|warp|block|bit)s?\b)"
)
_NS: Final = {
    "nsecond": 1, "usecond": 1e3, "msecond": 1e6, "second": 1e9, "ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9
}  # fmt: skip


@dataclass(frozen=True)
class Locale:
    """The decimal separator of a file."""

    decimal: str = "."

    @property
    def thousands(self) -> str:
        """The separator of groups of three digits."""
        return "," if self.decimal == "." else "."

    def number(self, text: str) -> float | None:
        """The number; None if the text is none."""
        text = _SPACES.sub("", text.strip())
        if not _NUMBER.fullmatch(text):
            return None
        whole, point, fraction = text.partition(self.decimal)
        if self.decimal in fraction or self.thousands in fraction:
            return None
        return float(whole.replace(self.thousands, "") + (point and ".") + fraction)


def locale_of(texts: Iterable[str]) -> Locale:
    """The locale that the numbers of a file follow; a decimal point if no number shows it."""
    for text in texts:
        if (decimal := _decimal(_SPACES.sub("", text.strip()))) is not None:
            return Locale(decimal)
    return Locale()


def _decimal(text: str) -> str | None:
    """The decimal separator that a number shows; None if it could be either."""
    if not _NUMBER.fullmatch(text):
        return None
    points, commas = text.count("."), text.count(",")
    if points and commas:
        return "." if text.rindex(".") > text.rindex(",") else ","
    if not points and not commas:
        return None
    separator, other = (".", ",") if points else (",", ".")
    if points + commas > 1:
        return other
    return None if re.fullmatch(_GROUPED.replace("SEP", separator), text) else separator


def base_unit(unit: str) -> tuple[str, float]:
    """The base unit of a unit, and the number of base units in it: times in ns, rates per second."""
    name, _, per = unit.strip().partition("/")
    factor = 1.0
    if found := _SCALED.match(name):
        name, factor = name[1:], _PREFIXES[found[1]]
    if not per and name in _NS:
        return "ns", _NS[name]
    if per in _NS:
        per, factor = "second", factor * 1e9 / _NS[per]
    return (f"{name}/{per}" if per else name), factor
