# %% [markdown]
# # Coming from HTA: what is my call called here, and why does the number differ?
#
# Holistic Trace Analysis reads a folder of traces into memory and answers with pandas frames in
# microseconds. Here traces are taken in once, and every answer is a result in whole nanoseconds, with a
# contract that says what each column means. This page goes through HTA's calls one by one: its line in a
# comment, ours below it. HTA need not be installed.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Two small runs of two ranks; put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
small = {"ranks": 2, "steps": 3, "layers": 2}
tw.simulate(Path(folder.name) / "traces" / "base", **small)
tw.simulate(Path(folder.name) / "traces" / "head", injections=["extra-kernel:us=80"], **small)
wh = tw.open(Path(folder.name) / "warehouse")

# %% [markdown]
# ## Loading
#
# HTA loads each time, drops the last profiler step and all GPU rows whose launch is not in the trace, and
# looks at rank 0 unless told otherwise. Here everything is kept, and an analysis looks at all ranks of all
# runs unless `select` narrows it.

# %%
# analyzer = TraceAnalysis(trace_dir="traces/base")
wh.ingest(Path(folder.name) / "traces")
run = wh.select("base")

# %% [markdown]
# ## Where the time goes
#
# HTA's `non_compute_time` is here told apart: communication and copies that nothing hid, each by itself. The
# parts add up to the window of each device.

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
print(run.idle_breakdown().polars().select("rank", "cause", "idle_ns", "count"))  # stream_idle: by stream

# %% [markdown]
# ## Kernels
#
# HTA gives two frames, by type and by kernel, and folds what is not among the first ten into *others*, of
# which mean and deviation are then those of sums. Here all kernels are rows, and the command line folds
# for eyes only (`tw show kernel_summary --top 10`).

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
# HTA clips a launch delay at 0: a kernel that starts before its launch call returns has none. Here delays are
# signed, from the start and from the return of the call, and every function that launches counts.

# %%
# analyzer.get_cuda_kernel_launch_stats()
launches = run.launch_stats().polars()
print(launches.select("api", "name", "call_ns", "kernel_ns", "return_to_start_ns").head(3))
hta_delay = launches["return_to_start_ns"].clip(lower_bound=0)  # what HTA would tell
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
# `TraceDiff.compare_traces` adds up ranks and steps; here a comparison is per rank and complete step, so that
# runs of different lengths can be compared, and any analysis can be.

# %%
# TraceDiff.compare_traces(base, head)
compared = wh.diff("base", "head").name_summary().polars()
print(compared.select("name", "change", "delta_count").head(3))
print(f"what became of names: {', '.join(sorted(set(compared['change'])))}")

# %% [markdown]
# ## The critical path
#
# HTA builds a graph in memory for one annotation. Here the path is derived once, for every step, and kept as
# a table whose parts add up to the step's length.

# %%
# graph, ok = analyzer.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=1)
wh.derive("critical_path", "base", ranks=0)
path = wh.select("base", ranks=0).critical_path_breakdown().polars()
print(path.head(5))

# %% [markdown]
# ## A trace with more in it
#
# HTA writes beside the input, where it is then read as one more rank. Here you name the file, and the
# original is in it digit by digit.

# %%
# analyzer.generate_trace_with_counters(rank=0)
target = Path(folder.name) / "rank0-with-counters.json"
target.write_text("".join(wh.export_trace("base", 0, counters=["queue_length", "memory_bandwidth"])))
print(f"{target.name}: {target.stat().st_size // 1024} KiB")

# %% [markdown]
# ## Or keep the notebook
#
# `from tracewarehouse.hta import TraceAnalysis` has HTA's methods, arguments, columns and units on our
# numbers (`pip install 'tracewarehouse[hta]'`): change the import, and the rest stays. Its docstring lists
# every difference with the reason; `tests/witness/HTA.md` shows which of HTA's numbers we reproduce, by
# which of its rules.

# %%
folder.cleanup()
