"""GPU activities: kernels, memory copies and sets, graph replays, and synchronization records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.activity_rows import HAS_TEXT
from tracewarehouse.formats.json_objects import json_lists
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.process_rows import process_rows
from tracewarehouse.formats.source_tables import (
    Context,
    SourceBatch,
    counted,
    declared_types,
    encoded_numbers,
    number_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracewarehouse.formats.activity_rows import ActivityRows


def add_device_activities(context: Context, rows: ActivityRows) -> None:
    """Adds the GPU activities and synchronization records of the process."""
    for found in _batches(context, schema.KERNEL):
        rows.add(found.rows, _kernels(found))
    for found in _batches(context, schema.MEMCPY):
        rows.add(found.rows, _copies(found))
    for found in _batches(context, schema.MEMSET):
        rows.add(found.rows, _sets(found))
    for found in _batches(context, schema.GRAPH):
        rows.add(found.rows, _graph_replays(found))
    for found in _batches(context, schema.SYNC):
        rows.add(found.rows, _synchronizations(found))


def _batches(context: Context, table: str) -> Iterator[SourceBatch]:
    database = context.database
    if table not in database.tables:
        return
    columns = declared_types(database, table)
    has_process = "globalPid" in columns
    for batch in (
        process_rows(context, table, columns, "globalPid")
        if has_process
        else database.batches(table, columns)
    ):
        yield SourceBatch(context, table, batch)


def _placement(found: SourceBatch) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """Device, stream and correlation as columns, and as arguments with Kineto's names."""
    device, stream = found.ints("deviceId"), found.ints("streamId")
    correlation, context = found.ints("correlationId"), found.ints("contextId")
    found.ints("globalPid")  # the part
    columns = {
        "device": device,
        "stream": stream,
        "correlation": correlation,
        "pid": encoded_numbers(device),
        "tid": encoded_numbers(stream),
    }
    arguments = {"device": device, "context": context, "stream": stream, "correlation": correlation}
    return columns, arguments


def _slice(found: SourceBatch, category: str, name: pa.Array) -> dict[str, pa.Array | pa.Scalar]:
    """The columns that every record has."""
    return {
        "ph": pa.scalar("X"),
        "category": pa.scalar(category),
        "raw_category": pa.scalar(category),
        "name": name,
        **found.times(),
    }


def _graph(found: SourceBatch) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    graph, node = found.ints("graphId"), found.ints("graphNodeId")
    return {"graph_id": graph, "graph_node_id": node}, {"graph id": graph, "graph node id": node}


def _kernels(found: SourceBatch) -> dict[str, pa.Array | pa.Scalar]:
    columns, arguments = _placement(found)
    graph_columns, graph_arguments = _graph(found)
    grid = [found.ints(f"grid{axis}") for axis in "XYZ"]
    block = [found.ints(f"block{axis}") for axis in "XYZ"]
    registers = found.ints("registersPerThread")
    static, dynamic = found.ints("staticSharedMemory"), found.ints("dynamicSharedMemory")
    shared = pc.add(static, dynamic)
    name = found.first_strings("demangledName", "shortName", "mangledName")
    arguments |= {
        "grid": json_lists(*grid),
        "block": json_lists(*block),
        "registers per thread": registers,
        "shared memory": shared,
        **graph_arguments,
        "nsys.staticSharedMemory": static,
        "nsys.dynamicSharedMemory": dynamic,
    }
    return {
        **_slice(found, "kernel", name),
        **columns,
        **{f"grid_{axis}": values for axis, values in zip("xyz", grid, strict=True)},
        **{f"block_{axis}": values for axis, values in zip("xyz", block, strict=True)},
        "registers_per_thread": registers,
        "shared_memory_bytes": shared,
        **graph_columns,
        "args": found.arguments(arguments),
        HAS_TEXT: found.has_text,
    }


def _copies(found: SourceBatch) -> dict[str, pa.Array | pa.Scalar]:
    kind = found.labels("copyKind", schema.COPY_KINDS, "Unknown")
    source, target = (found.labels(name, schema.MEMORY_KINDS, "Unknown") for name in ("srcKind", "dstKind"))
    name = pc.binary_join_element_wise("Memcpy ", kind, " (", source, " -> ", target, ")", "")
    return _transfers(found, "gpu_memcpy", name)


def _sets(found: SourceBatch) -> dict[str, pa.Array | pa.Scalar]:
    kind = found.labels("memKind", schema.MEMORY_KINDS, "Unknown")
    return _transfers(found, "gpu_memset", pc.binary_join_element_wise("Memset (", kind, ")", ""))


def _transfers(found: SourceBatch, category: str, name: pa.Array) -> dict[str, pa.Array | pa.Scalar]:
    columns, arguments = _placement(found)
    graph_columns, graph_arguments = _graph(found)
    size = found.ints("bytes")
    return {
        **_slice(found, category, name),
        **columns,
        "bytes": size,
        **graph_columns,
        "args": found.arguments({**arguments, "bytes": size, **graph_arguments}),
        HAS_TEXT: found.has_text,
    }


def _graph_replays(found: SourceBatch) -> dict[str, pa.Array | pa.Scalar]:
    """One record per replay of a graph; the kernels inside were not recorded."""
    columns, arguments = _placement(found)
    graph_columns, graph_arguments = _graph(found)
    found.context.notes.add("graph_level_trace", found.rows, f"{found.table}: {counted(found.rows, 'row')}")
    ids = number_texts(graph_columns["graph_id"])
    return {
        **_slice(found, "kernel", pc.binary_join_element_wise("CUDA graph ", pc.fill_null(ids, "?"), "")),
        **columns,
        **graph_columns,
        "args": found.arguments({**arguments, **graph_arguments}),
        HAS_TEXT: found.has_text,
    }


def _synchronizations(found: SourceBatch) -> dict[str, pa.Array | pa.Scalar]:
    device, context = found.ints("deviceId"), found.ints("contextId")
    correlation, stream = found.ints("correlationId"), found.ints("streamId")
    found.ints("globalPid")
    stream = pc.if_else(pc.equal(stream, schema.UNSET_32), pa.scalar(-1), stream)
    event = found.ints("eventId")
    event = pc.if_else(pc.equal(event, schema.UNSET_32), pa.scalar(None, pa.int64()), event)
    kind_column = "syncType" if "syncType" in found.batch.schema.names else "deprecatedSyncType"
    kind = found.labels(kind_column, schema.SYNC_KINDS)
    arguments = {
        "cuda_sync_kind": _quoted(kind),
        "wait_on_cuda_event_id": event,
        "stream": stream,
        "correlation": correlation,
        "device": device,
        "context": context,
    }
    return {
        **_slice(found, "cuda_sync", pc.fill_null(kind, "Unknown Sync")),
        "sync_kind": kind,
        "device": device,
        "stream": stream,
        "correlation": correlation,
        "pid": encoded_numbers(device),
        "tid": encoded_numbers(stream),
        "wait_on_event": event,
        "args": found.arguments(arguments),
        HAS_TEXT: found.has_text,
    }


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")
