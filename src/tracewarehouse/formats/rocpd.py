"""Databases of rocprofv3 (rocpd), with one part per process, and the tables in them.

The name of each table ends in the GUID of a process or node; merged databases hold several. Two layouts
exist: rows with their own times, process and thread, and rows that refer to tables of tracks and timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.base import Part
from tracewarehouse.formats.databases import Database, check_complete, has_tables
from tracewarehouse.formats.file_text import sqlite_format
from tracewarehouse.formats.json_text import json_lists, json_objects, json_texts
from tracewarehouse.formats.source_tables import (
    HAS_TEXT,
    ActivityRows,
    CollectedSource,
    Lookup,
    counted,
    declared_types,
    number_texts,
    read_table,
    short_text,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tracewarehouse.formats.base import Request


AXES: Final = "xyz"
_DISPATCH: Final = "rocpd_kernel_dispatch_"
_INT_COLUMN, _TEXT_COLUMN = pa.int64(), pa.string()
# Columns that refer to other tables, and those with typed columns in `activities`.
REFERENCES: Final = (
    "id", "guid", "nid", "pid", "tid", "track_id", "start_id", "end_id", "start", "end", "agent_id",
    "kernel_id", "event_id", "name_id", "region_name_id", "src_agent_id", "dst_agent_id", "size",
    *(f"{kind}_size_{axis}" for kind in ("grid", "workgroup") for axis in AXES),
)  # fmt: skip


class Tables:
    """The tables with one GUID."""

    def __init__(self, database: Database, guid: str) -> None:
        self.database, self.guid = database, guid

    def name(self, table: str) -> str:
        """The name in the file."""
        return f"rocpd_{table}_{self.guid}"

    def table(self, table: str, columns: Mapping[str, pa.DataType]) -> pa.Table:
        """Columns of a table; without rows if the file lacks it."""
        return read_table(self.database, self.name(table), columns)

    def lookup(self, table: str, *columns: tuple[str, pa.DataType]) -> Lookup:
        """A table by its id."""
        return Lookup(self.table(table, {"id": _INT_COLUMN, **dict(columns)}), "id")

    @cached_property
    def strings(self) -> Lookup:
        """Texts by id."""
        return self.lookup("string", ("string", _TEXT_COLUMN))

    @cached_property
    def events(self) -> Lookup:
        """Category and correlation by id of an event."""
        ids = (("category_id", _INT_COLUMN), ("stack_id", _INT_COLUMN), ("correlation_id", _INT_COLUMN))
        return self.lookup("event", *ids, ("extdata", _TEXT_COLUMN))

    @cached_property
    def agents(self) -> Lookup:
        """Agents by id: whether it is a GPU, and its number among those."""
        return self.lookup("info_agent", ("type", _TEXT_COLUMN), ("type_index", _INT_COLUMN))

    @cached_property
    def processes(self) -> list[tuple[int, int, int, str]]:
        """Node, first device, number and GUID of each process with GPU activities."""
        found: dict[tuple[int, int], int] = {}
        for table, agent in (("kernel_dispatch", "agent_id"), ("memory_copy", "dst_agent_id")):
            rows = self.rows(table)
            devices = self.agents.values(rows.column(agent), "type_index").to_pylist()
            places = zip(
                rows.column("nid").to_pylist(), rows.column("process").to_pylist(), devices, strict=True
            )
            for node, pid, device in places:
                if pid is not None:
                    key = (node or 0, pid)
                    found[key] = min(found.get(key, 1 << 30), 1 << 30 if device is None else device)
        return [(node, device, pid, self.guid) for (node, pid), device in found.items()]

    def rows(self, table: str) -> pa.RecordBatch:
        """A table with `process`, `thread`, `start` and `end`, whatever the layout; all its columns."""
        if self.name(table) not in self.database.tables:
            types: dict[str, pa.DataType] = {}
        else:
            types = declared_types(self.database, self.name(table))
        wanted = dict.fromkeys(REFERENCES, _INT_COLUMN) | types | {"guid": _TEXT_COLUMN}
        found = {name: chunk(self.table(table, wanted).column(name)) for name in wanted}
        if "track_id" in types and "start_id" in types:
            track = self.lookup("track", ("nid", _INT_COLUMN), ("pid", _INT_COLUMN), ("tid", _INT_COLUMN))
            times = self.lookup("timestamp", ("value", _INT_COLUMN))
            found |= {name: track.values(found["track_id"], name) for name in ("nid", "pid", "tid")}
            found |= {name: times.values(found[f"{name}_id"], "value") for name in ("start", "end")}
        found["process"] = self._numbers(found["pid"], "info_process", "pid")
        found["thread"] = self._numbers(found["tid"], "info_thread", "tid")
        return pa.RecordBatch.from_pydict(found)

    def _numbers(self, keys: pa.Array, table: str, column: str) -> pa.Array:
        """The numbers of processes or threads: keys are ids of the table, else the numbers themselves."""
        by_id = self.lookup(table, (column, _INT_COLUMN)).values(keys, column)
        return keys if pc.any(pc.and_(by_id.is_null(), keys.is_valid())).as_py() else by_id


def chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


NAME: Final = "rocpd"
VERSION: Final = 1
_INT, _TEXT = pa.int64(), pa.string()
_NO_INT: Final = pa.scalar(None, _INT)
_GPU: Final = "GPU"
# Beginning of the category of a region → category of the activity.
_CATEGORIES: Final = {
    "HIP": "cuda_runtime", "HSA": "hsa_api", "MARKER": "user_annotation", "ROCTX": "user_annotation",
    "RCCL": "library",
}  # fmt: skip
_OTHER_CATEGORY: Final = "overhead"
_DIRECTIONS: Final = {
    (False, True): "HtoD",
    (True, False): "DtoH",
    (True, True): "DtoD",
    (False, False): "HtoH",
}
_READ: Final = frozenset((
    "metadata", "string", "timestamp", "track", "event", "region", "kernel_dispatch", "memory_copy",
    "pmc_event", "info_node", "info_process", "info_thread", "info_agent", "info_queue", "info_stream",
    "info_pmc", "info_kernel_symbol", "info_code_object",
))  # fmt: skip
_HINT: Final = "record with rocprofv3 --sys-trace --output-format rocpd"


class RocpdFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a database with the tables of rocprofv3."""
        return has_tables(path, head, lambda database: sqlite_format(database.tables) == "rocpd_sqlite")

    def open(self, path: Path) -> RocpdFile:
        """The file. Raises TraceFormatError if it is incomplete."""
        check_complete(path)
        return RocpdFile(path)


