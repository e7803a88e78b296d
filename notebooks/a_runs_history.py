# %% [markdown]
# # A run's history: when did the step time change, and is it still so?
#
# A nightly job leaves a trace a day. Drawn over time its step time wobbles; the question is where it
# *moved*: by how much, between which two nights, and how sure that is.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Twelve nights, slower from the eighth on; put your own warehouse here: wh = tw.open("warehouse")
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
# ## Record, then look back
#
# `record` keeps results of analyses beside the traces. What is recorded outlives its traces:
# `tw remove --older-than 90d --keep-results`. A metric is a column of an analysis, `step_time` is short for
# `step_summary.period_ns`.

# %%
wh.record(analyses=["step_summary", "kernel_summary"])
history = wh.history("step_time", where="label.branch=main")
print(history.plot(width=80))

# %% [markdown]
# ## When did it change?
#
# From twelve runs on, changes of the level are told, each with its size, an interval, and the two runs
# between which it lies. A single night that is far off makes no change.

# %%
(change,) = history.changes
print(
    f"{change.change:+.1%} between {change.before} and {change.after} [{change.low:+.1%}, {change.high:+.1%}]"
)

# %% [markdown]
# ## What changed then?
#
# The runs on both sides of the change, compared: the account names what came in.

# %%
account = wh.diff(change.before, change.after).changes().rows(["kernels"]).polars()
movers = account.sort(pl.col("delta_ns").abs(), descending=True)
print(movers.select("name", "delta_ns").head(3))

# %% [markdown]
# Where the change was meant, say so, and every later look at the history shows why:

# %%
wh.acknowledge("step_time", change.after, "one more kernel: checks of the loss, agreed on")
(agreed,) = wh.history("step_time").changes
print(agreed.why)

# %% [markdown]
# ## Any number of any analysis
#
# `tw history 'kernel_summary.sum_ns[kind=communication]' -o history.html` draws another metric into a page;
# `--by label.gpu` gives a line for each value of a label. As a data frame:

# %%
frame = wh.history("kernel_summary.sum_ns[kind=computation]").polars()
print(frame.select("run_id", "value", "level").tail(3))
folder.cleanup()
