"""Profiles of JAX: written ones for GPUs and TPUs, damaged ones, that of a CPU, and a real one if there."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracewarehouse as tw
from conftest import real_traces
from tracewarehouse.formats.protobuf import Wire
from xplane_writer import Event, Line, Plane, Value, events_in, field, xspace

FOLDER = real_traces()
EPOCH = 1_771_595_639_000_000_000
TASK = Plane("Task Environment", stats={"profile_start_time": EPOCH})
METADATA = Plane("/host:metadata", stats={"process_id": 42, "jax_version": "0.10.2"})
LAUNCH: dict[str, Value] = {"hlo_op": "ref:fusion.1", "hlo_module": "ref:jit_f"}
DETAILS = "regs:32 static_shared:16 dynamic_shared:8 grid:4,2,1 block:128,1,1 occ_pct:50"
REDUCE = "all-reduce-start.1"
GATHER = "%all-gather-start.1 = all-gather-start(%x)"
DOT: dict[str, Value] = {"hlo_category": "convolution", "flops": 1024, "tf_op": "jit(f)/layer1/dot"}
COPY = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"


def gpu(number: int, correlation: int = 7) -> Plane:
    copy: dict[str, Value] = {"correlation_id": correlation + 1, "memcpy_details": COPY}
    kernel: dict[str, Value] = {"correlation_id": correlation, "kernel_details": f"ref:{DETAILS}", **LAUNCH}
    return Plane(
        f"/device:GPU:{number}",
        [
            Line(17, "Stream #17(Compute,MemcpyH2D)", 1_000, [
                Event("MemcpyH2D", 100_999, 1_000, copy),
                Event("fusion", 5_000_999, 2_000_001, kernel),
            ]),
            Line(18, "Stream #18(Compute)", 1_000, [
                Event("ncclDevKernel_AllReduce_Sum_f32", 6_000_000, 4_000_000, {"hlo_op": REDUCE}),
            ]),
            Line(90, "XLA Modules", 1_000, [Event("jit_f(3)", 0, 20_000_000)]),
        ],
        {"device_type_string": "H100", "memory_size": 80 << 30, "core_count": 132},
    )  # fmt: skip


def host(*launches: tuple[int, int]) -> Plane:
    calls = [Event("cuLaunchKernel", at, 500_000, {"correlation_id": id_, **LAUNCH}) for at, id_ in launches]
    return Plane(
        "/host:CPU",
        [
            Line(5, "python", 0, [
                Event("$train.py:12 main", 0, 30_000_000),
                Event("train", 1_000_000, 9_000_000, {"step_num": 3}),
                Event("train", 10_000_000, 9_000_000, {"step_num": 4}),
                Event("PjitFunction(f)", 1_500_000, 3_000_000),
                Event("forward", 2_000_000, 1_000_000),
                *calls,
            ]),
            Line(6, "tf_pjrt_thread_pool/1", 0, [Event("Wait", 0, 1_000_000)]),
        ],
    )  # fmt: skip


def ingest(path: Path, content: bytes, **options: Any) -> tw.Warehouse:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    warehouse = tw.open(path.parent / "warehouse")
    (*_, file) = warehouse.ingest(path, run="run", **options).files
    assert file.state == "intact", file
    return warehouse


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql).rows()]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_streams_of_a_gpu(tmp_path: Path, pack: Any) -> None:
    content = xspace(METADATA, gpu(0), host((2_100_000, 7), (1_000_000, 8)), TASK)
    name = "a.xplane.pb" if pack is bytes else "a.xplane.pb.gz"
    warehouse = ingest(tmp_path / name, pack(content))
    # Starts and ends are rounded down, each.
    assert rows(
        warehouse,
        f"SELECT name, kind, ts_ns - {EPOCH}, dur_ns, stream, bytes, grid_y, block_x, registers_per_thread,"
        " shared_memory_bytes, launch_state, step, collective FROM kernels ORDER BY ts_ns",
    ) == [
        ("Memcpy HtoD (Pageable -> Device)", "memory", 1100, 1, 17, 4096, *[None] * 4, "known", 3, None),
        ("fusion", "computation", 6000, 2001, 17, None, 2, 128, 32, 24, "known", 3, None),
        ("ncclDevKernel_AllReduce_Sum_f32", "communication", 7000, 4000, 18, *[None] * 5, "missing", None,
         "all_reduce"),
    ]  # fmt: skip
    assert rows(warehouse, "SELECT category, name FROM events WHERE category <> 'kernel' ORDER BY ALL") == [
        ("cuda_driver", "cuLaunchKernel"),
        ("cuda_driver", "cuLaunchKernel"),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
        ("gpu_user_annotation", "jit_f(3)"),
        ("library", "PjitFunction(f)"),
        ("library", "Wait"),
        ("python_function", "train.py(12): main"),
        ("user_annotation", "forward"),
        ("user_annotation", "train step_num=3"),
        ("user_annotation", "train step_num=4"),
    ]
    assert rows(warehouse, "SELECT step, host_ns FROM steps ORDER BY 1") == [(3, 9000), (4, 9000)]
    ranks = (
        "SELECT rank, host, device_name, clock, framework, framework_version, pid, base_time_ns FROM ranks"
    )
    assert rows(warehouse, ranks) == [(0, "node7", "H100", "utc", "jax", "0.10.2", "42", EPOCH)]


def test_statistics_that_differ_between_events_read_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statistic may be missing in some events, or be a number in one and a text in another."""
    monkeypatch.setattr("tracewarehouse.formats.xplane._BATCH_BYTES", 1)
    stats: list[dict[str, Value]] = [
        {"a": 1},
        {"b": "ref:two", "A": 2},
        {"a": "x", **dict.fromkeys("bcd", 3)},
    ]
    events = [Event("k", 1_000_000 * at, 500_000, each) for at, each in enumerate(stats)]
    content = xspace(Plane("/device:GPU:0", [Line(17, "Stream #17", 0, events)]), TASK)
    warehouse = ingest(tmp_path / "a.xplane.pb", content)
    args = [
        {key.removeprefix("xplane."): value for key, value in json.loads(each).items()}
        for (each,) in rows(warehouse, "SELECT args FROM events ORDER BY ts_ns")
    ]
    assert [{key: each[key] for key in "abcd" if key in each} for each in args] == [
        {"a": "1"}, {"b": "two"}, {"a": "x", "b": "3", "c": 3, "d": 3}
    ]  # fmt: skip
    unread = "SELECT rows, example FROM data_quality WHERE rule = 'table_not_read'"
    assert rows(warehouse, unread) == [(1, "statistic A")]


