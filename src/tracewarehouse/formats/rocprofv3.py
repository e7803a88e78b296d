"""The results of rocprofv3 (rocprofiler-sdk-tool): JSON, with a part per process, CSV files, Perfetto traces.

The names of CSV files and columns are those in the public source of rocprofiler-sdk 1.0 (ROCm 7) and of its
rocpd2csv, and in the documentation of releases since ROCm 6.2.
"""

from __future__ import annotations

import csv
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import Part, PartFile, PartFormat, numbered
from tracewarehouse.formats.file_text import csv_tables, head_of, read_text
from tracewarehouse.formats.mapped import arrow_table, contract_of, map_tables, selected
from tracewarehouse.formats.perfetto import Records
from tracewarehouse.formats.protobuf import decoded
from tracewarehouse.formats.source_tables import CollectedSource, TextSource, counted, header_of, to_ints
from tracewarehouse.late_regex import late_regex

if TYPE_CHECKING:
    from pathlib import Path

    from tracewarehouse.contracts.contract import RawTable
    from tracewarehouse.formats.file_text import Buffer


NAME: Final = "rocprofv3"
_KERNELS: Final = "kernel_dispatch"
_COPIES: Final = "memory_copy"
_NAMED: Final = (_COPIES, "hip_api", "hsa_api", "marker_api", "rccl_api")
# Tables of what describes a process in JSON.
_DESCRIBED: Final = ("gpus", "kernel_symbols", "markers")
_BLOCK_BYTES: Final = 64 << 20
_HINT: Final = "record with rocprofv3 --kernel-trace --output-format json"
# The names of the files of tables.
_CSV_NAMES: Final = {_KERNELS: "kernel_trace", **{name: f"{name}_trace" for name in _NAMED}}
_AGENT_INFO: Final = "agent_info"
_PROCESS: Final = "Process_Id"
_NONE: Final = pa.table({})
_CSV_HEADER: Final = late_regex(
    rb'(?:\xef\xbb\xbf)?"?(?:Guid"?,"?)?(?:Kind|Domain)"?,[^\n]{0,4096}Start_Timestamp'
)
_JSON: Final = late_regex(rb'\s*\{\s*"')
_SLICES: Final = late_regex(rb'(?!\s*\{\s*")\n(?=[\0-\xff]*begin_ns)(?=[\0-\xff]*corr_id)')
_HEADER_BYTES: Final = 1 << 13
_ROW_BYTES: Final = 1 << 20
_MOST_COLUMNS: Final = 100
_CSV_HINT: Final = "record with rocprofv3 --kernel-trace --output-format csv"
_TEXTS: Final = ("Kernel_Name", "Direction", "Function")
_AGENTS: Final = ("Agent_Id", "Source_Agent_Id", "Destination_Agent_Id")
# Texts of a Perfetto trace have at most this many bytes per byte of the file.
_MOST_REPEATED: Final = 64
_PID: Final = late_regex(r"(\d{1,10})_")


class _Process(msgspec.Struct):
    """One process of the file; records stay text until they are converted to columns."""

    metadata: dict[str, Any] = {}
    agents: list[dict[str, msgspec.Raw]] = []
    strings: dict[str, msgspec.Raw] = {}
    kernel_symbols: list[dict[str, msgspec.Raw]] = []
    buffer_records: dict[str, msgspec.Raw] = {}


class _Content(msgspec.Struct):
    tools: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


class _Source(CollectedSource):
    """A Source with the activities of one process. The constructor reads the file."""

    clock = "boot"
    hint: ClassVar[str] = _CSV_HINT

    def _header(self) -> dict[str, Any]:
        return header_of(self._devices)

    def _read(self) -> None:
        contract = contract_of(NAME)
        found, pid = self._found(contract.raw_tables)
        self._devices = list(filter(None, found["gpus"].column("device").to_pylist()))
        tables = {
            table.name: self._table(table, found.pop(table.name, _NONE)) for table in contract.raw_tables
        }
        map_tables(contract, tables, {"pid": str(pid)}, self._rows, self._notes)
        if not self._rows.rows:
            raise TraceFormatError(self._path, "the file contains no records", hint=self.hint)
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")

    @abstractmethod
    def _found(self, raw_tables: Sequence[RawTable]) -> tuple[dict[str, pa.Table], object]:
        """The tables of the contract, with the device of each GPU, and the process."""

    def _table(self, table: RawTable, found: pa.Table) -> pa.RecordBatchReader:
        """A table of the contract. Other texts in a column of numbers are reported, and null."""
        numbers = {name for names, type_ in table.columns if type_ == "BIGINT" for name in names.split("|")}
        for at, name in enumerate(found.column_names):
            if name in numbers and (texts := found.column(name)).type != pa.int64():
                texts, is_agent = texts.cast(pa.string()), name in _AGENTS
                # `Agent 4`, `Agent-4` or `GPU 0`; `CPU 0` is not a GPU.
                digits = pc.replace_substring_regex(texts, r"^(?:Agent|GPU)[ -]?", "") if is_agent else texts
                values = to_ints(digits)
                lost = 0 if is_agent else values.null_count - texts.null_count
                self._notes.add("unusable_value", lost, f"{table.name}: {name}")
                found = found.set_column(at, name, values)
        return arrow_table(table, NAME, found)


