"""Each number and text of headers, stored facts and labels at its worst: commands for all runs go on beside it.

The bounds are on memory and CPU time: the machine may be busy.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cli_runner import TW, environment
from house import small_trace
from small_warehouse import facts, stage
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.storage import Changes, Store

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


def _measured(*args: str | Path) -> tuple[int, str, float, float]:
    """Exit code, output, MB and CPU seconds of `tw` and its children."""
    command = [*TW, *map(str, args)]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), text=True
    )
    assert running.stdout is not None
    output = running.stdout.read()
    _, status, used = os.wait4(running.pid, 0)
    running.returncode = os.waitstatus_to_exitcode(status)
    return running.returncode, output, used.ru_maxrss / 1000, used.ru_utime + used.ru_stime


def _trace() -> dict[str, Any]:
    trace: Any = small_trace()
    trace["distributedInfo"] = {"rank": 0, "world_size": 2, "backend": "nccl", "pg_config": [_GROUP]}
    trace |= {"deviceProperties": [_DEVICE], "baseTimeNanoseconds": 0, "host_name": "h", "pytorch_version": "2"}
    return copy.deepcopy(trace)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of each number and text in JSON."""
    if isinstance(value, dict):
        return [place for key, each in value.items() for place in _places(each, (*path, key))]
    if isinstance(value, list):
        return [place for at, each in enumerate(value[:4]) for place in _places(each, (*path, at))]
    return [path]


def _with(trace: Any, place: tuple[Any, ...], value: Any) -> Any:
    inner = trace
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return trace


def _files(folder: Path, value: Any) -> None:
    trace = _trace()
    head = {key: each for key, each in trace.items() if key != "traceEvents"}
    events = [next(at for at, each in enumerate(trace["traceEvents"]) if each.get("cat") == cat)
              for cat in ("cpu_op", "cuda_runtime", "kernel")]
    places = [*_places(head), *(("traceEvents", at, *place) for at in events for place in _places(trace["traceEvents"][at]))]
    for place in places:
        path = folder / "-".join(map(str, place)).replace(" ", "_") / "rank0.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(_with(_trace(), place, value)))
