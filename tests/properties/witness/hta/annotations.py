"""Annotations: how long each took, and which one HTA gives to a GPU activity."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

import tracewarehouse as tw
from witness.hta.breakdowns import LOAD
from witness.hta.frame import SYNCS, Frame, Rank, frames
from witness.hta.method import US, Method, Table, columns
from witness.hta.rules import Fails, Rules
from witness.hta.spans import order_down


def breakdown(ranks: tuple[Rank, ...], rules: Rules, category: str = "gpu_user_annotation") -> Table:
    """(rank, name): sum, max, min, mean, standard deviation (0 of one row)."""
    found: Table = {}
    for frame in frames(ranks, rules):
        grouped = (
            frame.rows.filter(pl.col("cat") == category)
            .group_by("name")
            .agg(
                pl.col("dur").sum().alias("sum"),
                pl.col("dur").max().alias("max"),
                pl.col("dur").min().alias("min"),
                pl.col("dur").mean().alias("mean"),
                pl.col("dur").std().fill_null(0).alias("std"),
            )
        )
        found |= {(frame.rank, row[0]): row[1:] for row in grouped.rows()}
    return found


def host_breakdown(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    return breakdown(ranks, rules, "user_annotation")


def breakdown_said(answer: Any) -> Table:
    if answer is None:
        return {}
    rows = columns(answer, "rank", "name", "sum (us)", "max (us)", "min (us)", "mean (us)", "stddev")
    return {(rank, name): tuple(US * each for each in rest) for rank, name, *rest in rows}


def breakdown_ours(warehouse: tw.Warehouse, on_gpu: bool = True) -> Table:
    rows = [row for row in warehouse.analyze("annotation_breakdown").rows() if row["on_gpu"] == on_gpu]
    numbers = ("sum_ns", "max_ns", "min_ns", "mean_ns", "std_ns")
    return {(row["rank"], row["name"]): tuple(row[each] or 0 for each in numbers) for row in rows}


def host_breakdown_ours(warehouse: tw.Warehouse) -> Table:
    return breakdown_ours(warehouse, on_gpu=False)


def around_launch(frame: Frame) -> Table:
    """(rank, GPU activity): the innermost annotation that holds the start of its launch on that thread."""
    notes = frame.rows.filter((pl.col("category") == "user_annotation") & pl.col("nests"))
    calls = frame.rows.filter("runtime").select(runtime_id="index", pid="pid", tid="tid", call="ts")
    rows = frame.gpu.select("index", "runtime_id").join(calls, on="runtime_id", how="left")
    if rows["call"].is_null().all():
        return {}
    found: Table = {(frame.rank, at): ("",) for at in rows["index"]}
    for (pid, tid), each in rows.filter(pl.col("call").is_not_null()).group_by("pid", "tid"):
        of_thread = notes.filter((pl.col("pid") == pid) & (pl.col("tid") == tid))
        by_start = of_thread.sort(["ts", "dur", "index"], descending=[False, True, False])
        starts, ends = by_start["ts"].to_numpy(), (by_start["ts"] + by_start["dur"]).to_numpy()
        names = by_start["name"].to_list()
        for at, call in each.select("index", "call").rows():
            holding = np.flatnonzero((starts <= call) & (ends > call))
            if len(holding):
                found[frame.rank, at] = (names[holding[-1]],)
    return found


def labels_ours(warehouse: tw.Warehouse) -> Table:
    rows = warehouse.analyze("kernels_by_annotation").rows()
    first = min((row["rank"] for row in rows), default=0)
    return {
        (row["rank"], row["kernel_id"]): (row["annotation"] or "",) for row in rows if row["rank"] == first
    }


def labels(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(rank, GPU activity): the annotation of its stream that overlaps it, of several the shortest."""
    frame = frames(ranks, rules)[0]
    if "on_stream" not in rules:
        return around_launch(frame)
    marks = frame.rows.filter(pl.col("cat") == "gpu_user_annotation")
    if marks.is_empty() and not any((rank.rows["cat"] == "gpu_user_annotation").any() for rank in ranks):
        return {}
    rows = frame.gpu
    if "stream" in rules:
        like = (pl.col("arg_stream") >= 0) & (pl.col("correlation") >= 0)
        rows = frame.rows.filter(like | pl.col("name").is_in(SYNCS))
    if "rounding" in rules and (rows["dur"].min() or 0) < 0:
        raise Fails("ValueError", 4, "a length of -1 µs is not an interval")
    found: Table = {}
    for (pid, tid), each in rows.group_by("pid", "tid"):
        of_stream = marks.filter((pl.col("pid") == pid) & (pl.col("tid") == tid))
        names = _labels(each, of_stream)
        found |= {(frame.rank, at): (name,) for at, name in zip(each["index"], names, strict=True)}
    return found


def _labels(rows: pl.DataFrame, marks: pl.DataFrame) -> list[str]:
    start, end = rows["ts"].to_numpy(), (rows["ts"] + rows["dur"]).to_numpy()
    found = np.full(len(rows), "", dtype=object)
    longest_first = marks[order_down(marks["dur"].to_numpy())]
    for ts, dur, name in longest_first.select("ts", "dur", "name").rows():
        found[(start < ts + dur) & (ts < end)] = name
    return list(found)


def labels_said(answer: Any) -> Table:
    found: Table = {}
    for rank, table in answer.items():
        if table is not None:
            rows = columns(table, "index", "s_user_annotation")
            found |= {(int(rank), at): (name,) for at, name in rows}
    return found


METHODS = [
    Method(
        "get_gpu_user_annotation_breakdown",
        LOAD,
        breakdown_said,
        breakdown,
        breakdown_ours,
        within=(0.5, 0.5, 0.5, 1e-3, 1e-3),
    ),
    Method(
        "get_gpu_user_annotation_breakdown(host)",
        LOAD,
        breakdown_said,
        host_breakdown,
        host_breakdown_ours,
        within=(0.5, 0.5, 0.5, 1e-3, 1e-3),
    ),
    Method(
        "get_gpu_kernels_with_user_annotations",
        (*LOAD, "stream", "on_stream"),
        labels_said,
        labels,
        labels_ours,
    ),
]
