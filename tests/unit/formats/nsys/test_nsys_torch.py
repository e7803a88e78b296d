"""A trace of torch and a recording of Nsight Systems of one process are one rank."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import nsys_writer
import tracewarehouse as tw
from conftest import deep, real_traces
from simulated import SMALL
from tracewarehouse.errors import TraceFormatError
from tracewarehouse.formats.nsys import NsysSource
from tracewarehouse.ingest.outcome import IngestReport

Trace = dict[str, Any]
Event = dict[str, Any]
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
KERNELS = """
SELECT
  ts_ns, dur_ns, name, device, stream, bytes, launch_api, launch_dur_ns, launch_to_start_ns, op_sig,
  path_sig, step, pass
FROM kernels ORDER BY ALL
"""
AHEAD_NS = 1_234_567
FOLDER = real_traces()


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    tw.simulate(folder, ranks=2, **SMALL)
    return folder


def trace_of(folder: Path, rank: int = 0) -> Trace:
    return nsys_writer.read_trace(gzip.decompress((folder / f"rank{rank}.json.gz").read_bytes()))


def only(trace: Trace, is_kept: Callable[[Event], bool]) -> Trace:
    return {**trace, "traceEvents": [event for event in trace["traceEvents"] if is_kept(event)]}


def without(trace: Trace, every: int, *categories: str) -> Trace:
    """The trace without each such activity or call of a correlation that the number divides, and its flow."""
    return only(
        trace,
        lambda event: not (
            event.get("cat") in categories and event["args"].get("correlation", 1) % every == 0
            or event.get("cat") == "ac2g" and int(event["id"]) % every == 0
        ),
    )  # fmt: skip


def write(folder: Path, trace: Trace, name: str = "rank0.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(trace, default=float), encoding="utf-8")
    return path


def record(path: Path, *traces: Trace, ahead_ns: int = 0, clock: bool = True) -> Path:
    """What Nsight Systems recorded of the processes, on a clock that is late, or without an origin."""
    path.parent.mkdir(exist_ok=True)
    writer = nsys_writer.Writer()
    for trace in traces:
        writer.add(only(trace, lambda event: event.get("cat") in (*ON_GPU, *CALLS)))
    writer.base_ns -= ahead_ns
    writer.write(path)
    if not clock:
        with closing(sqlite3.connect(path)) as con:
            con.execute("DELETE FROM TARGET_INFO_SESSION_START_TIME")
            con.commit()
    return path


def ingested(folder: Path, **options: Any) -> tuple[tw.Warehouse, IngestReport]:
    warehouse = tw.open(folder.with_name(f"{folder.name}-warehouse"))
    return warehouse, warehouse.ingest(folder, jobs=1, **options)


def rows(warehouse: tw.Warehouse, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in warehouse.query(sql, limits=None).rows()]


def states(report: IngestReport) -> dict[str, str]:
    return {file.path.name: file.state for file in report.files}


def finding(warehouse: tw.Warehouse, rule: str) -> list[tuple[object, ...]]:
    return rows(warehouse, f"SELECT rows, example FROM data_quality WHERE rule = '{rule}'")


@pytest.fixture(scope="module")
def expected(simulated: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """The kernels of the whole trace."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    write(folder, trace_of(simulated))
    return rows(ingested(folder)[0], KERNELS)


