"""HTA's classes and methods, computed by tracewarehouse: `from tracewarehouse.hta import TraceAnalysis`.

Methods, arguments, columns and units (µs, %, GB/s) are those of Holistic Trace Analysis 0.6.1, so a notebook
written for HTA runs with changed imports: `hta.trace_analysis` is `tracewarehouse.hta.trace_analysis`, and so
on. The extra `hta` installs pandas, plotly, ipython and nbformat. Renderers of images (`svg`, `png`) also
need kaleido and Chrome; without them notebooks show interactive figures, and one line says what to install.

Intended differences:

- GPU activities. HTA: every event with a stream, including synchronizations and some operators. Here:
  kernels, memcpy and memset, by category.
- Time range. HTA: without the last profiler step, and only activities whose launch is in the trace. Here: the
  entire recording; `include_last_profiler_step` has no effect.
- Correlation ids. HTA: joined over the entire rank, which duplicates rows and keeps one kernel per graph
  launch. Here: the outermost call of the process; a graph launch has all its kernels.
- Timestamps. HTA: starts are rounded up and ends down to µs, as floats. Here: exact to the ns.
- Kernel types. HTA: by name prefix, so RCCL and prefixed NCCL kernels are computation, HIP copies are
  communication, and names with `Sync` are dropped. Here: by category, collective arguments and name rules;
  OTHER is a type, and types sum to 100 %.
- Idle time. HTA: gap to the previous activity, negative if they overlap; activities without a known launch
  never wait for the host. Here: gap to all previous activities; `unknown`, `before_first` and `after_last`
  are categories, so `idle_time_ratio` has a different denominator.
- Queue length. HTA: only some launch functions, and arbitrary order at equal times; of several full streams
  only the last is reported. Here: all launches, which precede starts at equal times; every full stream.
- Time blocked. HTA: as a share of the entire trace. Here: of the time from first launch to last start.
- Launch delay. HTA: clipped at 0, for four launch functions. Here: signed, for all launch functions.
- `others`. HTA: statistics of sums, so mean, minimum and maximum are wrong; `duration_ratio` is a quantile of
  cumulative sums. Here: statistics of all folded durations; `duration_ratio` is the share of time of the
  listed names.
- Annotations. HTA: patterns are escaped; a GPU activity gets the shortest annotation that overlaps it on its
  stream. Here: regular expressions; all annotations enclosing the launch, the innermost as
  `s_user_annotation`.
- Bandwidth. HTA: the profiler's value, with floating-point residues and none on AMD. Here: bytes divided by
  duration (the profiler's value where durations are whole microseconds), and exactly 0 between copies.
- `ranks=None`. HTA: rank 0. Here: all ranks.
- Several devices per rank. HTA: combined. Here: one row per device, with a column `device`.
- Trace diff. HTA: excludes GPU activities without a launch, and identifies GPU events by `stream`. Here: GPU
  activities by category, host events by thread.
- Delays of ATen operators. HTA: the operator by time on any thread, ranks combined. Here: the innermost
  operator on the launching thread, by rank; no table is printed.
- `analyzer.t`. HTA: names as ids of a symbol table, only loaded events. Here: names as strings, all events
  with a duration; `common.trace_filter` selects GPU activities by category, without synchronizations.
- Stragglers. HTA: ranks that start late by unsynchronized clocks, for old NCCL kernel names. Here: ranks that
  the others wait for, by the time each rank spends in a collective.
- Critical path. HTA: a networkx graph that ignores waits without a synchronization event. Here: tables of
  segments that sum to the total time; `summary()` and `get_critical_path_breakdown()`, but no nodes and
  edges: the docstring of `CriticalPath` lists what is missing.
- Output files. HTA: next to the input. Here: in the given folder, by default the working folder.
- Unreadable files. HTA: abort loading. Here: skipped, with a warning in the log `tracewarehouse.hta`.
"""

from __future__ import annotations

from tracewarehouse.hta.memory_analysis import MemoryAnalysis
from tracewarehouse.hta.trace_analysis import TimeSeriesTypes, TraceAnalysis
from tracewarehouse.hta.trace_diff import DeviceType, LabeledTrace, TraceDiff

__all__ = [
    "DeviceType",
    "LabeledTrace",
    "MemoryAnalysis",
    "TimeSeriesTypes",
    "TraceAnalysis",
    "TraceDiff",
]
