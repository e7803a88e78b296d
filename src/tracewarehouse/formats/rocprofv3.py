"""The JSON results of rocprofv3 (rocprofiler-sdk-tool), with one part per process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats import file_text
from tracewarehouse.formats.base import Part
from tracewarehouse.formats.file_text import read_text
from tracewarehouse.formats.json_text import json_lists, json_objects, json_texts
from tracewarehouse.formats.source_tables import ActivityRows, CollectedSource, Lookup

if TYPE_CHECKING:
    from pathlib import Path

    from tracewarehouse.formats.base import Request


NAME: Final = "rocprofv3"
VERSION: Final = 1
_KERNELS, _COPIES = "kernel_dispatch", "memory_copy"
# Host records: name in the file → category.
_CALLS: Final = {
    "hip_api": "cuda_runtime", "hsa_api": "hsa_api", "marker_api": "user_annotation", "rccl_api": "library",
}  # fmt: skip
_GPU_AGENT: Final = 2
_BLOCK_BYTES: Final = 64 << 20
_INT: Final = pa.int64()
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
        self._process = _decode(self._path, bytes(read_text(self._path, self._request.spill).buffer))[number]
        records = {name: self._table(name) for name in (_KERNELS, _COPIES, *_CALLS)}
        if not any(table.num_rows for table in records.values()):
            raise TraceFormatError(self._path, "the file contains no records", hint=_HINT)
        devices = {agent["id"]["handle"]: number for number, agent in enumerate(_gpus(self._process))}
        _add_kernels(records[_KERNELS], devices, self._process.kernel_symbols, self._rows)
        _add_copies(records[_COPIES], devices, self._operations(_COPIES), self._rows)
        pid = str(self._process.metadata.get("pid", 0))
        for name, category in _CALLS.items():
            _add_calls(records[name], category, self._operations(name), pid, self._rows)
        self._notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            self._notes.add("rank_assumed", 1, f"{self._part.name} is rank {self._part.rank} by its position")
        for name, raw in self._process.buffer_records.items():
            if name not in records and bytes(raw).strip() != b"[]":
                self._notes.add("table_not_read", 1, f"buffer_records.{name}")

    def _table(self, name: str) -> pa.Table:
        """The records of a kind; nested values as columns such as `correlation_id.internal`."""
        raw = self._process.buffer_records.get(name)
        elements = msgspec.json.decode(raw, type=list[msgspec.Raw]) if raw is not None else []
        if not elements:
            return pa.table({})
        text = pa.BufferReader(b"\n".join(msgspec.json.format(bytes(each), indent=-1) for each in elements))
        try:
            table = pa_json.read_json(text, read_options=pa_json.ReadOptions(block_size=_BLOCK_BYTES))
        except pa.ArrowInvalid as error:
            raise TraceFormatError(self._path, f"{name} cannot be read: {error}", hint=_HINT) from error
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        return table.combine_chunks()

    def _operations(self, name: str) -> list[str]:
        """The names of the operations of a kind of record."""
        kinds = self._process.strings.get("buffer_records")
        for each in kinds if isinstance(kinds, list) else []:
            if isinstance(each, dict) and str(each.get("kind", "")).lower().startswith(name):
                found = each.get("operations")
                return [str(text) for text in found] if isinstance(found, list) else []
        return []


class _Records:
    """Columns of records; those that were not used become arguments."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = table.num_rows
        self._columns = {name: _array(table.column(name)) for name in table.column_names}
        self._unused = dict.fromkeys(name for name in self._columns if name != "size")

    def ints(self, name: str) -> pa.Array:
        """An integer column; nulls if no record has it."""
        self._unused.pop(name, None)
        found = self._columns.get(name)
        return found if found is not None and pa.types.is_int64(found.type) else pa.nulls(self.rows, _INT)

    def arguments(self, typed: Mapping[str, pa.Array]) -> pa.Array:
        """The given arguments, and every unused column as `rocprofv3.<column>`."""
        members: dict[str, Any] = dict(typed)
        for name in self._unused:
            column = self._columns[name]
            if pa.types.is_string(column.type):
                members[f"rocprofv3.{name}"] = json_texts(column)
            elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
                members[f"rocprofv3.{name}"] = column
        return json_objects(members, self.rows)

    def shared(self) -> tuple[dict[str, pa.Array], pa.Array, pa.Array]:
        """Times, correlation and external id."""
        start, end = self.ints("start_timestamp"), self.ints("end_timestamp")
        length = pc.subtract(end, start)
        times = {"ts_ns": start, "dur_ns": pc.if_else(pc.less(length, 0), pa.scalar(None, _INT), length)}
        external = self.ints("correlation_id.external")
        external = pc.if_else(pc.equal(external, 0), pa.scalar(None, _INT), external)
        return times, self.ints("correlation_id.internal"), external


