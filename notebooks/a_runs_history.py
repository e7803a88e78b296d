# %% [markdown]
# # A run's history: when did the step time change, and by how much?
#
# A nightly job writes one trace per day, and its step time varies from night to night. This notebook finds
# the *change points*: how large each change is, between which two nights it occurred, and how certain it is.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Twelve nights, slower from the eighth. Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
for night in range(12):
    tw.simulate(
        Path(folder.name) / "traces" / f"night-{night + 1:02}",
        ranks=1,
        steps=3,
        layers=1,
        hidden=512,
        seed=night,
        start=f"2026-05-{night + 1:02}T02:00:00",
        injections=["extra-kernel:us=120"] if night >= 7 else [],
    )
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", labels={"branch": "main"})

# %% [markdown]
# ## Record results and plot a metric
#
# `record` stores results of analyses in the warehouse. `tw remove --older-than 90d --keep-results` removes
# traces but keeps recorded results. A metric is a column of an analysis; `step_time` is short for
# `step_summary.period_ns`.

# %%
wh.record(analyses=["step_summary", "kernel_summary"])
history = wh.history("step_time", where="label.branch=main")
print(history.plot(width=80))

# %% [markdown]
# ## When did it change?
#
# With twelve or more runs, changes of the level are reported, each with its size, a confidence interval and
# the two runs between which it occurred. A single outlier is not a change.

# %%
(change,) = history.changes
print(
    f"{change.change:+.1%} between {change.before} and {change.after} [{change.low:+.1%}, {change.high:+.1%}]"
)

# %% [markdown]
# ## What changed?
#
# Compare the runs before and after the change: the breakdown shows the kernels that contribute most.

# %%
breakdown = wh.diff(change.before, change.after).changes().rows(["kernels"]).polars()
largest = breakdown.sort(pl.col("delta_ns").abs(), descending=True)
print(largest.select("name", "delta_ns").head(3))

# %% [markdown]
# If the change was intended, acknowledge it with a reason, which the history shows from then on:

# %%
wh.acknowledge("step_time", change.after, "one more kernel: checks of the loss, accepted")
(acknowledged,) = wh.history("step_time").changes
print(acknowledged.why)

# %% [markdown]
# ## Any metric of any analysis
#
# `tw history 'kernel_summary.sum_ns[kind=communication]' -o history.html` writes another metric to an HTML
# page; `--by label.gpu` draws one series per value of a label. As a data frame:

# %%
frame = wh.history("kernel_summary.sum_ns[kind=computation]").polars()
print(frame.select("run_id", "value", "level").tail(3))
folder.cleanup()