@pytest.mark.parametrize(
    ("clock", "lost"),
    [(True, ("kernel", *CALLS)), *deep((True, ("kernel",)), (False, ("kernel", *CALLS)))],
)
def test_what_one_of_them_lost_is_in_the_other(
    tmp_path: Path, simulated: Path, expected: list[tuple[object, ...]], clock: bool, lost: tuple[str, ...]
) -> None:
    trace = trace_of(simulated)
    write(tmp_path / "run", without(trace, 7, *lost))
    record(tmp_path / "run" / "report1.sqlite", without(trace, 11, "kernel"), ahead_ns=AHEAD_NS, clock=clock)
    warehouse, report = ingested(tmp_path / "run")
    assert states(report) == {"rank0.json": "intact", "report1.sqlite": "intact"}
    assert {file.reason for file in report.files} == {None, "joined with rank0.json"}
    # What both lack is in neither.

    assert len(expected) > 100
    found = rows(warehouse, KERNELS)
    lost_by_both = [row for row in expected if row not in found]
    assert len(lost_by_both) == len(expected) - len(found) <= len(expected) // 35 + 1
    assert not [row for row in found if row not in expected]
    ((count, example),) = finding(warehouse, "joined")
    assert count == len(found) - int(str(example).split(" only of Nsight Systems, ")[1].split()[0])
    (said,) = rows(
        warehouse,
        "SELECT count(*) FROM events WHERE args->>'recorded by' = 'Nsight Systems' AND category = 'kernel'",
    )
    assert f", {said[0]} only of Nsight Systems" in str(example)
    assert f"its clock is {AHEAD_NS:,}".replace(",", "") in str(example) or not clock


def test_a_trace_of_the_host_has_the_kernels_of_the_recording(
    tmp_path: Path, simulated: Path, expected: list[tuple[object, ...]]
) -> None:
    trace = trace_of(simulated)
    host = only(trace, lambda event: event.get("cat") not in (*ON_GPU, *CALLS, "cuda_sync", "ac2g"))
    write(tmp_path / "run", host)
    record(tmp_path / "run" / "rank0.sqlite", trace)
    warehouse, report = ingested(tmp_path / "run")
    assert states(report) == {"rank0.json": "intact", "rank0.sqlite": "intact"}
    assert rows(warehouse, KERNELS) == expected
    assert finding(warehouse, "joined") == [
        (len(expected), f"rank0.sqlite: 0 GPU activities of both, {len(expected)} only of Nsight Systems,"
         " 0 only of torch; its clock is 0 ns ahead"),
    ]  # fmt: skip


@pytest.mark.deep
def test_processes_are_joined_by_their_numbers_and_stay_so(tmp_path: Path, simulated: Path) -> None:
    traces = [trace_of(simulated, rank) for rank in range(2)]
    for rank, trace in enumerate(traces):
        write(tmp_path / "run", trace, f"rank{rank}.json")
    # Without devices of different numbers, processes of a report are in the order of their numbers.
    record(tmp_path / "run" / "report.sqlite", *reversed(traces))
    warehouse, report = ingested(tmp_path / "run")
    assert [(file.path.name, file.rank, file.state) for file in report.files] == [
        ("rank0.json", 0, "intact"), ("rank1.json", 1, "intact"),
        ("report.sqlite", 0, "intact"), ("report.sqlite", 1, "intact"),
    ]  # fmt: skip
    assert rows(warehouse, "SELECT rank FROM data_quality WHERE rule = 'joined' ORDER BY 1") == [(0,), (1,)]
    _, again = ingested(tmp_path / "run")
    assert {file.state for file in again.files} == {"same"}
    (tmp_path / "run" / "report.sqlite").unlink()
    _, alone = ingested(tmp_path / "run")
    assert {file.state for file in alone.files} == {"refused"}  # other content for the same ranks


def other_names(trace: Trace) -> Trace:
    events = [
        {**event, "name": f"other_{event['ts']}"} if event.get("cat") == "kernel" else event
        for event in trace["traceEvents"]
    ]
    return {**trace, "traceEvents": events}


def test_other_kernels_of_the_same_process_and_time_are_not_joined(
    tmp_path: Path, simulated: Path, expected: list[tuple[object, ...]]
) -> None:
    trace = trace_of(simulated)
    write(tmp_path / "run", trace)
    record(
        tmp_path / "run" / "report.sqlite",
        other_names(only(trace, lambda event: event.get("cat") == "kernel" or event.get("cat") in CALLS)),
    )
    warehouse, report = ingested(tmp_path / "run")
    refused = next(file for file in report.files if file.state == "refused")
    assert refused.path.name == "report.sqlite"
    (found,) = finding(warehouse, "not_joined")
    reason = str(found[1]).removeprefix("report.sqlite: ")
    assert refused.reason == f"not joined with rank0.json: {reason}"
    assert "GPU activities of torch at that time are in Nsight Systems too" in str(found[1])
    assert rows(warehouse, KERNELS) == expected