def test_each_device_is_a_rank_and_an_event_of_the_host_belongs_to_one(tmp_path: Path) -> None:
    content = xspace(host((2_100_000, 7), (2_700_000, 17), (3_300_000, 18)), gpu(1, 17), gpu(0), TASK)
    warehouse = ingest(tmp_path / "a.xplane.pb", content)
    sql = "SELECT rank, count(*), count(runtime_id) FROM kernels GROUP BY rank ORDER BY 1"
    assert rows(warehouse, sql) == [(0, 3, 1), (1, 3, 2)]
    # Steps are those of every device of the process.
    of_host = "tid IN ('5', '6') GROUP BY ALL ORDER BY ALL"
    sql = f"SELECT rank, category, count(*) FROM events WHERE {of_host}"
    assert rows(warehouse, sql) == [
        (0, "cuda_driver", 1),
        (0, "library", 2),
        (0, "python_function", 1),
        (0, "user_annotation", 3),
        (1, "cuda_driver", 2),
        (1, "user_annotation", 2),
    ]
    assert rows(warehouse, "SELECT rank, source_part, framework FROM ranks ORDER BY 1") == [
        (0, "GPU:0", "jax"),
        (1, "GPU:1", "jax"),
    ]
    assert rows(
        warehouse, "SELECT DISTINCT rank FROM data_quality WHERE rule = 'rank_assumed' ORDER BY 1"
    ) == [(0,), (1,)]


