"""Rows of the analyses by the names of HTA: breakdowns, operators, series over time, the critical path."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.traces import US, LoadedTraces, library, log

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
    frame["kernel_time(us)"] = frame.window_ns / US
    for name, ns in parts.items():
        frame[f"{name}_time(us)"] = ns / US
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
    frame["kernel_type"] = [
        " overlapping ".join(kind.upper() for kind in name.split("+") if memory or kind != "memory")
        for name in frame["class"]
    ]
    found = frame[frame.kernel_type != ""].groupby("kernel_type")["class_ns"].sum().reset_index()
    found["sum"] = found.class_ns / US
    found["percentage"] = (100 * found.class_ns / found.class_ns.sum()).round(1)
    ordered = found.sort_values(["sum", "kernel_type"], ascending=[False, True], ignore_index=True)
    return ordered[["kernel_type", "sum", "percentage"]]


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
        .agg(
            count=("count", "sum"),
            sum_ns=("sum_ns", "sum"),
            squares=("squares", "sum"),
            min_ns=("min_ns", "min"),
            max_ns=("max_ns", "max"),
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
    never_folded = tuple(
        name for name in frame.name.unique() if any(re.search(pattern, name) for pattern in allowed or [])
    )
    folded = fold_small(_combine_statistics(frame, ["rank", "name"]), ["rank"], ratio, most, never_folded)
    ordered = folded.sort_values(["rank", "name"], ignore_index=True)
    return ordered[[*COLUMNS, "rank"]]


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
    frame = _of_streams(traces, "stream_idle", ranks, streams, delay_us)
    frame["idle_category"] = frame.cause
    frame["idle_time"] = frame.idle_ns / US
    frame["idle_time_ratio"] = frame.share.round(2)
    columns = ["rank", "stream", "idle_category", "idle_time", "idle_time_ratio"]
    return by_rank(frame.sort_values(["rank", "device", "stream", "cause"]), columns)


def idle_intervals(traces: LoadedTraces, ranks: list[int], streams: list[int] | None, delay_us: float) -> Any:
    """Statistics of the gaps of a stream by category in µs: count, mean, std, min, quartiles, max."""
    frame = _of_streams(traces, "stream_idle_intervals", ranks, streams, delay_us)
    frame["idle_interval"] = frame.idle_ns / US
    single = frame.empty or frame.groupby("rank")["device"].nunique().max() == 1
    keys = ["rank", *([] if single else ["device"]), "stream", "cause"]
    found = frame.groupby(keys)["idle_interval"].describe().round(2)
    found = found.reset_index() if len(found) else found.assign(**{key: [] for key in keys})
    return found.rename(columns={"cause": "idle_category"}).set_index("idle_category")


def _of_streams(
    traces: LoadedTraces, analysis: str, ranks: list[int], streams: list[int] | None, delay_us: float
) -> Any:
    frame = traces.frame(analysis, ranks, kernel_wait_ns=round(delay_us * US))
    return frame[frame.stream.isin(streams)].copy() if streams else frame


EVENT = (
    "SELECT rank, event_id, pid, tid, ts_ns, dur_ns, step FROM events WHERE category = 'cuda_profiler_range'"
)


def delays(traces: LoadedTraces, ranks: list[int], sort_by: Iterable[str]) -> dict[int, Any]:
    """By rank: each `aten::` operator and kernel sequence with its count and mean delays in µs.

    `avg_aten_op_launch_delay` is from the start of the operator to its first launch, `avg_runtime_delay` from
    there to the start of the kernel, including time in the queue.
    """
    frame = traces.frame("op_kernel_delays", ranks, with_memory=False)
    frame = frame[frame.name.str.startswith("aten::")]
    found = frame.assign(
        aten_op_name=frame.name,
        kernel_sequence=frame.kernels.str.replace(" | ", " -> ", regex=False),
        occurrence_count=frame["count"],
        avg_aten_op_launch_delay=_mean_us(frame.op_to_kernel_ns - frame.launch_to_kernel_ns, frame),
        avg_runtime_delay=_mean_us(frame.launch_to_kernel_ns, frame),
    )
    columns = ["aten_op_name", "kernel_sequence", "occurrence_count"]
    columns += ["avg_aten_op_launch_delay", "avg_runtime_delay"]
    unknown = [name for name in sort_by if name not in columns]
    if unknown:
        raise ParamError(f"unknown column: {unknown[0]}", f"available: {', '.join(columns)}")
    ordered = found.sort_values([*sort_by, "aten_op_name", "kernel_sequence"], ascending=False)
    return {rank: ordered[ordered["rank"] == rank][columns].reset_index(drop=True) for rank in ranks}


def _mean_us(ns: Any, frame: Any) -> Any:
    return (ns / frame["count"] / US).round(3)


def sequences(traces: LoadedTraces, rank: int, operator: str, least: int) -> Any:
    """`pattern` (operator and kernels, separated by |), `count`, and both durations in µs."""
    if not operator:
        raise ParamError("operator_name is empty", "use a part of an operator name, such as aten::linear")
    frame = traces.frame("kernel_sequences", [rank], operator=operator, min_kernels=least)
    frame["pattern"] = frame.name + "|" + frame.kernels.str.replace(" | ", "|", regex=False)
    frame["GPU kernel duration (us)"] = frame.kernel_sum_ns / US
    frame["CPU op duration (us)"] = frame.op_sum_ns / US
    ordered = frame.sort_values(["count", "pattern"], ascending=[False, True], ignore_index=True)
    return ordered[["pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)"]]


def stragglers(traces: LoadedTraces, steps: list[int] | None, most: int) -> list[int]:
    """The ranks that caused the longest waits at collectives, in all steps or the given ones."""
    frame = traces.frame("collective_waits")
    if steps is not None:
        known = traces.steps()
        if not set(steps) & set(known):
            raise ParamError(
                f"unknown steps: {', '.join(map(str, steps))}", f"available: {', '.join(map(str, known))}"
            )
        frame = frame[frame.step.isin(steps)]
    caused = frame[frame.wait_ns > 0].groupby("straggler_rank")["wait_ns"].sum()
    return [int(rank) for rank in caused.sort_values(ascending=False, kind="stable").index[:most]]


def cupti_counters(traces: LoadedTraces, ranks: list[int]) -> list[Any]:
    """One frame per rank with counters: a row per kernel, a column per counter, and its operators."""
    frame = traces.frame("cupti_counters", ranks)
    events = traces.query(EVENT)
    frames = []
    for rank, rows in frame.groupby("rank"):
        kernels = rows.drop_duplicates("event_id").set_index("event_id")
        values = rows.pivot(index="event_id", columns="counter", values="value")
        event = events[events["rank"] == rank].set_index("event_id").reindex(kernels.index)
        table = event.assign(
            index=kernels.index,
            name=kernels.name,
            ts=traces.since_start(event.ts_ns),
            dur=event.dur_ns / US,
            op_stack=[[] if stack is None else list(stack) for stack in kernels.op_stack],
            top_level_op=kernels.top_op.fillna(""),
            bottom_level_op=kernels.op.fillna(""),
        )
        own = ["index", "name", "pid", "tid", "ts", "dur"]
        table = table[[*own, "op_stack", "top_level_op", "bottom_level_op"]].join(values)
        frames.append(table.loc[kernels.sort_values("position").index].reset_index(drop=True))
    return frames


CORRELATIONS = "SELECT rank, event_id AS kernel_id, coalesce(correlation, -1) AS correlation FROM kernels"


def launch_stats(traces: LoadedTraces, ranks: list[int], memory: bool) -> dict[int, Any]:
    """By rank: `correlation, cpu_duration, gpu_duration, launch_delay` (µs) of GPU activities with a launch.

    The delay is from the return of the call to the start of the activity, and may be negative.
    """
    frame = traces.frame("launch_stats", ranks)
    frame = frame[frame.runtime_id.notna()]
    if not memory:
        frame = frame[frame.kind != "memory"]
    frame = frame.merge(traces.query(CORRELATIONS), on=["rank", "kernel_id"])
    frame["cpu_duration"] = frame.call_ns.astype("int64") / US
    frame["gpu_duration"] = frame.kernel_ns / US
    frame["launch_delay"] = frame.return_to_start_ns.astype("int64") / US
    columns = ["correlation", "cpu_duration", "gpu_duration", "launch_delay"]
    return {rank: frame[frame["rank"] == rank][columns].reset_index(drop=True) for rank in ranks}


QUEUE = """
    SELECT rank, ts_ns, device AS pid, stream AS tid, stream, queue_length
    FROM queue_changes
    ORDER BY rank, device, stream, ts_ns, change DESC, change * queue_length"""
DIRECTIONS = {"Memset": "Memset", "unknown": "Memcpy Unknown"}


def queue_lengths(traces: LoadedTraces, ranks: list[int]) -> dict[int, Any]:
    """By rank: `ts` (µs since the first event), `pid` (device), `tid`, `stream`, `queue_length`.

    One row per change. Ranks without a known launch are skipped.
    """
    frame = traces.query(QUEUE)
    frame.insert(0, "ts", traces.since_start(frame.pop("ts_ns")))
    return _by_rank(frame, ranks)


def _by_rank(frame: Any, ranks: list[int]) -> dict[int, Any]:
    parts = {int(rank): part for rank, part in frame.groupby("rank")}
    return {rank: parts[rank].drop(columns="rank").reset_index(drop=True) for rank in ranks if rank in parts}


def described(series: Mapping[int, Any], key: str, value: str) -> Any:
    """Statistics of the column `value` of time series, by rank and `key`; None without rows."""
    frames = [
        frame.assign(rank=rank)[["rank", key, value]].groupby(["rank", key]).describe()
        for rank, frame in series.items()
        if len(frame)
    ]
    return library("pandas").concat(frames) if frames else None


def blocked(traces: LoadedTraces, series: Mapping[int, Any], most: int) -> Any:
    """Time at full queue in µs, and as a share of the time from first launch to last start.

    One row per rank and stream of the series that reached this length.
    """
    if most < 1:
        raise ParamError(f"max_queue_length must be at least 1, not {most}")
    frame = traces.frame("queue_blocked", traces.select_ranks(list(series)), max_length=most)
    known = {(rank, stream) for rank, each in series.items() for stream in each["stream"].unique()}
    keys = zip(frame["rank"], frame["stream"], frame.blocked_ns.fillna(0), strict=True)
    frame = frame.loc[[bool(ns) and (rank, stream) in known for rank, stream, ns in keys]]
    share = "relative_duration_at_max_queue_length"
    times = {"duration_at_max_queue_length": frame.blocked_ns.astype(float) / US, share: frame.share}
    found = frame.assign(**times)[["rank", "stream", *times]]
    return found.reset_index(drop=True)


def bandwidths(traces: LoadedTraces, ranks: list[int]) -> dict[int, Any]:
    """By rank: `ts` (µs since the first event), `pid` (device), `name` (direction), `memory_bw_gbps`."""
    frame = traces.frame("memory_bandwidth", ranks)
    frame["ts"] = traces.since_start(frame.ts_ns)
    frame["pid"] = frame.device
    frame["name"] = [DIRECTIONS.get(each, f"Memcpy {each}") for each in frame.direction]
    frame["memory_bw_gbps"] = frame.bandwidth_bytes_per_ns
    frame = frame.sort_values(["rank", "device", "direction", "ts_ns"])
    return _by_rank(frame[["rank", "ts", "pid", "name", "memory_bw_gbps"]], ranks)


def write_series(
    traces: LoadedTraces,
    rank: int,
    folder: Path,
    name: str,
    *,
    counters: Iterable[str] = (),
    overlays: Iterable[str] = (),
) -> Path:
    """Writes the trace with added counters and overlays; returns the file.

    `{}` in `name` is the name of the input without its extension. Raises ParamError for the input folder.
    """
    if folder.resolve() in traces.inputs:
        raise ParamError(
            f"{folder} contains the input traces",
            "use another folder; there the file would be read as another rank",
        )
    (about,) = traces.warehouse.query_all(f"SELECT source_name FROM ranks WHERE rank = {rank}").rows()
    stem = about["source_name"].removesuffix(".gz").removesuffix(".json")
    text = traces.warehouse.export_trace(traces.run, rank, counters=counters, overlays=overlays)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.format(stem)}.json.gz"
    with gzip.open(target, "wt", encoding="utf-8") as out:
        out.writelines(text)
    return target


def write_each(
    traces: LoadedTraces, ranks: Iterable[int], folder: Path, name: str, counters: list[str]
) -> None:
    """Writes several ranks; those without data for counters are logged and skipped.

    Raises ParamError if no rank has data.
    """
    written, last_error = 0, None
    for rank in ranks:
        try:
            write_series(traces, rank, folder, name, counters=counters)
            written += 1
        except ParamError as error:
            log.warning("skipped rank %s: no counters: %s", rank, error)
            last_error = error
    if last_error is not None and not written:
        raise last_error


ANNOTATIONS = """
    SELECT name, ts_ns
    FROM annotations
    WHERE device IS NULL AND rank = {rank}
    ORDER BY ts_ns, event_id"""
MOST_NAMES = 8
BOUND_BY = {
    "host": "cpu_bound",
    "host_gap": "cpu_bound",
    "launch": "gpu_kernel_launch_overhead",
    "kernel_gap": "gpu_kernel_kernel_overhead",
    "computation": "gpu_compute_bound",
    "memory": "gpu_compute_bound",
    "communication": "gpu_communication_bound",
}
SEGMENTS = """
    SELECT path.position, path.event_id, path.type, path.category, path.segment_ns, path.start_ns,
        events.name, events.category AS cat, events.pid, events.tid, coalesce(events.stream, -1) AS stream
    FROM critical_path AS path
    LEFT JOIN events USING (run_id, rank, event_id)
    WHERE path.rank = {rank}"""


class CriticalPath:
    """The critical path of one scope of a rank, as segments that cover its entire time.

    It is not a graph. HTA's `critical_path_nodes`, `critical_path_edges_set`, `critical_path_events_set`,
    `node_list`, `nodes`, `edges` and all that networkx adds to them are missing:
    `get_critical_path_breakdown()` has the events of the path, in order.
    """

    def __init__(self, traces: LoadedTraces, rank: int, scope: str) -> None:
        self.traces, self.rank, self.scope = traces, rank, scope

    def __getattr__(self, name: str) -> Any:
        message = f"the critical path has no {name}: it is not a graph, but a table of segments"
        error = AttributeError(message, name=name, obj=self)
        error.add_note("hint: get_critical_path_breakdown() has its events, in order")
        raise error

    def get_critical_path_breakdown(self, data_load_events: list[str] | None = None) -> Any:
        """`event_idx, duration, type, s_name, cat, pid, tid, stream, category, bound_by`, in path order.

        Durations are in µs and sum to the duration of the scope. `bound_by` is HTA's name of the category.
        """
        scope = self.scope.replace("'", "''")
        frame = self.traces.query(f"{SEGMENTS.format(rank=self.rank)} AND path.scope = '{scope}'")
        frame = frame.sort_values("position", ignore_index=True)
        frame["duration"] = frame.segment_ns / US
        frame["bound_by"] = [BOUND_BY.get(each, each) for each in frame.category]
        for pattern in data_load_events or []:
            loads = frame.name.fillna("").str.contains(pattern, regex=True) & (frame.bound_by == "cpu_bound")
            frame.loc[loads, "bound_by"] = "data_loading"
        frame = frame.rename(columns={"event_id": "event_idx", "name": "s_name"})
        names = [
            "event_idx",
            "duration",
            "type",
            "s_name",
            "cat",
            "pid",
            "tid",
            "stream",
            "category",
            "bound_by",
        ]
        return frame[names]

    def summary(self) -> Any:
        """Share of the path in % by `bound_by`, largest first."""
        frame = self.get_critical_path_breakdown()
        shares = 100 * frame.groupby("bound_by")["duration"].sum() / frame["duration"].sum()
        return shares.sort_values(ascending=False)


def critical_path(
    traces: LoadedTraces, rank: int, annotation: str, instance: int | tuple[int, int] | None
) -> CriticalPath:
    """Derives the critical path of an annotation instance, or of the entire trace for ''.

    `annotation` matches a part of the name. Raises ParamError if there is no such instance.
    """
    if isinstance(instance, tuple):
        raise ParamError(
            "a range of instances is not supported", "use one instance, or '' for the entire trace"
        )
    (rank,) = traces.select_ranks([rank])
    scope = "trace"
    selected: dict[str, Any] = {"entire_trace": True}
    if annotation:
        name, number = _instance(traces, rank, annotation, instance or 0)
        scope, selected = f"annotation {name}#{number}", {"annotations": f"{name}#{number}"}
        if step := re.fullmatch(r"ProfilerStep#(\d+)", name):
            scope, selected = f"step {step[1]}", {"steps": int(step[1])}
    traces.warehouse.derive("critical_path", traces.run, ranks=rank, **selected)
    return CriticalPath(traces.newest(), rank, scope)


def _instance(traces: LoadedTraces, rank: int, part: str, number: int) -> tuple[str, int]:
    """The name of the n-th annotation that contains `part`, and how many earlier ones have that name."""
    names = [row["name"] for row in traces.warehouse.query_all(ANNOTATIONS.format(rank=rank)).rows()]
    matches = [index for index, name in enumerate(names) if part in (name or "")]
    if not matches:
        known = list(dict.fromkeys(name for name in names if name))
        listed, more = ", ".join(known[:MOST_NAMES]) or "none", len(known) - MOST_NAMES
        hint = f"annotations: {listed}" + (f" and {more} more" if more > 0 else "")
        raise ParamError(f"rank {rank} has no annotation that contains {part!r}", hint)
    if not 0 <= number < len(matches):
        count = f"{len(matches)} annotations contain {part!r}"
        raise ParamError(f"there is no instance {number}: {count}", "instances are numbered from 0")
    index = matches[number]
    return names[index], names[:index].count(names[index])
