"""Tables of Nsight Systems that simulated runs lack: metrics, memory, graphs, OS runtime, MPI, NVTX."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from struct import pack
from typing import Any, Final

import pytest
from test_nsys_round_trip import parquet_folder

import tracewarehouse as tw
from conftest import deep
from nsys_writer import GRAPH_TABLE, SMALL_TABLES

PID: Final = 9
PROCESS: Final = 1 << 48 | PID << 24
THREAD: Final = PROCESS | 11
OTHER: Final = 1 << 48 | 10 << 24
TEXTS: Final = (
    "gemm", "cudaLaunchKernel_v7000", "pthread_mutex_lock", "MPI_Allreduce", "cublasGemmEx", "module loading",
)  # fmt: skip
ROWS: Final = f"""
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
  (100, 200, 1, 7, 5, {PROCESS}, 0), (300, 250, 1, 7, 6, {PROCESS}, 0);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, {THREAD}, 5, 1), (10, 20, {OTHER}, 5, 1);
"""


def export(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as con:
        con.executescript(SMALL_TABLES + ROWS)
        con.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(TEXTS))
        for statement in statements:
            con.executescript(statement)
    con.close()
    return path


def ingest(tmp_path: Path, *statements: str) -> tw.Warehouse:
    warehouse = tw.open(tmp_path / "warehouse")
    (file,) = warehouse.ingest(export(tmp_path / "run.sqlite", *statements), run="run").files
    assert file.state == "intact", file
    return warehouse


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql).rows()]


def quality(warehouse: tw.Warehouse) -> dict[str, tuple[int, str]]:
    return {
        name: (count, text)
        for name, count, text in rows(warehouse, "SELECT rule, rows, example FROM data_quality")
    }


def test_an_export_without_optional_columns(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path)
    assert rows(warehouse, "SELECT name, ts_ns, dur_ns, launch_state FROM kernels") == [
        ("gemm", 100, 100, "known")
    ]
    found = quality(warehouse)
    assert found["negative_duration"][0] == 1
    assert found["clock_not_utc"] == (1, "the file has no session start time")
    assert found["process_not_read"] == (1, "pid 10: 1 row")
    assert rows(warehouse, "SELECT clock, source_part FROM ranks") == [("unknown", "pid 9")]


def test_gpu_metrics_are_counters_of_the_devices_of_the_process(tmp_path: Path) -> None:
    warehouse = ingest(
        tmp_path,
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, metricId INT, metricName TEXT)",
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (257, 1, 'SM Active'), (256, 1, 'SM Active')",
        "CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, value INT)",
        "INSERT INTO GPU_METRICS VALUES (100, 257, 1, 40), (200, 257, 1, 60), (100, 256, 1, 99)",
    )
    sql = "SELECT name, series, ts_ns, value FROM counters ORDER BY ts_ns"
    assert rows(warehouse, sql) == [
        ("SM Active", "SM Active", 100, 40.0),
        ("SM Active", "SM Active", 200, 60.0),
    ]


def test_gpu_metrics_while_kernels_run(tmp_path: Path) -> None:
    """The kernel runs from 100 to 200 on device 1; the sample at 200 is behind it."""
    warehouse = ingest(
        tmp_path,
        "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INT, metricId INT, metricName TEXT)",
        "INSERT INTO TARGET_INFO_GPU_METRICS VALUES (257, 1, 'SMs Active [Throughput %]'),"
        " (257, 2, 'DRAM Read Bandwidth [Throughput %]')",
        "CREATE TABLE GPU_METRICS (timestamp INT, typeId INT, metricId INT, value INT)",
        "INSERT INTO GPU_METRICS VALUES (100, 257, 1, 40), (150, 257, 1, 50), (200, 257, 1, 60),"
        " (150, 257, 2, 7)",
    )
    (row,) = warehouse.analyze("gpu_metrics").rows()
    assert (row["device"], row["step"], row["sample_count"], row["kernel_sample_count"]) == ("1", None, 2, 2)
    assert (row["sm_active_share"], row["dram_read_share"], row["dram_write_share"]) == (0.45, 0.07, None)
    (row,) = warehouse.analyze("gpu_metrics", by_kernel=True).rows()
    assert (row["name"], row["sample_count"], row["tensor_active_share"]) == ("gemm", 2, None)


def test_without_gpu_metrics_their_analyses_abstain(tmp_path: Path) -> None:
    (skipped,) = ingest(tmp_path).analyze("gpu_metrics").skipped
    assert skipped.reason == "no sampled GPU metrics"


def test_device_memory_is_a_running_sum(tmp_path: Path) -> None:
    warehouse = ingest(
        tmp_path,
        "CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INT, globalPid INT, deviceId INT, bytes INT,"
        " memKind INT, memoryOperationType INT, address INT)",
        f"INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (30, {PROCESS}, 1, 100, 2, 1, 5),"
        f" (10, {PROCESS}, 1, 100, 2, 0, 5), (20, {PROCESS}, 1, 50, 2, 0, 6), (5, {PROCESS}, 1, 7, 4, 0, 8),"
        f" (1, {OTHER}, 1, 1000, 2, 0, 9)",
    )
    sql = "SELECT name, ts_ns, value::INT FROM counters WHERE series = 'bytes' ORDER BY 1, 2"
    assert rows(warehouse, sql) == [
        ("GPU 1 memory (Device)", 10, 100), ("GPU 1 memory (Device)", 20, 150),
        ("GPU 1 memory (Device)", 30, 50), ("GPU 1 memory (Managed)", 5, 7),
    ]  # fmt: skip


def test_calls_of_other_libraries_are_host_slices(tmp_path: Path) -> None:
    call = "(start INT, end INT, globalTid INT, nameId INT)"
    warehouse = ingest(
        tmp_path,
        f"CREATE TABLE OSRT_API {call}", f"INSERT INTO OSRT_API VALUES (1, 2, {THREAD}, 2)",
        "CREATE TABLE MPI_COLLECTIVES_EVENTS (start INT, end INT, globalTid INT, textId INT, size INT)",
        f"INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (3, 9, {THREAD}, 3, 64)",
        f"CREATE TABLE CUBLAS_EVENTS {call}", f"INSERT INTO CUBLAS_EVENTS VALUES (4, 5, {THREAD}, 4)",
        f"CREATE TABLE PROFILER_OVERHEAD {call}", f"INSERT INTO PROFILER_OVERHEAD VALUES (6, 7, {THREAD}, 5)",
        "CREATE TABLE SCHED_EVENTS (start INT)", "INSERT INTO SCHED_EVENTS VALUES (1), (2)",
    )  # fmt: skip
    where = "tid = '11' AND category <> 'cuda_runtime'"
    sql = f"SELECT category, name, tid, dur_ns FROM events WHERE {where} ORDER BY ts_ns"
    assert rows(warehouse, sql) == [
        ("os_runtime", "pthread_mutex_lock", "11", 1), ("mpi", "MPI_Allreduce", "11", 6),
        ("library", "cublasGemmEx", "11", 1), ("overhead", "module loading", "11", 1),
    ]  # fmt: skip
    assert rows(warehouse, "SELECT args ->> 'nsys.size' FROM events WHERE category = 'mpi'") == [("64",)]
    assert quality(warehouse)["table_not_read"] == (1, "SCHED_EVENTS: 2 rows")
    assert "unknown_category" not in quality(warehouse)
    # MPI is communication of the host, not of the GPU.
    (row,) = warehouse.analyze("temporal_breakdown").rows()
    assert row["exposed_comm_ns"] == 0


ALL_REDUCE: Final = "INSERT INTO StringIds VALUES (90, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL')"
BESIDE: Final = f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (400, 500, 1, 9, 9, {PROCESS}, 90)"
REPLAY: Final = (
    GRAPH_TABLE,
    f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (400, 500, 1, 7, 8, {PROCESS}, 3)",
)


@pytest.mark.parametrize(
    ("replay", "expected"), [((), ("critical", False)), (REPLAY, ("info", True))], ids=["none", "graph"]
)
def test_communication_beside_a_graph_replay_may_be_overlapped(
    tmp_path: Path, replay: tuple[str, ...], expected: tuple[str, bool]
) -> None:
    """Without the kernels inside the graph, the finding is for information only."""
    warehouse = ingest(tmp_path, *replay, ALL_REDUCE, BESIDE)
    (found,) = [row for row in warehouse.analyze("exposed_comm").rows() if row["severity"] != "none"]
    assert (found["severity"], "--cuda-graph-trace=node" in found["advice"]) == expected


@pytest.mark.parametrize("replay", [REPLAY, *deep(((),))], ids=["graph", "none"])
def test_the_report_says_that_communication_beside_a_graph_counts(
    tmp_path: Path, replay: tuple[str, ...]
) -> None:
    page = "".join(ingest(tmp_path, *replay, ALL_REDUCE, BESIDE).report("run").html())
    assert ("communication beside a graph counts as exposed" in page) == bool(replay)


def test_a_graph_replay_is_a_kernel_of_its_own_kind(tmp_path: Path) -> None:
    warehouse = ingest(tmp_path, *REPLAY)
    sql = "SELECT name, graph_id, dur_ns, activity, kind FROM kernels WHERE graph_id IS NOT NULL"
    assert rows(warehouse, sql) == [("CUDA graph 3", 3, 100, "other", "other")]
    assert quality(warehouse)["graph_level_trace"][0] == 1


@pytest.mark.parametrize(
    ("device", "reason"), [(0, "process ID: 2 processes use device 0"), (1, "its device, 1")]
)
def test_why_a_process_has_its_rank(tmp_path: Path, device: int, reason: str) -> None:
    """With one visible device per process, all are device 0."""
    kernels = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, {}, 7, 9, {}, 0);"
    database = export(
        tmp_path / "run.sqlite", "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL",
        kernels.format(0, PROCESS), kernels.format(device, OTHER),
    )  # fmt: skip
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(database, run="run")
    sql = "SELECT example FROM data_quality WHERE rule = 'rank_assumed' AND rank = 1"
    assert rows(warehouse, sql) == [(f"pid 10 is rank 1 by {reason}",)]


NVTX: Final = (
    "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, domainId INT)"
)


def nvtx(tmp_path: Path, *texts: str, kind: int = 59) -> list[tuple[Any, ...]]:
    values = ", ".join(
        f"({10 * at}, {10 * at + 5}, {kind}, '{text}', {THREAD}, 0)" for at, text in enumerate(texts)
    )
    warehouse = ingest(tmp_path, NVTX, f"INSERT INTO NVTX_EVENTS VALUES {values}")
    sql = "SELECT category, name, sequence_number, shapes FROM events WHERE tid = '11'"
    return rows(warehouse, f"{sql} AND category <> 'cuda_runtime' ORDER BY ts_ns")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::mm, seq = 12, op_id = 9, sizes = [[8, 4], [4, 2]], input_op_ids = [[1, 0]]",
         ("cpu_op", "aten::mm", 12, "[[8,4],[4,2]]")),
        ("aten::add, op_id = 3", ("cpu_op", "aten::add", None, None)),
        ("MulBackward0, seq = 4", ("cpu_op", "MulBackward0", 4, None)),
        ("nccl:all_to_all, op_id = 7", ("user_annotation", "nccl:all_to_all", None, None)),
        *deep(
            ("forward", ("user_annotation", "forward", None, None)),
            ("a, b = 3", ("user_annotation", "a, b = 3", None, None)),
            ("x, seq = abc", ("user_annotation", "x, seq = abc", None, None)),
        ),
        ("x, seq = 99999999999999999999", ("user_annotation", "x, seq = 99999999999999999999", None, None)),
        ("two\nlines, op_id = 1", ("cpu_op", "two\nlines", None, None)),
    ],
)  # fmt: skip
def test_texts_of_ranges(tmp_path: Path, text: str, expected: tuple[Any, ...]) -> None:
    assert nvtx(tmp_path, text) == [expected]


def test_nccl_calls_are_not_annotations_beside_ranges_of_the_framework(tmp_path: Path) -> None:
    found = nvtx(tmp_path, "nccl:all_reduce", "ncclGroupEnd", "ncclAllReduce")
    assert [row[:2] for row in found] == [
        ("user_annotation", "nccl:all_reduce"), ("library", "ncclGroupEnd"), ("library", "ncclAllReduce"),
    ]  # fmt: skip


def test_nccl_collectives_are_annotations_without_a_framework(tmp_path: Path) -> None:
    found = nvtx(tmp_path, "ncclGroupEnd", "ncclAllReduce")
    assert [row[:2] for row in found] == [("library", "ncclGroupEnd"), ("user_annotation", "nccl:all_reduce")]


# As Nsight Systems writes them: two sizes, a communicator at offset 0, the message size behind it.
SCHEMAS: Final = (
    "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INT, schemaId INT, idx INT, type INT, name TEXT,"
    " offset INT)",
    "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, 20, 0, 18, 'NCCL communicator ID', NULL),"
    " (1, 20, 1, 22, 'Message size [bytes]', 8), (1, 20, 2, 5, 'Peer rank', 16),"
    " (1, 30, 0, 18, 'NCCL communicator ID', NULL), (1, 30, 1, 5, 'No. of ranks', 8),"
    " (1, 30, 2, 5, 'Rank', 12)",
)
COMMUNICATOR: Final = 2**64 - 5


def call(size: int, peer: int = 3) -> bytes:
    payload = pack("<QQi4x", COMMUNICATOR, size, peer)
    return pack("<IIIIQQ", 1, 0, 20, 0, len(payload), 32 + len(payload)) + payload


def collectives(
    tmp_path: Path, *ranges: tuple[str, int | str, int, bytes | None]
) -> dict[str, tuple[Any, ...]]:
    """Bytes, shapes and types of each range; the payloads of the first one give the number of ranks: 4."""
    group = pack("<IIIIQQ", 1, 0, 30, 0, 16, 48) + pack("<Qii", COMMUNICATOR, 4, 2)
    columns = NVTX.replace("domainId INT", "domainId INT, binaryData TEXT")
    values = "".join(
        f"INSERT INTO NVTX_EVENTS VALUES ({start}, {end}, 59, '{name}', {THREAD}, 1, "
        + ("NULL);" if data is None else f"x'{data.hex()}');")
        for name, start, end, data in (("ncclCommInitRank", 1, 2, group), *ranges)
    )
    warehouse = ingest(tmp_path, columns, *SCHEMAS, values)
    sql = "SELECT name, bytes, shapes, dtypes FROM events WHERE tid = '11' AND category <> 'cuda_runtime'"
    found = {name: rest for name, *rest in rows(warehouse, sql)}
    arguments = dict(rows(warehouse, "SELECT name, args FROM events"))
    assert f'"nsys.communicator":{COMMUNICATOR}' in arguments["ncclCommInitRank"]
    return {name: tuple(values) for name, values in found.items()}


def test_message_sizes_of_nccl_calls_belong_to_the_range_around_them(tmp_path: Path) -> None:
    found = collectives(
        tmp_path,
        ("nccl:all_to_all", 10, 50, None), ("ncclSend", 12, 14, call(100)), ("ncclRecv", 15, 16, call(300)),
        ("ncclSend", 18, 19, call(100)), ("nccl:all_gather", 60, 80, None),
        ("ncclAllGather", 61, 70, call(100)), ("ncclAllReduce", 90, 95, call(8)),
        ("nccl:broadcast", 100, 110, None), ("ncclBroadcast", 102, 103, b"damaged"),
    )  # fmt: skip
    assert found["nccl:all_to_all"] == (300, "[[300]]", '["bytes"]')
    # What each of four ranks contributes.
    assert found["nccl:all_gather"] == (400, "[[400]]", '["bytes"]')
    assert found["nccl:broadcast"] == (None, None, None)
    # A call of the library is not a collective: its size is kept, but it has no shape.
    assert found["ncclAllReduce"] == (8, None, None)


def test_message_sizes_beside_unusable_times(tmp_path: Path) -> None:
    found = collectives(
        tmp_path,
        ("nccl:reduce", "'x'", 50, None), ("ncclReduce", "'x'", 14, call(7)),
        ("nccl:all_reduce", 60, 90, None), ("ncclAllReduce", 61, 62, call(2**63)),
    )  # fmt: skip
    assert found["nccl:reduce"] == found["nccl:all_reduce"] == (None, None, None)
    assert found["ncclReduce"][0] == 7


def test_message_sizes_without_a_framework(tmp_path: Path) -> None:
    found = collectives(tmp_path, ("ncclAllReduce", 90, 95, call(8)), ("ncclGather", 96, 97, call(8)))
    assert found["nccl:all_reduce"] == (8, "[[8]]", '["bytes"]')
    assert found["nccl:gather"] == (None, None, None)


def test_payloads_in_a_folder_of_parquet_files(tmp_path: Path) -> None:
    database = export(
        tmp_path / "run.sqlite", NVTX.replace("domainId INT", "domainId INT, binaryData TEXT"), *SCHEMAS,
        f"INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'ncclAllReduce', {THREAD}, 1, x'{call(8).hex()}')",
    )  # fmt: skip
    warehouse = tw.open(tmp_path / "warehouse")
    (file,) = warehouse.ingest(parquet_folder(database, tmp_path / "run_pqtdir"), run="run").files
    assert file.state == "intact", file
    sql = "SELECT name, bytes FROM events WHERE bytes IS NOT NULL"
    assert rows(warehouse, sql) == [("nccl:all_reduce", 8)]


def test_start_end_ranges_are_annotations(tmp_path: Path) -> None:
    assert nvtx(tmp_path, "aten::mm, op_id = 9", kind=60)[0][0] == "user_annotation"


def test_a_range_without_an_end_is_an_instant(tmp_path: Path) -> None:
    events = [(5, 59, "open", 0), (6, 34, "mark", 0), (7, 75, "domain", 3)]
    values = ", ".join(
        f"({ts}, NULL, {kind}, '{text}', {THREAD}, {place})" for ts, kind, text, place in events
    )
    warehouse = ingest(tmp_path, NVTX, f"INSERT INTO NVTX_EVENTS VALUES {values}")
    sql = "SELECT ph, name FROM events WHERE category = 'user_annotation' ORDER BY ts_ns"
    assert rows(warehouse, sql) == [("i", "open"), ("i", "mark")]
    assert quality(warehouse)["open_range"][0] == 1


def test_secrets_in_names_and_metadata_are_redacted(tmp_path: Path) -> None:
    secret = "hf_abcdefgh12345678abcd"
    warehouse = ingest(
        tmp_path, NVTX, f"INSERT INTO NVTX_EVENTS VALUES (5, 6, 59, 'load {secret}', {THREAD}, 0)",
        "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)",
        f"INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT_VARIABLE', 'HF_TOKEN=\"{secret}\"')",
    )  # fmt: skip
    assert secret not in str(rows(warehouse, "SELECT name, args FROM events"))
    assert secret not in str(rows(warehouse, "SELECT header FROM ranks"))
    assert quality(warehouse)["redacted_value"][0] == 2


def test_a_file_without_activities_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with sqlite3.connect(path) as con:
        con.executescript(
            "CREATE TABLE StringIds (id INT, value TEXT); CREATE TABLE META_DATA_EXPORT (name, value)"
        )
    con.close()
    (file,) = tw.open(tmp_path / "warehouse").ingest(path).files
    assert file.state == "refused" and "no GPU activity" in (file.reason or "")


def test_a_secret_among_the_inputs_of_an_operator_is_redacted(tmp_path: Path) -> None:
    secret = "hf_" + "aB3dE5fG7hJ9kL1m" * 2
    text = f"aten::mm, op_id = 1, input_op_ids = {secret}"
    warehouse = ingest(tmp_path, NVTX, f"INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, '{text}', {THREAD}, 0)")
    ((args,),) = rows(warehouse, "SELECT args FROM events WHERE category = 'cpu_op'")
    assert secret not in args and "[redacted:" in args


def test_a_table_with_a_version_in_its_name_is_the_table(tmp_path: Path) -> None:
    create, values = NVTX.replace("NVTX_EVENTS", "NVTX_EVENTS_V2"), f"(1, 9, 59, 'load', {THREAD}, 0)"
    warehouse = ingest(tmp_path, create, f"INSERT INTO NVTX_EVENTS_V2 VALUES {values}")
    assert rows(warehouse, "SELECT name, dur_ns FROM events WHERE name = 'load'") == [("load", 8)]
    assert not rows(warehouse, "FROM data_quality WHERE rule = 'table_not_read'")


def test_ranges_of_a_data_loader_worker_are_annotations_with_its_process(tmp_path: Path) -> None:
    warehouse = ingest(
        tmp_path,
        NVTX,
        f"INSERT INTO NVTX_EVENTS VALUES (0, 150, 59, 'train_step', {THREAD}, 0),"
        f" (150, 390, 59, 'train_step', {THREAD}, 0), (1, 40, 59, 'fetch', {OTHER | 12}, 0),"
        f" (41, 80, 59, 'aten::stack, op_id = 3', {OTHER | 12}, 0), (50, 60, 59, 'inner', {OTHER | 12}, 0)",
    )
    sql = "SELECT name, process, pid, tid, ts_ns, dur_ns, step, depth FROM annotations ORDER BY ts_ns"
    assert rows(warehouse, sql) == [
        ("train_step", None, "9", "11", 0, 150, 0, 1),
        ("fetch", "10", "10", "12", 1, 39, 0, None),
        ("aten::stack", "10", "10", "12", 41, 39, 0, None),
        ("inner", "10", "10", "12", 50, 10, 0, None),
        ("train_step", None, "9", "11", 150, 240, 1, 1),
    ]
    assert rows(warehouse, "SELECT pid, steps FROM ranks") == [("9", 2)]
    # The call of the worker is counted, its ranges are rows.
    assert quality(warehouse)["process_not_read"] == (1, "pid 10: 1 row")


def test_no_row_of_a_process_without_gpu_work_vanishes(tmp_path: Path) -> None:
    calls = "(start INT, end INT, nameId INT, globalTid INT)"
    statements = (
        f"CREATE TABLE OSRT_API {calls}",
        f"INSERT INTO OSRT_API VALUES (1, 2, 2, {THREAD}), (3, 4, 2, {OTHER}), (5, 6, 2, {OTHER | 3 << 24})",
        f"CREATE TABLE MPI_OTHER_EVENTS {calls}",
        f"INSERT INTO MPI_OTHER_EVENTS VALUES (1, 2, 3, {OTHER})",
    )
    warehouse = ingest(tmp_path, *statements)
    assert quality(warehouse)["process_not_read"] == (4, "pid 10: 3 rows")
    # Of two ranks in a file, which worker belongs to which is unknown.
    second = f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 2, 7, 5, {PROCESS | 16 << 24}, 0)"
    ranges = f"INSERT INTO NVTX_EVENTS VALUES (1, 40, 59, 'fetch', {OTHER}, 0)"
    path = export(tmp_path / "two.sqlite", *statements, second, NVTX, ranges)
    warehouse.ingest(path, run="two")
    sql = "SELECT rank, rows, example FROM data_quality WHERE rule = 'process_not_read' AND run_id = 'two'"
    assert rows(warehouse, sql) == [(0, 5, "pid 10: 4 rows")]
