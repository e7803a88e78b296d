"""The rpd format: databases of rocmProfileData, with one part per process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part
from tracewarehouse.formats.file_text import sqlite_format
from tracewarehouse.formats.mapped import DatabaseFormat, DatabaseSource, query
from tracewarehouse.formats.source_tables import rank_reason

if TYPE_CHECKING:
    from pathlib import Path

    from tracewarehouse.formats.databases import Database


NAME: Final = "rpd"
_PROCESS: Final = "pid "
_PROCESSES: Final = """
SELECT process, min(process_device) AS first_device FROM activities
WHERE process IS NOT NULL GROUP BY process ORDER BY first_device NULLS LAST, process
"""
_TABLES: Final = ("rocpd_op", "rocpd_api", "rocpd_api_ops")


class RpdSource(DatabaseSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    format = NAME

    def _begin(self, database: Database) -> Mapping[str, object]:
        self._metadata = database.texts("rocpd_metadata", "tag", "value")
        pid = int(self._part.name.removeprefix(_PROCESS))
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            devices = dict(query(self._path, NAME, _PROCESSES, _TABLES))
            reason = rank_reason(self._part, devices[pid], list(devices.values()))
            self._notes.add("rank_assumed", 1, reason)
        return {"pid": pid}

    def _is_unread(self, name: str) -> bool:
        return name not in ("rocpd_metadata", "sqlite_sequence")

    def _header(self) -> Mapping[str, Any]:
        return {"rpd": self._metadata}

    def _facts(self) -> Mapping[str, object]:
        return {"clock": "boot"}


class RpdFormat(DatabaseFormat):
    """A Format: a part per process that called the HIP runtime."""

    name = NAME
    source = RpdSource

    def has(self, tables: Mapping[str, Collection[str]]) -> bool:
        """Whether a database with these tables has this format."""
        return sqlite_format(tables) == "rpd_sqlite"

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The processes in the order of their first device. Raises TraceFormatError if there is none."""
        found = query(path, NAME, _PROCESSES, _TABLES)
        if not found:
            hint = "record with runTracer.sh -o FILE"
            raise TraceFormatError(path, "the file contains no GPU activity", hint=hint)
        return tuple(
            Part(f"{_PROCESS}{pid}", rank=number if len(found) > 1 else None)
            for number, (pid, _) in enumerate(found)
        )
