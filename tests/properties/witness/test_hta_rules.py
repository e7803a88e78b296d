"""HTA's rules over our tables: with none of them they give our analyses, with them HTA's own numbers.

The comparison on all real traces is `python -m witness.hta`; HTA.md has its results. HTA runs in a
separate Python, named by TW_HTA_PYTHON; tests that need it say so where they are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from conftest import ROOT, deep, real_traces
from witness.hta.__main__ import main
from witness.hta.cases import Case
from witness.hta.compare import METHODS, compare
from witness.hta.frame import kind_by_name, read
from witness.hta.method import Method, same
from witness.hta.oracle import Oracle
from witness.hta.rules import NONE, needed

OWN = {
    name: sorted((ROOT / "tests" / "data" / name).glob("*.json.gz")) for name in ("first-steps", "torch-cpu")
}
HTA = os.environ.get("TW_HTA_PYTHON")
with_hta = pytest.mark.skipif(HTA is None, reason="TW_HTA_PYTHON names no Python with traceinsight 0.6.1")


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """Our own traces, each set a run."""
    house = tw.open(tmp_path_factory.mktemp("hta-rules"))
    for name, files in OWN.items():
        house.ingest(*files, run=name)
    return house


@pytest.fixture(scope="module")
def ranks(warehouse: tw.Warehouse) -> dict[str, Any]:
    """Their ranks as the models want them."""
    return {name: read(warehouse, name, dict(enumerate(files))) for name, files in OWN.items()}


@pytest.mark.parametrize(
    "method",
    [each for each in METHODS if each.ours and not each.witnessed],
    ids=lambda each: f"{each.name} {each.note}",
)
@pytest.mark.parametrize("name", OWN)
def test_without_rules_the_models_give_our_analyses(
    name: str, method: Method, warehouse: tw.Warehouse, ranks: dict[str, Any]
) -> None:
    assert method.ours is not None
    ours = method.ours(warehouse.select(runs=[name]))
    assert same(ours, method.model(ranks[name], NONE), method.within)


@with_hta
@pytest.mark.parametrize("name", ["torch-cpu", *deep(*(name for name in OWN if name != "torch-cpu"))])
def test_with_rules_they_give_those_of_hta(name: str, warehouse: tw.Warehouse, tmp_path: Path) -> None:
    oracle = Oracle(Path(str(HTA)), tmp_path)
    found = list(compare(warehouse, oracle, Case(name, tuple(OWN[name]))))
    assert [each for each in found if each.word == "unexplained"] == []
    assert len({each.word for each in found}) > 1


@with_hta
@pytest.mark.deep
def test_nothing_is_unexplained_on_real_traces(tmp_path: Path) -> None:
    folder = real_traces()
    if folder is None:
        pytest.skip("no real traces here")
    assert main(["--hta-python", str(HTA), "--traces", str(folder), "--work", str(tmp_path)]) == 0


def test_a_smallest_set_of_rules_is_found() -> None:
    assert needed(("stream", "join", "many"), lambda rules: "join" in rules) == {"join"}
    assert needed(("stream", "join"), lambda rules: rules == {"other"}) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce", "communication"),
        ("hipMemcpyAsync", "communication"),
        ("Memcpy DtoD (Device -> Device)", "memory"),
        ("SyncBatchNorm", "other"),
        ("void gemm", "computation"),
    ],
)
def test_kinds_by_name_are_those_of_hta(name: str, kind: str) -> None:
    assert kind_by_name(name) == kind