class RocpdFile:
    """A TraceFile: a part per process with GPU activities."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        """The processes by node, first device and number. Raises TraceFormatError if there is none."""
        with Database(self.path) as database:
            guids = [name.removeprefix(_DISPATCH) for name in database.tables if name.startswith(_DISPATCH)]
            found = [process for guid in guids for process in Tables(database, guid).processes]
        if not found:
            raise TraceFormatError(self.path, "the file contains no GPU activity", hint=_HINT)
        several = len(found) > 1
        return tuple(
            Part(f"{guid} pid {pid}", rank=number if several else None)
            for number, (_, _, pid, guid) in enumerate(sorted(found))
        )

    def read(self, part: Part, request: Request) -> RocpdSource:
        """Reads the activities of a process."""
        return RocpdSource(self.path, part, request)


class RocpdSource(CollectedSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        check_complete(path)
        super().__init__(path, part, request)

    def _read(self) -> None:
        guid, _, pid = self._part.name.partition(" pid ")
        with Database(self._path) as database:
            tables = Tables(database, guid)
            self._metadata = _metadata(tables, int(pid))
            _add_kernels(tables, int(pid), self._rows)
            _add_copies(tables, int(pid), self._rows)
            _add_regions(tables, int(pid), self._rows)
            _add_counters(tables, int(pid), self._rows)
            self._add_notes(tables)

    def _header(self) -> Mapping[str, Any]:
        return self._metadata

    def _facts(self) -> Mapping[str, object]:
        schema = self._metadata[NAME].get("schema_version")
        return {
            "clock": "boot",
            "source_schema": short_text(schema, self._rows.redactor, 40) if schema else None,
        }

    def _add_notes(self, tables: Tables) -> None:
        notes, database = self._notes, tables.database
        notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            order = "node, device and process ID"
            notes.add("rank_assumed", 1, f"{self._part.name} is rank {self._part.rank} by {order}")
        for name in database.tables:
            short = name.removeprefix("rocpd_").removesuffix(f"_{tables.guid}")
            if name.endswith(tables.guid) and short not in _READ and (rows := database.count(name)):
                notes.add("table_not_read", 1, f"{name}: {counted(rows, 'row')}")
        for table, values in database.unusable.items():
            notes.add("unusable_value", values, f"{table}: {counted(values, 'value')} of another type")


def _of_process(tables: Tables, table: str, pid: int) -> dict[str, pa.Array]:
    """The rows of a process by column."""
    rows = tables.rows(table)
    mine = rows.filter(pc.fill_null(pc.equal(rows.column("process"), pid), False))
    found = {name: mine.column(name) for name in mine.schema.names}
    found["correlation"] = tables.events.values(found["event_id"], "stack_id")
    found["external"] = tables.events.values(found["event_id"], "correlation_id")
    return found


def _common(found: Mapping[str, pa.Array], category: pa.Array | pa.Scalar) -> dict[str, pa.Array | pa.Scalar]:
    """The columns that all activities have."""
    length = pc.subtract(found["end"], found["start"])
    return {
        "ph": pa.scalar("X"),
        "category": category,
        "raw_category": category,
        "ts_ns": found["start"],
        "dur_ns": pc.if_else(pc.less(length, 0), _NO_INT, length),
        "correlation": _positive(found["correlation"]),
        "external_id": _positive(found["external"]),
    }


def _arguments(found: Mapping[str, pa.Array], typed: Mapping[str, pa.Array]) -> pa.Array:
    """JSON arguments: the given ones, and the columns of the file that refer to nothing."""
    skipped = {*REFERENCES, "process", "thread", "correlation", "external"}
    others = {
        f"{NAME}.{name}": json_texts(array) if pa.types.is_string(array.type) else array
        for name, array in found.items()
        if name not in skipped
    }
    return json_objects({**typed, **others}, len(found["start"]))


def _device(tables: Tables, found: Mapping[str, pa.Array], agent: pa.Array) -> dict[str, pa.Array]:
    device = tables.agents.values(agent, "type_index")
    stream = found.get("stream_id")
    queue = found.get("queue_id")
    chosen = stream if stream is not None else queue
    if stream is not None and queue is not None:
        chosen = pc.coalesce(stream, queue)
    chosen = pa.nulls(len(device), _INT) if chosen is None else chosen
    return {"device": device, "stream": chosen, "pid": number_texts(device), "tid": number_texts(chosen)}


def _add_kernels(tables: Tables, pid: int, rows: ActivityRows) -> None:
    """Kernels; the grid in the file counts threads."""
    found = _of_process(tables, "kernel_dispatch", pid)
    symbols = tables.lookup("info_kernel_symbol", ("display_name", _TEXT), ("kernel_name", _TEXT))
    names = [symbols.values(found["kernel_id"], name) for name in ("display_name", "kernel_name")]
    block = [_positive(found[f"workgroup_size_{axis}"]) for axis in AXES]
    threads = [_positive(found[f"grid_size_{axis}"]) for axis in AXES]
    grid = [
        pc.divide(pc.add(total, pc.subtract(size, 1)), size)
        for total, size in zip(threads, block, strict=True)
    ]
    place = _device(tables, found, found["agent_id"])
    shared = found.pop("group_segment_size", pa.nulls(len(found["start"]), _INT))
    arguments = {
        "device": place["device"], "stream": place["stream"], "correlation": found["correlation"],
        "grid": json_lists(*grid), "block": json_lists(*block), "shared memory": shared,
    }  # fmt: skip
    sizes = dict(
        zip((f"{kind}_{axis}" for kind in ("grid", "block") for axis in AXES), grid + block, strict=True)
    )
    rows.add(
        len(found["start"]),
        {
            **_common(found, pa.scalar("kernel")),
            **place,
            **sizes,
            "name": pc.coalesce(*names, pa.scalar("kernel")),
            "shared_memory_bytes": shared,
            "args": _arguments(found, arguments),
        },
    )


def _add_copies(tables: Tables, pid: int, rows: ActivityRows) -> None:
    """Memory copies; the direction follows from the agents, and the GPU among them is the device."""
    found = _of_process(tables, "memory_copy", pid)
    source, target = found["src_agent_id"], found["dst_agent_id"]
    is_gpu = [pc.equal(tables.agents.values(agent, "type"), _GPU) for agent in (source, target)]
    pairs = zip(is_gpu[0].to_pylist(), is_gpu[1].to_pylist(), strict=True)
    names = [f"Memcpy {_DIRECTIONS.get(pair, 'Unknown')}" for pair in pairs]
    place = _device(tables, found, pc.if_else(pc.fill_null(is_gpu[1], False), target, source))
    arguments = {
        "device": place["device"], "stream": place["stream"], "correlation": found["correlation"],
        "bytes": found["size"],
    }  # fmt: skip
    rows.add(
        len(names),
        {
            **_common(found, pa.scalar("gpu_memcpy")),
            **place,
            "name": pa.array(names, _TEXT),
            "bytes": found["size"],
            "args": _arguments(found, arguments),
        },
    )


def _add_regions(tables: Tables, pid: int, rows: ActivityRows) -> None:
    """HIP, HSA and RCCL calls, and annotations, whose text may be a message beside the name."""
    found = _of_process(tables, "region", pid)
    kinds = tables.strings.values(tables.events.values(found["event_id"], "category_id"), "string")
    category = _labels(pc.fill_null(kinds, ""))
    names = tables.strings.values(found["name_id"], "string")
    is_note = pc.equal(category, "user_annotation")
    messages = _messages(tables.events.values(found["event_id"], "extdata"), is_note)
    is_call = pc.equal(category, "cuda_runtime")
    correlation = pc.if_else(is_call, found["correlation"], _NO_INT)
    has_text = any(pa.types.is_string(array.type) for name, array in found.items() if name not in REFERENCES)
    rows.add(
        len(found["start"]),
        {
            **_common({**found, "correlation": correlation}, category),
            "name": pc.coalesce(messages, names),
            "pid": number_texts(found["process"]),
            "tid": number_texts(found["thread"]),
            "args": _arguments(found, {"correlation": correlation}),
            HAS_TEXT: pa.scalar(has_text),
        },
    )


def _add_counters(tables: Tables, pid: int, rows: ActivityRows) -> None:
    """Hardware counters of kernels, as counters at the start of each kernel."""
    values = tables.table("pmc_event", {"event_id": _INT, "pmc_id": _INT, "value": pa.float64()})
    kernels = _of_process(tables, "kernel_dispatch", pid)
    starts = Lookup(pa.table({"id": kernels["event_id"], "start": kernels["start"]}), "id")
    start = starts.values(chunk(values.column("event_id")), "start")
    mine = start.is_valid()
    found = {name: chunk(values.column(name)).filter(mine) for name in values.column_names}
    names = tables.lookup("info_pmc", ("name", _TEXT)).values(found["pmc_id"], "name")
    agents = Lookup(pa.table({"id": kernels["event_id"], "agent": kernels["agent_id"]}), "id")
    device = tables.agents.values(agents.values(found["event_id"], "agent"), "type_index")
    members = [
        msgspec.json.encode({name or "value": value}).decode()
        for name, value in zip(names.to_pylist(), found["value"].to_pylist(), strict=True)
    ]
    rows.add(
        len(members),
        {
            "ph": pa.scalar("C"),
            "name": names,
            "ts_ns": start.filter(mine),
            "device": device,
            "pid": number_texts(device),
            "args": pa.array(members, pa.large_string()),
        },
    )


def _labels(kinds: pa.Array) -> pa.Array:
    encoded = kinds.dictionary_encode()
    labels = [
        next((label for start, label in _CATEGORIES.items() if text.startswith(start)), _OTHER_CATEGORY)
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(labels, _TEXT).take(encoded.indices)


def _messages(details: pa.Array, wanted: pa.Array) -> pa.Array:
    """The member `message` of JSON objects; null elsewhere."""
    found: list[str | None] = []
    for text, is_wanted in zip(details.to_pylist(), wanted.to_pylist(), strict=True):
        try:
            value = msgspec.json.decode(text) if is_wanted and text and '"message"' in text else None
        except (msgspec.DecodeError, RecursionError):
            value = None
        message = value.get("message") if isinstance(value, dict) else None
        found.append(message if isinstance(message, str) and message else None)
    return pa.array(found, _TEXT)


def _metadata(tables: Tables, pid: int) -> dict[str, Any]:
    """The header: metadata, command of the process, host and names of the GPUs."""
    pairs = tables.table("metadata", {"tag": _TEXT, "value": _TEXT}).to_pylist()
    known = {row["tag"]: row["value"] for row in pairs if row["tag"] and row["value"]}
    types = {"pid": _INT, "command": _TEXT, "environment": _TEXT}
    processes = [row for row in tables.table("info_process", types).to_pylist() if row["pid"] == pid]
    known |= {key: row[key] for row in processes for key in ("command", "environment") if row[key]}
    header: dict[str, Any] = {NAME: known}
    hosts: Sequence[Any] = tables.table("info_node", {"hostname": _TEXT}).column("hostname").to_pylist()
    if hosts and hosts[0]:
        header["host_name"] = hosts[0]
    columns = {"type": _TEXT, "type_index": _INT, "product_name": _TEXT, "name": _TEXT}
    agents = [row for row in tables.table("info_agent", columns).to_pylist() if row["type"] == _GPU]
    names = [{"id": row["type_index"], "name": row["product_name"] or row["name"]} for row in agents]
    return header | ({"deviceProperties": names} if names else {})


def _positive(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(values, 0), values, _NO_INT)