class Rocprofv3Source(TextSource, _Source):
    """Reads JSON."""

    hint = _HINT

    def _header(self) -> dict[str, Any]:
        node = self._metadata.get("node")
        host = node.get("hostname") if isinstance(node, dict) else None
        return header_of(self._devices, host) | {NAME: self._metadata}

    def _found(self, raw_tables: Sequence[RawTable]) -> tuple[dict[str, pa.Table], object]:
        number = int(self._part.name.split()[0]) if self._part.name else 0
        process = _decode(self._path, self._take_text().buffer)[number]
        self._metadata = process.metadata
        records = {
            table.name: self._records(table, process.buffer_records.pop(table.name, None))
            for table in raw_tables
            if table.name not in _DESCRIBED
        }
        about = {"agents": process.agents, "kernel_symbols": process.kernel_symbols}
        about["strings"] = [process.strings]
        tables = {
            name: pa.table({"json": [msgspec.json.encode(one).decode(errors="replace") for one in each]})
            for name, each in about.items()
        }
        described = selected("rocprofv3_process", tables)
        subjects = described.column("subject")
        found = {name: described.filter(pc.equal(subjects, name)) for name in (*_NAMED, *_DESCRIBED)}
        found |= {name: _with_names(table, name, found) for name, table in records.items()}
        if self._part.rank is not None:
            self._notes.add("rank_assumed", 1, f"{self._part.name} is rank {self._part.rank} by its position")
        for name, raw in process.buffer_records.items():
            if bytes(raw).strip() != b"[]":
                self._notes.add("table_not_read", 1, f"buffer_records.{name}")
        return found, process.metadata.get("pid", 0)

    def _records(self, table: RawTable, raw: msgspec.Raw | None) -> pa.Table:
        """The records of a kind; nested values as columns such as `correlation_id.internal`."""
        elements = msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None else []
        lines = (msgspec.json.format(bytes(each), indent=-1) for each in elements)
        records = [line for line in lines if line != b"null"]  # Arrow crashes on null
        if not records:
            return _NONE
        text = pa.BufferReader(b"\n".join(records))
        del records
        try:
            found = pa_json.read_json(text, read_options=pa_json.ReadOptions(block_size=_BLOCK_BYTES))
        except pa.ArrowInvalid as error:
            raise TraceFormatError(self._path, f"{table.name} cannot be read: {error}", hint=_HINT) from error
        while any(pa.types.is_struct(field.type) for field in found.schema):
            found = found.flatten()
        named = {names.partition("|")[0] for names, _ in table.columns}
        # Those that the mapping names are integers.
        types = (pa.int64(), pa.float64(), pa.string())
        usable = [each.name for each in found.schema if each.type in types[: 1 if each.name in named else 3]]
        return found.select(usable).combine_chunks()


class Rocprofv3CsvSource(_Source):
    """Reads CSV files, which are beside each other."""

    def _found(self, raw_tables: Sequence[RawTable]) -> tuple[dict[str, pa.Table], object]:
        files = csv_tables(self._path) or {_csv_name_of(self._path): self._path}
        names = {table.name: _CSV_NAMES.get(table.name, "") for table in raw_tables}
        names["agents"] = _AGENT_INFO
        found = {name: self._records(files.pop(file)) for name, file in names.items() if file in files}
        calls = (table for name, table in found.items() if name in _NAMED and _PROCESS in table.column_names)
        named = (pid for table in calls for pid in table.column(_PROCESS).slice(0, 1).to_pylist())
        pid = next(named, None) or (_PID.match(self._path.name) or ("", "0"))[1]
        for file in files.values():
            self._notes.add("table_not_read", 1, file.name)
        return found | {"gpus": selected("rocprofv3_gpus", found)}, pid

    def _records(self, file: Path) -> pa.Table:
        """The rows of a file: integers in columns that have nothing else, texts in the others."""
        text = read_text(file, self._request.spill)
        if text.cut:
            raise TraceFormatError(file, text.cut, hint="record or copy the trace again")
        end, skipped = text.buffer.rfind(b"\n") + 1, 0
        names = _csv_columns(file, bytes(text.buffer[: max(0, text.buffer.find(b"\n"))]))

        def skip(row: pa_csv.InvalidRow) -> str:
            nonlocal skipped
            skipped += 1
            return "skip"

        try:
            found = pa_csv.read_csv(
                pa.BufferReader(memoryview(text.buffer)[:end]),
                pa_csv.ReadOptions(use_threads=False, block_size=_ROW_BYTES, skip_rows=1, column_names=names),
                pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=names[:_MOST_COLUMNS]
                ),
            )
        except pa.ArrowInvalid as error:
            reason = "a row of more than 1 MiB" if "straddl" in str(error) else f"cannot be read: {error}"
            raise TraceFormatError(file, reason, hint=_CSV_HINT) from error
        self._notes.add("unusable_value", skipped, f"{file.name}: a row of another length")
        self._notes.add("unusable_value", int(end < text.size), f"{file.name}: an incomplete last line")
        self._notes.add("table_not_read", int(len(names) > _MOST_COLUMNS), f"{file.name}: {names[-1]}")
        return pa.table({name: _csv_values(name, found.column(name)) for name in names[:_MOST_COLUMNS]})


