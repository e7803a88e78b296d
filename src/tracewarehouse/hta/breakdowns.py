"""Breakdowns: temporal, overlap, kernels by type and name, annotations, idle time."""

from __future__ import annotations

import re
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.figures import library
from tracewarehouse.hta.traces import US, LoadedTraces

COLUMNS = ["name", "sum (us)", "max (us)", "min (us)", "stddev", "mean (us)"]


def by_rank(frame: Any, columns: list[str]) -> Any:
    """The columns, with `device` after `rank` if a rank has several devices."""
    several = len(frame) and frame.groupby("rank")["device"].nunique().max() > 1
    at = columns.index("rank") + 1
    return frame[[*columns[:at], "device", *columns[at:]] if several else columns].reset_index(drop=True)


def temporal_breakdown(traces: LoadedTraces) -> Any:
    """One row per rank (and device): idle, compute, other busy and total time in µs, and in %."""
    frame = traces.frame("temporal_breakdown")
    parts = {
        "idle": frame.idle_ns,
        "compute": frame.compute_ns,
        "non_compute": frame.busy_ns - frame.compute_ns,
    }
    for name, ns in parts.items():
        frame[f"{name}_time(us)"] = ns / US
    frame["kernel_time(us)"] = frame.window_ns / US
    for name, ns in parts.items():
        frame[f"{name}_time_pctg"] = (100 * ns / frame.window_ns.where(frame.window_ns > 0)).round(2)
    times = [f"{name}_time(us)" for name in parts]
    shares = [f"{name}_time_pctg" for name in parts]
    return by_rank(frame, ["rank", *times, "kernel_time(us)", *shares])


def overlap(traces: LoadedTraces) -> Any:
    """One row per rank (and device): % of communication overlapped with computation; NaN without any."""
    frame = traces.frame("comm_comp_overlap")
    frame["comp_comm_overlap_pctg"] = (100 * frame.overlap.astype(float)).round(2)
    return by_rank(frame, ["rank", "comp_comm_overlap_pctg"])


# Kernels


def kernel_types(traces: LoadedTraces, memory: bool) -> Any:
    """`kernel_type, sum, percentage`: busy time of all ranks in exclusive classes, µs and % of their sum."""
    frame = traces.frame("kernel_type_breakdown")
    frame["kernel_type"] = [_class(each, memory) for each in frame["class"]]
    found = frame[frame.kernel_type != ""].groupby("kernel_type")["class_ns"].sum().reset_index()
    found["sum"] = found.class_ns / US
    found["percentage"] = (100 * found.class_ns / found.class_ns.sum()).round(1)
    ordered = found.sort_values(["sum", "kernel_type"], ascending=[False, True], ignore_index=True)
    return ordered[["kernel_type", "sum", "percentage"]]


def _class(name: str, memory: bool) -> str:
    kinds = [kind.upper() for kind in name.split("+") if memory or kind != "memory"]
    return " overlapping ".join(kinds)


def kernels(traces: LoadedTraces, duration_ratio: float, num_kernels: int, memory: bool) -> Any:
    """One row per kind, name and rank, in µs: the largest of each kind and rank, the rest as `others`."""
    frame = traces.frame("kernel_summary")
    frame["kernel_type"] = frame.kind.str.upper()
    if not memory:
        frame = frame[frame.kind != "memory"]
    frame = _combine_statistics(frame, ["rank", "kernel_type", "name"])
    folded = fold_small(frame, ["rank", "kernel_type"], duration_ratio, num_kernels, ())
    ordered = folded.sort_values(["kernel_type", "name", "rank"], ignore_index=True)
    return ordered[[*COLUMNS, "kernel_type", "rank"]]


def fold_small(frame: Any, keys: list[str], ratio: float, most: int, never_folded: tuple[str, ...]) -> Any:
    """The largest rows of each group, and the others combined into one row named `others`.

    These are the rows that together account for `ratio` of the time of the group, at most `most`, and the
    names in `never_folded`. Groups of at most `most` rows are not changed. `others` has the sum, extremes,
    mean and standard deviation of all its durations.
    """
    if not 0 < ratio <= 1:
        raise ParamError(f"duration_ratio must be above 0 and at most 1, not {ratio}")
    if most < 1:
        raise ParamError(f"num_kernels must be at least 1, not {most}")
    if frame.empty:
        return _in_us(frame)
    frame = frame.sort_values([*keys, "sum_ns", "name"], ascending=[*(True,) * len(keys), False, True])
    groups = frame.groupby(keys)
    before = groups["sum_ns"].cumsum() - frame.sum_ns
    within = (groups.cumcount() < most) & (before < ratio * groups["sum_ns"].transform("sum"))
    few = groups["sum_ns"].transform("size") <= most
    keep = few | within | frame.name.isin(never_folded)
    frame["name"] = frame["name"].where(keep, "others")
    return _in_us(_combine_statistics(frame, [*keys, "name"]))


