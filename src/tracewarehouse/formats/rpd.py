"""The rpd format: databases of rocmProfileData, with one part per process."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
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
    rank_reason,
    read_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracewarehouse.formats.base import Request


NAME: Final = "rpd"
VERSION: Final = 1
_PROCESS: Final = "pid "
_INT, _TEXT = pa.int64(), pa.string()
_COPIES: Final = {
    "CopyHostToDevice": "HtoD", "CopyDeviceToHost": "DtoH", "CopyDeviceToDevice": "DtoD",
    "CopyHostToHost": "HtoH",
}  # fmt: skip
_AXES: Final = "XYZ"
_MARKER: Final = "UserMarker"
# Table → the column that the activities refer to, and the columns with typed columns in `activities`.
_KEYS: Final = {"rocpd_op": "id", "rocpd_kernelapi": "api_ptr_id", "rocpd_copyapi": "api_ptr_id"}
_TYPED: Final = {
    "rocpd_op": ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    "rocpd_kernelapi": (
        "id", "api_ptr_id", "kernelName_id",
        "gridX", "gridY", "gridZ", "workgroupX", "workgroupY", "workgroupZ",
    ),
    "rocpd_copyapi": ("id", "api_ptr_id", "size"),
}  # fmt: skip
# Derived by tools from the tables that are read, or without a mapping.
_READ: Final = frozenset((
    "rocpd_op", "rocpd_api", "rocpd_api_ops", "rocpd_string", "rocpd_kernelapi", "rocpd_copyapi",
    "rocpd_monitor", "rocpd_metadata", "ext_autogradapi", "sqlite_sequence",
))  # fmt: skip


class RpdFormat:
    """A Format."""

    name = NAME
    version = VERSION

    def detect(self, path: Path, head: bytes) -> bool:
        """Whether this is a database with the tables of rocmProfileData."""
        return has_tables(path, head, lambda database: sqlite_format(database.tables) == "rpd_sqlite")

    def open(self, path: Path) -> RpdFile:
        """The file. Raises TraceFormatError if it is incomplete."""
        check_complete(path)
        return RpdFile(path)


class RpdFile:
    """A TraceFile: a part per process that called the HIP runtime."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> tuple[Part, ...]:
        """The processes in the order of their first device. Raises TraceFormatError if there is none."""
        with Database(self.path) as database:
            tables = _Tables(database)
            found = tables.first_devices
        if not found:
            raise TraceFormatError(
                self.path, "the file contains no GPU activity", hint="record with runTracer.sh -o FILE"
            )
        return tuple(
            Part(f"{_PROCESS}{pid}", rank=number if len(found) > 1 else None)
            for number, pid in enumerate(found)
        )

    def read(self, part: Part, request: Request) -> RpdSource:
        """Reads the activities of a process."""
        return RpdSource(self.path, part, request)


class _Tables:
    """The tables of a file, and the process of each GPU activity."""

    def __init__(self, database: Database) -> None:
        self.database = database
        columns = dict.fromkeys(
            ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"), _INT
        )
        self.ops = read_table(database, "rocpd_op", columns)
        columns = dict.fromkeys(("id", "pid", "tid", "start", "end", "apiName_id", "args_id"), _INT)
        self.api = read_table(database, "rocpd_api", columns)
        self._links = Lookup(read_table(database, "rocpd_api_ops", {"api_id": _INT, "op_id": _INT}), "op_id")
        self.strings = Lookup(read_table(database, "rocpd_string", {"id": _INT, "string": _TEXT}), "id")

    @cached_property
    def launching_api(self) -> pa.Array:
        """The API row that launched each op."""
        return self._links.values(self.ops.column("id").combine_chunks(), "api_id")

    @cached_property
    def op_process(self) -> pa.Array:
        """The process of each op: that of its API row, else the one that most ops of its device have."""
        found = Lookup(self.api, "id").values(self.launching_api, "pid")
        devices = self.ops.column("gpuId").combine_chunks()
        counted = pa.table({"device": devices, "pid": found}).filter(found.is_valid())
        counts = counted.group_by(["device", "pid"]).aggregate([([], "count_all")])
        ranked = counts.sort_by([("count_all", "descending"), ("pid", "ascending")])
        return pc.coalesce(found, Lookup(ranked, "device").values(devices, "pid"))

    @cached_property
    def first_devices(self) -> dict[int, int]:
        """The processes with GPU activities, by their lowest device, which is the value."""
        table = pa.table({"pid": self.op_process, "device": self.ops.column("gpuId")})
        lowest = table.filter(self.op_process.is_valid()).group_by("pid").aggregate([("device", "min")])
        ordered = lowest.sort_by([("device_min", "ascending"), ("pid", "ascending")])
        columns = (ordered.column(name).to_pylist() for name in ("pid", "device_min"))
        return dict(zip(*columns, strict=True))

    def text(self, ids: pa.Array) -> pa.Array:
        """The strings of ids."""
        return self.strings.values(ids, "string")


