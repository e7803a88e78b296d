# %% [markdown]
# # Compare two runs: is one slower, and why?
#
# Two traces always differ. This notebook first checks whether the runs are comparable, then whether the step
# time changed by more than noise, and only then what the change consists of.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Three runs before a change and three after it. Put your own warehouse here: wh = tw.open("warehouse")
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
# Runs of the same code differ, and a single run does not show by how much. Use several runs per side if you
# can: the confidence interval then includes run-to-run variance. Configuration differences, such as another
# GPU model or world size, are listed with the verdict.

# %%
change = wh.diff(before, after).changes()
print(change.line)
for difference in change.differences:
    print(difference)

# %% [markdown]
# One run per side gives a verdict too, but it only applies to these two runs.

# %%
single = wh.diff("before-0", "after-0").changes()
print(single.line)

# %% [markdown]
# ## Why is it slower?
#
# The breakdown splits the change in mean step time. Each level sums to it exactly: by GPU activity and idle
# cause, and by kernel (call count, time per call, added, removed, replaced).

# %%
breakdown = change.rows(["breakdown"]).polars()
print(breakdown.select("name", "delta_ns", "base_ns", "head_ns"))
kernels = change.rows(["kernels"]).polars().sort(pl.col("delta_ns").abs(), descending=True)
print(kernels.select("name", "delta_ns", "calls_ns", "speed_ns").head(6))
print(f"largest change: {kernels.item(0, 'name')}")

# %% [markdown]
# ## Compare an analysis
#
# Any analysis can be compared: its rows are joined by their keys, with values per step and rank.

# %%
compared = wh.diff(before, after).kernel_summary().polars()
print(compared.select("name", "change", "delta_sum_ns", "verdict").head(6))

# %% [markdown]
# ## Next steps
#
# `tw diff before after --gate 'step_time<=+3%'` checks a pull request in CI: a failed gate exits with code 3,
# and `-f md` prints a Markdown comment. `tw report BASE HEAD` shows the comparison on one HTML page.

# %%
folder.cleanup()
