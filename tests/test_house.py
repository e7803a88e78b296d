"""The package does not grow unnoticed: bounds of its size. A bound is raised only with a reason beside it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import house
from cli_runner import environment
from tracewarehouse.contracts.catalog import Catalog

# `python tests/house.py` prints these and the figures that have no bound.
BOUNDS = {
    "code lines of Python": 51_500,
    "lines of C and JavaScript": 1_900,
    "modules": 238,
    "import cycles": 0,
}

# CPU time of a command over that of importing the libraries that store and query; both entire processes.
LIBRARIES = "import duckdb, pyarrow.parquet"
CPU_BOUNDS = {"runs": 0.7, "show": 1.3, "query": 1.3, "ingest": 2.8}
ROUNDS = 3


def test_the_package_is_within_its_bounds() -> None:
    figures = house.figures()
    too_large = {name: (figures[name], bound) for name, bound in BOUNDS.items() if figures[name] > bound}
    assert not too_large


def test_a_cycle_of_type_imports_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    monkeypatch.setattr(house, "imports", lambda: graph)
    assert house.cycles() == [["b", "c"]]


def test_the_small_trace_has_its_events() -> None:
    events = house.small_trace()["traceEvents"]
    assert isinstance(events, list) and len(events) == 92


def test_commands_are_within_their_bounds_of_cpu_time(tmp_path: Path) -> None:
    assert Catalog.load().parsed_because is None, "run `tw dev sync`: parsing takes longer than a command"
    trace = tmp_path / "rank0.json"
    trace.write_text(json.dumps(house.small_trace()))
    script = "from tracewarehouse.cli import main; main()"
    commands = {
        "libraries": (LIBRARIES,),
        "ingest": (script, "ingest", str(trace)),
        "runs": (script, "runs"),
        "show": (script, "show", "temporal_breakdown"),
        "query": (script, "query", "SELECT count(*) FROM kernels"),
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for at in range(ROUNDS + 1):
        for name, words in commands.items():
            taken[name].append(_cpu_s(words, tmp_path / str(at)))
    # The first round writes bytecode. Load only adds to a time, so the least is the best estimate.
    least = {name: min(times[1:]) for name, times in taken.items()}
    ratios = {name: least[name] / least["libraries"] for name in CPU_BOUNDS}
    assert not {name: ratio for name, ratio in ratios.items() if ratio > CPU_BOUNDS[name]}, ratios


def _cpu_s(words: Sequence[str], folder: Path) -> float:
    """CPU time of a Python process and its children, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    env = {key: value for key, value in environment().items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", *words], cwd=folder, env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
