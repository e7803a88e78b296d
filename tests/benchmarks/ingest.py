"""Ingest: against HTA's load of the same files, and against a bare lossless copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from . import inputs
from .bench import SIDES, Bench, tw
from .inputs import Simulated
from .model import Case, Row, Run, Target, Unmeasured, check, ratios, seconds

StoredCheck = Callable[[dict[str, Any]], None]
_SEEN: dict[tuple[Path, ...], Run] = {}
_EVERY = 37  # every n-th event is compared in full


def ingest(
    bench: Bench,
    paths: Sequence[Path],
    check_stored: StoredCheck,
    *,
    back: bool = False,
    shell: bool = True,
    jobs: int | None = None,
) -> Run:
    """Ingests files in a new process and warehouse; another process checks the stored data.

    With `back`, a sample of the events of the first file is compared with the exported trace. With `shell`,
    the file for the DuckDB shell is written too, as by `tw ingest`. A smoke test ingests the same files once.
    """
    if bench.smoke and tuple(paths) in _SEEN:
        return _SEEN[tuple(paths)]
    with bench.passing() as folder:
        run = bench.ours(
            "ingest", paths=paths, small=inputs.first(bench), folder=folder, shell=shell, jobs=jobs
        )
        house = folder / "house"
        answer = {**run.answer, **bench.ours("stored", warehouse=house).answer}
        check_stored(answer)
        if back:
            _check_back(bench, paths, house)
        _SEEN[tuple(paths)] = replace(run, answer=answer)
    return _SEEN[tuple(paths)]


def command(bench: Bench, paths: Sequence[Path]) -> Run:
    """`tw ingest` of the files as an entire process, into a new warehouse."""
    with bench.passing() as folder:
        return bench.command(*tw(), "ingest", "-w", str(folder / "house"), "--run", "run", *map(str, paths))


def _check_back(bench: Bench, paths: Sequence[Path], house: Path) -> None:
    rank = 0 if len(paths) > 1 else None
    found = bench.ours("round_trip", path=paths[0], warehouse=house, rank=rank, every=_EVERY).answer
    check(found["compared"] > 0 and found["same"] == found["compared"], f"events do not round-trip: {found}")


def as_simulated(truth: Simulated) -> StoredCheck:
    """A check against the simulator's truth: events, GPU time, and the time breakdown of each rank."""

    def check_stored(stored: dict[str, Any]) -> None:
        check(set(stored["states"]) == {"intact"}, f"not every file is intact: {stored['states']}")
        check(
            stored["events"] == truth.events == stored["rows"]["events"], "events differ from those written"
        )
        gpu_ns = sum(row["gpu_ns"] for row in truth.section("coverage"))
        check(stored["gpu"][1] == gpu_ns, f"GPU time is {stored['gpu'][1]} ns, not {gpu_ns} ns")
        check_split(stored["temporal_breakdown"], truth)

    return check_stored


def check_split(rows: Sequence[dict[str, Any]], truth: Simulated) -> None:
    """Raises WrongAnswer unless `temporal_breakdown` equals the simulator's truth."""
    wanted = truth.section("temporal_breakdown")
    found = [{key: row[key] for key in wanted[0]} for row in rows]
    check(found == wanted, "temporal_breakdown differs from the simulator's truth")


def as_real(events: int) -> StoredCheck:
    """A check of a real trace: the number of events that a plain reader finds."""

    def check_stored(stored: dict[str, Any]) -> None:
        check(
            stored["events"] == events == stored["rows"]["events"], f"{stored['events']} of {events} events"
        )

    return check_stored


def copied(bench: Bench, path: Path) -> Run:
    """The bare copy of a file."""
    with bench.passing() as folder:
        return bench.floor(path=path, small=inputs.first(bench), folder=folder)


def single(bench: Bench) -> list[tuple[str, Path, StoredCheck]]:
    """The files of about 55 MB: name, path, and check of the stored data."""
    made = inputs.simulated(bench, "one")
    files = [("simulated", made.files[0], as_simulated(made))]
    real = [(path, copied(bench, path).answer["events"]) for path in inputs.real(bench)]
    return files + [(path.name.partition(".")[0], path, as_real(events)) for path, events in real]


# What is measured, and its target with one file and with eight.
_PROCESS_WALL = "whole process, wall"
_TARGETS = {
    _PROCESS_WALL: Target(5.5, at_least=True, aim=10),
    "whole process, CPU": Target(4, at_least=True, aim=6),
    "in a running process, wall": Target(8, at_least=True, aim=11),
    "in a running process, CPU": None,
}
_EIGHT = dict.fromkeys(_TARGETS) | {_PROCESS_WALL: Target(6, at_least=True, aim=8)}


def one(bench: Bench) -> Iterator[Row]:
    """One file against HTA, and the median of all files; the target is that of the median."""
    rows = []
    for name, path, check_stored in single(bench):
        about = Case("ingest-one", name, one)
        for row in _against_hta(bench, about, dict.fromkeys(_TARGETS), [path], check_stored, None):
            rows.append(row)
            yield row
    for what, target in _TARGETS.items():
        medians = tuple(row.median for row in rows if row.what.endswith(what) and row.median is not None)
        if medians:
            yield Row("ingest-one", f"median of {len(medians)} files: {what}", target, medians, "×")


