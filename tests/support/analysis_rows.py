"""Rows of analyses that can be compared between formats of the same run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import tracewarehouse as tw

Row = Mapping[str, Any]
# Analyses that read every table of a rank of a training job between them, with ids of events.
SAMPLE: Final = (
    "temporal_breakdown",
    "kernel_summary",
    "launch_stats",
    "step_account",
    "step_kernels",
    "op_summary",
    "op_kernel_delays",
    "kernels_by_annotation",
    "stream_idle_intervals",
    "memory_bandwidth",
    "collective_waits",
    "memory_by_op",
    "name_summary",
    "key_averages",
    "host_stacks",
    "node_summary",
    "exposed_comm",
    "slow_links",
)
# Need collectives that match across ranks, which a file without process groups does not have.
OF_GROUPS: Final = ("exposed_comm", "slow_collectives", "slow_rank", "what_if")
EVENT_IDS: Final = (
    "event_id", "kernel_id", "runtime_id", "op_id", "annotation_id", "call_id", "after_id", "before_id",
)  # fmt: skip


def events(warehouse: tw.Warehouse) -> dict[tuple[int, int], tuple[Any, ...]]:
    """(rank, event_id) → what the event is."""
    sql = "SELECT rank, event_id, ts_ns, dur_ns, category, name, pid, tid FROM events"
    return {(row["rank"], row["event_id"]): tuple(row.values())[2:] for row in warehouse.query(sql).rows()}


def answers(warehouse: tw.Warehouse, name: str, known: Mapping[tuple[int, int], Any]) -> list[dict[str, Any]]:
    """The rows of an analysis; an event id is replaced by the event."""
    rows = []
    for found in warehouse.analyze(name).rows():
        row = dict(found)
        for column in EVENT_IDS:
            if row.get(column) is not None:
                row[column] = known[row["rank"], row[column]]
        rows.append(row)
    return rows


def comparable(name: str, rows: Iterable[Row], not_carried: Mapping[str, tuple[str, ...]]) -> list[Row]:
    """The rows that both formats record, without the columns that are not carried."""
    dropped = not_carried.get(name, ())
    kept = [{key: value for key, value in row.items() if key not in dropped} for row in rows]
    if name == "annotation_breakdown":  # copies of annotations on the GPU
        kept = [row for row in kept if not row["on_gpu"]]
    if name == "name_summary":  # Python frames and allocations
        kept = [row for row in kept if row["category"] not in ("python_function", "cpu_instant_event")]
    if name == "host_account":  # Python frames
        kept = [row for row in kept if row["category"] in ("operator", "call", "data_loading")]
    if name == "host_stacks":  # Python frames are part of the stacks
        keys = ("rank", "category", "name", "count")
        measured = [{**{key: row[key] for key in keys}, "sum_ns": row["self_ns"]} for row in kept]
        return summed(row for row in measured if row["category"] in ("operator", "call", "data_loading"))
    if name in ("step_kernels", "window_kernels"):
        return summed(kept)
    return kept


def differing(
    kineto: tw.Warehouse,
    other: tw.Warehouse,
    *,
    abstaining: Mapping[str, str],
    not_carried: Mapping[str, tuple[str, ...]],
    null: tuple[str, ...] = (),
    names: Iterable[str] | None = None,
) -> list[str]:
    """The analyses that answer differently on the same run in another format, in the order of the catalog.

    `abstaining`: analyses that need what the format lacks, with the reason they must give. `not_carried`: the
    columns that are not compared; those in `null` must be null. `names`: of these analyses; None: of all.
    """
    known, read = events(kineto), events(other)
    found = []
    for name in (analysis.name for analysis in kineto.catalog.analyses()) if names is None else names:
        expected, answered = answers(kineto, name, known), answers(other, name, read)
        if name in abstaining and expected:
            assert answered == [] and abstaining[name] in str(other.analyze(name).skipped), name
            continue
        absent = [column for column in not_carried.get(name, ()) if column in null]
        assert all(row[column] is None for row in answered for column in absent), name
        if comparable(name, answered, not_carried) != comparable(name, expected, not_carried):
            found.append(name)
    return found


def summed(rows: Iterable[Row]) -> list[Row]:
    """Counts and times per remaining key."""
    measures = ("count", "sum_ns", "exclusive_ns")
    total: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        key = tuple(value for name, value in row.items() if name not in measures)
        total.setdefault(key, Counter()).update({name: row[name] for name in measures if name in row})
    return sorted(({"key": key, **sums} for key, sums in total.items()), key=repr)
