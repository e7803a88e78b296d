"""A SQL-backed warehouse for GPU profiler traces.

import tracewarehouse as tw
wh = tw.open("warehouse")
wh.ingest("traces/", run="fp8-on")
wh.select(runs="fp8-on").temporal_breakdown().polars()
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from tracewarehouse.engines import engine as engine
    from tracewarehouse.errors import TwError as TwError
    from tracewarehouse.ingest.handler import trace_handler as trace_handler
    from tracewarehouse.limits import Limits as Limits
    from tracewarehouse.result import Result as Result
    from tracewarehouse.simulation import simulate as simulate
    from tracewarehouse.training_log import verdict as verdict
    from tracewarehouse.warehouse import Warehouse as Warehouse

__all__ = ["Limits", "Result", "TwError", "Warehouse", "__version__", "engine", "open", "simulate"]
__all__ += ["trace_handler", "verdict"]

# Imported on first use, so that a training script that uses trace_handler imports nothing else.
_HOMES = {
    "Limits": "tracewarehouse.limits",
    "Result": "tracewarehouse.result",
    "TwError": "tracewarehouse.errors",
    "Warehouse": "tracewarehouse.warehouse",
    "engine": "tracewarehouse.engines",
    "simulate": "tracewarehouse.simulation",
    "trace_handler": "tracewarehouse.ingest.handler",
    "verdict": "tracewarehouse.training_log",
}


def open(path: str | PathLike[str], *, storage_options: Mapping[str, object] | None = None) -> Warehouse:
    """Opens the warehouse in a folder or at a URL (`s3://`, `gs://`, `az://`); the first `ingest` creates it.

    Args:
        storage_options: Options of obstore for a URL, such as `{"endpoint": "http://127.0.0.1:9000"}`.
            Credentials come from the environment.

    Raises:
        ParamError: There are `storage_options` for a folder.
        WarehouseError: The URL is not supported.

    Example:
        >>> wh = tw.open("warehouse")
    """
    from tracewarehouse.warehouse import Warehouse

    return Warehouse(path, storage_options=storage_options)


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext tracewarehouse`: adds `%tw SQL` and cells that begin with `%%tw`."""
    from tracewarehouse.notebook import register

    register(ipython)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
