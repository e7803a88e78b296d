"""Start time of commands relative to the import that they need."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from . import inputs
from .bench import Bench, tw
from .model import Case, Row, Target, check, ratios, seconds
from .thousand import house


def commands(bench: Bench) -> Iterator[Row]:
    """`tw --help` against click, `tw runs` against duckdb; each an entire process."""
    runs = (*tw(), "runs", "-w", str(house(bench, 3 if bench.smoke else 10)), "-f", "csv")
    yield _against(bench, "tw --help", (*tw(), "--help"), "click", Target(3), "Usage: tw")
    yield _against(bench, "tw runs", runs, "duckdb", Target(2, below=True), "run_id")


_ARGUMENTS = {
    "runs": ("runs",),
    "show": ("show", "temporal_breakdown", "--run", "run0"),
    "query": ("query", "SELECT count(*) AS kernels FROM kernels"),
    "check": ("check", "run0"),
    "diff": ("diff", "run0", "run1"),
}
_BOUNDS_S = {"runs": 0.15, "show": 0.25, "query": 0.25, "check": 1.0, "diff": 1.0}


def eight_ranks(bench: Bench) -> Iterator[Row]:
    """CPU of commands on two runs of eight small ranks, each an entire process."""
    ranks = inputs.simulated(bench, "small-run").files
    folder = bench.houses / "commands"
    for run in ("run0", "run1"):
        bench.command(*tw(), "ingest", "-w", str(folder), "--run", run, *map(str, ranks))
    for name, arguments in _ARGUMENTS.items():
        runs = [bench.command(*tw(), *arguments, "-w", str(folder)) for _ in range(bench.repeat)]
        check(bool(runs[0].answer.strip()), f"tw {name} prints nothing")
        figures = tuple(run.cpu_s for run in runs)
        yield Row(
            "commands", f"tw {name}, {len(ranks)} ranks", Target(_BOUNDS_S[name], "s"), figures, "CPU s"
        )


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


CASES = (
    Case("start", "start of a command over the import that it needs, whole processes", commands),
    Case("commands", "CPU of commands on eight small ranks, whole processes", eight_ranks),
)
