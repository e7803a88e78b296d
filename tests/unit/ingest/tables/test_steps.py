"""Steps: their annotations, the time that belongs to each, and the step of each row."""

from __future__ import annotations

from typing import Any

import pytest
from activity_rows import build, call, gpu, slice_, step

LAUNCH = "cudaLaunchKernel"


def step_of(rows: list[dict[str, Any]], name: str) -> list[int | None]:
    return [number for found, number in build(rows).rows("events", "name", "step") if found == name]


def test_steps_and_their_periods() -> None:
    rows = [
        slice_("before", 0, 5), *(step(n, 10 * n, 10) for n in (1, 2, 3)),
        call(LAUNCH, 12, 1, 1), gpu("a", 15, 10, 1), call(LAUNCH, 22, 1, 2), gpu("b", 26, 10, 2),
        call(LAUNCH, 32, 1, 3), gpu("c", 40, 5, 3), slice_("after", 50, 5),
    ]  # fmt: skip
    names = (
        "step",
        "host_start_ns",
        "host_ns",
        "device_start_ns",
        "device_ns",
        "period_start_ns",
        "period_ns",
    )
    built = build(rows)
    assert built.rows("steps", *names, "partial") == [
        (1, 10, 10, 15, 10, 10, 15, True),
        (2, 20, 10, 26, 10, 25, 11, False),
        (3, 30, 10, 40, 5, 36, 9, True),
    ]
    assert built.rows("kernels", "step") == [1, 2, 3]
    assert step_of(rows, "before") == step_of(rows, "after") == [None]


def test_a_single_step_is_kept_and_flagged() -> None:
    names = ("step", "host_ns", "device_start_ns", "device_ns", "period_ns", "partial")
    assert build([step(7, 0, 10), slice_("a", 0, 9)]).rows("steps", *names) == [(7, 10, None, None, 10, True)]


def test_without_steps_the_table_is_empty_and_rows_have_no_step() -> None:
    built = build([slice_("ProfilerStep#", 0, 9), call(LAUNCH, 1, 1, 7), gpu("a", 3, 1, 7)])
    assert built.rows("steps") == [] and set(built.rows("events", "step")) == {None}
    assert built.rows("kernels", "step") == [None]


@pytest.mark.parametrize("number", [0, 2**31 - 1, 2**31, 2**62])
def test_numbers_of_steps_may_be_large(number: int) -> None:
    built = build([step(number, 0, 10), slice_("a", 1, 1)])
    assert built.rows("steps", "step") == [number] and built.rows("events", "step") == [number, number]


def test_a_step_inside_another_takes_over_while_it_lasts() -> None:
    rows = [step(1, 0, 10), step(2, 2, 3), *(slice_("a", at, 1) for at in (1, 2, 4, 5, 7, 9, 10))]
    assert step_of(rows, "a") == [1, 2, 2, 1, 1, 1, None]


def test_of_steps_that_start_together_the_last_in_the_file_takes_the_time() -> None:
    assert step_of([step(5, 0, 10), step(4, 0, 4), slice_("a", 1, 1), slice_("a", 6, 1)], "a") == [4, 5]


def test_a_gap_between_steps_belongs_to_none() -> None:
    rows = [step(1, 0, 3), step(2, 6, 3), *(slice_("a", at, 1) for at in (2, 3, 5, 6, 8, 9))]
    assert step_of(rows, "a") == [1, None, None, 2, 2, None]


def test_an_annotation_without_duration_is_a_step_without_rows() -> None:
    built = build([step(1, 5, 0), slice_("a", 5, 1), step(2, 5, 4)])
    assert built.rows("steps", "step", "host_ns") == [(1, 0), (2, 4)]
    assert set(built.rows("events", "step")) == {2}


def test_a_step_with_two_annotations_goes_from_the_first_to_the_last_end() -> None:
    rows = [step(3, 20, 5), slice_("first", 0, 1), step(3, 10, 5), slice_("last", 90, 1)]
    assert build(rows).rows("steps", "event_id", "host_start_ns", "host_ns", "partial") == [
        (2, 10, 15, False)
    ]