TPU = Plane(
    "/device:TPU:0",
    [
        Line(1, "XLA Modules", 0, [Event("jit_step(1)", 0, 90_000_000, {"run_id": 5})]),
        Line(2, "Steps", 0, [Event("3", 0, 90_000_000)]),
        Line(3, "XLA Ops", 0, [
            Event("%while.1 = while(%x)", 0, 10_000_000),
            Event("%dot.1 = dot(%x, %y)", 1_000_000, 2_000_000),
            Event("%dot.1 = dot(%x, %y)", 4_000_000, 2_000_000),
            Event("%all-reduce-start.1 = all-reduce-start(%x)", 10_000_000, 1_000_000),
            Event("%fusion.1 = fusion(%x)", 11_000_000, 5_000_000, {"bytes_accessed": 64}),
            Event("%all-reduce-done.2 = all-reduce-done(%all-reduce-start.1)", 16_000_000, 4_000_000),
            Event("%all-gather-start.1 = all-gather-start(%x)", 20_000_000, 1_000_000),
            Event("%all-gather-done.1 = all-gather-done(%all-gather-start.1)", 22_000_000, 2_000_000),
            Event("%copy-start.1 = copy-start(%x)", 30_000_000, 1_000_000),
        ]),
        Line(4, "Async XLA Ops", 0, [Event(GATHER, 20_000_000, 4_000_000)]),
        Line(5, "Framework Name Scope", 0, [Event("layer1", 0, 50_000_000)]),
        Line(6, "Source code", 0, [Event("model.py:3", 0, 50_000_000)]),
    ],
    {"device_type_string": "TPU v5"},
    {
        "%while.1 = while(%x)": ("while.1", {"hlo_category": "while"}),
        "%dot.1 = dot(%x, %y)": ("dot.1", DOT),
        "%all-reduce-start.1 = all-reduce-start(%x)": ("all-reduce-start.1", {"hlo_category": "async-start"}),
        "%all-reduce-done.2 = all-reduce-done(%all-reduce-start.1)": ("all-reduce-done.2", {}),
        "%fusion.1 = fusion(%x)": ("fusion.1", {"hlo_category": "all-reduce fusion"}),
        "%all-gather-start.1 = all-gather-start(%x)": ("all-gather-start.1", {}),
        "%all-gather-done.1 = all-gather-done(%all-gather-start.1)": ("all-gather-done.1", {}),
        "%copy-start.1 = copy-start(%x)": ("copy-start.1", {}),
    },
)  # fmt: skip


def test_operations_of_a_tpu(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path / "a.xplane.pb", xspace(TPU, TASK))
    sql = (
        f"SELECT name, kind, ts_ns - {EPOCH}, dur_ns, stream, collective FROM kernels ORDER BY ts_ns, stream"
    )
    assert rows(warehouse, sql) == [
        ("dot.1", "computation", 1000, 2000, 3, None),
        ("dot.1", "computation", 4000, 2000, 3, None),
        ("all-reduce-start.1", "communication", 10000, 10000, 1000003, "all_reduce"),
        # The category counts, not the name.
        ("fusion.1", "communication", 11000, 5000, 3, "all_reduce"),
        ("all-gather-start.1", "communication", 20000, 4000, 4, "all_gather"),
        ("copy-start.1", "memory", 30000, 1000, 3, None),
    ]
    (row,) = warehouse.analyze("temporal_breakdown").rows()
    assert row["busy_ns"] == 2000 + 2000 + 10000 + 4000 + 1000 <= row["window_ns"]
    notes = "SELECT name FROM events WHERE category = 'gpu_user_annotation' ORDER BY 1"
    assert [name for (name,) in rows(warehouse, notes)] == [
        "3", "all-gather-start.1", "jit_step(1)", "layer1", "model.py:3", "while.1",
    ]  # fmt: skip
    waits = "SELECT name FROM events WHERE category = 'cuda_sync' ORDER BY 1"
    assert rows(warehouse, waits) == [("all-gather-done.1",), ("all-reduce-done.2",)]
    columns = ", ".join(f"args ->> '{key}'" for key in ("flops", "bytes accessed", "xplane.tf_op"))
    sql = f"SELECT {columns} FROM events WHERE name IN ('dot.1', 'fusion.1') ORDER BY ts_ns"
    assert rows(warehouse, sql) == [*[("1024", None, "jit(f)/layer1/dot")] * 2, (None, "64", None)]


