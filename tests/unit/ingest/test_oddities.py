"""One test per oddity of the trace format, by its number: small traces, from the file to the tables."""

from __future__ import annotations

import json
import pickle
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

import table_cases
from table_cases import connected
from trace_reading import ReadTrace
from trace_texts import event, gz, trace, write
from tracewarehouse.export.writer import event_texts
from tracewarehouse.formats.base import ACTIVITIES, Outcome
from tracewarehouse.formats.file_text import UnsupportedFormatError
from tracewarehouse.formats.registry import detect
from tracewarehouse.ingest.columns import Columns
from tracewarehouse.ingest.naming import header_facts, rank_in_stored_header, split_path

BASE = 1751410836000000000


class Built:
    """A file in all its tables."""

    def __init__(self, path: Path) -> None:
        self.tables, self.outcome = table_cases.read(path)
        known, made = table_cases.built(self.tables, self.outcome)
        self.con = connected(made, known.facts)
        self.header = json.loads(self.outcome.header_json)

    def of(
        self, table: str, columns: str, where: str = "true", order: str = "event_id"
    ) -> list[tuple[Any, ...]]:
        return self.con.execute(f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {order}").fetchall()

    def quality(self) -> dict[str, int]:
        return dict(self.of("data_quality", "rule, rows", order="rule"))

    def texts(self) -> list[str]:
        """The elements, as an export writes them."""
        self.con.execute("CREATE VIEW ranks AS SELECT run_id, rank, base_time_ns FROM rank_facts")
        return list(event_texts(self.con, "a", 0))

    def repaired(self) -> list[bool]:
        activities = self.tables[ACTIVITIES]
        assert isinstance(activities, Columns)
        return activities.flags("repaired").tolist()  # type: ignore[no-any-return]


def built(folder: Path, events: list[Any], **header: Any) -> Built:
    return Built(write(folder, trace(events, **header)))


def read(folder: Path, data: bytes, name: str = "t.json") -> Outcome:
    return table_cases.read(write(folder, data, name))[1]


def header_of(folder: Path, **header: Any) -> dict[str, Any]:
    return json.loads(read(folder, trace([event()], **header)).header_json)  # type: ignore[no-any-return]


def kernel(**fields: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 7, **fields.pop("args", {})}
    return event(cat="kernel", name="gemm", pid=0, tid=7, args=args, **fields)


def launch(correlation: int, **fields: Any) -> dict[str, Any]:
    return event(cat="cuda_runtime", name="cudaLaunchKernel", args={"correlation": correlation}, **fields)


def test_oddity_01(tmp_path: Path) -> None:
    """A bare list at the top, its first element empty."""
    loaded = Built(write(tmp_path, b'[ {}\n,{"name":"x","ph":"X","ts":"5","dur":"1"}]'))
    assert loaded.outcome.status == "intact" and loaded.outcome.header_json == "{}"
    assert loaded.of("events", "event_id, ph, ts_ns") == [(0, None, None), (1, "X", 5000)]


def test_oddity_02(tmp_path: Path) -> None:
    """Keys in any order: base time and rank after the events."""
    events = json.dumps([event()])
    first = f'{{"baseTimeNanoseconds": {BASE}, "distributedInfo": {{"rank": 3}}, "traceEvents": {events}}}'
    last = f'{{"traceEvents": {events}, "distributedInfo": {{"rank": 3}}, "baseTimeNanoseconds": {BASE}}}'
    for text in (first, last):
        loaded = Built(write(tmp_path, text.encode()))
        assert rank_in_stored_header(loaded.header) == 3
        assert loaded.of("events", "ts_ns") == [(BASE + 5000,)]


def test_oddity_03(tmp_path: Path) -> None:
    """The device table under another name, empty, absent, or without names."""

    def name(**header: Any) -> object:
        return header_facts(header_of(tmp_path, **header))["device_name"]

    assert name(computeProperties=[{"name": "Tesla V100"}]) == "Tesla V100"
    assert name(deviceProperties=[{"name": "A100"}]) == "A100"
    assert [name(deviceProperties=[]), name(), name(deviceProperties=[{"name": ""}] * 8)] == [
        None,
        None,
        None,
    ]


def test_oddity_04(tmp_path: Path) -> None:
    """Unknown top-level keys are kept, digit by digit."""
    header = (
        b'"metadata":{"lists":[[1.50,1e5]],"n":null},"roctracer_version":4.10,"ERROR":["a"],"with_flops":1'
    )
    found = read(tmp_path, b"{" + header + b',"traceEvents":[' + json.dumps(event()).encode() + b"]}")
    assert found.header_json == "{" + header.decode() + "}"


def test_oddity_05(tmp_path: Path) -> None:
    """Misleading names: gzip under .json, plain under .gz, several members, zero padding."""
    data = trace([event()])
    half = len(data) // 2
    ways = {"a.json": gz(data), "b.json.gz": data, "c.raw.gz": gz(data[:half]) + gz(data[half:]) + bytes(512)}
    found = [read(tmp_path, stored, name) for name, stored in ways.items()]
    assert {(one.status, one.events, one.digest) for one in found} == {("intact", 1, found[1].digest)}
    assert [one.stored_bytes for one in found] == [len(stored) for stored in ways.values()]


def test_oddity_06(tmp_path: Path) -> None:
    """Files that differ in one byte are two; the same text stored twice is one."""
    data = trace([event()])
    one, same, other = read(tmp_path, data), read(tmp_path, gz(data)), read(tmp_path, data + b" ")
    assert one.digest == same.digest != other.digest


def test_oddity_07(tmp_path: Path) -> None:
    """More metadata than data: repeated M rows, a header longer than the events."""
    names = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}] * 500
    groups = [{"pg_name": str(at), "ranks": list(range(300))} for at in range(20)]
    loaded = built(tmp_path, [*names, event()], distributedInfo={"rank": 34, "pg_config": groups})
    assert loaded.of("events", "count(*), count(*) FILTER (ph = 'M')", order="1") == [(501, 500)]
    assert len(loaded.header["distributedInfo"]["pg_config"]) == 20


