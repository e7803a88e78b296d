"""Metrics: their syntax, and their values for runs with known rows."""

from __future__ import annotations

import pytest

import sketch
import tracewarehouse as tw
from tracewarehouse.compare.metric.expression import Measured, Metric, parse_metric, parse_metric_prefix
from tracewarehouse.compare.metric.values import measure
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, TwError, UnknownName

# Complete steps, with events before and after them: of `a` 1 (period 100), 2 (100), 3 (250); of `b` rank 0
# has 1 (100) and 2 (300), rank 1 has 1 (100). `host` has no GPU, `short` no complete step.
RUNS = """
    a 0 op   t1 before -100 10
    a 0 step t1 1 0 100
    a 0 op   t1 aten::mm 0 10
    a 0 step t1 2 100 100
    a 0 step t1 3 200 250
    a 0 op   t1 aten::mm 210 40
    a 0 gpu  s7 gemm 210 20
    a 0 gpu  s7 gemm 240 30
    a 0 gpu  s7 ncclDevKernel_AllReduce 300 50
    a 0 op   t1 after 500 10
    b 0 op   t1 before -100 10
    b 0 step t1 1 0 100
    b 0 step t1 2 100 300
    b 0 gpu  s7 gemm 40 10
    b 0 op   t1 after 500 10
    b 1 op   t1 before -100 10
    b 1 step t1 1 0 100
    b 1 op   t1 aten::mm 0 30
    b 1 gpu  s7 gemm 40 40
    b 1 op   t1 after 500 10
    host 0 op t1 aten::mm 0 10
    short 0 step t1 1 0 100
    short 0 gpu s7 gemm 0 100
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """A warehouse with these runs."""
    folder = tmp_path_factory.mktemp("metric")
    sketch.write(RUNS.replace("    ", ""), folder / "traces")
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    return wh


def parsed(text: str) -> Metric:
    return parse_metric(text, Catalog.load())


def of(house: tw.Warehouse, text: str, *runs: str) -> Measured:
    (found,) = measure(parsed(text), house.selection.select(runs=list(runs)))
    return found


def values(house: tw.Warehouse, text: str, *runs: str) -> dict[str, float | None]:
    return {each.run: each.value for each in of(house, text, *runs).runs}


def test_a_metric_is_parsed() -> None:
    short = parsed("step_time")
    assert (short.contract.name, short.column.name, short.filters) == ("step_summary", "period_ns", ())
    found = parsed("kernel_summary@1.sum_ns[kind=communication,name='f<int, 4>']")
    assert (str(found.contract.ref), found.column.name) == ("kernel_summary@1", "sum_ns")
    filters = [(column.name, value) for column, value in found.filters]
    assert filters == [("kind", "communication"), ("name", "f<int, 4>")]
    filters = [(column.name, value) for column, value in parsed("step_time[rank=3,step=12]").filters]
    assert filters == [("rank", 3), ("step", 12)]
    assert parsed("name_summary.count[on_gpu=true,step=null]").filters[0][1] is True
    assert parsed("name_summary.count[on_gpu=true,step=null]").filters[1][1] is None


def test_a_metric_within_a_longer_text() -> None:
    text = "step_time<=+3%"
    found, end = parse_metric_prefix(text, Catalog.load())
    assert (str(found), text[end:]) == ("step_time", "<=+3%")
    text = "x: kernel_summary.sum_ns[kind=memory] < 3ms"
    found, end = parse_metric_prefix(text, Catalog.load(), 3)
    assert (str(found), text[end:]) == ("kernel_summary.sum_ns[kind=memory]", " < 3ms")


@pytest.mark.parametrize(
    ("text", "error", "place", "says", "hint"),
    [
        ("", ParamError, "end", "expected an analysis", "step_time"),
        ("step_tim", UnknownName, "character 1", "unknown analysis: step_tim", "step_time"),
        ("kernel_sumary.sum_ns", UnknownName, "character 1", "unknown analysis", "kernel_summary"),
        ("kernel_summary@9.sum_ns", UnknownName, "character 1", "unknown version", "kernel_summary@1"),
        ("kernel_summary", ParamError, "end", "`.` and a column", "sum_ns"),
        ("kernel_summary.sum", UnknownName, "character 16", "unknown measure", "sum_ns"),
        ("kernel_summary.name", UnknownName, "character 16", "unknown measure", "available: count"),
        ("kernel_summary.sum_ns[kid=a]", UnknownName, "character 23", "to filter by: kid", "kind"),
        ("kernel_summary.sum_ns[run_id=a]", UnknownName, "character 23", "to filter by", "device"),
        ("kernel_summary.sum_ns[count=1]", UnknownName, "character 23", "to filter by", "device"),
        ("kernel_summary.sum_ns[kind]", ParamError, "character 27", "expected `=`", "for example"),
        ("kernel_summary.sum_ns[kind=]", ParamError, "character 28", "expected a value", "quote"),
        ("kernel_summary.sum_ns[kind=a", ParamError, "character 22", "this `[` is not closed", "for example"),
        ("kernel_summary.sum_ns[kind='a]", ParamError, "character 28", "unterminated quote", "for example"),
        (
            "kernel_summary.sum_ns[kind=a,kind=b]",
            ParamError,
            "character 30",
            "duplicate filter: kind",
            "for example",
        ),
        ("kernel_summary.sum_ns[rank=x]", ParamError, "character 28", "an integer", "for example"),
        ("step_time.period_ns", UnknownName, "character 1", "unknown analysis: step_time", "step_summary"),
        ("step_time<=3%", ParamError, "character 10", "unexpected text", "for example"),
    ],
)
def test_a_bad_metric_points_at_the_position(
    text: str, error: type[TwError], place: str, says: str, hint: str
) -> None:
    with pytest.raises(error) as caught:
        parsed(text)
    assert caught.value.message.startswith(f"metric {text!r}, {place}: ")
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")
    assert str(caught.value) == caught.value.message


def test_step_time_is_the_median_step_of_the_mean_rank(house: tw.Warehouse) -> None:
    found = of(house, "step_time", "a", "b")
    assert [(each.run, each.value, each.steps) for each in found.runs] == [
        ("a", 100.0, (100.0, 100.0, 250.0)),
        ("b", 200.0, (100.0, 300.0)),
    ]
    assert [each.mean for each in found.runs] == [150.0, 500 / 3]
    assert [each.ranks for each in found.runs] == [1, 2]
    assert (found.median, found.mean) == (150.0, (150 + 500 / 3) / 2)
    assert found.per == "of the median complete step, mean of its ranks"
    assert values(house, "step_time[rank=1]", "a", "b") == {"a": None, "b": 100.0}


def test_sums_are_per_step_or_second_and_rank(house: tw.Warehouse) -> None:
    # Of 3 steps; of 3 steps of two ranks. Without steps of all ranks, of the recorded time.
    assert values(house, "kernel_summary.sum_ns", "a", "b") == {"a": 100 / 3, "b": 50 / 3}
    assert values(house, "kernel_summary.sum_ns[kind=communication]", "a", "b") == {"a": 50 / 3, "b": 0.0}
    assert of(house, "kernel_summary.sum_ns", "a").per == "per recorded step and rank"
    found = of(house, "op_summary.count[name=aten::mm]", "a", "host")
    assert [each.value for each in found.runs] == [2e9 / 610, 1e9 / 10]
    assert found.per == "per recorded second and rank"
    # Without complete steps, each of `short` counts as one; shares of a rank stay shares.
    assert values(house, "kernel_summary.sum_ns", "short") == {"short": 100.0}
    assert values(house, "kernel_type_breakdown.share", "a") == {"a": 1.0}
    found = of(house, "name_summary.sum_ns[name=aten::mm]", "a", "b")
    assert [each.value for each in found.runs] == [50 / 3, 30 / 3]
    assert found.per == "per complete step and rank"
    assert found.runs[0].steps == (10.0, 0.0, 40.0)
    found = of(house, "name_summary.sum_ns[name=aten::mm]", "a", "host")
    assert [(each.value, each.reason) for each in found.runs] == [(50 / 3, None), (None, "no complete step")]
    found = of(house, "name_summary.count[name=aten::mm]", "host")
    assert ([each.value for each in found.runs], found.per) == ([1e9 / 10], "per recorded second and rank")


def test_other_folds(house: tw.Warehouse) -> None:
    assert values(house, "kernel_summary.min_ns[name=gemm]", "a", "b") == {"a": 20.0, "b": 10.0}
    assert values(house, "kernel_summary.max_ns", "a", "b") == {"a": 50.0, "b": 40.0}
    assert values(house, "kernel_summary.mean_ns[name=gemm]", "a", "b") == {"a": 25.0, "b": 25.0}
    assert values(house, "comm_comp_overlap.overlap", "b") == {"b": None}
    assert of(house, "comm_comp_overlap.overlap", "b").reason == "comm_ns is 0"


def test_a_column_without_a_fold_needs_one_row(house: tw.Warehouse) -> None:
    assert values(house, "kernel_summary.p50_ns[name=gemm]", "a") == {"a": 20.0}
    assert values(house, "kernel_summary.p50_ns[name=gemm,rank=1]", "b") == {"b": 40.0}
    with pytest.raises(TwError, match="p50_ns cannot be aggregated over rows; run b has 2 rows") as raised:
        of(house, "kernel_summary.p50_ns[name=gemm]", "a", "b")
    assert raised.value.hint == "select one with a filter: kernel_summary.p50_ns[name=gemm,rank=…]"


def test_runs_without_a_value_have_a_reason(house: tw.Warehouse) -> None:
    found = of(house, "step_time", "a", "host", "short")
    assert {each.run: (each.value, each.reason) for each in found.runs} == {
        "a": (100.0, None),
        "host": (None, "requires 1 step, found 0"),
        "short": (None, "no complete step"),
    }
    assert found.values == (100.0,)
    assert of(house, "temporal_breakdown.idle_ns", "host").reason == "no GPU activities recorded"


def test_a_filter_without_matching_rows_is_an_error(house: tw.Warehouse) -> None:
    with pytest.raises(UnknownName, match="unknown kind of kernel_summary@1: comunication") as raised:
        of(house, "kernel_summary.sum_ns[kind=comunication]", "a", "b")
    assert raised.value.hint == "did you mean communication, computation?"
    with pytest.raises(UnknownName, match="unknown row") as raised:
        of(house, "kernel_summary.sum_ns[kind=communication,name=gemm]", "a", "b")
    assert raised.value.hint == "no row has all of these: kind, name"
    both = parsed("kernel_summary.sum_ns[kind=communication]")
    base, head = measure(both, house.selection.select(runs="a"), house.selection.select(runs="b"))
    assert (base.values, head.values) == ((50 / 3,), (0.0,)), "there is such a row on one side"
