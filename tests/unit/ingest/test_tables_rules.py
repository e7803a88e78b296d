"""Tables of small traces, definition by definition."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

import tracewarehouse as tw
from table_cases import built, call, gpu, read, rows, rules, slice_, tables_of, trace
from tracewarehouse.export.writer import event_texts
from tracewarehouse.formats.base import Defect
from tracewarehouse.formats.stored_source import StoredSource
from tracewarehouse.ingest.columns import Columns

EPOCH_US = 1_712_195_495_521_311


def test_epoch_times_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": %s, "dur": %s}'
    texts = [
        event % ("1712195495521311.104", "0.021"),
        event % ("1712195495521311.10400000000000", "1.0000004"),
        event % ('"1712195495521311.104"', '"7"'),
    ]
    con = tables_of(trace(tmp_path, texts, {"baseTimeNanoseconds": 1_000}))
    times = rows(con, "SELECT ts_ns, dur_ns, ts_text, dur_text FROM events ORDER BY event_id")
    start = EPOCH_US * 1000 + 104 + 1_000
    assert times == [
        (start, 21, None, None),
        (start, 1000, "1712195495521311.10400000000000", "1.0000004"),
        (start, 7000, None, None),
    ]


def test_a_time_beyond_64_bits_is_null_but_kept(tmp_path: Path) -> None:
    late = 2**63 - 1_000_000
    con = tables_of(
        trace(
            tmp_path,
            [slice_("a", 999, 1), slice_("b", 999, 2), slice_("c", 1001, 1)],
            {"baseTimeNanoseconds": late},
        )
    )
    times = rows(con, "SELECT ts_ns, dur_ns, ts_text, dur_text FROM events ORDER BY event_id")
    assert times == [
        (late + 999_000, None, None, "1"),
        (late + 999_000, None, None, "2"),
        (None, None, "1001", "1"),
    ]


def test_ends_are_rounded_not_lengths(tmp_path: Path) -> None:
    con = tables_of(trace(tmp_path, [slice_("a", 0.0004, 0.0004), slice_("b", 0.0008, 0.001)]))
    assert rows(con, "SELECT ts_ns, dur_ns FROM events ORDER BY event_id") == [(0, 1), (1, 1)]


def test_ids_beyond_64_bits_stay_in_args(tmp_path: Path) -> None:
    flow = {"ph": "s", "cat": "HostToDevice", "name": "x", "pid": 1, "tid": 1, "ts": 1, "id": "38654705663"}
    top = 18_446_744_073_709_551_615
    con = tables_of(trace(tmp_path, [slice_("a", 1, 1, **{"External id": top, "correlation": 2**62}), flow]))
    assert rows(con, "SELECT external_id, correlation FROM events WHERE ph = 'X'") == [(None, 2**62)]
    assert rows(con, "SELECT args ->> 'External id' FROM events WHERE ph = 'X'") == [(str(top),)]
    assert rows(con, "SELECT flow_id, category, role FROM flows") == [("38654705663", "ac2g", "start")]


def test_old_spellings_mean_the_same(tmp_path: Path) -> None:
    old = [
        slice_("aten::mm", 0, 50, "Operator", "25738", **{"Input dims": [[2, 3]]}),
        slice_("cudaLaunchKernel", 10, 5, "Runtime", "25738", **{"correlation": 5, "external id": 2}),
        gpu("gemm", 30, 9, 5, cat="Kernel", tid="stream 7", args={"correlation": 5, "external id": 2}),
        gpu("Memset (Device)", 40, 1, cat="Memset", tid="stream 7", args={}),
    ]
    con = tables_of(trace(tmp_path, old))
    assert rows(con, "SELECT category, raw_category, tid FROM events WHERE event_id = 0") == [
        ("cpu_op", "Operator", "25738")
    ]
    sql = "SELECT activity, kind, device, stream, external_id, op_id, op_sig FROM kernels ORDER BY event_id"
    assert rows(con, sql) == [
        ("kernel", "computation", 0, 7, 2, 0, "aten::mm [[2,3]]"),
        ("memset", "memory", 0, 7, None, None, None),
    ]


def test_streams_of_operators_and_syncs_are_not_gpu_activities(tmp_path: Path) -> None:
    events = [
        slice_("triton_red", 0, 9, stream=627_365_072),
        slice_("Stream Sync", 2, 3, "cuda_sync", stream=4_294_967_295, device=0),
        slice_("hipMemsetAsync", 4, 1, "cuda_runtime", stream="0x0", bytes="64"),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT stream FROM events ORDER BY event_id") == [(None,), (-1,), (None,)]
    assert rows(con, "SELECT count(*) FROM kernels") == [(0,)]
    assert rows(con, "SELECT kind, stream, device FROM syncs") == [("Stream Sync", -1, 0)]


def test_a_recorded_event_belongs_to_its_stream_and_is_not_a_host_slice(tmp_path: Path) -> None:
    marks = [
        slice_("cudaEvent", at, 0.001, "cuda_event", 7, stream=7, device=0, correlation=3) | {"pid": 0}
        for at in (4, 90)
    ]
    host = [step(1, 0, 20), slice_("op", 1, 9), call("cudaLaunchKernel", 2, 1, 2), gpu("a", 5, 2, 2)]
    last = [step(2, 20, 20), call("cudaLaunchKernel", 22, 1, 5), gpu("b", 25, 3, 5), gpu("c", 41, 1)]
    con = tables_of(trace(tmp_path, [*host, *last, *marks]))
    assert rows(con, "SELECT device, stream, depth, step FROM events WHERE category = 'cuda_event'") == [
        (0, 7, None, None),
        (0, 7, None, None),
    ]
    assert rows(con, "SELECT count(*) FROM kernels") == [(3,)]
    assert rows(con, "SELECT step, partial FROM steps ORDER BY step") == [(1, True), (2, True)]
    assert "unknown_category" not in rules(con)


def test_calls_of_other_vendors_launch(tmp_path: Path) -> None:
    for vendor in ("musa", "gcu"):
        outer = slice_(f"{vendor}LaunchKernel", 1, 5, f"{vendor}_runtime", correlation=3)
        inner = slice_(f"{vendor}ModuleLaunchKernel", 2, 3, f"{vendor}_driver", correlation=3)
        con = tables_of(trace(tmp_path, [slice_("op", 0, 9), outer, inner, gpu("a", 8, 2, 3)]))
        assert rows(con, "SELECT event_id, api, correlation FROM runtime ORDER BY 1") == [
            (1, "privateuse1_runtime", 3),
            (2, "privateuse1_driver", 3),
        ]
        assert rows(con, "SELECT runtime_id, op_id FROM kernels") == [(1, 0)]
        assert rules(con) == {"unknown_category": (2, 8_000)}


def test_a_slice_of_days_has_lost_its_start_or_its_end(tmp_path: Path) -> None:
    day = 24 * 3_600_000_000
    stuck = [gpu("stuck", EPOCH_US - 55 * 365 * day, 55 * 365 * day, 1) for _ in range(9)]
    con = tables_of(trace(tmp_path, [slice_("open", EPOCH_US, 2 * day), *stuck, gpu("a", EPOCH_US, day, 1)]))
    assert rows(con, "SELECT name, dur_ns FROM kernels") == [("a", day * 1000)]
    assert rows(con, "SELECT dur_ns, dur_text FROM events WHERE name = 'open'") == [(None, str(2 * day))]
    assert rules(con)["invalid_time"] == (10, None)


def test_a_call_of_another_decade_launched_nothing(tmp_path: Path) -> None:
    host = [
        slice_("op", EPOCH_US, 900),
        *(call("cudaLaunchKernel", EPOCH_US + at, 1, at) for at in range(1, 9)),
    ]
    con = tables_of(trace(tmp_path, [*host, *(gpu("a", 2 * at, 1, at) for at in range(1, 9))]))
    assert rules(con) == {"missing_launch": (8, 8_000), "launch_without_gpu_activity": (8, 8_000)}


def test_ranks_merged_into_one_file_are_reported(tmp_path: Path) -> None:
    both = [
        event | {"pid": f"[TP{rank}] {event['pid']}"}
        for rank in (0, 1)
        for event in (call("cudaLaunchKernel", rank, 1, 1), gpu("a", 5 + rank, 2, 1))
    ]
    assert rules(tables_of(trace(tmp_path, both)))["multiple_processes"] == (1, 2_000)
    apart = [gpu("a", 0, 2), gpu("b", 0, 2, pid=1, args={"device": 1, "stream": 7})]
    assert "multiple_processes" not in rules(tables_of(trace(tmp_path, apart)))
    calls = [call("cudaLaunchKernel", at, 1, at, pid=pid) for at, pid in ((1, "a"), (2, "b"), (3, "a"))]
    unknown = [*calls, call("cudaLaunchKernel", 4, 1, 1, pid=None), gpu("a", 5, 2, 3), gpu("b", 8, 2, 2)]
    assert "multiple_processes" not in rules(tables_of(trace(tmp_path, unknown)))


def test_begin_and_end_make_a_slice(tmp_path: Path) -> None:
    def mark(ph: str, name: str, ts: int) -> dict[str, object]:
        return {"ph": ph, "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts}

    events = [
        mark("B", "out", 0),
        mark("B", "in", 2),
        mark("E", "in", 5),
        mark("E", "out", 9),
        mark("B", "x", 9),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT event_id, dur_ns, end_id, parent_id FROM events WHERE ph = 'B' ORDER BY 1") == [
        (0, 9000, 3, None),
        (1, 3000, 2, 0),
        (4, None, None, None),
    ]
    assert rules(con)["unpaired_begin_end"] == (1, None)


def test_rows_without_valid_times_are_kept_and_counted(tmp_path: Path) -> None:
    at = EPOCH_US
    events = [
        gpu("good", at, 5),
        gpu("negative", at + 10, -3.25),
        gpu("no length", at + 20, 1) | {"dur": None},
        gpu("zero", 0, 5),
        gpu("word", at, 1) | {"ts": "N/A"},
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT name FROM kernels") == [("good",)]
    assert rows(con, "SELECT count(*) FROM events WHERE name IS NOT NULL") == [(5,)]
    fired = rules(con)
    assert fired["negative_duration"] == fired["epoch_zero"] == (1, None)
    assert fired["invalid_time"] == (2, None)


def test_a_trace_that_begins_at_zero_has_no_epoch_zero(tmp_path: Path) -> None:
    con = tables_of(trace(tmp_path, [gpu("first", 0, 5), gpu("second", 10, 5)]))
    assert rows(con, "SELECT ts_ns FROM kernels ORDER BY 1") == [(0,), (10_000,)]
    assert "epoch_zero" not in rules(con)


def test_of_calls_that_share_an_id_the_outermost_launches(tmp_path: Path) -> None:
    events = [
        call("hipArray3DCreate", 11, 2, 7),
        call("hipMemsetAsync", 10, 5, 7),
        gpu("Memset", 20, 1, 7, cat="gpu_memset"),
        gpu("no id", 21, 1, 0),
        call("cudaEventQuery", 1, 1, 0),
        call("cudaEventQuery", 2, 1, -1),
        gpu("minus one", 22, 1, -1),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT event_id, runtime_id, launch_state FROM kernels ORDER BY 1") == [
        (2, 1, "known"),
        (3, None, "missing"),
        (6, None, "missing"),
    ]
    assert rows(con, "SELECT call_to_start_ns, return_to_start_ns, is_graph, via FROM correlations") == [
        (10_000, 5_000, False, "correlation")
    ]


def test_an_id_used_again_is_linked_to_the_call_before(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 0, 2, 7),
        gpu("a", 5, 1, 7),
        call("cudaLaunchKernel", 10, 2, 7),
        gpu("b", 15, 1, 7),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT event_id, runtime_id FROM kernels ORDER BY 1") == [(1, 0), (3, 2)]
    assert rules(con)["correlation_reused"] == (1, None)


def test_a_graph_launch_has_many_rows(tmp_path: Path) -> None:
    events = [
        call("cudaGraphLaunch", 0, 2, 7),
        gpu(
            "a", 5, 1, 7, args={"correlation": 7, "graph id": 1, "graph node id": 3, "device": 0, "stream": 7}
        ),
        gpu("b", 6, 1, 7),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT runtime_id, kernel_id, is_graph FROM correlations ORDER BY 2") == [
        (0, 1, True),
        (0, 2, True),
    ]
    assert rows(con, "SELECT graph_id, graph_node_id FROM kernels ORDER BY event_id") == [
        (1, 3),
        (None, None),
    ]
    assert "many_activities_per_launch" not in rules(con)


def test_rows_before_the_first_linked_one_of_their_stream(tmp_path: Path) -> None:
    other = {"device": 0, "stream": 9}
    events = [
        gpu("early", 1, 1),
        call("cudaLaunchKernel", 2, 1, 7),
        gpu("linked", 5, 1, 7),
        gpu("late", 8, 1),
        gpu("other stream", 1, 1, args=other, tid=9),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT name, launch_state FROM kernels ORDER BY event_id") == [
        ("early", "before_window"),
        ("linked", "known"),
        ("late", "missing"),
        ("other stream", "missing"),
    ]
    fired = rules(con)
    assert fired["before_window"] == (1, 1000)
    assert fired["missing_launch"] == (2, 2000)


def test_without_an_id_the_flow_links(tmp_path: Path) -> None:
    def flow(ph: str, pid: int, tid: int, ts: int) -> dict[str, object]:
        return {"ph": ph, "cat": "ac2g", "name": "ac2g", "id": 3, "pid": pid, "tid": tid, "ts": ts}

    launch = slice_("cudaLaunchKernel", 10, 5, "cuda_runtime")
    query = slice_("cudaGetDevice", 11, 0.5, "cuda_runtime")
    flows = [flow("s", 1, 1, 12), flow("f", 0, 7, 20)]
    con = tables_of(trace(tmp_path, [launch, gpu("a", 20, 1), *flows, query]))
    assert rows(con, "SELECT runtime_id, kernel_id, via FROM correlations") == [(0, 1, "flow")]
    assert rules(con)["launch_by_flow"] == (1, 1000)
    assert rows(con, "SELECT role, start_id FROM flows ORDER BY event_id") == [("start", 2), ("end", 2)]


def test_gpu_activities_without_category_are_known_by_their_process(tmp_path: Path) -> None:
    def named(pid: object, name: str) -> dict[str, object]:
        return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}

    def bare(pid: object, tid: object, name: str, ts: int) -> dict[str, object]:
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": 2}

    events = [
        named(800, "Ascend Hardware"),
        named("2", "GPU2"),
        bare(800, 3, "aclnnMm", 1),
        bare("2", "0", "CopyHostToDevice", 2),
        bare(7, 7, "hipMemcpy", 1),
        bare(7, 7, "Free", 9),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT event_id, activity, device, stream FROM kernels ORDER BY 1") == [
        (2, "kernel", 800, 3),
        (3, "memcpy", 2, 0),
    ]
    assert rows(con, "SELECT category, raw_category FROM events WHERE event_id > 3 ORDER BY event_id") == [
        ("cuda_runtime", None),
        (None, None),
    ]


def step(number: int, ts: int, dur: int) -> dict[str, object]:
    return slice_(f"ProfilerStep#{number}", ts, dur, "user_annotation")


def test_steps_and_their_periods(tmp_path: Path) -> None:
    events = [
        slice_("before", 0, 5),
        *(step(n, 10 * n, 10) for n in (1, 2, 3)),
        call("cudaLaunchKernel", 12, 1, 1),
        gpu("a", 15, 10, 1),
        call("cudaLaunchKernel", 22, 1, 2),
        gpu("b", 26, 10, 2),
        call("cudaLaunchKernel", 32, 1, 3),
        gpu("c", 40, 5, 3),
        slice_("after", 50, 5),
    ]
    con = tables_of(trace(tmp_path, events))
    columns = "step, host_start_ns, host_ns, device_start_ns, device_ns, period_start_ns, period_ns, partial"
    assert rows(con, f"SELECT {columns} FROM steps ORDER BY step") == [
        (1, 10_000, 10_000, 15_000, 10_000, 10_000, 15_000, True),
        (2, 20_000, 10_000, 26_000, 10_000, 25_000, 11_000, False),
        (3, 30_000, 10_000, 40_000, 5_000, 36_000, 9_000, True),
    ]
    assert rows(con, "SELECT name, step FROM kernels ORDER BY event_id") == [("a", 1), ("b", 2), ("c", 3)]
    assert rows(con, "SELECT name, step FROM events WHERE name IN ('before', 'after') ORDER BY 1") == [
        ("after", None),
        ("before", None),
    ]


def test_a_single_step_is_kept_and_flagged(tmp_path: Path) -> None:
    con = tables_of(trace(tmp_path, [step(7, 0, 10), slice_("a", 0, 9)]))
    assert rows(con, "SELECT step, host_ns, device_ns, period_ns, partial FROM steps") == [
        (7, 10_000, None, 10_000, True)
    ]


def test_a_step_inside_another_takes_over_while_it_lasts(tmp_path: Path) -> None:
    con = tables_of(trace(tmp_path, [step(1, 0, 10), step(2, 2, 3), *(slice_("a", t, 1) for t in (1, 3, 7))]))
    assert rows(con, "SELECT step FROM events WHERE name = 'a' ORDER BY event_id") == [(1,), (2,), (1,)]


def test_passes_of_training(tmp_path: Path) -> None:
    def launched(n: int, ts: int, *around: dict[str, object]) -> list[dict[str, object]]:
        return [*around, call("cudaLaunchKernel", ts + 5, 1, n), gpu(f"k{n}", ts + 8, 1, n)]

    evaluate = "autograd::engine::evaluate_function: "
    events = [
        *launched(1, 0, slice_("aten::mm", 0, 9)),
        *launched(2, 10, slice_(f"{evaluate}MmBackward0", 10, 9), slice_("aten::mm", 11, 8)),
        *launched(3, 20, slice_(f"{evaluate}CheckpointFunctionBackward", 20, 9), slice_("aten::mm", 21, 8)),
        *launched(
            4, 30, slice_("Optimizer.step#SGD.step", 30, 9, "user_annotation"), slice_("aten::add_", 31, 8)
        ),
        *launched(5, 40, slice_("enumerate(DataLoader)#_Iter.__next__", 40, 9, "user_annotation")),
        *launched(6, 50),
    ]
    con = tables_of(trace(tmp_path, events))
    assert [name for (name,) in rows(con, "SELECT pass FROM kernels ORDER BY event_id")] == [
        "forward",
        "backward",
        "recompute",
        "optimizer",
        "data",
        "other",
    ]
    sql = "SELECT note.name FROM kernels JOIN annotations AS note ON note.event_id = kernels.annotation_id"
    assert [name[:9] for (name,) in rows(con, f"{sql} ORDER BY kernels.event_id")] == [
        "Optimizer",
        "enumerate",
    ]


def test_the_attribution_of_a_kernel(tmp_path: Path) -> None:
    events = [
        slice_("nn.Module: Net_0", 0, 100, "python_function", **{"Python id": 1, "Python module id": 4}),
        slice_("nn.Module: Linear_1", 1, 90, "python_function", **{"Python id": 2, "Python parent id": 1}),
        slice_("aten::linear", 2, 80, **{"Input Dims": [[2]], "Input type": ["float"]}),
        slice_("aten::mm", 3, 70, **{"Input Dims": [[2], []], "Input type": ["float", "Scalar"]}),
        call("cudaLaunchKernel", 10, 5, 1),
        gpu("gemm", 20, 5, 1),
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(con, "SELECT runtime_id, op_id, top_op_id, module_id, op_sig, path_sig FROM kernels") == [
        (
            4,
            3,
            2,
            1,
            'aten::mm [[2],[]] ["float","Scalar"]',
            "nn.Module: Net_0 > nn.Module: Linear_1 > aten::linear > aten::mm",
        )
    ]
    assert rows(con, "SELECT op_id, is_launch FROM runtime") == [(3, True)]


def test_short_names_and_kinds(tmp_path: Path) -> None:
    names = {
        "void at::native::vectorized<4, F<c10::Half> >(int, F<c10::Half>)": "at::native::vectorized",
        "void at::(anonymous namespace)::fill<float>(float*)": "at::(anonymous namespace)::fill",
        "Cijk_Alik_MT64.kd": "Cijk_Alik_MT64",
        "ncclDevKernel_AllReduce(args)": "ncclDevKernel_AllReduce",
        "rocclr_fill": "rocclr_fill",
    }
    con = tables_of(trace(tmp_path, [gpu(name, n, 1) for n, name in enumerate(names)]))
    found = rows(con, "SELECT short_name, kind FROM kernels ORDER BY event_id")
    assert [short for short, _ in found] == list(names.values())
    assert [kind for _, kind in found] == ["computation"] * 3 + ["communication", "computation"]


def test_a_collective_takes_its_arguments_from_the_operator_where_it_has_none(tmp_path: Path) -> None:
    said = {
        "Collective name": "allreduce", "Process Group Name": "0", "Group size": 8, "dtype": "Float",
        "In msg nelems": 64, "Out msg nelems": 65, "Seq": 9,
    }  # fmt: skip
    events = [
        slice_("record_param_comms", 0, 50, **said),
        call("hipLaunchKernel", 5, 1, 1),
        gpu("ncclDevKernel_Generic(args)", 10, 5, 1),
        gpu("plain", 30, 5, args={"device": 0, "stream": 8, **said, "Seq": 10}),
    ]
    con = tables_of(trace(tmp_path, events))
    columns = "kind, collective, process_group, group_size, dtype, in_elements, out_elements, sequence"
    assert rows(con, f"SELECT {columns} FROM kernels ORDER BY event_id") == [
        ("communication", "allreduce", "0", 8, "Float", 64, 65, 9),
        ("communication", "allreduce", "0", 8, "Float", 64, 65, 10),
    ]


def test_memory_events_and_counters(tmp_path: Path) -> None:
    freed = {
        "Bytes": -512,
        "Addr": 139_637,
        "Device Type": 1,
        "Device Id": 0,
        "Total Allocated": 64,
        "Ev Idx": 3,
    }
    instant = {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 1}
    events = [
        slice_("aten::empty", 0, 10),
        slice_("aten::inner", 1, 2),
        instant | {"ts": 5, "args": freed},
        instant | {"ts": 50, "args": {"Bytes": 8}},
        {"ph": "C", "name": "GPU 0", "pid": 0, "ts": 3, "args": {"busy": 0.5, 'a "/~b"': "7", "word": "x"}},
    ]
    con = tables_of(trace(tmp_path, events))
    assert rows(
        con, "SELECT bytes, address, device, total_allocated_bytes, event_index, op_id FROM memory_events"
    ) == [
        (-512, 139_637, 0, 64, 3, 0),
        (8, None, None, None, None, None),
    ]
    assert rows(con, "SELECT series, value FROM counters ORDER BY 1") == [
        ('a "/~b"', 7.0),
        ("busy", 0.5),
        ("word", None),
    ]


def test_each_rule_of_streams_and_calls(tmp_path: Path) -> None:
    events = [
        slice_("op", 0, 10),
        slice_("late", 5, 10),
        slice_("op", 0, 10),
        slice_("odd", 60, 1, "no_such_category"),
        slice_("frame", 61, 1, "python_function", **{"Python id": 8, "Python parent id": 5}),
        call("cudaLaunchKernel", 20, 1, 1),
        gpu("a", 19, 10, 1, args={"correlation": 1, "device": 0, "stream": 7, "block": [524288, 1, 1]}),
        gpu("b", 25, 10, 1),
        call("cudaLaunchKernel", 40, 1, 9),
        call("frobnicate", 45, 1, 2),
        gpu("c", 50, 1, 2),
        "null",
        "{}",
        {"ph": "f", "cat": "fwdbwd", "name": "x", "id": 1, "pid": 1, "tid": 1, "ts": 1},
    ]
    con = tables_of(trace(tmp_path, events))
    assert rules(con) == {
        "non_event": (2, None),
        "unknown_category": (1, 1_000),
        "duplicate_slice": (1, 10_000),
        "crossing_slice": (1, 5_000),
        "dangling_frame": (1, 1_000),
        "flow_without_start": (1, None),
        "many_activities_per_launch": (1, 10_000),
        "launch_without_gpu_activity": (1, 1_000),
        "unknown_launch": (1, 1_000),
        "start_before_launch": (1, 1_000),
        "stream_overlap": (1, 4_000),
        "invalid_block_size": (1, 10_000),
    }
    assert rows(con, "SELECT example FROM data_quality WHERE rule = 'crossing_slice'") == [("#1 late",)]


def test_elements_that_are_not_objects_round_trip(tmp_path: Path) -> None:
    texts = [
        "null",
        '"text"',
        "[1, 2.50]",
        "12",
        "{}",
        '{"ph": null, "ts": null}',
        '{"name": "a", "name": "b"}',
    ]
    con = tables_of(trace(tmp_path, texts))
    con.execute("CREATE VIEW ranks AS SELECT run_id, rank, base_time_ns FROM rank_facts")
    back = list(event_texts(con, "a", 0))
    assert [json.loads(text) for text in back] == [json.loads(text) for text in texts]
    assert '"a"' in back[-1]
    assert rows(con, "SELECT non_events FROM rank_facts") == [(7,)]


def test_tables_rebuilt_from_events_are_the_same(tmp_path: Path) -> None:
    events = [
        step(1, 0, 50),
        call("cudaLaunchKernel", 1, 1, 1),
        gpu("a", 5, 1, 1),
        slice_("x", 1, 1) | {"pid": "1"},
    ]
    finding = Defect("lost_events", 3, "bytes 1 to 2")
    tables, outcome = read(trace(tmp_path, [*events, "null"]))
    outcome = replace(outcome, findings=(finding,))
    facts, made = built(tables, outcome)
    source = StoredSource({"events": [made["events"]]}, outcome)
    again = {name: Columns.read(reader) for name, reader in source.tables.items()}
    facts_again, made_again = built(again, source.outcome())
    assert facts_again == facts and finding.rule in facts.quality
    assert {name: rows.to_pylist() for name, rows in made_again.items()} == {
        name: rows.to_pylist() for name, rows in made.items()
    }


def test_tables_of_rules_are_read_but_not_stored(tmp_path: Path) -> None:
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(trace(tmp_path, [gpu("gemm", 1, 1, 1)]), run="a")
    (run,) = warehouse.query("SELECT schema_versions FROM runs").rows()
    assert "kernels" in dict(run["schema_versions"])
    assert "collective_rules" not in dict(run["schema_versions"])
    rules_said = warehouse.query("SELECT collective FROM collective_rules WHERE rule_id = 1").rows()
    assert rules_said == [{"collective": "reduce_scatter"}]
