"""Every analysis on every kind of trace: rows that satisfy its contract, or a reason why ranks are skipped.

The analyses come from the catalog, so new ones are included automatically.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from conftest import ROOT, real_traces
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.contracts.contract import Contract
from tracewarehouse.result import Result

ANALYSES = Catalog.load(ROOT / "sql").analyses()
TINY = {"steps": 2, "layers": 1, "hidden": 64, "sequence": 64}
SIMULATED: dict[str, dict[str, Any]] = {
    "single-rank": {"ranks": 1, "counters": True},
    "missing-rank-0": {"ranks": 3, "injections": ["missing-rank:rank=0"]},
    "old-format": {"ranks": 2, "gpu": "V100", "dialect": "old"},
    "amd": {"ranks": 2, "tensor": 2, "gpu": "MI300X", "dialect": "epoch"},
    "graphs": {"ranks": 2, "mode": "inference", "graphs": True, "stacks": False, "memory": False},
    "lost": {"ranks": 2, "injections": ["lost-gpu:share=0.3", "before-window:count=9"]},
}
DEVICE_ROWS = {
    "mtia": '{"ph": "X", "cat": "mtia_ccp_events", "name": "dma_request", "pid": 0, "ts": 1, "dur": 2}',
    "ascend": '{"ph": "X", "name": "MatMulV2", "pid": 8, "tid": 2, "ts": "1.5", "dur": 2.25, "args": {}}',
    "no-times": '{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"stream": 7}}',
}
DRAWN = """
cpu-only   0 op t1 aten::mm 0 100
gpu-only   0 gpu s0 Cijk_Ailk_Bljk 0 100
gpu-only   0 gpu s0 rccl_kernel_generic 100 50
no-steps   0 call t1 hipLaunchKernel 0 10 id=1
no-steps   0 gpu s0 copy_kernel 20 100 id=1
host-comms 0 ann t2 gloo:all_reduce 0 100
host-comms 1 ann t2 gloo:all_reduce 20 90
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """Small recorded, simulated and synthetic runs."""
    folder = tmp_path_factory.mktemp("matrix")
    drawn = [DRAWN, *(f"{run} 0 raw {row}" for run, row in DEVICE_ROWS.items())]
    sketch.write("\n".join(drawn), folder / "traces")
    for name, settings in SIMULATED.items():
        tw.simulate(folder / "traces" / name, **(TINY | settings))
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(*sorted((folder / "traces").iterdir()), ROOT / "tests" / "data" / "gloo-cpu", jobs=1)
    return warehouse


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """All recorded sets."""
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    warehouse = tw.open(tmp_path_factory.mktemp("matrix") / "warehouse")
    warehouse.ingest(folder)
    return warehouse


def broken(contract: Contract, result: Result) -> list[str]:
    """What in the rows the contract does not allow."""
    rows, found = result.rows(), []
    twice = [
        key for key, n in Counter(tuple(repr(r[k]) for k in contract.grain) for r in rows).items() if n > 1
    ]
    found += [f"twice: {key}" for key in twice]
    for column in contract.columns:
        values = [row[column.name] for row in rows]
        if not column.null and None in values:
            found.append(f"{column.name} is null")
        if column.unit and not column.signed and any(value is not None and value < 0 for value in values):
            found.append(f"{column.name} is negative")
    return found


def look(warehouse: tw.Warehouse, contract: Contract) -> None:
    """One analysis over all runs: rows as promised, and of no rank that skipped."""
    result = warehouse.analyze(contract.name)
    assert broken(contract, result) == []
    assert all(each.reason for each in result.skipped)
    left_out = {(each.run_id, each.rank) for each in result.skipped}
    assert left_out.isdisjoint((row["run_id"], row.get("rank")) for row in result.rows())


def some() -> list[object]:
    """The first analysis with the same needs; the others are deep, as the laws run on all."""
    first: dict[object, Contract] = {}
    for each in ANALYSES:
        first.setdefault(each.needs, each)
    return [
        pytest.param(each, id=each.name, marks=[] if each in first.values() else pytest.mark.deep)
        for each in ANALYSES
    ]


@pytest.mark.parametrize("contract", some())
def test_small_runs(own: tw.Warehouse, contract: Contract) -> None:
    look(own, contract)


@pytest.mark.deep
@pytest.mark.parametrize("contract", ANALYSES, ids=lambda contract: contract.name)
def test_recorded_sets(real: tw.Warehouse, contract: Contract) -> None:
    look(real, contract)


def test_the_small_runs_are_of_many_kinds(own: tw.Warehouse) -> None:
    facts = (
        "gpu",
        "launches",
        "shapes",
        "stacks",
        "memory_events",
        "collective_args",
        "collectives",
        "counters",
    )
    rows = own.query(f"SELECT {', '.join(facts)} FROM ranks").rows()
    assert all({row[fact] for row in rows} == {True, False} for fact in facts)
