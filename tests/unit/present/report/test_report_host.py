"""The host section of a page: the account and the flame view of a recorded training job without GPUs."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from browser import Browser, browser, needs_chromium
from conftest import ROOT
from report_checks import check_page, write
from tracewarehouse.present.report import timeline

pytestmark = needs_chromium
FLAME = "document.querySelector('figure.flame')"
SECTIONS = [
    *("timeline", "findings", "overview", "kernels", "modules", "work", "communication", "memory", "host"),
    *("data", "limits", "run"),
]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    made = tw.open(tmp_path_factory.mktemp("host") / "warehouse")
    made.ingest(*sorted((ROOT / "tests" / "data" / "gloo-cpu").glob("rank*.json.gz")), run="job", jobs=1)
    return made


@pytest.fixture(scope="module")
def page(wh: tw.Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(wh.root, "job", to=tmp_path_factory.mktemp("page") / "job.html")


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def shown(wh: tw.Warehouse, window: Browser) -> list[dict[str, Any]]:
    """The rows of the command on the page."""
    words = window.run(f"return {FLAME}.querySelector('code').textContent").split()
    assert words[:3] == ["tw", "show", "host_stacks"]
    rank, step = int(words[words.index("--rank") + 1]), int(words[words.index("--only-step") + 1])
    return list(wh.select("job", ranks=rank).host_stacks(only_step=step).rows())


def sums(rows: list[dict[str, Any]]) -> dict[str, int]:
    found = Counter[str]()
    for row in rows:
        found[row["category"]] += row["self_ns"]
    return dict(+found)


def press(window: Browser, key: str) -> None:
    window.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "key": key})


def test_the_page_of_a_run_without_gpus(window: Browser, page: Path) -> None:
    check_page(window, page, SECTIONS)


def test_the_flame_view_has_the_exact_self_times(wh: tw.Warehouse, window: Browser, page: Path) -> None:
    window.set_view(1280)
    window.open(page)
    rows = shown(wh, window)
    assert json.loads(window.run(f"return {FLAME}.dataset.sums")) == sums(rows)
    drawn = window.run(f"return {FLAME}.flame.frames.map(each => [each.total, each.self, each.count])")
    assert sorted(map(tuple, drawn)) == sorted(
        (row["total_ns"], row["self_ns"], row["count"]) for row in rows
    )


def test_the_flame_view_zooms_by_click_and_keys(window: Browser, page: Path) -> None:
    window.set_view(1280)
    window.open(page)
    state = f"const view = {FLAME}.flame; return [view.root().name, view.selected().name]"
    home, selected = window.run(state)
    assert home == selected and home.endswith(": train_step")
    window.run(f"{FLAME}.querySelector('.frames').focus()")
    press(window, "ArrowDown")
    inside = window.run(state)[1]
    assert window.run(state) == [home, inside] and inside != home
    press(window, "Enter")
    assert window.run(state) == [inside, inside]
    width = window.run(f"return {FLAME}.flame.box({FLAME}.flame.root()).clientWidth")
    assert width > 1000
    press(window, "-")
    assert window.run(state) == [home, inside]
    press(window, "a")
    assert window.run(state)[0] == "entire time"
    press(window, "0")
    assert window.run(state)[0] == home
    window.run(f"{FLAME}.flame.box({FLAME}.flame.root().inside[1]).click()")
    assert window.run(state)[0] == window.run(f"return {FLAME}.flame.root().name") != home


def test_hovering_a_frame_shows_its_name_and_times(window: Browser, page: Path) -> None:
    window.set_view(1280)
    window.open(page)
    text = window.run(
        f"""
        const view = {FLAME}.flame, frame = view.root().inside[0];
        const where = {{ bubbles: true, clientX: 90, clientY: 90 }};
        view.box(frame).dispatchEvent(new PointerEvent('pointermove', where));
        const tip = document.getElementById('tip');
        return [tip.hidden, tip.textContent, frame.name];
        """
    )
    assert not text[0] and text[2] in text[1] and "self " in text[1] and "1 time" in text[1]


@pytest.mark.deep
def test_small_frames_are_combined_with_exact_sums(wh: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = wh.select("job", ranks=0).host_stacks().rows()
    monkeypatch.setattr(timeline, "MAX_FRAMES", 50)
    data = json.loads(timeline.flame_json(rows))
    found = Counter[str]()
    numbers = integers(data["frames"])
    frames = [numbers[at : at + 5] for at in range(0, len(numbers), 5)]
    for caller, category, _name, _count, ns in frames:
        assert caller <= 50
        found[data["categories"][category][0]] += ns
    assert dict(+found) == sums(list(rows))
    assert sum(count for _caller, _category, name, count, _ns in frames if not name) == len(rows) - 50


def integers(text: str) -> list[int]:
    """The variable-length integers of a base64 text."""
    numbers, value, shift = [], 0, 0
    for byte in b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    return numbers
