"""The analyses as methods, from the catalog; `analyses.pyi` has their types, written by `tw dev sync`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, Signature
from textwrap import wrap
from typing import Generic, TypeVar

from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract, python_type
from tracewarehouse.errors import similar_names

T_co = TypeVar("T_co", covariant=True)
_WIDTH = 100


class Analyses(Generic[T_co]):
    """One method per analysis, in its newest version; `analyze` takes any name and version.

    `help(wh.kernel_summary)` describes its parameters and columns.
    """

    catalog: Catalog

    def analyze(self, name: str, version: int | None = None, **params: object) -> T_co:
        """The rows of an analysis. Raises UnknownName, ParamError."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., T_co]:
        is_own = name.startswith("_") or name == "catalog"
        if is_own or not any(ref.name == name for ref in self.catalog.refs("analysis")):
            close = [] if is_own else similar_names(name, dir(self))
            suggestion = f"; did you mean {', '.join(close)}?" if close else ""
            message = f"{type(self).__name__!r} object has no attribute {name!r}{suggestion}"
            raise AttributeError(message)
        return _method(self, self.catalog.get(name, kind="analysis"))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(ref.name for ref in self.catalog.refs("analysis"))})


def _method(analyses: Analyses[T_co], contract: Contract) -> Callable[..., T_co]:
    def method(**params: object) -> T_co:
        return analyses.analyze(contract.name, **params)

    method.__name__, method.__qualname__ = contract.name, f"{type(analyses).__name__}.{contract.name}"
    method.__doc__ = "\n".join(docstring(contract))
    method.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=python_type(each))
            for each in contract.params
        ]
    )
    return method


def docstring(contract: Contract) -> Iterator[str]:
    """The lines that describe an analysis: its summary, parameters and columns, and an example."""
    yield from wrap(contract.summary, _WIDTH)
    if contract.deprecated:
        yield from ("", *wrap(f"Deprecated: {contract.deprecated}", _WIDTH))
    if contract.params:
        yield from ("", "Args:")
    for param in contract.params:
        yield from _item(f"{param.name}: {param.doc}")
    yield from ("", "Returns:")
    for column in contract.columns:
        type_ = ", ".join(filter(None, (column.type, column.unit)))
        yield from _item(f"{column.name} ({type_}): {column.doc}")
    yield from ("", "Example:", f"    >>> wh.{contract.name}().polars()")


def _item(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
