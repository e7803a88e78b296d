"""Exports of Nsight Systems: an SQLite file or a folder of Parquet files, with one part per process."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, PartFile, Request, once_per_file
from tracewarehouse.formats.databases import Database, open_database, tables_of
from tracewarehouse.formats.file_text import FileContent, digest_of
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
    from tracewarehouse.contracts.contract import Contract, RawTable
    from tracewarehouse.duck.engine import Connection
    from tracewarehouse.formats.databases import Condition


NAME: Final = "nsys"
_PROCESS: Final = "pid "
# Newest schema that a test covers.
_NEWEST_SCHEMA: Final = (3, 25)
# The mapping of NVTX ranges, which calls a function.
_RANGES = "nsys_nvtx"
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
_PID_OF: Final = "(({column} >> 24) & 16777215)"
_INT, _TEXT = pa.int64(), pa.string()


class NsysSource(DatabaseSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    format = NAME
    mappings = ("nsys_device", "nsys_host", _RANGES, "nsys_counters")

    def _begin(self, database: Database) -> Mapping[str, object]:
        self._pid = int(self._part.name.removeprefix(_PROCESS))
        self._processes = _gpu_processes(self._path, database)
        self._is_alone = len(self._processes) == 1
        self._others: Counter[tuple[str, int]] = Counter()
        self._metadata = dict(_metadata(database))
        first = min((start for _, _, start, _ in self._processes), default=None)
        self._clock, self.base_time_ns = _clock(database, first)
        self._devices = _devices(database)
        self._payloads = Payloads(database)
        self._has_message_sizes = False
        return {"pid": self._pid, "base_ns": self.base_time_ns}

    def _header(self) -> Mapping[str, Any]:
        """The metadata of the file; device properties and host name with Kineto's keys."""
        hosts = (self._metadata[key] for key in ("Hostname", "EXPORT_HOST") if self._metadata.get(key))
        return header_of(self._devices, next(hosts, None)) | {NAME: self._metadata}

    def _facts(self) -> Mapping[str, object]:
        layout = {"source_layout": "parquetdir"} if self._path.is_dir() else {}
        return {
            "clock": self._clock,
            "message_sizes": self._has_message_sizes,
            "source_schema": self._schema,
            **layout,
        }

    @property
    def _schema(self) -> str | None:
        """The version of the export schema, such as 3.25.0."""
        found = self._metadata.get("EXPORT_SCHEMA_VERSION")
        return found if isinstance(found, str) else None

    def _table(self, database: Database, table: RawTable) -> pa.RecordBatchReader:
        if table.name == "devices":
            schema = pa.schema([("gpuId", _INT), ("cudaId", _INT)])
            return arrow_table(table, NAME, pa.table(_cuda_devices(database, self._pid), schema))
        if table.name == _NVTX and not self._payloads:
            table = replace(
                table, columns=tuple((name.partition("|")[0], type_) for name, type_ in table.columns)
            )
        column = next((name for name, _ in table.columns if name in ("globalPid", "globalTid")), None)
        where = None
        if column is not None and database.has(table.name, column) and not self._is_alone:
            where = _process_condition(column, self._pid)
        found = database_table(database, table, NAME, table.name, where)
        if table.name == _STRINGS:
            return _last_by_id(found.read_all()).to_reader()
        if self._is_alone and table.name != _NVTX and "globalTid" in found.schema.names:
            return pa.RecordBatchReader.from_batches(found.schema, self._counted(table.name, found))
        return found

    def _counted(self, table: str, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The batches, whose rows of other processes are counted."""
        for batch in batches:
            ids = batch.column("globalTid")
            processes = pc.bit_wise_and(pc.shift_right(ids, 24), 0xFFFFFF)
            is_other = pc.not_equal(processes, self._pid)
            if pc.any(is_other).as_py():
                for each in processes.filter(is_other).drop_null().value_counts().to_pylist():
                    self._others[table, each["values"]] += each["counts"]
            yield batch

    def _map(
        self,
        contract: Contract,
        tables: Mapping[str, pa.RecordBatchReader],
        params: Mapping[str, object],
    ) -> None:
        before = self._rows.values("bytes")
        super()._map(contract, tables, params)
        if contract.name == _RANGES:
            self._has_message_sizes = self._rows.values("bytes") > before

    def _prepared(self, contract: Contract) -> tuple[Callable[[Connection], object] | None, bool]:
        if contract.name == _RANGES:
            return self._payloads.create, bool(self._payloads)
        return super()._prepared(contract)

    def _end(self, database: Database) -> None:
        """Findings about the file as a whole; those about other processes belong to the first part."""
        notes, parts = self._notes, {process: device for process, device, *_ in self._processes}
        version = self._schema or ""
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
        if numbers > _NEWEST_SCHEMA:
            newest = ".".join(map(str, _NEWEST_SCHEMA))
            notes.add("newer_schema", 1, f"schema {version}; tested up to {newest}")
        if self._clock != "utc":
            notes.add("clock_not_utc", 1, "the file has no session start time")
        if self._part.rank is not None:
            devices = list(parts.values())
            notes.add("rank_assumed", 1, rank_reason(self._part, parts.get(self._pid), devices))
        if self._part.rank in (None, 0) and parts:
            others = self._others if self._is_alone else _host_rows(database)
            totals: Counter[int] = Counter()
            for (_, process), rows in others.items():
                totals[process] += rows
            for process, rows in totals.items():
                if process not in parts:
                    notes.add("process_not_read", rows, f"pid {process}: {counted(rows, 'row')}")

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
        with open_database(path) as database:
            found = _gpu_processes(path, database) or _processes(database, (_RUNTIME, _NVTX), "globalTid")
            first = min((start for _, _, start, _ in found), default=None)
            _, base = _clock(database, first)
        if not found:
            raise TraceFormatError(
                path,
                "the report contains no GPU activity, API call or NVTX range",
                hint="record with nsys profile --trace=cuda,nvtx",
            )
        found.sort(key=lambda one: (one[1], one[0]))
        return tuple(
            Part(
                name=f"{_PROCESS}{pid}",
                rank=number if len(found) > 1 else None,
                window=(start + base, end + base),
                process=pid,
            )
            for number, (pid, _, start, end) in enumerate(found)
        )


def _last_by_id(strings: pa.Table) -> pa.Table:
    """The strings by id; of several with one id the last one counts."""
    strings = strings.filter(pc.and_(strings.column("id").is_valid(), strings.column("value").is_valid()))
    ids = strings.column("id").to_numpy()
    if (ids[1:] > ids[:-1]).all():
        return strings
    return strings.take(len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1])


def _process_condition(column: str, pid: int) -> Condition:
    """The rows of one process; the column is globalTid or globalPid."""
    return _PID_OF.format(column=f'"{column}"') + " = ?", (pid,)


def _gpu_processes(path: Path, database: Database) -> list[tuple[int, int, int, int]]:
    """Like `_processes`, of the processes with GPU activities; a file is searched once."""
    if path.is_dir():  # its files may change without it
        return _processes(database, _GPU_TABLES, "globalPid")
    return list(_gpu_processes_of(path))


@once_per_file
def _gpu_processes_of(path: Path) -> list[tuple[int, int, int, int]]:
    with Database(path) as database:
        return _processes(database, _GPU_TABLES, "globalPid")


def _processes(database: Database, tables: Collection[str], column: str) -> list[tuple[int, int, int, int]]:
    """Process, lowest device, first start and last end of the processes with rows in the tables."""
    found: dict[int, tuple[int, int, int]] = {}
    for table in tables:
        if not database.has(table, "start", "end"):
            continue
        pid = _PID_OF.format(column=f'"{column}"') if database.has(table, column) else "0"
        device = '"deviceId"' if database.has(table, "deviceId") else "0"
        for process in _distinct(database, table, pid):
            times = f'min({device}), min("start"), max("end")'
            sql = f"SELECT {times} FROM {database.named(table)} NOT INDEXED WHERE {pid} = ?"
            row = database.rows(sql, (process,))[0]
            if all(isinstance(value, int) for value in row):
                device_id, start, end = row
                before = found.get(process, (device_id, start, end))
                found[process] = min(before[0], device_id), min(before[1], start), max(before[2], end)
    return [(process, *rest) for process, rest in found.items()]


def _distinct(database: Database, table: str, pid: str) -> list[int]:
    """The processes of the rows of a table. GROUP BY would sort all rows, which takes much longer."""
    rows = database.rows(f"SELECT DISTINCT {pid} FROM {database.named(table)} NOT INDEXED")
    return [process for (process,) in rows if isinstance(process, int)]


def _host_rows(database: Database) -> Counter[tuple[str, int]]:
    """Calls and NVTX ranges of each process."""
    found: Counter[tuple[str, int]] = Counter()
    pid = _PID_OF.format(column='"globalTid"')
    for table in (table.name for name in NsysSource.mappings for table in contract_of(name).raw_tables):
        if database.has(table, "globalTid"):
            for process in _distinct(database, table, pid):
                sql = f"SELECT count(*) FROM {database.named(table)} NOT INDEXED WHERE {pid} = ?"
                found[table, process] = database.rows(sql, (process,))[0][0]
    return found


def _metadata(database: Database) -> Iterator[tuple[str, Any]]:
    """Name and value of the export's and the capture's metadata; a list for names that are repeated."""
    found: dict[str, list[Any]] = {}
    for table in _METADATA:
        if database.has(table, "name", "value"):
            for row in database.records(table, {"name": _TEXT, "value": _TEXT}):
                if row["name"] is not None:
                    found.setdefault(row["name"], []).append(row["value"])
    yield from ((name, values if len(values) > 1 else values[0]) for name, values in found.items())


def _clock(database: Database, first_ns: int | None) -> tuple[str, int]:
    """The clock of a file whose first activity starts at `first_ns`, and what is added to its times."""
    if first_ns is not None and first_ns > _ABSOLUTE_NS:
        return "utc", 0
    if not database.has(_SESSION_START, "utcEpochNs"):
        return "unknown", 0
    rows = database.rows(f'SELECT "utcEpochNs" FROM {database.named(_SESSION_START)} LIMIT 1')
    base = rows[0][0] if rows else None
    return ("utc", base) if isinstance(base, int) else ("unknown", 0)


def _devices(database: Database) -> list[dict[str, Any]]:
    """Device properties with Kineto's keys; empty if the export has no device table."""
    rows = database.records(
        "TARGET_INFO_GPU", {key: _TEXT if key == "name" else _INT for key in _DEVICE_KEYS}
    )
    return [{_DEVICE_KEYS[key]: value for key, value in row.items() if value is not None} for row in rows]


def _cuda_devices(database: Database, pid: int) -> dict[str, list[int]]:
    """The GPUs and CUDA devices of a process: from the device table, else equal numbers."""
    if not database.has("GPU_METRICS"):  # which alone need them
        return {"gpuId": [], "cudaId": []}
    if database.has(_DEVICES, "gpuId", "cudaId"):
        columns = {"gpuId": _INT, "cudaId": _INT, "pid": _INT}
        own = [
            row
            for row in database.records(_DEVICES, columns)
            if not database.has(_DEVICES, "pid") or row["pid"] == pid
        ]
        if own:
            # Of several rows of a GPU the last one counts.
            pairs = {row["gpuId"]: row["cudaId"] for row in own if None not in (row["gpuId"], row["cudaId"])}
            return {"gpuId": list(pairs), "cudaId": list(pairs.values())}
    used = set()
    for table in _GPU_TABLES:
        if database.has(table, "deviceId", "globalPid"):
            condition, values = _process_condition("globalPid", pid)
            sql = f'SELECT DISTINCT "deviceId" FROM {database.named(table)} NOT INDEXED WHERE {condition}'
            used |= {row[0] for row in database.rows(sql, values) if isinstance(row[0], int)}
    return {"gpuId": sorted(used), "cudaId": sorted(used)}


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
_PAYLOAD: Final = pa.struct(
    [(name, pa.uint64() if name == _COMMUNICATOR else _INT) for name in _FIELDS.values()]
)


class Payloads:
    """NCCL's payloads of an export, whose schemas it describes; false if there are none."""

    def __init__(self, database: Database) -> None:
        # (domain, schema) → argument → reader and offset of each known entry.
        self._schemas: dict[tuple[int, int], dict[str, tuple[struct.Struct, int]]] = defaultdict(dict)
        table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
        if not database.has(table, "domainId", "schemaId", "type", "name"):
            return
        if not database.has(_NVTX, "binaryData"):
            return
        columns = dict.fromkeys(("domainId", "schemaId", "type", "offset"), _INT) | {"name": _TEXT}
        for row in database.records(table, columns):
            name, reader = _FIELDS.get(row["name"] or ""), _READERS.get(row["type"])
            if name is not None and reader is not None:
                self._schemas[row["domainId"], row["schemaId"]][name] = reader, row["offset"] or 0

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def create(self, con: Connection) -> None:
        """Creates `nccl_payload` in a connection: the known values of a payload, null if there are none."""
        from tracewarehouse.duck.engine import create_function

        types = {name: "UBIGINT" if name == _COMMUNICATOR else "BIGINT" for name in _FIELDS.values()}
        if self:
            create_function(con, "nccl_payload", self._read, "BLOB", types)
            return
        members = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
        con.execute(f"CREATE TEMP MACRO nccl_payload(data) AS CAST(NULL AS STRUCT({members}))")

    def _read(self, payloads: pa.ChunkedArray) -> pa.Array:
        return pa.array(map(self._values, payloads.to_pylist()), _PAYLOAD)

    def _values(self, data: bytes | None) -> dict[str, int]:
        """The known values of a payload; empty if it is damaged or of another schema."""
        if data is None or len(data) < _HEADER.size:
            return {}
        domain, number, size, _ = _HEADER.unpack_from(data)
        payload = data[_HEADER.size : _HEADER.size + size]
        found = {
            name: reader.unpack_from(payload, offset)[0]
            for name, (reader, offset) in self._schemas.get((domain, number), {}).items()
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

    def _digest(self) -> FileContent:
        found = digest_of(self._report)
        return FileContent(found.digest, found.stored_bytes, found.stored_bytes)


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
        super().open(_database_of(path))
        return PartFile(self, path, self.source)


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
