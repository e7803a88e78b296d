"""The Nsight Systems format: detection, one part per process with GPU activities, and its source."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part, Request
from tracewarehouse.formats.databases import Database, ParquetFolder, check_complete, has_tables, tables_of
from tracewarehouse.formats.file_text import digest_of
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.device import add_counters, add_device_activities
from tracewarehouse.formats.nsys.host import add_host_activities, add_nvtx
from tracewarehouse.formats.source_tables import CollectedSource, Context, counted, rank_reason
from tracewarehouse.temp_folders import new_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from tracewarehouse.formats.base import Outcome


NAME: Final = "nsys"
VERSION: Final = 1
_PROCESS: Final = "pid "
# File, time of change and size → its processes with GPU activities.
_KNOWN: Final[dict[tuple[Path, int, int], list[tuple[int, int, int, int]]]] = {}
_MOST_KNOWN: Final = 64
_PID_OF: Final = "(({column} >> 24) & 16777215)"


class NsysFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is an SQLite database or a folder with the tables of an Nsight Systems export."""
        if path.is_dir():
            return schema.is_export(tables_of(path))
        return has_tables(path, head, lambda database: schema.is_export(database.tables))

    def open(self, path: Path) -> NsysFile:
        """The file. Raises TraceFormatError if it is incomplete."""
        if not path.is_dir():
            check_complete(path)
        return NsysFile(path)


class NsysFile:
    """A TraceFile: a part per process that has GPU activities, else per process with host activities."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        """The processes in the order of their lowest device. Raises TraceFormatError if there is none."""
        with _tables(self.path) as database:
            found = _gpu_processes(database)
            if not found:
                found = _processes(database, (schema.RUNTIME, schema.NVTX), "globalTid")
            first = min((start for _, _, start, _ in found), default=None)
            base = schema.clock_of(database, first).base_ns
        if not found:
            raise TraceFormatError(
                self.path,
                "the report contains no GPU activity, API call or NVTX range",
                hint="record with nsys profile --trace=cuda,nvtx",
            )
        found.sort(key=lambda one: (one[1], one[0]))
        return tuple(
            Part(
                name=f"{_PROCESS}{pid}",
                rank=number if len(found) > 1 else None,
                window=(start + base, end + base),
            )
            for number, (pid, _, start, end) in enumerate(found)
        )

    def read(self, part: Part, request: Request) -> NsysSource:
        """Reads the activities of a process."""
        return NsysSource(self.path, part, request)


class NsysSource(CollectedSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        if not path.is_dir():
            check_complete(path)
        super().__init__(path, part, request)

    def _read(self) -> None:
        with _tables(self._path) as database:
            self._read_tables(database)

    def _header(self) -> Mapping[str, Any]:
        return self._metadata_header

    def _facts(self) -> Mapping[str, object]:
        layout = {"source_layout": "parquetdir"} if self._path.is_dir() else {}
        return {
            "clock": self._clock.name,
            "message_sizes": self._has_message_sizes,
            "source_schema": schema.schema_version(self._metadata),
            **layout,
        }

    def _read_tables(self, database: Database) -> None:
        pid = int(self._part.name.removeprefix(_PROCESS))
        self._metadata = schema.metadata(database)
        found = _gpu_processes(database)
        first = min((start for _, _, start, _ in found), default=None)
        self._clock = schema.clock_of(database, first)
        self.base_time_ns = self._clock.base_ns
        self._metadata_header = _header(database, self._metadata)
        strings, alone = schema.strings(database), len(found) == 1
        context = Context(database, pid, self._clock, strings, self._notes, NAME, alone)
        add_device_activities(context, self._rows)
        add_host_activities(context, self._rows)
        self._has_message_sizes = add_nvtx(context, self._rows)
        add_counters(context, self._rows)
        others = _counted(context.others) if alone else _host_rows(database)
        self._note_file(database, others, {process: device for process, device, *_ in found})

    def _note_file(self, database: Database, others: Mapping[int, int], parts: Mapping[int, int]) -> None:
        """Findings about the file as a whole; those about other processes belong to the first part.

        `parts` are the processes with GPU activities, and the lowest device of each.
        """
        notes = self._notes
        schema.note_version(self._metadata, notes)
        if self._clock.name != "utc":
            notes.add("clock_not_utc", 1, "the file has no session start time")
        if self._part.rank is not None:
            device = parts.get(int(self._part.name.removeprefix(_PROCESS)))
            notes.add("rank_assumed", 1, rank_reason(self._part, device, list(parts.values())))
        for table, rows in schema.unread_tables(database):
            notes.add("table_not_read", 1, f"{table}: {counted(rows, 'row')}")
        for table, values in database.unusable.items():
            notes.add("unusable_value", values, f"{table}: {counted(values, 'value')} of another type")
        if self._part.rank in (None, 0) and parts:
            for pid, rows in others.items():
                if pid not in parts:
                    notes.add("process_not_read", rows, f"pid {pid}: {counted(rows, 'row')}")


def _tables(path: Path) -> Database:
    """The tables of an SQLite file, or of a folder of Parquet files."""
    return ParquetFolder(path) if path.is_dir() else Database(path)


def _gpu_processes(database: Database) -> list[tuple[int, int, int, int]]:
    """Like `_processes`, of the processes with GPU activities; a file is searched once."""
    path = database.path
    if path.is_dir():  # its files may change without it
        return _processes(database, schema.GPU_TABLES, "globalPid")
    stat = path.stat()
    key = path, stat.st_mtime_ns, stat.st_size
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _processes(database, schema.GPU_TABLES, "globalPid")
    return list(_KNOWN[key])


def _counted(others: Counter[tuple[str, int]]) -> dict[int, int]:
    """Process → API calls and NVTX ranges."""
    found: dict[int, int] = {}
    for (table, process), rows in others.items():
        if table in (schema.RUNTIME, schema.NVTX):
            found[process] = found.get(process, 0) + rows
    return found


def _processes(database: Database, tables: tuple[str, ...], column: str) -> list[tuple[int, int, int, int]]:
    """Process, lowest device, first start and last end of the processes with rows in the tables."""
    found: dict[int, tuple[int, int, int]] = {}
    for table in tables:
        if not database.has(table, "start", "end"):
            continue
        pid = _PID_OF.format(column=f'"{column}"') if database.has(table, column) else "0"
        device = '"deviceId"' if database.has(table, "deviceId") else "0"
        for process in _distinct(database, table, pid):
            sql = f'SELECT min({device}), min("start"), max("end") FROM "{table}" NOT INDEXED WHERE {pid} = ?'
            row = database.rows(sql, (process,))[0]
            if all(isinstance(value, int) for value in row):
                device_id, start, end = row
                before = found.get(process, (device_id, start, end))
                found[process] = min(before[0], device_id), min(before[1], start), max(before[2], end)
    return [(process, *rest) for process, rest in found.items()]


def _distinct(database: Database, table: str, pid: str) -> list[int]:
    """The processes of the rows of a table. GROUP BY would sort all rows, which takes much longer."""
    rows = database.rows(f'SELECT DISTINCT {pid} FROM "{table}" NOT INDEXED')
    return [process for (process,) in rows if isinstance(process, int)]


def _host_rows(database: Database) -> dict[int, int]:
    """Process → API calls and NVTX ranges."""
    found: dict[int, int] = {}
    for table in (schema.RUNTIME, schema.NVTX):
        if not database.has(table, "globalTid"):
            continue
        pid = _PID_OF.format(column='"globalTid"')
        for process in _distinct(database, table, pid):
            sql = f'SELECT count(*) FROM "{table}" NOT INDEXED WHERE {pid} = ?'
            found[process] = found.get(process, 0) + database.rows(sql, (process,))[0][0]
    return found


def _header(database: Database, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of the file; device properties and host name with Kineto's keys."""
    header: dict[str, Any] = {}
    if devices := schema.devices(database):
        header["deviceProperties"] = devices
    if host := next((metadata[key] for key in ("Hostname", "EXPORT_HOST") if metadata.get(key)), None):
        header["host_name"] = host
    return header | {"nsys": dict(metadata)}


