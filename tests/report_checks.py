"""Checks of a report in a real browser: no errors or requests, layout, and numbers equal to `tw show`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from browser import Browser
from cli_runner import tw as call
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.render.text import one_line, show

SECTIONS = ["overview", "findings", "kernels", "communication", "memory", "host", "data", "limits", "run"]
MAX_BYTES = 3_000_000
_LOCATION = ("run_id", "rank", "device", "stream")


def write(warehouse: Path, *runs: str, to: Path) -> Path:
    """Writes the report of one or two runs with `tw report`."""
    done = call("report", *runs, "-w", warehouse, "-o", to)
    assert (done.code, done.out) == (0, f"wrote {to}\n"), done.err
    return to


def check_page(browser: Browser, page: Path, sections: Sequence[str] = SECTIONS) -> None:
    """Opens the page light and dark, wide and narrow: no error, no request, all sections, no overflow."""
    assert page.stat().st_size <= MAX_BYTES
    for width, dark in ((1280, False), (390, True)):
        browser.set_view(width, dark=dark)
        browser.open(page)
        assert browser.errors() == []
        assert browser.requests() == []
        assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return [...document.querySelectorAll('main > section')].map(each => each.id)") == [
        *sections
    ]
    assert browser.run(
        "return [...document.querySelectorAll('section .lead')].every(each => each.textContent)"
    )
    check_charts(browser)


def check_charts(browser: Browser) -> None:
    """Every chart has marks, and no text that is wider than the chart."""
    bad = browser.run(
        """
        const bad = [];
        for (const svg of document.querySelectorAll('figure svg')) {
          const frame = svg.getBoundingClientRect(), name = svg.getAttribute('aria-label');
          if (!svg.querySelector('[aria-roledescription]')) bad.push(name + ': no marks');
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
    for name in set(names) - {"check"}:
        heading, *rows = browser.cells(name)
        known = _expected_rows(warehouse, run, name, heading)
        assert rows and all(row in known for row in rows), name
    return set(names)


def check_levels(browser: Browser, warehouse: Path, base: str, head: str) -> None:
    """Compares each table of a report on two runs with `tw diff --level`."""
    names = browser.run("return [...document.querySelectorAll('table')].map(each => each.dataset.name)")
    assert names[:2] == ["breakdown", "categories"]
    for name in names:
        heading, *rows = browser.cells(name)
        output = call("diff", base, head, "-w", warehouse, "--level", name, "--format", "json").out
        known = json.loads(output)
        assert [row[0] for row in rows] == [one_line(row["name"]) for row in known][: len(rows)]
        for row, each in zip(rows, known, strict=False):
            cells = dict(zip(heading, row, strict=True))
            for column in ("base_ns", "head_ns", "delta_ns"):
                assert cells[column] == show(each[column], "ns"), name


def _expected_rows(warehouse: Path, run: str, name: str, heading: Sequence[str]) -> list[list[str]]:
    """The rows of `tw show` with the columns of a heading; combined if the heading counts ranks."""
    rows = json.loads(call("show", name, "--run", run, "-w", warehouse, "--json").out)["result"]
    columns = {column.name: column for column in Catalog.load().get(name, kind="analysis").columns}
    if "ranks" in heading:
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
            row.setdefault(column.name, _fold(column.fold, column.name, members))
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
