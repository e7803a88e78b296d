"""The module of each GPU activity: simulated training, recorded checkpointing and a real trace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT, real_traces
from simulated import SMALL

RECORDED = ROOT / "tests" / "data" / "torch-modules.json.gz"
AVERAGES = ROOT / "tests" / "data" / "torch-modules.key_averages.json"
RESNET = "amd-misc/mi300_ddp_resnet18_no_pool.json.gz"


def with_launches(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with a GPU activity for each operator of ATen that calls no other, on one stream."""
    slices = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
    slices.sort(key=lambda event: (event["ts"], -event["dur"]))
    leaves = [
        event
        for event, after in zip(slices, [*slices[1:], None], strict=True)
        if after is None or after["ts"] >= event["ts"] + event["dur"]
    ]
    for number, op in enumerate([op for op in leaves if op["name"].startswith("aten::")], 1):
        common = {"ph": "X", "ts": op["ts"], "args": {"correlation": number}}
        launch = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "dur": op["dur"], "tid": op["tid"]}
        place = {"pid": 0, "tid": 7, "args": {"correlation": number, "device": 0, "stream": 7}}
        trace["traceEvents"] += [
            {**common, **launch, "pid": op["pid"]},
            {**common, "name": op["name"], "cat": "kernel", "dur": 1, **place},
        ]
    return trace


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A recorded step under checkpointing of both kinds, with launches."""
    folder = tmp_path_factory.mktemp("checkpointed")
    trace = with_launches(json.loads(gzip.decompress(RECORDED.read_bytes())))
    (folder / "trace.json").write_text(json.dumps(trace))
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "trace.json", run="step", jobs=1)
    return warehouse


def test_every_activity_of_backward_under_checkpointing_has_its_module(checkpointed: tw.Warehouse) -> None:
    rows = checkpointed.query(
        """
        SELECT top.name AS top, owner.attribution_method, count(*) AS rows
        FROM kernel_modules AS owner
        JOIN kernels ON kernels.event_id = owner.kernel_id
        JOIN events AS top ON top.event_id = kernels.top_op_id
        WHERE owner.pass IN ('backward', 'recompute')
        GROUP BY ALL""",
        limits=None,
    ).rows()
    evaluated = "autograd::engine::evaluate_function: "
    outside = {row["top"].removeprefix(evaluated) for row in rows if row["attribution_method"] is None}
    assert outside == {"MeanBackward0", "PowBackward0"}  # the loss is computed outside of the model
    assert sum(row["rows"] for row in rows if row["attribution_method"] == "sequence") > 60


def test_recomputed_modules_have_the_paths_of_forward(checkpointed: tw.Warehouse) -> None:
    sql = "SELECT DISTINCT module_path FROM modules WHERE recompute = {} AND module_path LIKE '%Block_{}%'"
    for block in (1, 2):
        forward = {
            row["module_path"] for row in checkpointed.query(sql.format(False, block), limits=None).rows()
        }
        again = {
            row["module_path"] for row in checkpointed.query(sql.format(True, block), limits=None).rows()
        }
        assert again == forward and f"Net_0 > Block_{block}" in again


def test_passes_of_a_checkpointed_module(checkpointed: tw.Warehouse) -> None:
    rows = {row["module_path"]: row for row in checkpointed.module_summary().rows()}
    blocks = [rows[f"Net_0 > Block_{block}"] for block in range(3)]
    assert [row["calls"] for row in blocks] == [1, 2, 2]
    assert [row["recompute_ns"] > 0 for row in blocks] == [False, True, True]
    assert all(row["forward_ns"] > 0 and row["backward_ns"] > 0 for row in blocks)
    assert rows["(gradient accumulation)"]["backward_ns"] > 0 and rows["(optimizer)"]["optimizer_ns"] > 0


def test_memory_and_shapes_equal_those_of_the_profiler(tmp_path: Path) -> None:
    warehouse = tw.open(tmp_path)
    warehouse.ingest(RECORDED, run="step", jobs=1)
    found = {
        (
            row["name"],
            row["is_annotation"],
            json.dumps(json.loads(row["shapes"])) if row["shapes"] else None,
        ): row
        for row in warehouse.key_averages(by_shapes=True).rows()
    }
    reported = json.loads(AVERAGES.read_text())
    assert len(reported) == len(found) > 200
    for name, annotation, shapes, count, total_us, own_us, *memory in reported:
        row = found[name, annotation, shapes]
        assert [row["count"], row["cpu_memory_bytes"], row["self_cpu_memory_bytes"]] == [count, *memory], name
        assert row["cpu_total_ns"] == pytest.approx(1000 * total_us, abs=count)
        assert row["self_cpu_ns"] == pytest.approx(1000 * own_us, abs=count)


@pytest.mark.parametrize("large", [False, True])
def test_simulated_training_leaves_no_activity_of_backward_without_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Also of a trace that does not fit in memory."""
    for module in ("build", "columns"):
        monkeypatch.setattr(f"tracewarehouse.ingest.{module}.is_large", lambda _: large)
    tw.simulate(tmp_path / "traces", ranks=1, **SMALL)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "traces", jobs=1)
    rows = warehouse.query(
        """
        SELECT pass, attribution_method, count(*) AS rows FROM kernel_modules GROUP BY ALL""",
        limits=None,
    ).rows()
    found = {(row["pass"], row["attribution_method"]): row["rows"] for row in rows}
    assert found["backward", "sequence"] > 40 and ("backward", None) not in found, found
    siblings = warehouse.module_siblings(min_instances=3).rows()
    assert not any(row["is_outlier"] for row in siblings)


def test_a_trace_of_data_parallel_training(tmp_path: Path) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    warehouse = tw.open(tmp_path)
    warehouse.ingest(folder / RESNET, run="resnet", jobs=1)
    rows = warehouse.query(
        "SELECT pass, attribution_method, count(*) AS rows FROM kernel_modules GROUP BY ALL", limits=None
    ).rows()
    assert {(row["pass"], row["attribution_method"]): row["rows"] for row in rows} == {
        ("forward", "enclosing"): 1030,
        ("forward", None): 25,
        ("backward", "sequence"): 1305,
        ("backward", None): 10,
        ("optimizer", None): 5,
    }
