"""Writes Kineto traces as an Nsight Systems SQLite export, in each generation of its schema."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Final

# Newest first. `names`: metadata table; the others are columns and tables that a generation lacks.
GENERATIONS: Final = ("3.25", "3.1", "2.7")
OLD_MISSING: Final = ("greenContextId", "graphId", "copyCount", "syncType", "endGlobalTid", "textId")
MIDDLE_MISSING: Final = ("greenContextId",)
UNSET: Final = 2**32 - 1
MEMORY: Final = {"Pageable": 0, "Pinned": 1, "Device": 2, "Array": 3, "Managed": 4, "Unknown": 7}
COPY: Final = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
SYNC: Final = {"Event Sync": 1, "Stream Wait Event": 2, "Stream Sync": 3, "Context Sync": 4}
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "StringIds": ("id", "value TEXT"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
        "demangledName", "shortName", "mangledName", "launchType", "registersPerThread", "gridX", "gridY",
        "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId",
        "graphId",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
        "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId", "graphId", "copyCount",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (
        "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid", "value", "bytes",
        "graphNodeId", "graphId", "memKind",
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
        "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",
        "deprecatedSyncType", "syncType", "eventId",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId",
    ),
    "NVTX_EVENTS": (
        "start", "end", "eventType", "rangeId", "text TEXT", "globalTid", "endGlobalTid", "textId",
        "domainId",
    ),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime TEXT"),
    "TARGET_INFO_GPU": (
        "id", "name TEXT", "totalMemory", "smCount", "computeMajor", "computeMinor", "threadsPerWarp",
        "maxThreadsPerBlock", "maxRegistersPerBlock", "maxShmemPerBlock",
    ),
    "META_DATA_EXPORT": ("name TEXT", "value TEXT"),
    "PROCESSES": ("globalPid", "pid", "name TEXT"),
}  # fmt: skip

# The columns that a small export needs, for tests that write its rows by hand.
SMALL_TABLES: Final = """
CREATE TABLE StringIds (id INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT,
  globalPid INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
"""
GRAPH_TABLE: Final = """
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, streamId INT,
  correlationId INT, globalPid INT, graphId INT);
