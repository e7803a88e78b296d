"""Record `torch-cpu`: what the profiler folds when it sums by name, in three small traces of one process.

    pip install torch==2.13.0 numpy
    python tests/data/record_ops.py FOLDER      # gives FOLDER/torch-cpu/*.json.gz and key_averages.json

The work has what the rules of `tests/properties/witness/torch_rules.py` are about: spans of one name inside
each other, an annotation named as the operator in it, spans that cross, a second thread, a checkpoint whose
backward runs its forward again, a data loader, and memory that is freed outside every operator. `threads`
holds both threads (torch then records no memory), `memory` has neither stacks nor steps, so that some memory
is in no span, and `stacks` has steps, Python frames, modules and memory. `key_averages.json` holds what the
profiler says of each name. The traces are kept as they came: record where host name and folder are no secret.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Double(torch.autograd.Function):
    """An operator of Python's own."""

    @staticmethod
    def forward(ctx: object, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: object, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] * 2


def repeats() -> None:
    """Spans of one name inside each other: an only child, one of two, and the operator itself."""
    with record_function("again"), record_function("again"), record_function("again"):
        torch.ones(3).sum()
    with record_function("twice"):
        with record_function("twice"):
            torch.zeros(3)
        with record_function("twice"):
            torch.zeros(3)
    one = torch.ones(3)
    with record_function("aten::relu"):
        torch.relu(one)
    with record_function("aten::is_leaf"):  # a name that the profiler leaves out of its sums
        torch.relu(one)


def crossing() -> None:
    """The second span ends after the first, which it began in."""
    first, second = record_function("first"), record_function("second")
    first.__enter__()
    torch.ones(2)
    second.__enter__()
    torch.ones(2)
    first.__exit__(None, None, None)
    torch.ones(2)
    second.__exit__(None, None, None)


def beside() -> None:
    """Work on a separate thread."""
    with record_function("beside"):
        torch.ones(8, 8) @ torch.ones(8, 8)


def work(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    """One step."""
    repeats()
    crossing()
    other = threading.Thread(target=beside)
    with record_function("waiting"):
        other.start()
        other.join()
    hidden = checkpoint(model, batch, use_reentrant=True)
    loss = Double.apply(hidden).square().mean()
    del hidden
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del loss


def averages(prof: profile) -> list[list[object]]:
    """Name, whether it is an annotation, calls, total and own µs: the profiler's own sums."""
    rows = sorted(prof.key_averages(), key=lambda row: (str(row.key), bool(row.is_user_annotation)))
    return [
        [row.key, bool(row.is_user_annotation), row.count]
        + [round(row.cpu_time_total, 3), round(row.self_cpu_time_total, 3)]
        for row in rows
    ]


def record(kind: str, path: Path) -> list[list[object]]:
    """Profiles some rounds of work into a file and gives what the profiler says of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    optimizer = torch.optim.Adam(model.parameters())
    batches = DataLoader(TensorDataset(torch.randn(24, 16)), batch_size=8)
    stacks = kind == "stacks"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1) if stacks else None,
        record_shapes=True,
        profile_memory=kind != "threads",
        with_stack=stacks,
        with_modules=stacks,
        experimental_config=_ExperimentalConfig(profile_all_threads=kind == "threads"),
    ) as prof:
        for (batch,) in batches:
            work(model, optimizer, batch.requires_grad_())
            if stacks:
                prof.step()
    with TemporaryDirectory() as folder:
        prof.export_chrome_trace(f"{folder}/trace.json")
        path.write_bytes(gzip.compress(Path(folder, "trace.json").read_bytes(), mtime=0))
    return averages(prof)


def main(folder: Path) -> None:
    """Records the traces, and puts the averages into one file."""
    place = folder / "torch-cpu"
    place.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    parts = []
    for kind in ("threads", "memory", "stacks"):
        lines = [f"  {json.dumps(row)}" for row in record(kind, place / f"{kind}.json.gz")]
        parts.append(f'"{kind}": [\n' + ",\n".join(lines) + "\n]")
    (folder / "key_averages.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
