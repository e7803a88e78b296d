"""Critical paths of real traces: every trace has one, and the documented properties of the graph hold."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import deep, real_traces
from tracewarehouse.derive.critical_path import NAME
from tracewarehouse.warehouse import Warehouse

TRACES = real_traces()
pytestmark = pytest.mark.skipif(TRACES is None, reason="needs the real traces")

SOME = {
    "graphs": "inference-graphs-mi300/vllm_decode_full__graph_execution.json.gz",
    "mtia": "mtia/mtia_inference_rank_0.json.gz",
    "ascend": "ascend/trace_view.json",
    "gpu_only": "amd-misc/mi210_gpu_only_trace.json.gz",
    "cpu_only": "odd/cpu_only_rank-34of300.pt.trace.json.gz",
}
OLD = "before-after-resnet50-v100/num_workers_0__worker0.1623143089861.pt.trace.json.gz"
# Each documented property as a query for rows that violate it.
BROKEN = {
    "time goes forwards": """
        SELECT * FROM critical_edges WHERE from_node >= to_node OR weight_ns < 0 OR slack_ns < 0
    """,
    "one dependency limits each node": """
        SELECT run_id, rank, scope, to_node FROM critical_edges
        GROUP BY ALL
        HAVING count(*) FILTER (is_limiting) <> 1
    """,
    "a limiting dependency has no slack": "SELECT * FROM critical_edges WHERE is_limiting AND slack_ns > 0",
    "each node is reached": """
        SELECT * FROM critical_nodes AS node
        ANTI JOIN critical_edges AS edge
          ON edge.run_id = node.run_id AND edge.rank = node.rank AND edge.scope = node.scope
          AND edge.to_node = node.node
        WHERE node.node > 1
    """,
    "the parts tile the scope": """
        WITH
          part AS (
            SELECT *, sum(segment_ns) OVER on_path - segment_ns AS before_ns
            FROM critical_path
            WINDOW on_path AS (PARTITION BY run_id, rank, scope ORDER BY position)
          ),
          scope AS (
            SELECT run_id, rank, scope, min(ts_ns) AS start_ns, max(ts_ns) AS end_ns
            FROM critical_nodes
            WHERE kind = 'scope'
            GROUP BY ALL
          )
        SELECT run_id, rank, scope FROM scope JOIN part USING (run_id, rank, scope)
        GROUP BY ALL
        HAVING sum(part.segment_ns) <> any_value(scope.end_ns - scope.start_ns)
          OR bool_or(part.start_ns <> scope.start_ns + part.before_ns)
    """,
}


def hold(warehouse: Warehouse, run: str) -> None:
    """Derives a run and checks all properties."""
    done = warehouse.derive(NAME, run)
    assert any(done.scopes.values()), run
    part = warehouse.select(runs=run)
    assert not part.critical_path_breakdown().skipped
    for promise, broken in BROKEN.items():
        assert part.query(broken).rows() == [], (run, promise)


@pytest.mark.parametrize("name", ["graphs", "cpu_only", *deep("mtia", "ascend", "gpu_only")])
def test_documented_properties_hold(name: str, tmp_path: Path) -> None:
    assert TRACES is not None
    warehouse = tw.open(tmp_path / "wh")
    warehouse.ingest(TRACES / SOME[name], run=name)
    hold(warehouse, name)


@pytest.mark.deep
def test_documented_properties_hold_for_all_traces(tmp_path: Path) -> None:
    assert TRACES is not None
    warehouse = tw.open(tmp_path / "wh")
    warehouse.ingest(TRACES)
    # Runs of snapshots alone have no activities.
    with_events = [row["run_id"] for row in warehouse.query("SELECT DISTINCT run_id FROM events").rows()]
    assert len(with_events) > 20
    for run in with_events:
        hold(warehouse, run)
    assert warehouse.verify() == []


def test_backward_of_old_pytorch_follows_forward(tmp_path: Path) -> None:
    assert TRACES is not None
    warehouse = tw.open(tmp_path / "wh")
    warehouse.ingest(TRACES / OLD, run="old")
    warehouse.derive(NAME, "old", steps=7)
    rows = warehouse.critical_path_by_op().rows()
    found = {row["name"]: row["path_ns"] for row in rows if row["category"] == "host"}
    assert max(found, key=lambda name: found[name]).startswith("enumerate(DataLoader)")
