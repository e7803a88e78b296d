"""Reading traces through their format in tests: rows of activities, by either scanner."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracewarehouse.formats.base import ACTIVITIES, Outcome, Request
from tracewarehouse.formats.memory_timeline import ACTIONS, CATEGORIES
from tracewarehouse.formats.registry import detect
from tracewarehouse.formats.stored_source import StoredSource

SALT = b"salt"
# Columns of activities that `events` has too.
STORED = (
    "event_id", "ph", "category", "raw_category", "name", "pid", "tid", "ts_ns", "dur_ns", "ts_text",
    "dur_text", "correlation", "external_id", "stream", "device", "bytes", "sequence_number",
    "forward_thread", "python_id", "python_parent_id", "module_id", "shapes", "dtypes", "flow_id", "end_id",
    "args", "extra",
)  # fmt: skip


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


def check_stored(found: ReadTrace) -> None:
    """Activities that went into `events` come back from there."""
    stored = found.activities.select([name for name in STORED if name in found.activities.column_names])
    parts = [stored.slice(at, 10_000) for at in range(0, max(stored.num_rows, 1), 10_000)]
    source = StoredSource({"events": [_as_stored(part) for part in parts]}, found.outcome)
    again = source.tables[ACTIVITIES].read_all()
    differing = [
        name
        for name in found.activities.column_names
        if name != "repaired" and again.column(name).to_pylist() != found.column(name)
    ]
    assert differing == [] and source.outcome() == found.outcome


def _as_stored(part: pa.Table) -> pa.Table:
    """With plain text columns, as Parquet gives them."""
    plain = [
        column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in part.columns
    ]
    return pa.Table.from_arrays(plain, names=part.column_names)


def element(row: dict[str, object]) -> str:
    """The minified element of a row of a memory timeline."""
    if row["element"] is not None:
        return str(row["element"])
    action, category = row["action"], row["category"]
    time = row["ts_ns"] if row["ts_ns"] is not None else row["file_time_ns"]
    action_number = row["file_action"] if action is None else ACTIONS.index(str(action))
    category_number = row["file_category"] if category is None else CATEGORIES.index(str(category))
    return f"[{time},{action_number},{row['bytes']},{category_number}]"
