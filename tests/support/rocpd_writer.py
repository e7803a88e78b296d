"""Writes Kineto traces of AMD GPUs as a rocpd database of rocprofv3, in either of its layouts."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rpd_writer import times

_TABLES: Final = {
    "metadata": "tag TEXT, value TEXT",
    "string": "id INTEGER PRIMARY KEY, guid TEXT, string TEXT",
    "info_node": "id INTEGER PRIMARY KEY, guid TEXT, hostname TEXT",
    "info_process": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, command TEXT",
    "info_thread": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER",
    "info_agent": "id INTEGER PRIMARY KEY, guid TEXT, type TEXT, type_index INTEGER, product_name TEXT",
    "info_kernel_symbol": "id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT",
    "info_pmc": "id INTEGER PRIMARY KEY, guid TEXT, name TEXT",
    "track": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER",
    "timestamp": "id INTEGER PRIMARY KEY, guid TEXT, value INTEGER",
    "event": "id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER,"
    " correlation_id INTEGER, extdata TEXT",
    "pmc_event": "id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, pmc_id INTEGER, value REAL",
}
_OWN: Final = "nid INTEGER, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER"
_TRACKS: Final = "track_id INTEGER, start_id INTEGER, end_id INTEGER"
_TIMED: Final = {
    "region": "name_id INTEGER, event_id INTEGER",
    "kernel_dispatch": "agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, queue_id INTEGER,"
    " stream_id INTEGER, group_segment_size INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER,"
    " workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER,"
    " event_id INTEGER",
    "memory_copy": "name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER,"
    " queue_id INTEGER, stream_id INTEGER, event_id INTEGER",
}
_KINDS: Final = {"cuda_runtime": "HIP_RUNTIME_API_EXT", "user_annotation": "MARKER_CORE_RANGE_API"}
_CPU: Final = 1


@dataclass
class Writer:
    """The rows of one GUID. `tracks` chooses the layout, `by_number` how rows name processes and threads."""

    guid: str
    tracks: bool = False
    by_number: bool = False
    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _numbers: dict[tuple[object, ...], int] = field(default_factory=dict)

    def add(self, trace: Mapping[str, Any]) -> None:
        """Adds a trace as a process."""
        base = int(trace.get("baseTimeNanoseconds", 0))
        self._id("info_node", "host", values=("host",))
        self._id("info_agent", _CPU, values=("CPU", 0, "EPYC"))
        slices = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        pid = next(int(event["pid"]) for event in slices if event["cat"] == "cuda_runtime")
        for event in slices:
            if event["cat"] in _KINDS:
                self._region(event, base)
            elif event["cat"] in ("kernel", "gpu_memcpy"):
                self._device(event, base, pid)

    def write(self, path: Path) -> None:
        """Creates the tables, in an existing database too."""
        first = _TRACKS if self.tracks else _OWN
        columns = _TABLES | {
            name: f"id INTEGER PRIMARY KEY, guid TEXT, {first}, {rest}" for name, rest in _TIMED.items()
        }
        with sqlite3.connect(path) as con:
            for name, declared in columns.items():
                con.execute(f"CREATE TABLE rocpd_{name}_{self.guid} ({declared})")
                rows = self.tables.get(name, [])
                places = ", ".join("?" * (declared.count(",") + 1))
                con.executemany(f"INSERT INTO rocpd_{name}_{self.guid} VALUES ({places})", rows)
            con.execute("CREATE VIEW IF NOT EXISTS rocpd_region AS SELECT 1")
            con.execute(f"INSERT INTO rocpd_metadata_{self.guid} VALUES ('schema_version', '3')")
        con.close()

    def _id(self, table: str, *key: object, values: tuple[Any, ...]) -> int:
        """The id of a row that exists once."""
        if (table, *key) not in self._numbers:
            self._numbers[table, *key] = self._put(table, *values)
        return self._numbers[table, *key]

    def _put(self, table: str, *values: Any) -> int:
        rows = self.tables.setdefault(table, [])
        rows.append((len(rows) + 1, self.guid, *values))
        return len(rows)

    def _string(self, text: str) -> int:
        return self._id("string", text, values=(text,))

    def _event(self, kind: str, correlation: object, details: str = "{}") -> int:
        return self._put("event", self._string(kind), correlation, 0, details)

    def _place(self, event: Mapping[str, Any], base: int, pid: int, tid: int) -> tuple[Any, ...]:
        """Process, thread and times in the layout of the file."""
        process = self._id("info_process", pid, values=(1, pid, "python3 train.py"))
        thread = self._id("info_thread", pid, tid, values=(1, process, tid))
        start, end = times(event, base)
        ids = (1, pid, tid) if self.by_number else (1, process, thread)
        if not self.tracks:
            return (*ids, start, end)
        track = self._id("track", *ids, values=ids)
        return track, self._put("timestamp", start), self._put("timestamp", end)

    def _region(self, event: Mapping[str, Any], base: int) -> None:
        is_note = event["cat"] == "user_annotation"
        details = json.dumps({"message": event["name"]} if is_note else {})
        name = self._string("roctxRangePushA" if is_note else event["name"])
        place = self._place(event, base, int(event["pid"]), int(event["tid"]))
        correlation = event.get("args", {}).get("correlation", 0)
        self._put("region", *place, name, self._event(_KINDS[event["cat"]], correlation, details))

    def _device(self, event: Mapping[str, Any], base: int, pid: int) -> None:
        args, name = event["args"], event["name"]
        agent = self._id("info_agent", "gpu", args["device"], values=("GPU", args["device"], "MI300X"))
        place = self._place(event, base, pid, 1)
        number = self._event("KERNEL_DISPATCH", args.get("correlation", 0))
        if event["cat"] == "kernel":
            symbol = self._id("info_kernel_symbol", name, values=(f"_Z{name}", name))
            block, grid = args.get("block", [0] * 3), args.get("grid", [0] * 3)
            threads = [blocks * size for blocks, size in zip(grid, block, strict=True)]
            self._put("kernel_dispatch", *place, agent, symbol, number, 0, args["stream"],
                      args.get("shared memory", 0), *block, *threads, number)  # fmt: skip
            return
        direction = name.split()[1]
        ends = [agent if end == "D" else _CPU for end in (direction[0], direction[-1])]
        self._put("memory_copy", *place, self._string(name), ends[1], ends[0], args.get("bytes"), 0,
                  args["stream"], number)  # fmt: skip
