"""The text of simulated traces: events, head and tail in each dialect, and captures of graphs.

Captures are `capture_rankN.json.gz`; the truth has the expected origin of each replayed kernel. Rank 0
captures one more launch than is replayed; the last of several ranks captures its graph twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import prod
from random import Random
from typing import Any, Final

from msgspec import Struct, field

from tracewarehouse.simulation.job import (
    COMPUTE,
    DATA,
    QUARTER_NS,
    STAGE,
    TENSOR,
    Api,
    Collective,
    Frame,
    Graph,
    Job,
    Kernel,
    Op,
)
from tracewarehouse.simulation.kernels import Group, expert_split
from tracewarehouse.simulation.truth import GpuActivity

Format = Callable[..., str]

# %(…)s is filled in once per kind of event, {…} for each event.
_NEW = (
    '\n  {{\n    "ph": "X",\n    "cat": "%(cat)s",\n    "name": %(name)s,\n    "pid": %(pid)s,\n'
    '    "tid": %(tid)s,\n    "ts": {0},\n    "dur": {1}\n    ,\n    "args": {{\n      %(args)s\n    }}\n  }}'
)
_EPOCH = (
    '\n  {{\n    "ph": "X", "cat": "%(cat)s", "name": %(name)s, "pid": %(pid)s, "tid": %(tid)s,\n'
    '    "ts": {0}, "dur": {1},\n    "args": {{\n      %(args)s\n    }}\n  }}'
)
_OLD = (
    '\n  {{\n    "ph": "X", "cat": "%(cat)s", \n    "name": %(name)s, "pid": %(pid)s, "tid": %(tid)s,\n'
    '    "ts": {0}, "dur": {1},\n    "args": {{\n      %(args)s\n    }}\n  }}'
)
_LAYOUTS = {"new": _NEW, "epoch": _EPOCH, "old": _OLD}
_OLD_CATEGORIES = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
_TORCH_NAMES = {"all_gather": "_allgather_base", "reduce_scatter": "_reduce_scatter_base"}
MOST_LISTED = 30  # PyTorch truncates longer lists


class Text:
    """Templates of one rank's events. All times are integer ns since the epoch."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        self.old, self.new = job.dialect == "old", job.dialect == "new"
        self.amd = job.machine.vendor == "amd"
        self.pid = 40_000 + 37 * rank % 60_000
        self.device = rank % job.ranks_per_node
        self.threads = {"main": self.pid, "autograd": self.pid + 341}
        numbers = (0, 1, 2, 3) if self.amd else (7, 20, 24, 28)
        self.streams = dict(zip((COMPUTE, TENSOR, DATA, STAGE), numbers, strict=True))
        self.layout = _LAYOUTS[job.dialect]

    def time(self, at_ns: int) -> str:
        """A point in time."""
        if self.old:
            return str(at_ns // 1000)
        if self.new:
            at_ns -= QUARTER_NS
        return f"{at_ns // 1000}.{at_ns % 1000:03d}"

    def length(self, ns: int) -> str:
        """A duration."""
        return str(ns // 1000) if self.old else f"{ns // 1000}.{ns % 1000:03d}"

    def slice(self, category: str, name: str, pid: int, tid: int | str, args: str) -> Format:
        """Takes ts, dur and the fields of `args`; returns the event."""
        if self.old:
            category = _OLD_CATEGORIES.get(category, category)
            tid = f"stream {tid}" if pid == self.device else str(tid)
        quoted = json.dumps(name).replace("{", "{{").replace("}", "}}")
        values = {"cat": category, "name": quoted, "pid": pid, "tid": json.dumps(tid), "args": args}
        return (self.layout % values).format

    def frame(self, frame: Frame, thread: str, finished: bool = True) -> Format:
        """Takes ts, dur, external id (Python: parent id), sequence number (Python: id), index, message."""
        if frame.category == "python_function":
            module = "" if frame.module is None else f'"Python module id": {frame.module}, '
            args = f'"Python parent id": {{2}}, "Python id": {{3}}, {module}"Ev Idx": {{4}}'
        elif self.old:
            args = self._old_op(frame)
        else:
            args = self._op(frame, finished)
        return self.slice(frame.category, frame.name, self.pid, self.threads[thread], args)

    def _op(self, frame: Frame, finished: bool) -> str:
        inputs = f"{_inputs(frame.shapes, frame.values)}, " if frame.shapes is not None else ""
        fields = '"Record function id": 0, '
        if frame.name == "record_param_comms":
            inputs = "{5}, "
        if frame.backward:
            fields += '"Sequence number": {3}, "Fwd thread id": 1, '
        elif frame.sequence is not None:
            fields = f'"Sequence number": {{3}}, "Fwd thread id": {int(not frame.forward)}, {fields}'
        ended = "" if finished or not self.new else '"finished": false, '
        return f'"External id": {{2}},{fields}{inputs}{ended}"Ev Idx": {{4}}'

    def _old_op(self, frame: Frame) -> str:
        args = (
            f'"Device": {self.pid}, "External id": {{2}},\n'
            '      "Trace name": "PyTorch Profiler", "Trace iteration": 0 '
        )
        if frame.shapes is not None:
            types = ["float" if shape else "Int" for shape in frame.shapes]
            stack = "" if frame.stack is None else f'"Call stack": {json.dumps(frame.stack)}, '
            dims = json.dumps(frame.shapes)
            args += f',\n      "Input Dims": {dims}, {stack}"Input type": {json.dumps(types)}'
        elif frame.stack is not None:
            args += f',\n      "Call stack": {json.dumps(frame.stack)}'
        if frame.sequence is not None:
            args += f', "Fwd thread id": {int(not frame.forward)}, "Sequence number": {{3}}'
        return args

    def call(self, api: Api, thread: str, kernel: Kernel | None) -> Format:
        """Takes ts, dur, external id, correlation; returns a runtime call."""
        if self.old:
            ids = '"external id": {2}, "external ts": {4}'
            args = f'"cbid": {api.number}, "correlation": {{3}},\n      {ids}'
        elif self.amd:
            args = f'"External id": {{2}},      {self._amd_call(api, kernel)}'
        else:
            args = f'"External id": {{2}},      "cbid": {api.number}, "correlation": {{3}}'
        return self.slice(api.category, api.name, self.pid, self.threads[thread], args)

    def _amd_call(self, api: Api, kernel: Kernel | None) -> str:
        fields = f'"cid": {api.number}, "correlation": {{3}}'
        if kernel is None or kernel.category == "gpu_memset":
            return fields
        if kernel.category == "gpu_memcpy":
            addresses = '"src": "0x7f1c4a000000", "dst": "0x7f1b20000000"'
            return f'{fields}, {addresses}, "bytes": "{kernel.bytes}", "kind": "1"'
        quoted = json.dumps(kernel.name).replace("{", "{{").replace("}", "}}")
        return (
            f'"kernel": {quoted}, {fields}, "grid":     {list(kernel.grid)}, '
            f'"block":     {list(kernel.block)}, "shared memory": {kernel.shared_bytes}'
        )

    def kernel(self, kernel: Kernel, stream: str, group: Group | None, collective: Collective | None,
               node: int | None) -> Format:  # fmt: skip
        """Takes ts, dur, external id, correlation, sequence; returns a GPU activity."""
        number = self.streams[stream]
        fields = self._kernel_args(kernel)
        if collective is not None and group is not None and not self.amd and not self.old:
            fields += f",      {self.message(collective, group)}"
        if node is not None and not self.amd:
            fields += f',      "graph node id": {node + 1}, "graph id": 1'
        if self.old:
            queued = '"queued": 0, ' if kernel.category == "kernel" else ""
            args = (
                f'{queued}"device": {self.device}, "context": 1,\n      "stream": {number}, '
                f'"correlation": {{3}}, "external id": {{2}},\n      {fields}'
            )
        elif self.amd and node is not None:
            args = (
                f'"device": {self.device}, "stream": {number},      "correlation": {{3}}, '
                '"kind": "Dispatch Kernel"'
            )
        elif self.amd:
            args = (
                f'"External id": {{2}},      "device": {self.device}, "stream": {number},      '
                f'"correlation": {{3}}, {fields}'
            )
        else:
            queued = '"queued": 0, ' if kernel.category == "kernel" else ""
            args = (
                f'"External id": {{2}},      {queued}"device": {self.device}, "context": 1,      '
                f'"stream": {number}, "correlation": {{3}},      {fields}'
            )
        return self.slice(kernel.category, kernel.name, self.device, number, args)

    def _kernel_args(self, kernel: Kernel) -> str:
        if kernel.category != "kernel":
            rate = f'"bytes": {kernel.bytes}, "memory bandwidth (GB/s)": {{5}}'
            if not self.amd:
                return rate
            return '"kind": "Device"' if kernel.category == "gpu_memset" else f'"kind": "HtoD",      {rate}'
        grid, block = list(kernel.grid), list(kernel.block)
        if self.amd:
            return f'"kind": "Dispatch Kernel",      "grid":     {grid}, "block":     {block}'
        blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2] / self.job.machine.multiprocessors
        warps = blocks * kernel.block[0] / self.job.machine.warp
        return (
            f'"registers per thread": {kernel.registers},      "shared memory": {kernel.shared_bytes},      '
            f'"blocks per SM": {blocks:.6f},      "warps per SM": {warps:.6f},      "grid": {grid},      '
            f'"block": {block},      "est. achieved occupancy %": {min(100, round(warps * 100 / 64))}'
        )

    def message(self, collective: Collective, group: Group) -> str:
        """The arguments of a collective; {4} is the sequence number."""
        sent = expert_split(self.job, collective, group)
        received = (sent[group.ranks.index(self.rank)],) * group.size if sent else ()
        out_elements = sum(received) if sent else collective.out_elements
        number = ', "Seq": {4}' if self.new else ""
        return (
            f'"Collective name": "{_TORCH_NAMES.get(collective.name, collective.name)}", '
            f'"In msg nelems": {collective.in_elements}, '
            f'"Out msg nelems": {out_elements}, "Group size": {group.size}, "dtype": "BFloat16", '
            f'"In split size": "{_listed(sent)}", "Out split size": "{_listed(received)}", '
            f'"Process Group Name": "{group.name}", '
            f'"Process Group Description": "mesh_{group.scope}", '
            f'"Process Group Ranks": "{_listed(group.ranks)}"{number}'
        )

    def host_message(self, collective: Collective, group: Group) -> str:
        """The same on the host, which also has the ranks as start and stride."""
        stride = group.ranks[1] - group.ranks[0] if group.size > 1 else 1
        global_ranks = f'"Global rank start": {group.ranks[0]}, "Global rank stride": {stride}'
        return f"{self.message(collective, group)}, {global_ranks}"

    def flow(self, kind: str, name: str, pid: int, tid: int | str) -> Format:
        """Takes id, ts; returns one end of a flow, ac2g or fwdbwd."""
        category = "async" if self.old else name
        title = "launch" if self.old else name
        if self.old and pid == self.device:
            tid = f"stream {tid}"
        end = ', "bp": "e"' if kind == "f" else ""
        thread = f'"pid": {pid}, "tid": {json.dumps(tid)}'
        if not self.new:
            head = f'"ph": "{kind}", "id": {{0}}, {thread}, "ts": {{1}},'
            return _event(f'{head}\n    "cat": "{category}", "name": "{title}"{end}')
        thread = thread.replace(', "tid"', ',\n    "tid"')
        head = f'"ph": "{kind}",\n    "id": {{0}},\n    {thread},\n    "ts": {{1}},'
        return _event(f'{head}\n    "cat": "{category}",\n    "name": "{title}"\n    {end}')

    def memory(self, thread: str) -> Format:
        """Takes ts, reserved, allocated, bytes, address, index; returns an allocation."""
        pid, tid = self.pid, self.threads[thread]
        if self.old:
            args = f'"Device Type": 1, "Device Id": {self.device}, "Bytes": {{3}}'
            head = (
                f'"ph": "i", "s": "t", "name": "[memory]",\n    "pid": {pid}, "tid": {tid},\n    "ts": {{0}},'
            )
            return _event(f'{head}\n    "args": {{{{\n      {args}\n    }}}}')
        args = (
            f'"Total Reserved": {{1}}, "Total Allocated": {{2}}, "Bytes": {{3}}, "Device Id": {self.device}, '
            f'"Device Type": {6 if self.amd else 1}, "Addr": {{4}}, "finished": false, "Ev Idx": {{5}}'
        )
        keys = ['"ph": "i"', '"cat": "cpu_instant_event"', '"s": "t"', '"name": "[memory]"']
        keys += [f'"pid": {pid}', f'"tid": {tid}', '"ts": {0}']
        between = ",\n    " if self.new else ", "
        return _event(f'{between.join(keys)},\n    "args": {{{{\n      {args}\n    }}}}')

    def sync(self, kind: str, stream: str, waits: str | None) -> Format:
        """Takes ts, dur, external id, correlation, correlation of the event; returns a synchronization."""
        number = self.streams[stream]
        fields = f'"External id": {{2}},      "cuda_sync_kind": "{kind}",      '
        if waits is not None:
            fields += (
                f'"wait_on_stream": {self.streams[waits]},      '
                '"wait_on_cuda_event_record_corr_id": {4},      "wait_on_cuda_event_id": 1,      '
            )
        fields += f'"stream": {number}, "correlation": {{3}},      "device": {self.device}, "context": 1'
        return self.slice("cuda_sync", kind, self.device, number, fields)

    def annotation(self, name: str) -> Format:
        """Takes ts, dur, external id; returns the GPU copy of an annotation."""
        stream = self.streams[COMPUTE]
        return self.slice("gpu_user_annotation", name, self.device, stream, '"External id": {2}')

    def counter(self) -> Format:
        """Takes ts, value; returns a GPU utilization counter."""
        head = f'"ph": "C", "name": "GPU {self.device} Utilization", "pid": {self.device}, "ts": {{0}},'
        return _event(head + '\n    "args": {{\n      "GPU Utilization": {1}\n    }}')


def _listed(values: Sequence[int]) -> str:
    """A list as PyTorch writes it."""
    return f"[{', '.join(map(str, values[:MOST_LISTED]))}{', ...' if len(values) > MOST_LISTED else ''}]"


def _event(inside: str) -> Format:
    return ("\n  {{\n    " + inside + "\n  }}").format


def _inputs(shapes: tuple[tuple[int, ...], ...], arguments: tuple[tuple[int, str], ...]) -> str:
    strides = [[prod(shape[axis + 1 :]) for axis in range(len(shape))] for shape in shapes]
    types = ["c10::BFloat16" if shape else "Scalar" for shape in shapes]
    values = ["" if shape else "1" for shape in shapes]
    for index, value in arguments:
        values[index] = value
    return (
        f'"Concrete Inputs": {json.dumps(values)}, "Input type": {json.dumps(types)}, '
        f'"Input Strides": {json.dumps(strides)}, "Input Dims": {json.dumps(shapes)}'
    )


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
    described: list[tuple[str, str, Sequence[int]]] = [("0", "default_pg", range(job.ranks))]
    described += [(group.name, f"mesh_{group.scope}", group.ranks) for group in groups]
    configs = [
        {
            "pg_name": name,
            "pg_desc": description,
            "backend_config": "cuda:nccl",
            "pg_size": len(ranks),
            "ranks": list(ranks[:MOST_LISTED]),
        }
        for name, description, ranks in described
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
    phase_and_name = ", ".join(f'"{key}": {values[key]}' for key in keys)
    thread = f'"ts": {text.time(at_ns)}, "pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}'
    return f'\n  {{\n    {phase_and_name}, {thread},\n    "args": {json.dumps(args)}\n  }}'


def closing(text: Text, start_ns: int, end_ns: int) -> list[str]:
    """The last events: the profiling window as a span, and its start and end markers."""
    began, length, ended = text.time(start_ns), text.length(end_ns - start_ns), text.time(end_ns)
    times = f'"ts": {began}, "dur": {length}'
    thread = f'"pid": {json.dumps("Traces" if text.old else "Spans")}, "tid": "PyTorch Profiler"'
    called = '"name": "PyTorch Profiler (0)"'
    order = f"{called}, {thread},\n    {times}" if text.new else f"{times},\n    {thread},\n    {called}"
    mark = '\n  {{\n    {0},\n    "pid": {1}, "tid": {2}, "ts": {3}\n  }}'.format
    keys = '"ph": "i", "s": "g", "name": {}' if text.new else '"name": {}, "ph": "i", "s": "g"'
    start, end = (
        keys.format(json.dumps(marker))
        for marker in ("Iteration Start: PyTorch Profiler", "Record Window End")
    )
    sort_row = [] if text.old else [_name_row(text, start_ns, "process_sort_index", "Spans", 0, LAST)]
    return [
        f'\n  {{\n    "ph": "X", "cat": "Trace", {order},\n    "args": {{\n      "Op count": 0\n    }}\n  }}',
        *sort_row,
        mark(start, '"Traces"', '"Trace PyTorch Profiler"', began),
        mark(end, '""', '""', ended),
    ]


Row = tuple[Any, ...]
_BEFORE_NS: Final = 10_000_000_000  # the capture comes so long before the run
_CALL_NS: Final = 4_000
_MODULE: Final = "nn.Module: "


class Origin(Struct, frozen=True):
    """A captured launch: its event, and the innermost operator and the modules enclosing it."""

    event_id: int
    op_name: str | None
    module_path: str | None


class _Recorder(Struct):
    """Writes the events of captures in their order; an event's id is its position."""

    text: Text
    now_ns: int
    amd: bool
    events: list[dict[str, Any]] = field(default_factory=list)
    stack: list[Frame] = field(default_factory=list)
    open_ids: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)

    def capture(self, graph: Graph, extra: Kernel | None) -> None:
        """One capture of the graph, with a launch after half of its nodes that is not replayed."""
        prefix = "hip" if self.amd else "cuda"
        self.origins.clear()
        self._call(Api(f"{prefix}StreamBeginCapture", 300, _CALL_NS))
        half = len(graph.nodes) // 2
        for op, operand in graph.lines:
            if op is Op.BEGIN and isinstance(operand, Frame):
                shapes = {} if operand.shapes is None else {"Input Dims": operand.shapes}
                self.open_ids.append(self._event(operand.category, operand.name, shapes))
                self.stack.append(operand)
                self.now_ns += operand.lead_ns
            elif op is Op.END:
                frame, event = self.stack.pop(), self.events[self.open_ids.pop()]
                self.now_ns += frame.tail_ns
                event["dur"] = self.now_ns - event["ts"]
            elif isinstance(operand, Kernel | Collective):
                if len(self.origins) == half and extra is not None:
                    self._launch(extra)
                kernel = operand.kernel if isinstance(operand, Collective) else operand
                self.origins.append(self._launch(kernel))
        self._call(Api(f"{prefix}StreamEndCapture", 301, _CALL_NS))

    def _event(self, category: str, name: str, args: dict[str, Any]) -> int:
        thread = {"pid": self.text.pid, "tid": self.text.threads["main"]}
        times = {"ts": self.now_ns, "dur": 0}
        self.events.append({"ph": "X", "cat": category, "name": name, **thread, **times, "args": args})
        return len(self.events) - 1

    def _call(self, api: Api, kernel: Kernel | None = None) -> int:
        args: dict[str, Any] = {"correlation": len(self.events) + 1}
        if self.amd and kernel is not None and kernel.category == "kernel":
            args["kernel"] = kernel.name
        event_id = self._event(api.category, api.name, args)
        self.now_ns += api.ns
        self.events[event_id]["dur"] = api.ns
        return event_id

    def _launch(self, kernel: Kernel) -> Origin:
        ops = [frame.name for frame in self.stack if frame.category == "cpu_op"]
        modules = [frame.name for frame in self.stack if frame.name.startswith(_MODULE)]
        event_id = self._call(kernel.api, kernel)
        return Origin(event_id, ops[-1] if ops else None, " > ".join(modules) or None)

    def texts(self) -> Iterator[str]:
        """The events as JSON, with times as the trace format writes them."""
        for event in self.events:
            ts, dur = self.text.time(event["ts"]), self.text.length(event["dur"])
            yield "\n  " + json.dumps({**event, "ts": 0, "dur": 0}).replace(
                '"ts": 0, "dur": 0', f'"ts": {ts}, "dur": {dur}', 1
            )


def capture_file_name(rank: int) -> str:
    """The file name of a rank's capture."""
    return f"capture_rank{rank}.json.gz"


def write_capture(
    job: Job, rank: int, groups: list[Group], graph: Graph, write: Callable[[str], int]
) -> tuple[Origin, ...]:
    """Writes the capture trace of a rank; returns the origin of each node of its graph."""
    text = Text(job, rank)
    recorder = _Recorder(text, job.start_ns - _BEFORE_NS, job.machine.vendor == "amd")
    first_kernel = next(node for node in graph.nodes if isinstance(node, Kernel))
    extra = Kernel("captured", "captured_only", "kernel", "computation", 1_000, first_kernel.api)
    for _ in range(_captures(job, rank)):
        recorder.capture(graph, extra if rank == 0 else None)
    write(head(job, rank, groups))
    write(",".join(recorder.texts()))
    write(tail(job, rank))
    return tuple(recorder.origins)


def _captures(job: Job, rank: int) -> int:
    return 2 if rank and rank == job.ranks - 1 else 1


def expected_nodes(job: Job, rank: int, rows: list[GpuActivity], origins: tuple[Origin, ...]) -> list[Row]:
    """Rows of the section `graph_nodes`: what is known of each replayed activity."""
    amd, twice = job.machine.vendor == "amd", _captures(job, rank) > 1
    expected: list[Row] = []
    for row in rows:
        if row.node is None:
            continue
        if row.call.rows < len(origins) or rank == 0:
            how = "aligned" if amd else None
        else:
            how = "same_list" if amd else "by_order"
        origin = origins[row.node]
        names = (origin.op_name, origin.module_path) if how else (None, None)
        launch = origin.event_id if how and not twice else None
        is_known = None if how is None else amd and not twice
        expected.append((rank, row.event_id, how, is_known, launch, *names))
    return expected
