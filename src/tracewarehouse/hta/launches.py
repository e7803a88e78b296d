"""Calls that launch, and what they launch."""

from __future__ import annotations

from typing import Any

from tracewarehouse.hta.opened import US, Opened

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
