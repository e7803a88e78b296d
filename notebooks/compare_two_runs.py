# %% [markdown]
# # Compare two runs: is it slower, and what made it so?
#
# Two traces always differ. This page asks first whether they may be compared at all, then whether the step
# time really changed, and only then what the change is made of, so that a difference that is no more than
# noise takes nobody's afternoon.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Three runs before a change, three after it. Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
slower = ["slow-kernel:kernel=gemm,percent=20", "extra-kernel:us=40"]
for seed in range(3):
    noise = {"ranks": 1, "steps": 5, "layers": 2, "seed": seed}
    tw.simulate(Path(folder.name) / "traces" / f"before-{seed}", **noise)
    tw.simulate(Path(folder.name) / "traces" / f"after-{seed}", injections=slower, **noise)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces")
before = [f"before-{seed}" for seed in range(3)]
after = [f"after-{seed}" for seed in range(3)]

# %% [markdown]
# ## Is it slower?
#
# Runs of the same code differ from each other, and a single run tells nothing of how far. Give several on
# each side where you can: the interval then speaks about the code, not about one afternoon. Beside the
# verdict stand the things in which the two sides differ other than in time: a GPU model, a world size.

# %%
change = wh.diff(before, after).changes()
print(change.line)
for difference in change.differences:
    print(difference)

# %% [markdown]
# One run on each side gives a verdict, too, but about these two runs alone, and it says so.

# %%
alone = wh.diff("before-0", "after-0").changes()
print(alone.line)

# %% [markdown]
# ## What made it so?
#
# The account tells where the change of the mean step went. Each level adds up to it, to the nanosecond: by
# what devices did or why they stood idle, then by kernel (more calls or slower ones, new, gone, renamed).

# %%
account = change.rows(["breakdown"]).polars()
print(account.select("name", "delta_ns", "base_ns", "head_ns"))
kernels = change.rows(["kernels"]).polars().sort(pl.col("delta_ns").abs(), descending=True)
print(kernels.select("name", "delta_ns", "calls_ns", "speed_ns").head(6))
print(f"what changed most: {kernels.item(0, 'name')}")

# %% [markdown]
# ## Ask one analysis on both sides
#
# Any analysis can be compared: its rows are joined by what identifies them, per step and rank.

# %%
moved = wh.diff(before, after).kernel_summary().polars()
print(moved.select("name", "change", "delta_sum_ns", "verdict").head(6))

# %% [markdown]
# ## Where next
#
# `tw diff before after --gate 'step_time<=+3%'` holds a pull request to a bound, with exit code 3 and a
# comment in Markdown. `tw report BASE HEAD` puts all of this on one page.

# %%
folder.cleanup()
