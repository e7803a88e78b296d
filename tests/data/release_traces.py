"""Traces of the small warehouse that each release stores: see `make_release_warehouse.py`."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tracewarehouse as tw

JOB: dict[str, Any] = {"ranks": 2, "steps": 3, "layers": 1, "hidden": 256, "sequence": 256}
JOB |= {"seed": 7, "stacks": False}
BASE_NS = 1_770_000_000_000_000_000
# None of these opens anything; each has the shape that the rules of redaction look for.
SECRET = "0123456789abcdef"
SECRETS = {
    "api_key": SECRET,
    "note": f"token sk-injected{SECRET} and hf_injected{SECRET}",
    "url": f"https://user:{SECRET}@example.org/bucket",
}


def slice_of(name: str, category: str, tid: int, start_us: float, dur_us: float, **args: Any) -> Any:
    """A complete event of the host process, or of device 0 where the category is one of the GPU's."""
    on_gpu = category in ("kernel", "gpu_memcpy", "gpu_memset")
    place = {"pid": 0 if on_gpu else 4242, "tid": tid}
    return {"ph": "X", "cat": category, "name": name, **place, "ts": start_us, "dur": dur_us, "args": args}


def launched(number: int, start_us: float) -> Iterator[Any]:
    """An operator with its call, its kernel and the flow between them."""
    gpu_us = start_us + 20.25
    args = {"External id": number, "Input Dims": [[8, 16], []], "Input type": ["float", ""]}
    yield slice_of(f"aten::op{number % 3}", "cpu_op", 1, start_us, 15.5, **args)
    yield slice_of("cudaLaunchKernel", "cuda_runtime", 1, start_us + 2, 5.125, correlation=number)
    yield slice_of(
        f"kernel_{number % 3}", "kernel", 7, gpu_us, 11.003, device=0, stream=7, correlation=number
    )
    for end, pid, tid, at in (("s", 4242, 1, start_us + 2), ("f", 0, 7, gpu_us)):
        both = {"name": "ac2g", "cat": "ac2g", "id": number, "pid": pid, "tid": tid, "ts": at}
        yield {"ph": end, **both} | ({"bp": "e"} if end == "f" else {})


def paired() -> Iterator[Any]:
    """Begin and end events: nested, on two threads, an end without a begin, a begin without an end."""
    both = {"cat": "user_annotation", "pid": 4242}
    yield {"ph": "E", **both, "tid": 2, "ts": 3.5}
    yield {"ph": "B", **both, "tid": 2, "ts": 5.001, "name": "outer", "args": {"layer": 1}}
    yield {"ph": "B", **both, "tid": 3, "ts": 6.25, "name": "beside"}
    yield {"ph": "B", **both, "tid": 2, "ts": 10, "name": "inner"}
    yield {"ph": "E", **both, "tid": 2, "ts": 20.125, "args": {"result": "done"}}
    yield {"ph": "E", **both, "tid": 2, "ts": 31}
    yield {"ph": "E", **both, "tid": 3, "ts": 33.999}
    yield {"ph": "B", **both, "tid": 2, "ts": 40, "name": "never ended"}


def odd_events(rank: int) -> list[Any]:
    """What every rank of `odd` holds, steps and counters included."""
    events = [slice_of(f"ProfilerStep#{n}", "user_annotation", 1, n * 400.0, 395.5) for n in range(4)]
    for number in range(1, 13):
        events += launched(number + 100 * rank, number * 120.0 + rank)
    memory = {"Bytes": 4096, "Total Allocated": 8192, "Total Reserved": 1 << 20, "Device Type": 1}
    place = {"pid": 4242, "tid": 1, "s": "t"}
    for at, sign in ((130.5, 1), (900.75, -1)):
        args = memory | {"Device Id": 0, "Addr": 1000, "Bytes": sign * memory["Bytes"]}
        event = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": at, "args": args}
        events.append(event | place)
    events += [{"ph": "C", "name": "power", "pid": 0, "ts": at, "args": {"W": at * 2}} for at in (100, 200.5)]
    return [*events, *paired()]