def _add_kernels(
    table: pa.Table, devices: Mapping[int, int], symbols: list[dict[str, Any]], rows: ActivityRows
) -> None:
    found = _Records(table)
    if not found.rows:
        return
    times, correlation, external = found.shared()
    device = _mapped(found.ints("dispatch_info.agent_id.handle"), devices)
    queue = found.ints("dispatch_info.queue_id.handle")
    stream = pc.coalesce(found.ints("stream_id.handle"), queue)
    block = [_positive(found.ints(f"dispatch_info.workgroup_size.{axis}")) for axis in "xyz"]
    threads = [_positive(found.ints(f"dispatch_info.grid_size.{axis}")) for axis in "xyz"]
    grid = [pc.divide(pc.add(a, pc.subtract(b, 1)), b) for a, b in zip(threads, block, strict=True)]
    shared = found.ints("dispatch_info.group_segment_size")
    names = pa.table(
        {
            "id": pa.array([each.get("kernel_id") for each in symbols], _INT),
            "name": pa.array([_kernel_name(each) for each in symbols], pa.string()),
        }
    )
    name = Lookup(names, "id").values(found.ints("dispatch_info.kernel_id"), "name")
    arguments = {
        "device": device, "stream": stream, "correlation": correlation, "External id": external,
        "grid": json_lists(*grid), "block": json_lists(*block), "shared memory": shared,
        "rocprofv3.queue": queue,
    }  # fmt: skip
    rows.add(
        found.rows,
        {
            **_device_columns("kernel", name, times, device, stream),
            "correlation": correlation,
            "external_id": external,
            "shared_memory_bytes": shared,
            **{f"grid_{axis}": values for axis, values in zip("xyz", grid, strict=True)},
            **{f"block_{axis}": values for axis, values in zip("xyz", block, strict=True)},
            "args": found.arguments(arguments),
        },
    )


def _add_copies(
    table: pa.Table, devices: Mapping[int, int], operations: list[str], rows: ActivityRows
) -> None:
    """Memory copies; the direction follows from which agents are GPUs."""
    found = _Records(table)
    if not found.rows:
        return
    times, correlation, external = found.shared()
    source, target = (_mapped(found.ints(f"{end}_agent_id.handle"), devices) for end in ("src", "dst"))
    side = [pc.if_else(agent.is_valid(), "D", "H") for agent in (source, target)]
    name = pc.binary_join_element_wise("Memcpy ", side[0], "to", side[1], "")
    device, stream, size = pc.coalesce(target, source), found.ints("stream_id.handle"), found.ints("bytes")
    arguments = {"device": device, "stream": stream, "correlation": correlation, "bytes": size}
    if operations:
        arguments["rocprofv3.direction"] = json_texts(_labels(found.ints("operation"), operations))
    rows.add(
        found.rows,
        {
            **_device_columns("gpu_memcpy", name, times, device, stream),
            "correlation": correlation,
            "external_id": external,
            "bytes": size,
            "args": found.arguments(arguments | {"External id": external}),
        },
    )


def _add_calls(table: pa.Table, category: str, operations: list[str], pid: str, rows: ActivityRows) -> None:
    found = _Records(table)
    if not found.rows:
        return
    times, correlation, external = found.shared()
    arguments = {"correlation": correlation, "External id": external}
    rows.add(
        found.rows,
        {
            "ph": pa.scalar("X"),
            "category": pa.scalar(category),
            "raw_category": pa.scalar(category),
            "name": _labels(found.ints("operation"), operations),
            **times,
            "pid": pa.scalar(pid),
            "tid": found.ints("thread_id"),
            "correlation": correlation,
            "external_id": external,
            "args": found.arguments(arguments),
        },
    )


def _device_columns(
    category: str, name: pa.Array, times: Mapping[str, pa.Array], device: pa.Array, stream: pa.Array
) -> dict[str, pa.Array | pa.Scalar]:
    return {
        "ph": pa.scalar("X"),
        "category": pa.scalar(category),
        "raw_category": pa.scalar(category),
        "name": name,
        **times,
        "device": device,
        "stream": stream,
        "pid": device,
        "tid": stream,
    }


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


def _kernel_name(symbol: Mapping[str, Any]) -> str | None:
    for key in ("formatted_kernel_name", "demangled_kernel_name", "kernel_name"):
        if isinstance(symbol.get(key), str) and symbol[key]:
            return str(symbol[key])
    return None


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _mapped(handles: pa.Array, numbers: Mapping[int, int]) -> pa.Array:
    encoded = handles.dictionary_encode()
    return pa.array([numbers.get(each) for each in encoded.dictionary.to_pylist()], _INT).take(
        encoded.indices
    )


def _labels(numbers: pa.Array, names: list[str]) -> pa.Array:
    encoded = numbers.dictionary_encode()
    known = [
        names[each] if each is not None and 0 <= each < len(names) else None
        for each in encoded.dictionary.to_pylist()
    ]
    return pa.array(known, pa.string()).take(encoded.indices)


def _positive(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(values, 0), values, pa.scalar(None, _INT))
