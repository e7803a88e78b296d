"""Operators of graph replays in real traces, from the captures beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import real_traces
from tracewarehouse.warehouse import Warehouse

TRACES = real_traces()
pytestmark = pytest.mark.skipif(TRACES is None, reason="needs the real traces")
FOLDER = "inference-graphs-mi300"
VLLM, SGLANG, XDIT = (
    "vllm_decode_full__graph_execution",
    "sglang_decode__Qwen3-8B_decode",
    "xdit_flux.1__capture_trace",
)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The capture and execution traces of one folder."""
    assert TRACES is not None
    wh = tw.open(tmp_path_factory.mktemp("graphs") / "warehouse")
    wh.ingest(TRACES / FOLDER, jobs=1)
    return wh


def with_op(wh: Warehouse, run: str) -> float:
    (row,) = wh.select(run).coverage().rows()
    return row["with_op_ns"] / row["gpu_ns"]


@pytest.mark.deep
def test_without_captures_graph_kernels_have_no_operator(warehouse: Warehouse) -> None:
    shares = [round(with_op(warehouse, run), 4) for run in (VLLM, SGLANG, XDIT)]
    assert shares == [0.0307, 0.0107, 0.4464]
    (row,) = warehouse.select(XDIT).coverage().rows()
    assert (row["graph_ns"], row["graph_attributed_ns"], row["gpu_ns"]) == (35_504_808, 0, 64_139_539)


@pytest.mark.parametrize(
    ("run", "how", "activities"),
    [(VLLM, "same_list", 421), (SGLANG, "same_list", 544), (XDIT, "aligned", 993)],
)
def test_replays_get_operators_from_their_captures(
    warehouse: Warehouse, run: str, how: str, activities: int
) -> None:
    done = warehouse.derive("graphs", run)
    assert done.attributed == (activities, activities) and done.notices == ()
    rows = (
        warehouse.select(run).query("SELECT how, place_known, op_name, module_path FROM graph_nodes").rows()
    )
    assert {(row["how"], row["place_known"]) for row in rows} == {(how, True)}
    assert all(row["op_name"] and row["module_path"] for row in rows)
    assert with_op(warehouse, run) >= 0.97


def test_all_captured_launches_are_found(warehouse: Warehouse) -> None:
    rows = warehouse.query(
        "SELECT count(*) AS launches FROM captured_launches GROUP BY run_id, rank, capture ORDER BY launches"
    ).rows()
    assert [row["launches"] for row in rows] == [421, 544, 994]


def test_a_capture_of_another_graph_attributes_nothing(warehouse: Warehouse) -> None:
    done = warehouse.derive("graphs", VLLM, capture="sglang_decode__capture_bs_32")
    assert done.attributed == (0, 421)


def test_alone_a_replay_has_no_operators(tmp_path: Path) -> None:
    assert TRACES is not None
    wh = tw.open(tmp_path / "warehouse")
    wh.ingest(TRACES / FOLDER / "vllm_decode_full__graph_execution.json.gz")
    (run,) = wh.store.runs()
    assert wh.derive("graphs", run).attributed == (0, 421)
    assert with_op(wh, run) < 0.04
