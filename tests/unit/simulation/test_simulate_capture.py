"""Captures of simulated graphs: each replayed activity gets its operator, and what is not certain says so."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from simulated import SMALL, section
from tracewarehouse.errors import ParamError

GPUS = ("MI300X", "H100")
COLUMNS = "rank, event_id, how, place_known, capture_launch_id, op_name, module_path"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tw.Warehouse]:
    """Inference on both vendors' GPUs with captures, and the operators derived from these."""
    folder = tmp_path_factory.mktemp("captured")
    for gpu in GPUS:
        settings: dict[str, Any] = {**SMALL, "steps": 3, "ranks": 3, "mode": "inference", "gpu": gpu}
        tw.simulate(folder / "sim" / gpu, **settings, graphs=True, capture=True)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    assert {row["graph_attributed_ns"] for row in warehouse.coverage().rows()} == {0}
    for gpu in GPUS:
        warehouse.derive("graphs", gpu)
    return folder / "sim", warehouse


@pytest.mark.parametrize("gpu", GPUS)
def test_replayed_activities_get_what_is_known_of_them(
    simulated: tuple[Path, tw.Warehouse], gpu: str
) -> None:
    folder, warehouse = simulated
    sql = f"SELECT {COLUMNS} FROM graph_nodes ORDER BY rank, event_id"
    found = warehouse.select(gpu).query(sql).rows()
    wanted = sorted(section(folder / gpu, "graph_nodes"), key=lambda row: (row["rank"], row["event_id"]))
    assert found == wanted
    # One launch is captured only (rank 0), a graph is captured twice (rank 2), a replay is cut (all).
    kinds = {(row["rank"], row["how"], row["place_known"]) for row in wanted}
    if gpu == "MI300X":
        assert kinds == {(0, "aligned", True), (1, "same_list", True), (1, "aligned", True)} | {
            (2, "same_list", False),
            (2, "aligned", False),
        }
        assert all(row["module_path"] and row["op_name"] for row in wanted)
    else:
        assert kinds == {(0, None, None), (1, "by_order", False), (1, None, None)} | {
            (2, "by_order", False),
            (2, None, None),
        }


def test_coverage_counts_attributed_graph_kernels_only(simulated: tuple[Path, tw.Warehouse]) -> None:
    _, warehouse = simulated
    for row in warehouse.select("MI300X").coverage().rows():
        assert row["graph_attributed_ns"] == row["graph_ns"] > 0
    for row in warehouse.select("H100").coverage().rows():
        assert row["graph_attributed_ns"] < row["graph_ns"]
        assert (row["graph_attributed_ns"] == 0) == (row["rank"] == 0)


def test_graph_summary_adds_up(simulated: tuple[Path, tw.Warehouse]) -> None:
    folder, warehouse = simulated
    for gpu in GPUS:
        rows = warehouse.select(gpu).graph_summary().rows()
        launches = [
            row for row in section(folder / gpu, "launch_stats") if "GraphLaunch" in (row["api"] or "")
        ]
        count, sums = Counter[int](), Counter[int]()
        for row in launches:
            count[row["rank"]] += 1
            sums[row["rank"]] += row["kernel_ns"]
        found, found_sums = Counter[int](), Counter[int]()
        for row in rows:
            found[row["rank"]] += row["replays"] * row["activities"]
            found_sums[row["rank"]] += row["gpu_sum_ns"]
            assert row["busy_ns"] <= row["gpu_sum_ns"] and row["gap_ns"] >= 0
        assert (found, found_sums) == (count, sums)
        known = sum(row["op_name"] is not None for row in section(folder / gpu, "graph_nodes"))
        assert sum(row["attributed"] for row in rows) == known


def test_deriving_again_writes_nothing_until_captures_change(simulated: tuple[Path, tw.Warehouse]) -> None:
    _, warehouse = simulated
    again = warehouse.derive("graphs", "MI300X")
    assert again.version is None and again.attributed == (156, 156)
    other = warehouse.derive("graphs", "H100", capture="MI300X.capture")
    assert other.version is not None and other.attributed == (0, 156)
    back = warehouse.derive("graphs", "H100")
    assert back.attributed == (84, 156) and warehouse.verify() == []


def test_a_capture_needs_graphs() -> None:
    with pytest.raises(ParamError, match="capture needs graphs"):
        tw.simulation.Job(capture=True)
