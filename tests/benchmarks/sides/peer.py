"""The side of HolisticTraceAnalysis in its own Python: `python peer.py REQUEST`. Imports nothing of ours."""

from __future__ import annotations

import importlib.metadata
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

from clock import measurement, serve, timed


def loaded(folder: str | None, files: dict[str, str]) -> Any:
    """HTA over a folder, or over files by rank."""
    from hta.trace_analysis import TraceAnalysis

    if folder is not None:
        return TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    return TraceAnalysis(
        trace_files={int(rank): path for rank, path in files.items()}, include_last_profiler_step=True
    )


def load(small: str, folder: str | None = None, files: dict[str, str] | None = None) -> dict[str, Any]:
    """Loads a small trace first, so that imports do not count, then these."""
    quiet()
    loaded(None, {"0": small})
    taken = timed(lambda: loaded(folder, files or {}))
    return measurement(taken, rows(taken[2]))


def rows(analysis: Any) -> dict[str, int]:
    """Rows of each rank after the load."""
    return {str(rank): len(table) for rank, table in analysis.t.traces.items()}


def analyses(folder: str) -> dict[str, Any]:
    """Loads all ranks of a folder, then times each method over all of them."""
    quiet()
    analysis = loaded(folder, {})
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as passing:
        calls = methods(analysis, passing)
        taken = timed(lambda: each_of(found, calls))
    first = analysis.get_temporal_breakdown(visualize=False)
    return measurement(taken, {"each": found, "temporal_breakdown": first.to_dict("records")})


def each_of(found: dict[str, Any], calls: dict[str, Callable[[], Any]]) -> None:
    """Adds the seconds of each, or its error, to `found`."""
    for name, call in calls.items():
        started = perf_counter()
        try:
            call()
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
            continue
        found[name] = {"seconds": perf_counter() - started}


def methods(analysis: Any, folder: str) -> dict[str, Callable[[], Any]]:
    """Each method, called for all ranks; those that change HTA's frames come last."""
    ranks = sorted(analysis.t.traces)
    series: list[Any] = []
    return {
        "get_temporal_breakdown": lambda: analysis.get_temporal_breakdown(visualize=False),
        "get_comm_comp_overlap": lambda: analysis.get_comm_comp_overlap(visualize=False),
        "get_gpu_kernel_breakdown": lambda: analysis.get_gpu_kernel_breakdown(visualize=False),
        "get_idle_time_breakdown": lambda: analysis.get_idle_time_breakdown(ranks=ranks, visualize=False),
        "get_queue_length_time_series": lambda: series.append(analysis.get_queue_length_time_series(ranks)),
        "get_queue_length_summary": lambda: analysis.get_queue_length_summary(ranks),
        "get_time_spent_blocked_on_full_queue": lambda: analysis.get_time_spent_blocked_on_full_queue(
            series[0]
        ),
        "get_memory_bw_time_series": lambda: analysis.get_memory_bw_time_series(ranks),
        "get_memory_bw_summary": lambda: analysis.get_memory_bw_summary(ranks),
        "get_cuda_kernel_launch_stats": lambda: analysis.get_cuda_kernel_launch_stats(ranks, visualize=False),
        "get_gpu_user_annotation_breakdown": lambda: analysis.get_gpu_user_annotation_breakdown(
            visualize=False
        ),
        "get_profiler_steps": analysis.get_profiler_steps,
        "get_potential_stragglers": analysis.get_potential_stragglers,
        "get_gpu_kernels_with_user_annotations": lambda: [
            analysis.get_gpu_kernels_with_user_annotations(rank) for rank in ranks
        ],
        "get_aten_op_kernels_and_delay": lambda: analysis.get_aten_op_kernels_and_delay(ranks),
        "get_frequent_cuda_kernel_sequences": lambda: [
            analysis.get_frequent_cuda_kernel_sequences("aten::linear", folder, rank=rank) for rank in ranks
        ],
    }


def versions() -> dict[str, Any]:
    """The versions of HTA and pandas."""
    named = {name: importlib.metadata.version(name) for name in ("traceinsight", "pandas")}
    return measurement((0, 0, None), named)


def quiet() -> None:
    """No figures, no overlaid files, no log."""
    import plotly.graph_objects as go
    from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    go.Figure.show = lambda *_, **__: None
    CudaKernelAnalysis._overlay_frequent_patterns_with_trace = lambda *_, **__: {}


if __name__ == "__main__":
    sys.exit(serve({"load": load, "analyses": analyses, "versions": versions}))
