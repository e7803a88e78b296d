"""The results of rocprofv3 (rocprofiler-sdk-tool): JSON, with a part per process, CSV files, Perfetto traces.

The names of CSV files and columns are those in the public source of rocprofiler-sdk 1.0 (ROCm 7) and of its
rocpd2csv, and in the documentation of releases since ROCm 6.2.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import Part, PartFile, PartFormat, numbered
from tracewarehouse.formats.file_text import csv_tables, head_of, read_text
from tracewarehouse.formats.mapped import RAW_TYPES, arrow_table, contract_of, map_tables
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
_INTERNAL: Final = "correlation_id.internal"
_GPU_AGENT: Final = 2
_BLOCK_BYTES: Final = 64 << 20
_HINT: Final = "record with rocprofv3 --kernel-trace --output-format json"
# The names of the files of tables.
_CSV_NAMES: Final = {_KERNELS: "kernel_trace", **{name: f"{name}_trace" for name in _NAMED}}
_AGENT_INFO: Final = "agent_info"
_CSV_HEADER: Final = late_regex(
    rb'(?:\xef\xbb\xbf)?"?(?:Guid"?,"?)?(?:Kind|Domain)"?,[^\n]{0,4096}Start_Timestamp'
)
_JSON: Final = late_regex(rb'\s*\{\s*"')
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
    agents: list[dict[str, Any]] = []
    strings: dict[str, Any] = {}
    kernel_symbols: list[dict[str, Any]] = []
    buffer_records: dict[str, msgspec.Raw] = {}


class _Content(msgspec.Struct):
    tools: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


def _is_perfetto(head: bytes) -> bool:
    return head[:1] == b"\n" and b"begin_ns" in head and b"corr_id" in head and not _JSON.match(head)


class _Source(CollectedSource):
    """A Source with the activities of one process. The constructor reads the file."""

    clock = "boot"

    def _add(self, tables: Mapping[str, pa.RecordBatchReader], pid: object, hint: str) -> None:
        """Adds the activities in the tables of the contract."""
        map_tables(contract_of(NAME), tables, {"pid": str(pid)}, self._rows, self._notes)
        if not self._rows.rows:
            raise TraceFormatError(self._path, "the file contains no records", hint=hint)
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")


class Rocprofv3Source(TextSource, _Source):
    """Reads JSON."""

    def _header(self) -> dict[str, Any]:
        metadata = self._process.metadata
        node = metadata.get("node")
        names = [
            {"id": number, "name": agent.get("product_name") or agent.get("name")}
            for number, agent in enumerate(_gpus(self._process))
        ]
        return header_of(names, node.get("hostname") if isinstance(node, dict) else None) | {NAME: metadata}

    def _read(self) -> None:
        number = int(self._part.name.split()[0]) if self._part.name else 0
        process = self._process = _decode(self._path, self._take_text().buffer)[number]
        tables = {table.name: self._table(table) for table in contract_of(NAME).raw_tables}
        self._add(tables, process.metadata.get("pid", 0), _HINT)
        if self._part.rank is not None:
            self._notes.add("rank_assumed", 1, f"{self._part.name} is rank {self._part.rank} by its position")
        for name, raw in process.buffer_records.items():
            if name not in tables and bytes(raw).strip() != b"[]":
                self._notes.add("table_not_read", 1, f"buffer_records.{name}")
        process.buffer_records.clear()  # the text, of which only what describes the process is needed

    def _table(self, table: RawTable) -> pa.RecordBatchReader:
        """A table of the contract: records of the file, or what describes the process."""
        described = {"gpus": _numbers, "kernel_symbols": _symbols}
        if make := described.get(table.name):
            schema = pa.schema([(name, RAW_TYPES[type_]) for name, type_ in table.columns])
            found = pa.Table.from_pylist(list(make(self._process)), schema)
        else:
            found = self._records(table)
        if table.name in _NAMED and found.num_rows:
            found = _with_names(self._process, table.name, found)
        return arrow_table(table, NAME, found)

    def _records(self, table: RawTable) -> pa.Table:
        """The records of a kind; nested values as columns such as `correlation_id.internal`."""
        raw = self._process.buffer_records.get(table.name)
        elements = msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None else []
        if not elements:
            return pa.table({})
        text = pa.BufferReader(b"\n".join(msgspec.json.format(bytes(each), indent=-1) for each in elements))
        try:
            found = pa_json.read_json(text, read_options=pa_json.ReadOptions(block_size=_BLOCK_BYTES))
        except pa.ArrowInvalid as error:
            raise TraceFormatError(self._path, f"{table.name} cannot be read: {error}", hint=_HINT) from error
        while any(pa.types.is_struct(field.type) for field in found.schema):
            found = found.flatten()
        named = {names.partition("|")[0] for names, _ in table.columns}
        usable = [
            field.name
            for field in found.schema
            if field.type == pa.int64()
            or (field.name not in named and field.type in (pa.float64(), pa.string()))
        ]
        return found.select(usable).combine_chunks()


class Rocprofv3CsvSource(_Source):
    """Reads CSV files, which are beside each other."""

    def _header(self) -> dict[str, Any]:
        return header_of(self._devices)

    def _read(self) -> None:
        raw_tables = contract_of(NAME).raw_tables
        found, agents, pid = self._found([table.name for table in raw_tables])
        found["gpus"], self._devices = _csv_gpus(agents, found[_KERNELS], found[_COPIES])
        self._add({table.name: self._table(table, found[table.name]) for table in raw_tables}, pid, _CSV_HINT)

    def _found(self, names: list[str]) -> tuple[dict[str, pa.Table], pa.Table, int | str]:
        """The tables of the contract, the agents, and the process."""
        files = csv_tables(self._path) or {_csv_name_of(self._path): self._path}
        read = {name: files.get(_CSV_NAMES.get(name, "")) for name in names}
        found = {name: self._records(file) if file else pa.table({}) for name, file in read.items()}
        agents = self._records(files[_AGENT_INFO]) if _AGENT_INFO in files else pa.table({})
        calls = (found[name] for name in _NAMED if "Process_Id" in found[name].column_names)
        named = (pid for table in calls for pid in table.column("Process_Id").slice(0, 1).to_pylist())
        pid = next(named, None) or (_PID.match(self._path.name) or ("", "0"))[1]
        for file in files.values():
            if file not in read.values() and file != files.get(_AGENT_INFO):
                self._notes.add("table_not_read", 1, file.name)
        return found, agents, pid

    def _table(self, table: RawTable, found: pa.Table) -> pa.RecordBatchReader:
        """A table of the contract. Other texts in a column of numbers are reported, and null."""
        numbers = {name for names, type_ in table.columns if type_ == "BIGINT" for name in names.split("|")}
        for at, name in enumerate(found.column_names):
            if name in numbers and (texts := found.column(name)).type != pa.int64():
                texts = texts.cast(pa.string())
                values = to_ints(_agent_numbers(texts) if name in _AGENTS else texts)
                lost = 0 if name in _AGENTS else values.null_count - texts.null_count
                self._notes.add("unusable_value", lost, f"{table.name}: {name}")
                found = found.set_column(at, name, values)
        return arrow_table(table, NAME, found)

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
        self._notes.add("unusable_value", int(end < text.text_bytes), f"{file.name}: an incomplete last line")
        self._notes.add("table_not_read", int(len(names) > _MOST_COLUMNS), f"{file.name}: {names[-1]}")
        return pa.table({name: _csv_values(name, found.column(name)) for name in names[:_MOST_COLUMNS]})


class Rocprofv3PerfettoSource(TextSource, Rocprofv3CsvSource):
    """Reads slices of a Perfetto trace."""

    def _found(self, names: list[str]) -> tuple[dict[str, pa.Table], pa.Table, int | str]:
        columns = {_KERNELS: "Kernel_Name", _COPIES: "Direction"}
        categories = {name: columns.get(name, "Function") for name in (_KERNELS, *_NAMED)}
        hint = "record or copy the trace again"
        with decoded(self._take_text(), "Perfetto trace", hint, _MOST_REPEATED) as wire:
            records = Records(wire, categories)
        tables, counters = records.tables(), records.counters
        others = records.slices - sum(table.num_rows for table in tables.values())
        self._notes.add("table_not_read", int(counters > 0), counted(counters, "value") + " of counters")
        self._notes.add("table_not_read", int(others > 0), counted(others, "slice") + " of other categories")
        return {name: tables.get(name, pa.table({})) for name in names}, pa.table({}), records.pid


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
    if name in _TEXTS:
        return texts
    values = to_ints(texts)
    return values if values.null_count == texts.null_count else texts


def _agent_numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The numbers in `Agent 4`, `Agent-4` or `GPU 0`; `CPU 0` is not a GPU."""
    return pc.replace_substring_regex(texts, r"^(?:Agent|GPU)[ -]?", "")


