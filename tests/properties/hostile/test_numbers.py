"""Each number and text of headers, stored facts and labels at its worst stops no command for all runs.

The bounds are on memory and CPU time: the machine may be busy.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli_runner import TW, environment
from house import small_trace
from small_warehouse import facts, stage
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.exact_text import missing_ranks
from tracewarehouse.storage.model import Changes
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

_MOST_MB = 300
_MOST_CPU_S = 2.0
_VALUES: dict[str, Any] = {
    "zero": 0,
    "minus-one": -1,
    "2**31": 2**31,
    "2**63": 2**63,
    "10**9": 10**9,
    "10**18": 10**18,
    "10**40": 10**40,
    "nan": float("nan"),
    "text": "1000000000",
    "digits": "9" * 5_000,
    "10-mb": "x" * 10_000_000,
}
_ANSWERS = (
    ("runs",),
    ("query", "SELECT count(*) FROM kernels WHERE run_id = 'a'"),
    ("query", "SELECT count(world_size), count(device_count), min(start_ns), max(rank) FROM ranks"),
    ("query", "SELECT count(*) FROM data_quality"),
    ("verify",),
)
_DEVICE = {"id": 0, "name": "H100", "totalGlobalMem": 80, "numSms": 132, "maxThreadsPerBlock": 1024}
_GROUP = {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}


# A process starts with the peak of the one that it is forked from, so a small one starts it.
_STARTER = """
import os, subprocess, sys
running = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)
_, status, used = os.wait4(running.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def measured(*args: str | Path) -> tuple[int, str, float, float]:
    """Exit code, output, MB and CPU seconds of `tw` and its children."""
    command = [sys.executable, "-c", _STARTER, *TW, *map(str, args)]
    done = subprocess.run(command, capture_output=True, env=environment(), text=True, check=True)
    code, kib, cpu_s = done.stderr.split()
    return int(code), done.stdout, int(kib) * 1024 / 1e6, float(cpu_s)


def _trace() -> dict[str, Any]:
    trace: Any = small_trace()
    trace["distributedInfo"] = {"rank": 0, "world_size": 2, "backend": "nccl", "pg_config": [_GROUP]}
    trace |= {
        "deviceProperties": [_DEVICE],
        "baseTimeNanoseconds": 0,
        "host_name": "h",
        "pytorch_version": "2",
    }
    return copy.deepcopy(trace)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each number and text in JSON."""
    if isinstance(value, dict):
        return [place for key, each in value.items() for place in _places(each, (*path, key))]
    if isinstance(value, list):
        return [place for at, each in enumerate(value[:4]) for place in _places(each, (*path, at))]
    return [path]


def _bad_headers(folder: Path, value: Any) -> None:
    """A trace for each number and text of a header and of three events, which is this value there."""
    trace = _trace()
    events = [
        next(at for at, event in enumerate(trace["traceEvents"]) if event.get("cat") == category)
        for category in ("cpu_op", "cuda_runtime", "kernel")
    ]
    header = {key: member for key, member in trace.items() if key != "traceEvents"}
    of_events = [("traceEvents", at, *place) for at in events for place in _places(trace["traceEvents"][at])]
    for place in [*_places(header), *of_events]:
        bad = _trace()
        inner: Any = bad
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        path = folder / "-".join(map(str, place)).replace(" ", "-") / "rank0.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(bad))


def _bad_facts(root: Path, value: Any) -> None:
    """A run for each fact of a rank that is this value, and runs that expect or are labeled so."""
    store, catalog = Store.open(root), Catalog.load()
    names = {column.name for column in catalog.get("ranks", kind="table").columns} | facts("a", 0).keys()
    few = ["host", "process_groups", "limits"]
    for name in (
        few if value == _VALUES["10-mb"] else sorted({*names, "limits"} - {"run_id", "rank", "status"})
    ):
        with store.staging() as folder:
            sources = store.commit([stage(folder, catalog, f"bad-{name}", 0, {}, **{name: value})])
        store.publish(f"bad-{name}", Changes(sources=sources))
    with store.staging() as folder:
        sources = store.commit([stage(folder, catalog, "bad-labels", 0, {})])
    expected = value if isinstance(value, int) and value > 2 else None
    store.publish("bad-labels", Changes(sources=sources, labels={"k": str(value)}, expected_ranks=expected))
    if value == _VALUES["10-mb"]:
        return
    with store.staging() as folder:
        sources = store.commit([stage(folder, catalog, "bad-version", 0, {})])
    store.publish("bad-version", Changes(sources=sources, labels={"k": value}))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a run."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "rank0.json").write_text(json.dumps(_trace()))
    code, output, _, _ = measured("-w", folder / "wh", "ingest", folder / "rank0.json", "--run", "a")
    assert code == 0, output
    return folder / "wh"


def _check(root: Path) -> None:
    """All commands answer within the bounds, and the healthy run is whole."""
    for command in _ANSWERS:
        code, output, mb, cpu_s = measured("-w", root, *command)
        assert "internal error" not in output, (command, output[-500:])
        assert code == 0 or (command == ("verify",) and "bad-version" in output), (command, output[-500:])
        assert mb < _MOST_MB and cpu_s < _MOST_CPU_S, (command, mb, cpu_s)


@pytest.mark.deep
@pytest.mark.parametrize("name", _VALUES)
def test_a_value_in_headers_stops_nothing(name: str, healthy: Path, tmp_path: Path) -> None:
    root, traces = tmp_path / "wh", tmp_path / "traces"
    shutil.copytree(healthy, root)
    _bad_headers(traces, _VALUES[name])
    code, output, _, _ = measured("-w", root, "ingest", traces, "--jobs", "2", "--min-age", "0s")
    assert code in (0, 4) and "internal error" not in output, output[-2000:]
    _check(root)


@pytest.mark.deep
@pytest.mark.parametrize("name", _VALUES)
def test_a_value_in_stored_facts_and_labels_stops_nothing(name: str, healthy: Path, tmp_path: Path) -> None:
    shutil.copytree(healthy, tmp_path / "wh")
    _bad_facts(tmp_path / "wh", _VALUES[name])
    _check(tmp_path / "wh")


@pytest.mark.deep
def test_a_world_size_of_a_billion_is_a_reason(healthy: Path, tmp_path: Path) -> None:
    root, trace = tmp_path / "wh", _trace()
    shutil.copytree(healthy, root)
    trace["distributedInfo"]["world_size"] = 10**9
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    code, output, mb, _ = measured(
        "-w", root, "ingest", tmp_path / "rank0.json", "--run", "odd", "--jobs", "1"
    )
    assert (code, mb < _MOST_MB) == (0, True), (output, mb)
    warehouse = Warehouse(root)
    runs = {row["run_id"]: row["ranks_expected"] for row in warehouse.runs().rows()}
    assert runs == {"a": 2, "odd": None}
    sql = "SELECT rule, example FROM data_quality WHERE run_id = 'odd' AND rank = 0 AND severity = 'warning'"
    found = [tuple(row.values()) for row in warehouse.query(sql).rows()]
    assert ("implausible_world_size", "world size 1000000000 is ignored") in found
    assert "1000000000 ranks, which is ignored" in str(warehouse.query("SELECT 1 AS one").notices)


def test_missing_ranks_are_counted_from_gaps() -> None:
    assert missing_ranks([], None) == missing_ranks([0, 1], 2) == (0, "")
    assert missing_ranks([3, 0, 5], 4) == (2, "1-2")
    assert missing_ranks([1], 10**18) == (10**18 - 1, "0, 2-999999999999999999")
    assert missing_ranks(range(0, 100, 2), 100)[1].endswith("31, …")
