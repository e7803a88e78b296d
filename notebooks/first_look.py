# %% [markdown]
# # First look at a run
#
# Where did each rank's time go, and do the others wait for one of them? Open this file as a notebook
# (JupyterLab with jupytext, VS Code), or run it as a script. It takes the small synthetic run of the
# repository into a warehouse that is thrown away afterwards; put your own warehouse in its place.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

root = Path(__file__).parent.parent if "__file__" in globals() else Path.cwd().parent
folder = tempfile.TemporaryDirectory()
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(root / "tests" / "data" / "first-steps")
run = wh.select(runs=["first-steps"])

# %% [markdown]
# ## The split of each device's window
#
# Parts add up to the window, in nanoseconds; shares are taken at the very end.

# %%
breakdown = run.temporal_breakdown().polars()
parts = ["compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns"]
assert (breakdown.select(pl.sum_horizontal(parts)).to_series() == breakdown["window_ns"]).all()
print(breakdown.select("rank", *(pl.col(part) / pl.col("window_ns") for part in parts)))

# %% [markdown]
# ## Who waits for whom
#
# A collective ends when its last rank arrives: the rank that spends the *least* time in communication is
# the one that the others wait for.

# %%
waited_for = breakdown.sort("exposed_comm_ns").item(0, "rank")
print(f"the other ranks wait for rank {waited_for}")

# %% [markdown]
# ## The kernels that take the time
#
# `scan` gives a Polars LazyFrame over just the files that are needed; `query` takes SQL.

# %%
print(
    wh.scan("kernels")
    .group_by("kind", "short_name")
    .agg(pl.len().alias("count"), pl.col("dur_ns").sum().alias("sum_ns"))
    .sort("sum_ns", descending=True)
    .collect()
)
print(wh.query("SELECT rank, step, period_ns FROM steps ORDER BY rank, step").polars())

# %%
folder.cleanup()