@pytest.mark.deep
@pytest.mark.parametrize("differs", ["process", "time"])
def test_another_process_or_time_is_another_run(tmp_path: Path, simulated: Path, differs: str) -> None:
    trace = trace_of(simulated)
    write(tmp_path / "run", trace)
    if differs == "process":
        text = json.dumps(trace, default=float).replace('"pid": 40000', '"pid": 41000')
        record(tmp_path / "run" / "report.sqlite", nsys_writer.read_trace(text.encode()))
    else:
        record(tmp_path / "run" / "report.sqlite", trace, ahead_ns=3_600 * 10**9)
    warehouse, report = ingested(tmp_path / "run")
    assert {file.run for file in report.files} == {"run", "report"}
    assert not finding(warehouse, "joined") + finding(warehouse, "not_joined")


def test_a_recording_that_cannot_be_read_is_left_out(
    tmp_path: Path, simulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of(simulated)
    write(tmp_path / "run", trace)
    path = record(tmp_path / "run" / "report.sqlite", trace)

    def damaged(self: NsysSource) -> None:
        raise TraceFormatError(path, "damaged on its way", hint="copy it again")

    monkeypatch.setattr(NsysSource, "_read", damaged)
    warehouse, report = ingested(tmp_path / "run")
    assert states(report) == {"rank0.json": "intact", "report.sqlite": "refused"}
    assert "damaged on its way" in str(finding(warehouse, "not_joined"))


@pytest.mark.deep
def test_replays_of_graphs_are_not_counted_beside_their_kernels(
    tmp_path: Path, simulated: Path, expected: list[tuple[object, ...]]
) -> None:
    trace = trace_of(simulated)
    write(tmp_path / "run", trace)
    path = record(tmp_path / "run" / "report.sqlite", without(trace, 11, "kernel"))
    with closing(sqlite3.connect(path)) as con:
        con.execute(nsys_writer.GRAPH_TABLE)
        con.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT min(start), max(end), deviceId, streamId,"
            " max(correlationId) + 1, globalPid, 1 FROM CUPTI_ACTIVITY_KIND_KERNEL"
            " GROUP BY deviceId, streamId"
        )
        con.commit()
    warehouse, _ = ingested(tmp_path / "run")
    assert rows(warehouse, KERNELS) == expected


@pytest.mark.deep
@pytest.mark.skipif(FOLDER is None, reason="no folder of real traces")
def test_a_real_trace_is_matched_despite_other_names_and_a_clock_that_drifts(tmp_path: Path) -> None:
    assert FOLDER is not None
    path = FOLDER / "h100-vs-mi300-hf" / "h100_qwen1.5-0.5b-chat.json.gz"
    trace = nsys_writer.read_trace(gzip.decompress(path.read_bytes()))
    write(tmp_path / "run", trace)
    chance = random.Random(1)
    events = [
        {
            **event,
            "name": event["name"].replace("(anonymous namespace)", "<unnamed>").replace("<4", "<(int)4"),
            # 2 ppm, and less than 1 µs.
            "ts": event["ts"] * (1 + Decimal("2e-6")) + Decimal(chance.randint(-800, 800)) / 1000,
        }
        for event in trace["traceEvents"]
        if event.get("cat") in CALLS or event.get("cat") in ON_GPU and chance.random() > 0.02
    ]
    record(
        tmp_path / "run" / "report.sqlite", {**trace, "traceEvents": events}, ahead_ns=AHEAD_NS, clock=False
    )
    warehouse, _ = ingested(tmp_path / "run")
    recorded = sum(event["cat"] in ON_GPU for event in events)
    ((count, example),) = finding(warehouse, "joined")
    assert count == recorded and f"{recorded} GPU activities of both, 0 only of Nsight Systems" in str(
        example
    )
