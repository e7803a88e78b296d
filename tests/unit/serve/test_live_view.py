"""Pages and answers of `tw serve` with real clients: a browser walks them, runs change, names mislead."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.parquet as parquet
import pytest

import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from cli_runner import environment
from cli_runner import tw as command
from conftest import ROOT, deep
from hostile_names import NAMES, hostile_trace
from object_store import BUCKET, s3_server
from server import Server, served
from tracewarehouse.present.pages import assets, with_links

pytest.importorskip("uvicorn")

FIRST_STEPS = ROOT / "tests" / "data" / "first-steps"


def simulated(folder: Path, warehouse: Path, name: str, *faults: str) -> None:
    made = tw.simulate(folder / name, injections=faults, ranks=2, steps=4, stacks=False)
    tw.open(warehouse).ingest(*made.files, run=name, labels={"branch": name}, jobs=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs `fast` and `slow`, with recorded results."""
    folder = tmp_path_factory.mktemp("served")
    simulated(folder, folder / "wh", "fast")
    simulated(folder, folder / "wh", "slow", "slow-rank:rank=1,factor=1.5")
    tw.open(folder / "wh").record()
    return folder / "wh"


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with served(root, log=root.parent / "log") as running:
        yield running


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.set_view(1280)
        # Pages look for changes ten times as often.
        faster = "const after = setTimeout; window.setTimeout = (call, ms) => after(call, ms / 10);"
        opened.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": faster})
        yield opened


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def text_of(window: Browser, selector: str) -> str:
    """The visible text; a page that was just opened may not be laid out yet, and has none."""
    read = "return document.querySelector(arguments[0])?.innerText ?? ''"
    until = time.monotonic() + 5
    while not (text := str(window.run(read, selector))) and time.monotonic() < until:
        time.sleep(0.05)
    return text


def click(window: Browser, selector: str) -> None:
    window.driver.find_element("css selector", selector).click()


@needs_chromium
def test_a_reader_walks_from_the_list_to_sql(server: Server, window: Browser) -> None:
    window.driver.get_log("browser")
    window.driver.get(server.url)
    until(lambda: len(window.cells("runs")) == 3 and "…" not in text_of(window, "#runs tbody"))
    _, slow, fast = window.cells("runs")
    assert slow[1].startswith("slow") and fast[1].startswith("fast") and "branch=slow" in slow[6]
    assert "Rank 1 is late" in slow[4] and slow[5] == "sound" and slow[2].endswith(" ms")
    assert window.run("return document.querySelectorAll('#runs svg.spark rect').length") >= 6
    window.driver.find_element("id", "words").send_keys("branch=fast")
    assert [row[1][:4] for row in window.cells("runs")[1:]] == ["fast"]
    window.driver.find_element("id", "words").clear()
    window.driver.find_element("id", "words").send_keys(" ")

    window.driver.find_element("link text", "slow").click()
    until(lambda: window.driver.current_url == f"{server.base}/report?run=slow%40v1")
    assert "Rank 1 is late" in text_of(window, ".answer") and text_of(window, ".bar .shown") == "slow@v1"
    window.run("document.querySelector('#theme').click()")
    assert window.run("return document.documentElement.dataset.theme") in ("dark", "light"), "its script runs"
    assert window.run("return getComputedStyle(document.querySelector('.tiles')).display") == "grid"
    assert window.run("return document.querySelector('.timeline .labels').childElementCount") > 1

    window.driver.get(f"{server.base}/")
    until(lambda: len(window.cells("runs")) == 3)
    for box in window.driver.find_elements("css selector", "#runs tbody input"):
        box.click()
    click(window, "#compare")
    until(lambda: window.driver.current_url == f"{server.base}/report?run=fast%40v1&head=slow%40v1")
    assert "slower" in text_of(window, ".answer")

    sql = "SELECT range AS n, 'x' || range AS name FROM range(250)"
    window.driver.get(f"{server.base}/sql#sql={quote(sql)}")
    assert window.driver.find_element("id", "editor").get_property("value") == sql
    click(window, "#run")
    until(lambda: len(window.cells("query")) == 101)
    assert window.cells("query")[:2] == [["n", "name"], ["0", "x0"]]
    click(window, "#after")
    click(window, "#after")
    assert text_of(window, "#place") == "201 to 250 of 250" and window.cells("query")[-1] == ["249", "x249"]
    editor = window.driver.find_element("id", "editor")
    editor.clear()
    editor.send_keys("SELECT nme FROM kernels")
    click(window, "#run")
    until(lambda: "not found" in text_of(window, "#state"))
    assert "nme" in window.driver.current_url, "the address has the query"
    bad = [each for each in window.errors() if "400" not in each]
    assert bad == []


