"""Keeps parts of libraries out of processes of this package that do not need them.

pyarrow imports numpy at its own import, and pandas (where it is installed) with the first array of Python
values; numpy, pyarrow and scipy define types and documentation of all their functions at their import. No
setting turns this off. Only programs of this package call `install`, never an import of the package.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, SimpleNamespace
from typing import Any

# Optional parts of libraries that this package does not use, and pyarrow imports where they are installed.
_UNUSED = frozenset((
    "dateutil", "pandas", "pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._hdfs", "pyarrow._s3fs",
))  # fmt: skip
# Modules that others import only for the types in annotations, or to set the documentation of functions.
_TYPES, _DOCS, _SSL, _METADATA, _UNAME = map(ModuleType, ("types", "docs", "ssl", "metadata", "uname"))
vars(_TYPES)["__getattr__"] = lambda name: list
# For the object stores in pyarrow, which are unused.
vars(_SSL)["get_default_verify_paths"] = lambda: SimpleNamespace(cafile=None, capath=None)
vars(_DOCS)["NumpyDocString"] = lambda text: {"Parameters": ()}
vars(_UNAME).update(system=lambda: os.uname().sysname, machine=lambda: os.uname().machine)
vars(_METADATA)["version"] = lambda name: sys.modules[f"_{name}"].__version__


def _with_relations(name: str) -> Callable[..., Any]:
    """The method of a DuckDB connection, which imports all methods that are about relations."""

    def call(con: Any, *args: object) -> Any:
        for each, method in import_module("duckdb._relation").CONNECTION_METHODS.items():
            setattr(type(con), each, method)
        return getattr(con, name)(*args)

    return call


def _to_arrow_table(con: Any) -> Any:
    """The rows of the statement that ran last."""
    seam = import_module("duckdb._seam")
    return seam.result_arrow(con, seam.DEFAULT_BATCH_SIZE, reader=False)


_RELATIONS = ModuleType("relations")
vars(_RELATIONS)["__getattr__"] = lambda name: list
vars(_RELATIONS)["CONNECTION_METHODS"] = {
    "sql": _with_relations("sql"),
    "to_arrow_table": _to_arrow_table,
}
_HIDDEN: Mapping[str, Mapping[str, ModuleType | None]] = {
    "duckdb": {"duckdb._relation": _RELATIONS, "duckdb._expression": _TYPES},
    "duckdb._version": {"importlib.metadata": _METADATA},
    "msgspec": {"typing_extensions": None},
    "numpy": {
        "numpy._typing": _TYPES,
        "numpy._core._add_newdocs": _DOCS,
        "numpy._core._add_newdocs_scalars": _DOCS,
    },
    "pyarrow._fs": {"ssl": _SSL},
    "pyarrow": {"platform": _UNAME},
    "pyarrow.compute": {"pyarrow.vendored.docscrape": _DOCS},
    "pyarrow.util": {"socket": _DOCS},
    "uuid": {"platform": _UNAME},
}


class _Finder:
    """An import finder: some modules are not found, others are imported in another way."""

    def __init__(self, ways: Mapping[str, Callable[..., None]]) -> None:
        self._ways = ways

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that the next finder is tried; raises ModuleNotFoundError for an unused module."""
        if name in _UNUSED:
            raise ModuleNotFoundError(f"{name} is blocked in this process", name=name)
        if name not in self._ways or (spec := PathFinder.find_spec(name, path)) is None:
            return None
        loader: Any = spec.loader
        loader.exec_module = partial(self._ways[name], loader.exec_module)
        return spec


def _exec_in(
    context: Callable[[ModuleType], AbstractContextManager[None]],
    exec_module: Callable[[ModuleType], None],
    module: ModuleType,
) -> None:
    with context(module):
        exec_module(module)


@contextmanager
def _without(hidden: Mapping[str, ModuleType | None], module: ModuleType) -> Iterator[None]:
    """Imports of these modules fail, or find their substitutes."""
    new = {name: substitute for name, substitute in hidden.items() if name not in sys.modules}
    modules: dict[str, Any] = sys.modules
    modules.update(new)  # None is the documented way to make an import fail
    try:
        yield
    finally:
        for name in new:
            del modules[name]


@contextmanager
def _functions_on_use(module: ModuleType) -> Iterator[None]:
    """`pyarrow.compute` wraps a function on its first use, instead of wrapping and documenting all 286."""
    from pyarrow import _compute

    own, registry = vars(module), _compute.function_registry
    at_import = {"list_functions": lambda: ["utf8_zero_fill"], "get_function": registry().get_function}
    _compute.function_registry = lambda: SimpleNamespace(**at_import)
    try:
        with _without(_HIDDEN["pyarrow.compute"], module):
            yield
    finally:
        _compute.function_registry = own["function_registry"] = registry

    def wrapped(name: str) -> Any:
        try:
            function = registry().get_function(name.removesuffix("_"))
        except KeyError:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}") from None
        options = own["_get_options_class"](function)
        return own.setdefault(name, own["_make_generic_wrapper"](name, function, options, function.arity))

    own["__getattr__"] = wrapped


@contextmanager
def _no_masked_arrays(module: ModuleType) -> Iterator[None]:
    """Libraries check whether arrays are masked; only what creates these imports `numpy.ma`."""
    with _without(_HIDDEN["numpy"], module):
        yield
    substitute = vars(module)["ma"] = ModuleType("numpy.ma")
    vars(substitute)["MaskedArray"] = type("MaskedArray", (), {})
    for name in ("is_masked", "isMaskedArray"):
        vars(substitute)[name] = lambda values: False
    vars(substitute)["__getattr__"] = lambda name: getattr(import_module("numpy.ma"), name)


_IN_C = {"digamma": "psi", "zeta": "_zeta"}  # functions of `scipy.special` by their names in its extension


def _from_extension(exec_module: Callable[[ModuleType], None], module: ModuleType) -> None:
    """`scipy.special` with functions of its extension; its import comes with the first other function."""

    def function(name: str) -> Any:
        extension = import_module("scipy.special._ufuncs")
        if not hasattr(extension, _IN_C.get(name, name)):
            del vars(module)["__getattr__"]
            exec_module(module)
            return getattr(module, name)
        return getattr(extension, _IN_C.get(name, name))

    vars(module)["__getattr__"] = function


def install(*, numpy: bool = True) -> None:
    """Slims the imports of this process from here on.

    Without `numpy`, pyarrow can neither read nor return numpy arrays; others may still import numpy.
    """
    hidden = _HIDDEN if numpy else {**_HIDDEN, "pyarrow": {**_HIDDEN["pyarrow"], "numpy": None}}
    contexts: dict[str, Any] = {name: partial(_without, names) for name, names in hidden.items()}
    contexts |= {"numpy": _no_masked_arrays, "pyarrow.compute": _functions_on_use}
    ways = {name: partial(_exec_in, context) for name, context in contexts.items()}
    sys.meta_path.insert(0, _Finder({**ways, "scipy.special": _from_extension}))