def eight(bench: Bench) -> Iterator[Row]:
    """Eight ranks against HTA's load of their folder."""
    made = inputs.simulated(bench, "eight")
    about = Case("ingest-eight", f"{len(made.files)} ranks, simulated", eight)
    yield from _against_hta(bench, about, _EIGHT, made.files, as_simulated(made), made.folder)


def _against_hta(
    bench: Bench,
    about: Case,
    targets: Mapping[str, Target | None],
    paths: Sequence[Path],
    check_stored: StoredCheck,
    folder: Path | None,
) -> Iterator[Row]:
    """HTA's time over ours: a process that loads over `tw ingest`, and both without start and imports."""
    back = chain([True], repeat(False))  # once is enough: it takes longer than the ingest

    def ours() -> Run:
        return ingest(bench, paths, check_stored, back=next(back))

    def theirs() -> Run:
        what = {"folder": folder} if folder else {"files": {"0": paths[0]}}
        run = bench.theirs("load", small=inputs.first(bench), **what)
        check(len(run.answer) == len(paths) and min(run.answer.values()) > 0, f"HTA loaded {run.answer}")
        return run

    def their_process() -> Run:
        return bench.command(bench.peer_python(), str(SIDES / "peer_load.py"), *map(str, paths))

    try:
        taken = bench.turns(
            ours=ours, hta=theirs, process=lambda: command(bench, paths), hta_process=their_process
        )
    except Unmeasured as why:  # ours ran, and was checked
        yield Row(about.name, about.about, note=f"not measured: {why}")
        return
    sides = {name: summary(runs) for name, runs in taken.items()}
    for what, target in targets.items():
        them, us = ("hta_process", "process") if what.startswith("whole") else ("hta", "ours")
        figures = ratios(taken[them], taken[us], "cpu_s" if what.endswith("CPU") else "seconds")
        yield Row(about.name, f"{about.about}: {what}", target, figures, "×", sides)
        sides = {}  # stated once


def summary(runs: Sequence[Run]) -> str:
    """Wall and CPU seconds, and peak memory, of a side."""
    peak = max(run.peak_bytes for run in runs)
    return f"{seconds(runs)}, CPU {seconds(runs, 'cpu_s')}, peak {peak / 1e6:.0f} MB"


def floor(bench: Bench) -> Iterator[Row]:
    """CPU time against the bare copy, without the file for the DuckDB shell."""
    target = Target(2.5, aim=1.5)
    for name, path, check_stored in single(bench):
        taken = bench.turns(
            ours=lambda path=path, check=check_stored: ingest(bench, [path], check, shell=False),
            floor=lambda path=path: copied(bench, path),
        )
        events = {run.answer["events"] for runs in taken.values() for run in runs}
        check(len(events) == 1, f"the copy and the tables have different numbers of events: {events}")
        sides = {name: summary(runs) for name, runs in taken.items()}
        yield Row("cpu-floor", name, target, ratios(taken["ours"], taken["floor"], "cpu_s"), "×", sides)


def tiny(bench: Bench) -> Iterator[Row]:
    """A file of about 120 events, ingested repeatedly in one process."""
    path = inputs.tiny(bench)
    with bench.passing() as folder:
        runs = bench.ours("repeatedly", path=path, folder=folder, times=3 if bench.smoke else 15).answer
    check(len(set(runs["events"])) == 1 and runs["events"][0] > 100, f"{runs['events']} events")
    figures = tuple(seconds * 1_000 for seconds in runs["cpu_s"])
    what = f"{runs['events'][0]} events, in a running process, without the shell file"
    yield Row("tiny", what, Target(60, "ms", aim=30), figures, "CPU ms")


def small(bench: Bench) -> Iterator[Row]:
    """The smallest trace as an entire process, and many of them in one process."""
    path = inputs.small(bench)
    runs = [command(bench, [path]) for _ in range(bench.repeat)]
    what = f"{inputs.simulated(bench, 'small').events} events, whole process"
    sides = {"ours": summary(runs)}
    yield Row("small", what, Target(0.55, "s", aim=0.4), tuple(run.cpu_s for run in runs), "CPU s", sides)
    made = inputs.simulated(bench, "small-ranks")
    taken = [ingest(bench, made.files, as_simulated(made), shell=False, jobs=1) for _ in range(bench.repeat)]
    ranks = len(made.files)
    figures = tuple(run.cpu_s * 1_000 / ranks for run in taken)
    what = f"{ranks} ranks × {made.events // ranks} events, in one running process: CPU per rank"
    yield Row("small", what, Target(25, "ms", aim=13), figures, "ms", {"ours": summary(taken)})


CASES = (
    Case("ingest-one", "one 55 MB JSON, all tables: HTA's load over our ingest", one),
    Case("ingest-eight", "8 ranks × 55 MB: HTA's TraceAnalysis(dir) over our ingest", eight),
    Case("cpu-floor", "CPU time of one 55 MB JSON: our ingest over a bare lossless copy", floor),
    Case("tiny", "CPU time of a file of 120 events", tiny),
    Case("small", "CPU time of small files: a whole process, and per rank", small),
)
