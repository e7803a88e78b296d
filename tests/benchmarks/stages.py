"""The time of an ingest by step, to explain missed targets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from .bench import Bench
from .ingest import single
from .inputs import first
from .model import Case, Row, Run, check

_SHOWN = 8  # steps with a separate row


def profile(bench: Bench) -> Iterator[Row]:
    """The most expensive steps of the ingest of one file, and all others together."""
    for name, path, _ in single(bench):
        runs = [_once(bench, path) for _ in range(1 if bench.smoke else bench.repeat)]
        taken = defaultdict[str, list[float]](list)
        for run in runs:
            for step, cpu_s in run.answer.items():
                taken[step].append(cpu_s)
        slowest = sorted(taken, key=lambda step: -median(taken[step]))
        all_s = [run.cpu_s for run in runs]
        yield Row("where", f"{name}: all steps, one thread", None, tuple(all_s), "CPU s")
        for step in slowest[:_SHOWN]:
            yield Row("where", f"{name}: {step}", None, tuple(taken[step]), "CPU s")
        rest = [sum(run.answer[step] for step in slowest[_SHOWN:]) for run in runs]
        yield Row("where", f"{name}: {len(slowest) - _SHOWN} other steps", None, tuple(rest), "CPU s")


def _once(bench: Bench, path: Path) -> Run:
    with bench.passing() as folder:
        run = bench.ours("stages", path=path, small=first(bench), folder=folder)
        check((folder / "events.v1.parquet").exists(), "no events were written")
        return run


CASES = (Case("where", "CPU time of an ingest by step", profile),)
