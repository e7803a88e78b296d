"""Activities from hand-made traces, with the native and with the Python scanner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trace_reading import ReadTrace, same
from trace_texts import SMALL_BYTES, event, gz, trace, write
from tracewarehouse.formats.kineto import batches

EXACT = pytest.mark.parametrize("exact", [False, True], ids=["native", "rows"])


def read(
    folder: Path, events: list[Any], *, exact: bool = False, more: dict[str, Any] | None = None, **header: Any
) -> ReadTrace:
    return ReadTrace(write(folder, trace(events, **header)), exact=exact, **(more or {}))


@EXACT
def test_a_small_trace_column_by_column(tmp_path: Path, exact: bool) -> None:
    found = ReadTrace(write(tmp_path, gz(SMALL_BYTES)), exact=exact)
    base = 1751410836000000000
    assert found.row(0) == {
        "event_id": 0, "ph": "X", "category": "cpu_op", "raw_category": "cpu_op",
        "name": 'aten::add "quoted" \u00e9 {', "pid": "7", "tid": "8",
        "ts_ns": 1712195495521311104 + base, "dur_ns": 19890, "external_id": 36,
        "shapes": "[[77,1],[],[[2,3]]]",
        "args": '{"External id":36,"Input Dims":[[77,1],[],[[2,3]]],"Concrete Inputs":["","[1, 2]"]}',
    }  # fmt: skip
    kernel = found.row(2)
    assert (kernel["ts_ns"], kernel["ts_text"]) == (base + 3520313170133290, "3520313170133.29012345678901")
    assert (kernel["dur_ns"], kernel["grid_x"], kernel["device"], kernel["stream"]) == (0, 77, 0, 7)
    assert "correlation" not in kernel  # does not fit 64 bits
    assert found.column("extra") == [None, None, None, '{"bp":"e"}', None, '{"s":"t","ts":"3520313170133"}']
    assert found.column("flow_id") == [None, "6", None, "6", None, None]
    assert found.row(5)["bytes"] == -512
    outcome = found.outcome
    assert (outcome.rank, outcome.world_size, outcome.base_time_ns, outcome.events) == (3, 8, base, 6)
    assert json.loads(outcome.header_json)["traceName"] == "out ] } .json" and outcome.status == "intact"


@EXACT
@pytest.mark.parametrize(
    "ts, dur, base, expected",
    [
        # ts_ns, dur_ns, ts_text, dur_text
        ("5", "2", 0, (5000, 2000, None, None)),
        ("5.000", "2.5", 0, (5000, 2500, "5.000", "2.5")),
        ("5.125", "0", 10, (5135, 0, None, None)),
        ("-5.125", "1", 10000, (4875, 1000, "-5.125", None)),
        ("1.0004", "1.0001", 0, (1000, 1001, "1.0004", "1.0001")),  # the end is rounded, not the duration
        ("1.0005", "1", 0, (1001, 1000, "1.0005", None)),
        ("-1.0005", "1", 0, (-1001, 1000, "-1.0005", None)),
        ("-0.0005", "0.001", 0, (-1, 2, "-0.0005", "0.001")),
        ("-0.0005", "0.001", 7, (7, 1, "-0.0005", None)),
        ("1e3", "25E-1", 0, (1000000, 2500, "1e3", "25E-1")),
        ("5", "-1", 0, (5000, None, None, "-1")),
        ("5", "100000000000.001", 0, (5000, None, None, "100000000000.001")),
        ("9223372036854775.807", "1", 0, (2**63 - 1, None, None, "1")),
        ("9223372036854775.808", "1", 0, (None, None, "9223372036854775.808", "1")),
        ('"12.5"', '"x"', 0, (12500, None, "12.5", "x")),
        ("true", "null", 0, (None, None, None, None)),
    ],
)
def test_times(tmp_path: Path, ts: str, dur: str, base: int, expected: tuple[Any, ...], exact: bool) -> None:
    text = (
        f'{{"traceEvents": [{{"ph":"X","name":"a","ts":{ts},"dur":{dur}}}], "baseTimeNanoseconds": {base}}}'
    )
    found = ReadTrace(write(tmp_path, text.encode()), exact=exact)
    assert tuple(found.column(name)[0] for name in ("ts_ns", "dur_ns", "ts_text", "dur_text")) == expected


@EXACT
def test_zero_is_an_invalid_time_if_all_others_are_hours_later(tmp_path: Path, exact: bool) -> None:
    events = [event(ts=0, dur=1), {"ph": "M", "name": "process_name", "ts": 0}, event(ts=3_600_000_001)]
    late = read(tmp_path, events, exact=exact)
    assert late.column("ts_ns") == [None, 0, 3_600_000_001_000]
    assert late.column("ts_text") == ["0", None, None] and late.column("dur_text") == ["1", None, "2.5"]
    early = read(tmp_path, [*events[:2], event(ts=3_600_000_000)], exact=exact)
    assert early.column("ts_ns")[0] == 0


@EXACT
def test_begin_and_end_events_are_paired(tmp_path: Path, exact: bool) -> None:
    def at(ph: str, ts: float, tid: Any = 1) -> dict[str, Any]:
        return {"ph": ph, "name": "b", "pid": 1, "tid": tid, "ts": ts}

    events = [
        at("E", 1),
        at("B", 2),
        at("B", 3),
        at("E", 5),
        at("B", 4, 2),
        at("E", 9),
        at("E", 8, "2"),
        at("B", 9),
    ]
    found = read(tmp_path, events, exact=exact, baseTimeNanoseconds=100)
    assert found.column("end_id") == [None, 5, 3, None, 6, None, None, None]
    assert found.column("dur_ns") == [None, 7000, 2000, None, 4000, None, None, None]


@EXACT
def test_streams_and_devices_by_role(tmp_path: Path, exact: bool) -> None:
    events = [
        event(cat="kernel", pid=3, tid="stream 7"),
        event(cat="Kernel", pid=3, tid=7, args={"stream": 9, "device": 1}),
        event(cat="gpu_memcpy", pid=3, tid=7, args={"Stream Id": 11}),
        event(cat="gpu_user_annotation", pid=0, tid=20, args={"stream": 9}),
        event(cat="cuda_sync", pid=0, tid=20, args={"stream": 4294967295, "device": "2"}),
        event(cat="cpu_op", pid=3, tid=7, args={"stream": 9, "Device Id": 4}),
    ]
    found = read(tmp_path, events, exact=exact)
    assert found.column("stream") == [7, 9, 11, 20, -1, None]
    assert found.column("device") == [3, 1, 3, 0, 2, 4]
    assert found.column("category")[1] == "kernel" and found.column("raw_category")[1] == "Kernel"


@EXACT
def test_categories_of_slices_without_one(tmp_path: Path, exact: bool) -> None:
    def bare(name: str, pid: Any, ph: str = "X") -> dict[str, Any]:
        return {"ph": ph, "name": name, "pid": pid, "tid": 1, "ts": 1, "dur": 1}

    named = {"ph": "M", "name": "process_name", "pid": "5", "args": {"name": "GPU 0"}}
    events = [
        bare("MatMul", 5), bare("Memcpy DtoD", 5), bare("FillBuffer", 5), bare("hipLaunchKernel", 4),
        bare("AscendCL@aclrt", 4), bare("op", 4), bare("op", 5, "i"), named,
        event(cat="musa_runtime"), event(cat="gcu_driver", ph="B"), event(cat="musa_runtime", ph="i"),
    ]  # fmt: skip
    found = read(tmp_path, events, exact=exact)
    assert found.column("category") == [
        "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "privateuse1_runtime", None, None, None,
        "privateuse1_runtime", "privateuse1_driver", "musa_runtime",
    ]  # fmt: skip


@EXACT
def test_ids_with_ambiguous_text_are_in_extra(tmp_path: Path, exact: bool) -> None:
    events = [
        event(pid="12", tid=5, bp="e"), event(pid=12, tid="x 5", id="9"), event(pid=1.5, tid="1.5", id=[1]),
    ]  # fmt: skip
    found = read(tmp_path, events, exact=exact)
    assert found.column("pid") == ["12", "12", "1.5"] and found.column("flow_id") == [None, "9", "[1]"]
    extras = ['{"pid": "12", "bp":"e"}', '{"id": "9"}', '{"pid": 1.5, "id": [1]}']
    assert found.column("extra") == extras


@EXACT
def test_irregular_elements_are_stored_verbatim(tmp_path: Path, exact: bool) -> None:
    text = (
        '{"traceEvents": [{"ph":"X","name":1,"ts":5,"color":{"a":[1.50]}}, 17, [1, "x"], {}, null,'
        ' {"ph":"X","name":"a","name":"b","args":null}, {"ph":"X","args":"none","cat":null}]}'
    )
    found = ReadTrace(write(tmp_path, text.encode()), exact=exact)
    assert found.column("extra") == [
        '{"name":1,"color":{"a":[1.50]}}', "17", '[1,"x"]', None, "null",
        '{"args":null,"__duplicates__":[["name","a"]]}', '{"cat":null}',
    ]  # fmt: skip
    assert found.column("name")[5] == "b" and found.column("args")[6] == '"none"'


@EXACT
def test_irregular_arguments(tmp_path: Path, exact: bool) -> None:
    args = [
        {"correlation": "7", "grid": [1, "2", 3], "bytes": 5.5, "stream": "0x10"},
        {"External id": None, "external id": 3, "registers per thread": True},
        {"nested": {"Collective name": "x", "correlation": 5}},
        {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]", "Group size": 2, "dtype": 1e3},
    ]
    found = read(tmp_path, [event(cat="kernel", args=one) for one in args], exact=exact)
    assert found.column("correlation") == [7, None, None, None]
    assert [found.row(0)[name] for name in ("grid_x", "grid_y", "grid_z", "bytes", "stream")] == [
        1,
        2,
        3,
        6,
        16,
    ]
    assert (found.row(1)["external_id"], found.row(1)["registers_per_thread"]) == (3, 1)
    assert found.column("has_collective") == [False, False, False, True]
    assert (found.row(3)["group_ranks"], found.row(3)["collective_dtype"]) == ("[0, 1]", "1000.0")


def test_arguments_are_verbatim(tmp_path: Path) -> None:
    args = r'{"a":"\u00e9\/ x","b":1.50,"c":[1E+2],"Input type":["\u003cx>"]}'
    text = f'{{"traceEvents": [{{"ph": "X", "args": {args}, "ts": 1}}]}}'
    for exact in (False, True):
        found = ReadTrace(write(tmp_path, text.encode()), exact=exact)
        assert (found.column("args"), found.column("dtypes")) == ([args], [r'["\u003cx>"]'])


@pytest.mark.deep
def test_a_spilled_trace_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event(name=f"op {at % 7}", ts=at, args={"n": at}) for at in range(300_000)]
    path = write(tmp_path, trace(events))
    before = ReadTrace(path)
    monkeypatch.setattr(batches.Spill.__init__, "__defaults__", (1000,))
    after = ReadTrace(path)
    assert same(before, after) == [] and before.activities.num_rows == 300_000
    assert after.column("args")[299_999] == '{"n":299999}'


def test_known_content_is_not_read_twice(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL_BYTES)
    digest = ReadTrace(path).outcome.digest
    again = ReadTrace(path, known_digest=digest)
    assert again.tables == {} and again.outcome.digest == digest
    assert ReadTrace(path, known_digest="0").activities.num_rows == 6


def test_progress_counts_up_to_the_text(tmp_path: Path) -> None:
    seen: list[int] = []
    found = read(
        tmp_path, [event(args={"pad": "x" * 1000}) for _ in range(5000)], more={"progress": seen.append}
    )
    assert len(seen) > 2 and seen == sorted(seen) and seen[-1] == found.outcome.text_bytes


@pytest.mark.parametrize("base", ["99999999999999999999", "-1e30", "1e999999999", '"Infinity"', "[1]"])
def test_a_base_time_out_of_range_is_ignored(tmp_path: Path, base: str) -> None:
    text = f'{{"baseTimeNanoseconds": {base}, "traceEvents": [{{"ph":"X","ts":1}}]}}'
    assert ReadTrace(write(tmp_path, text.encode())).outcome.base_time_ns == 0