def test_oddity_08(tmp_path: Path) -> None:
    """Times as floats, integers and strings mean the same."""
    texts = ["1704161511420306.491", '"1704161511420306.491"', "8306017670485", '"8306017670485"']
    events = ",".join(f'{{"ph":"X","ts":{text},"dur":"2.5","cat":"cpu_op","name":"a"}}' for text in texts)
    loaded = Built(write(tmp_path, f"[{events}]".encode()))
    floats, ints = (1704161511420306491, 2500), (8306017670485000, 2500)
    assert loaded.of("events", "ts_ns, dur_ns") == [floats, floats, ints, ints]


def test_oddity_09(tmp_path: Path) -> None:
    """Float64 is not enough: nested slices 104 ns apart at epoch scale stay nested."""
    outer = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1712195495521311.104,"dur":1.000}'
    inner = '{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":1,"ts":1712195495521311.204,"dur":0.900}'
    loaded = Built(write(tmp_path, f"[{outer},{inner}]".encode()))
    ns = 1712195495521311104
    assert loaded.of("events", "ts_ns, dur_ns, parent_id, crosses") == [
        (ns, 1000, None, False),
        (ns + 100, 900, 0, False),
    ]


def test_oddity_10(tmp_path: Path) -> None:
    """Since 2.4 times count from a base: absolute = base + ts, also of 7.9e12 µs."""
    event_text = '{"ph":"X","cat":"cpu_op","name":"a","ts":7890123456789.123,"dur":1}'
    loaded = Built(write(tmp_path, f'{{"traceEvents":[{event_text}],"baseTimeNanoseconds":{BASE}}}'.encode()))
    start = BASE + 7890123456789123
    assert loaded.of("events", "ts_ns") == [(start,)]
    assert loaded.of("rank_facts", "start_ns, end_ns", order="1") == [(start, start + 1000)]


def test_oddity_11(tmp_path: Path) -> None:
    """displayTimeUnit is for the viewer: ts stays µs."""
    for unit in ("ms", "ns"):
        assert built(tmp_path, [event()], displayTimeUnit=unit).of("events", "ts_ns, dur_ns") == [
            (5000, 2500)
        ]


