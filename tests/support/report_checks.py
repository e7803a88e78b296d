"""Checks of a report in a real browser: no errors or requests, layout, and numbers equal to `tw show`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from browser import Browser
from cli_runner import tw as call
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.present.render.text import one_line, show

SECTIONS = [
    "timeline",
    "findings",
    "overview",
    "kernels",
    "modules",
    "work",
    "communication",
    "memory",
    "host",
    "data",
    "limits",
    "run",
]
OPTIONAL = {"findings", "kernels", "work", "communication", "memory", "data"}  # left out if they are empty
MAX_BYTES = 700_000
_LOCATION = ("run_id", "rank", "device", "stream")


def write(warehouse: Path, *runs: str, to: Path) -> Path:
    """Writes the report of one or two runs with `tw report`."""
    done = call("report", *runs, "-w", warehouse, "-o", to)
    assert (done.code, done.out) == (0, f"wrote {to}\n"), done.err
    return to


def check_page(browser: Browser, page: Path, sections: Sequence[str] = SECTIONS) -> None:
    """Opens the page light and dark, wide and narrow: no error, no request, all sections, no overflow."""
    assert page.stat().st_size <= MAX_BYTES
    for width, height, dark in ((1280, 900, False), (390, 844, True)):
        browser.set_view(width, dark=dark, height=height)
        browser.open(page)
        assert browser.errors() == []
        assert browser.requests() == []
        assert browser.run("return document.documentElement.scrollWidth") <= width
        check_answer(browser)
        assert browser.run(_LOW_CONTRAST) == []
        assert browser.run(_CLIPPED) == []
    shown = browser.run("return [...document.querySelectorAll('main > section')].map(each => each.id)")
    assert shown == [each for each in sections if each in shown or each not in OPTIONAL]
    assert browser.run(_EMPTY) == []
    assert browser.run(
        "return [...document.querySelectorAll('section .lead')].every(each => each.textContent)"
    )
    check_charts(browser)


def check_answer(browser: Browser) -> None:
    """The verdict is within the first 400 px, and no text of the first screen is clipped or overlaps."""
    assert browser.run("return document.querySelector('.answer').getBoundingClientRect().bottom") < 400
    assert browser.run(_OVERLAPS) == []


_EMPTY = """
return [...document.querySelectorAll('main > section:not(#limits)')]
  .filter(each => !each.querySelector('figure, table, li, .note, .facts')).map(each => each.id);
"""
_OVERLAPS = """
const texts = [...document.querySelectorAll('header :is(h1,p,b,span,small,code,button)')]
  .filter(each => each.checkVisibility() && each.textContent.trim());
const bad = texts.filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
  .map(each => 'clipped: ' + each.textContent);
