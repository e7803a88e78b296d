"""Rows of a rank: slices and roles, ids that pair rows, and values as columns of the stored tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns, Ints
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags

    Some = NDArray[np.integer[Any]] | slice


# Number of rows that are processed at once in a large rank.
SLAB_ROWS: Final = 1 << 20
# Correlation and external ids that mean no id: zero, unset, and the largest numbers of 32 and 63 bits.
SENTINEL_IDS: Final = (0, -1, 2**32 - 1, 2**63 - 1)
_TEXTS: Final = frozenset((
    "ph", "category", "raw_category", "name", "pid", "tid", "ts_text", "dur_text", "shapes", "dtypes",
    "flow_id", "args", "extra", "collective", "process_group", "group_ranks", "collective_dtype", "sync_kind",
))  # fmt: skip
_DOUBLES: Final = frozenset(("occupancy", "blocks_per_sm", "warps_per_sm", "bandwidth_bytes_per_ns"))
_BIGINT: Final = pa.int64()
_FLAGS: Final = frozenset(("has_collective", "repaired", "crosses"))


def slabs(count: int, slab_rows: int | None = None) -> Iterator[slice]:
    """Consecutive slabs of all rows."""
    slab_rows = slab_rows or SLAB_ROWS
    for low in range(0, count, slab_rows):
        yield slice(low, min(low + slab_rows, count))


def is_slice(columns: Columns) -> Flags:
    """Whether each row has a start and a duration: phase X, or B with a matching E row."""
    return columns.is_one_of("ph", ("X", "B")) & columns.valid("dur_ns")


def has_role(columns: Columns, rules: Rules, *roles: str) -> Flags:
    """Whether the category of each row has one of these roles; False without a category."""
    return columns.is_one_of("category", categories_with_role(rules, *roles))


def categories_with_role(rules: Rules, *roles: str) -> list[str]:
    """The categories that have one of these roles."""
    return [category for category, role in rules.roles.items() if role in roles]


def text_codes(column: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """The codes of a text column, -1 for null, and the words that they index."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int32, copy=False), encoded.dictionary


def distinct_combinations(*codes: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each distinct combination of codes (-1 or more), and the combination of each row."""
    number = np.zeros(len(codes[0]), np.int64)
    for each in codes:
        # A hash table is faster than sorting: few combinations are distinct.
        found = pa.array((number << 32) | (each.astype(np.int64) + 1)).dictionary_encode()
        number = found.indices.to_numpy().astype(np.int64)
    rows = np.arange(len(number) - 1, -1, -1)
    first = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    first[number[rows]] = rows  # the last one stays
    return first, number


def has_pairing_id(ids: Ints) -> NDArray[np.bool_]:
    """Whether each id can link rows: not null, not negative and not a sentinel."""
    return ids.valid & (ids.values > 0) & ~np.isin(ids.values, SENTINEL_IDS)


def bigint_column(values: NDArray[np.integer[Any]], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """A BIGINT column, null where not valid."""
    return pa.array(values, pa.int64(), mask=None if valid is None else ~valid)


def id_column(values: NDArray[np.integer[Any]]) -> pa.Array:
    """A BIGINT column of event ids, null where -1."""
    return bigint_column(values, values >= 0)


def encoded_texts(codes: NDArray[np.integer[Any]], words: Sequence[str] | pa.Array) -> pa.Array:
    """A dictionary-encoded VARCHAR column of codes that index words; null for -1 or a null word."""
    known = words if isinstance(words, pa.Array) else pa.array(list(words), pa.string())
    # Parquet allows no null in a dictionary; code -1 reads the last entry.
    none = np.append(np.asarray(known.is_null()), True)
    indices = pa.array(codes.astype(np.int32, copy=False), mask=np.take(none, codes, mode="wrap"))
    return pa.DictionaryArray.from_arrays(indices, known.fill_null(""))


def selected_columns(columns: Columns, rows: Some, names: Mapping[str, str]) -> dict[str, pa.Array]:
    """The given rows of columns, by their name in the table, in the types of the contracts."""
    return {name: _typed(source, columns.arrow(source, rows)) for name, source in names.items()}


def _typed(name: str, column: pa.Array) -> pa.Array:
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    if pa.types.is_integer(column.type) and column.type != _BIGINT:
        return column.cast(_BIGINT)
    return pa.nulls(len(column), _type(name)) if pa.types.is_null(column.type) else column


def _type(name: str) -> pa.DataType:
    """The type of a column of the activities, or of a column that a builder adds."""
    if name in _TEXTS:
        return pa.string()
    if name in _DOUBLES:
        return pa.float64()
    return pa.bool_() if name in _FLAGS else pa.int64()
