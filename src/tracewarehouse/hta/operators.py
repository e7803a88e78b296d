"""Operators and their kernels, stragglers, launch statistics and hardware counters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.traces import US, LoadedTraces

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
        known = sorted({int(step) for step in traces.frame("step_summary")["step"]})
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


def short_kernels(frame: Any, runtime_cutoff: float) -> Any:
    """GPU activities shorter than their call, except for calls above the cutoff."""
    return frame[(frame.cpu_duration <= runtime_cutoff) & (frame.gpu_duration < frame.cpu_duration)]


def has_several_steps(traces: LoadedTraces) -> bool:
    """Whether there are two or more profiler steps."""
    (row,) = traces.warehouse.query_all("SELECT count(DISTINCT step) AS steps FROM steps").rows()
    return bool(row["steps"] > 1)


def steps(traces: LoadedTraces) -> list[int]:
    """Profiler step numbers of all ranks."""
    return sorted(int(step) for step in traces.frame("step_summary")["step"].unique())
