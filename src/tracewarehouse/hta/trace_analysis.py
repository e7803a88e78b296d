"""`TraceAnalysis` with HTA's methods, computed by tracewarehouse."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Flag, auto
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta import breakdowns, traces
from tracewarehouse.hta.breakdowns import CriticalPath, critical_path
from tracewarehouse.hta.common.trace import Trace
from tracewarehouse.hta.traces import Files, LoadedTraces, load_traces
from tracewarehouse.present.render.text import plural

FULL_QUEUE = 1_024
log = logging.getLogger("tracewarehouse.hta")
_NOTED: set[str] = set()  # the differences from HTA that were mentioned


class TimeSeriesTypes(Flag):
    """Counters of `generate_trace_with_counters`."""

    QUEUE_LENGTH = auto()
    MEMCPY_BANDWIDTH = auto()


COUNTERS = {
    TimeSeriesTypes.QUEUE_LENGTH: "queue_length",
    TimeSeriesTypes.MEMCPY_BANDWIDTH: "memory_bandwidth",
}


class TraceAnalysis:
    """The traces of a job, one file per rank, with HTA's analyses.

    `trace_dir` is a folder; `trace_files` maps ranks to files, or lists files. With both, names of files are
    relative to the folder. They are ingested into `warehouse` as `run`; without `warehouse`, into a temporary
    folder that is deleted with this object. The entire recording is analyzed, including the last step, so
    `include_last_profiler_step` has no effect. Frames have times in µs, shares in %, and one row per rank as
    in HTA; if a rank has several devices, one row per device, with a column `device`. Figures of the last
    call are in `figures.last`, the events of a rank in `t.get_trace(rank)`, for the filters of
    `hta.common.trace_filter`.

    Raises ParamError for invalid arguments, TwError if no trace can be read or a library is missing.
    """

    def __init__(
        self,
        trace_files: Files | None = None,
        trace_dir: str | Path | None = None,
        include_last_profiler_step: bool | None = False,
        *,
        warehouse: str | Path | None = None,
        run: str | None = None,
    ) -> None:
        self.traces: LoadedTraces = load_traces(trace_files, trace_dir, warehouse, run)
        self.t = Trace(self.traces)
        self.figures = traces.Figures()
        if include_last_profiler_step is False:
            count = "SELECT count(DISTINCT step) AS steps FROM steps"
            if self.traces.warehouse.query_all(count).rows()[0]["steps"] > 1:
                self._note("the last profiler step is included; HTA excludes it by default")

    def _ranks(self, ranks: list[int] | None) -> list[int]:
        """The requested ranks, by default all of them."""
        selected = self.traces.select_ranks(ranks)
        if not ranks and len(selected) > 1:
            self._note("without ranks, all ranks are analyzed; HTA analyzes rank 0 by default: ranks=[0]")
        return selected

    def _note(self, text: str) -> None:
        """One line about a default that differs from HTA's, once per process."""
        if text not in _NOTED:
            _NOTED.add(text)
            log.warning("%s", text)

    # Breakdowns

    def get_temporal_breakdown(self, visualize: bool = True) -> Any:
        """One row per rank: idle, compute, other busy and total time in µs, and in % of the total."""
        found = breakdowns.temporal_breakdown(self.traces)
        if visualize:
            shares = [f"{part}_time_pctg" for part in ("idle", "compute", "non_compute")]
            self.figures.show(traces.bars(found, "rank", shares, "Temporal breakdown across ranks"))
        return found

    def get_comm_comp_overlap(self, visualize: bool = True) -> Any:
        """One row per rank: % of communication overlapped with computation; NaN without communication."""
        found = breakdowns.overlap(self.traces)
        if visualize:
            title = "Computation-communication overlap"
            self.figures.show(traces.bars(found, "rank", "comp_comm_overlap_pctg", title))
        return found

    def get_gpu_kernel_breakdown(
        self,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int = 10,
        include_memory_kernels: bool = True,
        image_renderer: str | None = None,
    ) -> tuple[Any, Any]:
        """Busy time by kernel type, and one row per kernel and rank."""
        types = breakdowns.kernel_types(self.traces, include_memory_kernels)
        kernels = breakdowns.kernels(self.traces, duration_ratio, num_kernels, include_memory_kernels)
        if visualize:
            shown = [traces.pie(types, "percentage", "kernel_type", "Time by type of kernel, all ranks")]
            for (kind, rank), rows in kernels.groupby(["kernel_type", "rank"]):
                shown.append(traces.pie(rows, "sum (us)", "name", f"{kind}, rank {rank}"))
            for kind, rows in kernels.groupby("kernel_type"):
                shown += traces.mean_bars(rows, str(kind))
            self.figures.show(*shown, renderer=image_renderer)
        return types, kernels

    def get_gpu_user_annotation_breakdown(
        self,
        use_gpu_annotation: bool = True,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int = 1000,
        allowlist_patterns: list[str] | None = None,
        image_renderer: str | None = None,
    ) -> Any:
        """One row per annotation and rank, durations in µs; None without annotations.

        Names that match one of the regular expressions `allowlist_patterns` are never folded.
        """
        found = breakdowns.annotation_summary(
            self.traces, use_gpu_annotation, duration_ratio, num_kernels, allowlist_patterns
        )
        if visualize and found is not None:
            pies = [
                traces.pie(rows, "sum (us)", "name", f"Annotations, rank {rank}")
                for rank, rows in found.groupby("rank")
            ]
            self.figures.show(*pies, *traces.mean_bars(found, "Annotation"), renderer=image_renderer)
        return found

    def get_gpu_kernels_with_user_annotations(
        self, rank: int, expand_names: bool = True, shorten_names: bool = True
    ) -> Any:
        """Each GPU activity of a rank with the annotations enclosing its launch; None without any."""
        return breakdowns.annotated_kernels(self.traces, rank, expand_names, shorten_names)

    def get_idle_time_breakdown(
        self,
        ranks: list[int] | None = None,
        streams: list[int] | None = None,
        visualize: bool = True,
        visualize_pctg: bool = True,
        show_idle_interval_stats: bool = False,
        consecutive_kernel_delay: float = 30,
    ) -> tuple[Any, Any]:
        """Idle time of each stream by category, and statistics of its gaps (None by default).

        `consecutive_kernel_delay` in µs: shorter gaps that the host did not cause are kernel_wait.
        `idle_time_ratio` is the share of the stream's idle time over the entire recording: also before its
        first and after its last activity (`before_first`, `after_last`), which HTA does not count.
        """
        selected = self._ranks(ranks)
        found = breakdowns.idle(self.traces, selected, streams, consecutive_kernel_delay)
        if visualize:
            drawn = found.assign(stream=found["stream"].astype(str))
            y = "idle_time_ratio" if visualize_pctg else "idle_time"
            charts = [
                traces.bars(
                    rows,
                    "stream",
                    y,
                    f"Idle time, rank {rank}",
                    percent=visualize_pctg,
                    color="idle_category",
                )
                for rank, rows in drawn.groupby("rank")
            ]
            self.figures.show(*charts)
        if not show_idle_interval_stats:
            return found, None
        return found, breakdowns.idle_intervals(self.traces, selected, streams, consecutive_kernel_delay)

    # Launches

    def get_cuda_kernel_launch_stats(
        self,
        ranks: list[int] | None = None,
        runtime_cutoff: float = 50,
        launch_delay_cutoff: float = 100,
        include_memory_events: bool = True,
        visualize: bool = True,
    ) -> dict[int, Any]:
        """By rank: one row per GPU activity with a known launch: correlation, durations and delay in µs."""
        found = breakdowns.launch_stats(self.traces, self._ranks(ranks), include_memory_events)
        if visualize:
            shown = []
            for rank, frame in found.items():
                usual = frame[frame.cpu_duration <= runtime_cutoff]
                short = usual[usual.gpu_duration < usual.cpu_duration]
                shown += [
                    traces.histogram(
                        short, "cpu_duration", f"GPU activities shorter than their call, rank {rank}"
                    ),
                    traces.histogram(
                        frame[frame.cpu_duration > runtime_cutoff],
                        "cpu_duration",
                        f"Calls longer than {runtime_cutoff} µs, rank {rank}",
                    ),
                    traces.histogram(
                        frame[frame.launch_delay > launch_delay_cutoff],
                        "launch_delay",
                        f"Delays longer than {launch_delay_cutoff} µs, rank {rank}",
                    ),
                ]
            self.figures.show(*shown)
        return found

    def get_profiler_steps(self) -> list[int]:
        """Profiler step numbers of all ranks, including the last step."""
        return self.traces.steps()

    # Over time

    def get_queue_length_time_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """By rank: `ts, pid, tid, stream, queue_length`, one row per launch and per start."""
        return breakdowns.queue_lengths(self.traces, self._ranks(ranks))

    def get_queue_length_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """The same as `get_queue_length_time_series`, by the name in HTA's tutorial."""
        return self.get_queue_length_time_series(ranks)

    def get_queue_length_summary(self, ranks: list[int] | None = None) -> Any:
        """Statistics of the queue length by rank and stream; None without known launches."""
        return self.get_queue_length_summary_from_time_series(self.get_queue_length_time_series(ranks))

    def get_queue_length_summary_from_time_series(self, queue_length_dict: Mapping[int, Any]) -> Any:
        """The same for existing time series, which are not modified."""
        return breakdowns.described(queue_length_dict, "stream", "queue_length")

    def get_time_spent_blocked_on_full_queue(
        self, queue_length_dict: Mapping[int, Any], max_queue_length: int = FULL_QUEUE
    ) -> Any:
        """One row per rank and stream that reached this length: duration in µs and share of time."""
        return breakdowns.blocked(self.traces, queue_length_dict, max_queue_length)

    def get_memory_bw_time_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """By rank: `ts, pid, name, memory_bw_gbps`, one row per change in a direction."""
        return breakdowns.bandwidths(self.traces, self._ranks(ranks))

    def get_memory_bw_summary(self, ranks: list[int] | None = None) -> Any:
        """Statistics of the bandwidth while copying, by rank and direction; None without copies."""
        series = self.get_memory_bw_time_series(ranks)
        copying = {rank: frame[frame.memory_bw_gbps > 0] for rank, frame in series.items()}
        return breakdowns.described(copying, "name", "memory_bw_gbps")

    def generate_trace_with_counters(
        self,
        time_series: TimeSeriesTypes | None = None,
        ranks: list[int] | None = None,
        output_suffix: str = "_with_counters",
        output_dir: str | Path | None = None,
    ) -> None:
        """Writes the trace of each rank with queue and bandwidth counters to `output_dir`, gzipped.

        The default is the working folder. Raises ParamError if that is the folder of the input traces, or if
        no rank has data for counters.
        """
        kinds = time_series or TimeSeriesTypes.QUEUE_LENGTH | TimeSeriesTypes.MEMCPY_BANDWIDTH
        if not isinstance(kinds, TimeSeriesTypes):
            raise ParamError(f"time_series {time_series}", "use members of TimeSeriesTypes, combined with |")
        counters = [name for kind, name in COUNTERS.items() if kind in kinds]
        name = "{}" + (output_suffix or "_with_counters")
        selected, folder = self._ranks(ranks), Path(output_dir or Path.cwd())
        breakdowns.write_each(self.traces, selected, folder, name, counters)
        log.warning("traces with counters of %s are in %s", plural(len(selected), "rank"), folder)

    # Operators

    def get_aten_op_kernels_and_delay(
        self, ranks: list[int] | None = None, sort_by: list[str] | None = None
    ) -> dict[int, Any]:
        """By rank: one row per `aten::` operator and kernel sequence, with count and delays in µs."""
        return breakdowns.delays(self.traces, self._ranks(ranks), sort_by or ["occurrence_count"])

    def get_frequent_cuda_kernel_sequences(
        self,
        operator_name: str,
        output_dir: str | Path | None = None,
        min_pattern_len: int = 3,
        rank: int | None = None,
        top_k: int = 5,
        visualize: bool = False,
        compress_other_kernels: bool = False,
    ) -> Any:
        """`pattern, count, GPU kernel duration (us), CPU op duration (us)` of outermost matching operators.

        `rank=None` is the first rank. With `output_dir`, the trace is written there with the sequences of all
        operators as an overlay; its events are not changed, so `compress_other_kernels` is not supported.
        """
        if compress_other_kernels:
            raise ParamError("compress_other_kernels is not supported: it would change events", "remove it")
        (selected,) = self.traces.select_ranks(rank)[:1]
        found = breakdowns.sequences(self.traces, selected, operator_name, min_pattern_len)
        if output_dir is not None:
            breakdowns.write_series(
                self.traces, selected, Path(output_dir), "overlaid_{}", overlays=["kernel_sequences"]
            )
        if visualize:
            title = f"Top {top_k} sequences, rank {selected}"
            drawn = found[:top_k].assign(pattern=found.pattern.str.replace("|", "<br>", regex=False))
            drawn["rank by count"] = [str(index) for index in range(len(drawn))]
            self.figures.show(traces.bars(drawn, "rank by count", "count", title, hover_data=["pattern"]))
        return found

    def get_cupti_counter_data_with_operators(self, ranks: list[int] | None = None) -> list[Any]:
        """One frame per rank with CUPTI counters: kernels, their counters and enclosing operators."""
        return breakdowns.cupti_counters(self.traces, self._ranks(ranks))

    # Over ranks

    def get_potential_stragglers(
        self,
        profiler_steps: list[int] | None = None,
        num_candidates: int = 2,
        visualize: bool = False,
        straggler_identification_impl: Callable[..., Any] | None = None,
    ) -> list[int]:
        """The ranks that caused the longest waits, at most `num_candidates`; empty without waits."""
        if straggler_identification_impl is not None:
            raise ParamError(
                "straggler_identification_impl is not supported: it reads HTA's internal frames", "remove it"
            )
        if num_candidates < 1:
            raise ParamError(f"num_candidates must be at least 1, not {num_candidates}")
        found = breakdowns.stragglers(self.traces, profiler_steps, num_candidates)
        if visualize:
            frame = self.traces.frame("stragglers")
            self.figures.show(traces.bars(frame, "rank", "caused_wait_ns", "Wait caused"))
        return found

    # The critical path

    def critical_path_analysis(
        self,
        rank: int,
        annotation: str,
        instance_id: int | tuple[int, int] | None,
        data_load_events: list[str] | None = None,
    ) -> tuple[CriticalPath, bool]:
        """The critical path of an instance of an annotation, or of the entire trace for ''."""
        if data_load_events:
            raise ParamError(
                "data_load_events is an argument of the breakdown",
                "get_critical_path_breakdown(data_load_events=…)",
            )
        return critical_path(self.traces, rank, annotation, instance_id), True

    def overlay_critical_path_analysis(
        self,
        rank: int,
        critical_path_graph: CriticalPath,
        output_dir: str | Path,
        only_show_critical_events: bool = False,
        show_all_edges: bool = False,
    ) -> str:
        """Writes the trace of a rank with its critical path as an overlay; returns the file.

        All events of the trace are written, unchanged.
        """
        if only_show_critical_events or show_all_edges:
            raise ParamError("only_show_critical_events and show_all_edges are not supported", "remove both")
        name, folder = "overlaid_critical_path_{}", Path(output_dir)
        drawn = ["critical_path"]
        return str(breakdowns.write_series(critical_path_graph.traces, rank, folder, name, overlays=drawn))