def _csv_gpus(agents: pa.Table, kernels: pa.Table, copies: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
    """The numbers of the GPUs in the order of agents, and their names.

    An agent is named by its number among those that the process sees, among all, or among the GPUs. Without
    their file, the GPUs are those that run kernels, and the sides of copies that are devices.
    """
    rows = [row for row in agents.to_pylist() if row.get("Agent_Type") == "GPU"]
    named: set[Any] = set()
    for table, column, text, word in (
        (kernels, "Agent_Id", "Kernel_Name", ""),
        (copies, "Source_Agent_Id", "Direction", "DEVICE_TO"),
        (copies, "Destination_Agent_Id", "Direction", "TO_DEVICE"),
    ):
        if column in table.column_names and text in table.column_names:
            texts, ids = (table.column(name).cast(pa.string()) for name in (text, column))
            named.update(pc.unique(ids.filter(pc.match_substring(texts, word))).to_pylist())
    numbers = to_ints(_agent_numbers(pa.array([str(each) for each in named], pa.string())))
    used = set(numbers.drop_null().to_pylist())
    orders = [[row.get(column) for row in rows] for column in ("Logical_Node_Id", "Node_Id")]
    if any(str(each).startswith("GPU") for each in named):
        orders = [list(range(len(rows) or max(used, default=-1) + 1))]
    elif not rows:
        orders = [sorted(used)]
    handles = next((order for order in orders if used <= set(order)), orders[0])
    gpus = pa.table({"handle": pa.array(handles, pa.int64()), "number": np.arange(len(handles))})
    devices = [
        {"id": number, "name": row.get("Product_Name") or row.get("Name")} for number, row in enumerate(rows)
    ]
    return gpus, devices


def _decode(path: Path, text: Buffer) -> list[_Process]:
    try:
        found = msgspec.json.decode(text, type=_Content).tools
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise TraceFormatError(path, f"not a complete rocprofv3 result: {error}", hint=_HINT) from error
    if not found:
        raise TraceFormatError(path, "the file contains no process", hint=_HINT)
    return found


def _gpus(process: _Process) -> list[dict[str, Any]]:
    return [each for each in process.agents if each.get("type") == _GPU_AGENT and _handle(each) is not None]


def _handle(agent: Mapping[str, Any]) -> int | None:
    found = agent.get("id")
    handle = found.get("handle") if isinstance(found, dict) else None
    return handle if isinstance(handle, int) else None


def _numbers(process: _Process) -> Iterator[dict[str, Any]]:
    handles = {_handle(agent): number for number, agent in enumerate(_gpus(process))}
    return ({"handle": handle, "number": number} for handle, number in handles.items())


def _symbols(process: _Process) -> Iterator[dict[str, Any]]:
    for symbol in process.kernel_symbols:
        names = (symbol.get(f"{kind}kernel_name") for kind in ("formatted_", "demangled_", ""))
        name = next((name for name in names if isinstance(name, str) and name), None)
        yield {"kernel_id": symbol.get("kernel_id"), "name": name}


def _with_names(process: _Process, table: str, found: pa.Table) -> pa.Table:
    """Records with the names of their operations, or the texts of markers. Numbers without names are kept."""
    ids = ("kind", "operation")
    if any(name not in found.column_names or found.column(name).type != pa.int64() for name in ids):
        return found
    keys = pc.binary_join_element_wise(*(found.column(name).cast(pa.string()) for name in ids), " ")
    encoded = keys.combine_chunks().dictionary_encode()
    known = _operations(process, table)
    of_first = next(iter(known.values()), [])
    pairs = (map(int, key.split()) for key in encoded.dictionary.to_pylist())
    listed = ((known.get(kind, of_first), number) for kind, number in pairs)
    words = [str(names[number]) if 0 <= number < len(names) else None for names, number in listed]
    names = pa.array(words, pa.string()).take(encoded.indices)
    if table == "marker_api" and _INTERNAL in found.column_names and (texts := _marker_texts(process)):
        places = pc.index_in(found.column(_INTERNAL), pa.array(texts.keys(), pa.int64())).combine_chunks()
        names = pc.coalesce(pa.array(texts.values(), pa.string()).take(places), names)
    if not names.null_count:
        found = found.drop_columns("operation")
    return found.append_column("Direction" if table == _COPIES else "Function", names)


def _operations(process: _Process, table: str) -> dict[int, list[Any]]:
    """The names of operations by kind, its place in the list of kinds; others have those of the first."""
    listed, word = process.strings.get("buffer_records"), table.removesuffix("_api")
    return {
        place: names if isinstance(names := each.get("operations"), list) else []
        for place, each in enumerate(listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and str(each.get("kind")).lower().startswith(word)
    }


def _marker_texts(process: _Process) -> dict[int, str]:
    """The text of each marker, by its correlation ID."""
    texts = process.strings.get("marker_api")
    listed = texts if isinstance(texts, list) else ()
    pairs = ((each.get("key"), each.get("value")) for each in listed if isinstance(each, dict))
    return {
        key: text
        for key, text in pairs
        if isinstance(key, int) and abs(key) < 2**63 and isinstance(text, str)
    }


class Rocprofv3Format(PartFormat):
    """A Format: a part per process."""

    name = NAME

    def open(self, path: Path) -> PartFile:
        """The file; nothing is read yet."""
        return PartFile(self, path, _source_of(path))

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is JSON of rocprofiler-sdk-tool, or a CSV file or Perfetto trace of records."""
        if _CSV_HEADER.match(head) or _is_perfetto(head):
            return True
        if head.lstrip()[:1] != b"{" or b"rocprofiler-sdk-tool" not in head:
            return False
        return file_text.object_format(file_text.top_keys(head)) == NAME

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
