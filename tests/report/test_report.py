"""`tw report`: the page of a run in a real browser; its numbers, its manners, its safety."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from front_door import process
from front_door import tw as call
from report_checks import check_levels, check_page, check_tables
from tracewarehouse.errors import UnknownName

HOSTILE = "<img src=x onerror=document.title='owned'></script><script>document.title='owned'</script>&amp;"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks whose kernels have a name that would be HTML, with a label that would be."""
    folder = tmp_path_factory.mktemp("report")
    planted = [f"renamed-kernel:kernel=gelu,to={HOSTILE}", "slow-rank:rank=1,what=compute,factor=2"]
    knobs = {"ranks": 2, "tensor": 1, "steps": 4, "layers": 2, "hidden": 256, "sequence": 256}
    tw.simulate(folder / "traces", seed=3, injections=planted, **knobs)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "traces", run="hostile", labels={"why": "<b>bold</b>"})
    tw.simulate(folder / "before", seed=4, **knobs)
    warehouse.ingest(folder / "before", run="before")
    return warehouse.root


@pytest.fixture(scope="module")
def page(house: Path) -> Path:
    told = process("report", "host", "-w", house, cwd=house.parent)  # the start of the name is enough
    assert (told.code, told.out) == (0, "wrote hostile.html\n")
    assert "working out overview" in told.err
    return house.parent / "hostile.html"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@needs_chromium
def test_it_opens_without_error_or_request(window: Browser, page: Path) -> None:
    check_page(window, page)


@needs_chromium
def test_names_from_traces_are_text(window: Browser, page: Path) -> None:
    window.look(1280)
    window.open(page)
    assert window.run("return document.title") == "hostile"
    assert window.run("return document.querySelectorAll('main img, main script, dd b').length") == 0
    assert any(HOSTILE in row for row in window.cells("kernel_summary"))
    marks = window.run(
        "return [...document.querySelectorAll('svg [aria-label]')].map(each => each.ariaLabel)"
    )
    assert any(HOSTILE in mark for mark in marks)


@needs_chromium
def test_its_numbers_are_those_of_show(window: Browser, page: Path, house: Path) -> None:
    window.open(page)
    names = check_tables(window, house, "hostile")
    assert names >= {"step_summary", "temporal_breakdown", "kernel_summary", "op_summary", "stragglers"}
    assert names >= {"launch_summary", "idle_intervals", "memory_peak", "queue_length_summary", "coverage"}


@needs_chromium
def test_tables_sort_and_search_by_keyboard(window: Browser, page: Path) -> None:
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


@needs_chromium
def test_a_pointer_on_a_mark_is_told_what_it_is(window: Browser, page: Path) -> None:
    window.look(1280)
    window.open(page)
    told = window.run(
        """
        const mark = document.querySelector('svg [aria-label^="computation:"]');
        mark.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: 90, clientY: 90 }));
        const tip = document.getElementById('tip');
        return [tip.hidden, tip.textContent];
        """
    )
    assert told[0] is False and re.fullmatch(r"computation: [\d.]+ %, [\d.]+ .s per rank", told[1])


@needs_chromium
def test_light_and_dark_follow_the_system_and_the_button(window: Browser, page: Path) -> None:
    back = "return getComputedStyle(document.body).backgroundColor"
    mark = "return getComputedStyle(document.querySelector('svg [aria-label^=\"computation:\"]')).fill"
    window.look(1280)
    window.open(page)
    light = window.run(back), window.run(mark)
    window.run("document.getElementById('theme').click()")
    dark = window.run(back), window.run(mark)
    window.look(1280, dark=True)
    window.open(page)
    assert (window.run(back), window.run(mark)) == dark
    assert light[0] == "rgb(255, 255, 255)" and light[0] != dark[0] and light[1] != dark[1]


