"""Which call launched a GPU activity, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from activity_rows import SENTINELS, build, call, gpu, slice_

HOUR_NS = 3_600_000_000_000
LAUNCH = "cudaLaunchKernel"


def launched(rows: list[dict[str, Any]]) -> list[tuple[int | None, str]]:
    return build(rows).rows("kernels", "runtime_id", "launch_state")


def test_of_calls_that_share_an_id_the_outermost_launches() -> None:
    rows = [call("hipArray3DCreate", 11, 2, 7), call("hipMemsetAsync", 10, 5, 7), gpu("Memset", 20, 1, 7)]
    assert launched(rows) == [(1, "known")]
    assert build(rows).rows("correlations", "call_to_start_ns", "return_to_start_ns", "via") == [
        (10, 5, "correlation")
    ]


@pytest.mark.parametrize(("lengths", "caller"), [((5, 5), 0), ((5, 6), 1), ((6, 5), 0)])
def test_of_calls_that_start_together_the_longer_launches_of_equal_ones_the_first(
    lengths: tuple[int, int], caller: int
) -> None:
    rows = [*(call(LAUNCH, 10, length, 7) for length in lengths), gpu("a", 20, 1, 7)]
    assert launched(rows) == [(caller, "known")]


def test_a_call_that_ends_with_an_earlier_one_is_part_of_it() -> None:
    rows = [call(LAUNCH, 0, 10, 7), call(LAUNCH, 4, 6, 7), call(LAUNCH, 5, 6, 7), gpu("a", 4, 1, 7)]
    assert launched(rows) == [(0, "known")]
    assert launched([*rows[:3], gpu("a", 5, 1, 7)]) == [(2, "known")]


def test_an_id_used_again_is_linked_to_the_call_before() -> None:
    rows = [
        call(LAUNCH, 0, 2, 7),
        gpu("a", 9, 1, 7),
        call(LAUNCH, 10, 2, 7),
        gpu("b", 10, 1, 7),
        gpu("c", 15, 1, 7),
    ]
    assert launched(rows) == [(0, "known"), (2, "known"), (2, "known")]


def test_without_a_call_before_the_first_one_after_launches() -> None:
    rows = [call(LAUNCH, 20, 2, 7), call(LAUNCH, 10, 2, 7), gpu("a", 5, 1, 7)]
    assert launched(rows) == [(1, "known")]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_call_more_than_28_hours_away_launched_nothing(sign: int) -> None:
    farthest = 100_000_000_000_000
    at = 10 * farthest
    assert launched([call(LAUNCH, at, 1, 7), gpu("a", at + sign * farthest, 1, 7)]) == [(0, "known")]
    assert launched([call(LAUNCH, at, 1, 7), gpu("a", at + sign * (farthest + 1), 1, 7)]) == [
        (None, "missing")
    ]


def test_a_near_call_after_counts_if_the_one_before_is_too_far() -> None:
    rows = [call(LAUNCH, 0, 1, 7), call(LAUNCH, 80 * HOUR_NS, 1, 7), gpu("a", 60 * HOUR_NS, 1, 7)]
    assert launched(rows) == [(1, "known")]


def test_a_near_call_of_another_id_launched_nothing() -> None:
    rows = [call(LAUNCH, 0, 1, 7), call(LAUNCH, 60 * HOUR_NS - 9, 1, 8), gpu("a", 60 * HOUR_NS, 1, 7)]
    assert launched(rows) == [(None, "missing")]


def test_times_at_both_ends_of_64_bits_are_far_apart() -> None:
    rows = [call(LAUNCH, -(2**63) + 5, 1, 7), gpu("a", 2**63 - 5, 1, 7)]
    assert launched(rows) == [(None, "missing")]


@pytest.mark.parametrize("identity", [*SENTINELS, -7, None])
def test_a_sentinel_id_links_nothing(identity: int | None) -> None:
    rows = [
        call(LAUNCH, 0, 2, identity),
        gpu("a", 5, 1, identity),
        slice_("s", 6, 1, "cuda_sync", correlation=identity),
    ]
    built = build(rows)
    assert built.rows("kernels", "runtime_id", "correlation") == [(None, identity)]
    assert built.rows("syncs", "runtime_id", "correlation") == [(None, identity)]
    assert built.rows("runtime", "correlation") == [identity]
    assert built.rows("correlations") == []


@pytest.mark.parametrize("identity", [1, 2**32, 2**32 - 2, 2**63 - 2])
def test_every_other_id_pairs(identity: int) -> None:
    assert launched([call(LAUNCH, 0, 2, identity), gpu("a", 5, 1, identity)]) == [(0, "known")]


@pytest.mark.parametrize("category", ["cuda_driver", "mtia_runtime", "xpu_runtime", "privateuse1_driver"])
def test_calls_of_any_runtime_launch(category: str) -> None:
    assert launched([call("f", 0, 2, 7, category=category), gpu("a", 5, 1, 7)]) == [(0, "known")]


@pytest.mark.parametrize("row", [{"category": "cpu_op"}, {"dur_ns": None}, {"ph": "i"}])
def test_rows_that_are_not_calls_launch_nothing(row: dict[str, Any]) -> None:
    assert launched([call(LAUNCH, 0, 2, 7) | row, gpu("a", 5, 1, 7)]) == [(None, "missing")]


def test_a_graph_launch_has_many_rows() -> None:
    rows = [
        call("cudaGraphLaunch", 0, 2, 7),
        gpu("a", 5, 1, 7),
        gpu("b", 6, 1, 7),
        call(LAUNCH, 8, 1, 8),
        gpu("c", 9, 1, 8),
    ]
    assert build(rows).rows("correlations", "runtime_id", "kernel_id", "is_graph") == [
        (0, 1, True), (0, 2, True), (3, 4, False),
    ]  # fmt: skip


def test_a_call_without_a_name_launches_no_graph() -> None:
    assert build([call(None, 0, 2, 7), gpu("a", 5, 1, 7)]).rows("correlations", "is_graph") == [False]


def test_correlations_are_by_call_then_by_row() -> None:
    rows = [
        gpu("b", 30, 1, 8),
        gpu("a", 20, 1, 7),
        call(LAUNCH, 9, 1, 7),
        call(LAUNCH, 2, 1, 8),
        gpu("c", 40, 1, 7),
    ]
    assert build(rows).rows("correlations", "runtime_id", "kernel_id") == [(2, 1), (2, 4), (3, 0)]


def test_rows_before_the_first_linked_one_of_their_stream() -> None:
    rows = [
        gpu("early", 1, 1),
        call(LAUNCH, 2, 1, 7),
        gpu("linked", 5, 1, 7),
        gpu("at once", 5, 1),
        gpu("late", 8, 1),
        gpu("other stream", 1, 1, stream=9),
        gpu("other device", 1, 1, device=1),
        gpu("no stream", 1, 1, stream=None),
        gpu("stream -1", 5, 1, 7, stream=-1),
    ]
    states = dict(build(rows).rows("kernels", "name", "launch_state"))
    assert {name for name, state in states.items() if state == "before_window"} == {"early", "no stream"}
    assert {name for name, state in states.items() if state == "known"} == {"linked", "stream -1"}


def flow(
    ph: str, ts: int, flow_id: str | None = "3", pid: str = "1", tid: str | None = "1"
) -> dict[str, Any]:
    row = slice_("ac2g", ts, None, "ac2g", ph=ph, flow_id=flow_id)
    return row | {"pid": pid, "tid": tid}


def end(ts: int, flow_id: str | None = "3") -> dict[str, Any]:
    return flow("f", ts, flow_id, "0", "7")


def test_without_an_id_the_flow_links() -> None:
    rows = [call(LAUNCH, 10, 5), call("cudaGetDevice", 11, 1), gpu("a", 20, 1), flow("s", 12), end(20)]
    assert build(rows).rows("correlations", "runtime_id", "kernel_id", "via") == [(1, 2, "flow")]
    gpu_first = [rows[2], end(20), *rows[:2], rows[3]]
    assert build(gpu_first).rows("correlations", "runtime_id", "kernel_id", "via") == [(3, 0, "flow")]
    arrow_first = [rows[3], end(20), *rows[:3]]
    assert build(arrow_first).rows("correlations", "runtime_id", "kernel_id", "via") == [(3, 4, "flow")]
    rows[3] = flow("s", 13)
    assert build(rows).rows("correlations", "runtime_id", "kernel_id", "via") == [(0, 2, "flow")]
    rows[3] = flow("s", 16)
    assert build(rows).rows("correlations") == []


@pytest.mark.parametrize("identity", SENTINELS)
def test_a_row_with_a_sentinel_id_is_linked_by_its_flow(identity: int) -> None:
    rows = [call(LAUNCH, 10, 5, 3), gpu("a", 20, 1, identity), flow("s", 10), end(20)]
    assert build(rows).rows("correlations", "runtime_id", "via") == [(0, "flow")]


def test_a_row_with_an_id_follows_no_flow() -> None:
    rows = [call(LAUNCH, 10, 5, 3), gpu("a", 20, 1, 4), flow("s", 10), end(20)]
    assert launched(rows) == [(None, "missing")]


def test_of_several_flow_the_one_that_begins_last_counts_then_the_first_in_the_file() -> None:
    calls = [call(LAUNCH, 10, 5), call(LAUNCH, 20, 5), call(LAUNCH, 20, 5, tid="2"), gpu("a", 40, 1)]
    later = [*calls, flow("s", 21), flow("s", 11), end(40)]
    assert build(later).rows("correlations", "runtime_id") == [1]
    tied = [*calls, flow("s", 21, "4", tid="2"), flow("s", 21, "5"), end(40, "5"), end(40, "4")]
    assert build(tied).rows("correlations", "runtime_id") == [2]


@pytest.mark.parametrize(
    "change",
    [
        {"ts_ns": None},
        {"flow_id": None},
        {"flow_id": "9"},
        {"raw_category": "fwdbwd"},
        {"ph": "t"},
        {"pid": None},
        {"tid": "8"},
        {"raw_category": None},
    ],
)
def test_an_flow_that_does_not_begin_at_the_call_links_nothing(change: dict[str, Any]) -> None:
    rows = [call(LAUNCH, 10, 5), gpu("a", 20, 1), flow("s", 10) | change, end(20)]
    assert launched(rows) == [(None, "missing")]


@pytest.mark.parametrize(
    "change",
    [{"ts_ns": 21}, {"pid": "2"}, {"tid": "8"}, {"category": "fwdbwd"}, {"flow_id": None}, {"ph": "s"}],
)
def test_an_flow_that_does_not_end_at_the_row_links_nothing(change: dict[str, Any]) -> None:
    rows = [call(LAUNCH, 10, 5), gpu("a", 20, 1), flow("s", 10), end(20) | change]
    assert launched(rows) == [(None, "missing")]


def test_zero_is_a_flow_id_a_stream_and_a_device() -> None:
    rows = [call(LAUNCH, 10, 5), gpu("a", 20, 1, device=0, stream=0), flow("s", 10, "0"), end(20, "0")]
    built = build(rows)
    assert built.rows("kernels", "runtime_id", "device", "stream") == [(0, 0, 0)]
