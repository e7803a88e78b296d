"""Databases of AMD's profilers, with one part per process: rocpd of rocprofv3, and rpd of rocmProfileData.

In rocpd, the name of each table ends in the GUID of a process or node; merged databases hold several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, numbered
from tracewarehouse.formats.databases import Database
from tracewarehouse.formats.mapped import DatabaseFormat, DatabaseSource, query
from tracewarehouse.formats.source_tables import header_of, rank_reason, short_text

if TYPE_CHECKING:
    from pathlib import Path


NAME: Final = "rocpd"
_INT, _TEXT = pa.int64(), pa.string()
_DISPATCH: Final = "rocpd_kernel_dispatch_"
# Tables that describe the file, or that the tables which are read do not refer to.
_KNOWN: Final = frozenset(("metadata", "info_node", "info_queue", "info_stream", "info_code_object"))
_PROCESSES: Final = """
SELECT coalesce(node, 0) AS node, process, min(coalesce(process_device, 1 << 30)) AS first_device
FROM activities WHERE process IS NOT NULL GROUP BY ALL
"""
_TABLES: Final = (
    "rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_track", "rocpd_info_process", "rocpd_info_agent",
)  # fmt: skip


class RocpdSource(DatabaseSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    format = NAME

    def _begin(self, database: Database) -> Mapping[str, object]:
        guid, _, pid = self._part.name.partition(" pid ")
        self.suffix = f"_{guid}"
        self._metadata = self._described(database, int(pid))
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            order = "node, device and process ID"
            example = f"{self._part.name} is rank {self._part.rank} by {order}"
            self._notes.add("rank_assumed", 1, example)
        return {"pid": int(pid)}

    def _is_unread(self, name: str) -> bool:
        short = name.removeprefix("rocpd_").removesuffix(self.suffix)
        return name.endswith(self.suffix[1:]) and short not in _KNOWN

    def _described(self, database: Database, pid: int) -> dict[str, Any]:
        """The header: metadata, command of the process, host and names of the GPUs."""

        def records(table: str, **types: pa.DataType) -> list[dict[str, Any]]:
            return database.records(table + self.suffix, types)

        pairs = records("rocpd_metadata", tag=_TEXT, value=_TEXT)
        known = {row["tag"]: row["value"] for row in pairs if row["tag"] and row["value"]}
        for row in records("rocpd_info_process", pid=_INT, command=_TEXT, environment=_TEXT):
            if row["pid"] == pid:
                known |= {key: row[key] for key in ("command", "environment") if row[key]}
        hosts = [row["hostname"] for row in records("rocpd_info_node", hostname=_TEXT)]
        agents = records("rocpd_info_agent", type=_TEXT, type_index=_INT, product_name=_TEXT, name=_TEXT)
        gpus = [
            {"id": row["type_index"], "name": row["product_name"] or row["name"]}
            for row in agents
            if row["type"] == "GPU"
        ]
        return {NAME: known} | header_of((), next(iter(hosts), None)) | header_of(gpus)

    def _header(self) -> Mapping[str, Any]:
        return self._metadata

    def _facts(self) -> Mapping[str, object]:
        schema = self._metadata[NAME].get("schema_version")
        version = short_text(schema, self._rows.redactor, 40) if schema else None
        return {"clock": "boot", "source_schema": version}


class RocpdFormat(DatabaseFormat):
    """A Format: a part per process with GPU activities."""

    name = NAME
    source = RocpdSource

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The processes by node, first device and number. Raises TraceFormatError if there is none."""
        with Database(path) as database:
            guids = [name.removeprefix(_DISPATCH) for name in database.tables if name.startswith(_DISPATCH)]
        found = sorted(
            (node, device, pid, guid)
            for guid in guids
            for node, pid, device in query(path, NAME, _PROCESSES, _TABLES, f"_{guid}")
        )
        if not found:
            hint = "record with rocprofv3 --sys-trace --output-format rocpd"
            raise TraceFormatError(path, "the file contains no GPU activity", hint=hint)
        return numbered([f"{guid} pid {pid}" for _, _, pid, guid in found])


RPD: Final = "rpd"
_PROCESS: Final = "pid "
_RPD_PROCESSES: Final = """
SELECT process, min(process_device) AS first_device FROM activities
WHERE process IS NOT NULL GROUP BY process ORDER BY first_device NULLS LAST, process
"""
_RPD_TABLES: Final = ("rocpd_op", "rocpd_api", "rocpd_api_ops")


class RpdSource(DatabaseSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    format = RPD
    clock = "boot"

    def _begin(self, database: Database) -> Mapping[str, object]:
        rows = database.records("rocpd_metadata", {"tag": _TEXT, "value": _TEXT})
        self._metadata = {row["tag"]: row["value"] for row in rows if None not in row.values()}
        pid = int(self._part.name.removeprefix(_PROCESS))
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            devices = dict(query(self._path, RPD, _RPD_PROCESSES, _RPD_TABLES))
            reason = rank_reason(self._part, devices[pid], list(devices.values()))
            self._notes.add("rank_assumed", 1, reason)
        return {"pid": pid}

    def _is_unread(self, name: str) -> bool:
        return name not in ("rocpd_metadata", "sqlite_sequence")

    def _header(self) -> Mapping[str, Any]:
        return {RPD: self._metadata}


class RpdFormat(DatabaseFormat):
    """A Format: a part per process that called the HIP runtime."""

    name = RPD
    source = RpdSource

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The processes in the order of their first device. Raises TraceFormatError if there is none."""
        found = query(path, RPD, _RPD_PROCESSES, _RPD_TABLES)
        if not found:
            hint = "record with runTracer.sh -o FILE"
            raise TraceFormatError(path, "the file contains no GPU activity", hint=hint)
        return numbered([f"{_PROCESS}{pid}" for pid, _ in found])
