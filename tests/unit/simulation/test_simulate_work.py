"""Simulated GEMMs take FLOP / rate: with the simulator's rates as peaks, roofline is 1 and MFU exact."""

from __future__ import annotations

from typing import Any

import pytest

import tracewarehouse as tw
from tracewarehouse.simulation import Job, Noise
from tracewarehouse.simulation.kernels import LEAST_NS, VOCABULARY

QUIET: dict[str, Any] = {"noise": Noise(0, 0, 0, 0), "stacks": False, "memory": False}
SHAPE: dict[str, Any] = {"steps": 3, "layers": 2, "hidden": 512, "batch": 2, "sequence": 512}


def model_flop(job: Job) -> int:
    """FLOP of a step of one rank, by hand: linear layers, and attention of all visible pairs."""
    tokens, hidden = job.batch * job.sequence, job.hidden
    weights = job.layers * 12 * hidden * hidden + hidden * VOCABULARY
    pairs = job.sequence * (job.sequence + 1) // 2
    attention = 2 * job.batch * pairs * 2 * hidden * job.layers
    return 3 * (2 * tokens * weights + attention)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, tw.Warehouse]:
    """Two ranks of a job without noise."""
    folder = tmp_path_factory.mktemp("work")
    job = Job(ranks=2, **SHAPE, **QUIET)
    tw.simulate(folder / "sim", ranks=2, **SHAPE, **QUIET)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", run="sim", jobs=1)
    return job, warehouse.select(runs="sim")


def peaks(job: Job) -> dict[str, Any]:
    return {
        "peak_flop_per_ns": job.machine.flop_per_ns,
        "memory_bytes_per_ns": job.machine.memory_bytes_per_ns,
    }


def test_the_roofline_of_every_gemm_is_one(work: tuple[Job, tw.Warehouse]) -> None:
    job, selected = work
    rows = selected.analyze("op_work_summary", **peaks(job)).rows()
    gemms = [row for row in rows if row["family"] == "gemm"]
    assert {row["pass"] for row in gemms} == {"forward", "backward"} and len(gemms) >= 12
    for row in gemms:
        ns = row["gpu_union_ns"] / row["count"]
        # Durations are rounded down to ns, those of the shortest kernels up.
        assert ns == LEAST_NS or row["bound_by"] in ("compute", "over")
        assert ns == LEAST_NS or 1 <= row["best_roofline"] < 1 + 1.5 / ns


def test_mfu_is_exact(work: tuple[Job, tw.Warehouse]) -> None:
    job, selected = work
    rows = selected.analyze("mfu", peak_flop_per_ns=job.machine.flop_per_ns).rows()
    steps = [row for row in rows if row["step"] is not None]
    assert len(steps) == 2 * job.steps
    for row in steps:
        assert row["model_flop"] == model_flop(job)
        assert row["mfu"] == model_flop(job) / (row["period_ns"] * job.machine.flop_per_ns)
        assert row["hardware_flop"] > row["model_flop"] and row["flop_coverage"] > 0.95
