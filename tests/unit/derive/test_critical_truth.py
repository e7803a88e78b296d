"""Critical paths of simulated jobs with known bottlenecks; what-if estimates equal a second simulation."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from tracewarehouse.warehouse import Warehouse

LARGE: dict[str, Any] = {"ranks": 1, "layers": 2}
SMALL: dict[str, Any] = {**LARGE, "hidden": 64, "sequence": 64}
Runs = dict[str, tuple[dict[str, Any], list[str]]]
RUNS: Runs = {
    "large-item": (LARGE, ["blocking-item"]),
    "small": (SMALL, []),
    "two": ({**LARGE, "ranks": 2}, []),
    "two-no-overlap": ({**LARGE, "ranks": 2}, ["no-overlap"]),
}
MORE_RUNS: Runs = {
    "large": (LARGE, []),
    "large-slow-gemm": (LARGE, ["slow-kernel:kernel=gemm,percent=50"]),
    "small": (SMALL, []),
    "small-slow-gemm": (SMALL, ["slow-kernel:kernel=gemm,percent=50"]),
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return derived(tmp_path_factory.mktemp("truth"), RUNS)


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return derived(tmp_path_factory.mktemp("more"), MORE_RUNS)


def derived(folder: Path, runs: Runs) -> Warehouse:
    """A warehouse with these runs, and the critical path of their first rank."""
    for run, (settings, injections) in runs.items():
        tw.simulate(folder / "sim" / run, seed=3, steps=3, injections=injections, **settings)
    warehouse = tw.open(folder / "wh")
    warehouse.ingest(folder / "sim", jobs=1)
    for run in runs:
        warehouse.derive("critical_path", run, ranks=0)
    return warehouse


def categories(wh: Warehouse, run: str) -> dict[str, float]:
    """Share of each category in the step that others precede and follow."""
    rows = wh.select(runs=run, ranks=0).critical_path_breakdown().rows()
    assert {row["scope"] for row in rows} == {"step 1", "step 2", "step 3"}
    return defaultdict(float, {row["category"]: row["share"] for row in rows if row["scope"] == "step 2"})


def length(wh: Warehouse, run: str, *scales: str) -> int:
    """The estimate for the entire trace of rank 0 with scaled parts."""
    rows = wh.whatif(run, scales or ["all=1"], ranks=0, entire_trace=True).rows()
    (found,) = [row["new_ns"] for row in rows if row["category"] == "length"]
    assert isinstance(found, int)
    return found


@pytest.mark.deep
def test_large_kernels_make_the_device_critical(more: Warehouse) -> None:
    found = categories(more, "large")
    assert found["computation"] + found["earlier"] > 0.99
    assert found["earlier"] > 0.3  # the step before is not done when the host begins this one
    assert found["host"] == found["sync"] == 0


def test_small_kernels_make_the_host_critical(wh: Warehouse) -> None:
    found = categories(wh, "small")
    assert found["host"] + found["host_gap"] > 0.99
    assert found["computation"] == 0


def test_a_blocking_item_makes_the_host_critical(wh: Warehouse) -> None:
    found = categories(wh, "large-item")
    assert found["earlier"] == 0  # each step ends when its work is done
    assert found["sync"] > 0 and found["host"] > 0 and found["launch"] > 0
    rows = wh.select(runs="large-item", ranks=0).critical_path_by_op().rows()
    waits = {row["name"] for row in rows if row["category"] == "sync"}
    assert waits <= {"cudaStreamSynchronize", "cudaMemcpyAsync"} and waits


def test_an_exposed_collective_is_on_the_path(wh: Warehouse) -> None:
    hidden, exposed = categories(wh, "two"), categories(wh, "two-no-overlap")
    assert exposed["communication"] > 1.5 * hidden["communication"] > 0
    assert length(wh, "two-no-overlap", "kernels[kind=communication]=0") < length(wh, "two-no-overlap")


@pytest.mark.deep
def test_what_if_matches_the_simulated_job(more: Warehouse) -> None:
    slow = "kernels[name=*gemm*]=1.5"
    took = length(more, "large-slow-gemm")
    # Each kernel duration is rounded to ns separately, in both.
    assert abs(length(more, "large", slow) - took) < 100 < took - length(more, "large")
    assert length(more, "small", slow) == length(more, "small-slow-gemm") == length(more, "small")