REPORT_NAME: Final = "nsys_report"
SUFFIXES: Final = (".nsys-rep", ".qdrep")
EXPORT_SECONDS: Final = 600
_MESSAGE_LENGTH: Final = 300


class NsysReportFormat:
    """A Format."""

    name = REPORT_NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether the file is named like a report; its content has no published signature."""
        return path.suffix.lower() in SUFFIXES and not path.is_dir()

    def open(self, path: Path) -> NsysReportFile:
        """The exported report. Raises TraceFormatError if nsys is missing, fails or takes too long."""
        return NsysReportFile(path, _exported(path, path.stat().st_mtime_ns, path.stat().st_size))


class NsysReportFile:
    """A TraceFile that reads the exported database."""

    def __init__(self, path: Path, database: Path) -> None:
        self.path = path
        self._file = NsysFile(database)

    def parts(self) -> tuple[Part, ...]:
        """The processes of the report."""
        return self._file.parts()

    def read(self, part: Part, request: Request) -> NsysReportSource:
        """Reads the activities of a process."""
        return NsysReportSource(self.path, self._file, part, request)


class NsysReportSource:
    """A Source whose digest is that of the report: exports of several nsys versions differ."""

    def __init__(self, path: Path, file: NsysFile, part: Part, request: Request) -> None:
        found = digest_of(path)
        self._digest, self._size = found.digest, found.stored_bytes
        self._source: NsysSource | None = None
        if request.known_digest != found.digest:
            self._source = file.read(part, replace(request, known_digest=None))

    @property
    def tables(self) -> Mapping[str, pa.RecordBatchReader]:
        """The activities. They can be read once."""
        return {} if self._source is None else self._source.tables

    def outcome(self) -> Outcome:
        """The facts about the process and the report."""
        from tracewarehouse.formats.base import Outcome

        if self._source is None:
            return Outcome(self._digest, "{}", self._size, self._size)
        outcome = self._source.outcome()
        return replace(outcome, digest=self._digest, text_bytes=self._size, stored_bytes=self._size)


@lru_cache(maxsize=4)
def _exported(path: Path, modified_ns: int, size: int) -> Path:
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
