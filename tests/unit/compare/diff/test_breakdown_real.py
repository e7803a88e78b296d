"""Breakdowns of real pairs of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import real_traces
from tracewarehouse.compare.diff.breakdown import Breakdown, breakdown

TRACES = real_traces()
pytestmark = [pytest.mark.deep, pytest.mark.skipif(TRACES is None, reason="needs the real traces")]
PAIRS = {
    "resnet": (
        "before-after-resnet50-v100/num_workers_0__worker0.1623143089861.pt.trace.json.gz",
        "before-after-resnet50-v100/num_workers_4__worker0.1623212756351.pt.trace.json.gz",
    ),
    "graphs": ("trace-diff-hta/control.json.gz", "trace-diff-hta/test.json.gz"),
    "twins": ("h100-vs-mi300-hf/h100_bert-small.json.gz", "h100-vs-mi300-hf/mi300_bert-small.json.gz"),
    "batch": (
        "batchsize-sweep-a100/bs2__hmoss-6a49xb_1981897.1733767528576200192.pt.trace.json.gz",
        "batchsize-sweep-a100/bs512__hmoss-6a49xb_1988833.1733770537022695153.pt.trace.json.gz",
    ),
}


def breakdown_of(pair: str, folder: Path, per: str | None = None) -> Breakdown:
    """The breakdown of a pair; its levels sum to the change exactly."""
    assert TRACES is not None
    wh = tw.open(folder / "warehouse")
    for name, path in zip(("base", "head"), PAIRS[pair], strict=True):
        wh.ingest(TRACES / path, run=name)
    found = breakdown(wh.selection.select("base"), wh.selection.select("head"), per=per)
    for level in found.levels:
        assert (level.base, level.head) == (found.base_mean, found.head_mean), level.name
        assert sum(row["delta_ns"] for row in level.result(5).rows()) == round(found.head_mean) - round(
            found.base_mean
        )
    return found


def test_more_workers_end_the_wait_for_data(tmp_path: Path) -> None:
    found = breakdown_of("resnet", tmp_path)
    assert found.per == "step"
    for name in ("breakdown", "kernels", "operators", "categories"):
        first = found.level(name).rows[0]
        assert first.part == "idle_dataloader"
        assert first.delta / found.delta >= 0.8


@pytest.mark.parametrize("per", [None, "window"])
def test_a_compiled_model_is_launched_by_graphs_and_copies_more(per: str | None, tmp_path: Path) -> None:
    found = breakdown_of("graphs", tmp_path, per)
    copies = found.level("kernels").rows[0]
    assert (copies.part, copies.change) == ("Memcpy DtoD (Device -> Device)", "more calls")
    first, second = found.level("operators").rows[:2]
    assert (first.part, first.change) == ("CompiledFunctionBackward (graph launch)", "added")
    assert (second.part, second.change) == ("CompiledFunction (graph launch)", "added")


def test_identical_layers_on_two_gpus_share_their_locations(tmp_path: Path) -> None:
    found = breakdown_of("twins", tmp_path)
    assert found.per == "window"
    renamed = [row for row in found.level("kernels").rows if row.change and "replaced" in row.change]
    assert any("flash" in row.part for row in renamed)
    assert sum(row.base_count or 0 for row in renamed) > 30


def test_larger_batches_take_longer(tmp_path: Path) -> None:
    found = breakdown_of("batch", tmp_path)
    assert found.delta > 0 and found.level("breakdown").rows[0].delta > 0
