"""`Result.plot()`: the chart selected by the contract, as an Altair chart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.present.plot.chart_for_result import _numbered, page_chart
from tracewarehouse.present.plot.charts import Bar, bar_chart, histogram_bins
from tracewarehouse.present.plot.parts import COLORS, WIDTH, Axis, Scale, color_key, format_short


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("plot")
    tw.simulate(folder / "traces", ranks=2, steps=3, layers=1, hidden=256, sequence=256)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "traces", run="small")
    return warehouse


def chart_of(warehouse: tw.Warehouse, name: str, measure: str | None = None) -> dict[str, Any]:
    """The Vega-Lite specification of the chart of an analysis."""
    spec: dict[str, Any] = warehouse.analyze(name).plot(measure).to_dict()
    return spec


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    (data,) = spec["datasets"].values() if "datasets" in spec else (spec["data"]["values"],)
    return list(data)


def test_a_breakdown_is_stacked(warehouse: tw.Warehouse) -> None:
    spec = chart_of(warehouse, "temporal_breakdown")
    rows = {(row["rank"], part): row[part] for row in warehouse.temporal_breakdown().rows() for part in row}
    shown = {(row["row"], row["part"]): row["value"] for row in values(spec)}
    scale = Scale.of([row["window_ns"] for row in warehouse.temporal_breakdown().rows()], "ns")
    assert shown["rank 1 device 1", "compute_ns"] * scale.divisor == pytest.approx(rows[1, "compute_ns"])
    assert spec["encoding"]["y"]["sort"] == ["rank 0 device 0", "rank 1 device 1"]
    assert spec["title"]["text"].startswith("Breakdown of each device's GPU window")


def test_the_contract_selects_the_chart_type(warehouse: tw.Warehouse) -> None:
    marks = {
        "window_account": "bar",  # categories with a share: stacked
        "memory_curve": "line",  # over time
        "launch_stats": "rect",  # a row per event: a distribution
    }
    for name, mark in marks.items():
        spec = chart_of(warehouse, name)
        assert spec.get("layer", [spec])[0]["mark"]["type"] == mark, name
    assert len(chart_of(warehouse, "step_summary")["layer"]) == 2
    kernels = chart_of(warehouse, "kernel_summary")
    sizes = [row["value"] for row in values(kernels)]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == 20
    assert kernels["title"]["subtitle"].startswith("sum_ns, lower is better, 20 of ")


def test_a_page_has_the_chart_of_the_contract(warehouse: tw.Warehouse) -> None:
    def drawn(name: str, measure: str | None = None) -> tuple[str, str, list[str]]:
        found = warehouse.analyze(name)
        assert found.contract is not None
        title, chart, legend = page_chart(found.contract, found.rows(), _numbered, measure)
        return title, chart.body, [part for _, part in legend]

    title, body, legend = drawn("temporal_breakdown")
    assert title == "by category" and "compute_ns" in legend and "rank 1 device 1 compute_ns" in body
    title, body, _ = drawn("queue_length")
    assert title == "queue_length over time" and body.count("H") > 10, "a step line"
    assert "rank 1 device 1 stream 7: " in body and "time since start" in body
    assert drawn("memory_curve")[0] == "allocated_bytes over time"
    title, body, _ = drawn("step_summary", "period_ns")
    rows = warehouse.analyze("step_summary").rows()
    assert title == "period_ns by step" and body.count("step ") == len({row["step"] for row in rows})
    assert "<path" in body and f"step {rows[0]['step']}: " in body and " to " in body
    assert drawn("launch_stats")[0].startswith("distribution of ")
    kernels = warehouse.analyze("kernel_summary").rows()
    title, body, _ = drawn("kernel_summary")
    largest = max(row["sum_ns"] for row in kernels)
    assert title == f"sum_ns, largest first, 20 of {len(kernels)}" and format_short(largest, "ns") in body
    with pytest.raises(UnknownName):
        drawn("kernel_summary", "nothing")


def test_a_measure_by_name(warehouse: tw.Warehouse) -> None:
    spec = chart_of(warehouse, "temporal_breakdown", "idle_ns")
    assert spec["title"]["subtitle"] == "idle_ns, lower is better"
    with pytest.raises(UnknownName, match="unknown measure: idle"):
        warehouse.temporal_breakdown().plot("idle")


def test_a_query_can_be_plotted(warehouse: tw.Warehouse) -> None:
    result = warehouse.query("SELECT kind, sum(dur_ns) AS total FROM kernels GROUP BY kind")
    shown = {row["label"]: row["value"] for row in values(result.plot().to_dict())}
    assert shown == {row["kind"]: float(row["total"]) for row in result.rows()}


def test_a_chart_is_saved_without_a_browser(warehouse: tw.Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "steps.svg"
    done = call("show", "step_account", "-w", warehouse.root, "-o", path)
    assert (done.code, done.err) == (0, "")
    assert path.read_text(encoding="utf-8").startswith("<svg")


def test_a_result_that_cannot_be_plotted_raises(warehouse: tw.Warehouse) -> None:
    with pytest.raises(TwError, match="no rows to plot"):
        warehouse.query("SELECT 1 AS one WHERE false").plot()
    with pytest.raises(TwError, match="no measure to plot"):
        warehouse.query("SELECT 'a' AS name").plot()


def test_a_missing_extra_is_one_error_with_a_hint(
    warehouse: tw.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(TwError, match="altair is not installed") as raised:
        warehouse.temporal_breakdown().plot()
    assert raised.value.hint == "pip install 'tracewarehouse[plot]'"
    done = call("report", "small", "-w", warehouse.root, "-o", warehouse.root / "x.html")
    assert done.code == 0  # the charts of pages need no extra
    assert (warehouse.root / "x.html").read_text(encoding="utf-8").count('<svg role="group"') > 10


def test_one_color_per_category() -> None:
    assert color_key("communication") == color_key("exposed_comm_ns") == "exposed_comm"
    assert color_key("computation") == color_key("compute") == "compute"
    assert color_key("gemm") == "plain"
    for at in (0, 1):
        same = ("idle", "exposed_unassigned", "comm_wait")  # other words for one of the others
        shown = [pair[at] for name, pair in COLORS.items() if name not in same]
        assert len(set(shown)) == len(shown) - (COLORS["base"][at] in (COLORS["plain"][at],))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (999.0, "ns", "999 ns"),
        (12_345.0, "ns", "12.3 µs"),
        (999_999.0, "ns", "1.00 ms"),
        (1_500_000_000, "ns", "1.50 s"),
        (0.4123, "ratio", "41.2 %"),
        (0.0, "ratio", "0 %"),
        (1536, "bytes", "1.50 KiB"),
        (12_345, "count", "12,345"),
        (-2_500.0, "ns", "-2.50 µs"),
    ],
)
def test_values_have_three_significant_digits(value: float, unit: str, text: str) -> None:
    assert format_short(value, unit) == text


def test_the_scale_follows_the_largest_value() -> None:
    assert Scale.of([5.0, 2e6], "ns") == Scale(1e6, "ms")
    assert Scale.of([], "ns").axis_title("time") == "time (ns)"
    assert Scale.of([3.0], None).axis_title("rows") == "rows"


def test_bars_start_at_zero_and_no_label_crosses_the_line_there() -> None:
    rows = [Bar("a", 30, "longer", "+30", "a: +30"), Bar("b", -10, "shorter", "-10", "b: -10")]
    drawn = fromstring(bar_chart(rows).svg("changes"))
    label, first, at_zero, *_ = [
        {key: float(each.get(key, 0)) for key in ("x", "y", "width", "height")}
        for each in drawn
        if each.tag == "rect" or each.text == "a"
    ]
    assert first["x"] == at_zero["x"] + 0.5 == WIDTH / 4
    assert first["width"] == 3 * WIDTH / 4
    assert label["y"] < at_zero["y"]  # its baseline is above the line
    assert at_zero["y"] + at_zero["height"] < 32  # the next row begins there
    marks = [each.get("aria-label") for each in drawn if each.get("role") == "graphics-symbol"]
    assert marks == ["a: +30", "b: -10"]


def test_ticks_are_round_and_a_range_without_width_has_some() -> None:
    assert Axis.of(0, 6.92).ticks == (0, 1, 2, 3, 4, 5, 6)
    axis = Axis.of(0.012, 0.96, is_nice=True)
    assert ([*map(axis.label, axis.ticks)], axis.high) == (["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"], 1)
    assert Axis.of(0, 1, is_integer=True).ticks == (0, 1)
    assert len(Axis.of(7, 7).ticks) > 1
    assert Axis(7, 7).share(7) == 0 and Axis.of(7, 7, is_log=True).share(7) == 0
    assert Axis.of(0.5, 300, is_log=True).ticks == (1, 10, 100)


def test_histogram_bins_contain_every_value_once() -> None:
    numbers = [1.0, 1.0, 5.0, 70.0, 900.0, 1000.0]
    bins = histogram_bins(numbers, "ns")
    assert sum(each.count for each in bins) == len(numbers)
    assert (bins[0].low, bins[-1].high) == (1.0, 1000.0)
    assert [each.count for each in histogram_bins([3.0, 3.0], None)][0] == 2
    assert histogram_bins([float("nan")], None) == []
