"""Launch statistics, and the steps of the profiler."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

import tracewarehouse as tw
from witness.hta.breakdowns import LOAD
from witness.hta.frame import Frame, Rank, frames
from witness.hta.method import US, Method, Table, columns
from witness.hta.rules import Fails, Rules

STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "runFunction - job_prep_and_submit_for_execution")
COPIES = ("cudaMemcpyAsync", "cudaMemsetAsync")


# Launch statistics


def launch_stats(ranks: tuple[Rank, ...], rules: Rules, apis: tuple[str, ...] = LAUNCHES + COPIES) -> Table:
    """(rank, correlation, n-th of that id): call, GPU activity, from the call's return to the row's start."""
    found: Table = {}
    for frame in frames(ranks, rules):
        pairs = _by_id(frame, rules, apis) if "many" in rules else _by_launch(frame, rules, apis)
        delay = pl.col("start") - pl.col("call_start") - pl.col("call")
        pairs = pairs.with_columns(delay=delay.clip(lower_bound=0) if "delay" in rules else delay)
        rows = pairs.select("correlation", "call", "gpu_time", "delay").rows()
        found |= _numbered(frame.rank, rows)
    return found


def _by_launch(frame: Frame, rules: Rules, apis: tuple[str, ...]) -> pl.DataFrame:
    calls = frame.rows.select(runtime_id="index", api="name", call="dur", call_start="ts")
    pairs = frame.gpu.select("runtime_id", "correlation", gpu_time="dur", start="ts").join(
        calls, on="runtime_id"
    )
    return pairs.filter(pl.col("api").is_in(apis)) if "apis" in rules else pairs


def _by_id(frame: Frame, rules: Rules, apis: tuple[str, ...]) -> pl.DataFrame:
    calls = frame.rows.filter(pl.col("name").is_in(apis) if "apis" in rules else pl.col("runtime"))
    host = frame.rows.filter(~pl.col("gpu")).select("correlation", call="dur", call_start="ts")
    device = frame.gpu.select("correlation", gpu_time="dur", start="ts")
    host = host.filter(pl.col("correlation").is_in(calls["correlation"].implode()))
    return host.join(device, on="correlation", how="inner")


def _numbered(rank: int, rows: Iterable[tuple[Any, ...]]) -> Table:
    by_id: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for correlation, *rest in rows:
        by_id[correlation].append(tuple(rest))
    return {
        (rank, correlation, n): row
        for correlation, found in by_id.items()
        for n, row in enumerate(sorted(found))
    }


def launch_stats_said(answer: Any) -> Table:
    found: Table = {}
    for rank, table in answer.items():
        rows = columns(table, "correlation", "cpu_duration", "gpu_duration", "launch_delay")
        found |= _numbered(int(rank), [(int(row[0]), *(US * each for each in row[1:])) for row in rows])
    return found


def launch_stats_ours(warehouse: tw.Warehouse) -> Table:
    rows = warehouse.analyze("launch_stats").rows()
    ids = warehouse.query(
        "SELECT rank, event_id, coalesce(correlation, -1) AS correlation FROM kernels", limits=None
    ).rows()
    correlation = {(row["rank"], row["event_id"]): row["correlation"] for row in ids}
    found: Table = {}
    for rank in {row["rank"] for row in rows}:
        found |= _numbered(
            rank,
            [
                (
                    correlation[rank, row["kernel_id"]],
                    row["call_ns"],
                    row["kernel_ns"],
                    row["return_to_start_ns"],
                )
                for row in rows
                if row["rank"] == rank and row["runtime_id"] is not None
            ],
        )
    return found


def without_copies(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """The same over kernels only: by function for HTA, by what was launched for us."""
    return launch_stats(ranks, rules, LAUNCHES)


def default_ranks(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """The ranks that a method is about where none is named."""
    if "default" not in rules:
        return {(frame.rank,): () for frame in ranks}
    if all(rank.rank for rank in ranks):
        raise Fails("ValueError", 13, "ranks=None means rank 0, which is not there")
    return {(0,): ()}


# Steps


def steps(ranks: tuple[Rank, ...], rules: Rules) -> Table:
    """(step,) of any rank."""
    found: Table = {}
    for frame in frames(ranks, rules):
        names = frame.rows if "marks" in rules else frame.rows.filter(~pl.col("on_device"))
        for name in names["name"].unique():
            if mark := STEP.match(name or ""):
                found[int(mark[1]),] = ()
    return found


def steps_ours(warehouse: tw.Warehouse) -> Table:
    # Steps that are inferred from other names are none of HTA's.
    joined = "steps JOIN events USING (run_id, rank, event_id)"
    marked = warehouse.query(
        f"SELECT DISTINCT steps.step FROM {joined} WHERE starts_with(events.name, 'ProfilerStep#')"
    )
    return {(row["step"],): () for row in marked.rows()}


METHODS = [
    Method(
        "get_cuda_kernel_launch_stats",
        (*LOAD, "stream", "apis", "delay"),
        launch_stats_said,
        launch_stats,
        launch_stats_ours,
        within=(0.5, 0.5, 0.5),
    ),
    Method(
        "get_cuda_kernel_launch_stats(no memory)",
        (*LOAD, "stream", "apis", "delay"),
        launch_stats_said,
        without_copies,
        launch_stats_ours,
        within=(0.5, 0.5, 0.5),
    ),
    Method("ranks=None", ("default",), lambda answer: {(rank,): () for rank in answer}, default_ranks),
    Method(
        "get_profiler_steps",
        ("last_step", "marks"),
        lambda answer: {(step,): () for step in answer},
        steps,
        steps_ours,
    ),
]
