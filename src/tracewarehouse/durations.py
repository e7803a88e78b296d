"""Durations as text: `30us`, `1.5ms`, `90s`, `30m`, `12h`, `90d`, `2w`; the only place that parses them."""

from __future__ import annotations

import re
from collections.abc import Iterable

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

_NUMBER = re.compile(r"([+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zµ]*)")
_MOST_DIGITS = 40  # longer ones are not durations, and take long to multiply


def trace_time_ns(text: str) -> int | None:
    """A time of a trace in ns, a bare number as ns; None if it is not a whole number of ns."""
    return _whole_ns(text, TRACE_UNITS, "ns")


def age_ns(text: str, default_unit: str | None = None) -> int | None:
    """An age or waiting time in ns, never negative; None if it is not one."""
    found = _whole_ns(text, AGE_UNITS, default_unit)
    return found if found is not None and found >= 0 else None


def _whole_ns(text: str, units: Iterable[str], default_unit: str | None) -> int | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None or len(match[1]) > _MOST_DIGITS:
        return None
    unit: str | None = match[2] or default_unit
    if unit is None or unit not in units:
        return None
    from fractions import Fraction

    ns = Fraction(match[1].replace("_", "")) * UNITS_NS[unit]
    return ns.numerator if ns.denominator == 1 else None