@needs_chromium
def test_the_page_on_two_runs(window: Browser, house: Path, tmp_path: Path) -> None:
    told = call("report", "before", "hostile", "-w", house, "-o", tmp_path / "diff.html")
    assert told.code == 0, told.err
    check_page(window, tmp_path / "diff.html", ["verdict", "account", "kernels", "ranks"])
    assert any(HOSTILE in cell for row in window.cells("kernels") for cell in row)
    check_levels(window, house, "before", "hostile")
    line = call("diff", "before", "hostile", "-w", house, "--json").out
    verdict = json.loads(line)["result"][0]["verdict"]["line"]
    assert (
        window.run("return document.querySelector('#verdict .lead').textContent").lower()
        == f"{verdict}.".lower()
    )


def test_what_cannot_be_compared_is_no_page(house: Path) -> None:
    told = call("report", "before", "before", "-w", house)
    assert told.code == 1 and told.errors[1].startswith("tw: not comparable: the same run on both")
    page = tw.open(house).report("before", "before", anyway=True)
    assert page.sections[0].parts[0].sentence.startswith("Not comparable: the same run on both sides")


def test_recorded_runs_are_a_history(house: Path, tmp_path: Path) -> None:
    warehouse = tw.open(Path(shutil.copytree(house, tmp_path / "warehouse")))
    warehouse.ingest(house.parent / "before", run="night")
    warehouse.record(analyses="step_summary")
    page = warehouse.report("before", "hostile")
    (section,) = [each for each in page.sections if each.key == "history"]
    assert section.sentence.startswith("Over 3 recorded runs the level of the step time changed")
    (picture,) = section.parts[0].pictures
    sizes = [row["size"] for row in picture.spec["data"]["values"]]
    assert sorted(sizes) == [30, 90, 90]  # base and head stand out


class _Parsed(HTMLParser):
    """What stands outside of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_asks_for_nothing_and_has_its_landmarks(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    parsed = _Parsed()
    parsed.feed(text)
    assert all(address.startswith(("#", "data:")) for address in parsed.addresses)
    assert {"header", "nav", "main", "section", "caption", "footer", "h1", "h2"} <= set(parsed.tags)
    assert "default-src 'none'" in text and "@import" not in text
    assert parsed.tags.count("script") == 1


def test_words_say_what_is_seen(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"the GPUs of 2 ranks computed [\d.]+ %, communicated without computing", text)
    assert "Most waiting is for rank 1: " in text
    assert "<dd>why=&lt;b&gt;bold&lt;/b&gt;</dd>" in text and "<dd>2 of 2</dd>" in text
    assert "What happened outside of the " in text


def test_what_a_trace_lacks_is_said_once(tmp_path: Path) -> None:
    knobs = {"ranks": 1, "steps": 1, "layers": 1, "hidden": 256, "sequence": 256}
    tw.simulate(tmp_path / "traces", memory=False, stacks=False, **knobs)
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(tmp_path / "traces", run="bare")
    page = warehouse.report("bare")
    by_key = {section.key: section for section in page.sections}
    assert by_key["communication"].sentence == "No communication is told: no collectives recorded."
    assert by_key["communication"].parts == by_key["communication"].tables == ()
    assert by_key["memory"].sentence == "How much memory was in use is not told: no memory events recorded."
    assert "No allocations are recorded, so what follows from them is not told." in page.unknown


def test_a_time_that_is_years_off_stops_no_page(tmp_path: Path) -> None:
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
    assert memory.parts[0].pictures


def test_stdout_and_unknown_runs(house: Path) -> None:
    told = call("report", "hostile", "-w", house, "-o", "-", "--rank", "1")
    assert told.code == 0 and told.out.startswith("<!DOCTYPE html>") and told.out.endswith("</html>\n")
    assert "1 of 2 (1)" in told.out
    nowhere = call("report", "hostile", "-w", house, "-o", house / "no" / "x.html")
    assert len(nowhere.errors) == 2 and "x.html: cannot be written" in nowhere.errors[0]  # before the work
    missing = call("report", "other", "-w", house)
    assert missing.code == 1 and missing.errors[0] == "tw: unknown run: other"
    with pytest.raises(UnknownName):
        tw.open(house).report("other")
