# %% [markdown]
# # Why did it run out of memory?
#
# A job fails with "CUDA out of memory" although gigabytes are reserved and unused. A memory snapshot
# (`torch.cuda.memory._dump_snapshot`) says which blocks were in use, where they were allocated, and what was
# free. Here a simulated allocator records one; no GPU is needed.

# %%
import tempfile
from pathlib import Path
from random import Random

import polars as pl

import tracewarehouse as tw
from tracewarehouse.simulation.allocator import MIB, Allocator, OutOfMemory, frames

# A 4 GiB device; put your own warehouse here: wh = tw.open("warehouse")
folder = tempfile.TemporaryDirectory()
TORCH = "/env/torch/nn/modules/module.py"


def call(line, name):
    return frames((TORCH, 1773, "_call_impl"), ("/job/train.py", line, name))


# %% [markdown]
# ## A training with varying sequence lengths
#
# Each step allocates activations whose size depends on the longest sequence of the batch, keeps some of them
# for the next step (a cache), and frees the others. Blocks of many sizes leave gaps.


# %%
def train(expandable):
    device = Allocator(4096 * MIB, expandable=expandable)
    dice = Random(7)
    device.malloc(
        900 * MIB,
        frames(("/env/torch/nn/modules/linear.py", 106, "__init__"), ("/job/train.py", 12, "build")),
    )
    kept = []
    try:
        for step in range(48):
            length = dice.randint(20, 60)
            live = [device.malloc(length * MIB // 2 + layer * MIB, call(31, "encode")) for layer in range(12)]
            kept.append(device.malloc(dice.randint(11, 30) * MIB, call(40, "remember")))
            for block in live:
                device.free(block)
            if step % 4 == 3:
                device.free(device.malloc((600 + 25 * step) * MIB, call(52, "logits")))
    except OutOfMemory as error:
        print("step", step, "failed:", error)
    return device


traces = Path(folder.name) / "snapshots"
traces.mkdir()
train(expandable=False).dump(traces / "oom_rank0.pickle")

# %% [markdown]
# ## The verdict
#
# `tw ingest oom_rank0.pickle --run job` stores the snapshot; the rank comes from the file name. It may also
# be added to a rank that has a trace. `snapshot_oom` replays the snapshot backward to the failed allocation
# and compares the request with what was free at that moment.

# %%
wh = tw.open(Path(folder.name) / "warehouse")
wh.ingest(traces, run="job")
run = wh.select("job")
oom = run.snapshot_oom().polars().row(0, named=True)
print(oom["verdict"])
print(oom["explanation"])
print("try:", oom["advice"])

# %% [markdown]
# `fragmentation`: enough was free, but not in one block. `other_processes`: the memory is held elsewhere;
# this needs the memory size of the device, from the rank's trace or as `device_memory_bytes`. `capacity`:
# neither.
#
# ## Who holds the memory
#
# `snapshot_peak` divides the peak of active memory among the call stacks that allocated it. The frame is the
# innermost one outside of PyTorch.

# %%
peak = run.snapshot_peak().polars()
print(peak.select("top_frame", "category", "bytes", "blocks", "share"))
assert peak["bytes"].sum() == peak["peak_bytes"][0]

# %% [markdown]
# ## Where the gaps are
#
# `stuck_bytes` are free blocks in segments that also have blocks in use: the allocator cannot return them to
# the device, and they serve only requests that fit.

# %%
pools = run.snapshot_fragmentation().polars()
print(pools.select("kind", "segments", "reserved_bytes", "active_bytes", "stuck_bytes", "largest_free_bytes"))
findings = wh.check("job").polars().filter(pl.col("rule").is_in(["oom_explained", "fragmentation"]))
for observation in findings["observation"]:
    print("-", observation)

# %% [markdown]
# ## The fix
#
# With `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` a pool is one segment that grows, so free memory is
# not divided among segments. The same program gets further. `tw report job` draws the blocks over time, and
# `tw diff job fixed` compares the peaks by call.

# %%
train(expandable=True).dump(traces / "fixed.pickle")
wh.ingest(traces / "fixed.pickle", run="fixed")
fixed = wh.select("fixed")
print("failed allocations:", len(run.snapshot_oom()), "before,", len(fixed.snapshot_oom()), "after")
folder.cleanup()
