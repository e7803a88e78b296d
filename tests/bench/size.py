"""What is stored, against the .json.gz it came from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import inputs
from .bench import Bench
from .ingest import ingest
from .model import Case, Row, Target, check

_LEAST_BYTES = 1_000_000


def stored(bench: Bench) -> Iterator[Row]:
    """All tables over the gz, each file of a megabyte of gz and more; simulated ones zipped as usual."""
    made = inputs.simulated(bench, "one").files[0]
    zipped = bench.houses / "simulated.json.gz"
    yield _row(bench, made if bench.smoke else inputs.default_level(made, zipped))
    for path in _real(bench):
        yield _row(bench, path)


def _real(bench: Bench) -> list[Path]:
    if bench.traces is None or bench.smoke:
        return []
    found = sorted(bench.traces.rglob("*.json.gz"))
    return [path for path in found if path.stat().st_size >= _LEAST_BYTES and "rocprof" not in path.name]


def _row(bench: Bench, path: Path) -> Row:
    run = ingest(bench, [path], lambda stored: check(stored["events"] > 0, "no events"))
    tables, gz = run.answer["bytes"], path.stat().st_size
    total, events = sum(tables.values()), run.answer["events"]
    largest = sorted(tables, key=lambda table: -tables[table])[:3]
    sides = {
        "per event": f"{total / events:.1f} bytes, gz {gz / events:.1f}",
        "largest": ", ".join(f"{table} {tables[table] / total:.0%}" for table in largest),
    }
    name = path.name.partition(".")[0]
    return Row("size", f"{name}, {gz / 1e6:.1f} MB gz", Target(0.8), (total / gz,), "×", sides)


CASES = (Case("size", "stored bytes of all tables over the .json.gz", stored),)