@pytest.mark.parametrize("category", ["user_annotation", "cpu_op"])
def test_step_annotations_are_annotations_or_operators(category: str) -> None:
    assert build([step(3, 0, 5, category=category)]).rows("steps", "step") == [3]


@pytest.mark.parametrize(
    "change",
    [
        {"category": "python_function"}, {"category": "gpu_user_annotation"}, {"dur_ns": None}, {"ph": "i"},
        {"name": "ProfilerStep"}, {"name": "ProfilerStep#x"}, {"name": "My ProfilerStep#3"}, {"name": None},
        {"name": f"ProfilerStep#{2**63}"}, {"name": "profilerstep#3"},
    ],
)  # fmt: skip
def test_other_names_are_not_steps(change: dict[str, Any]) -> None:
    assert build([step(3, 0, 5) | change, slice_("a", 1, 1)]).rows("steps") == []


def test_text_after_the_number_is_ignored_and_numbers_may_be_large() -> None:
    rows = [
        slice_("ProfilerStep#12 (warm up)", 0, 5, "user_annotation"),
        step(2**62, 5, 5),
        slice_("a", 6, 1),
    ]
    built = build(rows)
    assert built.rows("steps", "step") == [12, 2**62]
    assert built.rows("events", "step") == [12, 2**62, 2**62]


@pytest.mark.parametrize(
    ("row", "number"),
    [
        ({"ph": "C"}, 1),
        ({"ph": "B", "dur_ns": None}, 1),
        ({"ph": "E"}, 1),
        ({"ph": "i"}, 1),
        ({"ph": "I"}, 1),
        ({"ph": "P"}, 1),
        ({"ph": "R"}, 1),
        ({"ph": "M"}, None),
        ({"ph": "s"}, None),
        ({"ph": None}, None),
        ({"ts_ns": None}, None),
        ({"category": "kernel"}, None),
        ({"category": "gpu_user_annotation"}, None),
        ({"category": "cuda_event"}, None),
        ({"category": "Trace"}, None),
        ({"category": "cuda_sync"}, 1),
        ({"category": "cuda_profiler_range"}, None),
        ({"category": None}, 1),
    ],
)
def test_which_rows_have_the_step_of_their_start(row: dict[str, Any], number: int | None) -> None:
    assert step_of([step(1, 0, 9), slice_("a", 3, 2) | row], "a") == [number]


def test_a_gpu_activity_has_the_step_of_its_launch_not_of_its_start() -> None:
    rows = [step(1, 0, 10), step(2, 10, 10), call(LAUNCH, 9, 1, 7), gpu("a", 15, 1, 7), gpu("lost", 15, 1)]
    assert build(rows).rows("kernels", "step") == [1, None]


def test_a_step_ends_no_earlier_than_the_one_before() -> None:
    rows = [step(1, 0, 10), step(2, 10, 10), call(LAUNCH, 1, 1, 7), gpu("long", 5, 95, 7)]
    assert build(rows).rows("steps", "period_start_ns", "period_ns") == [(0, 100), (100, 0)]


def test_a_period_does_not_end_before_its_own_step_starts() -> None:
    rows = [step(1, 50, 10), step(2, 70, 10), call(LAUNCH, 71, 1, 7), gpu("early", 20, 5, 7)]
    assert build(rows).rows("steps", "period_start_ns", "period_ns") == [(50, 10), (60, 10)]


@pytest.mark.parametrize(
    ("first_gpu", "last_gpu", "partial"),
    [((1, 1), (98, 1), False), ((11, 1), (98, 1), True), ((1, 1), (12, 8), True)],
)
def test_a_step_at_the_edge_of_the_device_window_is_partial(
    first_gpu: tuple[int, int], last_gpu: tuple[int, int], partial: bool
) -> None:
    rows = [
        slice_("first", 0, 1), step(1, 10, 10), call(LAUNCH, 11, 1, 7), gpu("a", 11, 9, 7),
        gpu("b", *first_gpu), gpu("c", *last_gpu), slice_("last", 99, 1),
    ]  # fmt: skip
    assert build(rows).rows("steps", "device_start_ns", "device_ns", "partial") == [(11, 9, partial)]