def test_oddity_12(tmp_path: Path) -> None:
    """Zero-length, negative, missing and null durations, a kernel at time 0: each kept, none dropped."""
    odd = [kernel(dur=0), kernel(dur=-3.25), kernel(), kernel(dur=None), kernel(ts=0, dur=0), kernel(dur=2e6)]
    del odd[2]["dur"]
    loaded = built(tmp_path, odd)
    assert loaded.of("events", "dur_text") == [(None,), ("-3.25",), (None,), (None,), (None,), ("2000000.0",)]
    assert loaded.of("events", "dur_ns") == [(0,), (None,), (None,), (None,), (0,), (2_000_000_000,)]
    assert loaded.of("events", "extra") == [*[(None,)] * 3, ('{"dur":null}',), *[(None,)] * 2]
    quality = loaded.quality()
    assert (quality["negative_duration"], quality["invalid_time"]) == (1, 2)


def test_oddity_13(tmp_path: Path) -> None:
    """Events out of order in time stay at their position in the file."""
    loaded = built(tmp_path, [event(ts=30.0), event(ts=10.0), event(ts=20.0)])
    assert loaded.of("events", "event_id, ts_ns") == [(0, 30_000), (1, 10_000), (2, 20_000)]


def test_oddity_14(tmp_path: Path) -> None:
    """Kernels that overlap on one stream are both kept, and reported."""
    loaded = built(tmp_path, [kernel(ts=1.0, dur=10.0), kernel(ts=5.0, dur=10.0)])
    assert loaded.of("kernels", "ts_ns, dur_ns") == [(1000, 10_000), (5000, 10_000)]
    assert loaded.of("data_quality", "rows, affected_ns", "rule = 'stream_overlap'", "1") == [(1, 6000)]


def test_oddity_15(tmp_path: Path) -> None:
    """Exact duplicates are real events: kept and counted, not merged."""
    loaded = built(tmp_path, [event(), event(), event()])
    assert len(loaded.of("events", "event_id")) == 3 and loaded.quality()["duplicate_slice"] == 2


def test_oddity_16(tmp_path: Path) -> None:
    """String pids and tids among numbers, distinguished when rebuilt."""
    loaded = built(
        tmp_path, [event(pid="Spans", tid="PyTorch Profiler"), event(tid="25738"), event(tid=25738)]
    )
    assert [json.loads(text)["tid"] for text in loaded.texts()] == ["PyTorch Profiler", "25738", 25738]
    assert loaded.of("events", "tid, extra ->> '$.tid'") == [
        ("PyTorch Profiler", None),
        ("25738", "25738"),
        ("25738", None),
    ]


def test_oddity_17(tmp_path: Path) -> None:
    """Thread ids below zero and above 2^31."""
    loaded = built(tmp_path, [event(tid=-549452224), event(tid=4290336512), event(tid=-1)])
    assert loaded.of("events", "tid") == [("-549452224",), ("4290336512",), ("-1",)]


def test_oddity_18(tmp_path: Path) -> None:
    """A host process whose pid is a device index is not mistaken for the device."""
    loaded = built(tmp_path, [event(pid=0, tid=7), kernel()])
    assert loaded.of("kernels", "event_id, device, stream") == [(1, 0, 7)]
    assert loaded.of("events", "depth") == [(1,), (None,)]


def test_oddity_19(tmp_path: Path) -> None:
    """`stream` by category: -1 and 4294967295 in cuda_sync, "0x0" in hip calls, a pointer in Triton rows."""
    sync = [
        event(cat="cuda_sync", name="Event Sync", args={"stream": stream}) for stream in (-1, 4294967295, 7)
    ]
    hip = event(cat="cuda_runtime", name="hipLaunchKernel", args={"stream": "0x0"})
    triton = event(name="triton_poi_fused", args={"stream": 627365072})
    loaded = built(tmp_path, [*sync, hip, triton, kernel()])
    assert loaded.of("events", "stream") == [(-1,), (-1,), (7,), (None,), (None,), (7,)]
    assert json.loads(loaded.of("events", "args", "event_id = 3")[0][0]) == {"stream": "0x0"}


def test_oddity_20(tmp_path: Path) -> None:
    """Argument keys in old and new spelling."""
    new = event(args={"External id": 5, "Input Dims": [[2]]})
    old = event(args={"external id": 5, "Input dims": [[2]]})
    assert built(tmp_path, [new, old]).of("events", "external_id, shapes") == [(5, "[[2]]")] * 2


