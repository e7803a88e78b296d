"""Temporal breakdown, overlap, kernels by type and by name."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl

import tracewarehouse as tw
from witness.hta.frame import Frame, Rank, frames
from witness.hta.method import US, Method, Table, by_device, columns, percent
from witness.hta.rules import Fails, Rules
from witness.hta.spans import length, merged, order_down, sweep, sweep_by_turns

LOAD = ("last_list", "rounding", "last_step", "many", "join")
GPU = (*LOAD, "stream", "names", "devices")
NO_GPU = "no GPU activity: the last of an empty list is requested for"


# Temporal breakdown


def temporal(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device): idle, compute, the rest of busy, window; each of the first three in % of the window."""
    found = {}
    for frame in frames(ranks, rules):
        if "devices" in rules and frame.gpu.is_empty():
            raise Fails("IndexError", 12, NO_GPU)
        for device, rows in frame.devices():
            found[frame.rank, device] = _asserted(_split(rows, frame.dtype), rules)
    return found


def _asserted(split: tuple[float, ...], rules: Rules) -> tuple[float, ...]:
    idle, compute, rest, window, *_ = split
    if "rounding" in rules and (idle > window or compute > window or rest < 0):
        raise Fails("AssertionError", 4, "lengths of -1 µs make more compute than there is busy time")
    return split


def _split(rows: pl.DataFrame, dtype: np.dtype | None) -> tuple[float, ...]:
    starts, ends = merged(rows, dtype)
    window = int(ends[-1] - starts[0])
    idle = window - length((starts, ends))
    compute = length(merged(rows.filter(pl.col("kind") == "computation"), dtype))
    return _shares(idle, compute, window - compute - idle, window)


def _shares(idle: int, compute: int, rest: int, window: int) -> tuple[float, ...]:
    return idle, compute, rest, window, *(percent(part, window) for part in (idle, compute, rest))


def temporal_said(answer: Any) -> Table:
    rows = columns(
        answer,
        *("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"),
        *("idle_time_pctg", "compute_time_pctg", "non_compute_time_pctg"),
    )
    times = [(*(US * time for time in row[:4]), *row[4:]) for row in rows]
    return {(rank, None): row for rank, row in zip(answer["rank"], times, strict=True)}


def temporal_ours(warehouse: tw.Warehouse) -> Table:
    return {
        key: _shares(row["idle_ns"], row["compute_ns"], row["busy_ns"] - row["compute_ns"], row["window_ns"])
        for key, row in by_device(warehouse.analyze("temporal_breakdown").rows())
    }


# Overlap of communication with computation


def overlap(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device): % of communication that computation hid; NaN without communication."""
    found = {}
    for frame in frames(ranks, rules):
        groups = frame.devices() or ([(None, frame.gpu)] if "denominator" in rules else [])
        for device, rows in groups:
            found[frame.rank, device] = (_hidden(rows, frame.dtype),)
    return found


def _hidden(rows: pl.DataFrame, dtype: np.dtype | None) -> float:
    communication, computation = (
        merged(rows.filter(pl.col("kind") == kind), dtype) for kind in ("communication", "computation")
    )
    state, lasts = sweep([(1, communication), (2, computation)], dtype)
    return percent(int(lasts[state == 3].sum()), length(communication))


def overlap_said(answer: Any) -> Table:
    return {(rank, None): (share,) for rank, share in columns(answer, "rank", "comp_comm_overlap_pctg")}


def overlap_ours(warehouse: tw.Warehouse) -> Table:
    return {
        key: (percent(row["overlap_ns"], row["comm_ns"]),)
        for key, row in by_device(warehouse.analyze("comm_comp_overlap").rows())
    }


# Kernels by type

TYPES = ("computation", "communication", "memory", "other")


def types(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, types at once): time, % of all classes."""
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for frame in frames(ranks, rules):
        for device, rows in frame.devices():
            key = (None, None) if "ranks" in rules else (None if len(ranks) == 1 else frame.rank, device)
            for name, time in _classes(rows, rules, frame.dtype).items():
                found[*key, name] += time
    if not found and "ranks" in rules:
        raise Fails("ValueError", 12, "no GPU activity")
    return _with_share(found)


def _classes(rows: pl.DataFrame, rules: Rules, dtype: np.dtype | None) -> dict[str, int]:
    names = TYPES[:3] if "other" in rules else TYPES
    pieces = [
        (1 << bit, merged(rows.filter(pl.col("kind") == kind), dtype)) for bit, kind in enumerate(names)
    ]
    state, lasts = sweep_by_turns(pieces)
    if "rounding" in rules:
        lasts = np.trunc(lasts / US).astype(np.int64) * US
    return {
        "+".join(kind for bit, kind in enumerate(names) if at & (1 << bit)): int(lasts[state == at].sum())
        for at in np.unique(state[state > 0]).tolist()
    }


