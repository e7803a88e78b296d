# %% [markdown]
# # Coming from HTA: what replaces each call, and why do numbers differ?
#
# Holistic Trace Analysis reads a folder of traces into memory and returns pandas frames in microseconds.
# Here traces are ingested once, and every result is in integer nanoseconds with a contract that documents
# each column. This notebook lists HTA's calls: each in a comment, followed by its replacement. HTA need not
# be installed.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Two small runs of two ranks. Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
small = {"ranks": 2, "steps": 3, "layers": 2}
tw.simulate(Path(folder.name) / "traces" / "base", **small)
tw.simulate(Path(folder.name) / "traces" / "head", injections=["extra-kernel:us=80"], **small)
wh = tw.open(Path(folder.name) / "warehouse")

# %% [markdown]
# ## Loading
#
# HTA parses the traces on every load, drops the last profiler step and all GPU activities whose launch is
# not in the trace, and analyzes rank 0 by default. Here everything is kept, and an analysis covers all ranks
# of all runs unless narrowed with `select`.

# %%
# analyzer = TraceAnalysis(trace_dir="traces/base")
wh.ingest(Path(folder.name) / "traces")
run = wh.select("base")

# %% [markdown]
# ## Where the time goes
#
# HTA's `non_compute_time` is split here into exposed communication, exposed memory operations and other
# work. The categories sum to the window of each device.

# %%
# analyzer.get_temporal_breakdown()
breakdown = run.temporal_breakdown().polars()
percent = [
    (100 * pl.col(f"{part}_ns") / pl.col("window_ns")).round(2).alias(f"{part}_pctg")
    for part in ("idle", "compute", "exposed_comm", "exposed_memory")
]
print(breakdown.select("rank", "window_ns", *percent))
parts = ["compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns"]
assert (breakdown.select(pl.sum_horizontal(parts)).to_series() == breakdown["window_ns"]).all()

# analyzer.get_comm_comp_overlap()
print(run.comm_comp_overlap().polars().select("rank", "comm_ns", "overlap_ns", "overlap"))

# analyzer.get_idle_time_breakdown()
print(run.idle_breakdown().polars().select("rank", "cause", "idle_ns", "count"))  # HTA's: stream_idle

# %% [markdown]
# ## Kernels
#
# HTA returns two frames, by type and by kernel, and folds all but the top ten kernels into *others*, whose
# mean and deviation are those of sums. Here every kernel has a row; only the command line folds them
# (`tw show kernel_summary --top 10`).

# %%
# kernel_types, kernels = analyzer.get_gpu_kernel_breakdown()
print(run.kernel_type_breakdown().polars().select("rank", "class", "class_ns", "share"))
kernels = run.kernel_summary().polars()
print(kernels.sort("sum_ns", descending=True).select("rank", "name", "count", "sum_ns", "mean_ns").head(4))

# analyzer.get_aten_op_kernels_and_delay()
print(run.op_kernel_delays().polars().head(3))

# analyzer.get_frequent_cuda_kernel_sequences(operator_name="aten::linear")
print(run.kernel_sequences().polars().select("name", "count", "kernel_sum_ns").head(3))

# %% [markdown]
# ## Launches and queues
#
# HTA clips launch delays at 0, for kernels that start before their launch call returns. Here delays are
# signed, from the start and from the return of the call, and cover all functions that launch work.

# %%
# analyzer.get_cuda_kernel_launch_stats()
launches = run.launch_stats().polars()
print(launches.select("api", "name", "call_ns", "kernel_ns", "return_to_start_ns").head(3))
hta_delay = launches["return_to_start_ns"].clip(lower_bound=0)  # HTA's value
assert (hta_delay >= launches["return_to_start_ns"]).all()

# analyzer.get_queue_length_summary(), analyzer.get_queue_length_time_series()
print(run.queue_length_summary().polars().head(2))
print(run.queue_length().polars().head(2))

# %% [markdown]
# ## Memory, steps, ranks

# %%
# analyzer.get_memory_bw_summary()
print(run.memory_bandwidth_summary().polars().head(2))

# analyzer.get_profiler_steps()
print(run.step_summary().polars().select("rank", "step", "period_ns", "partial"))

# analyzer.get_potential_stragglers()
print(run.stragglers().polars().select("rank", "caused_wait_ns", "arrived_last"))

# %% [markdown]
# ## Two traces
#
# `TraceDiff.compare_traces` sums over ranks and steps. Here values are per rank and complete step, so that
# runs of different lengths are comparable, and every analysis can be compared.

# %%
# TraceDiff.compare_traces(base, head)
compared = wh.diff("base", "head").name_summary().polars()
print(compared.select("name", "change", "delta_count").head(3))
print(f"kinds of changes: {', '.join(sorted(set(compared['change'])))}")

# %% [markdown]
# ## The critical path
#
# HTA builds a graph in memory for one annotation. Here the path is derived once for every step and stored as
# a table of segments that sum to the step's duration.

# %%
# graph, ok = analyzer.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
wh.derive("critical_path", "base", ranks=0)
path = wh.select("base", ranks=0).critical_path_breakdown().polars()
print(path.head(5))

# %% [markdown]
# ## A trace with counters
#
# HTA writes the trace next to the input, where it is then read as another rank. Here you choose the file,
# and it contains the original events unchanged.

# %%
# analyzer.generate_trace_with_counters(rank=0)
target = Path(folder.name) / "rank0-with-counters.json"
target.write_text("".join(wh.export_trace("base", 0, counters=["queue_length", "memory_bandwidth"])))
print(f"{target.name}: {target.stat().st_size // 1024} KiB")

# %% [markdown]
# ## Or keep your notebook
#
# `from tracewarehouse.hta import TraceAnalysis` provides HTA's methods, arguments, columns and units,
# computed by tracewarehouse (`pip install 'tracewarehouse[hta]'`): only the import changes. Its docstring
# lists all differences with their reasons; `tests/properties/witness/HTA.md` compares the numbers of both.

# %%
folder.cleanup()
