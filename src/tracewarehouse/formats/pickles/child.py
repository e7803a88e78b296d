"""The child process: loads pickles (or JSON) under limits and writes their tables to an open file.

Each file is loaded in a separate process, forked from this one, so that limits and damage end with it.
The parent (`reader`) starts it; it holds no descriptors but the files and a pipe.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from tracewarehouse import slim_imports

slim_imports.install(numpy=False)

import pyarrow as pa  # noqa: E402

from tracewarehouse.formats.pickles.values import (  # noqa: E402  # noqa: E402
    Budget,
    FoldingReader,
    PlainUnpickler,
    RefusedPickleError,
    SharedFrames,
    Tables,
    Walk,
)

# Walks by the name of their format; the parent names one of these.
WALKS: Final = {
    "memory_snapshot": "tracewarehouse.formats.pickles.memory_snapshot",
    "flight_recorder": "tracewarehouse.formats.pickles.flight_recorder",
}
_PAGES: Final = "/proc/self/statm"


def main() -> None:
    """Serves the jobs that the first argument lists, and writes a JSON line with the result of each."""
    jobs: list[dict[str, Any]] = json.loads(sys.argv[1])
    names = {job["walk"] for job in jobs}
    walks: dict[str, Walk] = {name: import_module(WALKS[name]).walk for name in names}
    pa.set_cpu_count(1)
    gc.disable()
    for job in jobs:
        result = _forked(job, walks[job["walk"]])
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _forked(job: Mapping[str, Any], walk: Walk) -> dict[str, Any]:
    """The result of a job, done in a separate process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _serve(job, walk, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status, used = os.wait4(pid, 0)
    result: dict[str, Any] = json.loads(answer) if answer else {}
    signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    cpu_s = used.ru_utime + used.ru_stime
    return result | {"signal": signal, "cpu_s": cpu_s, "peak_kib": used.ru_maxrss}


def _serve(job: Mapping[str, Any], walk: Walk, writer: int) -> None:
    """Does a job, writes the result to the pipe, and ends the process."""
    result: dict[str, Any]
    try:
        # What this process may use beyond what it uses now.
        address_limit_bytes = _address_space() + job["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (address_limit_bytes, address_limit_bytes))
        cpu_limit_s = int(time.process_time()) + job["cpu_s"]
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        result = _read(job, walk)
    except RefusedPickleError as error:
        result = {"refused": str(error)}
    except MemoryError:
        result = {"memory": True}
    except RecursionError:
        result = {"refused": "nests values too deeply"}
    except Exception as error:  # a damaged pickle can fail in many ways
        result = {"damaged": str(error)[:300] or type(error).__name__}
    os.write(writer, json.dumps(result).encode())
    os._exit(0)  # without freeing millions of values


def _address_space() -> int:
    try:
        with open(_PAGES, encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return 1 << 30


def _read(job: Mapping[str, Any], walk: Walk) -> dict[str, Any]:
    with os.fdopen(job["input"], "rb") as file:
        if job["json"]:
            root = json.load(file, object_hook=SharedFrames())
        else:
            root = PlainUnpickler(FoldingReader(file)).load()
    found = walk(root, Budget(job["values"]))
    _write(found, job["output"])
    return {
        "tables": list(found.tables),
        "facts": found.facts,
        "header": found.header,
        "unusable": dict(found.unusable),
    }


def _write(found: Tables, output: int) -> None:
    """Writes an Arrow stream per table, one after the other."""
    with os.fdopen(output, "wb") as file:
        for table in found.tables.values():
            with pa.ipc.new_stream(
                file, table.schema, options=pa.ipc.IpcWriteOptions(use_threads=False)
            ) as out:
                out.write_table(table)
