"""How slices nest, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from activity_rows import build, call, columns_of, gpu, random_rows, slice_
from plain_tables import places

from tracewarehouse.ingest.rules import rules_of
from tracewarehouse.ingest.tables.nesting import nest


def tree(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return build(rows).rows("events", "parent_id", "depth", "pre", "post", "crosses")


def parents(rows: list[dict[str, Any]]) -> list[int | None]:
    return [row[0] for row in tree(rows)]


def test_at_one_instant_ends_come_before_starts_and_zero_lengths_last() -> None:
    rows = [slice_("a", ts, dur) for ts, dur in ((0, 10), (10, 0), (10, 10), (10, 5), (20, 0))]
    assert parents(rows) == [None, 3, None, 2, None]


def test_of_equal_slices_the_later_in_the_file_is_inside() -> None:
    assert tree([slice_("out", 0, 4), slice_("in", 0, 4)]) == [(None, 1, 1, 2, False), (0, 2, 2, 2, False)]


def test_a_crossing_slice_keeps_its_children_and_is_flagged() -> None:
    rows = [slice_("a", ts, dur) for ts, dur in ((0, 10), (5, 10), (12, 2), (14, 16))]
    assert parents(rows) == [None, 0, 1, 1]
    assert [row[4] for row in tree(rows)] == [False, True, False, True]
    assert [row[1] for row in tree(rows)] == [1, 2, 3, 3]


def test_threads_and_processes_do_not_share_a_tree() -> None:
    rows = [slice_("a", 0, 9), slice_("b", 1, 3, tid="2"), slice_("c", 1, 3, pid="2"), slice_("d", 1, 3)]
    assert parents(rows) == [None, None, None, 0]


def test_annotations_nest_among_themselves_and_come_last() -> None:
    rows = [
        slice_("note", 0, 9, "user_annotation"),
        slice_("op", 1, 5),
        slice_("inner", 2, 3, "user_annotation"),
    ]
    assert tree(rows) == [(None, 1, 2, 3, False), (None, 1, 1, 1, False), (0, 2, 3, 3, False)]


def test_lanes_are_in_the_order_of_their_texts() -> None:
    rows = [
        slice_("a", 0, 1, tid=tid, pid=pid)
        for pid, tid in (("2", "1"), ("10", "9"), ("10", "10"), ("é", "1"))
    ]
    assert [row[2] for row in tree(rows)] == [3, 2, 1, 4]


def test_no_process_and_the_empty_text_are_one_lane() -> None:
    rows = [slice_("a", 0, 9, tid=None, pid=None), slice_("b", 1, 2, tid="", pid="")]
    assert parents(rows) == [None, 0]


@pytest.mark.parametrize(
    "category",
    ["kernel", "gpu_user_annotation", "cuda_profiler_range", "cuda_event", "cuda_sync", "Trace", "ac2g"],
)
def test_other_rows_do_not_nest(category: str) -> None:
    rows = [slice_("a", 0, 9), slice_("b", 1, 2, category), slice_("c", 1, 2)]
    assert parents(rows) == [None, None, 0]
    assert [row[1] for row in tree(rows)] == [1, None, 2]


@pytest.mark.parametrize("category", ["cpu_op", "python_function", "overhead", "no_such_category", None])
def test_any_other_slice_does(category: str | None) -> None:
    assert parents([slice_("a", 0, 9, category), slice_("b", 1, 2, category)]) == [None, 0]


def test_only_slices_with_a_duration_nest() -> None:
    rows = [slice_("a", 0, 9, ph="B"), slice_("b", 1, None), slice_("c", 1, 3, ph="i"), call("d", 2, 2)]
    assert parents(rows) == [None, None, None, 0]
    assert [row[2] for row in tree(rows)] == [1, None, None, 2]


def test_times_far_apart_on_several_lanes() -> None:
    rows = [
        slice_("a", -(2**62), 10), slice_("b", 2**62, 10, tid="2"), slice_("c", 2**62, 9, tid="2"),
        slice_("d", -(2**62) + 3, 3),
    ]  # fmt: skip
    assert parents(rows) == [None, None, 1, 0]


def test_ends_near_the_end_of_64_bits_on_several_lanes() -> None:
    inside = [slice_("a", 0, 2**63 - 10, tid="2"), slice_("b", 5, 5, tid="2")]
    assert parents([slice_("c", 0, 1), slice_("d", 2**60, 1), *inside]) == [None, None, None, 2]


def test_starts_far_before_zero_and_an_end_far_after_it() -> None:
    assert parents([slice_("a", -(2**62), 2**63 - 10), slice_("b", -(2**62) + 100, 5)]) == [None, 0]


def test_a_rank_without_rows_and_one_without_host_slices() -> None:
    assert build([]).rows("events") == []
    assert tree([gpu("a", 0, 1)]) == [(None,) * 5]


def test_the_tree_is_the_same_in_columns_and_by_position() -> None:
    rows = random_rows(13)
    columns, wanted = columns_of(rows), places(rows)
    found = nest(columns, rules_of())
    order = sorted(wanted, key=lambda n: wanted[n].pre)
    assert found.rows.tolist() == order
    assert [wanted[n].post for n in order] == found.post.tolist()
    assert [wanted[n].depth for n in order] == columns.ints("depth", found.rows).values.tolist()
    above = columns.ints("parent_id", found.rows)
    assert [wanted[n].parent_id for n in order] == [
        row if there else None for row, there in zip(above.values.tolist(), above.valid.tolist(), strict=True)
    ]
    assert found.lanes[0] == 0 and found.lanes[-1] == len(found.rows) and len(found.lanes) > 2
    for (_, is_annotation, pid, tid), low, high in zip(
        found.threads, found.lanes[:-1], found.lanes[1:], strict=True
    ):
        lane = [rows[n] for n in found.rows[low:high].tolist()]
        assert {(row["pid"] or "", row["tid"] or "") for row in lane} == {(pid, tid)}
        assert {row["category"] == "user_annotation" for row in lane} == {is_annotation}