@needs_chromium
def test_analyses_have_parameters_a_chart_and_a_table(server: Server, window: Browser) -> None:
    window.driver.get(server.url)
    window.driver.get_log("browser")
    window.driver.get(f"{server.base}/analyses")
    window.driver.find_element("css selector", "#analyses input").send_keys("stream_idle")
    window.driver.find_element("link text", "stream_idle").click()
    until(lambda: window.driver.current_url.endswith("/show?analysis=stream_idle&run=slow%40v1"))
    rows = window.cells("stream_idle")
    assert len(rows) > 1 and window.run("return document.querySelectorAll('figure svg').length") == 1
    window.driver.find_element("css selector", ".bar [name=kernel_wait_ns]").send_keys("1s")
    window.driver.find_element("css selector", ".bar [name=rank]").send_keys("1")
    click(window, ".bar form button")
    until(lambda: "kernel_wait_ns=1s" in window.driver.current_url)
    assert len(window.cells("stream_idle")) < len(rows)
    assert text_of(window, ".bar .shown") == "slow@v1"
    window.driver.get(f"{server.base}/show?analysis=step_summary&run=slow@v1&chart=period_ns")
    assert text_of(window, "figcaption") == "period_ns by step"
    assert window.run("return document.querySelectorAll('figure path[stroke-width=\"1.5\"]').length") == 1
    chosen = window.run("return document.querySelector('.bar [name=chart]').value")
    assert chosen == "period_ns"
    window.driver.get(f"{server.base}/history")
    assert "step_time, 2 runs" in text_of(window, "main")
    assert window.errors() == []


@needs_chromium
def test_runs_appear_change_and_go_while_pages_are_open(tmp_path: Path, window: Browser) -> None:
    root = tmp_path / "wh"
    warehouse = tw.open(root)
    warehouse.ingest(FIRST_STEPS / "rank0.json.gz", run="first", jobs=1)
    with served(root, log=tmp_path / "log") as server:
        window.driver.get(server.url)
        until(lambda: len(window.cells("runs")) == 2)
        warehouse.ingest(FIRST_STEPS / "rank1.json.gz", run="second", jobs=1)
        until(lambda: len(window.cells("runs")) == 3)
        assert window.cells("runs")[1][1].startswith("second")

        window.driver.get(f"{server.base}/report?run=first")
        warehouse.ingest(FIRST_STEPS / "rank1.json.gz", run="first", jobs=1)
        until(lambda: "first has version 2" in text_of(window, "#changed"))
        old = server.send("/report", {"run": "first@v1"})
        assert old.status == 200 and "2 ×" not in old.text and 'data-run="first@v1"' in old.text
        window.driver.find_element("link text", "open").click()
        assert "2 ×" in text_of(window, "header")
        changed = window.run("return document.querySelector('#changed').innerText")
        assert "first%40v2" in window.driver.current_url and changed == ""

        warehouse.remove("first")
        until(lambda: "first was removed" in text_of(window, "#changed"))
        warehouse.clean(-1, keep_versions_s=-1)
        for path in ("/report", "/show", "/summary", "/api/check"):
            more = {"analysis": "kernel_summary"} if path == "/show" else {}
            gone = server.send(path, {"run": "first@v2", **more})
            assert gone.status == 409 and "first@v2 was replaced or removed" in gone.text, path
        # A run of the same name is another one, also if its version has the number of one that is kept.
        warehouse.ingest(FIRST_STEPS / "rank0.json.gz", run="first", jobs=1)
        found = server.send("/report", {"run": "first"})
        again = server.send(found.headers["location"])
        assert again.status == 200 and "2 ×" not in again.text


