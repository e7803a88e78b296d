"""Record `torch-modules`: a step of nested modules under checkpointing of both kinds, with stacks and memory.

    pip install torch==2.13.0 numpy
    cd FOLDER && python record_modules.py   # writes torch-modules.json.gz, torch-modules.key_averages.json

Block 1 runs again in `recompute_fn`, block 2 in checkpointing's operator, whose backward is nested in that of
the model. There is no GPU: tests let each innermost operator launch an activity. The JSON file holds what the
profiler reports of each name and shape: calls, total and self time in µs, total and self memory in bytes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Two layers and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.down(self.act(self.up(values)))  # type: ignore[no-any-return]


class Net(nn.Module):
    """Three blocks, two of them checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = self.blocks[0](values)
        values = checkpoint(self.blocks[1], values, use_reentrant=False)
        values = checkpoint(self.blocks[2], values, use_reentrant=True)
        return self.head(values)  # type: ignore[no-any-return]


def step(net: Net, optimizer: torch.optim.Optimizer) -> None:
    """Forward, backward and update."""
    loss = net(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def main() -> None:
    """Records a step after a first one, so that gradients exist."""
    torch.set_num_threads(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step(net, optimizer)
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
    ) as prof:
        step(net, optimizer)
    with TemporaryDirectory() as folder:
        prof.export_chrome_trace(f"{folder}/trace.json")
        Path("torch-modules.json.gz").write_bytes(
            gzip.compress(Path(folder, "trace.json").read_bytes(), mtime=0)
        )
    rows = [
        [row.key, bool(row.is_user_annotation), json.dumps(row.input_shapes) if row.input_shapes else None]
        + [row.count, round(row.cpu_time_total, 3), round(row.self_cpu_time_total, 3)]
        + [row.cpu_memory_usage, row.self_cpu_memory_usage]
        for row in prof.key_averages(group_by_input_shape=True)
    ]
    lines = ",\n".join(f"  {json.dumps(row)}" for row in sorted(rows, key=str))
    Path("torch-modules.key_averages.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
