"""Which rows of a rank are slices, and which play a role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from tracewarehouse.ingest.columns import Columns
    from tracewarehouse.ingest.rules import Rules
    from tracewarehouse.ingest.tables.model import Flags


# Of a large rank so many rows are looked at at once.
SLAB_ROWS: Final = 1 << 20


def slabs(count: int, slab_rows: int | None = None) -> Iterator[slice]:
    """All rows in consecutive slabs."""
    slab_rows = slab_rows or SLAB_ROWS
    for low in range(0, count, slab_rows):
        yield slice(low, min(low + slab_rows, count))


def slices(columns: Columns) -> Flags:
    """Rows with a start and a length: phase X, or B that an E row ended."""
    return columns.is_one_of("ph", ("X", "B")) & columns.valid("dur_ns")


def with_role(columns: Columns, rules: Rules, *roles: str) -> Flags:
    """Rows whose category has one of these roles; one without category has none."""
    return columns.is_one_of("category", categories(rules, *roles))


def categories(rules: Rules, *roles: str) -> list[str]:
    """The categories that have one of these roles."""
    return [category for category, role in rules.roles.items() if role in roles]


def local_codes(column: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """The codes of some texts, -1 for null, and the words that they point into."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    encoded = column if types.is_dictionary(column.type) else column.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int32, copy=False), encoded.dictionary


def combinations(*codes: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A row of each distinct combination of codes (-1 or more), and the combination of each row."""
    number = np.zeros(len(codes[0]), np.int64)
    first = np.zeros(min(len(number), 1), np.int64)
    for each in codes:
        key = (number << 32) | (each.astype(np.int64) + 1)
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return first, number
