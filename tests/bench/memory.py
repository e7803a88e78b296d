"""Large files: peak memory, and what an event costs as files grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import inputs
from .bench import Bench
from .ingest import Judge, ingest, told
from .model import Case, Row, Run, Target, check, seconds

_GB = 1_000_000_000


def as_repeated(bench: Bench, times: int) -> Judge:
    """Judges by what one repetition holds: so many times the events, GPU rows, busy and computing time."""
    base, truth = inputs.to_repeat(bench), inputs.simulated(bench, "base")
    (once,) = truth.section("temporal_breakdown")

    def judge(stored: dict[str, Any]) -> None:
        check(stored["states"] == ["whole"], f"the file is {stored['states']}")
        found = stored["events"], stored["rows"]["events"]
        check(found == (base.events(times),) * 2, f"{found} events, and not {base.events(times)}")
        gpu_ns = sum(row["gpu_ns"] for row in truth.section("coverage"))
        check(stored["gpu"][1] == times * gpu_ns, f"GPU time is {stored['gpu'][1]} ns")
        (row,) = stored["temporal_breakdown"]
        for part in ("busy_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns"):
            check(row[part] == times * once[part], f"{part} is {row[part]}, not {times} × {once[part]}")

    return judge


def _repetitions(bench: Bench, text_bytes: int) -> int:
    one = sum(map(len, inputs.to_repeat(bench).texts(1)))
    return max(2, round(text_bytes / one))


def _taken(bench: Bench, times: int) -> Run:
    return ingest(bench, [inputs.longer(bench, times)], as_repeated(bench, times))


def _forget(bench: Bench, times: int) -> None:
    """Takes away an input that is too large to keep."""
    path: Path = inputs.longer(bench, times)
    path.unlink()


def peak(bench: Bench) -> Iterator[Row]:
    """Most memory of the whole tree of processes, a 1 GB file, and with --huge 5 GB."""
    first = _large(bench, 1)
    first_mb = first.peak_bytes / 1e6
    yield Row("peak-memory", _what(first), Target(700, "MB"), (first_mb,), "MB", {"ours": told([first])})
    if bench.huge:
        run = _large(bench, 5)
        figures, sides = (run.peak_bytes / first.peak_bytes,), {"ours": told([run])}
        yield Row("peak-memory", f"{_what(run)}: over that of 1 GB", Target(1.2), figures, "×", sides)


def _large(bench: Bench, gigabytes: int) -> Run:
    times = _repetitions(bench, gigabytes * _GB // (5_000 if bench.smoke else 1))
    run = _taken(bench, times)
    _forget(bench, times)
    return run


def _what(run: Run) -> str:
    return f"{run.answer['text_bytes'] / 1e6:,.0f} MB JSON, {run.answer['events']:,} events"


def flat(bench: Bench) -> Iterator[Row]:
    """Seconds per event as a file grows tenfold, and with --huge a hundredfold."""
    each = inputs.to_repeat(bench).again
    wanted = [100_000, 1_000_000] + ([10_000_000] if bench.huge else [])
    times = [max(1, round(events / each)) for events in wanted]
    times = [2, 3] if bench.smoke else times
    taken = bench.turns(**{str(n): lambda n=n: _taken(bench, n) for n in times})
    base = taken[str(times[0])]
    sides = {
        f"{runs[0].answer['events']:,} events": f"{seconds(runs)}, {_per_event_us(runs[0]):.2f} µs each"
        for runs in taken.values()
    }
    for n in times[1:]:
        pairs = zip(taken[str(n)], base, strict=True)
        figures = tuple(_per_event_us(long) / _per_event_us(short) for long, short in pairs)
        events = taken[str(n)][0].answer["events"]
        what = f"{events:,} events in a file over {base[0].answer['events']:,}"
        yield Row("flat", what, Target(1.3), figures, "×", sides)
        _forget(bench, n)


def _per_event_us(run: Run) -> float:
    return run.seconds / float(run.answer["events"]) * 1e6


CASES = (
    Case("peak-memory", "highest memory of an ingest of one large file", peak),
    Case("flat", "cost per event of a long file over that of a short one", flat),
)
