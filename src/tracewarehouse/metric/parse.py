"""A metric as it is written: `ANALYSIS[@V].COLUMN[K=V,…]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.columns import Column
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.metric.model import Metric

SHORT = {"step_time": "step_summary.period_ns"}

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VERSION = re.compile(r"@([0-9]{1,9})")
_VALUE = re.compile(r"[^,\]]*")
_NO_MEASURE = (None, "id", "ts", "depth")
_EXAMPLES = "step_time, temporal_breakdown.idle_ns, kernel_summary.sum_ns[kind=communication]"


def parse_metric(text: str, catalog: Catalog) -> Metric:
    """The metric that the text says; raises ParamError or UnknownName that name the place."""
    reader = _Reader(text, catalog, 0)
    found = reader.metric()
    if reader.at < len(text):
        raise reader.error("nothing more expected")
    return found


def parse_metric_prefix(text: str, catalog: Catalog, start: int = 0) -> tuple[Metric, int]:
    """The metric that stands at `start` of the text, and where it ends; raises like `parse`."""
    reader = _Reader(text, catalog, start)
    return reader.metric(), reader.at


class _Reader:
    """A text, read from left to right."""

    def __init__(self, text: str, catalog: Catalog, at: int) -> None:
        self.text, self.catalog, self.at = text, catalog, at

    def metric(self) -> Metric:
        start = self.at
        contract, column = self.measure()
        filters = self.filters(contract) if self.skips("[") else ()
        return Metric(self.text[start : self.at], contract, column, filters)

    def measure(self) -> tuple[Contract, Column]:
        start = self.at
        word = self.word("an analysis")
        if word in SHORT and not self.text.startswith((".", "@"), self.at):
            word, _, column = SHORT[word].partition(".")
            contract = self.catalog.get(word, kind="analysis")
            return contract, _named(contract, column)
        contract = self.contract(word, start)
        if not self.skips("."):
            raise self.error(
                "`.` and a column expected", f"{contract.name} has {_names(_measures(contract))}"
            )
        start = self.at
        named = {column.name: column for column in _measures(contract)}
        word = self.word("a column")
        if word not in named:
            raise self.unknown(f"measure of {contract.ref}", word, named, start)
        return contract, named[word]

    def contract(self, word: str, start: int) -> Contract:
        version = _VERSION.match(self.text, self.at)
        self.at = version.end() if version else self.at
        try:
            return self.catalog.get(word, int(version[1]) if version else None, kind="analysis")
        except UnknownName as error:
            known = [each.name for each in self.catalog.analyses()]
            if error.kind == "version":
                raise self.placed(error, start) from None
            raise self.unknown("analysis", word, [*known, *SHORT], start) from None

    def filters(self, contract: Contract) -> tuple[tuple[Column, object], ...]:
        """`kind=…,name=…]`"""
        known = {column.name: column for column in filterable(contract)}
        found: dict[Column, object] = {}
        while True:
            start = self.at
            word = self.word("a column to filter by")
            if word not in known:
                raise self.unknown(f"column of {contract.ref} to filter by", word, known, start)
            if known[word] in found:
                raise self.error(f"{word} stands there twice", at=start)
            if not self.skips("="):
                raise self.error("`=` expected")
            found[known[word]] = self.value(known[word])
            if self.skips("]"):
                return tuple(found.items())
            if not self.skips(","):
                raise self.error("`,` or `]` expected")

    def value(self, column: Column) -> object:
        start = self.at
        quoted, text = self.written()
        if text == "null" and not quoted and column.null:
            return None
        try:
            return _cast(column.type, text)
        except ValueError:
            raise self.error(f"{column.name} is {_WANTED[column.type]}", at=start) from None

    def written(self) -> tuple[bool, str]:
        """A text in quotes, or up to the next `,` or `]`; whether it was in quotes."""
        start, quote = self.at, self.text[self.at : self.at + 1]
        if quote in ("'", '"') and quote:
            end = self.text.find(quote, start + 1)
            if end < 0:
                raise self.error("this quote has no end")
            self.at = end + 1
            return True, self.text[start + 1 : end]
        found = _VALUE.match(self.text, start)
        if found is None or not found[0].strip():
            raise self.error("a value expected", 'a text with , or ] stands in quotes: name="f<int, 4>"')
        self.at = found.end()
        return False, found[0].strip()

    def word(self, what: str) -> str:
        found = _WORD.match(self.text, self.at)
        if found is None:
            raise self.error(f"{what} expected")
        self.at = found.end()
        return found[0]

    def skips(self, mark: str) -> bool:
        there = self.text.startswith(mark, self.at)
        self.at += len(mark) if there else 0
        return there

    def place(self, at: int) -> str:
        where = f"character {at + 1}" if at < len(self.text) else "its end"
        return f"metric {self.text!r}, {where}"

    def error(self, what: str, hint: str | None = None, at: int | None = None) -> ParamError:
        place = self.place(self.at if at is None else at)
        return ParamError(f"{place}: {what}", hint or f"such as {_EXAMPLES}")

    def unknown(self, kind: str, name: str, known: Iterable[str], at: int) -> UnknownName:
        return self.placed(UnknownName(kind, name, known), at)

    def placed(self, error: UnknownName, at: int) -> UnknownName:
        error.message = f"{self.place(at)}: {error.message}"
        error.args = (error.message,)
        return error


def filterable(contract: Contract) -> tuple[Column, ...]:
    """The columns that rows can be told apart by, but for the run: runs are chosen otherwise."""
    return tuple(
        column
        for column in contract.columns
        if column.name != "run_id" and column.type in _WANTED and not _is_measure(column)
    )


def _measures(contract: Contract) -> tuple[Column, ...]:
    return tuple(column for column in contract.columns if _is_measure(column))


def _is_measure(column: Column) -> bool:
    return column.unit not in _NO_MEASURE and column.type in ("BIGINT", "INTEGER", "DOUBLE")


def _named(contract: Contract, name: str) -> Column:
    return next(column for column in contract.columns if column.name == name)


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(column.name for column in columns) or "no measure"


_WANTED = {
    "VARCHAR": "a text",
    "INTEGER": "a whole number",
    "BIGINT": "a whole number",
    "BOOLEAN": "true or false",
}


def _cast(type_: str, text: str) -> object:
    if type_ == "VARCHAR":
        return text
    if type_ == "BOOLEAN":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    return int(text)
