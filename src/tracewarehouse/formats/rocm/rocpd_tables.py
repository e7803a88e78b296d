"""Tables of a rocpd database: their names end in a GUID, and two layouts record times and processes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.rocm.lookup import Lookup, read_table
from tracewarehouse.formats.source_tables import declared_types

if TYPE_CHECKING:
    from tracewarehouse.formats.sqlite_file import Database

AXES: Final = "xyz"
_DISPATCH: Final = "rocpd_kernel_dispatch_"
_INT, _TEXT = pa.int64(), pa.string()
# Columns that refer to other tables, and those with typed columns in `activities`.
REFERENCES: Final = (
    "id", "guid", "nid", "pid", "tid", "track_id", "start_id", "end_id", "start", "end", "agent_id",
    "kernel_id", "event_id", "name_id", "region_name_id", "src_agent_id", "dst_agent_id", "size",
    *(f"{kind}_size_{axis}" for kind in ("grid", "workgroup") for axis in AXES),
)  # fmt: skip


def guids(database: Database) -> list[str]:
    """The GUIDs of the file."""
    return [name.removeprefix(_DISPATCH) for name in database.tables if name.startswith(_DISPATCH)]


class Tables:
    """The tables with one GUID."""

    def __init__(self, database: Database, guid: str) -> None:
        self.database, self.guid = database, guid

    def name(self, table: str) -> str:
        """The name in the file."""
        return f"rocpd_{table}_{self.guid}"

    def table(self, table: str, columns: Mapping[str, pa.DataType]) -> pa.Table:
        """Columns of a table; without rows if the file lacks it."""
        return read_table(self.database, self.name(table), columns)

    def lookup(self, table: str, *columns: tuple[str, pa.DataType]) -> Lookup:
        """A table by its id."""
        return Lookup(self.table(table, {"id": _INT, **dict(columns)}), "id")

    @cached_property
    def strings(self) -> Lookup:
        """Texts by id."""
        return self.lookup("string", ("string", _TEXT))

    @cached_property
    def events(self) -> Lookup:
        """Category and correlation by id of an event."""
        ids = (("category_id", _INT), ("stack_id", _INT), ("correlation_id", _INT))
        return self.lookup("event", *ids, ("extdata", _TEXT))

    @cached_property
    def agents(self) -> Lookup:
        """Agents by id: whether it is a GPU, and its number among those."""
        return self.lookup("info_agent", ("type", _TEXT), ("type_index", _INT))

    @cached_property
    def processes(self) -> list[tuple[int, int, int, str]]:
        """Node, first device, number and GUID of each process with GPU activities."""
        found: dict[tuple[int, int], int] = {}
        for table, agent in (("kernel_dispatch", "agent_id"), ("memory_copy", "dst_agent_id")):
            rows = self.rows(table)
            devices = self.agents.values(rows.column(agent), "type_index").to_pylist()
            places = zip(
                rows.column("nid").to_pylist(), rows.column("process").to_pylist(), devices, strict=True
            )
            for node, pid, device in places:
                if pid is not None:
                    key = (node or 0, pid)
                    found[key] = min(found.get(key, 1 << 30), 1 << 30 if device is None else device)
        return [(node, device, pid, self.guid) for (node, pid), device in found.items()]

    def rows(self, table: str) -> pa.RecordBatch:
        """A table with `process`, `thread`, `start` and `end`, whatever the layout; all its columns."""
        if self.name(table) not in self.database.tables:
            types: dict[str, pa.DataType] = {}
        else:
            types = declared_types(self.database, self.name(table))
        wanted = dict.fromkeys(REFERENCES, _INT) | types | {"guid": _TEXT}
        found = {name: chunk(self.table(table, wanted).column(name)) for name in wanted}
        if "track_id" in types and "start_id" in types:
            track = self.lookup("track", ("nid", _INT), ("pid", _INT), ("tid", _INT))
            times = self.lookup("timestamp", ("value", _INT))
            found |= {name: track.values(found["track_id"], name) for name in ("nid", "pid", "tid")}
            found |= {name: times.values(found[f"{name}_id"], "value") for name in ("start", "end")}
        found["process"] = self._numbers(found["pid"], "info_process", "pid")
        found["thread"] = self._numbers(found["tid"], "info_thread", "tid")
        return pa.RecordBatch.from_pydict(found)

    def _numbers(self, keys: pa.Array, table: str, column: str) -> pa.Array:
        """The numbers of processes or threads: keys are ids of the table, else the numbers themselves."""
        by_id = self.lookup(table, (column, _INT)).values(keys, column)
        return keys if pc.any(pc.and_(by_id.is_null(), keys.is_valid())).as_py() else by_id


def chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