class RpdSource(CollectedSource):
    """A Source with the activities of one process. The constructor reads the tables."""

    def __init__(self, path: Path, part: Part, request: Request) -> None:
        check_complete(path)
        super().__init__(path, part, request)

    def _read(self) -> None:
        with Database(self._path) as database:
            self._read_tables(_Tables(database))
            self._metadata = _metadata(database)

    def _header(self) -> Mapping[str, Any]:
        return {"rpd": self._metadata}

    def _facts(self) -> Mapping[str, object]:
        return {"clock": "boot"}

    def _read_tables(self, tables: _Tables) -> None:
        pid = int(self._part.name.removeprefix(_PROCESS))
        _add_ops(tables, pid, self._rows)
        _add_calls(tables, pid, self._rows)
        _add_monitor(tables, self._rows)
        notes = self._notes
        notes.add("clock_not_utc", 1, "times are nanoseconds since boot")
        if self._part.rank is not None:
            devices = tables.first_devices
            notes.add("rank_assumed", 1, rank_reason(self._part, devices[pid], list(devices.values())))
        for name in tables.database.tables:
            if name not in _READ and (rows := tables.database.count(name)):
                notes.add("table_not_read", 1, f"{name}: {counted(rows, 'row')}")
        for table, values in tables.database.unusable.items():
            notes.add("unusable_value", values, f"{table}: {counted(values, 'value')} of another type")


def _add_ops(tables: _Tables, pid: int, rows: ActivityRows) -> None:
    """The GPU activities of a process."""
    mine = np.flatnonzero(
        pc.fill_null(pc.equal(tables.op_process, pid), False).to_numpy(zero_copy_only=False)
    )
    if not mine.size:
        return
    ops = {
        name: tables.ops.column(name).combine_chunks().take(pa.array(mine))
        for name in tables.ops.column_names
    }
    api = tables.launching_api.take(pa.array(mine))
    kinds = pc.fill_null(tables.text(ops["opType_id"]), "")
    direction = _labels(kinds, _COPIES)
    is_copy = pc.starts_with(kinds, "Copy")
    grid, block, kernel_name, launched = _launch_shape(tables, api)
    texts = [tables.text(ops["description_id"]), tables.text(kernel_name)]
    kernel = pc.coalesce(*[pc.if_else(pc.equal(text, ""), None, text) for text in texts], kinds)
    copy = pc.binary_join_element_wise("Memcpy ", pc.fill_null(direction, "Unknown"), "")
    size = pc.if_else(is_copy, _copy_bytes(tables, api), pa.scalar(None, _INT))
    device, stream = ops["gpuId"], ops["queueId"]
    columns = {
        f"grid_{axis.lower()}": _only(is_copy, values) for axis, values in zip(_AXES, grid, strict=True)
    }
    columns |= {
        f"block_{axis.lower()}": _only(is_copy, values) for axis, values in zip(_AXES, block, strict=True)
    }
    grids = json_lists(*(columns[f"grid_{axis.lower()}"] for axis in _AXES))
    blocks = json_lists(*(columns[f"block_{axis.lower()}"] for axis in _AXES))
    arguments = {
        "device": device, "stream": stream, "correlation": api, "grid": grids, "block": blocks, "bytes": size,
        "rpd.opType": json_texts(kinds), **launched, **_others(tables, "rocpd_op", ops["id"]),
    }  # fmt: skip
    category = pc.if_else(is_copy, "gpu_memcpy", "kernel")
    rows.add(
        len(mine),
        {
            "ph": pa.scalar("X"),
            "category": category,
            "raw_category": category,
            "name": pc.if_else(is_copy, copy, kernel),
            **_times(ops["start"], ops["end"]),
            "device": device,
            "stream": stream,
            "pid": number_texts(device),
            "tid": number_texts(stream),
            "correlation": api,
            "bytes": size,
            **columns,
            "args": json_objects(arguments, len(mine)),
        },
    )


