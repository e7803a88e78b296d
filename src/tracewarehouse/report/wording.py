"""Words and numbers of sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracewarehouse.plot.theme import brief
from tracewarehouse.render.table import shortened
from tracewarehouse.render.text import one_line

LABEL = 40  # characters of a name above a bar

MEANINGS = {
    "compute": "computation",
    "exposed_comm": "communication that nothing hides",
    "hidden_comm": "communication that computation hides",
    "comm_wait": "waiting for the last rank",
    "exposed_memory": "copies and sets that nothing hides",
    "other": "other GPU work",
    "idle_host": "idle: the host had not launched",
    "idle_dataloader": "idle: the host waited for data",
    "idle_sync": "idle: after a blocking call",
    "idle_kernel_wait": "idle: short gap between kernels",
    "idle_other": "idle: long gap, work was launched",
    "idle_unknown": "idle: launch not in the trace",
    "idle_outside": "outside of the first and last GPU row",
    "longer": "longer than before",
    "shorter": "shorter than before",
    "base": "base",
    "head": "head",
}


_WORDLESS = re.compile(r"^void |at::native::|\(anonymous namespace\)::|\(anonymous class\)::")


def label(name: str | None) -> str:
    """A name from a trace as a label: on one line, without arguments and what all kernels have."""
    if not name:
        return "(no name)"
    return shortened(one_line(_WORDLESS.sub("", _without_arguments(name))), LABEL)


def _without_arguments(name: str) -> str:
    """A C++ name without the list of arguments at its end."""
    depth = 0
    for at in range(len(name) - 1, 0, -1):
        depth += (name[at] == ")") - (name[at] == "(")
        if not depth:
            return name[:at] if name[-1] == ")" and name[at - 1] != " " else name
    return name


def part(value: float, whole: float) -> str:
    """A share in percent."""
    return brief(value / whole, "ratio") if whole else "0 %"


def time(ns: float | None) -> str:
    """A time in three digits."""
    return "-" if ns is None else brief(float(ns), "ns")


def plural(count: int, word: str) -> str:
    """`1 rank`, `1,024 ranks`."""
    if count == 1:
        return f"1 {word}"
    first, _, rest = word.partition(" that ")
    return f"{count:,} {first}s" + (f" that {rest}" if rest else "")


def and_list(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