class Rocprofv3PerfettoSource(TextSource, _Source):
    """Reads slices of a Perfetto trace."""

    def _found(self, raw_tables: Sequence[RawTable]) -> tuple[dict[str, pa.Table], object]:
        columns = {_KERNELS: "Kernel_Name", _COPIES: "Direction"}
        categories = {name: columns.get(name, "Function") for name in (_KERNELS, *_NAMED)}
        hint = "record or copy the trace again"
        with decoded(self._take_text(), "Perfetto trace", hint, _MOST_REPEATED) as wire:
            records = Records(wire, categories)
        found, counters = records.tables(), records.counters
        others = records.slices - sum(table.num_rows for table in found.values())
        self._notes.add("table_not_read", int(counters > 0), counted(counters, "value") + " of counters")
        self._notes.add("table_not_read", int(others > 0), counted(others, "slice") + " of other categories")
        return found | {"gpus": selected("rocprofv3_gpus", found)}, records.pid


def _csv_name_of(path: Path) -> str:
    """The table in a file with another name, by its columns."""
    header = head_of(path, _HEADER_BYTES).partition(b"\n")[0]
    columns = {b"Kernel_Name": _KERNELS, b"Direction": _COPIES, b"HSA_": "hsa_api", b"MARKER_": "marker_api"}
    return _CSV_NAMES[next((name for word, name in columns.items() if word in header), "hip_api")]


def _csv_columns(path: Path, header: bytes) -> list[str]:
    """The names of the columns; names that differ in nothing but case are numbered."""
    if len(header) > _HEADER_BYTES:
        raise TraceFormatError(path, "a header of more than 8 KiB", hint=_CSV_HINT)
    names = [name.strip() for name in next(csv.reader([header.decode("utf-8-sig", errors="replace")]), [])]
    lower = [name.lower() for name in names]
    return [
        name if lower.index(key) == at and name else f"{name}#{at + 1}"
        for at, (name, key) in enumerate(zip(names, lower, strict=True))
    ]


def _csv_values(name: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column, where empty means none."""
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    values = texts if name in _TEXTS else to_ints(texts)
    return values if values.null_count == texts.null_count else texts


def _decode(path: Path, text: Buffer) -> list[_Process]:
    try:
        found = msgspec.json.decode(text, type=_Content).tools
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TraceFormatError(path, f"not a complete rocprofv3 result: {error}", hint=_HINT) from error
    if not found:
        raise TraceFormatError(path, "the file contains no process", hint=_HINT)
    return found


def _with_names(records: pa.Table, table: str, described: Mapping[str, pa.Table]) -> pa.Table:
    """Records with the names of their operations, or the texts of markers. Numbers without names are kept."""
    ids = ("kind", "operation")
    if table not in _NAMED or not all(pa.field(name, pa.int64()) in [*records.schema] for name in ids):
        return records
    markers = described["markers"] if table == "marker_api" else _NONE
    tables = {"records": records, "names": described[table], "markers": markers}
    names = selected("rocprofv3_names", tables)["name"]
    if not names.null_count:
        records = records.drop_columns("operation")
    return records.append_column("Direction" if table == _COPIES else "Function", names)


class Rocprofv3Format(PartFormat):
    """A Format: a part per process."""

    name = NAME

    def open(self, path: Path) -> PartFile:
        """The file; nothing is read yet."""
        return PartFile(partial(self.parts, path), partial(_source_of(path), path))

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is JSON of rocprofiler-sdk-tool, or a CSV file or Perfetto trace of records."""
        if _CSV_HEADER.match(head) or _SLICES.match(head):
            return True
        is_json = head.lstrip()[:1] == b"{" and b"rocprofiler-sdk-tool" in head
        return is_json and file_text.object_format(file_text.top_keys(head)) == NAME

    def parts(self, path: Path) -> tuple[Part, ...]:
        """The processes in file order. Raises TraceFormatError."""
        if _source_of(path) is not Rocprofv3Source:
            return super().parts(path)
        found = _decode(path, read_text(path, keep=True).buffer)
        pids = (each.metadata.get("pid") for each in found)
        return numbered([f"{number} pid {pid}" for number, pid in enumerate(pids)] if found[1:] else [""])


def _source_of(path: Path) -> type[CollectedSource]:
    """What reads a file, by its name and first bytes."""
    head = head_of(path, _HEADER_BYTES)
    if csv_tables(path) or _CSV_HEADER.match(head):
        return Rocprofv3CsvSource
    return Rocprofv3PerfettoSource if head[:1] == b"\n" and not _JSON.match(head) else Rocprofv3Source
