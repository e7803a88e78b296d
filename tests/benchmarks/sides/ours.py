"""Our sides, each in a new process: `python ours.py REQUEST` prints seconds, CPU seconds and the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
from clock import measurement, serve, timed
from stages import stages

import tracewarehouse as tw
from tracewarehouse import slim_imports

slim_imports.install()  # like `tw`: where pandas is installed, pyarrow would import it, which takes 30 MB


def ingest(
    paths: list[str], small: str | None, folder: str, shell: bool = True, jobs: int | None = None
) -> dict[str, Any]:
    """Ingests a small trace first, so that imports do not count; then all paths as the run `run`."""
    if small:
        first = tw.open(Path(folder, "small"))
        first.ingest(small)
        first.refresh()
    house = tw.open(Path(folder, "house"))

    taken = timed(lambda: _ingested(house, paths, "run", shell, jobs))
    report = taken[2]
    events = sum(file.content.events for file in report.stored if file.content)
    states = [file.state for file in report.files]
    return measurement(taken, {"states": states, "events": events, "text_bytes": report.bytes})


def _ingested(
    house: tw.Warehouse, paths: list[str], run: str | None, shell: bool, jobs: int | None = None
) -> Any:
    """Like `tw ingest`, with the file for the DuckDB shell if `shell`."""
    return house.ingest(*paths, run=run, jobs=jobs, shell_file=shell)


def repeatedly(path: str, folder: str, times: int) -> dict[str, Any]:
    """Ingests one file as one run after the other; the first one, with its imports, does not count."""
    house = tw.open(Path(folder, "house"))
    taken = [
        timed(lambda number=number: house.ingest(path, run=f"run-{number}")) for number in range(times + 1)
    ]
    events = [file.content.events for each in taken for file in each[2].stored if file.content]
    return measurement(taken[-1], {"cpu_s": [each[1] for each in taken[1:]], "events": events})


def stored(warehouse: str) -> dict[str, Any]:
    """The stored data of an ingest: rows and bytes of each table, GPU time, time breakdown."""
    house = tw.open(warehouse)
    tables = house.info("run").tables
    gpu = house.query("SELECT count(*) AS n, sum(dur_ns)::BIGINT AS ns FROM kernels").rows()[0]
    answer = {
        "rows": {each.table: each.rows for each in tables},
        "bytes": {each.table: each.bytes for each in tables},
        "gpu": [gpu["n"], gpu["ns"]],
        "temporal_breakdown": list(house.select("run").temporal_breakdown().rows()),
    }
    return measurement((0, 0, None), answer)


class Trace(msgspec.Struct):
    """The events of a trace, each as its text in the file."""

    traceEvents: list[msgspec.Raw]


def round_trip(path: str, warehouse: str, rank: int | None, every: int) -> dict[str, Any]:
    """The number of every n-th event that round-trips exactly, with numbers compared as text."""
    from isal import igzip

    raw = Path(path).read_bytes()
    text = igzip.decompress(raw) if path.endswith(".gz") else raw
    back = "".join(tw.open(warehouse).export_trace("run", rank)).encode()
    theirs, ours = (msgspec.json.decode(each, type=Trace).traceEvents for each in (text, back))
    pairs = list(zip(theirs, ours, strict=True))[::every]
    same = sum(exactly(a) == exactly(b) for a, b in pairs)
    return measurement((0, 0, None), {"compared": len(pairs), "same": same, "events": len(theirs)})


def exactly(text: msgspec.Raw) -> Any:
    """An event with numbers as text."""
    return json.loads(bytes(text), parse_float=str, parse_int=str)


def analyses(warehouse: str, calls: Mapping[str, list[Any]], ranks: list[int] | None) -> dict[str, Any]:
    """Runs analyses (name → [analysis, parameters] pairs) over a stored run, and times each name.

    The list of runs is read first, so that imports do not count.
    """
    house = tw.open(warehouse)
    run = house.select("run", ranks=ranks)
    house.runs().arrow()
    found: dict[str, Any] = {}
    taken = timed(lambda: each_of(found, run, calls))
    first = list(run.temporal_breakdown().rows())
    return measurement(taken, {"each": found, "temporal_breakdown": first})


def each_of(found: dict[str, Any], run: tw.Warehouse, calls: Mapping[str, list[Any]]) -> None:
    """Adds the seconds and rows of each to `found`."""
    for name, requested in calls.items():
        started, rows = perf_counter(), 0
        for analysis, params in requested:
            rows += run.analyze(analysis, **params).arrow().num_rows
        found[name] = {"seconds": perf_counter() - started, "rows": rows}


def simulate(folder: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Writes a simulated job's traces."""
    taken = timed(lambda: tw.simulate(folder, **settings))
    return measurement(taken, taken[2].events)


def many(warehouse: str, paths: list[str]) -> dict[str, Any]:
    """Ingests folders, each as a run with its name."""
    house = tw.open(warehouse)
    taken = timed(lambda: _ingested(house, paths, None, True))
    return measurement(
        taken, {"runs": len(house.selected()), "states": sorted({f.state for f in taken[2].files})}
    )


SIDES: dict[str, Callable[..., dict[str, Any]]] = {
    "ingest": ingest,
    "repeatedly": repeatedly,
    "stored": stored,
    "round_trip": round_trip,
    "analyses": analyses,
    "simulate": simulate,
    "stages": stages,
    "many": many,
}

if __name__ == "__main__":
    sys.exit(serve(SIDES))
