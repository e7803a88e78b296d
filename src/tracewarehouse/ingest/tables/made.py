"""From NumPy arrays to the columns of a table, in the types of the contracts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns

    Some = NDArray[np.integer[Any]] | slice


_TEXTS: Final = frozenset((
    "ph", "category", "raw_category", "name", "pid", "tid", "ts_text", "dur_text", "shapes", "dtypes",
    "flow_id", "args", "extra", "collective", "process_group", "group_ranks", "collective_dtype", "sync_kind",
))  # fmt: skip
_DOUBLES: Final = frozenset(("occupancy", "blocks_per_sm", "warps_per_sm", "bandwidth_bytes_per_ns"))
_BIGINT: Final = pa.int64()
_FLAGS: Final = frozenset(("has_collective", "repaired", "crosses"))


def numbers(values: NDArray[np.integer[Any]], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A BIGINT column, null where not valid."""
    return pa.array(values, pa.int64(), mask=None if valid is None else ~valid)


def rows_or_null(values: NDArray[np.integer[Any]]) -> pa.Array:
    """A BIGINT column of event ids, null where -1."""
    return numbers(values, values >= 0)


def worded(codes: NDArray[np.integer[Any]], words: Sequence[str] | pa.Array) -> pa.Array:
    """A VARCHAR column of codes that point into words, null where -1 or a null word; dictionary-encoded."""
    known = words if isinstance(words, pa.Array) else pa.array(list(words), pa.string())
    # Parquet takes no null among the words of a dictionary; code -1 reads the last entry.
    none = np.append(np.asarray(known.is_null()), True)
    indices = pa.array(codes.astype(np.int32, copy=False), mask=np.take(none, codes, mode="wrap"))
    return pa.DictionaryArray.from_arrays(indices, known.fill_null(""))


def taken(columns: Columns, rows: Some, names: Mapping[str, str]) -> dict[str, pa.Array]:
    """Some rows of columns by their name in the table, in the types of the contracts."""
    return {name: _typed(source, columns.arrow(source, rows)) for name, source in names.items()}


def _typed(name: str, column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    if pa.types.is_integer(column.type) and column.type != _BIGINT:
        return column.cast(_BIGINT)
    return pa.nulls(len(column), _type(name)) if pa.types.is_null(column.type) else column


def _type(name: str) -> pa.DataType:
    """The type of a column of the activities, or of one that builders add."""
    if name in _TEXTS:
        return pa.string()
    if name in _DOUBLES:
        return pa.float64()
    return pa.bool_() if name in _FLAGS else pa.int64()
