"""Operators and what they launched; whom the ranks wait for; counters of the hardware."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta.traces import US, Opened

EVENT = (
    "SELECT rank, event_id, pid, tid, ts_ns, dur_ns, step FROM events WHERE category = 'cuda_profiler_range'"
)


def delays(opened: Opened, ranks: list[int], sort_by: Iterable[str]) -> dict[int, Any]:
    """By rank, of each `aten::` operator and each sequence of kernels: how often, and mean delays in µs.

    `avg_aten_op_launch_delay` runs from the operator's start to that of its first launch,
    `avg_runtime_delay` from there to the start of the kernel: time in the queue included.
    """
    frame = opened.frame("op_kernel_delays", ranks, with_memory=False)
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
    wrong = [name for name in sort_by if name not in columns]
    if wrong:
        raise ParamError(f"no column is called {wrong[0]}", f"there are {', '.join(columns)}")
    ordered = found.sort_values([*sort_by, "aten_op_name", "kernel_sequence"], ascending=False)
    return {rank: ordered[ordered["rank"] == rank][columns].reset_index(drop=True) for rank in ranks}


def _mean_us(ns: Any, frame: Any) -> Any:
    return (ns / frame["count"] / US).round(3)


def sequences(opened: Opened, rank: int, operator: str, least: int) -> Any:
    """`pattern` (the operator and its GPU rows, with | between), `count`, and both durations in µs."""
    if not operator:
        raise ParamError("operator_name is empty", "name operators by a part of their name: aten::linear")
    frame = opened.frame("kernel_sequences", [rank], operator=operator, min_kernels=least)
    frame["pattern"] = frame.name + "|" + frame.kernels.str.replace(" | ", "|", regex=False)
    frame["GPU kernel duration (us)"] = frame.kernel_sum_ns / US
    frame["CPU op duration (us)"] = frame.op_sum_ns / US
    ordered = frame.sort_values(["count", "pattern"], ascending=[False, True], ignore_index=True)
    return ordered[["pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)"]]


def stragglers(opened: Opened, steps: list[int] | None, most: int) -> list[int]:
    """The ranks that the others waited for longest at collectives, in all steps or the named ones."""
    frame = opened.frame("collective_waits")
    if steps is not None:
        known = sorted({int(step) for step in opened.frame("step_summary")["step"]})
        if not set(steps) & set(known):
            raise ParamError(f"none of the steps {steps} is there", f"there are {', '.join(map(str, known))}")
        frame = frame[frame.step.isin(steps)]
    caused = frame[frame.wait_ns > 0].groupby("straggler_rank")["wait_ns"].sum()
    return [int(rank) for rank in caused.sort_values(ascending=False, kind="stable").index[:most]]


def cupti(opened: Opened, ranks: list[int]) -> list[Any]:
    """For each rank that has any a frame: a row per kernel, a column per counter, its operators."""
    frame = opened.frame("cupti_counters", ranks)
    events = opened.query(EVENT)
    found = []
    for rank, rows in frame.groupby("rank"):
        about = rows.drop_duplicates("event_id").set_index("event_id")
        values = rows.pivot(index="event_id", columns="counter", values="value")
        event = events[events["rank"] == rank].set_index("event_id").reindex(about.index)
        table = event.assign(
            index=about.index,
            name=about.name,
            ts=opened.since_start(event.ts_ns),
            dur=event.dur_ns / US,
            op_stack=[[] if stack is None else list(stack) for stack in about.op_stack],
            top_level_op=about.top_op.fillna(""),
            bottom_level_op=about.op.fillna(""),
        )
        own = ["index", "name", "pid", "tid", "ts", "dur"]
        table = table[[*own, "op_stack", "top_level_op", "bottom_level_op"]].join(values)
        found.append(table.loc[about.sort_values("place").index].reset_index(drop=True))
    return found


CORRELATIONS = "SELECT rank, event_id AS kernel_id, coalesce(correlation, -1) AS correlation FROM kernels"


def launch_stats(opened: Opened, ranks: list[int], memory: bool) -> dict[int, Any]:
    """By rank `correlation, cpu_duration, gpu_duration, launch_delay` of each GPU row with a launch, in µs.

    The delay runs from the return of the call to the start of the row: negative where that starts earlier.
    """
    frame = opened.frame("launch_stats", ranks)
    frame = frame[frame.runtime_id.notna()]
    if not memory:
        frame = frame[frame.kind != "memory"]
    frame = frame.merge(opened.query(CORRELATIONS), on=["rank", "kernel_id"])
    frame["cpu_duration"] = frame.call_ns.astype("int64") / US
    frame["gpu_duration"] = frame.kernel_ns / US
    frame["launch_delay"] = frame.return_to_start_ns.astype("int64") / US
    columns = ["correlation", "cpu_duration", "gpu_duration", "launch_delay"]
    return {rank: frame[frame["rank"] == rank][columns].reset_index(drop=True) for rank in ranks}


def short_kernels(frame: Any, runtime_cutoff: float) -> Any:
    """GPU rows shorter than their call, where that is none of the long ones."""
    return frame[(frame.cpu_duration <= runtime_cutoff) & (frame.gpu_duration < frame.cpu_duration)]


def steps(opened: Opened) -> list[int]:
    """The numbers of the profiler's steps, of all ranks."""
    return sorted(int(step) for step in opened.frame("step_summary")["step"].unique())
