"""Real PyTorch jobs, on CPUs with gloo: restarts, several processes, TensorBoard, several windows."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import cli_runner
from tracewarehouse.warehouse import Warehouse

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]

# Modes: an argument of the script. In the first attempt of `dies`, rank 2 ends once the others have written.
JOB = """
import glob, os, sys, time
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
import tracewarehouse as tw

warehouse, mode = sys.argv[1:]
is_alone = mode in ("single", "tensorboard")
dies = mode == "dies" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

def train(rank=-1, init=None):
    torch.set_num_threads(1)
    if not is_alone:
        dist.init_process_group("gloo", rank=rank, world_size=4 if init else -1, init_method=init)
    store = tw.trace_handler(warehouse, run="job", also=f"{warehouse}-tb" if mode == "single" else None)
    beside = tensorboard_trace_handler(f"{warehouse}-tb", use_gzip=True)

    def ready(profiler):
        if mode == "tensorboard":
            beside(profiler)
        while dies and dist.get_rank() == 2:
            if len(glob.glob(f"{warehouse}/inbox/job/*.gz")) == 2:
                os._exit(9)
            time.sleep(0.05)
        store(profiler)

    model = torch.nn.Linear(8, 8)
    if not is_alone:
        model = torch.nn.parallel.DistributedDataParallel(model)
    repeat = 3 if mode == "single" else 1
    steps = schedule(wait=0, warmup=1, active=1, repeat=repeat)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, on_trace_ready=ready) as profiler:
        for _ in range(2 * repeat):
            model(torch.ones(2, 8)).sum().backward()
            profiler.step()
    while dies:
        time.sleep(1)
    print("finished")

if __name__ == "__main__":
    if mode == "spawn":
        torch.multiprocessing.spawn(train, (f"file://{warehouse}-rendezvous",), nprocs=4)
    else:
        train()
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def run(root: Path, mode: str, script: Path, *launcher: str) -> str:
    """What a job prints."""
    settings = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TW_AUTO_LABELS": "1"}
    # With it, gloo waits for the ports of the first attempt after a restart.
    settings["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, *launcher, str(script), str(root), mode]
    environment = cli_runner.environment(settings)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


def ingested(root: Path) -> Mapping[str, Sequence[int]]:
    """Run → its ranks, after an ingest of the inbox that takes everything."""
    wh = Warehouse(root)
    report = wh.ingest(inbox=True)
    assert {file.state for file in report.files} == {"intact"}
    assert not list((root / "inbox").iterdir())
    return {run.run: run.ranks for run in report.runs}


def test_an_elastic_restart_and_a_dead_rank(script: Path) -> None:
    root = script.parent / "wh"
    out = run(root, "dies", script, *TORCHRUN, "3", "--max-restarts", "1")
    assert out.count("finished") == 3
    assert ingested(root) == {"job": (0, 1), "job+1": (0, 1, 2)}
    (row,) = Warehouse(root).select("job").runs().rows()
    assert row["state"] == "incomplete"


def test_spawned_processes_are_one_run(script: Path) -> None:
    run(script.parent / "wh", "spawn", script)
    assert ingested(script.parent / "wh") == {"job": (0, 1, 2, 3)}


def test_a_job_that_runs_twice_is_two_runs(script: Path) -> None:
    root = script.parent / "wh"
    for _ in range(2):
        run(root, "ddp", script, *TORCHRUN, "2")
    assert ingested(root) == {"job": (0, 1), "job+1": (0, 1)}


def test_a_trace_that_another_handler_exported_is_a_warning(script: Path) -> None:
    root = script.parent / "wh"
    out = run(root, "tensorboard", script)
    assert "finished" in out and "name its folder with also=" in out
    assert len(list(Path(f"{root}-tb").iterdir())) == 1


def test_three_windows_their_labels_and_the_files_for_tensorboard(script: Path) -> None:
    root = script.parent / "wh"
    assert "RuntimeWarning" not in run(root, "single", script)
    assert ingested(root) == dict.fromkeys(("job", "job~2", "job~3"), (0,))
    labels = {row["run_id"]: dict(row["labels"]) for row in Warehouse(root).runs().rows()}
    assert [labels[name]["span"] for name in sorted(labels)] == ["1", "2", "3"]
    assert labels["job"]["torch"] == version("torch") and labels["job"]["python"]
    traces = list(Path(f"{root}-tb").glob("*.pt.trace.json.gz"))
    assert len(traces) == 3 and json.loads(gzip.decompress(traces[0].read_bytes()))["traceEvents"]