def test_oddity_21(tmp_path: Path) -> None:
    """Several category names for one thing; the file's name is kept."""
    pairs = {"Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy"}
    pairs |= {
        "Memset": "gpu_memset",
        "async_gpu": "ac2g",
        "async_cpu_to_gpu": "ac2g",
        "unheard_of": "unheard_of",
    }
    loaded = built(tmp_path, [event(cat=cat) for cat in pairs])
    assert loaded.of("events", "raw_category, category") == list(pairs.items())
    assert loaded.quality()["unknown_category"] == 1


def test_oddity_22(tmp_path: Path) -> None:
    """ProfilerStep#N as Operator, user_annotation, cpu_op, and a second copy on the GPU."""
    for cat in ("Operator", "user_annotation", "cpu_op"):
        step = event(cat=cat, name="ProfilerStep#4", ts=1.0, dur=50.0)
        copy = event(cat="gpu_user_annotation", name="ProfilerStep#4", pid=0, tid=7, ts=20.0, dur=90.0)
        loaded = built(tmp_path, [step, copy, event(ts=5.0)])
        steps = loaded.of("steps", "step, event_id, host_start_ns, host_ns", order="step")
        assert steps == [(4, 0, 1000, 50_000)]
        assert loaded.of("events", "step", "event_id = 2") == [(4,)]


