"""Simulated jobs that tests share, and how their files are read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import tracewarehouse as tw
from tracewarehouse.simulation import Noise

SMALL = {"steps": 2, "layers": 2, "hidden": 256, "sequence": 256}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one": {"ranks": 1},
    "data": {"ranks": 2, "counters": True},
    "tensor": {"ranks": 4, "tensor": 2, "dependent_launch": True},
    "pipeline": {"ranks": 2, "pipeline": 2, "microbatches": 2},
    "sharded": {"ranks": 2, "sharded": True, "dialect": "epoch"},
    "experts": {"ranks": 2, "experts": True, "gpu": "A100", "stacks": False},
    "amd": {"ranks": 2, "tensor": 2, "gpu": "MI300X"},
    "old": {"ranks": 2, "gpu": "V100", "dialect": "old"},
    "queued": {"ranks": 1, "queue_limit": 20, "workers": 2, "load_us": 900},
    "captured": {"ranks": 2, "tensor": 2, "graphs": True},
    "served": {"ranks": 2, "pipeline": 2, "mode": "inference", "gpu": "MI300X"},
    "graphs": {"ranks": 2, "tensor": 2, "mode": "inference", "graphs": True},
}
INJECTED = {
    "slow-rank": "slow-rank:rank=1,what=compute,factor=2",
    "slow-kernel": "slow-kernel:kernel=gemm,percent=30",
    "extra-kernel": "extra-kernel:us=80",
    "removed-kernel": "removed-kernel:kernel=dropout",
    "renamed-kernel": "renamed-kernel:kernel=gelu,to=gelu_of_another_library",
    "dataloader-stall": "dataloader-stall:step=1,ms=8",
    "blocking-item": "blocking-item",
    "no-overlap": "no-overlap",
    "slow-link": "slow-link:group=data0,factor=10",
    "long-collective": "long-collective:group=data0,collective=2,ms=4",
    "imbalance": "imbalance:rank=1,factor=3",
    "more-work": "more-work:rank=1,factor=1.5",
    "slow-stage": "slow-stage:stage=1,factor=2",
    "exposed-copies": "exposed-copies:mb=64",
    "host-blocked": "host-blocked",
    "startup": "startup:ms=20",
    "recompilation": "recompilation:step=1,ms=120",
    "slow-elementwise": "slow-elementwise:mb=128,count=2,bandwidth=0.25",
    "fusible-chain": "fusible-chain:mb=256,count=6,bandwidth=0.8",
    "growing-memory": "growing-memory:mb=64",
    "clock": "clock:rank=1,offset_us=1500.25,drift_ppm=30",
    "drop-ranks": "drop-ranks:rank=1",
    "truncated-window": "truncated-window:rank=0,from_ms=0.4,to_ms=1.2",
    "before-window": "before-window:rank=0,count=25",
    "skew-start": "skew-start:rank=1,ms=1.3",
    "restart": "restart:rank=1,s=60",
    "merge-files": "merge-files:rank=0",
    "lose-records": "lose-records:share=0.2",
    "malformed-duration": "malformed-duration:ms=50",
    "graph-gap": "graph-gap:ms=0.3",
    "lost-launch": "lost-launch:step=1,share=0.2",
}

# Settings with which a fault is tested.
NEEDED: dict[str, dict[str, Any]] = {
    "slow-stage": {"pipeline": 2, "microbatches": 2},
    "recompilation": {"microbatches": 2},  # of which only the first compiles
}


def read(folder: Path, rank: int = 0) -> dict[str, Any]:
    """A rank's trace as Python's own JSON reads it."""
    trace: dict[str, Any] = json.loads(gzip.decompress((folder / f"rank{rank}.json.gz").read_bytes()))
    return trace


def section(folder: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a section of the truth."""
    found = truth(folder)["sections"][name]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@cache
def truth(folder: Path) -> dict[str, Any]:
    """The expected results of a run."""
    expected: dict[str, Any] = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    return expected


def simulate_injections(folder: Path, kinds: Iterable[str] = tuple(INJECTED)) -> None:
    """Simulates a run without faults, `none`, and one per kind of injection."""
    settings: dict[str, Any] = {"ranks": 2, "layers": 2, "steps": 3, "noise": Noise(0, 0, 0, 0)}
    tw.simulate(folder / "none", **settings)
    for kind in kinds:
        tw.simulate(folder / kind, injections=[INJECTED[kind]], **settings, **NEEDED.get(kind, {}))
