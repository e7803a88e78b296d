# %% [markdown]
# # Who holds up the job: which rank, and why?
#
# With tensor and pipeline parallelism, the rank that arrives last at a collective is often a victim: it is
# late because it waited in another process group. Wait attribution follows these waits back to the rank that
# started them.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Eight ranks, pairs of them in tensor groups; put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
slow = ["slow-rank:rank=5,what=compute,factor=1.5"]
layout = {"ranks": 8, "tensor": 2, "layers": 2, "stacks": False, "memory": False}
tw.simulate(Path(folder.name) / "traces", **layout, steps=6, injections=slow)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", run="job")
run = wh.select("job")

# %% [markdown]
# ## The last to arrive
#
# `stragglers` charges each wait to the rank that arrived last. Here two ranks share the waits: the slow
# one, and its partner in the tensor group, which has to wait for it and then is late in its data-parallel
# group.

# %%
arrivals = run.stragglers().polars().sort("caused_wait_ns", descending=True)
print(arrivals.select("rank", "caused_wait_ns", "share", "wait_ns").head(3))

# %% [markdown]
# ## The rank that causes the waits
#
# `derive("wait_attribution")` reads all ranks. A rank is excused for the time that it waited longer than the
# rank that waits for it; this part of the wait goes on to the rank that it waited for, and so on. Nothing is
# lost: the parts of each wait add up to it.

# %%
wh.derive("wait_attribution", "job")
causes = wh.select("job").straggler_causes().polars()
print(causes.select("rank", "cause", "share", "step_share", "null_p99", "is_named", "reason"))
named = causes.filter("is_named").select("rank").unique().to_series().to_list()
print("named:", ", ".join(map(str, named)) or "no rank")

# %% [markdown]
# A rank is named only if at least 1 % of the step is attributed to it, and more than one rank would get by
# chance (`null_p99`). Otherwise `reason` says why not. `cause` says what it did longer than the others:
# computation, copies, loading data, or nothing on the GPU (host). A rank that is late because of slow
# communication is never named.
#
# ## Who waited for whom
#
# Waits in sends, receives and broadcasts are separate columns, and those of a pipeline while it fills
# (`warmup_wait_ns`) and drains (`drain_wait_ns`). They are by design, so they are not charged to a rank.

# %%
matrix = wh.select("job").wait_matrix().polars()
print(
    matrix.group_by("for_rank")
    .agg(pl.col("wait_ns", "attributed_ns", "possible_wait_ns").sum())
    .sort("for_rank")
)
assert matrix["attributed_ns"].sum() == matrix["wait_ns"].sum()

# %% [markdown]
# ## One wait, followed
#
# The largest wait that was handed on: who waited, at which collective, and how many hands lie between it
# and the rank that caused it.

# %%
handed = wh.query(
    "SELECT waiter_rank, rank, depth, cause, wait_ns, instance_id FROM wait_attribution WHERE depth > 0"
)
print(handed.polars().sort("wait_ns", descending=True).head(3))
folder.cleanup()
