# %% [markdown]
# # Find the slow rank: who do the others wait for, and why?
#
# In a job of many ranks one slow GPU slows all of them down, and each rank's own trace says "communication".
# The rank to look at is the one that shows the *least* of it.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Four ranks, one of them slow; put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
slow = ["slow-rank:rank=3,factor=1.3"]
tw.simulate(Path(folder.name) / "traces", ranks=4, tensor=2, steps=3, layers=2, injections=slow)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", run="job")
run = wh.select("job")

# %% [markdown]
# ## Who is waited for
#
# A collective lasts from when a rank arrives until the last one has. So at each collective the rank that was
# there *shortest* came last, and the others waited for it. `stragglers` adds this up for each rank: what
# the others waited because of it, and at how many collectives. No clock is compared.

# %%
stragglers = run.stragglers()
ranked = stragglers.polars().sort("caused_wait_ns", descending=True)
print(ranked.select("rank", "caused_wait_ns", "share", "arrived_last", "collectives", "wait_ns"))
suspect = ranked.item(0, "rank")
print(f"the others wait for rank {suspect}")

# %% [markdown]
# A rank that waits for a slow neighbour is late itself at the next group's collective, and so is waited for
# in its turn. That is why the suspect's partners in its tensor-parallel group may come next in the list:
# look at the first one first.
#
# ## Where it happens
#
# The same by process group, collective by collective. A rank that is slow everywhere computes slowly; one
# that is slow in one group may have a slow link there.

# %%
waits = run.collective_waits().polars()
told = waits.filter(pl.col("straggler_rank") == suspect, pl.col("rank") != suspect)
print(told.group_by("process_group", "collective").agg(pl.len().alias("waits"), pl.col("wait_ns").sum()))

# %% [markdown]
# ## Is the slow rank's work more, or slower?
#
# Compare its kernels with those of another rank that does the same part of the work: the same counts and
# longer times mean a slow device (heat, power, another tenant), more calls mean more work (an uneven batch).

# %%
other = ranked.item(-1, "rank")
kernels = run.kernel_summary().polars().filter(pl.col("kind") == "computation")
pair = (
    kernels.filter(pl.col("rank") == suspect)
    .join(kernels.filter(pl.col("rank") == other), on="name", suffix="_other")
    .with_columns(slower=pl.col("sum_ns") / pl.col("sum_ns_other"))
)
print(pair.select("name", "count", "count_other", "slower"))
work = "the same kernels as" if (pair["count"] == pair["count_other"]).all() else "more or fewer kernels than"
longer = pair["sum_ns"].sum() / pair["sum_ns_other"].sum()
print(f"rank {suspect} runs {work} rank {other}, and they take {longer:.1f} times as long")

# %% [markdown]
# ## See it
#
# Both ranks side by side in [Perfetto](https://ui.perfetto.dev), their clocks aligned by the collectives:
# `tw export trace job --rank 2,3 --step 2 -o ranks.json.gz`. The clocks, and how sure that is:

# %%
print(wh.query("SELECT rank, reference_rank, offset_ns, uncertainty_ns FROM clock_offsets").polars())
folder.cleanup()
stragglers.plot("caused_wait_ns")
