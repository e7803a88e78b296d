"""Values and names as text for a terminal: with units, shortened, and with control characters escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal

from tracewarehouse.contracts.contract import UNITS, Printer
from tracewarehouse.exact_text import INVISIBLE, escape
from tracewarehouse.exact_text import one_line as one_line
from tracewarehouse.late_regex import late_regex

_NOT_ON_A_TERMINAL = late_regex(f"[\x00-\x08\x0b-\x1f{INVISIBLE}]")


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
    if isinstance(value, Decimal):  # a sum of integers
        value = int(value) if value == int(value) else float(value)
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
    seconds, fraction = divmod(int(ns), 10**9)
    if ns >= _EPOCH_NS:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{fraction:09d}"
    sign, (seconds, fraction) = ("-" if ns < 0 else ""), divmod(abs(int(ns)), 10**9)
    return f"{sign}{seconds}.{fraction:09d} s"


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


_ARGUMENTS = {"<": ">", "(": ")"}
_TEMPLATE_OR_CALL = late_regex(r"\w[<(]")
_NAMESPACES = late_regex(
    r"\(anonymous namespace\)::|<unnamed>::|\b(?:at::native|at|c10|std|cutlass|thrust|cub)::"
)
_WORD = late_regex(r"\w+")
_MOST_WORDS = 4  # of the template arguments in which names differ


REPLACED = " → "  # between a kernel and the one that replaced it
JOINED = " + "  # between kernels that were fused into one, or that one was split into


def short_name(name: str) -> str:
    """A C++ kernel name without return type, namespaces of libraries, template arguments and arguments.

    Other names, such as `Memcpy HtoD (Pinned -> Device)` or `module.py(12): forward`, are returned unchanged;
    of kernels and their replacements, such as `A + B → C`, all are short.
    """
    if REPLACED in name:
        sides = (map(short_name, side.split(JOINED)) for side in name.split(REPLACED))
        return REPLACED.join(map(JOINED.join, sides))
    text = _NAMESPACES.sub("", name.removeprefix("void "))
    is_cpp = name.startswith("void ") or any(mark in name for mark in ("<", "::", "*)"))
    if not is_cpp or name[:1] == "<" or name[-1:] not in (")", ">") or not _TEMPLATE_OR_CALL.search(text):
        return name
    return _without_arguments(text).strip() or name


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """The short name of each name; those that would collide keep the words in which they differ."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(short_name(name), []).append(name)
    short: dict[str, str] = {}
    for text, members in groups.items():
        short |= {members[0]: text} if len(members) == 1 else _distinguished(text, members)
    return short


def _distinguished(text: str, members: list[str]) -> dict[str, str]:
    """`kernel<FillFunctor>` for each member of a group; the entire name where words do not suffice."""
    words = {name: dict.fromkeys(_WORD.findall(name)) for name in members}
    shared = set.intersection(*(set(each) for each in words.values()))
    candidates: dict[str, str] = {}
    for name, own_words in words.items():
        different = [word for word in own_words if word not in shared][:_MOST_WORDS]
        candidates[name] = f"{text}<{', '.join(different)}>" if different else text
    if len(set(candidates.values())) == len(candidates):
        return candidates
    texts = list(candidates.values())
    return {name: name if texts.count(each) > 1 else each for name, each in candidates.items()}


def _without_arguments(text: str) -> str:
    """`text` without what is in angle brackets and parentheses; operators such as `operator<` end it."""
    characters: list[str] = []
    closing: list[str] = []
    for character in text:
        if closing:
            if character == closing[-1]:
                closing.pop()
            elif character in _ARGUMENTS:
                closing.append(_ARGUMENTS[character])
        elif character in _ARGUMENTS:
            closing.append(_ARGUMENTS[character])
        else:
            characters.append(character)
    return "".join(characters)
