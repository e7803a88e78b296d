"""Reading traces through their format in tests: rows of activities, by either scanner."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracewarehouse.formats.base import ACTIVITIES, Outcome, Request
from tracewarehouse.formats.detect import detect

SALT = b"salt"


def request(*, exact: bool = False, **more: Any) -> Request:
    """How tests read; spilled to the system's temporary folder."""
    return Request(SALT, Path(tempfile.gettempdir()), exact=exact, **more)


class ReadTrace:
    """A trace after its format reader: the activities, and what is known of the file."""

    def __init__(self, path: Path, *, exact: bool = False, **more: Any) -> None:
        source = detect(path).open(path)
        (part,) = source.parts()
        found = source.read(part, request(exact=exact, **more))
        self.tables = {name: reader.read_all() for name, reader in found.tables.items()}
        self.outcome: Outcome = found.outcome()

    @property
    def activities(self) -> pa.Table:
        return self.tables[ACTIVITIES]

    def column(self, name: str) -> list[Any]:
        return self.activities.column(name).to_pylist()  # type: ignore[no-any-return]

    def row(self, at: int) -> dict[str, Any]:
        """What an activity has: no nulls, no False."""
        row = self.activities.slice(at, 1).to_pylist()[0]
        return {name: value for name, value in row.items() if value is not None and value is not False}


def same(one: ReadTrace, other: ReadTrace) -> list[str]:
    """The columns that differ, and `outcome`."""
    found = [] if one.outcome == other.outcome else ["outcome"]
    for name in one.activities.column_names:
        a, b = (_plain(read.activities.column(name)) for read in (one, other))
        if not a.equals(b):
            found.append(name)
    return found


def _plain(column: pa.ChunkedArray) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
