# %% [markdown]
# # SQL and Polars over many runs: which setting is best?
#
# A parameter sweep produces a dozen runs. This notebook queries all of them with one SELECT, with the runs'
# labels as columns, and uses Polars where a data frame is more convenient.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# A sweep over batch sizes and GPUs. Put your own warehouse here: wh = tw.open("warehouse")
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
# `runs` has a row per run, with its labels as a map; all other tables have `run_id` and `rank`. `query` is
# read-only.

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
# Without `select`, an analysis covers all runs. Labels select runs too: `label:gpu=H100`.

# %%
print(wh.select("label:gpu=H100").temporal_breakdown().polars().select("run_id", "busy_ns", "idle_ns"))

# %% [markdown]
# ## Polars over the files
#
# `scan` returns a LazyFrame over the files of the selected runs. Polars reads only the columns and rows that
# your expression needs.

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
# All arguments of all events are stored as JSON, so SQL can answer questions that no analysis covers. Here:
# operators by the shapes of their inputs.

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
# ## Next steps
#
# A useful SELECT can become an analysis: a `.sql` file with a contract on top. It then has a command and a
# method, and works with `tw diff` and `tw history`. `tw shell` opens the same tables in the DuckDB shell;
# `FROM tw_help` lists them.

# %%
folder.cleanup()