def test_oddity_23(tmp_path: Path) -> None:
    """Collectives by the many names of their kernels; rocclr is not one."""
    names = ["ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "ncclDevKernel_Generic(x)", "rcclKernel"]
    names += ["__amd_rocclr_copyBuffer", "gemm"]
    loaded = built(tmp_path, [{**kernel(), "name": name} for name in names])
    assert [kind for (kind,) in loaded.of("kernels", "kind")] == ["communication"] * 3 + ["computation"] * 2


def test_oddity_24(tmp_path: Path) -> None:
    """Collective arguments, rank lists as strings that hold JSON."""
    args = {
        "Collective name": "allreduce",
        "dtype": "Float",
        "Group size": 8,
        "Process Group Ranks": "[0, 1]",
    }
    loaded = built(tmp_path, [kernel(args=args)])
    assert loaded.of("kernels", "collective, dtype, group_size, kind") == [
        ("allreduce", "Float", 8, "communication")
    ]
    assert json.loads(loaded.of("events", "args")[0][0])["Process Group Ranks"] == "[0, 1]"


def test_oddity_25(tmp_path: Path) -> None:
    """Long names, brackets and quotes of every kind, non-ASCII names."""
    names = [
        "k<" + "a(b){c},[d]" * 500 + ">",
        'q"\\ "args": {',
        "## load | batch #[1] ##",
        "核 naïve 😀",
        "gemm.kd [clone .kd]",
    ]
    loaded = built(tmp_path, [kernel() | {"name": name} for name in names])
    assert [name for (name,) in loaded.of("kernels", "name")] == names


def test_oddity_26(tmp_path: Path) -> None:
    """Copies by category; bytes as a number and as a string."""
    copy = event(cat="gpu_memcpy", name="Memcpy HtoD (Pageable -> Device)", pid=0, tid=7, args={"bytes": 512})
    host = event(cat="cuda_runtime", name="hipMemcpy", args={"bytes": "1024"})
    loaded = built(tmp_path, [copy, host])
    assert loaded.of("kernels", "activity, kind, bytes") == [("memcpy", "memory", 512)]
    assert loaded.of("events", "bytes") == [(512,), (1024,)]


NOISE = ("INVALID", "cudaEventQuery", "hipGetDevicePropertiesR0600")


def test_oddity_27(tmp_path: Path) -> None:
    """Runtime rows named INVALID, and noise calls, are calls but not launches."""
    loaded = built(tmp_path, [launch(1) | {"name": name} for name in NOISE])
    assert loaded.of("runtime", "name, is_launch") == [(name, False) for name in NOISE]


def test_oddity_28(tmp_path: Path) -> None:
    """The names of launches over backends."""
    names = [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernelEx",
        "cudaGraphLaunch",
        "cudaMemcpyAsync",
    ]
    names += ["hipExtModuleLaunchKernel", "hipGraphLaunch", "runFunction - job_prep_and_submit_for_execution"]
    loaded = built(tmp_path, [launch(at + 1) | {"name": name} for at, name in enumerate(names)])
    assert [is_launch for (is_launch,) in loaded.of("runtime", "is_launch")] == [True] * len(names)


def test_oddity_29(tmp_path: Path) -> None:
    """Correlation is not 1:1: a graph launch with many kernels, an id that two calls share."""
    graph = launch(5, ts=1.0, dur=2.0) | {"name": "cudaGraphLaunch"}
    outer, inner = launch(6, ts=10.0, dur=9.0), launch(6, ts=11.0, dur=2.0)
    kernels = [kernel(ts=50.0 + at, dur=0.5, args={"correlation": 5}) for at in range(3)]
    kernels.append(kernel(ts=60.0, dur=1.0, args={"correlation": 6}))
    loaded = built(tmp_path, [graph, outer, inner, *kernels])
    pairs = loaded.of("correlations", "runtime_id, kernel_id, is_graph", order="kernel_id")
    assert pairs == [(0, 3, True), (0, 4, True), (0, 5, True), (1, 6, False)]


def test_oddity_30(tmp_path: Path) -> None:
    """GPU activities without a launch, launches without GPU activities."""
    rows = [kernel(ts=1.0, dur=1.0, args={"correlation": 1}), launch(2, ts=2.0), launch(9, ts=3.0)]
    rows += [
        kernel(ts=20.0, dur=1.0, args={"correlation": 2}),
        kernel(ts=30.0, dur=1.0, args={"correlation": 3}),
    ]
    loaded = built(tmp_path, rows)
    states = loaded.of("kernels", "event_id, launch_state")
    assert states == [(0, "before_window"), (3, "known"), (4, "missing")]
    assert loaded.quality()["launch_without_gpu_activity"] == 1


def test_oddity_31(tmp_path: Path) -> None:
    """GPU activities without External id find their operator through the launch."""
    rows = [event(ts=1.0, dur=10.0), launch(4, ts=2.0, dur=1.0), kernel(ts=20.0, args={"correlation": 4})]
    assert built(tmp_path, rows).of("kernels", "external_id, runtime_id, op_id") == [(None, 1, 0)]


def test_oddity_32(tmp_path: Path) -> None:
    """Flow ids: heads without tails, ids per category, ids beyond 2^53 as strings."""

    def flow(ph: str, cat: str, id_: Any) -> dict[str, Any]:
        return {"ph": ph, "cat": cat, "name": cat, "id": id_, "pid": 1, "tid": 2, "ts": 5.0}

    rows = [flow("s", "ac2g", 7), flow("f", "ac2g", 7), flow("f", "ac2g", 8), flow("f", "fwdbwd", 7)]
    rows += [flow("s", "async_npu", "38654705663123456"), flow("f", "async_npu", "38654705663123456")]
    loaded = built(tmp_path, rows)
    assert loaded.of("flows", "flow_id, start_id") == [
        ("7", 0),
        ("7", 0),
        ("8", None),
        ("7", None),
        ("38654705663123456", 4),
        ("38654705663123456", 4),
    ]


def test_oddity_33(tmp_path: Path) -> None:
    """Sequence number and forward thread link backward to forward."""
    forward, backward = (
        {"Sequence number": 12, "Fwd thread id": 0},
        {"Sequence number": 12, "Fwd thread id": 1},
    )
    loaded = built(tmp_path, [event(args=forward), event(args=backward), event()])
    assert loaded.of("events", "sequence_number, forward_thread") == [(12, 0), (12, 1), (None, None)]


def test_oddity_34(tmp_path: Path) -> None:
    """Cut files: Python frames whose caller is not in the file."""
    frame = {"cat": "python_function", "name": "f"}
    rows = [
        event(**frame, args={"Python id": at, "Python parent id": up})
        for at, up in ((1, None), (2, 1), (9, 8))
    ]
    loaded = built(tmp_path, rows)
    assert loaded.of("events", "python_id, python_parent_id") == [(1, None), (2, 1), (9, 8)]
    assert loaded.quality()["dangling_frame"] == 1


def test_oddity_35(tmp_path: Path) -> None:
    """Arguments of every shape: nested lists, a grid as a string, none at all, not an object."""
    shapes = [
        {"Input Dims": [[1, 2], [[3], []]], "Concrete Inputs": ["", "[1]"]},
        {"grid": "(1, 1, 1)"},
        [1.5],
        "text",
        None,
    ]
    loaded = built(tmp_path, [*(event(args=args) for args in shapes), event()])
    found = [args for (args,) in loaded.of("events", "args")]
    assert [json.loads(args) if args else args for args in found] == [*shapes, None]
    assert loaded.of("events", "extra", "event_id = 4") == [('{"args":null}',)]


def test_oddity_36(tmp_path: Path) -> None:
    """Impossible values are kept as they are, and reported."""
    loaded = built(
        tmp_path, [kernel(args={"block": [524288, 1, 1], "grid": [1, 1, 1], "blocks per SM": 0.07})]
    )
    assert loaded.of("kernels", "block_x, blocks_per_sm") == [(524288, 0.07)]
    assert loaded.quality()["invalid_block_size"] == 1


def test_oddity_37(tmp_path: Path) -> None:
    """[memory] instants with and without category, negative bytes for frees."""
    row = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 2, "ts": 5.0}
    new = row | {
        "cat": "cpu_instant_event",
        "args": {"Bytes": -512, "Device Type": 6, "Total Allocated": 9, "Addr": 7},
    }
    loaded = built(tmp_path, [new, row | {"args": {"Bytes": 64, "Device Type": 0}}])
    columns = "bytes, device_type, total_allocated_bytes, address"
    assert loaded.of("memory_events", columns) == [(-512, 6, 9, 7), (64, 0, None, None)]


