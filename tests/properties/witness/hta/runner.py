"""Runs in HTA's own Python: every method over the files of one trace, results and errors as JSON.

python runner.py REQUEST.json RESULT.json. Nothing of our code is imported here; figures are not drawn.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT_S = 240
DELAY_US = 30
EVERY_KERNEL = 100_000


class TooLong(Exception):
    """A method took longer than the time that it is given."""


def guarded(call: Callable[[], Any]) -> dict[str, Any]:
    """What the call gives, or the error that it ends with, as JSON can hold it."""

    def stop(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT_S)
    try:
        return {"value": call()}
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"error": type(error).__name__, "message": str(error)[:300]}
    finally:
        signal.alarm(0)


def frame(table: Any) -> Any:
    """A pandas frame as columns of lists; its index becomes columns, too."""
    if table is None:
        return None
    table = table.reset_index() if table.index.names != [None] else table
    names = ["/".join(str(part) for part in c) if isinstance(c, tuple) else str(c) for c in table.columns]
    return {name: table.iloc[:, at].tolist() for at, name in enumerate(names)}


def frames(tables: dict[int, Any]) -> dict[str, Any]:
    """Frames by rank."""
    return {str(rank): frame(table) for rank, table in tables.items()}


def described(analysis: Any, ranks: list[int], most: int) -> Any:
    """Summary of the queue's length, and the time at or above a length."""
    series = analysis.get_queue_length_time_series(ranks=ranks)
    blocked = analysis.get_time_spent_blocked_on_full_queue(series, max_queue_length=most)
    return {"summary": frame(analysis.get_queue_length_summary(ranks=ranks)), "blocked": frame(blocked)}


def annotated(analysis: Any, rank: int) -> Any:
    """Which annotation HTA gives to which GPU activity."""
    table = analysis.get_gpu_kernels_with_user_annotations(rank, shorten_names=False)
    return None if table is None else frame(table[["index", "s_name", "s_user_annotation"]])


def counters(analysis: Any, ranks: list[int]) -> Any:
    """Rows of CUPTI's counters with their operators, without the columns that are the event's own."""
    tables = analysis.get_cupti_counter_data_with_operators(ranks)
    return [frame(t[["index", "name", "op_stack", "top_level_op", "bottom_level_op"]]) for t in tables]


def methods(analysis: Any, request: dict[str, Any], folder: str) -> dict[str, Callable[[], Any]]:
    """Each method by the name that the comparison has for it; those that change HTA's frames come last."""
    ranks = sorted(analysis.t.traces)
    first = ranks[:1]
    calls: dict[str, Callable[[], Any]] = {
        "get_temporal_breakdown": lambda: frame(analysis.get_temporal_breakdown(visualize=False)),
        "get_comm_comp_overlap": lambda: frame(analysis.get_comm_comp_overlap(visualize=False)),
        "get_gpu_kernel_breakdown": lambda: [
            frame(each)
            for each in analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=EVERY_KERNEL)
        ],
        "get_gpu_kernel_breakdown(10)": lambda: [
            frame(each) for each in analysis.get_gpu_kernel_breakdown(visualize=False)
        ],
        "get_gpu_user_annotation_breakdown": lambda: frame(
            analysis.get_gpu_user_annotation_breakdown(visualize=False, num_kernels=EVERY_KERNEL)
        ),
        "get_gpu_user_annotation_breakdown(host)": lambda: frame(
            analysis.get_gpu_user_annotation_breakdown(
                use_gpu_annotation=False, visualize=False, num_kernels=EVERY_KERNEL
            )
        ),
        "get_idle_time_breakdown": lambda: [
            frame(each)
            for each in analysis.get_idle_time_breakdown(
                ranks=ranks,
                visualize=False,
                show_idle_interval_stats=True,
                consecutive_kernel_delay=DELAY_US,
            )
        ],
        "get_queue_length_time_series": lambda: frames(analysis.get_queue_length_time_series(ranks=ranks)),
        "get_queue_length_summary": lambda: described(analysis, ranks, 100)["summary"],
        "get_time_spent_blocked_on_full_queue": lambda: {
            str(most): described(analysis, ranks, most)["blocked"] for most in (1, 100, 1024)
        },
        "get_memory_bw_time_series": lambda: frames(analysis.get_memory_bw_time_series(ranks=ranks)),
        "get_memory_bw_summary": lambda: frame(analysis.get_memory_bw_summary(ranks=ranks)),
        "get_cuda_kernel_launch_stats": lambda: frames(
            analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
        ),
        "get_cuda_kernel_launch_stats(no memory)": lambda: frames(
            analysis.get_cuda_kernel_launch_stats(ranks=ranks, include_memory_events=False, visualize=False)
        ),
        "get_profiler_steps": lambda: [int(step) for step in analysis.get_profiler_steps()],
        "get_potential_stragglers": lambda: [int(r) for r in analysis.get_potential_stragglers()],
        "ranks=None": lambda: sorted(analysis.get_cuda_kernel_launch_stats(visualize=False)),
        "get_gpu_kernels_with_user_annotations": lambda: {
            str(rank): annotated(analysis, rank) for rank in first
        },
        "get_aten_op_kernels_and_delay": lambda: frames(analysis.get_aten_op_kernels_and_delay(ranks=first)),
    }
    for name in request["operators"]:
        calls[f"get_frequent_cuda_kernel_sequences({name})"] = lambda name=name: frame(
            analysis.get_frequent_cuda_kernel_sequences(name, folder, rank=first[0])
        )
    calls["get_cupti_counter_data_with_operators"] = lambda: counters(analysis, first)
    return calls


