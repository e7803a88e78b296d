"""The timeline of a report: each finding leads to its place, with names, and to Perfetto."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import chrome_format
import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from conftest import ROOT, deep
from report_checks import write
from simulated import INJECTED, NEEDED
from tracewarehouse.present.report import timeline
from tracewarehouse.present.report.data import report_data
from tracewarehouse.present.report.findings import finding_groups
from tracewarehouse.simulation import Noise

MAX_BYTES = 700_000
GEMM, REDUCE, SEND = "sm90_xmma", "ncclDevKernel_AllReduce", "ncclDevKernel_SendRecv"
# Fault → the link, and what is read on screen after a click on it, by rank: waits, kernels, calls.
SHOWN: dict[str, tuple[str, dict[int, list[str]]]] = {
    "slow-rank": ("slow_rank collectives", {0: [f"waits for rank 1: {REDUCE}"], 1: [GEMM]}),
    "slow-stage": ("pipeline_wait receives", {0: [f"waits for rank 1: {SEND}"], 1: [GEMM]}),
    "startup": ("startup start-up", {0: ["cudaLaunchKernel"]}),
    "more-work": ("slow_rank collectives", {0: [f"waits for rank 1: {REDUCE}"], 1: [GEMM]}),
    "dataloader-stall": ("input_bound data loader", {0: ["enumerate", GEMM[:4]]}),
    "blocking-item": ("host_blocked host", {0: ["cudaStreamSynchronize", GEMM]}),
    "host-blocked": ("host_blocked host", {0: ["cudaStreamSynchronize", GEMM]}),
    "slow-link": ("exposed_comm transfer", {0: [REDUCE], 1: [REDUCE]}),
    "long-collective": ("slow_collectives collectives", {0: [REDUCE], 1: [REDUCE]}),
    "exposed-copies": ("exposed_copies copies", {0: ["Memcpy HtoD"]}),
    "recompilation": ("startup start-up", {0: ["_compile.compile_inner"]}),
    "slow-elementwise": ("slow_elementwise elementwise operators", {0: ["elementwise_kernel"]}),
    "fusible-chain": ("fusible_chain chains of elementwise operators", {0: ["vectorized_elementwise_"]}),
    "growing-memory": ("memory_growth GPU 0", {0: [GEMM[:4]]}),
}
IN_EVERY_RUN = 3
FAULTS = [*[*SHOWN][:IN_EVERY_RUN], *deep(*[*SHOWN][IN_EVERY_RUN:])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("timeline")


@pytest.fixture(scope="module")
def window(folder: Path) -> Iterator[Browser]:
    with browser(folder / "browser") as opened:
        yield opened


def page_of(folder: Path, fault: str) -> Path:
    """The report of a run with this fault, written once."""
    page = folder / f"{fault}.html"
    if not page.exists():
        settings: dict[str, Any] = {"ranks": 2, "layers": 2, "noise": Noise(0, 0, 0, 0)} | NEEDED.get(
            fault, {}
        )
        tw.simulate(folder / "traces" / fault, injections=[INJECTED[fault]], **settings)
        tw.open(folder / "warehouse").ingest(folder / "traces" / fault, run=fault, jobs=1)
        write(folder / "warehouse", fault, to=page)
    return page


def click(window: Browser, key: str) -> None:
    """Clicks the last link to this place, and waits until it is drawn."""
    window.run("[...document.querySelectorAll(`[data-jump='${arguments[0]}']`)].at(-1).click()", key)
    window.driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


# Names that are drawn inside the visible part of the lanes, by rank.
_READ = """
const { timeline } = document.querySelector('figure.timeline');
const lanes = document.querySelector('.lanes'), top = lanes.getBoundingClientRect().top;
const found = {};
for (const { rank, text, y } of timeline.written()) {
  const at = y - lanes.scrollTop;
  if (at >= 0 && at < lanes.clientHeight - 5 && top + at < innerHeight) (found[rank] ||= []).push(text);
}
return found;
"""


@needs_chromium
@pytest.mark.parametrize("fault", FAULTS)
def test_a_click_shows_the_culprit_and_who_waits(window: Browser, folder: Path, fault: str) -> None:
    page = page_of(folder, fault)
    assert page.stat().st_size <= MAX_BYTES
    window.set_view(1280)
    window.open(page)
    key, expected = SHOWN[fault]
    click(window, key)
    assert window.errors() == [] and window.requests() == []
    read = window.run(_READ)
    for rank, names in expected.items():
        for name in names:
            assert any(text.startswith(name) for text in read[str(rank)]), (rank, name, read)
    assert window.run("return document.querySelector('.limit').hidden")  # all of it is on the page
    pinned = window.run("return document.querySelector('.pinned').textContent")
    assert pinned.startswith(f"{key}, rank ")
    waits = [name for names in expected.values() for name in names if name.startswith("waits")]
    assert all("rank 0 waits " in pinned and "rank 1 runs sm90" in pinned for _ in waits)


@needs_chromium
def test_axis_text_and_commands_count_from_the_first_event(window: Browser, folder: Path) -> None:
    page = page_of(folder, "slow-rank")
    window.set_view(1280)
    window.open(page)
    click(window, "slow_rank collectives")
    (row,) = tw.open(folder / "warehouse").select("slow-rank").check().rows()
    first = min(each["start_ns"] for each in tw.open(folder / "warehouse").info("slow-rank").ranks.rows())
    began = f"{(row['from_ns'] - first) / 1e6:.6f}".rstrip("0").rstrip(".")
    assert f"rank 1: {began} ms to " in window.run("return document.querySelector('.pinned').textContent")
    ticks = "return document.querySelector('figure.timeline').dataset.ticks.split(', ')"
    key = "document.querySelector(`[data-do='${arguments[0]}']`).click()"
    for _ in range(30):
        shown = window.run(ticks)
        assert len(set(shown)) == len(shown) > 3
        window.run(key, "in")
    limits = "const { timeline } = document.querySelector('figure.timeline'); return timeline.view().from"
    window.run(key, "home")
    for _ in range(20):
        window.run(key, "left")
    assert window.run(limits) == 0
    window.run(key, "all")
    assert window.run(limits) == 0


def test_each_finding_has_a_mark_in_a_drawn_step_and_nothing_is_combined_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_of(folder, "slow-stage")
    monkeypatch.setattr(timeline, "MAX_SLICES", 1_500)
    run = tw.open(folder / "warehouse").select("slow-stage")
    groups = finding_groups(run.check().rows())
    with report_data(run.selection) as data:
        drawn = timeline.timeline(data, groups)
        periods = timeline._periods(data, {})
    assert drawn is not None and len(groups) == len(drawn.marks) == 2
    assert {mark.key for mark in drawn.marks} == {f"{g[0]['rule']} {g[0]['subject']}" for g in groups}
    assert len(drawn.rows) <= 1_500 + timeline._MAX_OVERVIEW and any(row["count"] > 1 for row in drawn.rows)
    for mark in drawn.marks:
        (step,) = {
            each.step
            for each in periods
            if each.rank == mark.rank and each.start_ns <= mark.start_ns < each.end_ns
        }
        assert {step, step + 1} <= set(drawn.steps)
        there = [
            row
            for row in drawn.rows
            if row["rank"] == mark.rank and mark.start_ns <= row["start_ns"] < mark.end_ns
        ]
        assert there and all(row["count"] == 1 for row in there)
        assert any(row["lane"] == "gpu" and row["name"] for row in there)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of these files: another origin than that of the report."""
    with HTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# Answers as Perfetto does, and keeps what only a trusted opener may send.
