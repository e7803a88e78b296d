"""The pieces of HTA's critical path: its graph, its call stacks, and which of equally long ways it takes."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from witness.hta.critical_graph import Digraph, Edge
from witness.hta.nesting import threads, visits
from witness.hta.rules import Fails


def weight(edge: Edge) -> int:
    return edge.weight


def graph(*edges: tuple[int, int, int]) -> Digraph:
    made = Digraph()
    for source, to, length in edges:
        made.add(source, to, "OPERATOR_KERNEL", length)
    return made


def test_the_longest_way_is_found() -> None:
    assert graph((1, 2, 5), (2, 4, 1), (1, 3, 2), (3, 4, 9)).longest(weight) == [1, 3, 4]


def test_of_equally_long_ways_the_first_made_is_taken() -> None:
    assert graph((1, 2, 5), (1, 3, 5), (2, 4, 1), (3, 4, 1)).longest(weight) == [1, 2, 4]
    assert graph((1, 2, 5), (1, 3, 5), (3, 4, 1), (2, 4, 1)).longest(weight) == [1, 3, 4]


def test_a_way_that_only_goes_back_starts_again() -> None:
    assert graph((1, 2, -5), (2, 3, 4)).longest(weight) == [2, 3]


def test_a_circle_has_no_path() -> None:
    with pytest.raises(Fails, match="circle") as said:
        graph((1, 2, 1), (2, 3, 1), (3, 2, 1)).longest(weight)
    assert said.value.error == "NoPath"


def test_a_second_edge_changes_type_and_weight_but_not_whose_it_was() -> None:
    made = graph((1, 2, 7))
    made.add(1, 3, "KERNEL_KERNEL_DELAY", 2, event=40)
    made.add(1, 3, "DEPENDENCY", 0)
    assert made.after[1][3] == made.before[3][1] == Edge("DEPENDENCY", 0, 40)
    assert made.by_type() == {"OPERATOR_KERNEL": (1, 7), "DEPENDENCY": (1, 0)}


def thread(*slices: tuple[int, int, int], **columns: Any) -> pl.DataFrame:
    rows = pl.DataFrame(slices, schema=["index", "ts", "dur"], orient="row")
    return rows.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def entered(rows: pl.DataFrame) -> list[tuple[int, int]]:
    return [(at, parent) for at, parent, enters in visits(rows) if enters]


def test_equal_starts_nest_by_length_then_by_place() -> None:
    assert entered(thread((1, 0, 5), (2, 0, 9), (3, 0, 5))) == [(2, -1), (1, 2), (3, 1)]


def test_touching_slices_are_beside_each_other() -> None:
    assert entered(thread((1, 0, 5), (2, 5, 5))) == [(1, -1), (2, -1)]


def test_the_stack_pops_whatever_is_on_top() -> None:
    # 1 ends while 2 is on top: 2 is popped, and 3 is taken to be in 1, which is over.
    assert entered(thread((1, 0, 10), (2, 5, 10), (3, 11, 1))) == [(1, -1), (2, 1), (3, 1)]


def test_a_thread_on_which_a_row_carries_a_stream_is_none() -> None:
    host = thread((1, 0, 5), pid="9", tid="12", sid=-1)
    mixed = pl.concat([thread((2, 0, 5), pid="9", tid="3", sid=s) for s in (-1, 0)])
    found = list(threads(pl.concat([host, mixed])))
    assert [rows["tid"][0] for rows in found] == ["12"]
