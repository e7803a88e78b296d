"""GPU activities: kernels, memory copies and sets, graph replays, and synchronization records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.json_text import json_lists, json_texts
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.nsys.schema import process_rows
from tracewarehouse.formats.source_tables import (
    HAS_TEXT,
    Context,
    SourceBatch,
    counted,
    declared_types,
    encoded_numbers,
    number_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracewarehouse.formats.source_tables import ActivityRows


def add_device_activities(context: Context, rows: ActivityRows) -> None:
    """Adds the GPU activities and synchronization records of the process."""
    for found in _batches(context, schema.KERNEL):
        rows.add(found.rows, _kernels(found))
    for found in _batches(context, schema.MEMCPY):
        kind = found.labels("copyKind", schema.COPY_KINDS, "Unknown")
        source, target = (
            found.labels(name, schema.MEMORY_KINDS, "Unknown") for name in ("srcKind", "dstKind")
        )
        name = pc.binary_join_element_wise("Memcpy ", kind, " (", source, " -> ", target, ")", "")
        rows.add(found.rows, _transfers(found, "gpu_memcpy", name))
    for found in _batches(context, schema.MEMSET):
        kind = found.labels("memKind", schema.MEMORY_KINDS, "Unknown")
        name = pc.binary_join_element_wise("Memset (", kind, ")", "")
        rows.add(found.rows, _transfers(found, "gpu_memset", name))
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
        "cuda_sync_kind": pc.binary_join_element_wise('"', kind, '"', ""),
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


_DEALLOCATION: Final = 1
# The GPU is in the low bits of a metric's typeId.
_GPU_BITS: Final = 0xFF


def add_counters(context: Context, rows: ActivityRows) -> None:
    """Adds GPU metrics of the devices of the process, and its device memory in use."""
    _add_memory_usage(context, rows)
    _add_metrics(context, rows)


def _add_memory_usage(context: Context, rows: ActivityRows) -> None:
    """One counter per device and kind of memory: the bytes in use after each allocation and release."""
    database, table = context.database, schema.MEMORY_USAGE
    if not database.has(table, "start", "globalPid", "bytes", "memoryOperationType"):
        return
    columns = declared_types(database, table)
    where = schema.process_condition("globalPid", context.pid)
    parts = list(database.batches(table, columns, where))
    if not parts:
        return
    found = SourceBatch(context, table, pa.Table.from_batches(parts).combine_chunks().to_batches()[0])
    found = SourceBatch(context, table, found.batch.take(pc.sort_indices(found.batch.column("start"))))
    device, kind = found.ints("deviceId"), found.labels("memKind", schema.MEMORY_KINDS, "Unknown")
    size = found.ints("bytes")
    released = pc.equal(found.ints("memoryOperationType"), _DEALLOCATION)
    change = pc.fill_null(pc.if_else(released, pc.negate(size), size), 0).to_numpy()
    in_use = _running_sums(change, device, kind)
    found.ints("globalPid")
    times = found.times(end=None)
    series = {"bytes": pa.array(in_use), "nsys.bytes": size, "nsys.released": pc.cast(released, pa.int64())}
    name = pc.binary_join_element_wise("GPU ", number_texts(device), " memory (", kind, ")", "")
    rows.add(
        found.rows,
        {
            "ph": pa.scalar("C"),
            "name": name,
            **times,
            "pid": number_texts(device),
            "device": device,
            "args": found.arguments(series, skip=tuple(found.batch.schema.names)),
        },
    )


def _running_sums(change: np.ndarray, device: pa.Array, kind: pa.Array) -> np.ndarray:
    """The sum of the changes so far of each device and kind."""
    keys = pc.binary_join_element_wise(number_texts(device), kind, "/")
    codes = pc.fill_null(keys.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
    found = np.zeros(len(change), np.int64)
    for code in np.unique(codes):
        rows = codes == code
        found[rows] = np.cumsum(change[rows])
    return found


def _add_metrics(context: Context, rows: ActivityRows) -> None:
    database, table = context.database, schema.GPU_METRICS
    names = _metric_names(context)
    if not database.has(table, "timestamp", "typeId", "metricId", "value") or not names:
        return
    devices = _devices_of_process(context)
    columns = {"timestamp": pa.int64(), "typeId": pa.int64(), "metricId": pa.int64(), "value": pa.float64()}
    for batch in database.batches(table, columns):
        gpu = pc.bit_wise_and(batch.column("typeId"), _GPU_BITS)
        batch = batch.filter(pc.is_in(gpu, value_set=pa.array(sorted(devices), pa.int64())))
        if batch.num_rows:
            _add_samples(SourceBatch(context, table, batch), names, devices, rows)


def _add_samples(
    found: SourceBatch, names: Mapping[tuple[int, int], str], devices: Mapping[int, int], rows: ActivityRows
) -> None:
    kinds, metrics = found.ints("typeId"), found.ints("metricId")
    keys = list(zip(kinds.to_pylist(), metrics.to_pylist(), strict=True))
    name = pa.array([names.get(key, f"metric {key[1]}") for key in keys], pa.string())
    device = pa.array([devices[kind & _GPU_BITS] for kind, _ in keys], pa.int64())
    values = found.batch.column("value").cast(pa.string())
    args = pc.binary_join_element_wise("{", json_texts(name).cast(pa.string()), ":", values, "}", "")
    rows.add(
        found.rows,
        {
            "ph": pa.scalar("C"),
            "name": name,
            **found.times("timestamp", None),
            "pid": number_texts(device),
            "device": device,
            "args": args,
        },
    )


def _metric_names(context: Context) -> dict[tuple[int, int], str]:
    """(typeId, metricId) → name."""
    database, table = context.database, schema.METRIC_NAMES
    if not database.has(table, "metricId", "metricName"):
        return {}
    found = {}
    columns = {"typeId": pa.int64(), "metricId": pa.int64(), "metricName": pa.string()}
    for batch in database.batches(table, columns):
        for row in batch.to_pylist():
            if row["metricName"] is not None and row["metricId"] is not None:
                found[row["typeId"] or 0, row["metricId"]] = row["metricName"]
    return found


def _devices_of_process(context: Context) -> dict[int, int]:
    """GPU → CUDA device of the process: from the device table, else equal numbers."""
    database = context.database
    if database.has(schema.CUDA_DEVICES, "gpuId", "cudaId"):
        where = ('"pid" = ?', (context.pid,)) if database.has(schema.CUDA_DEVICES, "pid") else None
        columns = {"gpuId": pa.int64(), "cudaId": pa.int64()}
        pairs = [
            row
            for batch in database.batches(schema.CUDA_DEVICES, columns, where)
            for row in batch.to_pylist()
        ]
        if pairs:
            return {row["gpuId"]: row["cudaId"] for row in pairs if None not in row.values()}
    used = set()
    for table in schema.GPU_TABLES:
        if database.has(table, "deviceId", "globalPid"):
            condition, values = schema.process_condition("globalPid", context.pid)
            sql = f'SELECT DISTINCT "deviceId" FROM "{table}" NOT INDEXED WHERE {condition}'
            used |= {row[0] for row in database.rows(sql, values) if isinstance(row[0], int)}
    return {device: device for device in sorted(used)}