_RECEIVER = """<!DOCTYPE html><script>
window.pings = 0;
addEventListener('message', event => {
  if (event.source !== opener || event.origin !== 'null') return;
  if (event.data === 'PING') { if (++pings === 3) opener.postMessage('PONG', '*'); return; }
  const { buffer, title } = event.data.perfetto;
  if (buffer instanceof ArrayBuffer) window.received = [title, new TextDecoder().decode(buffer)];
});
</script>"""

_RECEIVED = """
const done = arguments[0], look = () => window.received ? done(received) : setTimeout(look, 50);
look();
"""


@needs_chromium
def test_one_click_sends_the_drawn_slices_to_perfetto(window: Browser, folder: Path) -> None:
    page = page_of(folder, "slow-rank")
    (folder / "receiver").mkdir()
    (folder / "receiver" / "index.html").write_text(_RECEIVER)
    window.set_view(1280)
    window.open(page)
    figure = "document.querySelector('figure.timeline')"
    assert window.run(f"return {figure}.dataset.perfetto") == "https://ui.perfetto.dev"
    assert "opened from a file" in window.run("return document.querySelector('.timeline .tools').textContent")
    driver = window.driver
    report = driver.current_window_handle
    with served(folder / "receiver") as address:
        window.run(f"{figure}.dataset.perfetto = arguments[0]", address)
        driver.find_element("css selector", "[data-do=perfetto]").click()
        (opened,) = set(driver.window_handles) - {report}
        driver.switch_to.window(opened)
        try:
            title, text = driver.execute_async_script(_RECEIVED)
            assert window.run("return pings") >= 3
        finally:
            driver.close()
            driver.switch_to.window(report)
    assert title == "slow-rank, steps 1, 2, 3"
    events = chrome_format.load(text)["traceEvents"]
    assert chrome_format.faults(events) == []
    waits = [each for each in events if each.get("args", {}).get("waits_for") == 1]
    assert waits and {each["pid"] for each in waits} == {0}
    names = {each["args"]["name"] for each in events if each["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}
    kernels = tw.open(folder / "warehouse").query(
        "SELECT name, dur_ns FROM kernels WHERE run_id = 'slow-rank' AND name LIKE 'sm90%' AND step = 2"
    )
    sent = {(each["name"], round(float(each["dur"]) * 1000)) for each in events if each["ph"] == "X"}
    assert {(row["name"], row["dur_ns"]) for row in kernels.rows()} <= sent


def test_collectives_on_the_host_wait_first(folder: Path) -> None:
    warehouse = tw.open(folder / "host")
    traces = sorted((ROOT / "tests" / "data" / "gloo-cpu").glob("rank*.json.gz"))
    warehouse.ingest(*traces, run="job", jobs=1)
    run = warehouse.select("job")
    with report_data(run.selection) as data:
        drawn = timeline.timeline(data, finding_groups(run.check().rows()))
    assert drawn is not None
    waits = [
        (row["rank"], row["waits_for"], row["dur_ns"]) for row in drawn.rows if row["waits_for"] is not None
    ]
    collectives = run.analyze("collective_waits").rows()
    expected = [
        (row["rank"], row["last_rank"], row["wait_ns"])
        for row in collectives
        if row["wait_ns"] and row["step"] in drawn.steps
    ]
    assert waits and sorted(waits) == sorted(expected)
    ends = {
        (row["rank"], row["start_ns"] + row["dur_ns"]) for row in drawn.rows if row["waits_for"] is not None
    }
    transfers = {(row["rank"], row["start_ns"]) for row in drawn.rows if row["category"] == "annotation"}
    assert ends <= transfers
