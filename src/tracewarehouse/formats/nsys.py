"""Exports of Nsight Systems: an SQLite file or a folder of Parquet files, with one part per process."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, PartFile, PartFormat, Request, once_per_file
from tracewarehouse.formats.databases import Database, check_complete, open_database, tables_of
from tracewarehouse.formats.file_text import Text, digest_of
from tracewarehouse.formats.mapped import (
    DatabaseFormat,
    DatabaseSource,
    arrow_table,
    contract_of,
    database_table,
)
from tracewarehouse.formats.source_tables import counted, header_of, rank_reason
from tracewarehouse.temp_folders import new_folder

if TYPE_CHECKING:
    from tracewarehouse.contracts.contract import RawTable


NAME: Final = "nsys"
_PROCESS: Final = "pid "
# Newest schema that a test covers.
_NEWEST_SCHEMA: Final = (3, 25)
_RUNTIME, _NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
_GPU_TABLES: Final = tuple(
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
)
_STRINGS, _SESSION_START = "StringIds", "TARGET_INFO_SESSION_START_TIME"
# The first two are the names of one table in newer and older exports.
_METADATA: Final = (
    "META_DATA_EXPORT", "EXPORT_META_DATA", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV",
)  # fmt: skip
_DEVICES: Final = "TARGET_INFO_CUDA_DEVICE"
# Column of the device table → Kineto's key.
_DEVICE_KEYS: Final = {
    "id": "id", "name": "name", "totalMemory": "totalGlobalMem", "smCount": "numSms",
    "computeMajor": "computeMajor", "computeMinor": "computeMinor", "memoryBandwidth": "memoryBandwidth",
    "clockRate": "clockRate", "threadsPerWarp": "warpSize", "maxThreadsPerBlock": "maxThreadsPerBlock",
    "maxRegistersPerBlock": "regsPerBlock", "maxShmemPerBlock": "sharedMemPerBlock",
}  # fmt: skip
# Tables that describe the file or are looked up: not reported as unread.
_SUPPORT_PREFIXES: Final = ("ENUM_", "TARGET_INFO_", "META_DATA_", "ANALYSIS_", "NVTX_PAYLOAD_", "sqlite_")
_SUPPORT_TABLES: Final = (
    "PROCESSES", "ProcessStreams", "ThreadNames", "EXPORT_META_DATA", "PROFILING_EVENT", "DIAGNOSTIC_EVENT",
)  # fmt: skip
# Session times are smaller than this for three years; later ones are absolute (`nsys export --ts-normalize`).
_ABSOLUTE_NS: Final = 10**17
# The part of NVTX ranges in their mapping.
_RANGES_PART: Final = 21
_PID_BITS: Final = 0xFFFFFF
_INT, _TEXT = pa.int64(), pa.string()
_ENTRIES: Final = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
# Domain and schema, each with 4 reserved bytes, then the sizes of the payload and of both.
_HEADER: Final = struct.Struct("<I4xI4xQQ")
# Types of payload entries: int32, uint64 and size_t.
_READERS: Final = {5: struct.Struct("<i"), 18: struct.Struct("<Q"), 22: struct.Struct("<Q")}
_COMMUNICATOR: Final = "nsys.communicator"
# Label of a payload entry → its argument.
_FIELDS: Final = {
    "NCCL communicator ID": _COMMUNICATOR, "Message size [bytes]": "nsys.message_bytes",
    "No. of ranks": "nsys.group_size", "Rank": "nsys.rank", "Peer rank": "nsys.peer", "Root": "nsys.root",
}  # fmt: skip
_TYPES: Final = {name: "UBIGINT" if name == _COMMUNICATOR else "BIGINT" for name in _FIELDS.values()}
_ENCODE: Final = msgspec.json.encode
# What the mapping of NVTX ranges calls: payloads are JSON when it reads them.
_PAYLOAD_MACRO: Final = f"CREATE TEMP MACRO nccl_payload(data) AS from_json(%s, '{_ENCODE(_TYPES).decode()}')"


class NsysSource(DatabaseSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    format = NAME
    mappings = ("nsys_device", "nsys_host", "nsys_nvtx", "nsys_counters")
    # Without payloads, DuckDB drops what the mapping computes from them.
    setup = _PAYLOAD_MACRO % "'null'"

    def _begin(self, database: Database) -> Mapping[str, object]:
        self._pid = int(self._part.name.removeprefix(_PROCESS))
        self._uses = _uses_of_gpus(self._path)
        self._first_devices = _first_devices(self._uses)
        self._is_alone = len(self._first_devices) == 1
        self._metadata = _metadata(database)
        version = self._metadata.get("EXPORT_SCHEMA_VERSION")  # such as 3.25.0
        self._schema = version if isinstance(version, str) else None
        self._clock, self.base_time_ns = _clock(database, self._uses)
        self._devices = _devices(database)
        self._payloads = _payload_schemas(database)
        if self._payloads:
            self.setup = _PAYLOAD_MACRO % "decode(data)"
        return {"pid": self._pid, "base_ns": self.base_time_ns}

    def _header(self) -> Mapping[str, Any]:
        """The metadata of the file; device properties and host name with Kineto's keys."""
        hosts = (self._metadata[key] for key in ("Hostname", "EXPORT_HOST") if self._metadata.get(key))
        return header_of(self._devices, next(hosts, None)) | {NAME: self._metadata}

    def _facts(self) -> Mapping[str, object]:
        sizes, schema = self._has_message_sizes, self._schema
        facts = {"clock": self._clock, "message_sizes": sizes, "source_schema": schema}
        return facts | ({"source_layout": "parquetdir"} if self._path.is_dir() else {})

    def _table(self, database: Database, table: RawTable) -> pa.RecordBatchReader:
        if table.name == "devices":
            pairs = self._cuda_devices(database)
            numbers = [pa.array(each, _INT) for each in (pairs.keys(), pairs.values())]
            return arrow_table(table, NAME, pa.table(numbers, ["gpuId", "cudaId"]))
        if table.name == _NVTX and not self._payloads:
            columns = tuple((name.partition("|")[0], type_) for name, type_ in table.columns)
            table = replace(table, columns=columns)
        where = "TRUE"
        if not self._is_alone:
            named = (name for name in ("globalPid", "globalTid") if database.has(table.name, name))
            where = next((f'(("{name}" >> 24) & {_PID_BITS}) = {self._pid}' for name in named), where)
        rows = database_table(database, table, NAME, table.name, where)
        if table.name == _NVTX and self._payloads:
            return pa.RecordBatchReader.from_batches(rows.schema, map(self._with_payloads, rows))
        return _last_by_id(rows.read_all()).to_reader() if table.name == _STRINGS else rows

    def _cuda_devices(self, database: Database) -> dict[int, int]:
        """The GPUs of the process with their CUDA devices: from the device table, else equal numbers."""
        if not database.has("GPU_METRICS"):  # which alone need them
            return {}
        rows = database.records(_DEVICES, {"gpuId": _INT, "cudaId": _INT, "pid": _INT})
        if database.has(_DEVICES, "pid"):
            rows = [row for row in rows if row["pid"] == self._pid]
        if rows and database.has(_DEVICES, "gpuId", "cudaId"):
            # Of several rows of a GPU the last one counts.
            return {row["gpuId"]: row["cudaId"] for row in rows if None not in (row["gpuId"], row["cudaId"])}
        own = (use for use in self._uses if use.process == self._pid)
        return {device: device for use in own for device in use.devices}

    def _with_payloads(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The ranges with the known values of their payloads as JSON."""
        at = batch.schema.get_field_index("payload_data")
        payloads = [
            None if data is None else _ENCODE(_payload(data, self._payloads))
            for data in batch.column(at).to_pylist()
        ]
        return batch.set_column(at, batch.schema.field(at), pa.array(payloads, pa.binary()))

    def _end(self, database: Database) -> None:
        """Findings about the file as a whole; those about other processes belong to the first part."""
        notes, devices = self._notes, self._first_devices
        self._has_message_sizes = self._rows.has("bytes", _RANGES_PART)
        version = self._schema or ""
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if numbers > _NEWEST_SCHEMA:
            newest = ".".join(map(str, _NEWEST_SCHEMA))
            notes.add("newer_schema", 1, f"schema {version}; tested up to {newest}")
        if self._clock != "utc":
            notes.add("clock_not_utc", 1, "the file has no session start time")
        if self._part.rank is not None:
            reason = rank_reason(self._part, devices.get(self._pid), list(devices.values()))
            notes.add("rank_assumed", 1, reason)
        if self._part.rank in (None, 0) and devices:
            for process, rows in self._host_rows().items():
                if process not in devices:
                    notes.add("process_not_read", rows, f"pid {process}: {counted(rows, 'row')}")

    def _host_rows(self) -> Counter[int]:
        """The calls and NVTX ranges of each process; the ranges may be read for all processes."""
        found: Counter[int] = Counter()
        tables = dict.fromkeys(table.name for name in self.mappings for table in contract_of(name).raw_tables)
        with open_database(self._path) as database:
            for table in tables:
                if database.has(table, "globalTid") and not (self._is_alone and table == _NVTX):
                    for batch in database.batches(table, {"globalTid": _INT}):
                        counts = _process_of(batch.column(0)).drop_null().value_counts()
                        found.update({each["values"]: each["counts"] for each in counts.to_pylist()})
        return found

    def _is_unread(self, name: str) -> bool:
        return name not in _SUPPORT_TABLES and not name.startswith(_SUPPORT_PREFIXES)


class NsysFormat(DatabaseFormat):
    """A Format: a part per process that has GPU activities, else per process with host activities."""

    name = NAME
    source = NsysSource

    def has(self, tables: Mapping[str, Collection[str]]) -> bool:
        """Whether the tables are those of an Nsight Systems export."""
        known = (*_GPU_TABLES, _RUNTIME, _NVTX, *_METADATA[:2], _SESSION_START)
        return _STRINGS in tables and any(name in tables for name in known)

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a database or a folder with the tables of an Nsight Systems export."""
        return self.has(dict.fromkeys(tables_of(path), ())) if path.is_dir() else super().detect(path, head)

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The processes in the order of their lowest device. Raises TraceFormatError if there is none."""
        uses = _uses_of_gpus(path)
        with open_database(path) as database:
            uses = uses or _uses(database, (_RUNTIME, _NVTX), "globalTid")
            _, base = _clock(database, uses)
        if not uses:
            reason = "the report contains no GPU activity, API call or NVTX range"
            raise TraceFormatError(path, reason, hint="record with nsys profile --trace=cuda,nvtx")
        devices = _first_devices(uses)
        parts: list[Part] = []
        for pid in sorted(devices, key=lambda pid: (devices[pid], pid)):
            rank = len(parts) if len(devices) > 1 else None
            own = [use for use in uses if use.process == pid]
            window = min(use.start for use in own) + base, max(use.end for use in own) + base
            parts.append(Part(f"{_PROCESS}{pid}", rank, window=window, process=pid))
        return tuple(parts)


def _last_by_id(strings: pa.Table) -> pa.Table:
    """The strings by id; of several with one id the last one counts."""
    strings = strings.filter(pc.and_(strings.column("id").is_valid(), strings.column("value").is_valid()))
    ids = strings.column("id").to_numpy()
    if (ids[1:] > ids[:-1]).all():
        return strings
    return strings.take(len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1])


class _Use(NamedTuple):
    """The devices of a process, its first start and last end."""

    process: int
    devices: list[int]
    start: int
    end: int


@once_per_file
def _uses_of_gpus(path: Path) -> list[_Use]:
    with open_database(path) as database:
        return _uses(database, _GPU_TABLES, "globalPid")


def _uses(database: Database, tables: Collection[str], column: str) -> list[_Use]:
    """What the processes of each of some tables use; processes and devices that it does not have are 0."""
    found: list[_Use] = []
    for table in (table for table in tables if database.has(table, "start", "end")):
        types = dict.fromkeys((column, "deviceId", "start", "end"), _INT)
        rows = pa.Table.from_batches(database.batches(table, types), pa.schema(list(types.items())))
        columns = {
            name: values if database.has(table, name) else pc.fill_null(values, 0)
            for name, values in zip(types, rows.columns, strict=True)
        }
        processes = _process_of(columns[column])
        for process in processes.unique().drop_null().to_pylist():
            own = pa.table(columns).filter(pc.equal(processes, process))
            devices = sorted(own["deviceId"].unique().drop_null().to_pylist())
            start, end = pc.min(own["start"]).as_py(), pc.max(own["end"]).as_py()
            if devices and None not in (start, end):
                found.append(_Use(process, devices, start, end))
    return found


def _first_devices(uses: list[_Use]) -> dict[int, int]:
    """The lowest device of each process."""
    return dict(sorted(((use.process, use.devices[0]) for use in uses), reverse=True))


def _process_of(ids: pa.Array) -> pa.Array:
    """The processes in the columns globalPid and globalTid."""
    return pc.bit_wise_and(pc.shift_right(ids, 24), _PID_BITS)


def _metadata(database: Database) -> dict[str, Any]:
    """The export's and the capture's metadata; a list for names that are repeated."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for table in _METADATA:
        for row in database.records(table, {"name": _TEXT, "value": _TEXT}):
            if row["name"] is not None:
                found[row["name"]].append(row["value"])
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def _clock(database: Database, uses: list[_Use]) -> tuple[str, int]:
    """The clock of a file, and what is added to its times."""
    if uses and min(use.start for use in uses) > _ABSOLUTE_NS:
        return "utc", 0
    for row in database.records(_SESSION_START, {"utcEpochNs": _INT}):
        if row["utcEpochNs"] is not None:
            return "utc", row["utcEpochNs"]
    return "unknown", 0


def _devices(database: Database) -> list[dict[str, Any]]:
    """Device properties with Kineto's keys; empty if the export has no device table."""
    types = {key: _TEXT if key == "name" else _INT for key in _DEVICE_KEYS}
    rows = database.records("TARGET_INFO_GPU", types)
    return [{_DEVICE_KEYS[key]: value for key, value in row.items() if value is not None} for row in rows]


def _payload_schemas(database: Database) -> dict[tuple[int, int], dict[str, tuple[struct.Struct, int]]]:
    """NCCL's payloads of an export: domain and schema → argument → reader and offset of each known entry."""
    found: defaultdict[tuple[int, int], dict[str, tuple[struct.Struct, int]]] = defaultdict(dict)
    if database.has(_ENTRIES, "domainId", "schemaId", "type", "name") and database.has(_NVTX, "binaryData"):
        columns = dict.fromkeys(("domainId", "schemaId", "type", "offset"), _INT) | {"name": _TEXT}
        for row in database.records(_ENTRIES, columns):
            name, reader = _FIELDS.get(row["name"] or ""), _READERS.get(row["type"])
            if name is not None and reader is not None:
                found[row["domainId"], row["schemaId"]][name] = reader, row["offset"] or 0
    return found


def _payload(
    data: bytes, schemas: Mapping[tuple[int, int], Mapping[str, tuple[struct.Struct, int]]]
) -> dict[str, int]:
    """The known values of a payload; empty if it is damaged or of another schema."""
    if len(data) < _HEADER.size:
        return {}
    domain, number, size, _ = _HEADER.unpack_from(data)
    payload = data[_HEADER.size : _HEADER.size + size]
    found = {
        name: reader.unpack_from(payload, offset)[0]
        for name, (reader, offset) in schemas.get((domain, number), {}).items()
        if 0 <= offset <= len(payload) - reader.size
    }
    return {name: value for name, value in found.items() if name == _COMMUNICATOR or value < 2**63}


REPORT_NAME: Final = "nsys_report"
SUFFIXES: Final = (".nsys-rep", ".qdrep")
EXPORT_SECONDS: Final = 600
_MESSAGE_LENGTH: Final = 300


class NsysReportSource(NsysSource):
    """A Source whose digest is that of the report: exports of several nsys versions differ."""

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        self._report = path
        super().__init__(_database_of(path), part, request)

    def _digest(self) -> Text:
        found = digest_of(self._report)
        return replace(found, size=found.stored_bytes)


class NsysReportFormat(NsysFormat):
    """A Format: reports, which nsys exports to a database."""

    name = REPORT_NAME
    source = NsysReportSource

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether the file is named like a report; its content has no published signature."""
        return path.suffix.lower() in SUFFIXES and not path.is_dir()

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The processes of the report. Raises TraceFormatError if there is none."""
        return super().parts(_database_of(path))

    def open(self, path: Path) -> PartFile:
        """The exported report. Raises TraceFormatError if nsys is missing, fails or takes too long."""
        check_complete(_database_of(path))
        return PartFormat.open(self, path)


@once_per_file
def _database_of(path: Path) -> Path:
    """The report as an SQLite database in a temporary folder, which is removed when the process ends."""
    nsys = shutil.which("nsys")
    manual = f"run: nsys export --type sqlite {path.name}, then ingest the .sqlite file"
    if nsys is None:
        raise TraceFormatError(path, "only nsys can read this report, and it is not on the PATH", hint=manual)
    database = new_folder() / "report.sqlite"
    command = [nsys, "export", "--type", "sqlite", "--output", str(database), str(path.absolute())]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=EXPORT_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise TraceFormatError(path, f"nsys export took more than {EXPORT_SECONDS} s", hint=manual) from error
    except OSError as error:
        raise TraceFormatError(path, f"nsys cannot be started: {error.strerror}", hint=manual) from error
    if done.returncode or not database.is_file():
        said = (done.stderr.strip() or done.stdout.strip())[-_MESSAGE_LENGTH:]
        hint = "the report may be damaged or of a newer nsys: export it where it was recorded"
        raise TraceFormatError(path, f"nsys export failed: {said or done.returncode}", hint=hint)
    return database