def test_an_answer_is_of_one_version_of_a_run(tmp_path: Path) -> None:
    """While a run is replaced again and again, an answer has the rows of the version that it names."""
    root = tmp_path / "wh"
    traces = [FIRST_STEPS / f"rank{rank}.json.gz" for rank in (0, 1)]
    rows, stop = {}, threading.Event()
    for at in (0, 1):
        tw.open(tmp_path / f"only{at}").ingest(traces[at], run="run", rank=0, jobs=1)
        rows[at] = tw.open(tmp_path / f"only{at}").query("SELECT sum(dur_ns) AS ns FROM kernels").rows()
    assert rows[0] != rows[1]
    tw.open(root).ingest(traces[0], run="run", rank=0, jobs=1)

    def replace() -> None:
        at = 0
        while not stop.is_set():
            at = 1 - at
            tw.open(root).ingest(traces[at], run="run", rank=0, jobs=1, replace=True)

    writer = threading.Thread(target=replace)
    with served(root, log=tmp_path / "log") as server:
        writer.start()
        try:
            seen = set()
            for _ in range(25):
                found = server.query("SELECT sum(dur_ns) AS ns FROM kernels").json
                (run,) = found["provenance"]["runs"]
                number = int(run.partition("@v")[2])
                assert found["result"] == rows[(number - 1) % 2], run
                seen.add(number)
        finally:
            stop.set()
            writer.join()
        assert len(seen) > 1


def test_answers_are_the_json_objects_of_the_commands(server: Server, root: Path) -> None:
    for path, values, args in (
        ("runs", {}, ["runs"]),
        ("check", {"run": "slow"}, ["check", "slow"]),
        (
            "show",
            {"analysis": "kernel_summary", "run": "slow", "rank": 1},
            ["show", "kernel_summary", "--run", "slow", "--rank", "1"],
        ),
        (
            "show",
            {"analysis": "stream_idle", "kernel_wait_ns": "10us"},
            ["show", "stream_idle", "--kernel-wait-ns", "10us"],
        ),
        ("history", {"metric": "step_time"}, ["history", "step_time"]),
        ("describe", {"name": "kernels"}, ["describe", "kernels"]),
        ("whatif", {"run": "slow"}, ["whatif", "slow"]),
    ):
        same = json.loads(command(*args, "--json", "-w", root).out)
        answer = server.send(f"/api/{path}", values)
        assert answer.status == 200, answer.text
        assert answer.json == same, path
    sql = "SELECT rank, count(*) AS n FROM kernels GROUP BY rank ORDER BY rank"
    assert server.query(sql, runs=["slow"]).json == json.loads(
        command("query", sql, "--run", "slow", "--json", "-w", root).out
    )
    diff = server.send("/api/diff", {"base": "fast", "head": "slow"}).json
    same = json.loads(command("diff", "fast", "slow", "--json", "-w", root).out)
    assert diff["result"][0]["verdict"] == same["result"][0]["verdict"] and diff.keys() == same.keys()
    limited = server.send("/api/show", {"analysis": "kernel_summary", "limit": 2, "sort": "-sum_ns"}).json
    assert len(limited["result"]) == 2 and limited["result"][0]["sum_ns"] >= limited["result"][1]["sum_ns"]


