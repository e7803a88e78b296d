"""Writes Kineto traces of AMD GPUs as an rpd database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = """
CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT);
CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER,
  completionSignal TEXT, start INTEGER, end INTEGER, description_id INTEGER, opType_id INTEGER);
CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER,
  apiName_id INTEGER, args_id INTEGER);
CREATE TABLE rocpd_api_ops (id INTEGER PRIMARY KEY, api_id INTEGER, op_id INTEGER);
CREATE TABLE rocpd_kernelapi (api_ptr_id INTEGER, stream TEXT, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
  workgroupX INTEGER, workgroupY INTEGER, workgroupZ INTEGER, groupSegmentSize INTEGER,
  kernelName_id INTEGER);
CREATE TABLE rocpd_copyapi (api_ptr_id INTEGER, stream TEXT, size INTEGER);
CREATE TABLE ext_autogradapi (api_ptr_id INTEGER, autogradName_id INTEGER, seq TEXT, op_id TEXT, sizes TEXT);
CREATE TABLE rocpd_metadata (tag TEXT, value TEXT);
CREATE VIEW top AS SELECT 1;
"""
_COPIES: Final = {"HtoD": "CopyHostToDevice", "DtoH": "CopyDeviceToHost", "DtoD": "CopyDeviceToDevice"}


@dataclass
class Writer:
    """The rows of one file."""

    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _strings: dict[str, int] = field(default_factory=dict)
    _api: int = 0

    def add(self, trace: Mapping[str, Any]) -> None:
        """Adds a trace as a process."""
        base = int(trace.get("baseTimeNanoseconds", 0))
        calls: dict[int, int] = {}
        events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        for event in events:
            if event.get("cat") in ("cuda_runtime", "cpu_op", "user_annotation", "overhead"):
                self._host(event, base, calls)
        for event in events:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                self._device(event, base, calls)

    def write(self, path: Path) -> None:
        """Creates the database."""
        self.tables["rocpd_string"] = [(number, text) for text, number in self._strings.items()]
        with sqlite3.connect(path) as con:
            con.executescript(SCHEMA)
            for name, rows in self.tables.items():
                con.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        con.close()

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _put(self, table: str, *values: Any) -> None:
        self.tables.setdefault(table, []).append(values)

    def _host(self, event: Mapping[str, Any], base: int, calls: dict[int, int]) -> None:
        self._api += 1
        args, kind = event.get("args", {}), event["cat"]
        is_marker = kind in ("cpu_op", "user_annotation")
        text = self._string(event["name"] if is_marker else "")
        name = self._string("UserMarker" if is_marker else event["name"])
        self._put(
            "rocpd_api", self._api, int(event["pid"]), int(event["tid"]), *times(event, base), name, text
        )
        if kind == "cpu_op":
            sizes = json.dumps(args["Input Dims"], default=int) if "Input Dims" in args else None
            sequence = args.get("Sequence number", "")
            self._put("ext_autogradapi", self._api, text, str(sequence), str(self._api), sizes)
        if "correlation" in args:
            calls[int(args["correlation"])] = self._api

    def _device(self, event: Mapping[str, Any], base: int, calls: Mapping[int, int]) -> None:
        args, name = event["args"], event["name"]
        api = calls.get(int(args.get("correlation", -1)))
        is_copy = event["cat"] == "gpu_memcpy"
        in_graph = "graph id" in args
        kind = _COPIES[name.split()[1]] if is_copy else "Task" if in_graph else "KernelExecution"
        number = len(self.tables.get("rocpd_op", ())) + 1
        description = self._string("" if is_copy else name)
        start_and_end = times(event, base)
        self._put("rocpd_op", number, args["device"], args["stream"], number, "", *start_and_end, description,
                  self._string(kind))  # fmt: skip
        if api is None:
            return
        self._put("rocpd_api_ops", number, api, number)
        if is_copy:
            self._put("rocpd_copyapi", api, "0x7", args.get("bytes"))
        elif not in_graph and "grid" in args:
            threads = [blocks * size for blocks, size in zip(args["grid"], args["block"], strict=True)]
            self._put("rocpd_kernelapi", api, "0x7", *threads, *args["block"], 0, self._string(name))


def times(event: Mapping[str, Any], base: int) -> tuple[int, int]:
    """Start and end of an event in ns."""
    start, length = Decimal(event["ts"]) * 1000, Decimal(event["dur"]) * 1000
    return int(start) + base, int(start + length) + base