def odd_text(rank: int, more: list[Any]) -> str:
    """A trace of the run `odd`, an event per line."""
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Drawn GPU", "totalGlobalMem": 85899345920, "numSms": 108}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
        "baseTimeNanoseconds": BASE_NS,
        "synthetic": "drawn by tests/data/release_traces.py",
    }
    events = ",\n".join(json.dumps(event) for event in [*odd_events(rank), *more])
    return f'{json.dumps(header)[:-1]}, "traceEvents": [\n{events}\n]}}'


def odd_files() -> dict[str, str]:
    """Name to text: with injected secrets, cut short, in need of repair, and with odd events."""
    secret = slice_of("with secrets", "cpu_op", 1, 1700, 5, **SECRETS)
    frame = {"Python id": 2, "Python parent id": 1}
    strange: list[Any] = [
        slice_of("no length", "cpu_op", 1, 1800, 0) | {"dur": None},
        slice_of("negative", "cpu_op", 1, 1810, -3),
        slice_of("other category", "made_up", 9, 1820, 3, deep={"list": [1, [2.5, None, True]]}),
        slice_of("nn.Module: Linear_0", "python_function", 1, 1700, 90, **frame, **{"Python module id": 3}),
        slice_of("train.py(12): <module>", "python_function", 1, 1650, 200, **{"Python id": 1}),
        {"name": "no phase", "ts": 1830},
        {"ph": "M", "name": "process_name", "pid": 4242, "args": {"name": "python"}},
        {"ph": "b", "cat": "async", "name": "asynchronous", "id": "0x1", "pid": 4242, "tid": 1, "ts": 1840},
        {"ph": "e", "cat": "async", "name": "asynchronous", "id": "0x1", "pid": 4242, "tid": 1, "ts": 1850},
        "a string between the events",
    ]
    cut = odd_text(1, [])
    broken = odd_text(2, []).replace('"W": 401.0', '"W": NaN').replace("},\n{", "},\n,{", 1)
    return {
        "rank0.json": odd_text(0, [secret]),
        "rank1.json": cut[: len(cut) * 3 // 4],
        "rank2.json": broken,
        "rank3.json": odd_text(3, strange),
    }


def waiting_text() -> str:
    """One rank of two, with little in it: the other never comes."""
    events = [
        slice_of("ProfilerStep#0", "user_annotation", 1, 0, 50),
        slice_of("aten::op0", "cpu_op", 1, 5, 9.5),
    ]
    known = {"backend": "nccl", "rank": 0, "world_size": 2}
    return json.dumps({"distributedInfo": known, "baseTimeNanoseconds": BASE_NS, "traceEvents": events})


def timeline() -> list[list[int]]:
    """A raw memory timeline: time, action, bytes and category, what was there before at -1."""
    dice, at = random.Random(7), BASE_NS
    rows = [[-1, 0, 4096 * (n + 1), n % 8] for n in range(4)]
    for _ in range(150):
        at += dice.choice([0, 500, 12_345])
        rows.append([at, dice.randint(1, 3), dice.randrange(-4096, 8193, 512), dice.randrange(8)])
    return rows


def write_traces(folder: Path) -> None:
    """Every trace that is ingested, a folder per run."""
    tw.simulate(folder / "good", **JOB, counters=True)
    tw.simulate(folder / "slow", **JOB, injections=["slow-rank:rank=1,what=compute,factor=2"])
    (folder / "odd").mkdir()
    for name, text in odd_files().items():
        (folder / "odd" / name).write_text(text, encoding="utf-8")
    (folder / "waits").mkdir()
    (folder / "waits" / "rank0.json").write_text(waiting_text(), encoding="utf-8")
    (folder / "memory").mkdir()
    (folder / "memory" / "memory.raw.json.gz").write_bytes(
        gzip.compress(json.dumps(timeline()).encode(), mtime=0)
    )
