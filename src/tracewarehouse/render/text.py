"""Text from a trace made safe for a terminal: it may hold escape codes, line ends, marks of direction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tracewarehouse.contracts.columns import UNITS, Printer

# C1 controls, DEL, line separators, marks that turn text around, and surrogates, which cannot be printed.
_ALWAYS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_NOT_ON_ONE_LINE = re.compile(f"[\x00-\x1f{_ALWAYS}]")
_NOT_ON_A_TERMINAL = re.compile(f"[\x00-\x08\x0b-\x1f{_ALWAYS}]")


def one_line(text: str) -> str:
    """`text` with every control character written as an escape, so that it stays on one line."""
    return _NOT_ON_ONE_LINE.sub(_escape, text)


def for_terminal(text: str) -> str:
    """`text` with its own line ends and tabs, and nothing else that moves a cursor."""
    return _NOT_ON_A_TERMINAL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 10:
        return "\\n"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


MISSING = "-"
_EPOCH_NS = 10**17  # later than March 1973: an absolute time, not one since some start


def show(value: object, unit: str | None = None) -> str:
    """`value` in words: a time as `12.345 ms`, a ratio as `77.3 %`; `-` for null."""
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
    """A time in the largest unit that keeps it above 1; ns and µs are exact, ms and s have three decimals."""
    if abs(ns) < 1_000:
        return f"{ns:.0f} ns" if ns == int(ns) else f"{ns:.1f} ns"
    for scale, name in ((1e3, "µs"), (1e6, "ms")):
        if round(abs(ns) / scale, 3) < 1_000:
            return f"{ns / scale:.3f} {name}"
    return f"{ns / 1e9:.3f} s"


def timestamp(ns: float) -> str:
    """A point in time: UTC to the nanosecond where the trace gives absolute times, else seconds."""
    seconds, rest = divmod(int(ns), 10**9)
    if ns >= _EPOCH_NS:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d}"
    sign, (seconds, rest) = ("-" if ns < 0 else ""), divmod(abs(int(ns)), 10**9)
    return f"{sign}{seconds}.{rest:09d} s"


def ratio(value: float) -> str:
    """A percentage; as many decimals as it takes to tell almost all from all, and almost none from none."""
    percent = value * 100
    for decimals in range(1, 7):
        text = f"{percent:.{decimals}f}"
        if float(text) not in (0.0, 100.0) or float(text) == percent:
            return f"{text} %"
    return f"{percent:.3g} %"


def count(value: float) -> str:
    """A number with its thousands apart."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")


def size(value: float) -> str:
    """Bytes, in powers of 1024."""
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
    """`value` over powers of `step`; the first name stands for one `step`."""
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
