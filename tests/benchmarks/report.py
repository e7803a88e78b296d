"""The table: for a terminal, and as RESULTS.md with machine, date and versions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from .bench import Bench
from .model import Row, Unmeasured

_LIBRARIES = ("tracewarehouse", "duckdb", "duckdb-cli", "pyarrow", "polars", "msgspec", "isal", "numpy")
_HEAD = ("case", "what", "target", "measured", "spread", "met")

_ABOUT = """# Measured beside its peers

Written by `python -m tests.benchmarks --write`; not by hand. A ratio is the median of ratios turn by turn:
both sides run one after the other, each in a fresh process. The spread is from least to most.
`python -m tests.benchmarks --help` describes each case; [MISSED.md](MISSED.md) says why targets are missed,
and what it would take.
"""


def about(bench: Bench) -> dict[str, str]:
    """Machine, date and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    ours = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{cores} cores ({_cpu()}), {memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": ours,
        "peer": _peer(bench),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _peer(bench: Bench) -> str:
    try:
        versions = bench.theirs("versions").answer
    except Unmeasured as why:
        return f"none: {why}"
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row as text."""
    target = "" if row.target is None else str(row.target)
    met = "" if row.met is None else "yes" if row.met else "no"
    if row.median is None:
        return (row.case, row.what, target, row.note, "", met)
    spread = f"{min(row.figures):.3g}–{max(row.figures):.3g}" if len(row.figures) > 1 else ""
    return (row.case, row.what, target, f"{_figure(row.median)} {row.unit}".strip(), spread, met)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The table for a terminal."""
    table = [_HEAD, *map(cells, rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for line in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def page(rows: Sequence[Row], about: dict[str, str]) -> str:
    """RESULTS.md."""
    text = [_ABOUT]
    text += [f"- {name}: {value}" for name, value in about.items()]
    text += ["", _line(_HEAD), _line(["---", "---", "---", "---:", "---:", "---"])]
    text += [_line(cells(row)) for row in rows]
    text += ["", "## What the figures come from", "", "Medians with their spread.", ""]
    text += [_line(["case", "what", "turns", "sides"]), _line(["---", "---", "---:", "---"])]
    for row in rows:
        sides = "; ".join(f"{name}: {value}" for name, value in row.sides.items())
        note = "; ".join(filter(None, (sides, row.note)))
        if note:
            text.append(_line([row.case, row.what, str(len(row.figures) or ""), note]))
    return "\n".join(text) + "\n"


class OtherTable(Exception):
    """RESULTS.md has rows that cannot be combined with those of this call."""


def before(path: Path, about: dict[str, str]) -> tuple[list[Row], dict[str, str]]:
    """The rows of earlier calls, and the facts of all calls; a call without a peer keeps the earlier peer.

    Raises OtherTable if they are of another day, machine or version.
    """
    if not path.exists():
        return [], about
    data = json.loads(path.read_text(encoding="utf-8"))
    if about["peer"].startswith("none"):
        about = {**about, "peer": data["about"]["peer"]}
    apart = [name for name, value in data["about"].items() if about.get(name) != value]
    if apart and not (apart == ["peer"] and data["about"]["peer"].startswith("none")):
        raise OtherTable(f"it has another {' and '.join(apart)}")
    return list(map(Row.of, data["rows"])), about


def with_earlier(rows: Sequence[Row], earlier: Sequence[Row]) -> list[Row]:
    """These rows, and earlier ones of other cases."""
    measured = {row.case for row in rows}
    return [row for row in earlier if row.case not in measured] + list(rows)


def _line(cells_of_it: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells_of_it) + " |"