def _combine_statistics(frame: Any, keys: list[str]) -> Any:
    """Combines statistics of names into those of groups, from counts, sums and sums of squares."""
    squares = (frame["count"] - 1) * frame.std_ns.fillna(0).astype(float) ** 2 + frame[
        "count"
    ] * frame.mean_ns**2
    found = (
        frame.assign(squares=squares)
        .groupby(keys, sort=False, dropna=False)
        .agg(count=("count", "sum"), sum_ns=("sum_ns", "sum"), squares=("squares", "sum"))
        .join(
            frame.groupby(keys, sort=False, dropna=False).agg(
                min_ns=("min_ns", "min"), max_ns=("max_ns", "max")
            )
        )
        .reset_index()
    )
    found["mean_ns"] = found.sum_ns / found["count"]
    spread = (found.squares - found["count"] * found.mean_ns**2).clip(lower=0)
    found["std_ns"] = (spread / (found["count"] - 1).where(found["count"] > 1)) ** 0.5
    return found


def _in_us(frame: Any) -> Any:
    for name in ("sum", "max", "min", "mean"):
        frame[f"{name} (us)"] = frame[f"{name}_ns"] / US
    frame["stddev"] = frame.std_ns.fillna(0).astype(float) / US
    return frame


# Annotations


def annotation_summary(
    traces: LoadedTraces, on_gpu: bool, ratio: float, most: int, allowed: list[str] | None
) -> Any:
    """One row per annotation and rank, durations in µs; None without annotations."""
    frame = traces.frame("annotation_breakdown")
    frame = frame[frame.on_gpu == on_gpu]
    if frame.empty:
        return None
    never_folded = tuple(name for name in frame.name.unique() if _matches(name, allowed or []))
    folded = fold_small(_combine_statistics(frame, ["rank", "name"]), ["rank"], ratio, most, never_folded)
    ordered = folded.sort_values(["rank", "name"], ignore_index=True)
    return ordered[[*COLUMNS, "rank"]]


def _matches(name: str, patterns: list[str]) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


KERNELS = """
    SELECT event_id AS "index", category AS cat, name, pid, tid, ts_ns, dur_ns,
        coalesce(stream, -1) AS stream, coalesce(correlation, -1) AS correlation, step
    FROM events
    SEMI JOIN kernels USING (run_id, rank, event_id)
    WHERE rank = {rank}"""


def annotated_kernels(traces: LoadedTraces, rank: int, expand_names: bool, shorten_names: bool) -> Any:
    """Each GPU activity of a rank with the annotations enclosing its launch; None without annotations.

    Columns: `index, cat, name, pid, tid, ts, dur, stream, correlation, iteration, user_annotation` (the full
    path, outermost first), and with `expand_names` also `s_name` and `s_user_annotation` (the innermost, or
    an empty string).
    """
    (rank,) = traces.select_ranks([rank])
    found = traces.frame("kernels_by_annotation", [rank])
    if found.empty or not found.depth.gt(0).any():
        return None
    found = found.set_index("kernel_id")
    rows = traces.query(KERNELS.format(rank=rank))
    rows = rows.set_index("index", drop=False).sort_index()
    rows["ts"], rows["dur"] = traces.since_start(rows.ts_ns), rows.dur_ns / US
    rows["iteration"] = rows.step.fillna(-1).astype(int)
    rows["user_annotation"] = found.path.reindex(rows.index).fillna("")
    columns = ["index", "cat", "name", "pid", "tid", "ts", "dur", "stream", "correlation", "iteration"]
    if expand_names:
        short = traces.query(f"SELECT event_id, short_name FROM kernels WHERE rank = {rank}").set_index(
            "event_id"
        )
        rows["s_name"] = short.short_name.reindex(rows.index) if shorten_names else rows.name
        rows["s_user_annotation"] = found.annotation.reindex(rows.index).fillna("")
        columns += ["s_name"]
    columns += ["user_annotation", *(["s_user_annotation"] if expand_names else [])]
    return rows[columns].reset_index(drop=True)


# Idle time


def idle(traces: LoadedTraces, ranks: list[int], streams: list[int] | None, delay_us: float) -> Any:
    """`rank, stream, idle_category, idle_time` (µs), `idle_time_ratio`: share of the stream's idle time."""
    frame = _of_streams(traces.frame("stream_idle", ranks, kernel_wait_ns=round(delay_us * US)), streams)
    frame["idle_category"] = frame.cause
    frame["idle_time"] = frame.idle_ns / US
    frame["idle_time_ratio"] = frame.share.round(2)
    columns = ["rank", "stream", "idle_category", "idle_time", "idle_time_ratio"]
    return by_rank(frame.sort_values(["rank", "device", "stream", "cause"]), columns)


def idle_intervals(traces: LoadedTraces, ranks: list[int], streams: list[int] | None, delay_us: float) -> Any:
    """Statistics of the gaps of a stream by category in µs: count, mean, std, min, quartiles, max."""
    wait_ns = round(delay_us * US)
    frame = _of_streams(traces.frame("stream_idle_intervals", ranks, kernel_wait_ns=wait_ns), streams)
    frame["idle_interval"] = frame.idle_ns / US
    single = frame.empty or frame.groupby("rank")["device"].nunique().max() == 1
    keys = ["rank", *([] if single else ["device"]), "stream", "cause"]
    found = frame.groupby(keys)["idle_interval"].describe().round(2)
    found = found.reset_index() if len(found) else found.assign(**{key: [] for key in keys})
    return found.rename(columns={"cause": "idle_category"}).set_index("idle_category")


def _of_streams(frame: Any, streams: list[int] | None) -> Any:
    return frame[frame.stream.isin(streams)].copy() if streams else frame


def empty_frame() -> Any:
    """A frame without rows or columns."""
    return library("pandas").DataFrame()