def test_oddity_38(tmp_path: Path) -> None:
    """Types that change late in a file: nothing is inferred from the first rows."""
    rows = [event(args={"bytes": 5})] * 3000 + [
        event(args={"bytes": "x", "stream": "0x0"}, ts="7.5", pid="Spans")
    ]
    loaded = built(tmp_path, rows)
    assert loaded.of("events", "ts_ns, pid, bytes", "event_id = 3000") == [(7500, "Spans", None)]
    assert loaded.of("events", "args", "event_id = 3000") == [('{"bytes":"x","stream":"0x0"}',)]


def test_oddity_39(tmp_path: Path) -> None:
    """distributedInfo missing, without rank, with rank only; else the file name has the rank."""
    infos = [None, {"backend": "nccl"}, {"rank": 0}, {"rank": 34, "world_size": 300}]
    headers = [{} if info is None else {"distributedInfo": info} for info in infos]
    found = [rank_in_stored_header(header_of(tmp_path, **header)) for header in headers]
    assert found == [None, None, 0, 34]
    names = [
        "worker0.17.pt.trace.json",
        "rank-3.json.gz",
        "rank_2.json",
        "sampled_rank-1.json",
        "host_77.json",
    ]
    assert [split_path(Path(name)).rank for name in names] == [0, 3, 2, 1, None]


def test_oddity_40(tmp_path: Path) -> None:
    """Process groups: many, without description, with an empty list of ranks, the same ranks twice."""
    groups = [
        {"pg_name": str(at), "pg_desc": "undefined", "ranks": [] if at % 2 else [0, 1]} for at in range(71)
    ]
    header = header_of(tmp_path, distributedInfo={"rank": 0, "pg_config": groups})
    assert json.loads(header_facts(header)["process_groups"]) == groups


def other_format(folder: Path, data: bytes, name: str) -> str:
    """The format that a refused file is reported as."""
    path = write(folder, data, name)
    with pytest.raises(UnsupportedFormatError) as error:
        detect(path).open(path)
    return error.value.format


def test_oddity_41(tmp_path: Path) -> None:
    """Execution traces are not read as events."""
    for schema in ("1.0.1", "1.1.1-chakra.0.0.4"):
        node = {"id": 1, "name": "aten::add", "ts": 5, "ph": "X"}
        data = json.dumps({"schema": schema, "pid": 1, "nodes": [node]}, indent=1).encode()
        assert detect(write(tmp_path, data, "et.json")).name == "execution_trace"
        assert detect(write(tmp_path, gz(data), "et.json.gz")).name == "execution_trace"


def test_oddity_42(tmp_path: Path) -> None:
    """nsys exports, and rpd files beside them, are SQLite: named by their tables."""
    for tables, format_ in (
        (["StringIds"], "nsys_sqlite"),
        (["notes"], "sqlite"),
    ):
        path = tmp_path / f"{format_}.sqlite"
        with sqlite3.connect(path) as con:
            for table in tables:
                con.execute(f"CREATE TABLE {table} (id INTEGER, value TEXT)")
        con.close()
        assert other_format(tmp_path, path.read_bytes(), path.name) == format_


