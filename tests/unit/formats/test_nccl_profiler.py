"""Traces of NCCL's profiler plug-in: pairs of begins and ends, and collectives from channels of kernels."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from tracewarehouse.formats.registry import detect

COMMUNICATOR = 17_093_776_592_125_785_438  # beyond 63 bits


def event(phase: str, category: str, name: str, number: int, us: float, **args: Any) -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": phase, "id": number, "pid": 7, "tid": 1, "ts": us} | (
        {"args": args} if args else {}
    )


def collective(number: int, us: float, channels: int, name: str = "AllReduce") -> list[dict[str, Any]]:
    """A call and its collective; its channels start 10 µs later, one after another, and end together."""
    given = {"SeqNum": number, "CommHash": COMMUNICATOR, "Rank": 3, "Count": 1024, "Datatype": "ncclFloat32"}
    ids = count(number * channels)
    began = [event("b", "GPU", "KernelCh", next(ids), us + 10 + at, Channel=at) for at in range(channels)]
    ended = [{**each, "ph": "e", "ts": us + 100.5} for each in began]
    return [
        event("b", "GROUP_API", "Group API", number, us),
        event("b", "COLL_API", name, number, 0.0, count=1024),
        event("b", "COLL", name, number, us + 1.25, **given),
        *began,
        *ended,
        event("e", "COLL", name, number, us + 110.75),
        event("e", "COLL_API", name, number, us + 111),
        event("e", "GROUP_API", "Group API", number, us + 112),
    ]


def ingested(tmp_path: Path, events: list[dict[str, Any]]) -> tw.Warehouse:
    path = tmp_path / "ncclprof.json"
    path.write_text(json.dumps([*events, {}]), encoding="utf-8")
    assert detect(path).name == "nccl_profiler"
    wh = tw.open(tmp_path / "warehouse")
    report = wh.ingest(path, run="a")
    assert [(file.state, file.rank) for file in report.files] == [("intact", 3)]
    return wh


def rows(wh: tw.Warehouse, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in wh.query(sql, limits=None).rows()]


def test_slices_have_durations_and_kernels_the_time_of_all_channels(tmp_path: Path) -> None:
    wh = ingested(tmp_path, collective(0, 1000.0, 2) + collective(1, 2000.125, 4))
    sql = "SELECT name, count(*), sum(dur_ns)::BIGINT, count(ts_ns) FROM events GROUP BY name ORDER BY name"
    assert rows(wh, sql) == [
        ("AllReduce", 2, None, 0),  # its begin has the time 0
        ("Group API", 2, 2 * 112_000, 2),
        ("KernelCh", 6, 6 * 90_500 - 1_000 - 6_000, 6),
        ("nccl::AllReduce", 2, 2 * 109_500, 2),
        ("ncclDevKernel_AllReduce", 2, 2 * 90_500, 2),
    ]
    columns = "collective, process_group, sequence, dtype, in_elements, dur_ns"
    sql = f"SELECT {columns} FROM collectives ORDER BY sequence"
    assert rows(wh, sql) == [
        ("all_reduce", str(COMMUNICATOR), each, "Float", 1024, 90_500) for each in (0, 1)
    ]


def test_without_channels_the_collective_is_the_slice(tmp_path: Path) -> None:
    wh = ingested(tmp_path, collective(0, 1000.0, 0, "ReduceScatter"))
    assert rows(wh, "SELECT collective, on_gpu, dur_ns FROM collectives") == [
        ("reduce_scatter", False, 109_500)
    ]
    assert rows(wh, "SELECT count(*) FROM kernels") == [(0,)]


def test_exposed_communication_is_not_claimed_without_computation(tmp_path: Path) -> None:
    wh = ingested(tmp_path, [each for at in range(40) for each in collective(at, 1000.0 + 120 * at, 2)])
    assert "exposed_comm" not in {row["rule"] for row in wh.check("a").rows()}


def test_a_time_that_is_too_large_is_none(tmp_path: Path) -> None:
    events = [{**each, "ts": 1e308} if each["ph"] == "e" else each for each in collective(0, 1000.0, 2)]
    assert rows(ingested(tmp_path, events), "SELECT count(*), count(dur_ns) FROM events") == [(6, 0)]


def test_the_steps_of_a_kernel_are_no_channels(tmp_path: Path) -> None:
    events = collective(0, 1000.0, 2)
    steps = [event(phase, "GPU", "KernelStep", 0, 990.0 + at) for at, phase in enumerate("be")]
    wh = ingested(tmp_path, [*events[:-3], *steps, *events[-3:]])
    sql = "SELECT dur_ns, args->>'nccl_profiler.channels' FROM events WHERE category = 'kernel'"
    assert rows(wh, sql) == [(90_500, "2")]
    # The call and what is not part of a collective have no correlation ID.
    sql = "SELECT DISTINCT name FROM events WHERE correlation IS NULL ORDER BY 1"
    assert rows(wh, sql) == [("AllReduce",), ("Group API",)]


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-9], lambda text: text.replace('"ts": 0', '"ts": "x"')]
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Any) -> None:
    path = tmp_path / "ncclprof.json"
    path.write_text(damage(json.dumps(collective(0, 1000.0, 2))), encoding="utf-8")
    file = detect(path).open(path)
    report = tw.open(tmp_path / "warehouse").ingest(path)
    assert file.parts()[0].rank == 3
    assert [each.state for each in report.files] == ["refused"]
    assert "not a complete trace of NCCL's profiler plug-in" in str(report.files[0].reason)
