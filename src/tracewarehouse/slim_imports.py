"""Keeps pandas, and numpy and object stores in pyarrow, out of processes that do not need them.

pyarrow imports numpy at its own import, and pandas (where it is installed) with the first array of Python
values. Both are optional for pyarrow, but it has no setting to turn them off. CPU time of a command on a
warehouse of two runs, median of 10 interleaved calls, without this module → with it: `tw runs` 740 → 298 ms,
`tw show` 554 → 487 ms, `tw query` 533 → 451 ms. Without the object stores, 3 ms more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

# Optional parts of libraries that this package does not use; pyarrow imports each with `pyarrow.parquet`.
_UNUSED = frozenset(("pandas", "pyarrow._azurefs", "pyarrow._gcsfs", "pyarrow._hdfs", "pyarrow._s3fs"))


class _Blocker:
    """An import finder that reports them as not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """None, so that the next finder is tried; raises ModuleNotFoundError for a blocked library."""
        if name in _UNUSED:
            raise ModuleNotFoundError(f"{name} is blocked in this process", name=name)
        return None


def block_unused() -> None:
    """Makes the imports of pandas and of object stores in pyarrow fail in this process from here on."""
    sys.meta_path.insert(0, _Blocker())


def import_pyarrow_without_numpy() -> None:
    """Imports pyarrow as if numpy were not installed; others may still import numpy.

    pyarrow can then neither read nor return numpy arrays. Without effect if pyarrow or numpy is loaded.
    """
    if "pyarrow" in sys.modules or "numpy" in sys.modules:
        return
    sys.modules["numpy"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    try:
        import_module("pyarrow")
    finally:
        del sys.modules["numpy"]
