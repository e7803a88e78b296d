"""HTA 0.6.1's critical paths: by HTA's rules over our tables, and got back from ours.

HTA looks for the longest path where nothing between operators takes time, and calls that block cost nothing
themselves. With those parts scaled to 0 our path is as long as HTA's, to the us that its traces have. What is
excluded, and why, is next to the number. Its rules give its path itself, node by node.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import real_traces
from witness.hta.critical_path import RULES, lengths, shape
from witness.hta.frame import read

TRACES = real_traces()
pytestmark = pytest.mark.skipif(TRACES is None, reason="needs the real traces")

AS_HTA = [
    "host_gap=0",  # between operators
    *(f"host[name={name}]=0" for name in ("*Synchronize", "cudaMemcpyAsync", "cudaEventQuery")),
    "sync=0",  # the way back to the host
]
FORWARD = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"


@dataclass(frozen=True)
class Said:
    """HTA's path in an instance of an annotation: nodes and us; `apart`: how far ours is from it."""

    file: str
    annotation: str
    instance: int
    nodes: int
    us: int
    apart: int = 0

    @property
    def scope(self) -> dict[str, Any]:
        """The same interval in our terms."""
        return {"annotations": f"{FORWARD}#{self.instance}"} if self.annotation == FORWARD else {}


SAID = {
    "simple_add": Said("hta-singles/a100_critical_path_simple_add", FORWARD, 1, 315, 241_724),
    # A kernel starts 1 us after the one on another stream that it waited for: HTA's edge has no weight.
    "alexnet": Said("hta-singles/a100_critical_path_alexnet", FORWARD, 1, 149, 35_834, 1),
    # A copy to pageable memory: of HTA all 29 us of the call, of us launch 18, copy 2, and a return of 9.
    "event_sync": Said("hta-singles/a100_event_sync", "ProfilerStep", 0, 40, 2_411, -9),
    "multi_stream": Said("hta-singles/a100_event_sync_multi_stream", "", 0, 59, 1_178),
}
LARGER = {
    "amd": Said("amd-misc/mi250_minitoy_train_ROCm6_2_kineto", "ProfilerStep", 1, 66, 741),
    "nccl": Said("hta-singles/a100_nccl_pg_config_rank0of2", "ProfilerStep", 1, 13_056, 188_910),
    "df_index": Said("hta-singles/v100_df_index_resolver_rank1of2", "ProfilerStep", 1, 24_550, 259_417),
}


def ingested(folder: Path, traces: dict[str, Said]) -> tw.Warehouse:
    """Each trace as a run."""
    assert TRACES is not None
    house = tw.open(folder)
    for name, said in traces.items():
        house.ingest(TRACES / f"{said.file}.json.gz", run=name)
    return house


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """The small ones."""
    return ingested(tmp_path_factory.mktemp("hta-critical"), SAID)


def by_the_rules(house: tw.Warehouse, name: str, said: Said) -> tuple[int, int]:
    """(nodes, us) of the path by HTA's rules."""
    assert TRACES is not None
    (rank,) = (
        row["rank"] for row in house.select(runs=[name]).query("SELECT rank FROM ranks", limits=None).rows()
    )
    ranks = read(house, name, {rank: TRACES / f"{said.file}.json.gz"})
    requested, rules = (said.annotation, said.instance), frozenset(RULES)
    nodes = shape(*requested)(ranks, rules)["path",][0]
    return nodes, lengths(*requested)(ranks, rules)["length",][0] // 1_000


@pytest.mark.parametrize("name", SAID)
def test_hta_s_rules_give_hta_s_path(name: str, warehouse: tw.Warehouse) -> None:
    assert by_the_rules(warehouse, name, SAID[name]) == (SAID[name].nodes, SAID[name].us)


@pytest.mark.deep
def test_hta_s_rules_give_hta_s_path_of_larger_traces(tmp_path: Path) -> None:
    house = ingested(tmp_path, LARGER)
    found = {name: by_the_rules(house, name, said) for name, said in LARGER.items()}
    assert found == {name: (said.nodes, said.us) for name, said in LARGER.items()}


def test_what_hta_s_path_of_alexnet_is_bound_by(warehouse: tw.Warehouse) -> None:
    assert TRACES is not None
    ranks = read(warehouse, "alexnet", {0: TRACES / f"{SAID['alexnet'].file}.json.gz"})
    found = lengths(FORWARD, 1)(ranks, frozenset(RULES))
    assert found == {
        ("length",): (35_834_000,),
        ("cpu_bound",): (32_042_000,),
        ("gpu_compute_bound",): (3_712_000,),
        ("gpu_kernel_launch_overhead",): (30_000,),
        ("gpu_kernel_kernel_overhead",): (50_000,),
    }


@pytest.mark.parametrize("name", SAID)
def test_lengths_are_those_of_hta(name: str, warehouse: tw.Warehouse) -> None:
    said = SAID[name]
    rows = warehouse.whatif(name, AS_HTA, **said.scope).rows()
    (length,) = [row["new_ns"] for row in rows if row["category"] == "length"]
    assert length == (said.us + said.apart) * 1_000


def test_what_ours_of_alexnet_is_made_of_without_them(warehouse: tw.Warehouse) -> None:
    rows = warehouse.whatif("alexnet", AS_HTA, **SAID["alexnet"].scope).rows()
    found = {row["category"]: row["new_ns"] for row in rows}
    assert found["host"] == 32_042_000  # cpu_bound
    assert found["computation"] + found["memory"] == 3_712_000  # gpu_compute_bound
    assert found["launch"] == 30_000  # gpu_kernel_launch_overhead
    assert found["kernel_gap"] == (50 + 1) * 1000  # gpu_kernel_kernel_overhead
