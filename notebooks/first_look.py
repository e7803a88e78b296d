# %% [markdown]
# # First look at a run: where did the time go, and what is wrong?
#
# You have a folder of traces, one file per rank, and twenty minutes. This notebook answers the first
# questions in order: can the data be trusted, where did the time go, which problems do the rules find, and
# which kernels take the time?
#
# Open it as a notebook (JupyterLab with jupytext, VS Code), or run it as a script. The plot at the end needs
# `pip install 'tracewarehouse[plot]'`.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# A simulated run with two injected faults. Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
faults = ["slow-rank:rank=2,factor=1.4", "dataloader-stall:step=2,ms=6"]
tw.simulate(Path(folder.name) / "traces", ranks=4, steps=4, layers=2, injections=faults)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", run="first")
run = wh.select("first")  # or "@latest"

# %% [markdown]
# ## Can the data be trusted?
#
# Data-quality rules report incomplete or damaged data: GPU activities without a launch, lost events, clock
# jumps. Without an issue of severity *error*, the following results are reliable. `coverage` is the share of
# GPU time with a known launch and a known operator; 1.0 is all of it.

# %%
print(run.quality().polars().select("rank", "rule", "severity", "rows"))
print(run.coverage().polars().select("rank", "launch_known", "with_op"))

# %% [markdown]
# ## Where did the time go?
#
# The window of each device, from its first to its last GPU activity, is split into categories that sum to
# it: computation, exposed communication, exposed memory operations, other and idle. Times are integer
# nanoseconds: divide at the end, and do not add percentages.

# %%
breakdown = run.temporal_breakdown()
parts = ["compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns"]
split = breakdown.polars()
assert (split.select(pl.sum_horizontal(parts)).to_series() == split["window_ns"]).all()
print(split.select("rank", *(pl.col(part) / pl.col("window_ns") for part in parts)))

# %% [markdown]
# A collective ends on all ranks after the last one has arrived. So the rank with the *least* communication
# time is the one that the others wait for.

# %%
print("the other ranks wait for rank", *split.sort("exposed_comm_ns")["rank"].head(1))

# %% [markdown]
# ## What is wrong?
#
# `check` runs all rules: does the GPU wait for data, for the host, for other ranks? A finding has an upper
# bound on the saving and a suggestion. Savings overlap and cannot be summed: a step that waits less for data
# may wait longer for another rank.

# %%
findings = run.check().polars()
print(findings.select("rank", "rule", "subject", "severity", "share", "saving_ns"))
for observation, advice in findings.select("observation", "advice").unique(maintain_order=True).rows():
    print(f"- {observation} {advice}")

# %% [markdown]
# ## Which steps, which kernels?
#
# A stall in a single step is not visible in sums over steps, so look at each step. Then look at the kernels:
# a few of them take most of the time.

# %%
steps = run.step_summary().polars().filter(~pl.col("partial"))
print(steps.pivot("rank", index="step", values="period_ns"))
print("the slowest complete step:", *steps.sort("period_ns", descending=True)["step"].head(1))

kernels = run.kernel_summary().polars()
print(
    kernels.group_by("kind", "name")
    .agg(pl.col("count").sum(), pl.col("sum_ns").sum())
    .sort("sum_ns", descending=True)
    .head(5)
)

# %% [markdown]
# ## Which part of the model?
#
# With Python stacks (`with_stack=True`), each kernel belongs to a module: in forward by its frame, in
# backward by the sequence number of its operator. Self times sum to the GPU time; what belongs to no module
# is in parentheses. `module_siblings` compares the layers of a model with each other.

# %%
modules = run.module_summary(by_class=True, max_depth=3).polars()
gpu_ns = run.kernel_summary().polars()["sum_ns"].sum()
assert modules["kernel_self_sum_ns"].sum() == gpu_ns
print(
    modules.group_by("module_path")
    .agg(pl.sum("forward_ns", "backward_ns", "kernel_sum_ns"))
    .sort("kernel_sum_ns", descending=True)
    .head(5)
)
layers = run.module_siblings().polars()
print("layers that differ from the others:", layers.filter("is_outlier")["name"].unique().to_list())

# %% [markdown]
# ## Plots, reports and traces
#
# Every result can be plotted, with the extra `plot`, and `tw report` writes everything to one HTML page.
# `tw export trace first --around input_bound` writes the worst occurrence of a finding as a trace
# for [Perfetto](https://ui.perfetto.dev).

# %%
folder.cleanup()
breakdown.plot()
