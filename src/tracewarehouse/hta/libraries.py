"""pandas and plotly, on first use: the rest of the program does without them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from tracewarehouse.errors import TwError

EXTRA = ("pandas", "plotly")


def library(name: str) -> ModuleType:
    """The module of that name; raises TwError where it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        root = name.partition(".")[0]
        wanted = "'tracewarehouse[hta]'" if root in EXTRA else root
        raise TwError(f"{root} is not installed", f"pip install {wanted}") from error
