"""`TraceAnalysis` with HTA's methods, computed by tracewarehouse."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Flag, auto
from pathlib import Path
from typing import Any

from tracewarehouse.errors import ParamError
from tracewarehouse.hta import traces
from tracewarehouse.hta.common.trace import Trace
from tracewarehouse.hta.traces import (
    US,
    CriticalPath,
    Files,
    LoadedTraces,
    by_rank,
    frames_by_rank,
    load_traces,
)
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


_KERNELS = """
    SELECT event_id AS "index", category AS cat, name, pid, tid, ts_ns, dur_ns,
        coalesce(stream, -1) AS stream, coalesce(correlation, -1) AS correlation, step
    FROM events
    SEMI JOIN kernels USING (run_id, rank, event_id)
    WHERE rank = {rank}"""
_CORRELATIONS = "SELECT rank, event_id AS kernel_id, coalesce(correlation, -1) AS correlation FROM kernels"
_QUEUE = """
    SELECT rank, ts_ns, device AS pid, stream AS tid, stream, queue_length
    FROM queue_changes
    ORDER BY rank, device, stream, ts_ns, change DESC, change * queue_length"""
_DIRECTIONS = {"Memset": "Memset", "unknown": "Memcpy Unknown"}
_EVENT = (
    "SELECT rank, event_id, pid, tid, ts_ns, dur_ns, step FROM events WHERE category = 'cuda_profiler_range'"
)


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
            if self.traces.rows(count)[0]["steps"] > 1:
                self._note("the last profiler step is included; HTA excludes it by default")

    def _ranks(self, ranks: list[int] | None) -> list[int]:
        """The requested ranks; rank 0 by default, as in HTA, or the lowest rank if there is no rank 0."""
        selected = self.traces.select_ranks(ranks)
        if ranks:
            return selected
        if len(selected) > 1:
            self._note(f"without ranks=, rank {selected[0]} of {len(selected)} is analyzed, as in HTA")
        return selected[:1]

    def _note(self, text: str) -> None:
        """One line about what is analyzed by default, once per process."""
        if text not in _NOTED:
            _NOTED.add(text)
            log.warning("%s", text)

    # Breakdowns

    def get_temporal_breakdown(self, visualize: bool = True) -> Any:
        """One row per rank: idle, compute, other busy and total time in µs, and in % of the total."""
        frame = self.traces.frame("temporal_breakdown")
        ns_by_name = {
            "idle": frame.idle_ns,
            "compute": frame.compute_ns,
            "non_compute": frame.busy_ns - frame.compute_ns,
        }
        frame["kernel_time(us)"] = frame.window_ns / US
        for name, ns in ns_by_name.items():
            frame[f"{name}_time(us)"] = ns / US
            frame[f"{name}_time_pctg"] = (100 * ns / frame.window_ns.where(frame.window_ns > 0)).round(2)
        times = [f"{name}_time(us)" for name in ns_by_name]
        shares = [f"{name}_time_pctg" for name in ns_by_name]
        table = by_rank(frame, ["rank", *times, "kernel_time(us)", *shares])
        if visualize:
            self.figures.show(traces.bars(table, "rank", shares, "Temporal breakdown across ranks"))
        return table

    def get_comm_comp_overlap(self, visualize: bool = True) -> Any:
        """One row per rank: % of communication overlapped with computation; NaN without communication."""
        frame = self.traces.frame("comm_comp_overlap")
        frame["comp_comm_overlap_pctg"] = (100 * frame.overlap.astype(float)).round(2)
        table = by_rank(frame, ["rank", "comp_comm_overlap_pctg"])
        if visualize:
            title = "Computation-communication overlap"
            self.figures.show(traces.bars(table, "rank", "comp_comm_overlap_pctg", title))
        return table

    def get_gpu_kernel_breakdown(
        self,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int = 10,
        include_memory_kernels: bool = True,
        image_renderer: str | None = None,
    ) -> tuple[Any, Any]:
        """Busy time by kernel type, and one row per kernel and rank."""
        types = traces.kernel_types(self.traces, include_memory_kernels)
        kernels = traces.kernels(self.traces, duration_ratio, num_kernels, include_memory_kernels)
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
        table = traces.annotation_summary(
            self.traces, use_gpu_annotation, duration_ratio, num_kernels, allowlist_patterns
        )
        if visualize and table is not None:
            pies = [
                traces.pie(rows, "sum (us)", "name", f"Annotations, rank {rank}")
                for rank, rows in table.groupby("rank")
            ]
            self.figures.show(*pies, *traces.mean_bars(table, "Annotation"), renderer=image_renderer)
        return table

    def get_gpu_kernels_with_user_annotations(
        self, rank: int, expand_names: bool = True, shorten_names: bool = True
    ) -> Any:
        """Each GPU activity of a rank with the annotations enclosing its launch; None without annotations.

        Columns: `index, cat, name, pid, tid, ts, dur, stream, correlation, iteration, user_annotation` (the
        full path, outermost first), and with `expand_names` also `s_name` and `s_user_annotation` (the
        innermost, or an empty string).
        """
        (rank,) = self.traces.select_ranks([rank])
        annotated = self.traces.frame("kernels_by_annotation", [rank])
        if annotated.empty or not annotated.depth.gt(0).any():
            return None
        annotated = annotated.set_index("kernel_id")
        rows = self.traces.query(_KERNELS.format(rank=rank))
        rows = rows.set_index("index", drop=False).sort_index()
        rows["ts"], rows["dur"] = self.traces.since_start(rows.ts_ns), rows.dur_ns / US
        rows["iteration"] = rows.step.fillna(-1).astype(int)
        rows["user_annotation"] = annotated.path.reindex(rows.index).fillna("")
        columns = ["index", "cat", "name", "pid", "tid", "ts", "dur", "stream", "correlation", "iteration"]
        if expand_names:
            short = self.traces.query(
                f"SELECT event_id, short_name FROM kernels WHERE rank = {rank}"
            ).set_index("event_id")
            rows["s_name"] = short.short_name.reindex(rows.index) if shorten_names else rows.name
            rows["s_user_annotation"] = annotated.annotation.reindex(rows.index).fillna("")
            columns += ["s_name"]
        columns += ["user_annotation", *(["s_user_annotation"] if expand_names else [])]
        return rows[columns].reset_index(drop=True)

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
        table = traces.idle(self.traces, selected, streams, consecutive_kernel_delay)
        if visualize:
            drawn = table.assign(stream=table["stream"].astype(str))
            column = "idle_time_ratio" if visualize_pctg else "idle_time"
            charts = [
                traces.bars(
                    rows,
                    "stream",
                    column,
                    f"Idle time, rank {rank}",
                    percent=visualize_pctg,
                    color="idle_category",
                )
                for rank, rows in drawn.groupby("rank")
            ]
            self.figures.show(*charts)
        if not show_idle_interval_stats:
            return table, None
        return table, traces.idle_intervals(self.traces, selected, streams, consecutive_kernel_delay)

    # Launches

    def get_cuda_kernel_launch_stats(
        self,
        ranks: list[int] | None = None,
        runtime_cutoff: float = 50,
        launch_delay_cutoff: float = 100,
        include_memory_events: bool = True,
        visualize: bool = True,
    ) -> dict[int, Any]:
        """By rank: `correlation, cpu_duration, gpu_duration, launch_delay` (µs) of launched GPU activities.

        The delay is from the return of the call to the start of the activity, and may be negative.
        """
        selected = self._ranks(ranks)
        frame = self.traces.frame("launch_stats", selected)
        frame = frame[frame.runtime_id.notna()]
        if not include_memory_events:
            frame = frame[frame.kind != "memory"]
        frame = frame.merge(self.traces.query(_CORRELATIONS), on=["rank", "kernel_id"])
        frame["cpu_duration"] = frame.call_ns.astype("int64") / US
        frame["gpu_duration"] = frame.kernel_ns / US
        frame["launch_delay"] = frame.return_to_start_ns.astype("int64") / US
        columns = ["correlation", "cpu_duration", "gpu_duration", "launch_delay"]
        tables = {rank: frame[frame["rank"] == rank][columns].reset_index(drop=True) for rank in selected}
        if visualize:
            shown = []
            for rank, frame in tables.items():
                usual = frame[frame.cpu_duration <= runtime_cutoff]
                short = usual[usual.gpu_duration < usual.cpu_duration]
                long, late = frame.cpu_duration > runtime_cutoff, frame.launch_delay > launch_delay_cutoff
                charts = (
                    ("GPU activities shorter than their call", short, "cpu_duration"),
                    (f"Calls longer than {runtime_cutoff} µs", frame[long], "cpu_duration"),
                    (f"Delays longer than {launch_delay_cutoff} µs", frame[late], "launch_delay"),
                )
                shown += [
                    traces.histogram(rows, column, f"{title}, rank {rank}") for title, rows, column in charts
                ]
            self.figures.show(*shown)
        return tables

    def get_profiler_steps(self) -> list[int]:
        """Profiler step numbers of all ranks, including the last step."""
        return self.traces.steps()

    # Over time

    def get_queue_length_time_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """By rank: `ts` (µs since the first event), `pid` (device), `tid`, `stream`, `queue_length`.

        One row per launch and per start. Ranks without a known launch are skipped.
        """
        selected = self._ranks(ranks)
        frame = self.traces.query(_QUEUE)
        frame.insert(0, "ts", self.traces.since_start(frame.pop("ts_ns")))
        return frames_by_rank(frame, selected)

    def get_queue_length_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """The same as `get_queue_length_time_series`, by the name in HTA's tutorial."""
        return self.get_queue_length_time_series(ranks)

    def get_queue_length_summary(self, ranks: list[int] | None = None) -> Any:
        """Statistics of the queue length by rank and stream; None without known launches."""
        return self.get_queue_length_summary_from_time_series(self.get_queue_length_time_series(ranks))

    def get_queue_length_summary_from_time_series(self, queue_length_dict: Mapping[int, Any]) -> Any:
        """The same for existing time series, which are not modified."""
        return traces.described(queue_length_dict, "stream", "queue_length")

    def get_time_spent_blocked_on_full_queue(
        self, queue_length_dict: Mapping[int, Any], max_queue_length: int = FULL_QUEUE
    ) -> Any:
        """Time at full queue in µs, and as a share of the time from first launch to last start.

        One row per rank and stream of the series that reached this length.
        """
        if max_queue_length < 1:
            raise ParamError(f"max_queue_length must be at least 1, not {max_queue_length}")
        frame = self.traces.frame(
            "queue_blocked", self.traces.select_ranks(list(queue_length_dict)), max_length=max_queue_length
        )
        streams = {
            (rank, stream)
            for rank, series in queue_length_dict.items()
            for stream in series["stream"].unique()
        }
        keys = zip(frame["rank"], frame["stream"], frame.blocked_ns.fillna(0), strict=True)
        frame = frame.loc[[bool(ns) and (rank, stream) in streams for rank, stream, ns in keys]]
        share = "relative_duration_at_max_queue_length"
        times = {"duration_at_max_queue_length": frame.blocked_ns.astype(float) / US, share: frame.share}
        table = frame.assign(**times)[["rank", "stream", *times]]
        return table.reset_index(drop=True)

    def get_memory_bw_time_series(self, ranks: list[int] | None = None) -> dict[int, Any]:
        """By rank: `ts` (µs since the first event), `pid` (device), `name` (direction), `memory_bw_gbps`.

        One row per change in a direction.
        """
        selected = self._ranks(ranks)
        frame = self.traces.frame("memory_bandwidth", selected)
        frame["ts"] = self.traces.since_start(frame.ts_ns)
        frame["pid"] = frame.device
        frame["name"] = [_DIRECTIONS.get(direction, f"Memcpy {direction}") for direction in frame.direction]
        frame["memory_bw_gbps"] = frame.bandwidth_bytes_per_ns
        frame = frame.sort_values(["rank", "device", "direction", "ts_ns"])
        return frames_by_rank(frame[["rank", "ts", "pid", "name", "memory_bw_gbps"]], selected)

    def get_memory_bw_summary(self, ranks: list[int] | None = None) -> Any:
        """Statistics of the bandwidth while copying, by rank and direction; None without copies."""
        series = self.get_memory_bw_time_series(ranks)
        copying = {rank: frame[frame.memory_bw_gbps > 0] for rank, frame in series.items()}
        return traces.described(copying, "name", "memory_bw_gbps")

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
        traces.write_each(self.traces, selected, folder, name, counters)
        log.warning("traces with counters of %s are in %s", plural(len(selected), "rank"), folder)

    # Operators

    def get_aten_op_kernels_and_delay(
        self, ranks: list[int] | None = None, sort_by: list[str] | None = None
    ) -> dict[int, Any]:
        """By rank: each `aten::` operator and kernel sequence with its count and mean delays in µs.

        `avg_aten_op_launch_delay` is from the start of the operator to its first launch, `avg_runtime_delay`
        from there to the start of the kernel, including time in the queue.
        """
        selected, sort_by = self._ranks(ranks), sort_by or ["occurrence_count"]
        frame = self.traces.frame("op_kernel_delays", selected, with_memory=False)
        frame = frame[frame.name.str.startswith("aten::")]
        table = frame.assign(
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
        ordered = table.sort_values([*sort_by, "aten_op_name", "kernel_sequence"], ascending=False)
        return {rank: ordered[ordered["rank"] == rank][columns].reset_index(drop=True) for rank in selected}

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
        if not operator_name:
            raise ParamError("operator_name is empty", "use a part of an operator name, such as aten::linear")
        frame = self.traces.frame(
            "kernel_sequences", [selected], operator=operator_name, min_kernels=min_pattern_len
        )
        frame["pattern"] = frame.name + "|" + frame.kernels.str.replace(" | ", "|", regex=False)
        frame["GPU kernel duration (us)"] = frame.kernel_sum_ns / US
        frame["CPU op duration (us)"] = frame.op_sum_ns / US
        ordered = frame.sort_values(["count", "pattern"], ascending=[False, True], ignore_index=True)
        table = ordered[["pattern", "count", "GPU kernel duration (us)", "CPU op duration (us)"]]
        if output_dir is not None:
            traces.write_series(
                self.traces, selected, Path(output_dir), "overlaid_{}", overlays=["kernel_sequences"]
            )
        if visualize:
            title = f"Top {top_k} sequences, rank {selected}"
            drawn = table[:top_k].assign(pattern=table.pattern.str.replace("|", "<br>", regex=False))
            drawn["rank by count"] = [str(index) for index in range(len(drawn))]
            self.figures.show(traces.bars(drawn, "rank by count", "count", title, hover_data=["pattern"]))
        return table

    def get_cupti_counter_data_with_operators(self, ranks: list[int] | None = None) -> list[Any]:
        """One frame per rank with counters: a row per kernel, a column per counter, and its operators."""
        frame = self.traces.frame("cupti_counters", self._ranks(ranks))
        events = self.traces.query(_EVENT)
        frames = []
        for rank, rows in frame.groupby("rank"):
            kernels = rows.drop_duplicates("event_id").set_index("event_id")
            values = rows.pivot(index="event_id", columns="counter", values="value")
            event = events[events["rank"] == rank].set_index("event_id").reindex(kernels.index)
            table = event.assign(
                index=kernels.index,
                name=kernels.name,
                ts=self.traces.since_start(event.ts_ns),
                dur=event.dur_ns / US,
                op_stack=[[] if stack is None else list(stack) for stack in kernels.op_stack],
                top_level_op=kernels.top_op.fillna(""),
                bottom_level_op=kernels.op.fillna(""),
            )
            columns = ["index", "name", "pid", "tid", "ts", "dur"]
            table = table[[*columns, "op_stack", "top_level_op", "bottom_level_op"]].join(values)
            frames.append(table.loc[kernels.sort_values("position").index].reset_index(drop=True))
        return frames

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
        frame = self.traces.frame("collective_waits")
        if profiler_steps is not None:
            steps = self.traces.steps()
            if not set(profiler_steps) & set(steps):
                raise ParamError(
                    f"unknown steps: {', '.join(map(str, profiler_steps))}",
                    f"available: {', '.join(map(str, steps))}",
                )
            frame = frame[frame.step.isin(profiler_steps)]
        caused = frame[frame.wait_ns > 0].groupby("straggler_rank")["wait_ns"].sum()
        ranks = [
            int(rank) for rank in caused.sort_values(ascending=False, kind="stable").index[:num_candidates]
        ]
        if visualize:
            frame = self.traces.frame("stragglers")
            self.figures.show(traces.bars(frame, "rank", "caused_wait_ns", "Wait caused"))
        return ranks

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
        return traces.critical_path(self.traces, rank, annotation, instance_id), True

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
        return str(traces.write_series(critical_path_graph.traces, rank, folder, name, overlays=drawn))


def _mean_us(ns: Any, frame: Any) -> Any:
    return (ns / frame["count"] / US).round(3)