def _others(tables: _Tables, table: str, keys: pa.Array) -> dict[str, pa.Array]:
    """The columns of a table that have no typed column, as arguments."""
    key = _KEYS[table]
    if not tables.database.has(table, key):
        return {}
    types = declared_types(tables.database, table)
    names = [name for name in types if name not in _TYPED[table]]
    found = Lookup(
        read_table(tables.database, table, {key: _INT} | {name: types[name] for name in names}), key
    )
    values = {name: found.values(keys, name) for name in names}
    return {
        f"rpd.{name}": json_texts(array) if pa.types.is_string(array.type) else array
        for name, array in values.items()
    }


def _launch_shape(
    tables: _Tables, api: pa.Array
) -> tuple[list[pa.Array], list[pa.Array], pa.Array, dict[str, pa.Array]]:
    """Grid in blocks, block in threads, name and other columns of the kernel that an API row launched.

    The grid in the file counts threads.
    """
    columns = {f"{kind}{axis}": _INT for kind in ("grid", "workgroup") for axis in _AXES}
    table = read_table(
        tables.database, "rocpd_kernelapi", {"api_ptr_id": _INT, "kernelName_id": _INT} | columns
    )
    launches = Lookup(table, "api_ptr_id")
    block = [_positive(launches.values(api, f"workgroup{axis}")) for axis in _AXES]
    threads = [_positive(launches.values(api, f"grid{axis}")) for axis in _AXES]
    grid = [
        pc.divide(pc.add(total, pc.subtract(size, 1)), size)
        for total, size in zip(threads, block, strict=True)
    ]
    others = _others(tables, "rocpd_kernelapi", api) | _others(tables, "rocpd_copyapi", api)
    return grid, block, launches.values(api, "kernelName_id"), others


def _copy_bytes(tables: _Tables, api: pa.Array) -> pa.Array:
    table = read_table(tables.database, "rocpd_copyapi", {"api_ptr_id": _INT, "size": _INT})
    return Lookup(table, "api_ptr_id").values(api, "size")