def loaded(request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """HTA over the files, and what its load came to."""
    from hta.trace_analysis import TraceAnalysis

    files = {int(rank): path for rank, path in request["files"].items()}
    made: list[Any] = []
    outcome = guarded(lambda: made.append(TraceAnalysis(trace_files=files)))
    if not made:
        return None, outcome
    rows = {str(rank): len(table) for rank, table in made[0].t.traces.items()}
    return made[0], {"value": rows}


def diffs(request: dict[str, Any]) -> dict[str, Any]:
    """Both ways of HTA to compare two traces."""
    from hta.common.trace import Trace
    from hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

    def traces() -> list[Any]:
        return [
            LabeledTrace(label=label, t=Trace(trace_files={int(r): p for r, p in request[label].items()}))
            for label in ("control", "test")
        ]

    def compare(kind: Any, short: bool) -> Any:
        return frame(TraceDiff.compare_traces(*traces(), device_type=kind, use_short_name=short))

    kinds = {"ALL": DeviceType.ALL, "CPU": DeviceType.CPU, "GPU": DeviceType.GPU}
    found = {
        f"TraceDiff.compare_traces({name})": guarded(lambda kind=kind: compare(kind, False))
        for name, kind in kinds.items()
    }
    found["TraceDiff.compare_traces(short)"] = guarded(lambda: compare(DeviceType.ALL, True))
    found["TraceDiff.ops_diff"] = guarded(lambda: TraceDiff.ops_diff(*traces()))
    return found


def memory(request: dict[str, Any]) -> dict[str, Any]:
    """Bytes by category over time, of a raw memory timeline."""
    from hta.memory_analysis import MemoryAnalysis

    return {"MemoryAnalysis": guarded(lambda: MemoryAnalysis(request["timeline"])._process_raw_events())}


def quiet() -> None:
    """No figures, no overlaid files, no log."""
    import plotly.graph_objects as go
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
    from hta.common.trace import Trace

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    go.Figure.show = lambda *_, **__: None
    CudaKernelAnalysis._overlay_frequent_patterns_with_trace = lambda *_, **__: {}
    Trace.write_raw_trace = lambda *_, **__: None


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Everything requested for."""
    if "timeline" in request:
        return memory(request)
    if "control" in request:
        return diffs(request)
    analysis, outcome = loaded(request)
    found = {"load": outcome}
    if analysis is not None:
        with tempfile.TemporaryDirectory() as folder:
            for name, call in methods(analysis, request, folder).items():
                found[name] = guarded(call)
    return found


def run(answers: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Reads the request, writes the answer."""
    quiet()
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(answers(request), default=plain), encoding="utf-8")


def plain(value: Any) -> Any:
    """What JSON does not know: numbers of numpy, sets."""
    return value.item() if hasattr(value, "item") else list(value)


if __name__ == "__main__":
    run(answer)