"""


@dataclass
class Writer:
    """The rows of one file."""

    generation: str = GENERATIONS[0]
    normalized: bool = False
    call_chains: bool = False
    base_ns: int = 0
    tables: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _strings: dict[str, int] = field(default_factory=dict)

    def add(self, trace: Mapping[str, Any], pid: int | None = None, first_correlation: int = 0) -> None:
        """Adds a trace as a process; correlation ids start again for each, as CUPTI's do."""
        base = int(trace.get("baseTimeNanoseconds", 0))
        self.base_ns = self.base_ns or base
        process = _process(trace) if pid is None else pid
        for event in trace["traceEvents"]:
            if event.get("ph") == "X":
                self._event(event, base, process, first_correlation)
        if not self.tables.get("TARGET_INFO_GPU"):
            self.tables["TARGET_INFO_GPU"] = [_device(each) for each in trace.get("deviceProperties", ())]

    def write(self, path: Path) -> None:
        """Creates the database."""
        version = {"3.25": "3.25.0", "3.1": "3.1.7", "2.7": "2.7.1"}[self.generation]
        self.tables["META_DATA_EXPORT"] = [("EXPORT_SCHEMA_VERSION", version)]
        self.tables["TARGET_INFO_SESSION_START_TIME"] = [(self.base_ns, "2026-01-01")]
        self.tables["StringIds"] = [(number, text) for text, number in self._strings.items()]
        with sqlite3.connect(path) as con:
            for name, rows in self.tables.items():
                _insert(con, self._named(name), self._columns(name), self._kept(name, rows))
        con.close()

    def _named(self, table: str) -> str:
        return "EXPORT_META_DATA" if self.generation == "2.7" and table == "META_DATA_EXPORT" else table

    @property
    def _missing(self) -> tuple[str, ...]:
        return {"3.25": (), "3.1": MIDDLE_MISSING, "2.7": OLD_MISSING}[self.generation]

    def _columns(self, table: str) -> list[str]:
        return [name for name in COLUMNS[table] if name not in self._missing]

    def _kept(self, table: str, rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        keep = [name not in self._missing for name in COLUMNS[table]]
        return [tuple(value for value, kept in zip(row, keep, strict=True) if kept) for row in rows]

    def _put(self, table: str, **values: Any) -> None:
        names = [name.split()[0] for name in COLUMNS[table]]
        assert not values.keys() - set(names), values.keys() - set(names)
        self.tables.setdefault(table, []).append(tuple(values.get(name) for name in names))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _times(self, event: Mapping[str, Any], base: int) -> dict[str, int]:
        start, length = Decimal(event["ts"]) * 1000, Decimal(event["dur"]) * 1000
        offset = base if self.normalized else base - self.base_ns
        return {"start": _whole(start) + offset, "end": _whole(start + length) + offset}

    def _event(self, event: Mapping[str, Any], base: int, pid: int, first: int) -> None:
        kind, args = event.get("cat"), event.get("args", {})
        times = self._times(event, base)
        correlation = args.get("correlation")
        shared = {**times, "correlationId": correlation + first if correlation is not None else None}
        global_pid = 1 << 48 | pid << 24
        if kind in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync"):
            self._device_event(event, {**shared, "globalPid": global_pid})
        elif kind in ("cuda_runtime", "cuda_driver"):
            self._call(event, {**shared, "globalTid": global_pid | int(event["tid"])})
        elif kind in ("cpu_op", "user_annotation"):
            text = _nvtx_text(event) if kind == "cpu_op" else event["name"]
            self._put("NVTX_EVENTS", **times, eventType=59, text=text, domainId=0,
                      globalTid=global_pid | int(event["tid"]))  # fmt: skip

    def _device_event(self, event: Mapping[str, Any], shared: dict[str, Any]) -> None:
        args, name = event["args"], event["name"]
        shared |= {
            "deviceId": args.get("device"),
            "contextId": args.get("context"),
            "streamId": args.get("stream"),
        }
        graph = {"graphId": args.get("graph id"), "graphNodeId": args.get("graph node id")}
        if event["cat"] == "kernel":
            sizes = {f"{key}{axis}": value for key in ("grid", "block")
                     for axis, value in zip("XYZ", args.get(key, ()), strict=False)}  # fmt: skip
            shared |= sizes | graph
            shared |= {"demangledName": self._string(name), "shortName": self._string(name[:20])}
            shared |= {"staticSharedMemory": args.get("shared memory"), "dynamicSharedMemory": 0}
            registers = args.get("registers per thread")
            self._put("CUPTI_ACTIVITY_KIND_KERNEL", **shared, registersPerThread=registers, launchType=1)
        elif event["cat"] == "gpu_memcpy":
            kind, source, target = _copy(name)
            self._put("CUPTI_ACTIVITY_KIND_MEMCPY", **shared, **graph, bytes=args.get("bytes"), copyKind=kind,
                      srcKind=source, dstKind=target, copyCount=1)  # fmt: skip
        elif event["cat"] == "gpu_memset":
            self._put("CUPTI_ACTIVITY_KIND_MEMSET", **shared, **graph, bytes=args.get("bytes"), value=0,
                      memKind=MEMORY[name.split("(")[1].rstrip(")")])  # fmt: skip
        else:
            self._sync(args, shared)

    def _sync(self, args: Mapping[str, Any], shared: dict[str, Any]) -> None:
        kind, event = SYNC[args["cuda_sync_kind"]], args.get("wait_on_cuda_event_id")
        shared["streamId"] = UNSET if shared["streamId"] in (None, -1) else shared["streamId"]
        self._put("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", **shared, syncType=kind, deprecatedSyncType=kind,
                  eventId=UNSET if event is None else event)  # fmt: skip

    def _call(self, event: Mapping[str, Any], shared: dict[str, Any]) -> None:
        driver = event["cat"] == "cuda_driver"
        name = self._string(event["name"] + ("_v7000" if not driver else "_ptsz"))
        event_class = None if self.generation == "2.7" else int(driver)
        self._put("CUPTI_ACTIVITY_KIND_RUNTIME", **shared, eventClass=event_class, nameId=name, returnValue=0)
        if self.call_chains and self.generation != "2.7":
            number = len(self.tables["CUPTI_ACTIVITY_KIND_RUNTIME"])
            if number % 4 == 1:  # some copies are those of the function inside, with times of another clock
                times = {"start": shared["start"] - 271, "end": shared["end"] + 171}
                shared, name = shared | times, self._string(event["name"])
            self._put("CUPTI_ACTIVITY_KIND_RUNTIME", **shared, eventClass=67, nameId=name, returnValue=0,
                      callchainId=number)  # fmt: skip


def read_trace(text: bytes) -> dict[str, Any]:
    """A Kineto trace with exact times."""
    found: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return found


def _whole(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))


def _process(trace: Mapping[str, Any]) -> int:
    calls = (event for event in trace["traceEvents"] if event.get("cat") in ("cuda_runtime", "cpu_op"))
    return int(next(calls)["pid"])


def _nvtx_text(event: Mapping[str, Any]) -> str:
    """An operator as PyTorch's emit_nvtx names its range."""
    args = event.get("args", {})
    text = f"{event['name']}"
    if "Sequence number" in args:
        text += f", seq = {args['Sequence number']}"
    text += f", op_id = {args.get('External id', 0)}"
    if "Input Dims" in args:
        text += f", sizes = {json.dumps(args['Input Dims'], default=int)}"
    return text


def _copy(name: str) -> tuple[int, int, int]:
    kind, places = name.removeprefix("Memcpy ").split(" (")
    source, target = places.rstrip(")").split(" -> ")
    return COPY[kind], MEMORY[source], MEMORY[target]


def _device(properties: Mapping[str, Any]) -> tuple[Any, ...]:
    keys = ("id", "name", "totalGlobalMem", "numSms", "computeMajor", "computeMinor", "warpSize",
            "maxThreadsPerBlock", "regsPerBlock", "sharedMemPerBlock")  # fmt: skip
    return tuple(properties.get(key) for key in keys)


def _insert(
    con: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    declared = ", ".join(name if " " in name else f"{name} INTEGER" for name in columns)
    con.execute(
        f'CREATE TABLE "{table}" ({declared.replace("end INTEGER", chr(34) + "end" + chr(34) + " INTEGER")})'
    )
    con.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
