"""The child process: loads a pickle (or JSON) under limits and writes its tables to an open file.

The parent (`reader`) starts one for each file, so that limits and damage end with it. It holds no descriptors
but those of the file and of its tables, and answers on standard output.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from importlib import import_module
from typing import Any, Final

from tracewarehouse import slim_imports

slim_imports.install(numpy=False)

import msgspec  # noqa: E402
import pyarrow as pa  # noqa: E402
from msgspec.structs import asdict  # noqa: E402

from tracewarehouse.formats.pickles.values import (  # noqa: E402
    Budget,
    FoldingReader,
    Job,
    PlainUnpickler,
    RefusedPickleError,
    SharedFrames,
    Walk,
)

_PAGES: Final = "/proc/self/statm"


def main() -> None:
    """Does the job that the first argument describes, and writes the result as JSON."""
    job = msgspec.json.decode(sys.argv[1], type=Job)
    walk: Walk = import_module(f"{__package__}.{job.walk}").walk
    pa.set_cpu_count(1)
    gc.disable()
    result: dict[str, Any]
    try:
        address_limit_bytes = _address_space() + job.memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (address_limit_bytes, address_limit_bytes))
        cpu_limit_s = int(time.process_time()) + job.cpu_s
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
    print(json.dumps(result), flush=True)
    os._exit(0)  # without freeing millions of values


def _address_space() -> int:
    try:
        with open(_PAGES, encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        return 1 << 30


def _read(job: Job, walk: Walk) -> dict[str, Any]:
    """Reads the file, and writes an Arrow stream per table, one after the other."""
    with os.fdopen(job.input, "rb") as file:
        if job.is_json:
            root = json.load(file, object_hook=SharedFrames())
        else:
            root = PlainUnpickler(FoldingReader(file)).load()
    found = walk(root, Budget(job.values))
    options = pa.ipc.IpcWriteOptions(use_threads=False)
    with os.fdopen(job.output, "wb") as output:
        for table in found.tables.values():
            with pa.ipc.new_stream(output, table.schema, options=options) as out:
                out.write_table(table)
    return asdict(found) | {"tables": list(found.tables)}
