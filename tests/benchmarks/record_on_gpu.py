"""Records small traces on a machine with an NVIDIA GPU, with the profilers' own tables to compare them with.

    python tests/benchmarks/record_on_gpu.py record FOLDER [PART …]     # about ten minutes, below 3 MB
    python tests/benchmarks/record_on_gpu.py compare FOLDER             # without a GPU, with tracewarehouse

`record` needs torch, for some parts jax or Nsight Compute (`ncu`), and nothing of this package. A part that
fails does not stop the others; `parts.json` says what became of each. Without a GPU it records what a CPU
can, which tests the script itself. `compare` prints each difference from `key_averages()`, from the counted
FLOP and from the peak of allocated memory. Recorded on a CPU with PyTorch 2.13, nothing differs; the script
has not run on a GPU yet.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

WIDTH, TOKENS, BATCH, CLASSES = 512, 256, 16, 1000
COLUMNS = ("key", "count", "self_cpu_time_total", "self_device_time_total", "flops")
JAX = """
import jax, jax.numpy as jnp, sys
multiply = jax.jit(lambda a, b: jax.nn.gelu(a @ b).sum())
a = jnp.ones((2048, 2048), jnp.bfloat16)
multiply(a, a).block_until_ready()
with jax.profiler.trace(sys.argv[1]):
    for step in range(4):
        with jax.profiler.StepTraceAnnotation("train", step_num=step):
            multiply(a, a + step).block_until_ready()
"""
NCU = """
import torch
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
torch.softmax(a @ a, -1) + a
torch.cuda.synchronize()
"""


class Recorder:
    """Records parts into a folder: each method without underscore is one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def eager(self) -> None:
        """A transformer in eager mode, with stacks."""
        self._profile("torch_eager", _model(), with_stack=True)

    def compiled(self) -> None:
        """The same under torch.compile."""
        import torch

        self._profile("torch_compiled", torch.compile(_model()))

    def graphs(self) -> None:
        """The same in CUDA graphs."""
        import torch

        self._profile("torch_graphs", torch.compile(_model(), mode="reduce-overhead"))

    def ddp(self) -> None:
        """The same in a process group of one."""
        import torch
        import torch.distributed as dist

        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "RANK": "0", "WORLD_SIZE": "1"}
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        try:
            self._profile("torch_ddp", torch.nn.parallel.DistributedDataParallel(_model()))
        finally:
            dist.destroy_process_group()

    def flops(self) -> None:
        """The FLOP of one step, as PyTorch counts them; those of the eager trace are three times as many."""
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            _train(_model(), 1)
        self._write("flops", {"step": counter.get_total_flops()})

    def snapshot(self) -> None:
        """A snapshot of the caching allocator, and its peak."""
        import torch

        torch.cuda.memory._record_memory_history(max_entries=20_000)
        _train(_model(), 2)
        path = self.folder / "snapshot.pickle"
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(enabled=None)
        _pack(path)
        self._write("snapshot", {"peak_bytes": torch.cuda.max_memory_allocated()})

    def jax(self) -> None:
        """A matrix product of JAX in four steps."""
        environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run([sys.executable, "-c", JAX, scratch], check=True, env=environment)
            (profile,) = Path(scratch).rglob("*.xplane.pb")
            _pack(Path(shutil.copy(profile, self.folder / "jax.xplane.pb")))

    def ncu(self) -> None:
        """The first kernels of a small program under Nsight Compute."""
        command = ["ncu", "--set", "full", "--csv", "--page", "raw", "--launch-count", "6"]
        ended = subprocess.run(
            [*command, sys.executable, "-c", NCU], capture_output=True, text=True, timeout=240
        )
        if "Kernel Name" not in ended.stdout:
            raise RuntimeError(ended.stderr[-400:])
        (self.folder / "ncu.csv").write_text(ended.stdout)

    def _profile(self, name: str, model: Any, **settings: bool) -> None:
        import torch

        _train(model, 3)
        path = self.folder / f"{name}.json"
        with torch.profiler.profile(
            schedule=torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
            record_shapes=True,
            profile_memory=True,
            with_flops=True,
            with_modules=True,
            **settings,
        ) as profiler:
            _train(model, 5, profiler.step)
        _pack(path)
        rows = [{column: getattr(row, column, None) for column in COLUMNS} for row in profiler.key_averages()]
        self._write(f"{name}.key_averages", rows)

    def _write(self, name: str, value: object) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(value))


