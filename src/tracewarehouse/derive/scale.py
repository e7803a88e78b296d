"""Parses scales, `kernels[kind=communication]=0.5`: parts of a critical path, and a factor for their time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from tracewarehouse.contracts.sql_tokens import quote_text
from tracewarehouse.errors import ParamError

# What can be scaled: everything, all GPU activities, or a category of `critical_path_breakdown`.
TARGETS = ("all", "kernels", "host", "host_gap", "launch", "sync", "kernel_gap", "earlier", "unknown_wait")
FILTERS = ("kind", "name", "op")
KINDS = ("computation", "communication", "memory", "other")
_WORD = re.compile(r"[a-z_]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?|\.\d+")
_EXAMPLES = "kernels=0.5, kernels[kind=communication]=0, host[op=aten::mm]=0.8, kernels[name='*gemm*']=2"


@dataclass(frozen=True)
class Scale:
    """Parts of a graph, and the factor for their time. A `*` in `name` and `op` matches any text."""

    what: str
    factor: Fraction
    kind: str | None = None
    name: str | None = None
    op: str | None = None

    @property
    def condition(self) -> str:
        """A SQL condition on the edges `part`: their type, and category, kind and name of their activity."""
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
    """A regular expression (RE2) for a text in which `*` matches any text."""
    return "(?s)" + ".*".join(re.escape(part) for part in text.split("*"))


def parse(text: str) -> Scale:
    """The scale in a text; raises ParamError with the position of the error."""
    return _Reader(text).scale()


class _Reader:
    """A recursive-descent parser."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def scale(self) -> Scale:
        what = self.word("what to scale", TARGETS)
        filters = self.filters() if self.accept("[") else {}
        if not self.accept("="):
            raise self.error("expected `=` and a factor" if filters else "expected `[` or `=`")
        start = self.at
        match = _NUMBER.match(self.text, self.at)
        self.at = match.end() if match else self.at
        if match is None or self.at < len(self.text):
            self.at = start if match is None else self.at
            raise self.error(
                "expected a factor, for example 0.5" if match is None else "unexpected text after the factor"
            )
        return Scale(what, Fraction(Decimal(match[0])), **filters)

    def filters(self) -> dict[str, str]:
        """`kind=…,name=…]`"""
        filters: dict[str, str] = {}
        while True:
            start = self.at
            key = self.word("a filter", FILTERS)
            if key in filters:
                self.at = start
                raise self.error(f"duplicate filter: {key}")
            if not self.accept("="):
                raise self.error("expected `=`")
            start = self.at
            filters[key] = self.value()
            if key == "kind" and filters[key] not in KINDS:
                self.at = start
                raise self.error(f"expected a kind of GPU activity: {', '.join(KINDS)}")
            if self.accept("]"):
                return filters
            if not self.accept(","):
                raise self.error("expected `,` or `]`")

    def word(self, what: str, known: tuple[str, ...]) -> str:
        match = _WORD.match(self.text, self.at)
        if match is None or match[0] not in known:
            raise self.error(f"expected {what}: {', '.join(known)}")
        self.at = match.end()
        return match[0]

    def value(self) -> str:
        """Quoted text, or text up to the next `,` or `]`."""
        quote = self.text[self.at : self.at + 1]
        if quote in ("'", '"') and quote:
            end = self.text.find(quote, self.at + 1)
            if end < 0:
                raise self.error("unterminated quote")
            value, self.at = self.text[self.at + 1 : end], end + 1
            return value
        value = re.compile(r"[^,\]]*").match(self.text, self.at)[0]  # type: ignore[index]
        if not value:
            raise self.error("expected a value")
        self.at += len(value)
        return value

    def accept(self, token: str) -> bool:
        accepted = self.text.startswith(token, self.at)
        self.at += len(token) if accepted else 0
        return accepted

    def error(self, what: str) -> ParamError:
        position = f"character {self.at + 1}" if self.at < len(self.text) else "end"
        return ParamError(f"scale {self.text!r}, {position}: {what}", f"for example {_EXAMPLES}")
