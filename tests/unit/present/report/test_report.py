"""`tw report`: pages in a real browser; their numbers, behavior and safety."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import sketch
import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from cli_runner import process
from cli_runner import tw as call
from report_checks import check_levels, check_page, check_tables, check_timeline
from tracewarehouse.errors import UnknownName
from tracewarehouse.present.plot.parts import format_short
from tracewarehouse.present.report import timeline
from tracewarehouse.present.report.data import kernels_by_step, report_data
from tracewarehouse.present.report.document import (
    MAX_ROWS,
    distinct_durations,
    distinct_labels,
    finding_percent,
)
from tracewarehouse.present.report.reports import _runs_verdict as many_runs_verdict
from tracewarehouse.present.report.reports import _Time

HOSTILE = "<img src=x onerror=document.title='owned'></script><script>document.title='owned'</script>&amp;"


@pytest.fixture(scope="module")
def warehouse_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of two ranks; one has a kernel name and a label that contain HTML."""
    folder = tmp_path_factory.mktemp("report")
    faults = [f"renamed-kernel:kernel=gelu,to={HOSTILE}", "slow-rank:rank=1,what=compute,factor=2"]
    settings = {"ranks": 2, "tensor": 1, "steps": 4, "layers": 2, "hidden": 256, "sequence": 256}
    tw.simulate(folder / "traces", seed=3, injections=faults, **settings)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "traces", run="hostile", labels={"why": "<b>bold</b>"}, jobs=1)
    tw.simulate(folder / "before", seed=4, **settings)
    warehouse.ingest(folder / "before", run="before", jobs=1)
    return warehouse.root


@pytest.fixture(scope="module")
def page(warehouse_path: Path) -> Path:
    done = process(
        "report", "host", "-w", warehouse_path, cwd=warehouse_path.parent
    )  # a unique prefix of the name
    assert (done.code, done.out) == (0, "wrote hostile.html\n")
    assert done.err == ""  # progress only on a terminal
    return warehouse_path.parent / "hostile.html"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@needs_chromium
def test_the_page_opens_without_error_or_request(window: Browser, page: Path) -> None:
    check_page(window, page)


@needs_chromium
def test_names_from_traces_are_escaped(window: Browser, page: Path) -> None:
    window.set_view(1280)
    window.open(page)
    assert window.run("return document.title") == "hostile"
    assert (
        window.run("return document.querySelectorAll('main img, main script:not([type]), dd b').length") == 0
    )
    assert any(HOSTILE in row for row in window.cells("kernel_summary"))
    labels = window.run(
        "return [...document.querySelectorAll('svg [aria-label]')].map(each => each.ariaLabel)"
    )
    assert any(HOSTILE in label for label in labels)


@needs_chromium
def test_tables_equal_tw_show(window: Browser, page: Path, warehouse_path: Path) -> None:
    window.open(page)
    names = check_tables(window, warehouse_path, "hostile")
    wanted = {"step_summary", "temporal_breakdown", "kernel_summary", "op_summary", "stragglers"}
    assert names >= wanted, sorted(names)
    assert names >= {"launch_summary", "idle_intervals", "memory_peak", "queue_length_summary", "coverage"}


@needs_chromium
def test_the_timeline_draws_exact_sums_and_answers_to_pointer_and_keys(
    window: Browser, page: Path, warehouse_path: Path
) -> None:
    window.set_view(1280)
    window.open(page)
    check_timeline(window, warehouse_path, "hostile")
    window.run("document.querySelector('canvas').scrollIntoView({ block: 'center' })")
    reveal = "return document.querySelector('figure.timeline').timeline.reveal(arguments[0])"
    injected = window.run(reveal, HOSTILE)
    where = {"x": injected["x"], "y": injected["y"]}
    window.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", **where})
    text = window.run("const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent")
    sql = f"SELECT dur_ns FROM kernels WHERE run_id = 'hostile' AND name = $${HOSTILE}$$"
    lengths = json.loads(call("query", sql, "-w", warehouse_path, "--json").out)["result"]
    assert {"dur_ns": injected["dur"]} in lengths
    assert HOSTILE in text and format_short(injected["dur"], "ns") in text and "rank " in text
    view = "document.querySelector('figure.timeline').timeline.view()"
    span = f"return {view}.to - {view}.from"
    before = window.run(span)
    window.run("document.querySelector('canvas').focus({ preventScroll: true })")
    for key, factor in (("+", 0.6), ("-", 1)):
        window.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, "text": key})
        assert window.run(span) == pytest.approx(factor * before)
    window.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "key": "0", "text": "0"})
    assert window.run(span) > 10 * before