def _pack(path: Path) -> None:
    with path.open("rb") as source, gzip.open(f"{path}.gz", "wb", 9) as target:
        shutil.copyfileobj(source, target)
    path.unlink()


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _model() -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True, dropout=0.0)
    return nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Linear(WIDTH, CLASSES)).to(_device())


def _train(model: Any, steps: int, end_step: Callable[[], object] = lambda: None) -> None:
    import torch

    device = _device()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(BATCH, TOKENS, WIDTH, pin_memory=device == "cuda")
    classes = torch.randint(CLASSES, (BATCH * TOKENS,), device=device)
    for _ in range(steps):
        with torch.autocast(device, torch.bfloat16):
            found = model(inputs.to(device, non_blocking=True))
            loss = torch.nn.functional.cross_entropy(found.reshape(-1, CLASSES).float(), classes)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end_step()
    if device == "cuda":
        torch.cuda.synchronize()


def record(folder: Path, chosen: list[str]) -> None:
    """Records the chosen parts, else all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    recorder, became = Recorder(folder), {}
    parts = [name for name in vars(Recorder) if not name.startswith("_")]
    for part in chosen or parts:
        start = time.monotonic()
        try:
            getattr(recorder, part)()
            became[part] = f"recorded in {time.monotonic() - start:.0f} s"
        except Exception:
            became[part] = traceback.format_exc(limit=3)[-600:]
        print(f"{part}: {became[part]}", flush=True)
    recorder._write("parts", became)


def compare(folder: Path) -> int:
    """Prints each difference from the profilers' own tables; returns their number."""
    import tracewarehouse as tw

    differences = 0
    with tempfile.TemporaryDirectory() as scratch:
        for table in sorted(folder.glob("*.key_averages.json")):
            name = table.name.partition(".")[0]
            warehouse = tw.open(Path(scratch) / name)
            warehouse.ingest(folder / f"{name}.json.gz", run=name, jobs=1)
            rows = warehouse.analyze("key_averages").rows()
            found = {(row["name"], row["on_gpu"]): row for row in rows}
            for expected in json.loads(table.read_text()):
                differences += _differences(name, expected, found)
            print(f"{name}: {len(rows)} rows compared")
            if name == "torch_eager" and (folder / "flops.json").exists():
                differences += _differ("FLOP", *_flops(warehouse, folder))
        if (folder / "snapshot.json").exists():
            warehouse = tw.open(Path(scratch) / "snapshot")
            warehouse.ingest(folder / "snapshot.pickle.gz", run="snapshot", jobs=1)
            peak = max(row["allocated_bytes"] for row in warehouse.analyze("snapshot_curve").rows())
            differences += _differ(
                "peak", peak, json.loads((folder / "snapshot.json").read_text())["peak_bytes"]
            )
    return differences


def _flops(warehouse: Any, folder: Path) -> tuple[int, int]:
    """Those of the three steps of the eager trace; PyTorch counts no attention on a CPU."""
    found = "SELECT sum(hardware_flop)::BIGINT AS flop FROM op_work WHERE NOT contains(name, '_for_cpu')"
    return warehouse.query(found).rows()[0]["flop"], 3 * json.loads((folder / "flops.json").read_text())[
        "step"
    ]


def _differ(what: str, found: int, expected: int) -> int:
    print(f"{what}: {found:,}, expected {expected:,}")
    return int(found != expected)


def _differences(run: str, expected: dict[str, Any], found: dict[tuple[str, bool], dict[str, Any]]) -> int:
    """Whether a row of PyTorch differs: counts exactly, times by 1 µs per call, which PyTorch rounds."""
    rows = [row for (name, _), row in found.items() if name == expected["key"]]
    times = expected["self_cpu_time_total"], expected["self_device_time_total"] or 0
    for row in rows:
        own = row["self_cpu_ns"] / 1e3, (row["self_device_ns"] or 0) / 1e3
        close = all(abs(a - b) <= expected["count"] for a, b in zip(own, times, strict=True))
        if row["count"] == expected["count"] and close:
            return 0
    shown = [(row["count"], row["self_cpu_ns"], row["self_device_ns"]) for row in rows]
    print(f"{run}: {expected['key'][:80]}: {shown}, expected {expected['count']}, {times} µs")
    return 1


if __name__ == "__main__":
    command, folder, *parts = sys.argv[1:]
    sys.exit(compare(Path(folder)) > 0 if command == "compare" else record(Path(folder), parts))
