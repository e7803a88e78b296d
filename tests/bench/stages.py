"""Where the time of an ingest goes, so that a missed target can be understood."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from .bench import Bench
from .ingest import single
from .inputs import first
from .model import Case, Row, Run, check

_SHOWN = 8  # steps that have a row of their own


def profile(bench: Bench) -> Iterator[Row]:
    """The dearest steps of one file's ingest, and all others together."""
    for name, path, _ in single(bench):
        runs = [_once(bench, path) for _ in range(1 if bench.smoke else bench.repeat)]
        taken = defaultdict[str, list[float]](list)
        for run in runs:
            for step, cpu_s in run.answer.items():
                taken[step].append(cpu_s)
        dearest = sorted(taken, key=lambda step: -median(taken[step]))
        all_s = [run.cpu_s for run in runs]
        yield Row("where", f"{name}: all steps, one thread", None, tuple(all_s), "CPU s")
        for step in dearest[:_SHOWN]:
            yield Row("where", f"{name}: {step}", None, tuple(taken[step]), "CPU s")
        rest = [sum(run.answer[step] for step in dearest[_SHOWN:]) for run in runs]
        yield Row("where", f"{name}: {len(dearest) - _SHOWN} other steps", None, tuple(rest), "CPU s")


def _once(bench: Bench, path: Path) -> Run:
    with bench.passing() as folder:
        run = bench.ours("stages", path=path, small=first(bench), folder=folder)
        check((folder / "events.v1.parquet").exists(), "no events are written")
        return run


CASES = (Case("where", "where the CPU time of an ingest goes, step by step", profile),)