@needs_chromium
def test_the_times_of_the_timeline_stay_in_view_when_its_rows_scroll(window: Browser, page: Path) -> None:
    window.set_view(1280, height=200)
    window.open(page)
    strip = """
    const done = arguments[1], lanes = document.querySelector('.lanes');
    const canvas = lanes.querySelector('canvas');
    lanes.scrollTop = arguments[0];
    requestAnimationFrame(() => requestAnimationFrame(() => {
      const pixels = canvas.getContext('2d').getImageData(0, lanes.scrollTop, canvas.width, 19).data;
      const sum = pixels.reduce((sum, each, at) => (sum * 31 + each + at) % 1e9, 0);
      done([lanes.scrollTop, new Set(pixels).size, sum]);
    }));
    """
    at_top, scrolled = (window.driver.execute_async_script(strip, top) for top in (0, 40))
    assert at_top[0] == 0 and scrolled[0] > 19
    assert at_top[1] > 2 and at_top[1:] == scrolled[1:]


@needs_chromium
def test_tables_can_be_sorted_and_searched(window: Browser, page: Path) -> None:
    window.open(page)
    heading, *rows = window.cells("kernel_summary")
    at = heading.index("count")
    press = """
    const head = document.querySelectorAll('table[data-name=kernel_summary] th')[arguments[0]];
    head.firstChild.focus(); head.firstChild.click(); return head.ariaSort;
    """
    assert window.run(press, at) == "descending"
    counts = [int(row[at].replace(",", "")) for row in window.cells("kernel_summary")[1:]]
    assert counts == sorted(counts, reverse=True) and len(set(counts)) > 2
    assert window.run(press, at) == "ascending"
    assert [int(row[at].replace(",", "")) for row in window.cells("kernel_summary")[1:]] == sorted(counts)
    window.run(
        """
        const key = document.querySelector('table[data-name=kernel_summary]').id;
        const field = document.querySelector(`input[aria-controls=${key}]`);
        field.value = 'OnError'; field.dispatchEvent(new Event('input'));
        """
    )
    assert [HOSTILE in row for row in window.cells("kernel_summary")[1:]] == [True]
    assert len(rows) > 1
    shown = (
        "return [...document.querySelectorAll('td[data-full]')].map(each => [each.textContent, each.title])"
    )
    names = dict(window.run(shown))
    assert names["cunn_SoftMaxForward"].startswith(
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<"
    )


@needs_chromium
def test_hovering_a_bar_shows_its_tooltip(window: Browser, page: Path) -> None:
    window.set_view(1280)
    window.open(page)
    done = window.run(
        """
        const mark = document.querySelector('svg [aria-label^="computation:"]');
        mark.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 90, clientY: 90 }));
        const tip = document.getElementById('tip');
        return [tip.hidden, tip.textContent];
        """
    )
    assert done[0] is False and re.fullmatch(r"computation: [\d.]+ %, [\d.]+ .s per step", done[1])


@needs_chromium
def test_the_theme_follows_the_system_and_the_button(window: Browser, page: Path) -> None:
    back = "return getComputedStyle(document.body).backgroundColor"
    mark = "return getComputedStyle(document.querySelector('svg [aria-label^=\"computation:\"]')).fill"
    window.set_view(1280)
    window.open(page)
    light = window.run(back), window.run(mark)
    window.run("document.getElementById('theme').click()")
    dark = window.run(back), window.run(mark)
    window.set_view(1280, dark=True)
    window.open(page)
    assert (window.run(back), window.run(mark)) == dark
    assert light[0] == "rgb(255, 255, 255)" and light[0] != dark[0] and light[1] != dark[1]


@needs_chromium
def test_the_report_on_two_runs(window: Browser, warehouse_path: Path, tmp_path: Path) -> None:
    done = call("report", "before", "hostile", "-w", warehouse_path, "-o", "-")
    assert done.code == 0 and done.out.startswith("<!DOCTYPE html>") and done.out.endswith("</html>\n")
    (tmp_path / "diff.html").write_text(done.out, encoding="utf-8")
    sections = ["verdict", "timeline", "breakdown", "kernels", "ranks", "host", "limits", "run"]
    check_page(window, tmp_path / "diff.html", sections)
    spans = window.run(
        "return [...document.querySelectorAll('figure.timeline')].map(({ timeline }) => {"
        " const view = timeline.view(); return view.to - view.from; })"
    )
    assert len(spans) == 2 and spans[0] == spans[1]
    flames = window.run(
        "return [...document.querySelectorAll('figure.flame h3')].map(each => each.textContent)"
    )
    assert [text[:35] for text in flames] == [
        "Base: Training thread of rank 0 in ",
        "Head: Training thread of rank 0 in ",
    ]
    assert any(HOSTILE in cell for row in window.cells("kernels") for cell in row)
    check_levels(window, warehouse_path, "before", "hostile")
    line = call("diff", "before", "hostile", "-w", warehouse_path, "--json").out
    verdict = json.loads(line)["result"][0]["verdict"]["line"]
    assert (
        window.run("return document.querySelector('#verdict .lead').textContent").lower()
        == f"{verdict}.".lower()
    )


