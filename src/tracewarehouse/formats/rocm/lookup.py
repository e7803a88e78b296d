"""Joins of small tables by id, without the growth of rows that repeated ids would cause in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracewarehouse.formats.sqlite_file import Condition, Database


class Lookup:
    """A table by one of its columns; of rows with equal keys the first one counts."""

    def __init__(self, table: pa.Table, key: str) -> None:
        self._table = table
        column = table.column(key).combine_chunks()
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        keys = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)[rows]
        self._keys, first = np.unique(keys, return_index=True)
        self._rows = rows[first]

    def rows(self, keys: pa.Array) -> NDArray[np.int64]:
        """The row of each key, -1 without one."""
        wanted = pc.fill_null(keys, 0).to_numpy(zero_copy_only=False)
        valid = keys.is_valid().to_numpy(zero_copy_only=False)
        if not len(self._keys):
            return np.full(len(wanted), -1, np.int64)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        found: NDArray[np.int64] = np.where(valid & (self._keys[place] == wanted), self._rows[place], -1)
        return found

    def values(self, keys: pa.Array, column: str) -> pa.Array:
        """The values of another column for the keys; null without a row."""
        rows = self.rows(keys)
        taken = self._table.column(column).combine_chunks().take(pa.array(rows, mask=rows < 0))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def read_table(
    database: Database, table: str, columns: Mapping[str, pa.DataType], where: Condition | None = None
) -> pa.Table:
    """The columns of a table; without rows if the file lacks it."""
    schema = pa.schema(list(columns.items()))
    if table not in database.tables:
        return schema.empty_table()
    return pa.Table.from_batches(list(database.batches(table, columns, where)), schema)
