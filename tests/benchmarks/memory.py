"""Large files: peak memory, and CPU time per event as files grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import inputs
from .bench import Bench
from .ingest import StoredCheck, ingest, summary
from .model import Case, Row, Run, Target, check

_GB = 1_000_000_000


def as_repeated(bench: Bench, times: int) -> StoredCheck:
    """A check against one repetition: multiples of its events, GPU activities, busy and computation time."""
    base, truth = inputs.to_repeat(bench), inputs.simulated(bench, "base")
    (once,) = truth.section("temporal_breakdown")

    def check_stored(stored: dict[str, Any]) -> None:
        check(stored["states"] == ["intact"], f"the file is {stored['states']}")
        found = stored["events"], stored["rows"]["events"]
        check(found == (base.events(times),) * 2, f"{found} events, not {base.events(times)}")
        gpu_ns = sum(row["gpu_ns"] for row in truth.section("coverage"))
        check(stored["gpu"][1] == times * gpu_ns, f"GPU time is {stored['gpu'][1]} ns")
        (row,) = stored["temporal_breakdown"]
        for part in ("busy_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns"):
            check(row[part] == times * once[part], f"{part} is {row[part]}, not {times} × {once[part]}")

    return check_stored


def _repetitions(bench: Bench, text_bytes: int) -> int:
    one = sum(map(len, inputs.to_repeat(bench).texts(1)))
    return max(2, round(text_bytes / one))


def _ingested(bench: Bench, times: int) -> Run:
    return ingest(bench, [inputs.longer(bench, times)], as_repeated(bench, times), shell=False)


def _forget(bench: Bench, times: int) -> None:
    """Removes an input that is too large to keep."""
    path: Path = inputs.longer(bench, times)
    path.unlink()


def large(bench: Bench) -> Iterator[Row]:
    """CPU time per event and peak memory of all processes together: 1 GB, and with --huge 5 GB."""
    first = _large(bench, 1)
    sides = {"ours": summary([first])}
    cpu_us = first.cpu_s / first.answer["events"] * 1e6
    yield Row("large", f"{_what(first)}: CPU per event", Target(4, "µs", aim=3), (cpu_us,), "µs", sides)
    memory = (first.peak_bytes / 1e6,)
    yield Row("large", f"{_what(first)}: memory", Target(700, "MB"), memory, "MB", sides)
    if bench.huge:
        run = _large(bench, 5)
        sides = {"ours": summary([run])}
        over = run.cpu_s / run.answer["events"] * 1e6 / cpu_us
        yield Row("large", f"{_what(run)}: CPU per event over that of 1 GB", Target(1.3), (over,), "×", sides)
        memory = (run.peak_bytes / 1e6,)
        yield Row("large", f"{_what(run)}: memory", Target(1_200, "MB"), memory, "MB", sides)


def _large(bench: Bench, gigabytes: int) -> Run:
    times = _repetitions(bench, gigabytes * _GB // (5_000 if bench.smoke else 1))
    run = _ingested(bench, times)
    _forget(bench, times)
    return run


def _what(run: Run) -> str:
    return f"{run.answer['text_bytes'] / 1e6:,.0f} MB JSON, {run.answer['events']:,} events"


def ids(bench: Bench) -> Iterator[Row]:
    """Files with ids or operators that would take quadratic time if all were compared with all."""
    for name, events, path in inputs.shared_ids(bench):

        def check_stored(stored: dict[str, Any], events: int = events) -> None:
            check(stored["events"] == events, f"{stored['events']} of {events} events")

        run = ingest(bench, [path], check_stored, shell=False)
        yield Row("ids", name, Target(300, "MB"), (run.peak_bytes / 1e6,), "MB", {"ours": summary([run])})


CASES = (
    Case("large", "CPU per event and peak memory of an ingest of one large file", large),
    Case("ids", "peak memory if thousands of events share an id or a stack", ids),
)
