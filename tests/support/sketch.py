"""The sketch language: a trace in a few lines, written as Kineto JSON.

A line is an event, times are integer ns, and every line starts with `RUN RANK`:

    RUN RANK gpu sSTREAM[@DEVICE] NAME START DUR [k=v …]    Memcpy… and Memset… set the category
    RUN RANK op|py|ann|call|sync tTHREAD NAME START DUR [k=v …]
    RUN RANK step tTHREAD N START DUR [k=v …]
    RUN RANK mem tTHREAD BYTES TOTAL AT [k=v …]
    RUN RANK count NAME VALUE AT [k=v …]
    RUN RANK flow NAME ID FROM TO
    RUN RANK header {json}
    RUN RANK raw {json}
    RUN RANK snap device BYTES [other=BYTES] [expandable=1]
    RUN RANK snap alloc NAME BYTES [at=FILE:LINE:FUNCTION,…] [stream=N]
    RUN RANK snap free|pending|complete NAME
    RUN RANK snap cut ENTRIES
    RUN RANK flight {json}
    RUN RANK ncu LAUNCH KERNEL GRID BLOCK METRIC UNIT VALUE [PROCESS]
    RUN RANK node ID PARENT NAME [k=v …]

`id=3` is the correlation of a call or gpu line, and the external id of an op or annotation. Any other `k=v`
is an argument by its Kineto name; its value is JSON if it parses as JSON, else a string. Values with spaces
are quoted. `sync` also accepts sSTREAM[@DEVICE], as the profiler writes such events. FROM and TO of a flow
are times, or PLACE:TIME to attach an end to a thread or stream. `header` keys override the default ones; null
removes one. `snap` lines are calls of the simulated allocator (BYTES may end in K, M or G), written as a
memory snapshot; `cut` drops the first entries. `flight` lines are entries of a flight recorder dump, whose
number, group and state have defaults. `ncu` lines are metrics of Nsight Compute; GRID and BLOCK are X,Y,Z.
`node` lines are nodes of an execution trace of schema 1.0.1; other arguments are its keys. A rank may have a
trace and such files. Blank lines and lines that start with `#` are skipped.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewarehouse.simulation.allocator import Allocator, OutOfMemory, frames

HOST_PID = 1000  # a rank's process is HOST_PID + rank: never the number of a device
PLACE = re.compile(r"(?:t(?P<thread>-?\d+)|s(?P<stream>-?\d+)(?:@(?P<device>\d+))?)")


class SketchError(ValueError):
    """An invalid line of a sketch; names the line and the error."""


@dataclass(frozen=True)
class Place:
    """The track of an event: `pid` and `tid` as Kineto writes them."""

    pid: int
    tid: int
    on_gpu: bool


@dataclass
class Memory:
    """A simulated device, the addresses of its named blocks, and how many entries are lost."""

    allocator: Allocator
    blocks: dict[str, int] = field(default_factory=dict)
    cut: int = 0


@dataclass
class Rank:
    """A trace file: its header keys and the text of each event."""

    run: str
    rank: int
    header: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    memory: Memory | None = None
    flight: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[list[str]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_traced(self) -> bool:
        """Whether it has a trace."""
        added = self.memory or self.flight or self.metrics or self.nodes
        return bool(self.events or self.header or not added)

    def text(self, world_size: int) -> str:
        """The Kineto JSON of this rank, one event per line; a bare list if its first element is a list."""
        if self.events and self.events[0].startswith("["):
            return "[\n" + ",\n".join(self.events) + "\n]\n"
        top: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": world_size},
            "displayTimeUnit": "ms",
        }
        top.update(self.header)
        lines = [
            f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in top.items() if value is not None
        ]
        events = ",\n".join(f"    {event}" for event in self.events)
        return "{\n" + ",\n".join([*lines, f'  "traceEvents": [\n{events}\n  ]']) + "\n}\n"


def parse(sketch: str) -> list[Rank]:
    """The ranks of a sketch in the order of their first lines. Raises SketchError."""
    ranks: dict[tuple[str, int], Rank] = {}
    for number, raw in enumerate(sketch.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        try:
            run, rank, verb, rest = [*line.split(None, 3), ""][:4]
            target = ranks.setdefault((run, int(rank)), Rank(run, int(rank)))
            LINES[verb](target, rest)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise SketchError(f"line {number}: {line}: {error!r}") from error
    return list(ranks.values())


def files(sketch: str) -> dict[str, str | bytes]:
    """`RUN/rankN.json` and other files → their content, for every rank of the sketch."""
    ranks = parse(sketch)
    sizes = {rank.run: sum(other.run == rank.run for other in ranks) for rank in ranks}
    found: dict[str, str | bytes] = {}
    for rank in ranks:
        name = f"{rank.run}/rank{rank.rank}"
        if rank.is_traced:
            found[f"{name}.json"] = rank.text(sizes[rank.run])
        if rank.memory:
            found[f"{name}.snapshot.pickle"] = pickle.dumps(rank.memory.allocator.snapshot(rank.memory.cut))
        if rank.flight:
            groups = {"0": {"name": "0", "desc": "desc", "ranks": "[0, 1, 2, 3]"}}
            dump = {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": rank.flight}
            found[f"{name}.flight.json"] = json.dumps(dump)
        if rank.nodes:
            found[f"{name}.et.json"] = json.dumps({"schema": "1.0.1", "pid": 42, "nodes": rank.nodes})
        if rank.metrics:
            found[f"{name}.ncu.csv"] = "".join(_csv_line(cells) for cells in [METRIC_COLUMNS, *rank.metrics])
    return found


def write(sketch: str, folder: Path, *, zipped: bool = False) -> list[Path]:
    """Write each rank to `folder/RUN/rankN.json[.gz]`; returns the paths. Same sketch, same bytes."""
    paths = []
    for name, text in files(sketch).items():
        path = folder / (f"{name}.gz" if zipped else name)
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = text if isinstance(text, bytes) else text.encode()
        path.write_bytes(zip_bytes(plain) if zipped else plain)
        paths.append(path)
    return paths


def zip_bytes(data: str | bytes) -> bytes:
    """gzip without name and time, so that equal content gives equal bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as out:
        out.write(data.encode() if isinstance(data, str) else data)
    return buffer.getvalue()


