# %% [markdown]
# # Find the slow rank: which rank do the others wait for, and why?
#
# In a distributed job, one slow GPU slows down all ranks, and their traces only show communication. The
# straggler is the rank with the *least* communication time.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# Four ranks, one of them slow. Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
slow = ["slow-rank:rank=3,factor=1.3"]
tw.simulate(Path(folder.name) / "traces", ranks=4, tensor=2, steps=3, layers=2, injections=slow)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", run="job")
run = wh.select("job")

# %% [markdown]
# ## Which rank is the straggler?
#
# On each rank, a collective lasts from its own arrival until the last rank has arrived and the transfer is
# done. So the rank with the *shortest* duration arrived last, and the others waited for it. `stragglers` sums
# the wait that each rank causes, and counts its late collectives. Clocks of ranks are not compared.

# %%
stragglers = run.stragglers()
ranked = stragglers.polars().sort("caused_wait_ns", descending=True)
print(ranked.select("rank", "caused_wait_ns", "share", "arrived_last", "collectives", "wait_ns"))
suspect = ranked.item(0, "rank")
print(f"the others wait for rank {suspect}")

# %% [markdown]
# A rank that waits for a straggler is itself late at the next collective of another group, and causes waits
# there. Therefore other ranks of its tensor-parallel group may come next in the list: start with the first.
#
# ## Where do the others wait?
#
# The waits by process group and collective. A rank that is late in all groups computes slowly; one that is
# late in a single group may have a slow link.

# %%
waits = run.collective_waits().polars()
caused = waits.filter(pl.col("straggler_rank") == suspect, pl.col("rank") != suspect)
print(caused.group_by("process_group", "collective").agg(pl.len().alias("waits"), pl.col("wait_ns").sum()))

# %% [markdown]
# ## Does the straggler do more work, or is it slower?
#
# Compare its kernels with those of another rank that does the same share of the work. The same counts with
# longer times mean a slow device (temperature, power, another tenant); more calls mean more work (an uneven
# batch).

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
# ## See it in Perfetto
#
# `tw export trace job --rank 2,3 --step 2 -o ranks.json.gz` writes both ranks as one trace for
# [Perfetto](https://ui.perfetto.dev), with clocks aligned by collectives. The clock offsets and their
# uncertainty:

# %%
print(wh.query("SELECT rank, reference_rank, offset_ns, uncertainty_ns FROM clock_offsets").polars())
folder.cleanup()
stragglers.plot("caused_wait_ns")
