"""What readers of a page rely on: one denominator, nothing twice, words, search, and accessibility."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from tracewarehouse.present.report.document import Page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A run with a slow rank."""
    folder = tmp_path_factory.mktemp("reading")
    settings: dict[str, Any] = {
        "ranks": 2,
        "tensor": 1,
        "steps": 4,
        "layers": 2,
        "hidden": 256,
        "sequence": 256,
    }
    tw.simulate(folder / "job", seed=3, injections=["slow-rank:rank=1,what=compute,factor=2"], **settings)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "job", run="job", jobs=1)
    return warehouse


@pytest.fixture(scope="module")
def report(warehouse: tw.Warehouse) -> Page:
    return warehouse.report("job")


@pytest.fixture(scope="module")
def page(report: Page, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "job.html"
    path.write_text("".join(report.html()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def press(window: Browser, *keys: str) -> None:
    codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40}
    for key in keys:
        text = {} if key in codes else {"text": key}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        event = {"type": "keyDown", "key": key, **text, **code}
        window.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)
        window.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {**event, "type": "keyUp"})


def test_headings_and_bars_have_one_denominator(window: Browser, page: Path, report: Page) -> None:
    sections = {section.key: section for section in report.sections}
    tile = next(each for each in report.tiles if each.name == "step time")
    assert f"Of the mean step of 2 ranks, {tile.value}:" in sections["overview"].summary
    window.open(page)
    labels = window.run(
        "return [...document.querySelectorAll('#kernels svg [aria-label]')].map(each => each.ariaLabel)"
    )
    share = re.search(r"takes the most, ([\d.]+ %) of the step", sections["kernels"].summary)
    assert share is not None
    assert any(f"({share[1]}) per step, of the step" in label for label in labels)
    launched = next(card.text for card in sections["kernels"].cards if card.title == "By operator")
    texts = window.run(
        "return [...document.querySelectorAll('#kernels svg text')].map(each => each.textContent)"
    )
    amount = re.search(r"the most: (.*, [\d.]+ %) of the step\.", launched)
    assert amount is not None and amount[1] in texts
    communication = next(node for node in sections["modules"].trees if node.name == "(communication)")
    units = {"ns": 1.0, "µs": 1e3, "ms": 1e6}
    times = [text.split(" ")[:2] for text in (communication.text, tile.value)]
    ns, period_ns = (float(number) * units[unit] for number, unit in times)
    assert communication.total == pytest.approx(ns / period_ns, rel=0.01)
    captions = [figure.title for card in sections["host"].cards for figure in card.figures]
    assert all("step" in each or "in the recording" in each for each in captions)


def test_a_finding_is_there_once_with_its_details_folded(window: Browser, page: Path, report: Page) -> None:
    window.open(page)
    text = window.run("return document.body.innerText").replace("\u00a0", " ")
    assert text.count(report.verdict.sentence) == 1
    details = "document.querySelector('#verdict-box details')"
    assert window.run(f"return [{details}.open, {details}.querySelectorAll('tbody tr').length]") == [False, 1]
    others = sum(len(section.findings) for section in report.sections)
    assert others == len(report.verdict.others)
    assert ("findings" in {section.key for section in report.sections}) == (others > 0)


def test_legends_are_beside_their_chart_and_list_what_is_drawn(window: Browser, page: Path) -> None:
    window.open(page)
    legends = window.run(
        """
        return [...document.querySelectorAll('main ul.legend')].map(legend => {
          const figure = legend.closest('figure');
          if (!figure || figure.matches('.timeline, .flame')) return figure ? null : 'alone';
          const fill = element => getComputedStyle(element).fill;
          const drawn = new Set([...figure.querySelectorAll('svg [aria-label]')].map(fill));
          return [...legend.querySelectorAll('i')].map(each => getComputedStyle(each).backgroundColor)
            .filter(color => !drawn.has(color));
        }).filter(Boolean);
        """
    )
    assert len(legends) >= 3
    assert all(each == [] for each in legends)


def test_headings_of_tables_are_words_with_the_name_in_sql(window: Browser, page: Path) -> None:
    window.open(page)
    headings = dict(
        window.run(
            "return [...document.querySelectorAll('table[data-name=launch_summary] th')].map(each =>"
            " [each.textContent, each.querySelector('button').title])"
        )
    )
    assert headings["GPU activities"].startswith("gpu_activities: ")
    every = window.run("return [...document.querySelectorAll('main th')].map(each => each.textContent)")
    assert every and not [each for each in every if "_" in each]
    twice = window.run(
        """
        return [...document.querySelectorAll('main table')].map(table => {
          const words = [...table.querySelectorAll('th')].map(each => each.textContent);
          return words.filter((word, at) => words.indexOf(word) !== at);
        }).flat();
        """
    )
    assert twice == []


