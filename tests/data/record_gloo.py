"""Record `gloo-cpu`: a real training run of 4 ranks on the CPU, through `tracewarehouse.trace_handler`.

    pip install . torch==2.13.0 numpy
    python tests/data/record_gloo.py FOLDER      # gives FOLDER/gloo-cpu/rank*.json.gz and key_averages.json

A small classifier under DistributedDataParallel over gloo, 2 warm-up and 3 recorded steps, with shapes,
stacks, modules and memory. Rank 1 sleeps 15 ms in "## load ##", so the others wait in their first all_reduce.
`key_averages.json` holds what the profiler itself says of each operator, as a witness. The traces are kept as
they came: record where host name and folder are no secret, since the profiler writes both into its header.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

import tracewarehouse as tw

RUN = "gloo-cpu"
RANKS, SLOW_RANK, SLOW_S = 4, 1, 0.015
WARMUP, ACTIVE = 2, 3
FRAME = re.compile(r"\(\d+\): |^<built-in |^nn\.Module: ")


class Classifier(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, 10)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(batch))
        return out


def load(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch; rank SLOW_RANK takes its time."""
    with record_function("## load ##"):
        if rank == SLOW_RANK:
            time.sleep(SLOW_S)
        return torch.randn(32, 64), torch.randint(10, (32,))


def train_step(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step of training."""
    batch, labels = load(rank)
    with record_function("## forward ##"):
        loss = nn.functional.cross_entropy(model(batch), labels)
    with record_function("## backward ##"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def averages(prof: profile) -> dict[str, list[float]]:
    """Each operator's calls, total and self time in µs, as the profiler sums them; Python frames left out."""
    rows = sorted(prof.key_averages(), key=lambda row: str(row.key))
    return {
        row.key: [row.count, round(row.cpu_time_total, 3), round(row.self_cpu_time_total, 3)]
        for row in rows
        if not FRAME.search(row.key)
    }


def work(rank: int, folder: Path) -> None:
    """What each rank's process does."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model = DistributedDataParallel(Classifier(), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keep = tw.trace_handler(folder / "warehouse", run=RUN)

    def ready(prof: profile) -> None:
        keep(prof)
        (folder / f"averages.{rank}.json").write_text(json.dumps(averages(prof)))

    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=ready,
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_modules=True,
    ) as prof:
        for _ in range(WARMUP + ACTIVE):
            train_step(rank, model, optimizer)
            prof.step()
    dist.destroy_process_group()


def main(folder: Path) -> None:
    """Record all ranks, then name the traces and put the averages into one file."""
    folder.mkdir(parents=True, exist_ok=True)
    mp.spawn(work, args=(folder,), nprocs=RANKS)
    (folder / RUN).mkdir()
    for path in (folder / "warehouse" / "inbox" / RUN).glob("*.json.gz"):
        rank = re.search(r"rank(\d+)", path.name)
        assert rank, path
        shutil.copy(path, folder / RUN / f"rank{rank[1]}.json.gz")
    ranks = [_rank_text(folder, rank) for rank in range(RANKS)]
    (folder / "key_averages.json").write_text("{\n" + ",\n".join(ranks) + "\n}\n")


def _rank_text(folder: Path, rank: int) -> str:
    rows = json.loads((folder / f"averages.{rank}.json").read_text())
    lines = [f"  {json.dumps(name)}: {json.dumps(numbers)}" for name, numbers in rows.items()]
    return f'"rank{rank}": {{\n' + ",\n".join(lines) + "\n}"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