def micros(ns: int) -> str:
    """ns as µs text like Kineto's: three decimals, computed without floats."""
    sign, whole = ("-" if ns < 0 else ""), abs(ns)
    return f"{sign}{whole // 1000}.{whole % 1000:03d}"


def event_text(ts: int | None = None, dur: int | None = None, **keys: Any) -> str:
    """One event as JSON; `ts` and `dur` in ns are printed exactly."""
    args = keys.pop("args", None)
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in keys.items() if value is not None]
    parts += [f'"{key}": {micros(ns)}' for key, ns in (("ts", ts), ("dur", dur)) if ns is not None]
    if args is not None:
        parts.append(f'"args": {json.dumps(args)}')
    return "{" + ", ".join(parts) + "}"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _split(rest: str, fixed: int) -> tuple[list[str], dict[str, Any]]:
    words = shlex.split(rest)
    if len(words) < fixed:
        raise ValueError(f"{fixed} fields needed, {len(words)} found")
    pairs = [word.partition("=") for word in words[fixed:]]
    if any(not mark for _, mark, _ in pairs):
        raise ValueError(f"k=v needed after {words[fixed - 1]}")
    return words[:fixed], {key: _value(value) for key, _, value in pairs}


def _place(word: str, rank: Rank) -> Place:
    found = PLACE.fullmatch(word)
    if found is None:
        raise ValueError(f"tTHREAD or sSTREAM[@DEVICE] needed, not {word}")
    if found["thread"] is not None:
        return Place(HOST_PID + rank.rank, int(found["thread"]), False)
    return Place(int(found["device"] or 0), int(found["stream"]), True)


def _slice(rank: Rank, cat: str, place: Place, name: str, ts: str, dur: str, args: Mapping[str, Any]) -> None:
    rank.events.append(
        event_text(
            ph="X",
            cat=cat,
            name=name,
            pid=place.pid,
            tid=place.tid,
            ts=int(ts),
            dur=int(dur),
            args=dict(args),
        )
    )


def _gpu(rank: Rank, rest: str) -> None:
    (where, name, start, dur), args = _split(rest, 4)
    place = _place(where, rank)
    if not place.on_gpu:
        raise ValueError("gpu needs sSTREAM[@DEVICE]")
    copies = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
    cat = next((cat for prefix, cat in copies.items() if name.startswith(prefix)), "kernel")
    known = {"device": place.pid, "stream": place.tid}
    if "id" in args:
        known["correlation"] = args.pop("id")
    _slice(rank, cat, place, name, start, dur, known | args)


def _host(cat: str, id_key: str) -> Callable[[Rank, str], None]:
    def add(rank: Rank, rest: str) -> None:
        (where, name, start, dur), args = _split(rest, 4)
        known = {id_key: args.pop("id")} if "id" in args else {}
        driver = cat == "cuda_runtime" and re.match(r"cu[A-Z]", name)
        _slice(rank, "cuda_driver" if driver else cat, _place(where, rank), name, start, dur, known | args)

    return add


def _sync(rank: Rank, rest: str) -> None:
    (where, name, start, dur), args = _split(rest, 4)
    place = _place(where, rank)
    known: dict[str, Any] = {"cuda_sync_kind": name}
    if place.on_gpu:
        known |= {"device": place.pid, "stream": place.tid}
    if "id" in args:
        known["correlation"] = args.pop("id")
    _slice(rank, "cuda_sync", place, name, start, dur, known | args)