def test_oddity_43(tmp_path: Path) -> None:
    """rocprofv3 JSON and memory timelines are detected."""
    tool = {"rocprofiler-sdk-tool": [{"agents": [], "buffer_records": {"kernel_dispatch": []}}]}
    assert detect(write(tmp_path, json.dumps(tool).encode(), "r.json")).name == "rocprofv3"
    timeline = json.dumps([[-1, 1, 5, 0], [17, 2, 6, 4]]).encode()
    assert detect(write(tmp_path, timeline, "m.raw.json")).name == "memory_timeline"


def test_oddity_44(tmp_path: Path) -> None:
    """A hostile memory snapshot does nothing."""

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "owned",))

    snapshot = pickle.dumps({"segments": [], "device_traces": [Hostile()]}, protocol=4)
    assert detect(write(tmp_path, snapshot, "snapshot.pickle")).name == "memory_snapshot"
    with pytest.raises(UnsupportedFormatError, match="pathlib"):
        ReadTrace(tmp_path / "snapshot.pickle")
    assert not (tmp_path / "owned").exists()


ONE = json.dumps(event())
WINDOWS = "C:\\_x\\new\\file.py(1)"
NUMBERS = ONE.replace("2.5}", '2.5, "args": {"x": [-Infinity, 1.5]}}').replace("2.5,", "NaN,")
DEFECTS = {
    "windows backslashes": (event(name=WINDOWS), ONE.replace('"op"', f'"{WINDOWS}"')),
    "control characters": (event(name="a\x01b\nc"), ONE.replace('"op"', '"a\x01b\nc"')),
    "lone surrogate": (event(name="a\\ud800 b"), ONE.replace('"op"', r'"a\ud800 b"')),
    "not utf-8": (event(name="a\\xff b"), ONE.replace('"op"', '"a\udcff b"')),
    "nan": (event(dur="NaN", args={"x": ["-Infinity", 1.5]}), NUMBERS),
    "quotes": (event(name='a "b" c'), ONE.replace('"op"', '"a "b" c"')),
    "missing comma": (event(), ONE.replace(', "tid"', ' "tid"')),
}


def test_oddity_45(tmp_path: Path) -> None:
    """JSON defects: each event is recovered, repaired if possible, and none of these files is intact."""
    for what, (wanted, text) in DEFECTS.items():
        data = f'{{"traceEvents": [{ONE}, {text}, {ONE}], "traceName": "a]b"}}'.encode(
            errors="surrogateescape"
        )
        loaded = Built(write(tmp_path, data))
        assert loaded.outcome.status == "repaired" and loaded.outcome.losses, what
        assert [json.loads(text) for text in loaded.texts()] == [event(), wanted, event()], what
        assert loaded.repaired() == [False, True, False], what
    whole = f'{{"traceEvents": [{ONE}, {ONE}], "traceName": "a]b"}}'
    ends = {
        "bom": ("\ufeff" + whole, "repaired"),
        "trailing comma": (whole.replace("}]", "},]").replace("}], ", "},], "), "repaired"),
        "log line": (whole + "\n[INFO] done\n", "repaired"),
        "no end": (whole[: whole.index("]")], "damaged"),
        "two keys": (whole[:-1] + f', "traceEvents": [{ONE}]}}', "repaired"),
        "lines": (f"{ONE}\n{ONE}\n", "repaired"),
    }
    for what, (text, status) in ends.items():
        found = read(tmp_path, text.encode())
        assert (found.status, found.events) == (status, 3 if what == "two keys" else 2), what
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        assert read(tmp_path, whole.encode(encoding)).events == 2
    cut = read(tmp_path, gz(whole.encode())[:-20])
    assert cut.status == "damaged" and cut.losses[-1].reason == "the gzip stream is cut short"


def test_all_45_exist() -> None:
    names = [name for name in vars(sys.modules[__name__]) if name.startswith("test_oddity_")]
    assert names == [f"test_oddity_{number:02d}" for number in range(1, 46)]
    assert all(getattr(sys.modules[__name__], name).__doc__ for name in names)
