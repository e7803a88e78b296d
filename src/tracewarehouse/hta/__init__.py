"""HTA's classes and methods on our numbers: `from tracewarehouse.hta import TraceAnalysis`.

Methods, arguments, columns and units (µs, %, GB/s) are those of Holistic Trace Analysis 0.6.1, so that a
notebook written for it runs with its import changed: `hta.trace_analysis` is here
`tracewarehouse.hta.trace_analysis`, and so on. pandas and plotly come with the extra `hta`.

The numbers are ours. Where they differ on purpose (HTA: … / here: …):

- GPU rows. HTA: whatever carries a stream, so synchronisations and some operators too / kernels, copies and
  sets, by category.
- Rows that count. HTA: no last profiler step, and only rows whose launch is in the trace / all that was
  recorded; `include_last_profiler_step` changes nothing.
- Ids of launches. HTA: joined over the whole rank, so rows double, and a graph launch keeps one kernel / the
  outermost call of the process; a graph launch has all its rows.
- Times. HTA: starts rounded up and ends down to µs, in floats / to the ns.
- Kinds of kernels. HTA: by the start of the name: RCCL and prefixed NCCL kernels are computation, HIP
  copies communication, `…Sync…` is in no table / by category, collective arguments and a table of names;
  OTHER is a class, and classes add up to 100 %.
- Idle time. HTA: the gap to the row before, negative where rows overlap; rows without a known launch wait
  for no host / the gap to all rows before; `unknown`, `before_first` and `after_last` are categories.
- Queues. HTA: some functions that launch, ties in any order; of several full streams the last one / all
  launches, at one moment before the starts; every stream that was full.
- Share of time blocked. HTA: of the whole trace / of the time from the first launch to the last start.
- Launch delay. HTA: clipped at 0, after four functions / signed, after every function that launches.
- `others`. HTA: statistics of sums, so mean, minimum and maximum are wrong; `duration_ratio` is a quantile of
  running sums / statistics of all rows folded; `duration_ratio` is the share of time of the named rows.
- Annotations. HTA: patterns are escaped; a GPU row has the shortest one that overlaps it on its stream /
  regular expressions; all annotations around the launch, the innermost as `s_user_annotation`.
- Bandwidth. HTA: the profiler's number, with residues of floats, none on AMD / bytes over time, exactly 0
  where nothing runs.
- `ranks=None`. HTA: rank 0 / all ranks.
- Several devices of a rank. HTA: as one / a row each, named in a column `device`.
- Trace diff. HTA: totals of the ranks and steps named; GPU rows without a launch, annotations on the GPU and
  synchronisations by `stream` / per rank and step; GPU rows by category, host rows by thread.
- ATen operators' delays. HTA: the operator by time, on any thread, memory of ranks added up / the innermost
  operator on the launching thread, rank by rank; no table is drawn.
- `analyzer.t`. HTA: names as numbers of a table of symbols, rows without what the load dropped / names in
  words, all rows with a length; `common.trace_filter` tells GPU rows by category, so no synchronisations.
- Stragglers. HTA: who starts late, by clocks that nobody set, for NCCL names of old / whom the others waited
  for, by how long each was at a collective.
- Critical path. HTA: a graph for networkx, without waits that no synchronisation event explains / parts that
  add up to the whole time, in tables; `summary()` and `get_critical_path_breakdown()`.
- Files written. HTA: beside the input / in the folder that you name, else the working folder.
- A file that cannot be read. HTA: ends the load / is left out, and told in the log `tracewarehouse.hta`.
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
