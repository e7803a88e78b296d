"""Counters: sampled GPU metrics, and device memory in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracewarehouse.formats.json_objects import json_texts
from tracewarehouse.formats.nsys import schema
from tracewarehouse.formats.source_tables import Context, SourceBatch, declared_types, number_texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracewarehouse.formats.activity_rows import ActivityRows

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
