"""From NumPy arrays to the columns of a table, in the types of the contracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..columns import Columns

    Some = NDArray[np.integer[Any]] | slice


def numbers(values: NDArray[np.integer[Any]], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A BIGINT column, null where not valid."""
    return pa.array(values, pa.int64(), mask=None if valid is None else ~valid)


def rows_or_null(values: NDArray[np.integer[Any]]) -> pa.Array:
    """A BIGINT column of event ids, null where -1."""
    return numbers(values, values >= 0)


def worded(codes: NDArray[np.integer[Any]], words: Sequence[str] | pa.Array) -> pa.Array:
    """A VARCHAR column of codes that point into words, null where -1; dictionary-encoded."""
    indices = pa.array(codes.astype(np.int32, copy=False), mask=codes < 0)
    known = words if isinstance(words, pa.Array) else pa.array(list(words), pa.string())
    return pa.DictionaryArray.from_arrays(indices, known)


def bigints(columns: Columns, name: str, rows: Some) -> pa.Array:
    """Some rows of a column of whole numbers as BIGINT."""
    return columns.arrow(name, rows).cast(pa.int64())


def taken(columns: Columns, rows: Some, names: Mapping[str, str]) -> dict[str, pa.Array]:
    """Some rows of columns by their name in the table, whole numbers as BIGINT, texts as VARCHAR."""
    return {name: _typed(columns.arrow(source, rows)) for name, source in names.items()}


def _typed(column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    return column.cast(pa.int64()) if pa.types.is_integer(column.type) else column