@needs_chromium
def test_the_report_on_many_runs(window: Browser, warehouse_path: Path, tmp_path: Path) -> None:
    (tmp_path / "before.html").write_text("x")
    runs = ("--runs", "before", "--runs", "hostile")
    metrics = ("--metric", "temporal_breakdown.compute_ns", "--metric", "memory_snapshot_peak")
    assert call("report", *runs, *metrics, "-w", warehouse_path).code == 2
    metrics = ("--metric", "temporal_breakdown.compute_ns", "--metric", "snapshot_peak.bytes")
    done = call("report", *runs, *metrics, "-w", warehouse_path, "-o", tmp_path / "runs.html")
    assert done.code == 0, done.err
    check_page(window, tmp_path / "runs.html", ["runs", "times", "run"])
    rows = window.cells("runs")[1:]
    assert rows[0][0].startswith("before") and rows[1][0].startswith("hostile")
    assert rows[0][2] == "" and re.fullmatch(r"\+[\d.]+ %", rows[1][2])  # the slow rank
    assert "Rank 1 is late" in rows[1][7] and rows[1][7].startswith("critical")
    sql = """
        SELECT run_id, sum(compute_ns) / count(*) / max(steps) AS ns
        FROM temporal_breakdown
        JOIN (SELECT run_id, count(DISTINCT step) AS steps FROM steps GROUP BY run_id) USING (run_id)
        GROUP BY run_id
    """
    known = {row["run_id"]: row["ns"] for row in tw.open(warehouse_path).query(sql).rows()}  # per step
    assert [row[5] for row in rows] == [format_short(known[run], "ns") for run in ("before", "hostile")]
    assert [row[6] for row in rows] == ["-", "-"]
    assert window.run("return [...document.querySelectorAll('.runs a')].map(each => each.textContent)") == [
        "before"
    ]
    assert call("report", "before", "--runs", "hostile", "-w", warehouse_path).code == 2
    assert call("report", "before", "--metric", "step_time", "-w", warehouse_path).code == 2
    assert call("report", "-w", warehouse_path).code == 2


@pytest.mark.deep
def test_a_run_beside_itself_is_compared_with_a_warning(warehouse_path: Path) -> None:
    page = tw.open(warehouse_path).report("before", "before")
    assert page.sections[0].cards[0].text.startswith("Warning: the same run on both sides: before@v1.")


@pytest.mark.deep
def test_recorded_runs_add_a_history_section(warehouse_path: Path, tmp_path: Path) -> None:
    warehouse = tw.open(Path(shutil.copytree(warehouse_path, tmp_path / "warehouse")))
    warehouse.ingest(warehouse_path.parent / "before", run="night")
    warehouse.record(analyses="step_summary")
    page = warehouse.report("before", "hostile")
    (section,) = [each for each in page.sections if each.key == "history"]
    assert re.fullmatch(r"3 recorded runs, \d level changes? of the step time\.", section.summary)
    (figure,) = section.cards[0].figures
    sizes = re.findall(r'<circle .*?r="([\d.]+)"', figure.chart.body)
    assert sorted(sizes) == ["3.1", "5.4", "5.4"]  # base and head are larger


def test_names_that_would_look_alike_show_where_they_differ() -> None:
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::{}Functor<float>, int>(int)"
    names = [
        kernel.format("CUDAFunctorOnSelf_add_of_long_name"),
        kernel.format("FillOfSomethingElse"),
        "gemm",
        None,
    ]
    first, second, *others = distinct_labels(names)
    assert "CUDAFunctorOnSelf" in first and "FillOfSomething" in second and others == ["gemm", "(no name)"]
    assert max(map(len, (first, second))) <= 40


def test_steps_are_not_compared_with_windows_of_runs_without_steps() -> None:
    times = {"a": _Time(5e6, "step"), "b": _Time(2e9, "GPU window"), "c": _Time(6e6, "step")}
    verdict = many_runs_verdict(times)
    slowest = "c is the slowest (6 ms, 1.20 times as long)"
    assert verdict.sentence == f"a is the fastest of 2 runs: its step takes 5 ms; {slowest}."
    assert verdict.price.endswith(" 1 run without a complete step is not compared.")
    windows = many_runs_verdict({"b": times["b"], "d": _Time(4e9, "GPU window"), "a": times["a"]})
    assert windows.sentence.startswith("b is the shortest of 2 runs: its GPU window takes 2 s;")


