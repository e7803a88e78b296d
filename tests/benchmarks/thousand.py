"""A run among 1,000 compared with one among 10, each an entire process; and a plain filter in the shell."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from . import inputs
from .bench import Bench, tw
from .model import Case, Row, Run, Target, check, ratios, seconds

Command = Callable[[Path], tuple[str, ...]]


def house(bench: Bench, runs: int) -> Path:
    """A warehouse of `runs` runs with one small rank each: copies of one trace, ingested with one call."""
    folder = bench.houses / f"among-{runs}"
    if folder.exists():
        return folder
    traces = bench.houses / "many-runs"
    for number in range(runs):
        (traces / f"run{number:04d}").mkdir(parents=True)
        shutil.copy(inputs.small(bench), traces / f"run{number:04d}" / "rank0.json.gz")
    made = bench.ours("many", warehouse=folder, paths=[traces])
    shutil.rmtree(traces)
    check(made.answer == {"runs": runs, "states": ["intact"]}, f"stored: {made.answer}")
    return folder


def among(bench: Bench) -> Iterator[Row]:
    """The time to query one run through each interface, with many runs over few."""
    few, many = (1, 3) if bench.smoke else (10, 1_000)
    places = {"few": house(bench, few), "many": house(bench, many)}
    run = f"run{few // 2:04d}"
    for what, command, target in _interfaces(run):
        taken = bench.turns(
            few=lambda command=command: bench.command(*command(places["few"])),
            many=lambda command=command: bench.command(*command(places["many"])),
        )
        _check(what, [*taken["few"], *taken["many"]])
        sides = {f"among {few}": seconds(taken["few"]), f"among {many:,}": seconds(taken["many"])}
        if target.unit == "s":
            figures = tuple(one.seconds for one in taken["many"])
        else:
            figures = ratios(taken["many"], taken["few"])
        yield Row("one-run", what, target, figures, target.unit, sides)


def _interfaces(run: str) -> Iterator[tuple[str, Command, Target]]:
    sql = "SELECT sum(busy_ns) AS busy_ns FROM {}temporal_breakdown"
    count = "SELECT count(*) AS busy_ns FROM {}kernels"
    show = ("show", "temporal_breakdown", "--run", run, "-f", "csv")
    query = ("query", "--run", run, "-f", "csv")
    ratio, within = Target(1.5), Target(1.5, "s")
    yield "tw show --run", lambda at: (*tw(), *show, "-w", str(at)), ratio
    yield "tw query --run", lambda at: (*tw(), *query, "-w", str(at), count.format("")), ratio
    yield "latest, duckdb shell: an analysis", lambda at: shell(at, sql.format("latest.")), ratio
    yield "latest, duckdb shell: a table", lambda at: shell(at, count.format("latest.")), ratio
    one = f" WHERE run_id = '{run}'"
    yield "run_id filter, duckdb shell: a table", lambda at: shell(at, count.format("") + one), within
    of_run = f"SELECT count(*) AS busy_ns FROM kernels_of('{run}')"
    yield "kernels_of(run), duckdb shell: a table", lambda at: shell(at, of_run), ratio
    yield "run_id filter, duckdb shell: an analysis", lambda at: shell(at, sql.format("") + one), within


def shell(at: Path, sql: str) -> tuple[str, ...]:
    """The DuckDB shell on a warehouse."""
    found = Path(sys.executable).with_name("duckdb")
    program = str(found) if found.exists() else "duckdb"
    return program, "-readonly", "-csv", str(at / "warehouse.duckdb"), "-c", sql


def _check(what: str, runs: list[Run]) -> None:
    """All runs have the same rank, so all results must be equal."""
    found = {tuple(row["busy_ns"] for row in csv.DictReader(run.answer.splitlines())) for run in runs}
    check(len(found) == 1 and all(int(ns) > 0 for ns in next(iter(found))), f"{what}: answers {found}")


CASES = (Case("one-run", "one run among 1,000 over one among 10, whole processes", among),)
