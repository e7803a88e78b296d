"""`Result.plot()`: the picture that suits the contract, as an Altair chart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
from front_door import tw as call
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.plot.lines import binned
from tracewarehouse.plot.theme import COLOURS, Scale, brief, meaning


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    folder = tmp_path_factory.mktemp("plot")
    tw.simulate(folder / "traces", ranks=2, steps=3, layers=1, hidden=256, sequence=256)
    warehouse = tw.open(folder / "warehouse")
    warehouse.ingest(folder / "traces", run="small")
    return warehouse


def drawn(house: tw.Warehouse, name: str, measure: str | None = None) -> dict[str, Any]:
    """The specification of the chart of an analysis."""
    spec: dict[str, Any] = house.run(name).plot(measure).to_dict()
    return spec


def values(spec: dict[str, Any]) -> list[dict[str, Any]]:
    (data,) = spec["datasets"].values() if "datasets" in spec else (spec["data"]["values"],)
    return list(data)


def test_parts_that_add_up_are_stacked(house: tw.Warehouse) -> None:
    spec = drawn(house, "temporal_breakdown")
    rows = {(row["rank"], part): row[part] for row in house.temporal_breakdown().rows() for part in row}
    told = {(row["row"], row["part"]): row["value"] for row in values(spec)}
    by = Scale.of([row["window_ns"] for row in house.temporal_breakdown().rows()], "ns").by
    assert told["rank 1 device 1", "compute_ns"] * by == pytest.approx(rows[1, "compute_ns"])
    assert spec["encoding"]["y"]["sort"] == ["rank 0 device 0", "rank 1 device 1"]
    assert spec["title"]["text"].startswith("Breakdown of each device's GPU window")


def test_kinds_of_picture_by_contract(house: tw.Warehouse) -> None:
    marks = {
        "window_account": "bar",  # parts with a share: stacked
        "memory_curve": "line",  # over time
        "launch_stats": "rect",  # a row per event: a distribution
    }
    for name, mark in marks.items():
        assert drawn(house, name)["mark"]["type"] == mark, name
    assert len(drawn(house, "step_summary")["layer"]) == 2
    kernels = drawn(house, "kernel_summary")
    sizes = [row["to"] for row in values(kernels)]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == 20
    assert kernels["title"]["subtitle"].startswith("sum_ns, lower is better, 20 of ")


def test_a_measure_by_name(house: tw.Warehouse) -> None:
    spec = drawn(house, "temporal_breakdown", "idle_ns")
    assert spec["title"]["subtitle"] == "idle_ns, lower is better"
    with pytest.raises(UnknownName, match="unknown measure: idle"):
        house.temporal_breakdown().plot("idle")


def test_a_query_is_plotted_too(house: tw.Warehouse) -> None:
    result = house.query("SELECT kind, sum(dur_ns) AS total FROM kernels GROUP BY kind")
    told = {row["label"]: row["to"] for row in values(result.plot().to_dict())}
    assert told == {row["kind"]: float(row["total"]) for row in result.rows()}


def test_it_saves_without_a_browser(house: tw.Warehouse, tmp_path: Path) -> None:
    house.step_account().plot().save(str(tmp_path / "steps.svg"))
    assert (tmp_path / "steps.svg").read_text(encoding="utf-8").startswith("<svg")


def test_nothing_to_plot(house: tw.Warehouse) -> None:
    with pytest.raises(TwError, match="no rows to plot"):
        house.query("SELECT 1 AS one WHERE false").plot()
    with pytest.raises(TwError, match="no measure to plot"):
        house.query("SELECT 'a' AS name").plot()


def test_a_missing_extra_is_one_line(house: tw.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(TwError, match="altair is not installed") as raised:
        house.temporal_breakdown().plot()
    assert raised.value.hint == "pip install 'tracewarehouse[plot]'"
    told = call("report", "small", "-w", house.root, "-o", house.root / "x.html")
    assert told.code == 1
    assert told.errors == [
        "tw: altair is not installed",
        "hint: pip install 'tracewarehouse[plot]'",
    ]
    assert not (house.root / "x.html").exists()


def test_one_colour_for_one_meaning() -> None:
    assert meaning("communication") == meaning("exposed_comm_ns") == "exposed_comm"
    assert meaning("computation") == meaning("compute") == "compute"
    assert meaning("gemm") == "plain"
    for at in (0, 1):
        shown = [pair[at] for name, pair in COLOURS.items() if name != "idle"]
        assert len(set(shown)) == len(shown) - (COLOURS["base"][at] in (COLOURS["plain"][at],))


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
def test_three_digits(value: float, unit: str, text: str) -> None:
    assert brief(value, unit) == text


def test_a_scale_fits_the_largest_value() -> None:
    assert Scale.of([5.0, 2e6], "ns") == Scale(1e6, "ms")
    assert Scale.of([], "ns").title("time") == "time, ns"
    assert Scale.of([3.0], None).title("rows") == "rows"


def test_bins_hold_every_value_once() -> None:
    numbers = [1.0, 1.0, 5.0, 70.0, 900.0, 1000.0]
    bins = binned(numbers, "ns")
    assert sum(each.count for each in bins) == len(numbers)
    assert (bins[0].low, bins[-1].high) == (1.0, 1000.0)
    assert [each.count for each in binned([3.0, 3.0], None)][0] == 2
    assert binned([float("nan")], None) == []