def test_combined_slices_keep_their_exact_totals(
    warehouse_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "MAX_SLICES", 300)
    run = tw.open(warehouse_path).select("hostile")
    with report_data(run.selection) as data:
        drawn = timeline.timeline(data, [])
    assert drawn is not None and max(bin_ns for _, _, bin_ns in drawn.spans) > 0
    assert any(row["count"] > 1 for row in drawn.rows)
    sums: Counter[tuple[int, str]] = Counter()
    for row in drawn.rows:
        if row["lane"] == "gpu" and row["step"] == drawn.step:
            sums[row["rank"], row["category"]] += row["total_ns"]
    account = [row for row in run.step_account().rows() if row["step"] == drawn.step]
    assert sums == {(row["rank"], row["category"]): row["category_ns"] for row in account}


def test_kernels_of_complete_steps_are_kept_without_the_rows_of_each_rank(warehouse_path: Path) -> None:
    run = tw.open(warehouse_path).select("hostile")
    complete = {(row["rank"], row["step"]) for row in run.step_summary().rows() if not row["partial"]}
    sums: Counter[tuple[str, ...]] = Counter()
    for row in run.step_kernels().rows():
        if (row["rank"], row["step"]) in complete:
            sums[row["kind"], row["name"]] += row["sum_ns"]
    with report_data(run.selection) as data:
        for _ in range(2):
            found = kernels_by_step(data, "kind", "name")
            assert found is not None
            assert found.mean_ns == {key: ns / len(complete) for key, ns in sums.items()}
            assert len(data.result("step_kernels")) == 0


def test_the_command_of_a_table_selects_the_rank_of_its_rows(warehouse_path: Path) -> None:
    warehouse = tw.open(warehouse_path)
    page = "".join(warehouse.report("hostile").html())
    rows = len(warehouse.select("hostile", ranks=1).key_averages())  # rank 1 is the slow one
    assert rows < len(warehouse.select("hostile").key_averages())
    assert f"{rows - MAX_ROWS} more rows: tw show key_averages --run hostile --rank 1" in page
    assert "tw show op_summary --run hostile<" in page