def _step(rank: Rank, rest: str) -> None:
    (where, number, start, dur), args = _split(rest, 4)
    _slice(rank, "user_annotation", _place(where, rank), f"ProfilerStep#{int(number)}", start, dur, args)


def _memory(rank: Rank, rest: str) -> None:
    (where, size, total, at), args = _split(rest, 4)
    place = _place(where, rank)
    known = {"Total Allocated": int(total), "Bytes": int(size), "Device Id": 0, "Device Type": 1}
    rank.events.append(
        event_text(
            ph="i",
            cat="cpu_instant_event",
            s="t",
            name="[memory]",
            pid=place.pid,
            tid=place.tid,
            ts=int(at),
            args=known | args,
        )
    )


def _counter(rank: Rank, rest: str) -> None:
    (name, value, at), args = _split(rest, 3)
    known = {name: _value(value)}
    rank.events.append(event_text(ph="C", name=name, pid=0, ts=int(at), args=known | args))


def _flow(rank: Rank, rest: str) -> None:
    (name, flow_id, start, end), _ = _split(rest, 4)
    for ph, point in (("s", start), ("f", end)):
        where, _, at = point.rpartition(":")
        place = _place(where or "t1", rank)
        ends = {"bp": "e"} if ph == "f" else {}
        rank.events.append(
            event_text(
                ph=ph,
                id=_value(flow_id),
                pid=place.pid,
                tid=place.tid,
                cat=name,
                name=name,
                ts=int(at),
                **ends,
            )
        )


def _header(rank: Rank, rest: str) -> None:
    rank.header.update(json.loads(rest))


def _raw(rank: Rank, rest: str) -> None:
    json.loads(rest)
    rank.events.append(rest)


def _snapshot(rank: Rank, rest: str) -> None:
    verb, _, more = rest.partition(" ")
    if verb == "device":
        (size,), options = _split(more, 1)
        other = _size(options.get("other", 0))
        rank.memory = Memory(Allocator(_size(size), other, bool(options.get("expandable", 0))))
        return
    memory = rank.memory
    if memory is None:
        raise ValueError("snap device comes first")
    if verb == "alloc":
        (name, size), options = _split(more, 2)
        calls = [call.split(":", 2) for call in options.get("at", "").split(",") if call]
        stack = frames(*((file, int(line), function) for file, line, function in calls))
        with suppress(OutOfMemory):
            memory.blocks[name] = memory.allocator.malloc(_size(size), stack, options.get("stream", 0))
    elif verb == "cut":
        memory.cut = int(more)
    elif verb == "complete":
        memory.allocator.complete(memory.blocks[more.strip()])
    elif verb in ("free", "pending"):
        memory.allocator.free(memory.blocks[more.strip()], pending=verb == "pending")
    else:
        raise ValueError(f"unknown call {verb}")


def _size(text: object) -> int:
    """Bytes, with K, M or G for powers of 1024."""
    word = str(text)
    power = "KMG".find(word[-1:]) + 1 if word[-1:] else 0
    return int(word[:-1] if power else word) << 10 * power


def _flight(rank: Rank, rest: str) -> None:
    defaults = {"record_id": len(rank.flight), "process_group": ["0", "default_pg"], "is_p2p": False}
    rank.flight.append({**defaults, "state": "completed", **json.loads(rest)})


def _node(rank: Rank, rest: str) -> None:
    (number, parent, name), args = _split(rest, 3)
    ids = {"rf_id": int(number), "fw_parent": 0, "seq_id": -1, "tid": 1}
    rank.nodes.append({"name": name, "id": int(number), "parent": int(parent), **ids, **args})


METRIC_COLUMNS = [
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
]  # fmt: skip


def _ncu(rank: Rank, rest: str) -> None:
    launch, kernel, grid, block, metric, unit, value, *process = shlex.split(rest)
    sizes = [f"({size.replace(',', ', ')})" for size in (block, grid)]
    host = [process[0] if process else "42", "train", "127.0.0.1"]
    rank.metrics.append([launch, *host, kernel, "1", "7", *sizes, "0", "8.0", "", metric, unit, value])


def _csv_line(cells: list[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells) + "\n"


LINES: dict[str, Callable[[Rank, str], None]] = {
    "gpu": _gpu,
    "op": _host("cpu_op", "External id"),
    "py": _host("python_function", "Python id"),
    "ann": _host("user_annotation", "External id"),
    "call": _host("cuda_runtime", "correlation"),
    "sync": _sync,
    "step": _step,
    "mem": _memory,
    "count": _counter,
    "flow": _flow,
    "header": _header,
    "raw": _raw,
    "snap": _snapshot,
    "flight": _flight,
    "ncu": _ncu,
    "node": _node,
}
