# %% [markdown]
# # Where do the FLOPs go: how much of the GPU's arithmetic does a job use?
#
# No profiler counts FLOP. They follow from the input shapes of operators, so record with
# `profile(record_shapes=True)`. A multiply-add is two FLOP; norms, softmax, elementwise operators and copies
# have none by convention.

# %%
import tempfile
from pathlib import Path

import polars as pl

import tracewarehouse as tw

# One rank of a small model with a kernel of torch.compile in each step.
# Put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
small = {"ranks": 1, "steps": 3, "layers": 4, "hidden": 2048}
tw.simulate(Path(folder.name) / "traces", injections=["extra-kernel:us=400"], **small)
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(Path(folder.name) / "traces", run="job")
run = wh.select("job")

# %% [markdown]
# ## Which share of the peak does each step reach?
#
# MFU is the FLOP that the model needs, divided by what the device could do in the same time; HFU also counts
# what is computed again. Read them together with `flop_coverage`, the share of computation time in operators
# whose FLOP are known: below one half, MFU is null and `reason` says why. Peaks are those of `device_specs`,
# where `checked` says which ones were compared with the vendor's documentation; for another one, pass
# `peak_flop_per_ns`.

# %%
steps = run.mfu().polars().filter(pl.col("step").is_not_null())
print(steps.select("step", "period_ns", "model_flop", "mfu", "hfu", "flop_coverage", "peak_dtype"))
total = run.mfu_run().polars().row(0, named=True)
print(f"{total['mfu']:.0%} of the peak, FLOP known for {total['flop_coverage']:.0%} of computation time")

# %% [markdown]
# ## Which operators do the work, and which take the time?
#
# Where an operator's share of the time is much larger than its share of the FLOP, the device waits for memory
# or runs a slow kernel.

# %%
work = run.op_work_summary().polars()
families = work.group_by("family").agg(
    flop_share=pl.col("hardware_flop").sum() / work["hardware_flop"].sum(),
    time_share=pl.col("gpu_union_ns").sum() / work["gpu_union_ns"].sum(),
)
print(families.sort("time_share", descending=True))

# %% [markdown]
# ## What would PyTorch print?
#
# `key_averages` has the rows and columns of `prof.key_averages()`, from the stored trace. Here `flops` counts
# each call tree once, at its outermost operator with a rule; PyTorch's `with_flops` knows fewer operators.
# `tw show key_averages --format table` prints it as PyTorch does.

# %%
averages = run.key_averages().polars()
counted = averages.filter(pl.col("flops").is_not_null()).sort("device_total_ns", descending=True)
print(counted.select("name", "count", "self_cpu_ns", "device_total_ns", "flops").head(6))
assert counted["flops"].sum() == work["model_flop"].sum()

# %% [markdown]
# ## How much runs in generated kernels?
#
# What a kernel that torch.compile or Triton generated computes is not recorded: its FLOP are unknown, and
# `flop_coverage` is lower by its share of the time. `source_ops` names the operators that were fused into it.

# %%
compiled = run.compiled_kernels().polars()
print(compiled.select("name", "template", "source_ops", "count", "gpu_sum_ns"))
share = compiled["gpu_sum_ns"].sum() / run.kernel_summary().polars()["sum_ns"].sum()
print(f"{share:.1%} of GPU time in generated kernels")

# %% [markdown]
# ## How close does each kernel come to its limit?
#
# The roofline is the larger of FLOP / peak rate and bytes / memory bandwidth, as a share of the time taken:
# 1 means that no implementation could be faster on this device. `bound_by` names the nearer limit, `neither`
# a kernel that is far from both.

# %%
roofline = run.roofline()
kernels = roofline.polars().filter(pl.col("roofline").is_not_null())
print(kernels.select(pl.col("kernel").str.head(40), "intensity", "roofline", "bound_by").head(8))
assert kernels["roofline"].min() > 0

# %% [markdown]
# ## What could be faster?
#
# Two findings look for it: products whose sizes are not multiples of 8, and operators that take much time
# far from every limit. The quality rule `over_peak` lists operators above 1: their data was in a cache, their
# algorithm needs fewer FLOP, or type or peak are not what they seem.

# %%
for name in ("misaligned_gemm", "low_roofline_hot_ops"):
    (finding,) = run.analyze(name).rows()
    print(f"{name}: {finding['severity']}, {finding['observation']}")
folder.cleanup()
roofline.plot("gpu_union_ns")
