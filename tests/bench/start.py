"""Start time of commands relative to the import that they need."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .bench import Bench, tw
from .model import Case, Row, Target, check, ratios, seconds
from .thousand import house


def commands(bench: Bench) -> Iterator[Row]:
    """`tw --help` against click, `tw runs` against duckdb; each an entire process."""
    runs = (*tw(), "runs", "-w", str(house(bench, 3 if bench.smoke else 10)), "-f", "csv")
    yield _against(bench, "tw --help", (*tw(), "--help"), "click", Target(3), "Usage: tw")
    yield _against(bench, "tw runs", runs, "duckdb", Target(2, below=True), "run_id")


def _against(
    bench: Bench, what: str, command: tuple[str, ...], library: str, target: Target, has: str
) -> Row:
    taken = bench.turns(
        ours=lambda: bench.command(*command),
        library=lambda: bench.command(sys.executable, "-c", f"import {library}"),
    )
    check(has in taken["ours"][0].answer, f"{what} does not print {has!r}")
    sides = {what: seconds(taken["ours"]), f"import {library}": seconds(taken["library"])}
    figures = ratios(taken["ours"], taken["library"])
    return Row("start", f"{what} over import {library}", target, figures, "×", sides)


CASES = (Case("start", "start of a command over the import that it needs, whole processes", commands),)
