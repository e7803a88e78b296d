"""The input traces: simulated, repeated and real. Each is written once to the folder of inputs."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from isal import igzip

from . import repeated
from .bench import Bench

# One rank of about 55 MB as text: 46 layers, 11 steps. `small` is the warm-up of every process.
_SIZES: dict[str, dict[str, Any]] = {
    "small": {"ranks": 1, "layers": 1, "steps": 2},
    "small-ranks": {"ranks": 32, "layers": 1, "steps": 2},
    "small-run": {"ranks": 8, "layers": 2, "steps": 4},
    "one": {"ranks": 1, "layers": 46, "steps": 14},
    "eight": {"ranks": 8, "tensor": 2, "layers": 46, "steps": 11},
    "base": {"ranks": 1, "layers": 48, "steps": 6},
    "many": {"ranks": 64, "tensor": 2, "layers": 12, "steps": 5},
    "export": {"ranks": 1, "layers": 46, "steps": 165, "stacks": False, "memory": False},
}
_SMOKE: dict[str, dict[str, Any]] = {
    "small": {"ranks": 1, "layers": 1, "steps": 2},
    "small-ranks": {"ranks": 2, "layers": 1, "steps": 2},
    "small-run": {"ranks": 2, "layers": 1, "steps": 2},
    "one": {"ranks": 1, "layers": 2, "steps": 2},
    "eight": {"ranks": 2, "tensor": 2, "layers": 2, "steps": 2},
    "base": {"ranks": 1, "layers": 1, "steps": 2},
    "many": {"ranks": 1, "layers": 1, "steps": 2},
    "export": {"ranks": 1, "layers": 1, "steps": 2},
}
REAL = (
    "hta-singles/v100_df_index_resolver_rank1of2.json.gz",
    "inference-graphs-mi300/xdit_flux.1__capture_trace_rank_0.json.gz",
)


@dataclass(frozen=True)
class Simulated:
    """A simulated run: a folder with only its traces, and the expected results."""

    folder: Path
    truth: dict[str, Any]

    @property
    def files(self) -> list[Path]:
        """A file per rank, by rank."""
        return sorted(self.folder.glob("rank*.json.gz"), key=lambda path: int(path.name[4:].split(".")[0]))

    @property
    def events(self) -> int:
        """Events of all ranks."""
        return int(self.truth["events"])

    def section(self, name: str) -> list[dict[str, Any]]:
        """The rows of a section of the truth."""
        found = self.truth["sections"][name]
        return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


@cache
def simulated(bench: Bench, name: str) -> Simulated:
    """A simulated run. Its truth is stored outside of its folder, since HTA loads all files in the folder."""
    folder, truth = bench.folder / name, bench.folder / f"{name}.truth.json"
    if not truth.exists():
        shutil.rmtree(folder, ignore_errors=True)
        settings = (_SMOKE if bench.smoke else _SIZES)[name]
        bench.ours("simulate", folder=folder, settings=settings)
        (folder / "truth.json").rename(truth)
    return Simulated(folder, json.loads(truth.read_text(encoding="utf-8")))


def small(bench: Bench) -> Path:
    """The smallest trace."""
    return simulated(bench, "small").files[0]


def tiny(bench: Bench) -> Path:
    """The first 120 events of the smallest trace."""
    path = bench.folder / "tiny" / "rank0.json.gz"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        trace = json.loads(igzip.decompress(small(bench).read_bytes()))
        trace["traceEvents"] = trace["traceEvents"][:120]
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 6, mtime=0))
    return path


def shared_ids(bench: Bench) -> Iterator[tuple[str, int, Path]]:
    """Synthetic files: name, number of events, path."""
    flows, nested = (40, 60) if bench.smoke else (16_000, 6_000)
    made = {
        f"{flows:,} flow events with one id": list(_flows(flows)),
        f"{nested:,} nested operators, each with a launch": list(_launching(nested)),
    }
    for name, events in made.items():
        path = bench.folder / f"ids-{len(events)}.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode(), 6, mtime=0))
        yield name, len(events), path


def _flows(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        event = {"ph": "sf"[number % 2], "cat": "ac2g", "name": "ac2g", "id": 7, "bp": "e"}
        yield {**event, "pid": 1, "tid": 1, "ts": 1000 + number}


def _launching(count: int) -> Iterator[dict[str, Any]]:
    """Nested operators with a launch each, and their kernels."""
    host = {"ph": "X", "pid": 1, "tid": 1}
    for number in range(count):
        name = f"aten::op{number % 50}"
        yield {**host, "cat": "cpu_op", "name": name, "ts": 3 * number, "dur": 9 * count - 6 * number}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number + 1}}
        yield {**host, **launch, "ts": 3 * number + 1, "dur": 1}
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 10 * count + number}
        yield {**kernel, "dur": 1, "args": {"correlation": number + 1, "device": 0, "stream": 7}}


def first(bench: Bench) -> Path | None:
    """The warm-up trace of every process; a smoke test measures no time and needs none."""
    return None if bench.smoke else small(bench)


def real(bench: Bench) -> list[Path]:
    """The available real traces of about 55 MB."""
    if bench.traces is None or bench.smoke:
        return []
    return [path for path in (bench.traces / name for name in REAL) if path.exists()]


@cache
def to_repeat(bench: Bench) -> repeated.Base:
    """The simulated trace that longer ones repeat."""
    return repeated.base(simulated(bench, "base").files[0])


def longer(bench: Bench, times: int) -> Path:
    """The base repeated `times` times, in one file."""
    path = bench.folder / f"times-{times}" / "rank0.json.gz"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        part = path.with_name("part")
        repeated.write(to_repeat(bench), times, part)
        part.rename(path)
    return path


def default_level(path: Path, to: Path) -> Path:
    """The same trace at gzip's default level (6); the simulator uses the lowest."""
    to.write_bytes(gzip.compress(igzip.decompress(path.read_bytes()), 6))
    return to