def _add_calls(tables: _Tables, pid: int, rows: ActivityRows) -> None:
    """HIP calls, operators and annotations of a process."""
    api = tables.api.filter(pc.equal(tables.api.column("pid"), pid))
    if not api.num_rows:
        return
    found = {name: api.column(name).combine_chunks() for name in api.column_names}
    names, args = pc.fill_null(tables.text(found["apiName_id"]), ""), tables.text(found["args_id"])
    types = {"api_ptr_id": _INT, "autogradName_id": _INT, "seq": _TEXT, "op_id": _TEXT, "sizes": _TEXT}
    operators = Lookup(read_table(tables.database, "ext_autogradapi", types), "api_ptr_id")
    is_marker, is_call = pc.equal(names, _MARKER), pc.starts_with(names, "hip")
    is_operator = pc.and_(is_marker, pa.array(operators.rows(found["id"]) >= 0))
    operator = tables.text(operators.values(found["id"], "autogradName_id"))
    shapes = pc.replace_substring(operators.values(found["id"], "sizes"), " ", "")
    shapes = pc.if_else(
        pc.match_substring_regex(shapes, r"^\[[0-9,\[\]-]*\]$"), shapes, pa.scalar(None, _TEXT)
    )
    numbers = {name: _integers(operators.values(found["id"], name)) for name in ("seq", "op_id")}
    category = pc.case_when(
        pc.make_struct(is_operator, is_marker, is_call),
        "cpu_op",
        "user_annotation",
        "cuda_runtime",
        "overhead",
    )
    correlation = pc.if_else(is_call, found["id"], pa.scalar(None, _INT))
    text = pc.if_else(is_marker, pa.scalar(None, _TEXT), pc.if_else(pc.equal(args, ""), None, args))
    arguments = {
        "correlation": correlation, "Sequence number": numbers["seq"], "Input Dims": shapes,
        "rpd.op_id": numbers["op_id"], "rpd.args": json_texts(text),
    }  # fmt: skip
    rows.add(
        api.num_rows,
        {
            "ph": pa.scalar("X"),
            "category": category,
            "raw_category": category,
            "name": pc.if_else(is_operator, operator, pc.if_else(is_marker, args, names)),
            **_times(found["start"], found["end"]),
            "pid": number_texts(found["pid"]),
            "tid": number_texts(found["tid"]),
            "correlation": correlation,
            "sequence_number": numbers["seq"],
            "shapes": shapes,
            "args": json_objects(arguments, api.num_rows),
            HAS_TEXT: text.is_valid(),
        },
    )


def _add_monitor(tables: _Tables, rows: ActivityRows) -> None:
    """Counters such as the clock rate of a device; values are text in the file."""
    types = {"deviceId": _INT, "monitorType": _TEXT, "start": _INT, "value": _TEXT}
    found = read_table(tables.database, "rocpd_monitor", types)
    value = found.column("value").combine_chunks()
    number = pc.match_substring_regex(value, r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?$")
    found = found.filter(pc.fill_null(number, False))
    if not found.num_rows:
        return
    device, kind = (found.column(name).combine_chunks() for name in ("deviceId", "monitorType"))
    quoted = json_texts(pc.fill_null(kind, "value")).cast(_TEXT)
    values = found.column("value").combine_chunks()
    rows.add(
        found.num_rows,
        {
            "ph": pa.scalar("C"),
            "name": pc.binary_join_element_wise(
                "GPU ", number_texts(device), " ", pc.fill_null(kind, "value"), ""
            ),
            "ts_ns": found.column("start").combine_chunks(),
            "device": device,
            "pid": number_texts(device),
            "args": pc.binary_join_element_wise("{", quoted, ":", values, "}", ""),
        },
    )


def _times(start: pa.Array, end: pa.Array) -> dict[str, pa.Array]:
    length = pc.subtract(end, start)
    return {"ts_ns": start, "dur_ns": pc.if_else(pc.less(length, 0), pa.scalar(None, _INT), length)}


def _labels(texts: pa.Array, known: Mapping[str, str]) -> pa.Array:
    encoded = texts.dictionary_encode()
    labels = pa.array([known.get(text) for text in encoded.dictionary.to_pylist()], _TEXT)
    return labels.take(encoded.indices)


def _only(is_copy: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(is_copy, pa.scalar(None, _INT), values)


def _positive(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(values, 0), values, pa.scalar(None, _INT))


def _integers(texts: pa.Array) -> pa.Array:
    plain = pc.match_substring_regex(texts, r"^[0-9]{1,18}$")
    return pc.if_else(plain, texts, pa.scalar(None, _TEXT)).cast(_INT)


def _metadata(database: Database) -> dict[str, str]:
    table = read_table(database, "rocpd_metadata", {"tag": _TEXT, "value": _TEXT})
    pairs = zip(table.column("tag").to_pylist(), table.column("value").to_pylist(), strict=True)
    return {tag: value for tag, value in pairs if tag is not None and value is not None}
