"""Attribution of kernels and calls, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from activity_rows import build, call, gpu, slice_

from tracewarehouse.ingest.tables.model import LONGEST

LAUNCH = "cudaLaunchKernel"
EVALUATE = "autograd::engine::evaluate_function: "


def module(name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    return slice_(f"nn.Module: {name}", ts, dur, "python_function") | more


def note(name: str, ts: int, dur: int, **more: Any) -> dict[str, Any]:
    return slice_(name, ts, dur, "user_annotation") | more


def owned(rows: list[dict[str, Any]], *names: str, at: int = 50) -> Any:
    """Some columns of the kernel that a call at this time launched."""
    (found,) = build([*rows, call(LAUNCH, at, 1, 7), gpu("gemm", at + 20, 5, 7)]).rows("kernels", *names)
    return found


def test_operators_modules_and_path() -> None:
    rows = [
        module("Net_0", 0, 100),
        slice_("loop", 0, 100, "python_function"),
        module("Linear_1", 1, 90),
        slice_("aten::linear", 2, 80, shapes="[[2]]"),
        slice_("aten::mm", 3, 70, shapes="[[2],[]]", dtypes='["f"]'),
        slice_("over", 4, 1),
    ]
    assert owned(rows, "op_id", "top_op_id", "module_id", "op_sig", "path_sig") == (
        4,
        3,
        2,
        'aten::mm [[2],[]] ["f"]',
        "nn.Module: Net_0 > nn.Module: Linear_1 > aten::linear > aten::mm",
    )


@pytest.mark.parametrize(
    ("more", "text"),
    [({}, "op"), ({"shapes": "[]"}, "op []"), ({"dtypes": '["f"]'}, 'op ["f"]'), ({"name": None}, None)],
)
def test_signature_of_the_operator(more: dict[str, Any], text: str | None) -> None:
    assert owned([slice_("op", 0, 99) | more], "op_sig", "op_id") == (text, 0)


def test_a_path_omits_operators_without_a_name() -> None:
    rows = [slice_("a", 0, 99), slice_(None, 1, 90), slice_("b", 2, 80)]
    assert owned(rows, "path_sig", "op_id") == ("a > b", 2)
    assert owned(rows[1:2], "path_sig", "op_id") == (None, 0)


def test_equal_paths_are_one_text() -> None:
    rows = [slice_("a > b", 0, 40), slice_("a", 40, 60), slice_("b", 41, 50)]
    rows += [call(LAUNCH, 5, 1, 7), gpu("x", 9, 1, 7), call(LAUNCH, 45, 1, 8), gpu("y", 50, 1, 8)]
    column = build(rows).tables["kernels"]["path_sig"].combine_chunks()
    assert column.to_pylist() == ["a > b", "a > b"] and len(column.dictionary) == 1


def test_an_operator_in_the_first_row_of_a_file() -> None:
    rows = [slice_("aten::add", 0, 9), call("cudaLaunchKernel", 1, 1, 1), gpu("a", 4, 1, 1)]
    assert build(rows).rows("kernels", "op_id", "top_op_id") == [(0, 0)]


def test_a_call_outside_operators_has_no_attribution() -> None:
    names = ("op_id", "top_op_id", "module_id", "annotation_id", "op_sig", "path_sig", "pass")
    assert owned([slice_("before", 0, 50), slice_("other", 0, 99, tid="2")], *names) == (None,) * 6 + (
        "other",
    )


def test_what_has_ended_below_a_crossing_slice_does_not_count() -> None:
    # `mm` outlives its parent `linear`.
    rows = [module("Net_0", 0, 100), slice_("linear", 0, 40), slice_("mm", 30, 50)]
    assert owned(rows, "op_id", "top_op_id", "path_sig", at=35) == (2, 1, "nn.Module: Net_0 > linear > mm")
    assert owned(rows, "op_id", "top_op_id", "path_sig", at=40) == (2, 2, "nn.Module: Net_0 > mm")
    assert build([*rows, call("f", 40, 1)]).rows("runtime", "op_id") == [2]
    assert owned(rows[1:], "op_id", "top_op_id", "path_sig", at=40) == (1, 1, "mm")
    ended = [slice_("linear", 0, 40), slice_("plain", 30, 50, "overhead"), slice_("late", 36, 3)]
    assert owned(ended, "op_id", "path_sig", "pass", at=40) == (None, None, "other")


def test_a_path_below_a_crossing_slice_is_shortened_like_any_other() -> None:
    rows = [slice_("op", n, 5000 - n) for n in range(LONGEST + 1)]
    rows += [slice_("ended", 2000, 10), slice_("open", 2005, 100), call("cudaLaunchKernel", 2050, 1, 1)]
    (text,) = build([*rows, gpu("a", 3000, 1, 1)]).rows("kernels", "path_sig")
    assert text == " > ".join(["…", *["op"] * (LONGEST - 1), "open"])


def test_unnamed_operators_do_not_shorten_a_path_below_a_crossing_slice() -> None:
    rows = [slice_("outer", 0, 5000), *[slice_(None, n, 5000 - n) for n in range(1, LONGEST + 2)]]
    rows += [slice_("ended", 2000, 10), slice_("open", 2005, 100), call("cudaLaunchKernel", 2050, 1, 1)]
    assert build([*rows, gpu("a", 3000, 1, 1)]).rows("kernels", "path_sig") == ["outer > open"]
    unnamed = [slice_(None, 0, 40), slice_(None, 30, 50), call("cudaLaunchKernel", 45, 1, 1)]
    assert build([*unnamed, gpu("a", 90, 1, 1)]).rows("kernels", "path_sig") == [None]


def test_a_module_and_a_pass_that_have_ended_do_not_count() -> None:
    rows = [module("Net_0", 0, 40), slice_(f"{EVALUATE}Mm", 1, 39), slice_("mm", 30, 50)]
    assert owned(rows, "module_id", "pass", at=39) == (0, "backward")
    assert owned(rows, "module_id", "pass", at=40) == (None, "forward")


def test_only_frames_named_so_are_modules() -> None:
    assert owned([slice_("nn.Module: X_0", 0, 99)], "op_id", "module_id", "path_sig") == (
        0,
        0,
        "nn.Module: X_0",
    )
    assert owned([slice_("X nn.Module: ", 0, 99, "python_function")], "module_id", "path_sig") == (None, None)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([slice_("aten::mm", 0, 99)], "forward"),
        ([slice_(f"{EVALUATE}MmBackward0", 0, 99), slice_("aten::mm", 1, 90)], "backward"),
        ([slice_(f"{EVALUATE}CheckpointFunctionBackward", 0, 99), slice_("aten::mm", 1, 90)], "recompute"),
        ([slice_(f"{EVALUATE}CheckpointFunctionBackward2", 0, 99)], "backward"),
        ([slice_("x.py(1): recompute_fn", 0, 99, "python_function"), slice_("aten::mm", 1, 90)], "recompute"),
        ([slice_("x.py(1): recompute_fn", 0, 99)], "forward"),
        ([slice_("Optimizer.step#SGD", 0, 99)], "optimizer"),
        ([slice_("Optimizer.step#SGD", 0, 99, "python_function")], "other"),
        ([note("Optimizer.step#SGD", 0, 99), slice_("aten::add_", 1, 90)], "optimizer"),
        ([note("enumerate(DataLoader)#_Iter", 0, 99)], "data"),
        ([slice_("enumerate(DataLoader)#_Iter", 0, 99)], "data"),
        ([module("Net_0", 0, 99)], "other"),
        ([slice_(f"{EVALUATE}A", 0, 99), slice_("Optimizer.x", 1, 90)], "optimizer"),
        ([note("Optimizer.x", 0, 99), slice_(f"{EVALUATE}A", 1, 90)], "backward"),
        ([slice_(f"{EVALUATE}A", 0, 99), note("Optimizer.x", 1, 90)], "optimizer"),
        ([slice_(f"{EVALUATE}A", 3, 90), note("Optimizer.x", 3, 90)], "optimizer"),
        ([note("Optimizer.x", 0, 99), note("inner", 1, 90)], "optimizer"),
        ([note("Optimizer.x", 0, 50), note("inner", 1, 90), slice_("aten::mm", 2, 90)], "forward"),
    ],
)
def test_passes_of_training(rows: list[dict[str, Any]], wanted: str) -> None:
    assert owned(rows, "pass") == wanted


def test_the_innermost_annotation_that_is_open() -> None:
    rows = [note("out", 0, 99), note("in", 10, 60), note("over", 20, 5), note("later", 51, 5)]
    assert owned(rows, "annotation_id") == 1
    assert owned([note("a", 50, 9), note("b", 50, 5)], "annotation_id") == 1
    assert owned([note("ends", 0, 50)], "annotation_id") is None


@pytest.mark.parametrize("place", [{"tid": "2"}, {"pid": "2"}, {"tid": None}, {"pid": "2", "tid": None}])
def test_an_annotation_of_another_thread_does_not_enclose(place: dict[str, Any]) -> None:
    assert owned([slice_("op", 0, 1), note("a", 0, 99) | place], "annotation_id") is None


def test_without_a_process_or_thread_no_annotation_encloses() -> None:
    rows = [note("a", 0, 99, tid=None), call(LAUNCH, 50, 1, 7, tid=None), gpu("gemm", 70, 5, 7)]
    assert build(rows).rows("kernels", "annotation_id") == [None]


def test_all_rows_of_a_graph_launch_belong_to_its_operator() -> None:
    rows = [slice_("op", 0, 9), call("cudaGraphLaunch", 1, 2, 7), *(gpu("k", at, 1, 7) for at in (5, 6, 7))]
    assert build(rows).rows("kernels", "op_id", "path_sig") == [(0, "op")] * 3