for (const one of texts) for (const other of texts) {
  if (one === other || one.contains(other) || other.contains(one)) continue;
  const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  if (wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
    bad.push(`${one.textContent} overlaps ${other.textContent}`);
}
return bad;
"""
# Texts below the first screen that are cut off, but in what scrolls or ends in …, and text over other text.
# Opens all that is folded.
_CLIPPED = """
for (const each of document.querySelectorAll('details')) each.open = true;
const hides = each => ['hidden', 'clip'].includes(getComputedStyle(each).overflowX);
const ends = each => getComputedStyle(each).textOverflow === 'ellipsis';
const bad = [];
const texts = 'h2,h3,h4,p,li,dt,dd,td,th,summary,button,code,figcaption';
for (const each of document.querySelectorAll(`main :is(${texts})`)) {
  if (!each.textContent.trim() || !each.checkVisibility() || each.closest('.lanes, svg')) continue;
  if (hides(each) && !ends(each) && each.scrollWidth > each.clientWidth + 1)
    bad.push('clipped: ' + each.textContent.slice(0, 60));
}
for (const row of document.querySelectorAll('main tr')) {
  if (!row.checkVisibility()) continue;
  const boxes = [...row.cells].map(cell => [cell, cell.getBoundingClientRect()]);
  boxes.slice(1).forEach(([cell, box], at) => {
    if (box.left < boxes[at][1].right - 1) bad.push('cells overlap: ' + cell.textContent.slice(0, 60));
    if (cell.scrollWidth > cell.clientWidth + 1 && !ends(cell))
      bad.push('too wide: ' + cell.textContent.slice(0, 60));
  });
}
const blocks = [...document.querySelectorAll('main :is(h2,h3,h4,p,li,figcaption)')].filter(each =>
  each.checkVisibility() && each.textContent.trim() && !each.closest('.lanes, svg'));
blocks.slice(1).forEach((each, at) => {
  const before = blocks[at];
  if (before.contains(each) || each.contains(before)) return;
  const a = before.getBoundingClientRect(), b = each.getBoundingClientRect();
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  if (wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1)
    bad.push(`overlap: ${before.textContent.slice(0, 40)} / ${each.textContent.slice(0, 40)}`);
});
return [...new Set(bad)];
"""
# Texts whose contrast with the background behind them is below 4.5 : 1.
_LOW_CONTRAST = r"""
const rgba = text => {
  const parts = text.match(/[\d.]+/g).map(Number), scale = text.startsWith('color(') ? 255 : 1;
  return [...parts.slice(0, 3).map(each => each * scale), parts[3] ?? 1];
};
const light = color => {
  const linear = each => each <= 10 ? each / 3294.6 : ((each / 255 + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = color.map(linear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  const layers = [];
  for (let each = element; each; each = each.parentElement)
    layers.unshift(rgba(getComputedStyle(each).backgroundColor));
  const over = (below, above) => below.map((old, at) => old + (above[at] - old) * above[3]);
  return layers.reduce(over, [255, 255, 255]);
};
const bad = new Set();
for (const element of document.querySelectorAll('body *:not(script):not(style)')) {
  const own = [...element.childNodes].some(each => each.nodeType === 3 && each.data.trim());
  if (!own || element.closest('svg') || !element.checkVisibility()) continue;
  const [front, back] = [light(rgba(getComputedStyle(element).color)), light(behind(element))];
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  const text = element.textContent.slice(0, 40);
  if (ratio < 4.5) bad.add(`${element.tagName}.${element.className} ${ratio.toFixed(2)}: ${text}`);
}
return [...bad];
"""


def check_timeline(browser: Browser, warehouse: Path, run: str) -> None:
    """Compares the sums of the drawn steps with `step_account` and, to the ns, `temporal_breakdown`."""
    figure = "document.querySelector('figure.timeline')"
    steps = browser.run(f"return JSON.parse({figure}.querySelector('script').textContent).steps")
    drawn, recorded = (
        json.loads(browser.run(f"return {figure}.dataset.{name}")) for name in ("sums", "recording")
    )
    if steps:
        rows = _result("show", "step_account", "--run", run, "-w", warehouse)
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            if row["step"] in steps:
                sums[str(row["rank"])][row["category"]] += row["category_ns"]
        with_gpu = {rank: parts for rank, parts in drawn.items() if parts}
        assert with_gpu == {rank: parts for rank, parts in sums.items() if rank in drawn}
    for row in _result("show", "temporal_breakdown", "--run", run, "-w", warehouse):
        parts = {key: ns for key, ns in recorded[str(row["rank"])].items() if key != "idle_outside"}
        idle = sum(ns for key, ns in parts.items() if key.startswith("idle_"))
        waiting = ("exposed_wait", "exposed_transfer", "exposed_unassigned")
        exposed = sum(parts.get(key, 0) for key in waiting)
        assert (parts.get("compute", 0), exposed, parts.get("exposed_memory", 0), idle) == (
            row["compute_ns"],
            row["exposed_comm_ns"],
            row["exposed_memory_ns"],
            row["idle_ns"],
        )


def _result(*args: str | Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(call(*args, "--json").out)["result"]
    return rows


def check_charts(browser: Browser) -> None:
    """Every chart has marks, and no text that is wider than the chart."""
    bad = browser.run(
        """
        const bad = [];
        for (const svg of document.querySelectorAll('figure svg')) {
          const frame = svg.getBoundingClientRect(), name = svg.getAttribute('aria-label');
          if (!svg.querySelector('[role=graphics-symbol][aria-label]')) bad.push(name + ': no marks');
          for (const text of svg.querySelectorAll('text')) {
            const box = text.getBoundingClientRect();
            if (box.width && (box.left < frame.left - 3 || box.right > frame.right + 3))
              bad.push(name + ': ' + text.textContent + ' overflows');
          }
        }
        return bad;
        """
    )
    assert bad == []


def check_tables(browser: Browser, warehouse: Path, run: str) -> set[str]:
    """Compares each table of the page with `tw show`: the same rows and text. Returns the table names."""
    names = browser.run("return [...document.querySelectorAll('table')].map(each => each.dataset.name)")
    for name in set(names) - {"check", "step_kernels"}:
        heading, *rows = browser.cells(name)
        notes = browser.run(
            "return document.getElementById('table-' + arguments[0])?.caption?.textContent", name
        )
        known = _expected_rows(warehouse, run, name, heading, "ranks combined into sums" in (notes or ""))
        assert rows and all(row in known for row in rows), name
    return set(names)


def check_levels(browser: Browser, warehouse: Path, base: str, head: str) -> None:
    """Compares each table of a report on two runs with `tw diff --level`, one call for all levels."""
    names = browser.run("return [...document.querySelectorAll('table')].map(each => each.dataset.name)")
    assert names[:2] == ["breakdown", "categories"]
    levels = [word for name in names for word in ("--level", name)]
    every = json.loads(call("diff", base, head, "-w", warehouse, *levels, "--format", "json").out)
    for name in names:
        heading, *rows = browser.cells(name)
        known = [row for row in every if row["level"] == name]
        assert [row[0] for row in rows] == [one_line(row["name"]) for row in known][: len(rows)]
        for row, each in zip(rows, known, strict=False):
            cells = dict(zip(heading, row, strict=True))
            for column in ("base_ns", "head_ns", "delta_ns"):
                assert cells[column] == show(each[column], "ns"), name


def _expected_rows(
    warehouse: Path, run: str, name: str, heading: Sequence[str], is_combined: bool
) -> list[list[str]]:
    """The rows of `tw show` with the columns of a heading; combined if the table combines ranks."""
    rows = json.loads(call("show", name, "--run", run, "-w", warehouse, "--json").out)["result"]
    columns = {column.name: column for column in Catalog.load().get(name, kind="analysis").columns}
    if is_combined:
        rows = list(_combined_ranks(name, rows))
    units = {column.name: column.unit for column in columns.values()} | {"ranks": "count"}
    start = _start(warehouse, run)
    return [[_text(row[each], units[each], start) for each in heading] for row in rows]


def _text(value: Any, unit: str | None, start: int) -> str:
    if unit == "ts" and value is not None:
        return show(int(value) - start, "ns")
    return show(value, unit)


def _start(warehouse: Path, run: str) -> int:
    sql = f"SELECT min(start_ns) AS start_ns FROM ranks WHERE run_id = '{run}'"
    ((row),) = json.loads(call("query", sql, "-w", warehouse, "--format", "json").out)
    return int(row["start_ns"])


def _combined_ranks(name: str, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Rows of all ranks combined by their other keys as the contract says, without SQL."""
    contract = Catalog.load().get(name, kind="analysis")
    keys = [key for key in contract.grain if key not in _LOCATION]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    combined = []
    for key, members in groups.items():
        row = dict(zip(keys, key, strict=True)) | {"ranks": len({row["rank"] for row in members})}
        for column in contract.columns:
            row.setdefault(column.name, _fold(column.aggregate, column.name, members))
        combined.append(row)
    return combined


def _fold(fold: str | None, name: str, rows: Sequence[dict[str, Any]]) -> Any:
    over, _, under = (fold or "").partition("/")
    if under:
        divisor = sum(row[under] for row in rows)
        return sum(row[over] for row in rows) / divisor if divisor else None
    values = [row[name] for row in rows]
    if not fold or any(value is None for value in values):
        return None
    return {"sum": sum, "min": min, "max": max}[fold](values)
