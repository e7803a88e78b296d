"""Names and numbers as report sentences print them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from math import ceil, log10

from tracewarehouse.present.plot.theme import Scale, format_short
from tracewarehouse.present.render.names import REPLACED
from tracewarehouse.present.render.table import shortened
from tracewarehouse.present.render.text import one_line

_MAX_LABEL = 40  # characters of a name above a bar
# What most kernel names contain, and what therefore does not help to recognize one.
_BOILERPLATE = re.compile(r"^void |at::native::|\(anonymous namespace\)::|\(anonymous class\)::")
_BUILT_IN = re.compile(r"^<built-in (?:method|function) (\S+?)(?: of .*)?>$")


def label(name: str | None) -> str:
    """A name from a trace as a chart label: on one line, shortened, without C++ arguments and boilerplate."""
    if not name:
        return "(no name)"
    if REPLACED in name:
        return shortened(REPLACED.join(map(label, name.split(REPLACED))), _MAX_LABEL)
    name = _BUILT_IN.sub(r"\1 (built-in)", name)
    return shortened(one_line(_BOILERPLATE.sub("", _without_arguments(name))), _MAX_LABEL)


def distinct_labels(names: Sequence[str | None]) -> list[str]:
    """The names as `label`, and those that would look alike with the part in which they differ."""
    texts = [label(name) for name in names]
    for text in {each for each in texts if texts.count(each) > 1}:
        places = [at for at, each in enumerate(texts) if each == text]
        alike = [one_line(_BOILERPLATE.sub("", names[at] or "")) for at in places]
        start = len(os.path.commonprefix(alike))
        half = _MAX_LABEL // 2
        for at, name in zip(places, alike, strict=True):
            # The part begins at a word.
            begin = 1 + max(name.rfind(separator, 0, start) for separator in "<>(),: ")
            if begin > half - 2:
                texts[at] = f"{name[: half - 2]}…{name[begin : begin + half]}"
    return texts


def _without_arguments(name: str) -> str:
    """A C++ name without its argument list."""
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            return name[:at] if name[-1] == ")" and name[at - 1] != " " else name
    return name


def percent(value: float, total: float) -> str:
    """`value` as a percentage of `total`."""
    if 0 < value < 0.001 * total:
        return "< 0.1 %"
    return format_short(value / total, "ratio") if total else "0 %"


def finding_percent(value: float, total: float) -> str:
    """The same with one decimal, as in the sentences of findings."""
    if not total or 0 < value < 0.001 * total:
        return percent(value, total)
    return f"{100 * value / total:.1f} %"


def duration(ns: float | None) -> str:
    """A duration in three significant digits."""
    return "-" if ns is None else format_short(float(ns), "ns")


def distinct_durations(base: float, head: float) -> tuple[str, str]:
    """Two durations, with more digits if they differ by less than three digits show."""
    if base == head or duration(base) != duration(head):
        return duration(base), duration(head)
    scale = Scale.of([base, head], "ns")
    decimals = min(max(ceil(-log10(abs(head - base) / scale.divisor)), 1), 9)
    first, second = (f"{each / scale.divisor:,.{decimals}f} {scale.unit}" for each in (base, head))
    return first, second


def and_list(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def shell_quoted(text: str) -> str:
    """A text as a word of a shell command, in double quotes if it contains single ones."""
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    return shlex.quote(text)


def sentence(text: str) -> str:
    """A notice as a sentence: capitalized, with a period."""
    return f"{text[:1].upper()}{text[1:]}."
