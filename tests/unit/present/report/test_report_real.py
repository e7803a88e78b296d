"""Reports of many ranks and of real traces in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from conftest import real_traces
from report_checks import SECTIONS, check_levels, check_page, check_tables, check_timeline, write

TRACES = real_traces()
pytestmark = [pytest.mark.deep, needs_chromium]
needs_traces = pytest.mark.skipif(TRACES is None, reason="no real traces here")
WITH_MODULES = ("gloo", "h100", "mi300")
DIFF = ["verdict", "timeline", "breakdown", "kernels", "host", "limits", "run"]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def warehouse_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real traces whose reports are checked."""
    assert TRACES is not None
    warehouse = tw.open(tmp_path_factory.mktemp("real") / "warehouse")
    warehouse.ingest(TRACES / "multirank-dlrm-v100-8r", run="dlrm")
    warehouse.ingest(*(TRACES / "multirank-gloo-cpu-4r").glob("*.pt.trace.json.gz"), run="gloo")
    for number in (0, 4):
        first, second = sorted((TRACES / "before-after-resnet50-v100").glob(f"num_workers_{number}__*"))
        warehouse.ingest(first, run=f"workers-{number}")
        warehouse.ingest(second, run=f"workers-{number}-again")
    for gpu in ("h100", "mi300"):
        warehouse.ingest(TRACES / "h100-vs-mi300-hf" / f"{gpu}_bert-small.json.gz", run=gpu)
    for name in ("control", "test"):
        warehouse.ingest(TRACES / "trace-diff-hta" / f"{name}.json.gz", run=name)
    return warehouse.root


def test_64_simulated_ranks(window: Browser, tmp_path: Path) -> None:
    settings = {"ranks": 64, "tensor": 2, "steps": 4, "layers": 2, "hidden": 512}
    tw.simulate(tmp_path / "traces", injections=["slow-rank:rank=37,factor=1.2"], seed=7, **settings)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "traces", run="many")
    page = write(warehouse.root, "many", to=tmp_path / "many.html")
    check_page(window, page)
    check_tables(window, warehouse.root, "many")
    check_timeline(window, warehouse.root, "many")
    assert "Rank 37 causes the most waiting" in page.read_text(encoding="utf-8")


@needs_traces
@pytest.mark.parametrize("run", ["dlrm", "gloo", "workers-0", "workers-4", "h100", "mi300", "control"])
def test_real_runs(window: Browser, warehouse_path: Path, tmp_path: Path, run: str) -> None:
    sections = [each for each in SECTIONS if each != "modules" or run in WITH_MODULES]
    check_page(window, write(warehouse_path, run, to=tmp_path / "page.html"), sections)
    check_tables(window, warehouse_path, run)
    check_timeline(window, warehouse_path, run)


@needs_traces
@pytest.mark.parametrize("pair", [("workers-0", "workers-4"), ("workers-4", "workers-4-again")])
def test_real_pairs(window: Browser, warehouse_path: Path, tmp_path: Path, pair: tuple[str, str]) -> None:
    check_page(window, write(warehouse_path, *pair, to=tmp_path / "page.html"), DIFF)
    check_levels(window, warehouse_path, *pair)
