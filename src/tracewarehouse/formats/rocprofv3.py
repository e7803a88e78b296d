"""The JSON results of rocprofv3 (rocprofiler-sdk-tool), with one part per process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.json as pa_json
from msgspec.structs import replace

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import Part
from tracewarehouse.formats.file_text import read_text
from tracewarehouse.formats.mapped import RAW_TYPES, contract_of, map_tables, raw_table
from tracewarehouse.formats.source_tables import CollectedSource

if TYPE_CHECKING:
    from pathlib import Path

    from tracewarehouse.contracts.contract import RawTable
    from tracewarehouse.formats.base import Request


NAME: Final = "rocprofv3"
VERSION: Final = 1
_COPIES: Final = "memory_copy"
_NAMED: Final = (_COPIES, "hip_api", "hsa_api", "marker_api", "rccl_api")
_GPU_AGENT: Final = 2
_BLOCK_BYTES: Final = 64 << 20
_HINT: Final = "record with rocprofv3 --kernel-trace --output-format json"


class _Process(msgspec.Struct):
    """One process of the file; records stay text until they are converted to columns."""

    metadata: dict[str, Any] = {}
    agents: list[dict[str, Any]] = []
    strings: dict[str, Any] = {}
    kernel_symbols: list[dict[str, Any]] = []
    buffer_records: dict[str, msgspec.Raw] = {}


class _Content(msgspec.Struct):
    tools: list[_Process] = msgspec.field(name="rocprofiler-sdk-tool")


class Rocprofv3Format:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a JSON object with the results of rocprofiler-sdk-tool."""
        if head.lstrip()[:1] != b"{" or b"rocprofiler-sdk-tool" not in head:
            return False
        return file_text.object_format(file_text.top_keys(head)) == NAME

    def open(self, path: Path) -> Rocprofv3File:
        """The file; nothing is read yet."""
        return Rocprofv3File(path)


class Rocprofv3File:
    """A TraceFile: a part per process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        """The processes in file order. Raises TraceFormatError."""
        found = _decode(self.path, bytes(read_text(self.path).buffer))
        several = len(found) > 1
        return tuple(
            Part(
                f"{number} pid {each.metadata.get('pid')}" if several else "",
                rank=number if several else None,
            )
            for number, each in enumerate(found)
        )

    def read(self, part: Part, request: Request) -> Rocprofv3Source:
        """Reads the activities of a process."""
        return Rocprofv3Source(self.path, part, request)


class Rocprofv3Source(CollectedSource):
    """A Source with the activities of one process. The constructor reads the file."""

    def _facts(self) -> Mapping[str, object]:
        return {"clock": "boot"}

    def _header(self) -> dict[str, Any]:
        metadata = self._process.metadata
        node = metadata.get("node")
        names = [
            {"id": number, "name": agent.get("product_name") or agent.get("name")}
            for number, agent in enumerate(_gpus(self._process))
        ]
        header: dict[str, Any] = {"deviceProperties": names} if names else {}
        if isinstance(node, dict) and node.get("hostname"):
            header["host_name"] = node["hostname"]
        return header | {"rocprofv3": metadata}

    def _read(self) -> None:
        number = int(self._part.name.split()[0]) if self._part.name else 0
        process = self._process = _decode(
            self._path, bytes(read_text(self._path, self._request.spill).buffer)
        )[number]
        contract = contract_of(NAME)
        tables = {table.name: self._table(table) for table in contract.raw_tables}
        params = {"pid": str(process.metadata.get("pid", 0))}
        map_tables(contract, tables, params, self._rows, self._notes)
        if not self._rows.rows:
            raise TraceFormatError(self._path, "the file contains no records", hint=_HINT)
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            self._notes.add("rank_assumed", 1, f"{self._part.name} is rank {self._part.rank} by its position")
        for name, raw in process.buffer_records.items():
            if name not in tables and bytes(raw).strip() != b"[]":
                self._notes.add("table_not_read", 1, f"buffer_records.{name}")

    def _table(self, table: RawTable) -> pa.RecordBatchReader:
        """A table of the contract: records of the file, or what describes the process."""
        described = {"gpus": _numbers, "kernel_symbols": _symbols, "operations": _operations}
        if make := described.get(table.name):
            schema = pa.schema([(name, RAW_TYPES[type_]) for name, type_ in table.columns])
            found = pa.Table.from_pylist(list(make(self._process)), schema)
        else:
            found = self._records(table)
        if table.name == _COPIES and not any(each["kind"] == _COPIES for each in _operations(self._process)):
            # Numbers without names are arguments.
            table = replace(table, columns=tuple(each for each in table.columns if each[0] != "operation"))
        types = {field.name: field.type for field in found.schema}
        return raw_table(table, NAME, types, found.to_batches())

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
        named = dict(table.columns)
        usable = [
            field.name
            for field in found.schema
            if field.type == pa.int64()
            or (field.name not in named and field.type in (pa.float64(), pa.string()))
        ]
        return found.select(usable).combine_chunks()


def _decode(path: Path, text: bytes) -> list[_Process]:
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


def _operations(process: _Process) -> Iterator[dict[str, Any]]:
    """The operations of each kind of record; of kinds with the same beginning, those of the first."""
    kinds = process.strings.get("buffer_records")
    known = [each for each in kinds if isinstance(each, dict)] if isinstance(kinds, list) else []
    for kind in _NAMED:
        own = (each for each in known if str(each.get("kind", "")).lower().startswith(kind))
        names = next(own, {}).get("operations")
        for number, name in enumerate(names if isinstance(names, list) else ()):
            yield {"kind": kind, "number": number, "name": str(name)}
