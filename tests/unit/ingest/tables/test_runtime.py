"""Calls of a GPU runtime, annotations, synchronizations, and the columns of every row."""

from __future__ import annotations

from typing import Any

import pytest
from activity_rows import build, call, gpu, slice_, step


@pytest.mark.parametrize(
    ("name", "is_launch", "is_sync"),
    [
        ("cudaLaunchKernel", True, False),
        ("hipGraphLaunch", True, False),
        ("cudaMemcpyAsync", True, False),
        ("cudaDeviceSynchronize", False, True),
        ("frobnicate", False, False),
        (None, False, False),
        ("", False, False),
    ],
)
def test_calls_by_name(name: str | None, is_launch: bool, is_sync: bool) -> None:
    rows = [call(name, 0, 1), call("other", 1, 1), call(name, 2, 1)]
    found = build(rows).rows("runtime", "name", "is_launch", "is_sync")
    assert found == [(name, is_launch, is_sync), ("other", False, False), (name, is_launch, is_sync)]


def test_a_call_with_a_gpu_activity_launches_whatever_its_name() -> None:
    rows = [
        call("odd", 0, 1, 7),
        call(None, 2, 1, 8),
        call("odd", 3, 1, 9),
        gpu("a", 5, 1, 7),
        gpu("b", 6, 1, 8),
    ]
    assert build(rows).rows("runtime", "is_launch") == [True, True, False]


def test_the_columns_of_a_call() -> None:
    rows = [step(3, 0, 50), slice_("op", 0, 9), call("f", 2, 3, -1, category="cuda_driver", pid="9", tid="x")]
    assert build(rows).rows("runtime") == [
        {
            "event_id": 2,
            "api": "cuda_driver",
            "name": "f",
            "correlation": -1,
            "pid": "9",
            "tid": "x",
            "ts_ns": 2,
            "dur_ns": 3,
            "is_launch": False,
            "is_sync": False,
            "op_id": None,
            "step": 3,
        }
    ]


def test_the_enclosing_operator_of_a_call() -> None:
    rows = [slice_("out", 0, 9), slice_("in", 1, 5), call("a", 2, 1), call("b", 6, 1), call("c", 9, 1)]
    assert build(rows).rows("runtime", "op_id") == [1, 0, None]


def test_annotations_on_the_host_and_on_the_gpu() -> None:
    rows = [
        step(3, 0, 50), slice_("note", 1, 9, "user_annotation", external_id=4, shapes="[[1]]"),
        gpu("note", 5, 3, category="gpu_user_annotation", external_id=4), slice_("op", 1, 1),
        slice_("open", 1, None, "user_annotation"), slice_("mark", 1, 2, "user_annotation", ph="i"),
    ]  # fmt: skip
    built = build(rows)
    names = ("event_id", "on_gpu", "device", "stream", "step", "depth", "parent_id", "pre", "post", "crosses")
    assert built.rows("annotations", *names) == [
        (0, False, None, None, 3, 1, None, 2, 3, False), (1, False, None, None, 3, 2, 0, 3, 3, False),
        (2, True, 0, 7, None, None, None, None, None, None),
    ]  # fmt: skip
    assert built.rows("annotations", "name", "external_id", "shapes")[1:] == [
        ("note", 4, "[[1]]"),
        ("note", 4, None),
    ]


@pytest.mark.parametrize("calls", [[], [call("without an id", 0, 1)]])
def test_a_synchronization_if_no_call_has_an_id(calls: list[dict[str, Any]]) -> None:
    rows = [*calls, slice_("Context Sync", 6, 1, "cuda_sync", correlation=8)]
    assert build(rows).rows("syncs", "runtime_id") == [None]


def test_a_synchronization_and_the_first_call_of_its_id() -> None:
    wait = {
        "sync_kind": "Stream Wait Event",
        "wait_on_stream": 0,
        "wait_on_event": 2,
        "wait_on_correlation": 3,
    }
    rows = [
        call("second", 4, 1, 7),
        call("first", 2, 1, 7),
        call("tied", 2, 1, 7),
        slice_("name", 5, 1, "cuda_sync", correlation=7, stream=-1, device=0, **wait),
        slice_("Context Sync", 6, 1, "cuda_sync", correlation=8),
        slice_("x", 6, None, "cuda_sync", correlation=7),
    ]
    assert build(rows).rows("syncs") == [
        {
            "event_id": 3,
            "kind": "Stream Wait Event",
            "device": 0,
            "stream": -1,
            "ts_ns": 5,
            "dur_ns": 1,
            "correlation": 7,
            "runtime_id": 1,
            "wait_on_stream": 0,
            "wait_on_event": 2,
            "wait_on_correlation": 3,
            "step": None,
        },
        {
            "event_id": 4,
            "kind": "Context Sync",
            "device": None,
            "stream": None,
            "ts_ns": 6,
            "dur_ns": 1,
            "correlation": 8,
            "runtime_id": None,
            "wait_on_stream": None,
            "wait_on_event": None,
            "wait_on_correlation": None,
            "step": None,
        },
    ]


def test_every_row_is_an_event_with_all_its_values() -> None:
    row: dict[str, Any] = {
        "ph": "B",
        "category": "cpu_op",
        "raw_category": "Operator",
        "name": "a",
        "pid": "p",
        "tid": "t",
        "ts_ns": 5,
        "dur_ns": 2,
        "ts_text": "5.0",
        "dur_text": "2.0",
        "correlation": 1,
        "external_id": 2,
        "stream": 3,
        "device": 4,
        "bytes": -5,
        "sequence_number": 6,
        "forward_thread": 7,
        "python_id": 8,
        "python_parent_id": 9,
        "module_id": 10,
        "shapes": "[]",
        "dtypes": '["x"]',
        "flow_id": "f",
        "end_id": 1,
        "args": '{"x":1}',
        "extra": '{"y":2}',
    }
    nothing = {"ph": None, "name": None, "extra": "7"}
    found = build([row, nothing, step(2, 0, 9)]).rows("events")
    places = {"step": 2, "depth": 1, "parent_id": None, "pre": 1, "post": 1, "crosses": False}
    assert found[0] == {"event_id": 0, **row, **places}
    assert found[1] == dict.fromkeys(found[0]) | {"event_id": 1, "extra": "7"}
    assert [each["event_id"] for each in found] == [0, 1, 2]
