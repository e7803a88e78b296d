"""`kernels[kind=communication]=0.5`: which parts of a critical path would take how many times as long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.errors import ParamError

# What can be scaled: all of it, all GPU rows, or a category of `critical_path_breakdown`.
WHATS = ("all", "kernels", "host", "host_gap", "launch", "sync", "kernel_gap", "earlier", "unknown_wait")
FILTERS = ("kind", "name", "op")
KINDS = ("computation", "communication", "memory", "other")
_WORD = re.compile(r"[a-z_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_EXAMPLES = "kernels=0.5, kernels[kind=communication]=0, host[op=aten::mm]=0.8, kernels[name='*gemm*']=2"


@dataclass(frozen=True)
class Scale:
    """Parts of a graph, and the factor for their time. A `*` in `name` and `op` stands for anything."""

    what: str
    factor: Fraction
    kind: str | None = None
    name: str | None = None
    op: str | None = None

    @property
    def condition(self) -> str:
        """SQL over the edges `part`: type, category, kind and name of what their time belongs to."""
        terms = []
        if self.what == "kernels":
            terms.append("part.type = 'kernel'")
        elif self.what != "all":
            terms.append(f"part.category = {quote_text(self.what)}")
        if self.kind is not None:
            terms.append(f"part.kind = {quote_text(self.kind)}")
        if self.name is not None:
            terms.append(f"regexp_full_match(part.name, {quote_text(pattern(self.name))})")
        return f"coalesce({' AND '.join(terms) or 'TRUE'}, FALSE)"


def pattern(text: str) -> str:
    """A regular expression (RE2) for a text in which `*` stands for anything."""
    return "(?s)" + ".*".join(re.escape(part) for part in text.split("*"))


def parse(text: str) -> Scale:
    """A scale as it is written; raises ParamError that points at the place where it goes wrong."""
    return _Reader(text).scale()


class _Reader:
    """A text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def scale(self) -> Scale:
        what = self.word("what to scale", WHATS)
        filters = self.filters() if self.skips("[") else {}
        if not self.skips("="):
            raise self.error("`=` and a factor expected" if filters else "`[` or `=` expected")
        start = self.at
        found = _NUMBER.match(self.text, self.at)
        self.at = found.end() if found else self.at
        if found is None or self.at < len(self.text):
            self.at = start if found is None else self.at
            raise self.error("a factor expected, 0.5 say" if found is None else "nothing more expected")
        return Scale(what, Fraction(Decimal(found[0])), **filters)

    def filters(self) -> dict[str, str]:
        """`kind=…,name=…]`"""
        found: dict[str, str] = {}
        while True:
            start = self.at
            key = self.word("a filter", FILTERS)
            if key in found:
                self.at = start
                raise self.error(f"{key} stands there twice")
            if not self.skips("="):
                raise self.error("`=` expected")
            start = self.at
            found[key] = self.value()
            if key == "kind" and found[key] not in KINDS:
                self.at = start
                raise self.error(f"no kind of GPU row: {', '.join(KINDS)}")
            if self.skips("]"):
                return found
            if not self.skips(","):
                raise self.error("`,` or `]` expected")

    def word(self, what: str, known: tuple[str, ...]) -> str:
        found = _WORD.match(self.text, self.at)
        if found is None or found[0] not in known:
            raise self.error(f"{what} expected: {', '.join(known)}")
        self.at = found.end()
        return found[0]

    def value(self) -> str:
        """A text in quotes, or up to the next `,` or `]`."""
        quote = self.text[self.at : self.at + 1]
        if quote in ("'", '"') and quote:
            end = self.text.find(quote, self.at + 1)
            if end < 0:
                raise self.error("this quote has no end")
            found, self.at = self.text[self.at + 1 : end], end + 1
            return found
        found = re.compile(r"[^,\]]*").match(self.text, self.at)[0]  # type: ignore[index]
        if not found:
            raise self.error("a value expected")
        self.at += len(found)
        return found

    def skips(self, mark: str) -> bool:
        there = self.text.startswith(mark, self.at)
        self.at += len(mark) if there else 0
        return there

    def error(self, what: str) -> ParamError:
        place = f"character {self.at + 1}" if self.at < len(self.text) else "its end"
        return ParamError(f"scale {self.text!r}, {place}: {what}", f"such as {_EXAMPLES}")