def test_a_search_in_a_table_without_a_match_says_so(window: Browser, page: Path) -> None:
    window.open(page)
    script = """
    const field = document.querySelector('input[aria-controls=table-kernel_summary]');
    field.closest('details').open = true;
    field.value = arguments[0];
    field.dispatchEvent(new Event('input'));
    const none = field.closest('details').querySelector('.none');
    return none.checkVisibility() ? none.textContent : '';
    """
    assert window.run(script, "nothing like it") == "No match."
    assert window.run(script, "nccl") == ""


def searched(window: Browser, words: str, script: str) -> Any:
    """What the script returns after these words; keys are lost while a busy browser has no focus yet."""
    for _ in range(5):
        press(window, "/", *words)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            if found := window.run(script):
                return found
            time.sleep(0.05)
        press(window, "Escape")
    return window.run(script)


def test_search_shows_the_rows_of_a_kernel_and_its_place_on_the_timeline(window: Browser, page: Path) -> None:
    window.set_view(1280)
    window.open(page)
    found = "return [...document.querySelectorAll('#found li')].map(each => each.textContent)"
    (first, *_) = searched(window, "allreduce ring", found)
    assert first.startswith("ncclDevKernel_AllReduce") and first.endswith("kernel")
    press(window, "Enter")
    view = "const {from, to} = document.querySelector('figure.timeline').timeline.view(); return to - from"
    about = window.run(
        "const about = document.getElementById('about'); return about.hidden ? '' : about.innerText"
    )
    assert "Kernels by operator and module" in about and "operator record_param_comms" in about
    assert "Longest slice on the timeline: ncclDevKernel_AllReduce" in about and "rank " in about
    assert window.run(view) != window.run("return document.querySelector('figure.timeline').timeline.span")
    assert window.errors() == []
    press(window, "Escape")
    assert window.run("return document.getElementById('about').hidden")
    press(window, "/", *"no such name")
    assert window.run(found) == []
    assert window.run("return document.querySelector('#search .none').checkVisibility()")


def test_a_click_on_a_bar_or_a_module_leads_to_what_is_known_of_it(window: Browser, page: Path) -> None:
    window.open(page)
    click = """
    const target = document.querySelector(arguments[0]);
    target.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    return document.querySelector('#about b').textContent;
    """
    assert window.run(click, "#kernels svg [aria-label^=nccl]").startswith("ncclDevKernel_")
    assert window.run(click, ".tree summary b") == window.run(
        "return document.querySelector('.tree summary b').textContent"
    )


@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_cards_leave_no_large_holes(window: Browser, page: Path, width: int) -> None:
    window.set_view(width)
    window.open(page)
    filled = window.run(
        """
        const several = [...document.querySelectorAll('.cards')].filter(cards => cards.children.length > 1);
        return several.map(cards => {
          const area = each => { const box = each.getBoundingClientRect(); return box.width * box.height; };
          const filled = [...cards.children].map(area).reduce((a, b) => a + b);
          return [cards.closest('section').id, filled / area(cards)];
        });
        """
    )
    assert filled and all(share > 0.55 for _, share in filled), filled
    assert window.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.deep
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_violation(window: Browser, page: Path, dark: bool) -> None:
    """Needs `npm install axe-core`; TW_NODE_BIN names `node_modules/.bin` of that folder."""
    script = Path(os.environ.get("TW_NODE_BIN", ""), "..", "axe-core", "axe.min.js")
    if not script.is_file():
        pytest.skip("axe-core is not installed")
    window.set_view(1280, dark=dark)
    window.open(page)
    window.run("for (const each of document.querySelectorAll('details')) each.open = true")
    window.driver.execute_script(script.read_text(encoding="utf-8"))
    window.driver.set_script_timeout(120)
    found = window.driver.execute_async_script(
        "const done = arguments[0];"
        " axe.run().then(({ violations }) => done(violations.map(each => [each.impact, each.id])));"
    )
    assert [each for each in found if each[0] in ("serious", "critical")] == []
