"""Names and numbers of the Nsight Systems export schema, and the facts that describe a complete file."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.source_tables import Clock, Notes, SourceBatch, process_ids

if TYPE_CHECKING:
    from tracewarehouse.formats.databases import Condition, Database
    from tracewarehouse.formats.source_tables import Context


# Newest schema that a test covers.
NEWEST_SCHEMA: Final = (3, 25)
KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
SYNC: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX: Final = "NVTX_EVENTS"
MEMORY_USAGE: Final = "CUDA_GPU_MEMORY_USAGE_EVENTS"
GPU_METRICS: Final = "GPU_METRICS"
METRIC_NAMES: Final = "TARGET_INFO_GPU_METRICS"
PAYLOAD_ENTRIES: Final = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
GPU_INFO: Final = "TARGET_INFO_GPU"
CUDA_DEVICES: Final = "TARGET_INFO_CUDA_DEVICE"
STRINGS: Final = "StringIds"
SESSION_START: Final = "TARGET_INFO_SESSION_START_TIME"
# Each with its name in older exports.
EXPORT_METADATA: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")
CAPTURE_METADATA: Final = "META_DATA_CAPTURE"
SYSTEM_ENVIRONMENT: Final = "TARGET_INFO_SYSTEM_ENV"
GPU_TABLES: Final = (KERNEL, MEMCPY, MEMSET, GRAPH)
# Host activities that have one row per call: table → category.
CALL_TABLES: Final[Mapping[str, str]] = {
    "OSRT_API": "os_runtime",
    "MPI_COLLECTIVES_EVENTS": "mpi",
    "MPI_P2P_EVENTS": "mpi",
    "MPI_START_WAIT_EVENTS": "mpi",
    "MPI_OTHER_EVENTS": "mpi",
    "CUBLAS_EVENTS": "library",
    "CUDNN_EVENTS": "library",
    "PROFILER_OVERHEAD": "overhead",
    "OVERHEAD": "overhead",
}
# Tables that describe the file or are looked up: not reported as unread.
_SUPPORT_PREFIXES: Final = ("ENUM_", "TARGET_INFO_", "META_DATA_", "ANALYSIS_", "NVTX_PAYLOAD_", "sqlite_")
_SUPPORT_TABLES: Final = frozenset(
    (
        STRINGS, "PROCESSES", "ProcessStreams", "ThreadNames", "EXPORT_META_DATA", "PROFILING_EVENT",
        "DIAGNOSTIC_EVENT",
    )
)  # fmt: skip
_READ: Final = frozenset((*GPU_TABLES, *CALL_TABLES, SYNC, RUNTIME, NVTX, MEMORY_USAGE, GPU_METRICS))

# Built-in values for exports without ENUM tables.
COPY_KINDS: Final = {
    0: "Unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "Managed HtoD", 12: "Managed DtoH", 13: "Managed DtoD",
}  # fmt: skip
MEMORY_KINDS: Final = {
    0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static",
    6: "Managed Static", 7: "Unknown",
}  # fmt: skip
# In Kineto's spelling.
SYNC_KINDS: Final = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
UNSET_32: Final = 2**32 - 1
# Session times are smaller than this for three years; later ones are absolute (`nsys export --ts-normalize`).
_ABSOLUTE_NS: Final = 10**17
_PROCESS_BITS: Final = 0xFFFFFF


def process_condition(column: str, pid: int) -> Condition:
    """The rows of one process; `column` is globalTid or globalPid."""
    return f'("{column}" >> 24) & {_PROCESS_BITS} = ?', (pid,)


def is_export(tables: Container[str]) -> bool:
    """Whether the tables are those of an Nsight Systems export."""
    return STRINGS in tables and any(
        name in tables for name in (*GPU_TABLES, RUNTIME, NVTX, *EXPORT_METADATA, SESSION_START)
    )


def strings(database: Database) -> Mapping[int, str]:
    """String id → text; ids that are not integers are left out."""
    if not database.has(STRINGS, "id", "value"):
        return {}
    found: dict[int, str] = {}
    columns = {"id": pa.int64(), "value": pa.string()}
    for batch in database.batches(STRINGS, columns):
        pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        found |= {key: value for key, value in pairs if key is not None and value is not None}
    return found


def metadata(database: Database) -> dict[str, Any]:
    """Name → value of the export's and the capture's metadata; a list for names that are repeated."""
    found: dict[str, Any] = {}
    for table in (*EXPORT_METADATA, CAPTURE_METADATA, SYSTEM_ENVIRONMENT):
        if not database.has(table, "name", "value"):
            continue
        columns = {"name": pa.string(), "value": pa.string()}
        for batch in database.batches(table, columns):
            for name, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                if name in found:
                    before = found[name]
                    found[name] = [*(before if isinstance(before, list) else [before]), value]
                elif name is not None:
                    found[name] = value
    return found


def schema_version(values: Mapping[str, Any]) -> str | None:
    """The version of the export schema, such as 3.25.0."""
    found = values.get("EXPORT_SCHEMA_VERSION")
    return found if isinstance(found, str) else None


def note_version(values: Mapping[str, Any], notes: Notes) -> None:
    """Reports a schema that is newer than any that was tested."""
    version = schema_version(values) or ""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    if tuple(numbers) > NEWEST_SCHEMA:
        newest = ".".join(map(str, NEWEST_SCHEMA))
        notes.add("newer_schema", 1, f"schema {version}; tested up to {newest}")


def clock_of(database: Database, first_ns: int | None) -> Clock:
    """The clock of a file whose first activity starts at `first_ns`."""
    if first_ns is not None and first_ns > _ABSOLUTE_NS:
        return Clock("utc", 0)
    if not database.has(SESSION_START, "utcEpochNs"):
        return Clock("unknown", 0)
    rows = database.rows(f'SELECT "utcEpochNs" FROM "{SESSION_START}" LIMIT 1')
    base = rows[0][0] if rows else None
    return Clock("utc", base) if isinstance(base, int) else Clock("unknown", 0)


def devices(database: Database) -> list[dict[str, Any]]:
    """Device properties with Kineto's keys; empty if the export has no device table."""
    if GPU_INFO not in database.tables:
        return []
    keys = {
        "id": "id", "name": "name", "totalMemory": "totalGlobalMem", "smCount": "numSms",
        "computeMajor": "computeMajor", "computeMinor": "computeMinor", "memoryBandwidth": "memoryBandwidth",
        "clockRate": "clockRate", "threadsPerWarp": "warpSize", "maxThreadsPerBlock": "maxThreadsPerBlock",
        "maxRegistersPerBlock": "regsPerBlock", "maxShmemPerBlock": "sharedMemPerBlock",
    }  # fmt: skip
    columns = {name: pa.string() if name == "name" else pa.int64() for name in keys}
    found = []
    for batch in database.batches(GPU_INFO, columns):
        found += [
            {keys[name]: value for name, value in row.items() if value is not None}
            for row in batch.to_pylist()
        ]
    return found


def unread_tables(database: Database) -> list[tuple[str, int]]:
    """Tables with rows that no mapping reads, and their numbers of rows."""
    names = [
        name
        for name in database.tables
        if name not in _READ and name not in _SUPPORT_TABLES and not name.startswith(_SUPPORT_PREFIXES)
    ]
    counted = [(name, database.count(name)) for name in names]
    return [(name, rows) for name, rows in counted if rows]


def process_rows(
    context: Context, table: str, columns: Mapping[str, pa.DataType], column: str
) -> Iterator[pa.RecordBatch]:
    """The rows of the process of the part; `column` is globalTid or globalPid.

    Where the file has one part, few rows belong to other processes: all are read, which takes less time than
    a condition, and the others are counted.
    """
    if not context.alone:
        yield from context.database.batches(table, columns, process_condition(column, context.pid))
        return
    for batch in context.database.batches(table, columns):
        found = process_ids(SourceBatch(context, table, batch).ints(column))
        own = pc.fill_null(pc.equal(found, context.pid), False)
        if pc.all(own).as_py():
            yield batch
            continue
        for each in found.filter(pc.invert(own)).drop_null().value_counts().to_pylist():
            context.others[table, each["values"]] += each["counts"]
        yield batch.filter(own)
