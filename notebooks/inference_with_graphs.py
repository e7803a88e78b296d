# %% [markdown]
# # How fast does a server decode, and what runs inside its CUDA graphs?
#
# Inference servers replay a graph per step: one launch starts hundreds of kernels, and none of them has an
# operator or a module in the trace. Those were recorded once, when the graph was captured. This notebook
# measures the steps of a server, finds the operators of replayed kernels in a trace of the capture, and sums
# GPU time by module.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# A simulated server on AMD GPUs, with a trace of its graph captures in the same folder.
# Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
server = {"mode": "inference", "gpu": "MI300X", "graphs": True, "capture": True, "workers": 0}
tw.simulate(Path(folder.name) / "serve", ranks=2, steps=4, layers=2, hidden=512, **server)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "serve")
run = wh.select("serve")

# %% [markdown]
# ## Which phases, how many tokens per second?
#
# vLLM, SGLang, TensorRT-LLM and xDiT annotate each step with its requests and tokens. `tokens_per_s` includes
# the host; `busy_tokens_per_s` counts only time in which the GPU ran. If they are far apart, it waits for
# the host. A worker does not record when a request arrived, so there is no time to first token.

# %%
steps = run.inference_steps().polars()
print(
    steps.group_by("rank", "phase").agg(pl.len().alias("steps"), pl.col("decode_tokens").sum()).sort("rank")
)
speed = steps.select(pl.col("tokens_per_s", "busy_tokens_per_s").median()).row(0)
assert speed[0] <= speed[1]
print("the host costs this share of the speed:", round(1 - speed[0] / speed[1], 2))

# %% [markdown]
# ## What is the time per output token made of?
#
# `serving_summary` has a row per rank and phase: the median batch, the time per output token, what the GPU
# does within the steps, and the gaps between them. Exposed all-to-alls are the cost of expert parallelism.
# `tw check` says if decode steps wait for launches (`slow_decode`) or for prefill (`prefill_delays_decode`),
# or if experts get different numbers of tokens (`unbalanced_experts`).

# %%
phases = run.serving_summary().polars()
print(phases.select("rank", "phase", "requests", "time_per_token_ns", "busy_share", "gap_ns"))
parts = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "idle_ns")
assert phases.select(pl.sum_horizontal(parts) == pl.col("gpu_ns")).to_series().all()

# %% [markdown]
# ## How much of the GPU time is inside graphs?
#
# An operator around a graph launch encloses the launch, not the work. `coverage` therefore does not count it,
# and `graph_ns` is the time that graph launches replayed.

# %%
before = run.coverage().polars()
print(before.select("rank", "in_graph", "with_op"))

# %% [markdown]
# ## Which operators are they?
#
# `derive("graphs")` looks for captures in the trace itself, then in files of the same folder with `capture`
# in their name; `capture="RUN"` names another run. On HIP the captured launches name their kernels, so that
# lists can be compared. On CUDA they do not: equal length and order is then all the evidence (`by_order`).

# %%
done = wh.derive("graphs", "serve")
print("with an operator: {} of {} replayed activities".format(*done.attributed))
run = wh.select("serve")
print(run.graph_summary().polars().select("rank", "replays", "activities", "attributed", "how"))
assert (run.coverage().polars()["with_op"] >= before["with_op"]).all()

# %% [markdown]
# ## Which modules take the time?
#
# `kernels_attributed` has the operator and modules of every GPU activity, wherever they come from. A row is
# certain if `place_known` is true; if several captured launches are possible, columns in which they differ
# are null.

# %%
by_module = run.query("""
    SELECT
      regexp_extract(module_path, '.*nn.Module: (\\w+)_\\d+$', 1) AS module,
      sum(dur_ns)::BIGINT AS gpu_ns,
      bool_and(place_known) AS is_certain
    FROM kernels_attributed
    WHERE attributed_by = 'graph'
    GROUP BY module
    ORDER BY gpu_ns DESC
""").polars()
print(by_module)

# %%
folder.cleanup()
