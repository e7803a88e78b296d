"""Record `ops-cpu`: operators whose FLOP are known by hand, one profile with forward and backward each.

    pip install torch==2.13.0 numpy
    python tests/data/record_work.py FOLDER      # gives FOLDER/ops-cpu/*.json.gz and flop_counter.json

`flop_counter.json` has what PyTorch's FlopCounterMode counts for each case, which is not always right: it
counts grouped backward convolutions and causal masks in full, and neither attention on the CPU nor addbmm.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode


def leaf(*shape: int) -> Tensor:
    """A random tensor that needs a gradient."""
    return torch.randn(*shape, requires_grad=True)


def layer(module: nn.Module, given: Tensor) -> Callable[[], None]:
    """Forward and backward of a layer."""
    return lambda: module(given).sum().backward()


def attention(heads: int, keys: int, causal: bool) -> Callable[[], None]:
    """Attention of 64 queries with `heads` heads of keys and values."""
    query, key, value = leaf(2, 8, 64, 32), leaf(2, heads, keys, 32), leaf(2, heads, keys, 32)
    call = F.scaled_dot_product_attention
    return lambda: call(query, key, value, is_causal=causal, enable_gqa=heads < 8).sum().backward()


def cases() -> dict[str, Callable[[], object]]:
    """Name → forward and backward of one operator."""
    lstm = nn.LSTM(16, 32, batch_first=True)
    sequence = torch.randn(4, 7, 16)
    left, right = leaf(3, 4, 5), torch.randn(3, 5, 6)
    image = (2, 8, 15, 15)
    return {
        "linear": layer(nn.Linear(64, 32), leaf(8, 64)),
        "linear_batched": layer(nn.Linear(64, 32), leaf(4, 8, 64)),
        "bmm": lambda: torch.bmm(left, right).sum().backward(),
        "conv2d": layer(nn.Conv2d(8, 16, 3, stride=2, padding=1), leaf(*image)),
        "conv2d_dilated": layer(nn.Conv2d(8, 16, 3, padding=2, dilation=2), leaf(*image)),
        "conv2d_groups": layer(nn.Conv2d(8, 16, 3, padding=1, groups=4), leaf(*image)),
        "conv2d_depthwise": layer(nn.Conv2d(8, 8, 3, padding=1, groups=8), leaf(*image)),
        "conv2d_transposed": layer(nn.ConvTranspose2d(8, 16, 3, stride=2, padding=1), leaf(*image)),
        "conv1d": layer(nn.Conv1d(8, 16, 5), leaf(2, 8, 50)),
        "conv2d_first": layer(nn.Conv2d(3, 16, 7, stride=2, padding=3), torch.randn(2, 3, 32, 32)),
        "attention": attention(8, 64, causal=False),
        "attention_causal": attention(8, 64, causal=True),
        "attention_causal_longer": attention(8, 96, causal=True),
        "attention_grouped": attention(2, 64, causal=False),
        "lstm": lambda: lstm(sequence)[0].sum().backward(),
        "einsum": lambda: torch.einsum("bij,bjk->bik", torch.randn(3, 4, 5), torch.randn(3, 5, 6)),
        "mv": lambda: torch.mv(torch.randn(4, 5), torch.randn(5)),
        "addbmm": lambda: torch.addbmm(torch.randn(4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6)),
    }


def record(case: Callable[[], object], path: Path) -> int:
    """Profiles a case into a file; returns what FlopCounterMode counts."""
    with FlopCounterMode(display=False) as counter:
        case()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        case()
    with TemporaryDirectory() as folder:
        prof.export_chrome_trace(f"{folder}/trace.json")
        path.write_bytes(gzip.compress(Path(folder, "trace.json").read_bytes(), mtime=0))
    return int(counter.get_total_flops())


def main(folder: Path) -> None:
    """Records all cases."""
    place = folder / "ops-cpu"
    place.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    counted = {name: record(case, place / f"{name}.json.gz") for name, case in cases().items()}
    (folder / "flop_counter.json").write_text(json.dumps(counted, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
