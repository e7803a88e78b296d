"""Analyses in `tw query` and `wh.query`: views, macros with parameters, skipped ranks, limits."""

from __future__ import annotations

from pathlib import Path

import pytest

import sketch
import tracewarehouse
from tracewarehouse.duck.engine import QueryLimitError
from tracewarehouse.errors import QueryError
from tracewarehouse.limits import Limits
from tracewarehouse.warehouse import Warehouse

TWO_RUNS = """
    a 0 gpu s7 gemm 0 100
    a 0 gpu s7 relu 600 90
    a 1 op t1 aten::add 0 10
    b 0 gpu s7 gemm 0 7
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Run a, whose rank 1 has no GPU activities, and run b."""
    folder = tmp_path_factory.mktemp("views")
    sketch.write(TWO_RUNS, folder / "traces")
    wh = tracewarehouse.open(folder / "warehouse")
    for run in ("a", "b"):
        wh.ingest(folder / "traces" / run, run=run)
    return wh


def test_a_view_has_the_rows_of_the_analysis(house: Warehouse) -> None:
    queried = house.query("SELECT * FROM temporal_breakdown")
    analyzed = house.temporal_breakdown()
    assert queried.rows() == analyzed.rows() != []
    assert queried.skipped == analyzed.skipped != ()


def test_a_macro_takes_parameters_and_joins(house: Warehouse) -> None:
    sql = (
        "SELECT run_id, sum(idle_ns) AS idle_ns FROM stream_idle(kernel_wait_ns := {})"
        " JOIN runs USING (run_id) WHERE cause = 'kernel_wait' GROUP BY ALL"
    )
    assert house.query(sql.format(1)).rows() == []
    expected = [row for row in house.stream_idle(kernel_wait_ns=1000).rows() if row["cause"] == "kernel_wait"]
    assert house.query(sql.format(1000)).rows() == [
        {"run_id": row["run_id"], "idle_ns": row["idle_ns"]} for row in expected
    ]


def test_only_selected_runs_are_visible(house: Warehouse) -> None:
    sql = "SELECT DISTINCT run_id FROM kernel_summary"
    assert house.select(runs="b").query(sql).rows() == [{"run_id": "b"}]


def test_help_and_lists_have_analyses(house: Warehouse) -> None:
    names = {
        row["name"] for row in house.query("SELECT DISTINCT name FROM tw_help WHERE kind = 'analysis'").rows()
    }
    assert {"stragglers", "kernel_summary"} <= names
    assert names <= {row["name"] for row in house.query("SHOW TABLES").rows()}


def test_a_misspelled_analysis_is_suggested(house: Warehouse) -> None:
    with pytest.raises(QueryError) as raised:
        house.query("FROM kernel_sumary")
    assert raised.value.hint == 'Did you mean "kernel_summary"?'
    assert raised.value.message.endswith("(line 1: FROM kernel_sumary)")


def test_limits_hold_for_analyses(house: Warehouse) -> None:
    with pytest.raises(QueryLimitError, match="more than 1 rows"):
        house.query("FROM kernel_summary", Limits(max_rows=1))


def test_notices_concern_the_runs_of_the_answer(tmp_path: Path) -> None:
    lines = [f"{run} {rank} gpu s7 gemm 0 7" for run in ("a", "b") for rank in (0, 1)]
    sketch.write("\n".join(lines), tmp_path / "traces")
    wh = tracewarehouse.open(tmp_path / "warehouse")
    for run in ("a", "b"):
        wh.ingest(*sorted((tmp_path / "traces" / run).iterdir())[:1], run=run)
    a, b = (f"{run} is incomplete: 1 of 2 ranks" for run in ("a", "b"))
    assert wh.query("SELECT count(*) FROM kernels").notices == (a, b)
    assert wh.query("SELECT count(*) FROM kernels WHERE run_id = 'b'").notices == (b,)
    assert wh.query("SELECT run_id FROM kernels WHERE run_id < 'b'").notices == (a,)
    assert wh.select(runs="b").query("SELECT count(*) FROM kernels").notices == (b,)
