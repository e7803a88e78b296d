# %% [markdown]
# # First look at a run: where did the time go, and what is wrong?
#
# You have a folder of traces, one file per rank, and twenty minutes. This page asks the questions that
# are worth asking first, in the order in which they pay: can the data be trusted, where did the time go,
# what do the rules find, and which kernels are behind it.
#
# Open it as a notebook (JupyterLab with jupytext, VS Code), or run it as a script.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# A run that never ran, with two troubles planted. Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
planted = ["slow-rank:rank=2,factor=1.4", "dataloader-stall:step=2,ms=6"]
tw.simulate(Path(folder.name) / "traces", ranks=4, steps=4, layers=2, injections=planted)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", run="first")
run = wh.select("first")  # or "@latest"

# %% [markdown]
# ## Can the data be trusted?
#
# A rule of data quality fires where a trace cannot tell all: rows without a launch, lost events, clocks
# that jump. Nothing here of severity *error* means that what follows can be read as it stands. `coverage`
# says how much of the GPU's time has a known launch, and a known operator behind it: 1.0 is all of it.

# %%
print(run.quality().polars().select("rank", "rule", "severity", "rows"))
print(run.coverage().polars().select("rank", "launch_known", "with_op"))

# %% [markdown]
# ## Where did the time go?
#
# Each device's window, from its first GPU row to its last, is split into parts that add up to it:
# computation, communication and copies that nothing hid, and idle. Times are whole nanoseconds; divide at
# the very end, and never add percentages.

# %%
breakdown = run.temporal_breakdown()
parts = ["compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns"]
split = breakdown.polars()
assert (split.select(pl.sum_horizontal(parts)).to_series() == split["window_ns"]).all()
print(split.select("rank", *(pl.col(part) / pl.col("window_ns") for part in parts)))

# %% [markdown]
# A collective ends when its last rank arrives. So the rank that spends the *least* time in communication
# is the one that all others wait for.

# %%
print("the other ranks wait for rank", *split.sort("exposed_comm_ns")["rank"].head(1))

# %% [markdown]
# ## What is wrong?
#
# `check` asks every rule: is the GPU waiting for data, for the host, for other ranks? A finding says how
# much could be saved at most, and what to try. Savings do not add up: a step that waits less for data may
# wait more for another rank.

# %%
findings = run.check().polars()
print(findings.select("rank", "rule", "subject", "severity", "share", "saving_ns"))
for observation, advice in findings.select("observation", "advice").unique(maintain_order=True).rows():
    print(f"- {observation} {advice}")

# %% [markdown]
# ## Which steps, which kernels?
#
# One stall in one step hides in a sum over steps: look at steps apart. Then at the kernels that take the
# time, of which few are worth a thought.

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
# ## See it
#
# A picture of any result (`pip install 'tracewarehouse[plot]'`). For the whole story on one page there is
# `tw report`; to look at the worst place itself, `tw export trace first --around input_bound` writes a file
# for [Perfetto](https://ui.perfetto.dev).

# %%
folder.cleanup()
breakdown.plot()
