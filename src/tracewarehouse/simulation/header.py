"""The parts of a trace file around its events: header, metadata events, closing events."""

from __future__ import annotations

import json
from random import Random

from tracewarehouse.simulation.event_text import MOST_LISTED, Text
from tracewarehouse.simulation.groups import Group
from tracewarehouse.simulation.job import QUARTER_NS, Job

LAST: dict[str, object] = {"sort_index": 536_870_912}  # position of the profiler's own rows in viewers


def head(job: Job, rank: int, groups: list[Group]) -> str:
    """The text before the first event."""
    keys: dict[str, object] = {"schemaVersion": 1, "deviceProperties": _devices(job)}
    if job.dialect == "old":
        keys["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": job.ranks}
        return _open(keys)
    if job.machine.vendor == "amd":
        keys |= {
            "roctracer_version": 4.1,
            "hip_runtime_version": 70_051_831,
            "hip_driver_version": 70_051_831,
        }
    else:
        keys |= {"cupti_version": 26, "cuda_runtime_version": 12_080, "cuda_driver_version": 12_090}
    keys["trace_id"] = f"{Random(f'{job.seed}/trace/{rank}').getrandbits(128):032X}"
    keys["record_shapes"] = 1
    keys |= {"with_stack": 1} if job.stacks else {}
    keys |= {"profile_memory": 1} if job.memory else {}
    keys["distributedInfo"] = _distributed(job, rank, groups)
    if job.dialect == "new":
        keys |= {"host_name": f"node{rank // job.ranks_per_node}", "displayTimeUnit": "ms"}
        keys["baseTimeNanoseconds"] = QUARTER_NS
    return _open(keys)


def tail(job: Job, rank: int) -> str:
    """The text after the last event."""
    return f'\n  ],\n  "traceName": {json.dumps(file_name(rank))}\n}}\n'


def file_name(rank: int) -> str:
    """The file name of a rank."""
    return f"rank{rank}.json.gz"


def _open(keys: dict[str, object]) -> str:
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in keys.items()]
    return "{\n" + ",\n".join(lines) + ',\n  "traceEvents": ['


def _devices(job: Job) -> list[dict[str, object]]:
    gpu = job.machine
    common = {
        "name": gpu.name,
        "totalGlobalMem": gpu.memory_bytes,
        "computeMajor": gpu.major,
        "computeMinor": gpu.minor,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65_536,
        "warpSize": gpu.warp,
        "sharedMemPerBlock": 49_152,
        "numSms": gpu.multiprocessors,
    }
    return [{"id": number, **common} for number in range(min(job.ranks, job.ranks_per_node))]


def _distributed(job: Job, rank: int, groups: list[Group]) -> dict[str, object]:
    world = list(range(min(job.ranks, MOST_LISTED)))
    configs: list[dict[str, object]] = [
        {
            "pg_name": "0",
            "pg_desc": "default_pg",
            "backend_config": "cuda:nccl",
            "pg_size": job.ranks,
            "ranks": world,
        }
    ]
    configs += [
        {
            "pg_name": group.name,
            "pg_desc": f"mesh_{group.scope}",
            "backend_config": "cuda:nccl",
            "pg_size": group.size,
            "ranks": list(group.ranks[:MOST_LISTED]),
        }
        for group in groups
    ]
    return {
        "backend": "nccl",
        "rank": rank,
        "world_size": job.ranks,
        "pg_count": len(configs),
        "pg_config": configs,
        "nccl_version": "2.26.2",
    }


def names(text: Text, at_ns: int) -> list[str]:
    """Metadata events that name processes, threads and streams."""
    rows: list[tuple[str, int, int | str, dict[str, object]]] = []
    for pid, label, order in ((text.pid, "CPU", text.pid), (text.device, f"GPU {text.device}", 16_777_216)):
        rows.append(("process_name", pid, 0, {"name": "python3"}))
        rows.append(("process_labels", pid, 0, {"labels": label}))
        if not text.old:
            rows.append(("process_sort_index", pid, 0, {"sort_index": order}))
    for tid in text.threads.values():
        rows.append(
            ("thread_name", text.pid, str(tid) if text.old else tid, {"name": f"thread {tid} (python3)"})
        )
        if not text.old:
            rows.append(("thread_sort_index", text.pid, tid, {"sort_index": tid}))
    for stream in text.streams.values() if not text.old else ():
        rows.append(("thread_name", text.device, stream, {"name": f"stream {stream} "}))
        rows.append(("thread_sort_index", text.device, stream, {"sort_index": stream}))
    return [_name_row(text, at_ns, *row) for row in rows]


def _name_row(text: Text, at_ns: int, name: str, pid: int | str, tid: int | str,
              args: dict[str, object]) -> str:  # fmt: skip
    keys = ("ph", "name") if text.new else ("name", "ph")
    values = {"ph": '"M"', "name": json.dumps(name)}
    first = ", ".join(f'"{key}": {values[key]}' for key in keys)
    place = f'"ts": {text.time(at_ns)}, "pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}'
    return f'\n  {{\n    {first}, {place},\n    "args": {json.dumps(args)}\n  }}'


def closing(text: Text, start_ns: int, end_ns: int) -> list[str]:
    """The last events: the profiling window as a span, and its start and end markers."""
    began, length, ended = text.time(start_ns), text.length(end_ns - start_ns), text.time(end_ns)
    place = f'"ts": {began}, "dur": {length}'
    who = f'"pid": {json.dumps("Traces" if text.old else "Spans")}, "tid": "PyTorch Profiler"'
    called = '"name": "PyTorch Profiler (0)"'
    order = f"{called}, {who},\n    {place}" if text.new else f"{place},\n    {who},\n    {called}"
    mark = '\n  {{\n    {0},\n    "pid": {1}, "tid": {2}, "ts": {3}\n  }}'.format
    keys = '"ph": "i", "s": "g", "name": {}' if text.new else '"name": {}, "ph": "i", "s": "g"'
    start, end = (
        keys.format(json.dumps(f)) for f in ("Iteration Start: PyTorch Profiler", "Record Window End")
    )
    last = [] if text.old else [_name_row(text, start_ns, "process_sort_index", "Spans", 0, LAST)]
    return [
        f'\n  {{\n    "ph": "X", "cat": "Trace", {order},\n    "args": {{\n      "Op count": 0\n    }}\n  }}',
        *last,
        mark(start, '"Traces"', '"Trace PyTorch Profiler"', began),
        mark(end, '""', '""', ended),
    ]