def test_nothing_is_written(server: Server, root: Path) -> None:
    def stored() -> dict[str, str]:
        files = (path for path in root.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = stored()
    for path in (
        *(
            "/",
            "/report?run=fast@v1",
            "/show?analysis=stragglers&run=slow@v1",
            "/history",
            "/summary?run=fast",
        ),
        *("/api/runs", "/api/check", "/api/whatif?run=slow", "/api/history", "/api/diff?base=fast&head=slow"),
    ):
        assert server.send(path).status == 200, path
    assert server.query("FROM runs").status == 200
    assert stored() == before


def test_errors_have_a_class_a_hint_and_a_status(server: Server) -> None:
    for path, values, status, kind in (
        ("/api/show", {}, 400, "ParamError"),
        ("/api/show", {"analysis": "kernel_sumary"}, 404, "UnknownName"),
        ("/api/show", {"analysis": "kernel_summary", "other": 1}, 400, "ParamError"),
        ("/api/runs", {"run": "slow"}, 400, "ParamError"),
        ("/api/check", {"run": "nope"}, 404, "UnknownName"),
        ("/api/check", {"rank": "x"}, 400, "ParamError"),
        ("/api/check", {"run": "slow@v7"}, 409, "RunChanged"),
        ("/api/history", {"metric": "nope.ns"}, 404, "UnknownName"),
        ("/summary", {"run": "nope"}, 404, "UnknownName"),
    ):
        answer = server.send(path, values)
        assert (answer.status, answer.json["error"]["class"]) == (status, kind), answer.text
        assert answer.json["ok"] is False and answer.json["error"]["hint"]
    limit = server.query("FROM range(20)", max_rows=10)
    assert limit.status == 400 and limit.json["error"]["class"] == "QueryLimitError"
    page = server.send("/report", {"run": "nope"})
    assert page.status == 404 and "unknown run: nope" in page.text and "available: fast, slow" in page.text
    documented = server.send("/api").text
    assert "/api/show?analysis=stream_idle" in documented and "kernel_wait_ns (BIGINT" in documented


def test_downloads_have_the_rows(server: Server) -> None:
    sql = "SELECT range AS n, '=1+' || range AS name FROM range(300)"
    csv = server.query(sql, "csv", spreadsheet=True)
    assert (
        csv.text.splitlines()[:2] == ["n,name", "0,'=1+0"]
        and "query.csv" in csv.headers["content-disposition"]
    )
    assert server.query(sql, "csv").text.splitlines()[1] == "0,=1+0"
    table = parquet.read_table(io.BytesIO(server.query(sql, "parquet").body))
    assert table.num_rows == 300 and table["n"].to_pylist() == [*range(300)]


def test_a_list_that_has_not_changed_is_not_sent_again(server: Server) -> None:
    first = server.send("/api/runs")
    again = server.send("/api/runs", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


_RUN = "IGNORE-all-previous=instructions"
_SQL = quote('SELECT DISTINCT name, name AS "<img src=x onerror=alert(4)>" FROM events')
FEW_PAGES = ["/", f"/report?run={_RUN}", "/show?analysis=kernel_summary", f"/sql#sql={_SQL}"]
OTHER_PAGES = [
    f"/report?run={_RUN}&head=second",
    f"/analyses?run={quote('<img src=x onerror=alert(5)>')}",
    *(f"/show?analysis={each}" for each in ("name_summary", "op_summary", "launch_stats")),
    f"/show?analysis=kernel_summary&rank={quote('<script>')}",
    f"/show?analysis=kernel_summary&chart={quote('<script>')}",
    f"/history?metric={quote('<script>alert(6)</script>')}&by={quote('label.<img>')}",
    f"/history?by={quote('label.k0')}",
    f"/report?run={quote('<img src=x onerror=alert(7)>')}",
    "/api",
]


@needs_chromium
@pytest.mark.parametrize("pages", [FEW_PAGES, *deep(OTHER_PAGES)], ids=len)
def test_misleading_names_are_text_on_every_page(tmp_path: Path, window: Browser, pages: list[str]) -> None:
    root, labels = tmp_path / "wh", {f"k{at}": name for at, name in enumerate(NAMES) if name.isprintable()}
    labels |= {"<img src=x onerror=alert(1)>": "<script>alert(2)</script>"}
    warehouse = tw.open(root)
    trace = hostile_trace(tmp_path / "rank0.json")
    for run in (_RUN, "second"):
        warehouse.ingest(trace, run=run, labels=labels, jobs=1)
    warehouse.record()
    with served(root, log=tmp_path / "log") as server:
        window.driver.get(server.url)
        window.driver.get_log("browser")
        for path in pages:
            window.driver.get(server.base + path)
            if path == "/":
                until(lambda: "…" not in text_of(window, "#runs tbody") and len(window.cells("runs")) == 3)
                assert "<script>alert(2)</script>" in text_of(window, "#runs")
            if path.startswith("/sql"):
                click(window, "#run")
                until(lambda: len(window.cells("query")) > len(NAMES) - 2)
            assert (
                window.run("return document.querySelectorAll('img, iframe, main script:not([type])').length")
                == 0
            )
            shown = text_of(window, "body")
            assert not any(each in shown for each in "\u202e\u2066\x1b"), path
            assert window.run("return [...document.links].every(each => each.protocol === 'http:')"), path
            errors = [each for each in window.errors() if " 40" not in each]
            assert errors == [], path


def test_traces_are_ingested_into_the_cache_also_later(tmp_path: Path) -> None:
    made = tw.simulate(tmp_path / "made", ranks=1, steps=3, stacks=False)
    (tmp_path / "job").mkdir()
    with served(None, tmp_path / "job", log=tmp_path / "log", look=0.2) as server:

        def runs() -> list[dict[str, Any]]:
            return list(server.send("/api/runs").json["result"])

        assert runs() == [], "it starts before the first trace"
        for at in (1, 2):
            (tmp_path / "job" / f"broken{at}.json").write_text('{"traceEvents": [{"ph": "X", "na')
            shutil.copytree(made.files[0].parent, tmp_path / "job" / f"run{at}")
            until(lambda: len(runs()) == 1)
            assert [row["ranks_present"] for row in runs()] == [1]
        row = runs()[0]
        page = server.send(server.send("/report", {"run": row["run_id"]}).headers["location"])
        assert page.status == 200 and " -w " in page.text, "commands name the cache"
        assert server.query("SELECT count(*) AS n FROM runs").json["result"] == [{"n": 1}]
    assert "refused: " in (tmp_path / "log").read_text() and "broken1.json" in (tmp_path / "log").read_text()


def test_a_warehouse_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as store:
        for name, value in {**store.environment, "TW_MIRROR": str(tmp_path / "mirror")}.items():
            monkeypatch.setenv(name, value)
        url = f"s3://{BUCKET}/served"
        tw.open(url).ingest(FIRST_STEPS / "rank0.json.gz", run="first", jobs=1)
        with served(url, log=tmp_path / "log") as server:
            assert [row["run_id"] for row in server.send("/api/runs").json["result"]] == ["first"]
            assert server.send("/report?run=first@v1").status == 200
            assert server.query("SELECT DISTINCT run_id FROM kernels").json["result"] == [{"run_id": "first"}]


def test_only_files_of_the_package_become_links() -> None:
    page = '<head></head><style>{}</style><header class="wrap"><script>{}</script>'
    linked = with_links(
        page.format(assets()["page.css"], assets()["page.js"] + "\n" + assets()["flame.js"]), "BAR"
    )
    assert (
        "<style" not in linked
        and linked.index("page.js") < linked.index("flame.js")
        and "BAR<header" in linked
    )
    for script in ("alert(1)", assets()["page.js"] + "alert(1)"):
        with pytest.raises(ValueError, match="not one of its files"):
            with_links(page.format(assets()["page.css"], script), "")


def test_without_the_extra_there_is_a_hint(tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvicorn'] = None; from tracewarehouse.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "-w", str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert (
        done.stderr == "tw: tw serve needs starlette and uvicorn\nhint: pip install 'tracewarehouse[serve]'\n"
    )


def test_a_server_needs_a_warehouse_and_a_free_port(server: Server, root: Path, tmp_path: Path) -> None:
    assert "no warehouse" in command("serve", "-w", tmp_path / "none").err
    taken = command("serve", "-w", root, "--port", server.port)
    assert taken.code == 1 and "--port 0" in taken.err
    assert command("serve", "slow", "-w", root).code == 2


@pytest.mark.deep
def test_many_clients_for_a_minute(server: Server) -> None:
    """No error, memory is bounded, and kept pages come at once."""
    kept = ["/", "/report?run=slow@v1", "/show?analysis=kernel_summary&run=slow@v1", "/analyses", "/sql"]
    for path in kept:
        assert server.send(path).status == 200
    process = Path(f"/proc/{server.process.pid}")

    def memory() -> int:
        lines = (process / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def cpu_s() -> float:
        user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    is_idle = os.getloadavg()[0] < (os.cpu_count() or 1) / 2
    before, cpu_before, end = memory(), cpu_s(), time.monotonic() + 60
    times: list[float] = []
    wrong: list[object] = []

    def client(at: int) -> None:
        while time.monotonic() < end:
            at += 1
            started = time.monotonic()
            answer = (
                server.query(f"SELECT {at} AS n")
                if at % 50 == 0
                else server.send(kept[at % len(kept)] if at % 7 else "/api/runs")
            )
            if at % 50 and at % 7:
                times.append(time.monotonic() - started)
            if answer.status != 200:
                wrong.append((answer.status, answer.text[:200]))
            time.sleep(0.4)  # a reader looks at a page

    clients = [threading.Thread(target=client, args=(number * 11,)) for number in range(32)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    assert not wrong and len(times) > 500
    assert (cpu_s() - cpu_before) / len(times) < 0.02, "CPU time, which other processes do not change"
    assert not is_idle or sorted(times)[len(times) * 95 // 100] < 0.3
    assert memory() - before < 200_000, "kB"