def test_ranks_follow_hosts_or_the_number_of_the_process(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "plugins" / "profile" / "2026_11_29_01_00_02"
    folder.mkdir(parents=True)
    for name in ("hostb", "hosta"):
        (folder / f"{name}.xplane.pb").write_bytes(xspace(gpu(0), gpu(1, 17), TASK, hosts=[name]))
        (folder / f"{name}.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    warehouse = tw.open(tmp_path / "warehouse")
    files = warehouse.ingest(tmp_path / "logs").files
    reasons = Counter((file.path.name, file.state, file.reason) for file in files)
    assert reasons["perfetto_trace.json.gz", "skipped", "is the same recording as hosta.xplane.pb"] == 1
    assert Counter(state for _, state, _ in reasons.elements()) == {"skipped": 3, "intact": 4}
    sql = "SELECT run_id, rank, host FROM ranks ORDER BY rank"
    assert rows(warehouse, sql) == [("logs", n, host) for n, host in enumerate(["hosta"] * 2 + ["hostb"] * 2)]
    metadata = Plane("/host:metadata", stats={"process_index": 3})
    numbered = ingest(tmp_path / "a.xplane.pb", xspace(metadata, gpu(0), gpu(1, 17), TASK))
    assert rows(numbered, "SELECT rank FROM ranks WHERE run_id = 'run' ORDER BY 1") == [(6,), (7,)]
    assert not rows(numbered, "FROM data_quality WHERE run_id = 'run' AND rule = 'rank_assumed'")


def test_relative_clocks_are_not_compared(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path / "a.xplane.pb", xspace(gpu(0)))
    assert rows(warehouse, "SELECT clock, base_time_ns FROM ranks") == [("unknown", 0)]
    assert rows(warehouse, "SELECT rule FROM data_quality WHERE rule = 'clock_not_utc'") == [
        ("clock_not_utc",)
    ]


def test_secrets_are_redacted(tmp_path: Path) -> None:
    secret = "sk-" + "abcdefgh12345678" * 2
    stats = {"command": f"train --api-key={secret}"}
    events = [Event(f"load token={secret}", 0, 1_000, {"flags": f"--api-key={secret}"})]
    content = xspace(
        Plane("/host:metadata", stats=stats), Plane("/host:CPU", [Line(1, "python", 0, events)]), TASK
    )
    warehouse = ingest(tmp_path / "a.xplane.pb", content)
    assert secret not in str(rows(warehouse, "SELECT name, args FROM events"))
    assert secret not in str(rows(warehouse, "SELECT header FROM ranks"))


def many_fields() -> bytes:
    return field(1, field(2, "/host:CPU") + (field(4, b"") + field(5, b"")) * 400_000)


def many_events() -> bytes:
    return field(1, field(2, "/host:CPU") + field(3, field(4, b"") * 5_000_000))


def many_planes() -> bytes:
    return field(1, field(2, "/host:CPU")) * 600_000


def long_event() -> bytes:
    return field(1, field(2, "/host:CPU") + field(3, field(4, field(1, 1) * 1_000_000)))


def repeated_name() -> bytes:
    name = field(4, field(1, 1) + field(2, field(1, 1) + field(2, "x" * 2_000)))
    line = field(3, field(4, field(1, 1) + field(3, 7) + field(2, 1 << 40)) * 500_000)
    return field(1, field(2, "/host:CPU") + line + name)


GOOD = xspace(gpu(0), host((2_100_000, 7)), TASK)
DAMAGED = {
    "cut": (GOOD[:-30], "at byte"),
    "no event": (xspace(TASK), "no events"),
    "group": (field(1, field(2, "/host:CPU") + b"\x1b"), "unknown or longer"),
    "long number": (field(1, field(2, "/host:CPU") + b"\x08" + b"\xff" * 12), "10 bytes"),
    "event beyond its line": (field(1, field(2, "/host:CPU") + field(3, b"\x22\x7f\x08")), "longer than"),
    "statistic of the file": (field(1, field(2, "Task Environment") + field(6, b"\x22\x7f")), "longer than"),
    "cut gzip": (gzip.compress(GOOD)[:-40], "gzip stream"),
    "many fields": (many_fields(), "more fields"),
    "many events": (many_events(), "almost empty"),
    "many planes": (many_planes(), "more than 500 planes"),
    "long event": (long_event(), "fields"),
    "repeated name": (repeated_name(), "repeated"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_with_the_place(tmp_path: Path, name: str) -> None:
    content, reason = DAMAGED[name]
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    (file, *_) = tw.open(tmp_path / "warehouse").ingest(path, run="run").files
    assert file.state == "refused" and "internal error" not in (file.hint or ""), file
    assert reason in (file.reason or ""), file


RECORD = """
import sys
import jax, jax.numpy as jnp
multiply = jax.jit(lambda x: (x @ x).sum())
x = jnp.ones((64, 64))
multiply(x).block_until_ready()
with jax.profiler.trace(sys.argv[1], create_perfetto_trace=True):
    for number in range(3):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            multiply(x).block_until_ready()
"""


@pytest.mark.deep
def test_a_profile_of_a_cpu(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    if subprocess.run([python, "-m", "pip", "install", "-q", "jax"], check=False).returncode:
        pytest.skip("jax cannot be installed")
    subprocess.run([python, "-c", RECORD, tmp_path / "logs"], check=True)
    warehouse = tw.open(tmp_path / "warehouse")
    files = warehouse.ingest(tmp_path / "logs").files
    assert Counter(file.state for file in files) == {"intact": 1, "skipped": 2}
    (path,) = (tmp_path / "logs").rglob("*.xplane.pb")
    recorded = list(events_in(path.read_bytes()))
    sql = "SELECT count(*), sum(dur_ns)::BIGINT FROM events"
    assert rows(warehouse, sql) == [(len(recorded), sum(end - start for *_, start, end, _ in recorded))]
    assert rows(warehouse, "SELECT step FROM steps ORDER BY 1") == [(0,), (1,), (2,)]
    assert rows(warehouse, "SELECT framework, clock FROM ranks") == [("jax", "utc")]
    assert list(warehouse.analyze("host_account").rows())


@pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")
def test_a_real_profile_equals_its_bytes(tmp_path: Path) -> None:
    assert FOLDER is not None
    content = (FOLDER / "wave3" / "jax_conv_mi300.xplane.pb").read_bytes()
    warehouse = ingest(tmp_path / "a.xplane.pb", content)
    recorded = list(events_in(content))
    assert len(recorded) == 3650
    sql = "SELECT count(*), sum(dur_ns)::BIGINT, sum(ts_ns % 1000000)::BIGINT FROM events"
    base = 1771595639214724894
    starts = sum((base + start) % 1_000_000 for _, _, _, start, _, _ in recorded)
    assert rows(warehouse, sql) == [(3650, sum(end - start for *_, start, end, _ in recorded), starts)]
    expected: dict[int, list[int]] = {}
    for plane, _, _, start, end, _ in recorded:
        if plane.startswith("/device:GPU:"):
            expected.setdefault(int(plane[-1]), []).append(end - start)
    # The profiler starts for all devices at once, whenever each gets its first kernel.
    assert {row["state"] for row in warehouse.analyze("recording").rows()} == {"sound"}
    columns = "rank, count(*), sum(dur_ns)::BIGINT, count(runtime_id)"
    sql = f"SELECT {columns} FROM kernels GROUP BY 1 ORDER BY 1"
    assert rows(warehouse, sql) == [
        (rank, len(each), sum(each), len(each)) for rank, each in sorted(expected.items())
    ]


def layers() -> Plane:
    """Kernels of two layers, with and without gradients, and one whose operator is not known."""
    scopes = {
        "gemm_fusion": "jit(train)/jit(main)/jvp(Model)/Dense_0/dot_general:",
        "loop_fusion": "jit(train)/jit(main)/transpose(jvp(Model))/Dense_1/mul",
        "relu": "jit(train)/jit(main)/jvp(Model)/checkpoint/rematted_computation/relu",
        "copy": "",
    }
    work: dict[str, Value] = {"hlo_category": "dot", "flops": 4096, "bytes_accessed": 768}
    events = [
        Event(
            name, 10_000_000 * at, 2_000_000, ({"tf_op": scope} if scope else {}) | (work if at == 0 else {})
        )
        for at, (name, scope) in enumerate(scopes.items())
    ]
    text = "%gemm_fusion = bf16[8,4]{1,0} fusion(%x)"
    names: dict[str, tuple[str, dict[str, Value]]] = {text: ("gemm_fusion", {})}
    events[0] = events[0]._replace(name=text)
    plane = Plane(
        "/device:GPU:0",
        [Line(17, "Stream #17", 0, events)],
        {"device_type_string": "NVIDIA H100 80GB HBM3"},
        names,
    )
    return plane


def test_operators_modules_and_work_are_those_that_xla_names(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path / "a.xplane.pb", xspace(layers(), TASK))
    sql = "SELECT op_sig, path_sig, module_path, attributed_by FROM kernels_attributed ORDER BY ts_ns"
    assert rows(warehouse, sql) == [
        (
            "dot_general",
            "jit(train) > Model > Dense_0 > dot_general",
            "jit(train) > Model > Dense_0",
            "annotation",
        ),
        ("mul", "jit(train) > Model > Dense_1 > mul", "jit(train) > Model > Dense_1", "annotation"),
        ("relu", "jit(train) > Model > relu", "jit(train) > Model", "annotation"),
        (None, None, None, None),
    ]
    passes = [("forward",), ("backward",), ("recompute",), ("other",)]
    assert rows(warehouse, "SELECT pass FROM kernels ORDER BY ts_ns") == passes
    assert (
        rows(warehouse, "SELECT class_path FROM kernel_modules ORDER BY kernel_id LIMIT 2")
        == [("jit(train) > Model > Dense",)] * 2
    )
    operators = {row["name"]: row for row in warehouse.analyze("op_summary").rows()}
    assert {name: row["kernel_sum_ns"] for name, row in operators.items()} == {
        "dot_general": 2000, "mul": 2000, "relu": 2000, None: 2000,
    }  # fmt: skip
    modules = {row["module_path"]: row for row in warehouse.analyze("module_summary").rows()}
    model = modules["jit(train) > Model"]
    assert [model[f"{name}_ns"] for name in ("kernel_union", "forward", "backward", "recompute")] == [
        6000, 2000, 2000, 2000,
    ]  # fmt: skip
    sql = "SELECT family, compute_dtype, model_flop, read_bytes, gpu_union_ns FROM op_work"
    assert rows(warehouse, sql) == [("gemm", "bf16", 4096, 768, 2000)]
    (roof,) = warehouse.analyze("roofline").rows()
    assert (roof["kernel"], roof["model_flop"], roof["bytes"], roof["bound"]) == (
        "gemm_fusion",
        4096,
        768,
        "exact",
    )
    assert roof["limit_flop_per_ns"] > 900_000 and roof["bound_by"]


def test_operations_of_a_tpu_are_in_the_steps_of_their_device(tmp_path: Path) -> None:
    steps = Line(2, "Steps", 0, [Event("3", 0, 9_500_000), Event("4", 9_500_000, 50_000_000)])
    plane = TPU._replace(lines=[*TPU.lines[:1], steps, *TPU.lines[2:]])
    warehouse = ingest(tmp_path / "a.xplane.pb", xspace(plane, TASK))
    sql = f"SELECT step, device_start_ns - {EPOCH}, device_ns FROM steps ORDER BY 1"
    assert rows(warehouse, sql) == [(3, 1000, 5000), (4, 10000, 21000)]
    counts = "SELECT step, count(*) FROM kernels GROUP BY step ORDER BY 1"
    assert rows(warehouse, counts) == [(3, 2), (4, 4)]


def test_on_amd_gpus_the_name_is_the_path_and_blits_are_copies(tmp_path: Path) -> None:
    operation: dict[str, Value] = {"tf_op": "XlaModule:", "hlo_module": "jit_f", "hlo_op": "fusion.1"}
    names = ["jit(f)/jit(main)/transpose(jvp(Model))/Conv_0/conv_general_dilated", "x"]
    kernels = [
        Event(f"kernel{at}", 10_000_000 * at, 2_000_000, operation | {"name": name})
        for at, name in enumerate(names)
    ]
    blits = [
        Event(f"__amd_rocclr_{what}.kd", 90_000_000 + at, 2_000_000, {})
        for at, what in enumerate(("copyBuffer", "fillBufferAligned"))
    ]
    plane = Plane("/device:GPU:0", [Line(17, "Stream #17(Kernel)", 0, [*kernels, *blits])])
    warehouse = ingest(tmp_path / "a.xplane.pb", xspace(plane, TASK))
    sql = "SELECT activity, op_sig, path_sig, pass FROM kernels ORDER BY ts_ns"
    assert rows(warehouse, sql) == [
        ("kernel", "conv_general_dilated", "jit(f) > Model > Conv_0 > conv_general_dilated", "backward"),
        ("kernel", "fusion", "jit(f) > fusion", "other"),
        ("memcpy", None, None, "other"),
        ("memset", None, None, "other"),
    ]


def test_steps_of_any_number_are_alike(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path / "logs" / "plugins" / "profile" / "1" / "h.xplane.pb", xspace(host(), TASK))
    names = {row["name"] for row in warehouse.analyze("key_averages").rows()}
    assert {name for name in names if "train" in str(name)} == {"train step_num=*", "train.py(12): main"}
    assert not [row for row in warehouse.analyze("host_account").rows() if "step_num" in str(row["name"])]


def test_the_note_on_the_name_says_which_folder(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "plugins" / "profile" / "1" / "h.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(xspace(host(), TASK))
    report = tw.open(tmp_path / "warehouse").ingest(tmp_path / "logs")
    assert any(note.startswith(f"named after the folder {tmp_path / 'logs'}: logs") for note in report.notes)


def test_texts_are_gathered_in_pieces() -> None:
    data = np.frombuffer(bytes(range(97, 123)) * 400_000, np.uint8)
    start = np.arange(0, len(data) - 3_000, 1_000)[::-1]
    end = start + np.arange(len(start)) % 3_000
    found = Wire(data).texts(start, end).to_pylist()
    content = data.tobytes().decode()
    assert sum(map(len, found)) > 2 * 4_194_304
    assert found == [
        content[a : min(b, a + 2_048)] for a, b in zip(start.tolist(), end.tolist(), strict=True)
    ]
    assert Wire(data).texts(start[:0], end[:0]).to_pylist() == []
