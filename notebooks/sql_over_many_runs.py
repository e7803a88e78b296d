# %% [markdown]
# # SQL and polars over many runs: which setting is best, and what does it cost?
#
# A sweep leaves a dozen runs behind. Here they are tables: one SELECT over all of them, with the runs' labels
# as columns, and polars where a data frame is handier.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# A sweep over batch sizes and GPUs; put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
wh = tw.open(Path(folder.name) / "warehouse")
for gpu in ("A100", "H100"):
    for batch in (2, 8):
        traces = Path(folder.name) / f"{gpu}-batch{batch}"
        tw.simulate(traces, ranks=1, steps=3, layers=2, gpu=gpu, batch=batch)
        wh.ingest(traces, labels={"gpu": gpu, "batch": str(batch)})

# %% [markdown]
# ## One SELECT over all runs
#
# `runs` has a row for each run and its labels as a map; every other table has `run_id` and `rank`. `query`
# only reads, whatever is pasted into it.

# %%
sql = """
WITH
  sweep AS (
    SELECT
      runs.labels['gpu'] AS gpu,
      runs.labels['batch']::INTEGER AS batch,
      median(steps.period_ns) / 1e6 AS step_ms
    FROM steps
    JOIN runs USING (run_id)
    WHERE NOT steps.partial
    GROUP BY ALL
  )
SELECT gpu, batch, step_ms, batch / step_ms * 1000 AS samples_per_s
FROM sweep
ORDER BY gpu, batch
"""
sweep = wh.query(sql).polars()
print(sweep)
best = sweep.sort("samples_per_s", descending=True).row(0, named=True)
print(f"best: {best['gpu']} with batch {best['batch']}")

# %% [markdown]
# ## An analysis over all runs
#
# Without `select` an analysis looks at every run. Labels choose, too: `label:gpu=H100` is a set of runs.

# %%
print(wh.select("label:gpu=H100").temporal_breakdown().polars().select("run_id", "busy_ns", "idle_ns"))

# %% [markdown]
# ## polars over the files
#
# `scan` gives a LazyFrame over just the files that the chosen runs need: polars reads the columns and rows
# that your expression asks for, and no more.

# %%
kinds = (
    wh.scan("kernels")
    .group_by("run_id", "kind")
    .agg(pl.len().alias("rows"), pl.col("dur_ns").sum())
    .sort("run_id", "kind")
    .collect()
)
print(kinds.pivot("kind", index="run_id", values="dur_ns"))
assert kinds["rows"].sum() == wh.query("SELECT count(*) AS n FROM kernels").polars().item()

# %% [markdown]
# ## Your own question
#
# Every argument of every event is kept as JSON. What no analysis asks, SQL can: here, operators by
# the shapes of their inputs.

# %%
shapes = wh.query(
    """
    SELECT run_id, name, shapes::VARCHAR AS shapes, count(*) AS calls
    FROM events
    WHERE starts_with(name, 'aten::') AND shapes::VARCHAR <> '[]'
    GROUP BY ALL
    ORDER BY calls DESC, run_id, shapes
    LIMIT 5
    """
).polars()
print(shapes)

# %% [markdown]
# ## Where next
#
# A SELECT that is worth keeping becomes an analysis: one `.sql` file with a contract on top, which then has
# a command, a method, a place in `tw diff`, and a history. `tw shell` opens the same tables in DuckDB's
# shell, and `FROM tw_help` lists them.

# %%
folder.cleanup()