class _Parsed(HTMLParser):
    """The tags and addresses of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_loads_nothing_and_has_landmarks(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parsed = _Parsed()
    parsed.feed(text)
    assert all(address.startswith(("#", "data:")) for address in parsed.addresses)
    assert {"header", "nav", "main", "section", "caption", "footer", "h1", "h2"} <= set(parsed.tags)
    assert "default-src 'none'" in text and "@import" not in text
    assert '<a class="skip" href="#main">' in text and '<main id="main"' in text
    assert text.count("<script>") == 1  # the others are data


def test_sentences_of_the_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shares = r"computation [\d.]+ %, exposed communication [\d.]+ %"
    assert re.search(rf"Of the mean step of 2 ranks, [\d.]+ .s: {shares}", text)
    assert "Rank 1 causes the most waiting: " in text
    assert "<dd>why=&lt;b&gt;bold&lt;/b&gt;</dd>" in text and "<dd>2 of 2</dd>" in text
    assert re.search(r"Only [\d.]+ .s were recorded; activity outside this window is unknown\.", text)
    assert text.index("Not visible in this trace</h2>") > text.index("Data quality</h2>")


@pytest.mark.deep
def test_missing_data_is_reported_once(tmp_path: Path) -> None:
    settings = {"ranks": 1, "steps": 1, "layers": 1, "hidden": 256, "sequence": 256}
    tw.simulate(tmp_path / "traces", memory=False, stacks=False, **settings)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "traces", run="bare")
    page = warehouse.report("bare")
    by_key = {section.key: section for section in page.sections}
    assert "communication" not in by_key  # no collectives
    assert {card.title for card in by_key["memory"].cards}.isdisjoint({"Memory use", "Peak by device"})
    statement = "No allocations were recorded; results that need them are missing."
    assert by_key["limits"].statements.count(statement) == 1


@pytest.mark.deep
def test_without_a_gpu_tiles_are_shares_of_the_training_thread(tmp_path: Path) -> None:
    sketch.write("host 0 op t1 aten::mm 0 30\nhost 0 op t1 aten::add 30 40\n", tmp_path)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "host", run="host")
    shares = {tile.name: tile.share for tile in warehouse.report("host").tiles if tile.share is not None}
    assert shares == pytest.approx({"aten::mm": 3 / 7, "aten::add": 4 / 7})


@pytest.mark.deep
def test_labels_name_the_window_without_steps_and_the_rank_if_it_is_the_only_one(tmp_path: Path) -> None:
    lines = [
        f"{run} 3 {line}"
        for run, length in (("base", 300), ("head", 400))
        for line in (
            "call t1 cudaLaunchKernel 0 10 id=1",
            f"gpu s7 gemm 20 {length} id=1",
            "call t1 cudaDeviceSynchronize 30 500",
        )
    ]
    sketch.write("\n".join(lines) + "\n", tmp_path / "t")
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "t")
    tiles = {tile.name: tile.note for tile in warehouse.report("base", "head").tiles}
    assert (tiles["base"], tiles["head"], tiles["verdict"]) == (*["mean window"] * 2, "time of the window")
    kernels = next(each for each in warehouse.report("base").sections if each.key == "kernels")
    assert "300 ns total on rank 3 in the recording; " in "".join(kernels.statements) + str(kernels.summary)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0408, "4.1 %"), (0.196, "19.6 %"), (0.0, "0.0 %"), (0.0002, "< 0.1 %")]
)
def test_percentages_of_findings_have_the_decimals_of_their_sentences(value: float, shown: str) -> None:
    assert finding_percent(value, 1.0) == shown


@pytest.mark.deep
def test_a_timestamp_that_is_years_off_does_not_prevent_the_report(tmp_path: Path) -> None:
    moments = [
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": at,
            "args": args,
        }
        for at in (1, 1_712_195_495_521_311)
        for args in [{"Device Type": 1, "Device Id": 0, "Bytes": 8, "Addr": 5, "Total Allocated": 8}]
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": moments}))
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "trace.json", run="far")
    memory = next(section for section in warehouse.report("far").sections if section.key == "memory")
    assert memory.cards[0].figures


@pytest.mark.deep
def test_the_report_on_one_rank(warehouse_path: Path) -> None:
    done = call("report", "hostile", "-w", warehouse_path, "-o", "-", "--rank", "1")
    assert done.code == 0 and done.out.startswith("<!DOCTYPE html>") and done.out.endswith("</html>\n")
    assert "1 of 2 (1)" in done.out


def test_errors_come_before_the_analyses(warehouse_path: Path) -> None:
    unwritable = call("report", "hostile", "-w", warehouse_path, "-o", warehouse_path / "no" / "x.html")
    assert len(unwritable.errors) == 2  # checked before the analyses run
    assert "x.html: cannot be written" in unwritable.errors[0]
    missing = call("report", "other", "-w", warehouse_path)
    assert missing.code == 1 and missing.errors[0] == "tw: unknown run: other"
    with pytest.raises(UnknownName):
        tw.open(warehouse_path).report("other")


@pytest.mark.deep
def test_a_server_with_graphs_has_sections_for_both(tmp_path: Path) -> None:
    settings = {"ranks": 1, "steps": 3, "layers": 1, "hidden": 256, "sequence": 256, "stacks": False}
    tw.simulate(tmp_path / "serve", mode="inference", graphs=True, capture=True, gpu="MI300X", **settings)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "serve")
    before = {section.key: section for section in warehouse.report("serve").sections}
    assert before["graphs"].summary.startswith("3 graph launches of 2 shapes replay ")
    assert before["graphs"].commands[0].text == "tw derive graphs serve"
    warehouse.derive("graphs", "serve")
    page = warehouse.report("serve")
    after = {section.key: section for section in page.sections}
    assert after["graphs"].statements == (
        "The operator is known for 100 % of it, from the capture of the graph.",
    )
    assert re.fullmatch(
        r"3 decode steps with 12 requests and 12 tokens, median GPU time [\d.]+ .s\.",
        after["inference"].statements[0],
    )
    assert page.tiles[0].name == "decode tokens/s" and "per second of busy GPU" in page.tiles[0].note
    others = {section.key for section in warehouse.report("capture").sections}
    assert others.isdisjoint({"graphs", "inference"})


def test_two_durations_are_printed_with_the_digits_that_distinguish_them() -> None:
    assert distinct_durations(299_255_000, 299_260_140) == ("299.255 ms", "299.260 ms")
    assert distinct_durations(299_000_000, 350_000_000) == ("299 ms", "350 ms")
    assert len(set(distinct_durations(7_000, 7_000))) == 1
    assert distinct_durations(0.25, 0.251) == ("0.250 ns", "0.251 ns")