def _with_share(times: dict[tuple[Any, ...], int]) -> Table:
    whole: dict[tuple[Any, ...], int] = defaultdict(int)
    for key, time in times.items():
        whole[key[:2]] += time
    return {key: (time, percent(time, whole[key[:2]])) for key, time in times.items() if time}


def types_ours(warehouse: tw.Warehouse) -> Table:
    rows = warehouse.analyze("kernel_type_breakdown").rows()
    alone = len({row["rank"] for row in rows}) == 1
    found = {}
    for (rank, device), row in by_device(rows):
        found[None if alone else rank, device, row["class"]] = (row["class_ns"], 100 * row["share"])
    return found


def types_said(answer: Any) -> Table:
    found = {}
    for name, time, share in columns(answer[0], "kernel_type", "sum", "percentage"):
        if time:
            found[None, None, name.lower().replace(" overlapping ", "+")] = (US * time, share)
    return found


# Kernels by name


def kernels(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, device, kind, name): sum, max, min, mean, standard deviation (0 of one row)."""
    found = {}
    for frame in frames(ranks, rules):
        for (device, kind, name), row in _by_name(frame, rules).items():
            found[frame.rank, device, kind, name] = row
    return found


def _by_name(frame: Frame, rules: Rules) -> dict[tuple[Any, ...], tuple[float, ...]]:
    rows = frame.gpu
    if "other" in rules:
        rows = rows.filter(pl.col("kind") != "other")
    single = rows["unit"].n_unique() < 2
    grouped = rows.group_by("unit", "kind", "name").agg(
        pl.col("dur").sum().alias("sum"),
        pl.col("dur").max().alias("max"),
        pl.col("dur").min().alias("min"),
        pl.col("dur").mean().alias("mean"),
        pl.col("dur").std().fill_null(0).alias("std"),
    )
    return {(None if single else row[0], *row[1:3]): row[3:] for row in grouped.rows()}


def kernels_said(answer: Any) -> Table:
    rows = columns(
        answer[1], "rank", "kernel_type", "name", "sum (us)", "max (us)", "min (us)", "mean (us)", "stddev"
    )
    return {
        (rank, None, kind.lower(), name): tuple(US * value for value in rest)
        for rank, kind, name, *rest in rows
    }


def kernels_ours(warehouse: tw.Warehouse) -> Table:
    return {
        (*key, row["kind"], row["name"]): (
            row["sum_ns"],
            row["max_ns"],
            row["min_ns"],
            row["mean_ns"],
            row["std_ns"] or 0.0,
        )
        for key, row in by_device(warehouse.analyze("kernel_summary").rows())
    }


def folded(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """The same with the ten largest of each kind and the rest as `others`, folded rightly or as HTA does."""
    found: Table = {}
    for frame in frames(ranks, rules):
        groups: dict[tuple[Any, ...], dict[str, tuple[float, ...]]] = defaultdict(dict)
        for (device, kind, name), row in _by_name(frame, rules).items():
            groups[device, kind][name] = row
        for (device, kind), named in groups.items():
            few = named if len(named) <= 10 or "aggregate" not in rules else _fold(named)
            found |= {(frame.rank, device, kind, name): row for name, row in few.items()}
    return found


def _fold(named: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    by_name = sorted(named.items())
    largest = order_down(np.array([row[0] for _, row in by_name], dtype=np.int64))
    ordered = [by_name[at] for at in largest]
    sums = np.array([row[0] for _, row in ordered], dtype=float)
    limit = float(np.quantile(np.cumsum(sums), 0.8))
    kept = [at < 10 and total <= limit for at, total in enumerate(np.cumsum(sums))]
    parts: dict[str, list[float]] = defaultdict(list)
    for (name, row), keep in zip(ordered, kept, strict=True):
        parts[name if keep else "others"].append(row[0])
    return {name: _statistics(sums) for name, sums in parts.items()}


def _statistics(values: list[float]) -> tuple[float, ...]:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return sum(values), max(values), min(values), sum(values) / len(values), spread


METHODS = [
    Method(
        "get_temporal_breakdown",
        GPU,
        temporal_said,
        temporal,
        temporal_ours,
        within=(0.5, 0.5, 0.5, 0.5, 0.005, 0.005, 0.005),
    ),
    Method(
        "get_comm_comp_overlap", (*GPU, "denominator"), overlap_said, overlap, overlap_ours, within=(0.005,)
    ),
    Method(
        "get_gpu_kernel_breakdown",
        (*GPU, "other", "ranks"),
        types_said,
        types,
        types_ours,
        within=(0.5, 0.05),
        note="types",
    ),
    Method(
        "get_gpu_kernel_breakdown",
        (*GPU, "other"),
        kernels_said,
        kernels,
        kernels_ours,
        within=(0.5, 0.5, 0.5, 1e-3, 1e-3),
        note="kernels",
    ),
    Method(
        "get_gpu_kernel_breakdown(10)",
        (*GPU, "other", "aggregate"),
        kernels_said,
        folded,
        kernels_ours,
        within=(0.5, 0.5, 0.5, 1e-3, 1e-3),
        note="kernels",
    ),
]
