"""The simulator's traces analyzed by HolisticTraceAnalysis 0.6.1.

Runs where TW_HTA_PYTHON names a Python that has it (`traceinsight==0.6.1`, pandas 2).

Known traps are kept out: steps (all are kept), rounding (switched off), rows that are no GPU work but carry a
stream (none recorded), the precision of a float of µs (the run begins right after the base of its times).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import deep, real_traces
from simulated import SMALL

SCRIPT = """
import contextlib, io, json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
from hta.utils.validate_trace import validate_trace_format

answers = {"wrong": {}, "split": []}
for path in sys.argv[1:]:
    ok, errors = validate_trace_format(path, level="complete")
    answers["wrong"][path] = sorted(errors.pop("type_violations", {})) + sorted(errors)
    assert ok == (not answers["wrong"][path])
if "rank0" in sys.argv[1]:
    with contextlib.redirect_stdout(io.StringIO()):
        seen = TraceAnalysis(trace_files=dict(enumerate(sys.argv[1:])), include_last_profiler_step=True)
        answers["split"] = seen.get_temporal_breakdown(visualize=False).to_dict("records")
print(json.dumps(answers))
"""
EARLY = "2026-04-01T21:23:00"  # just after what times of the new dialect count from
JOBS: dict[str, dict[str, Any]] = {
    "new": {},
    "epoch": {"dialect": "epoch"},
    "old": {"dialect": "old", "gpu": "V100"},
    "pipeline": {"ranks": 4, "pipeline": 2, "microbatches": 2},
    "tensor": {"ranks": 4, "tensor": 2, "gpu": "A100"},
    "graphs": {"tensor": 2, "mode": "inference", "graphs": True},
    "amd": {"gpu": "MI300X"},
    "stacks": {"stacks": True},
}
QUICK = ("new", "old", "tensor", "stacks")
# Types that PyTorch writes and HTA does not know; real traces fail in the same way.
UNKNOWN = {"amd": ["bytes"], "stacks": ["Python parent id"]}
REAL = {
    "amd": "amd-misc/mi300_ddp_resnet18_no_pool.json.gz",
    "stacks": "h100-vs-mi300-hf/h100_bert-small.json.gz",
}


def hta(files: list[Path]) -> dict[str, Any]:
    """Results of HTA for the files: unexpected types, and the time breakdown of each rank."""
    python = os.environ.get("TW_HTA_PYTHON")
    if not python:
        pytest.skip("TW_HTA_PYTHON names no Python with HTA")
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1", "PYTHONPATH": ""}
    command = [python, "-c", SCRIPT, *map(str, files)]
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("name", [*QUICK, *deep(*(name for name in JOBS if name not in QUICK))])
def test_hta_reads_the_trace_with_the_same_results(tmp_path: Path, name: str) -> None:
    settings = {"ranks": 2, "stacks": False, "syncs": False, "start": EARLY, **SMALL, **JOBS[name]}
    done = tw.simulate(tmp_path / "sim", **settings)
    said = hta(list(done.files))
    assert list(said["wrong"].values()) == [UNKNOWN.get(name, [])] * len(done.files)
    if name == "epoch":
        return  # near 1.8e15 µs HTA's floats are up to 250 ns apart: none of its numbers is exact
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(tmp_path / "sim", run="sim")
    ours = wh.select(runs="sim").temporal_breakdown().rows()
    keys = ("idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)")
    theirs = [[1_000 * row[key] for key in keys] for row in said["split"]]
    found = [
        [row["idle_ns"], row["compute_ns"], row["busy_ns"] - row["compute_ns"], row["window_ns"]]
        for row in ours
    ]
    assert len(found) == settings["ranks"]
    for one, other in zip(found, theirs, strict=True):
        # HTA sums floats in µs, which is exact for integer µs.
        assert one == pytest.approx(other, rel=0, abs=0 if name == "old" else 2)


@pytest.mark.parametrize("name", ["stacks", *deep("amd")])
def test_hta_fails_on_the_same_types_in_real_traces(name: str) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    (wrong,) = hta([folder / REAL[name]])["wrong"].values()
    assert set(UNKNOWN[name]) <= set(wrong)
