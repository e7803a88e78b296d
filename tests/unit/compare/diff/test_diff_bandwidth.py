"""Bandwidth in a comparison: slow links show at any message size, also between different models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.present.answers import change_text
from tracewarehouse.simulation import Noise

SETTINGS: dict[str, Any] = {"ranks": 2, "layers": 2, "steps": 4, "stacks": False, "noise": Noise(0, 0, 0, 0)}
TITLE = "bus bandwidth by collective, message size and number of ranks"
SLOW = "slow-link:group=data0,factor=5"
RUNS: dict[str, dict[str, Any]] = {
    "base": {"memory": False},
    "deeper": {"layers": 3, "batch": 2, "memory": False},
    "slow": {"injections": [SLOW], "memory": False},
}
MORE_RUNS: dict[str, dict[str, Any]] = {
    "measured": {"injections": [SLOW]},
    "full": {"injections": [SLOW, "growing-memory:mb=19800"]},
    "one": {"ranks": 1},
}


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    return simulated(tmp_path_factory.mktemp("bandwidth"), RUNS)


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    return simulated(tmp_path_factory.mktemp("more"), {**RUNS, **MORE_RUNS})


def simulated(folder: Path, runs: dict[str, dict[str, Any]]) -> tw.Warehouse:
    """A warehouse with these runs."""
    for name, settings in runs.items():
        tw.simulate(folder / "sim" / name, **{**SETTINGS, **settings})
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "sim", jobs=1)
    return warehouse


@pytest.mark.deep
def test_another_model_on_the_same_machine_has_the_same_bandwidth(wh: tw.Warehouse) -> None:
    found = wh.diff("base", "deeper").changes().bandwidth
    assert found is not None and not found.changed and not found.notices
    (row,) = found.rows.rows()
    assert (row["collective"], row["members"]) == ("all_reduce", 2)
    assert row["base_instances"] < row["head_instances"]
    assert row["ratio"] == pytest.approx(1) and row["lost_ns"] == 0


def test_a_slow_link_is_a_lower_bandwidth(wh: tw.Warehouse) -> None:
    change = wh.diff("deeper", "slow").changes()
    found = change.bandwidth
    assert found is not None and TITLE in change_text(change, ["breakdown"], 5, 100)
    (row,) = found.changed
    assert row["ratio"] == pytest.approx(1 / 5, rel=1e-4)
    transfers = {
        run: sum(each["transfer_ns"] for each in wh.select(run).analyze("bandwidth_by_size").rows())
        for run in ("base", "slow")
    }
    assert row["lost_ns"] == pytest.approx(transfers["slow"] - transfers["base"], rel=1e-4)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("run", "explained"),
    [
        ("slow", "is unknown: record memory"),
        ("measured", "GPU memory was not nearly full"),
        ("full", "possible cause: too little was left for communication buffers"),
    ],
)
def test_a_collapse_is_explained_as_a_hypothesis(more: tw.Warehouse, run: str, explained: str) -> None:
    found = more.diff("base", run).changes().bandwidth
    assert found is not None
    (notice,) = found.notices
    assert explained in notice


@pytest.mark.deep
def test_no_bandwidth_with_one_rank(more: tw.Warehouse) -> None:
    assert more.diff("base", "one").changes().bandwidth is None


@pytest.mark.deep
def test_it_is_printed_where_it_changed(wh: tw.Warehouse) -> None:
    texts = {run: call("diff", "base", run, "-w", wh.root) for run in ("deeper", "slow")}
    assert TITLE not in texts["deeper"].out and TITLE in texts["slow"].out
    assert "record memory" in texts["slow"].err
    assert TITLE in call("diff", "base", "slow", "-w", wh.root, "-f", "md").out
    (row,) = json.loads(call("diff", "base", "slow", "-w", wh.root, "--json").out)["result"]
    assert [each["collective"] for each in row["bandwidth"]] == ["all_reduce"]
