"""`TraceAnalysis` with the methods of HTA's, on our numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Flag, auto
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta import breakdowns, figures, operators, series
from tracewarehouse.hta.common.trace import Trace
from tracewarehouse.hta.critical import CriticalPath, critical_path
from tracewarehouse.hta.traces import Files, Opened, opened

FULL_QUEUE = 1_024


class TimeSeriesTypes(Flag):
    """What `generate_trace_with_counters` adds."""

    QUEUE_LENGTH = auto()
    MEMCPY_BANDWIDTH = auto()


COUNTERS = {
    TimeSeriesTypes.QUEUE_LENGTH: "queue_length",
    TimeSeriesTypes.MEMCPY_BANDWIDTH: "memory_bandwidth",
}


class TraceAnalysis:
    """The traces of a job, one file per rank, and HTA's questions to them.

    `trace_dir` is a folder, `trace_files` maps ranks to files (or lists them). They go into `warehouse`, a
    folder that stays; without one into a temporary folder that goes with this object. `run` names the run.
    What was recorded is looked at as a whole, the last step included, so `include_last_profiler_step` changes
    nothing. Frames hold µs, shares in %, and one row per rank as HTA's do; where a rank has several devices,
    one per device, which a column `device` then names. The figures of the last call are in `figures.last`,
    the rows of each rank in `t.get_trace(rank)`, for the filters of `hta.common.trace_filter`.

    Raises ParamError for arguments that mean nothing, TwError where no trace can be read or a library is
    missing.
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
        self.opened: Opened = opened(trace_files, trace_dir, warehouse, run)
        self.t = Trace(self.opened)
        self.figures = figures.Figures()

    # Breakdowns

    def get_temporal_breakdown(self, visualize: bool = True) -> Any:
        """One row per rank: idle, compute, other busy and whole time in µs, and in % of the whole."""
        found = breakdowns.temporal(self.opened)
        if visualize:
            shares = [f"{part}_time_pctg" for part in ("idle", "compute", "non_compute")]
            self.figures.show(figures.bars(found, "rank", shares, "Temporal breakdown across ranks"))
        return found

    def get_comm_comp_overlap(self, visualize: bool = True) -> Any:
        """One row per rank: % of communication that computation hid; NaN without communication."""
        found = breakdowns.overlap(self.opened)
        if visualize:
            title = "Computation-communication overlap"
            self.figures.show(figures.bars(found, "rank", "comp_comm_overlap_pctg", title))
        return found

    def get_gpu_kernel_breakdown(
        self,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int = 10,
        include_memory_kernels: bool = True,
        image_renderer: str | None = None,
    ) -> tuple[Any, Any]:
        """Busy time in exclusive classes, and a row per kernel and rank (see `breakdowns`)."""
        types = breakdowns.kernel_types(self.opened, include_memory_kernels)
        kernels = breakdowns.kernels(self.opened, duration_ratio, num_kernels, include_memory_kernels)
        if visualize:
            shown = [figures.pie(types, "percentage", "kernel_type", "Time by type of kernel, all ranks")]
            for (kind, rank), rows in kernels.groupby(["kernel_type", "rank"]):
                shown.append(figures.pie(rows, "sum (us)", "name", f"{kind}, rank {rank}"))
            for kind, rows in kernels.groupby("kernel_type"):
                shown += figures.named_means(rows, str(kind))
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
        """A row per annotation and rank, durations in µs; None where there are none.

        Names that one of `allowlist_patterns` (regular expressions) is found in are never folded.
        """
        found = breakdowns.annotation_rows(
            self.opened, use_gpu_annotation, duration_ratio, num_kernels, allowlist_patterns
        )
        if visualize and found is not None:
            pies = [
                figures.pie(rows, "sum (us)", "name", f"Annotations, rank {rank}")
                for rank, rows in found.groupby("rank")
            ]
            self.figures.show(*pies, *figures.named_means(found, "Annotation"), renderer=image_renderer)
        return found

    def get_gpu_kernels_with_user_annotations(
        self, rank: int, expand_names: bool = True, shorten_names: bool = True
    ) -> Any:
        """Each GPU row of a rank with the annotations around its launch; None where it has none."""
        return breakdowns.annotated_kernels(self.opened, rank, expand_names, shorten_names)

    def get_idle_time_breakdown(
        self,
        ranks: list[int] | None = None,
        streams: list[int] | None = None,
        visualize: bool = True,
        visualize_pctg: bool = True,
        show_idle_interval_stats: bool = False,
        consecutive_kernel_delay: float = 30,
    ) -> tuple[Any, Any]:
        """Idle time of each stream by category, and statistics of its gaps (None unless asked for).

        `consecutive_kernel_delay` in µs: a shorter gap that the host had no part in is a kernel_wait.
        """
        selected = self.opened.selected(ranks)
        found = breakdowns.idle(self.opened, selected, streams, consecutive_kernel_delay)
        if visualize:
            drawn = found.assign(stream=found["stream"].astype(str))
            y = "idle_time_ratio" if visualize_pctg else "idle_time"
            charts = [
                figures.bars(
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
        return found, breakdowns.idle_intervals(self.opened, selected, streams, consecutive_kernel_delay)

    # Launches

    def get_cuda_kernel_launch_stats(
        self,
        ranks: list[int] | None = None,
        runtime_cutoff: float = 50,
        launch_delay_cutoff: float = 100,
        include_memory_events: bool = True,
        visualize: bool = True,
    ) -> dict[int, Any]:
        """By rank a row per GPU row whose launch is known: correlation, call, row and delay in µs."""
        found = operators.launch_stats(self.opened, self.opened.selected(ranks), include_memory_events)
        if visualize:
            shown = []
            for rank, frame in found.items():
                short = operators.short_kernels(frame, runtime_cutoff)
                shown += [
                    figures.histogram(
                        short, "cpu_duration", f"GPU rows shorter than their call, rank {rank}"
                    ),
                    figures.histogram(
                        frame[frame.cpu_duration > runtime_cutoff],
                        "cpu_duration",
                        f"Calls longer than {runtime_cutoff} µs, rank {rank}",
                    ),
                    figures.histogram(
                        frame[frame.launch_delay > launch_delay_cutoff],
                        "launch_delay",
                        f"Delays longer than {launch_delay_cutoff} µs, rank {rank}",
                    ),
                ]
            self.figures.show(*shown)
        return found

    def get_profiler_steps(self) -> list[int]:
        """The numbers of the profiler's steps, of all ranks, the last one included."""
        return operators.steps(self.opened)

    # Over time

    def get_queue_length_time_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """By rank `ts, pid, tid, stream, queue_length`: a row per launch and per start of a GPU row."""
        return series.queue_lengths(self.opened, self.opened.selected(ranks))

    def get_queue_length_summary(self, ranks: list[int] | None = None) -> Any:
        """Statistics of the queue's length by rank and stream; None where no launch is known."""
        return series.queue_summary(self.get_queue_length_time_series(ranks))

    def get_queue_length_summary_from_time_series(self, queue_length_dict: Mapping[int, Any]) -> Any:
        """The same of series that are there already; they are left as they are."""
        return series.queue_summary(queue_length_dict)

    def get_time_spent_blocked_on_full_queue(
        self, queue_length_dict: Mapping[int, Any], max_queue_length: int = FULL_QUEUE
    ) -> Any:
        """A row per rank and stream that was ever that full: how long, in µs, and which share of the time."""
        return series.blocked(self.opened, queue_length_dict, max_queue_length)

    def get_memory_bw_time_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """By rank `ts, pid, name, memory_bw_gbps`: a row per change of the copies in a direction."""
        return series.bandwidths(self.opened, self.opened.selected(ranks))

    def get_memory_bw_summary(self, ranks: list[int] | None = None) -> Any:
        """Statistics of the bandwidth by rank and direction, where anything runs; None without copies."""
        return series.bandwidth_summary(self.get_memory_bw_time_series(ranks))

    def generate_trace_with_counters(
        self,
        time_series: TimeSeriesTypes | None = None,
        ranks: list[int] | None = None,
        output_suffix: str = "_with_counters",
        output_dir: str | Path | None = None,
    ) -> None:
        """Writes each rank's trace with counters of its queues and copies, gzipped, into `output_dir`.

        Without one into the working folder. Raises ParamError where that is the folder of the traces, and
        where no rank has what counters are made of.
        """
        kinds = time_series or TimeSeriesTypes.QUEUE_LENGTH | TimeSeriesTypes.MEMCPY_BANDWIDTH
        if not isinstance(kinds, TimeSeriesTypes):
            raise ParamError(f"time_series {time_series}", "one of TimeSeriesTypes, or several with |")
        counters = [name for kind, name in COUNTERS.items() if kind in kinds]
        name = "{}" + (output_suffix or "_with_counters")
        selected, folder = self.opened.selected(ranks), Path(output_dir or Path.cwd())
        series.write_each(self.opened, selected, folder, name, counters)

    # Operators

    def get_aten_op_kernels_and_delay(
        self, ranks: list[int] | None = None, sort_by: list[str] | None = None
    ) -> dict[int, Any]:
        """By rank a row per `aten::` operator and sequence of kernels: how often, and delays in µs."""
        return operators.delays(self.opened, self.opened.selected(ranks), sort_by or ["occurrence_count"])

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
        """`pattern, count, GPU kernel duration (us), CPU op duration (us)` of the outermost such operators.

        `rank` None is the first one. With `output_dir` the trace is written there, with the sequences of all
        operators drawn over it; its events stay as they are, so `compress_other_kernels` is refused.
        """
        if compress_other_kernels:
            raise ParamError("compress_other_kernels would change events", "leave it out")
        (selected,) = self.opened.selected(rank)[:1]
        found = operators.sequences(self.opened, selected, operator_name, min_pattern_len)
        if output_dir is not None:
            series.write(
                self.opened, selected, Path(output_dir), "overlaid_{}", overlays=["kernel_sequences"]
            )
        if visualize:
            title = f"Top {top_k} sequences, rank {selected}"
            drawn = found[:top_k].assign(pattern=found.pattern.str.replace("|", "<br>", regex=False))
            drawn["place"] = [str(place) for place in range(len(drawn))]
            self.figures.show(figures.bars(drawn, "place", "count", title, hover_data=["pattern"]))
        return found

    def get_cupti_counter_data_with_operators(self, ranks: list[int] | None = None) -> list[Any]:
        """For each rank with CUPTI's counters a frame: kernels, their counters, the operators around them."""
        return operators.cupti(self.opened, self.opened.selected(ranks))

    # Over ranks

    def get_potential_stragglers(
        self,
        profiler_steps: list[int] | None = None,
        num_candidates: int = 2,
        visualize: bool = False,
        straggler_identification_impl: Callable[..., Any] | None = None,
    ) -> list[int]:
        """The ranks that the others waited for longest, at most `num_candidates`; none where nobody did."""
        if straggler_identification_impl is not None:
            raise ParamError("straggler_identification_impl reads HTA's own frames", "leave it out")
        if num_candidates < 1:
            raise ParamError(f"num_candidates {num_candidates}", "a number above 0")
        found = operators.stragglers(self.opened, profiler_steps, num_candidates)
        if visualize:
            frame = self.opened.frame("stragglers")
            self.figures.show(figures.bars(frame, "rank", "caused_wait_ns", "Whom the others waited for"))
        return found

    # The critical path

    def critical_path_analysis(
        self,
        rank: int,
        annotation: str,
        instance_id: int | tuple[int, int] | None,
        data_load_events: list[str] | None = None,
    ) -> tuple[CriticalPath, bool]:
        """The critical path of the instance-th annotation whose name holds the text, or of all for ''."""
        if data_load_events:
            raise ParamError(
                "data_load_events belong to the breakdown", "get_critical_path_breakdown(data_load_events=…)"
            )
        return critical_path(self.opened, rank, annotation, instance_id), True

    def overlay_critical_path_analysis(
        self,
        rank: int,
        critical_path_graph: CriticalPath,
        output_dir: str | Path,
        only_show_critical_events: bool = False,
        show_all_edges: bool = False,
    ) -> str:
        """Writes the rank's trace with what can be drawn over it into a folder; returns the file.

        The events of the trace stay as they are, all of them.
        """
        if only_show_critical_events or show_all_edges:
            raise ParamError("a trace is written with all its events and its critical path", "leave both out")
        name, folder = "overlaid_critical_path_{}", Path(output_dir)
        drawn = ["critical_path"]
        return str(series.write(critical_path_graph.opened, rank, folder, name, overlays=drawn))
