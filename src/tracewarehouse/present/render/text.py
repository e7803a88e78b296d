"""Values and names as text for a terminal: with units, and with control characters escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tracewarehouse.contracts.contract import UNITS, Printer
from tracewarehouse.exact_text import INVISIBLE, escape
from tracewarehouse.exact_text import one_line as one_line

_NOT_ON_A_TERMINAL = re.compile(f"[\x00-\x08\x0b-\x1f{INVISIBLE}]")


def for_terminal(text: str) -> str:
    """`text` with control characters escaped, except line breaks and tabs."""
    return _NOT_ON_A_TERMINAL.sub(escape, text)


MISSING = "-"
_EPOCH_NS = 10**17  # later than March 1973: an absolute time, not one relative to a start


def show(value: object, unit: str | None = None) -> str:
    """`value` with its unit: a time as `12.345 ms`, a ratio as `77.3 %`; `-` for null."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and unit is not None:
        return _PRINTERS[UNITS[unit].printer](value)
    return _other(value)


def _other(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_other(item)}" for key, item in value.items()) or MISSING
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, tuple) and len(item) == 2 for item in value):
            return _other(dict(value))
        return ", ".join(_other(item) for item in value) or MISSING
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return value if isinstance(value, str) else str(value)


def duration(ns: float) -> str:
    """A duration in the largest unit that keeps it above 1; ns and µs are exact, ms and s rounded."""
    if abs(ns) < 1_000:
        return f"{ns:.0f} ns" if ns == int(ns) else f"{ns:.1f} ns"
    for scale, name in ((1e3, "µs"), (1e6, "ms")):
        if round(abs(ns) / scale, 3) < 1_000:
            return f"{ns / scale:.3f} {name}"
    return f"{ns / 1e9:.3f} s"


def timestamp(ns: float) -> str:
    """A point in time: UTC to the nanosecond if the trace has absolute times, else seconds."""
    seconds, rest = divmod(int(ns), 10**9)
    if ns >= _EPOCH_NS:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d}"
    sign, (seconds, rest) = ("-" if ns < 0 else ""), divmod(abs(int(ns)), 10**9)
    return f"{sign}{seconds}.{rest:09d} s"


def ratio(value: float) -> str:
    """A percentage; with enough decimals to distinguish nearly 100 % from 100 %, and nearly 0 % from 0 %."""
    percent = value * 100
    for decimals in range(1, 7):
        text = f"{percent:.{decimals}f}"
        if float(text) not in (0.0, 100.0) or float(text) == percent:
            return f"{text} %"
    return f"{percent:.3g} %"


def count(value: float) -> str:
    """A number with thousands separators."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def plural(count: int, noun: str, many: str | None = None) -> str:
    """`1 run`, `2 runs`, `1,200 analyses`, `2 activities`."""
    many = many or (f"{noun[:-1]}ies" if noun.endswith("ity") else f"{noun}s")
    return f"{count:,} {noun if count == 1 else many}"


def size(value: float) -> str:
    """Bytes in powers of 1024."""
    if abs(value) < 1024:
        return f"{value:.0f} B"
    return _scaled(value, 1024, ("KiB", "MiB", "GiB", "TiB", "PiB"))


def bandwidth(bytes_per_ns: float) -> str:
    """A rate; a byte per nanosecond is a GB/s."""
    return f"{bytes_per_ns:,.2f} GB/s"


def flop(value: float) -> str:
    """Floating-point operations."""
    return _scaled(value * 1e3, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"))


def flop_rate(per_ns: float) -> str:
    """A rate; an operation per nanosecond is a GFLOP/s."""
    return _scaled(per_ns * 1e3, 1000, ("GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"))


def _scaled(value: float, step: int, names: tuple[str, ...]) -> str:
    """`value` in the first of `names` (`step`, `step`², …) that keeps it below `step`."""
    for name in names[:-1]:
        value /= step
        if round(abs(value), 1) < step:
            return f"{value:.1f} {name}"
    return f"{value / step:.1f} {names[-1]}"


_PRINTERS: dict[Printer, Callable[[float], str]] = {
    "duration": duration,
    "timestamp": timestamp,
    "plain": str,
    "count": count,
    "bytes": size,
    "ratio": ratio,
    "bandwidth": bandwidth,
    "flop": flop,
    "flop_rate": flop_rate,
}
