"""`%%tw` cells, and results, comparisons and findings as notebooks and `print` show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sketch
import tracewarehouse
from tracewarehouse.errors import ExpressionError
from tracewarehouse.result import Result
from tracewarehouse.warehouse import Warehouse

LONG = "'void at::native::elementwise_kernel<128, at::native::{}Functor<float> >(int)'"
KERNELS = "\n".join(
    [
        *(f"a 0 gpu s7 {LONG.format(name)} {at} 50" for at, name in enumerate(("Add", "Mul"))),
        *(f"a 0 gpu s7 k{at} {1000 * at} 10" for at in range(2, 32)),
        "b 0 gpu s7 k2 0 70",
    ]
)


class Shell:
    """What the extension uses of IPython."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Callable[..., Any]] = {}

    def register_magic_function(self, function: Callable[..., Any], magic_kind: str, magic_name: str) -> None:
        assert magic_kind == "line_cell"
        self.magics[magic_name] = function


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("notebook")
    sketch.write(KERNELS, folder / "traces")
    wh = tracewarehouse.open(folder / "warehouse")
    for run in ("a", "b"):
        wh.ingest(folder / "traces" / run, run=run)
    return wh


def test_cells_of_sql(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell()
    tracewarehouse.load_ipython_extension(shell)
    tw = shell.magics["tw"]
    by_run = "SELECT run_id, count(*) AS n FROM kernels GROUP BY ALL ORDER BY ALL"
    counts = [{"run_id": "a", "n": 32}, {"run_id": "b", "n": 1}]
    assert tw(str(house.root), by_run).rows() == counts
    monkeypatch.setenv("TW_WAREHOUSE", str(house.root))
    assert tw(by_run).rows() == counts
    shell.user_ns["wh"] = house.select(runs="b")
    assert tw("wh", by_run).rows() == counts[1:]
    assert tw("--run a --name found", by_run) is None
    assert shell.user_ns["found"].rows() == counts[:1]
    with pytest.raises(ExpressionError, match="unrecognized arguments: --runs"):
        tw("--runs=a", by_run)


def test_a_result_prints_its_first_rows(house: Warehouse) -> None:
    result = house.select(runs="a").analyze("kernel_summary")
    lines = str(result).splitlines()
    assert lines[0] == "kernel_summary@1: 32 rows of a@v1"
    assert lines[-1] == "… 12 more rows"
    assert "elementwise_kernel<AddFunctor>" in str(result) and "elementwise_kernel<MulFunctor>" in str(result)
    assert "k9" not in house.select(runs="b").analyze("kernel_summary")._title()


def test_a_result_is_an_html_table_in_notebooks(house: Warehouse) -> None:
    result = house.query("SELECT '<script>' AS text, 1500 AS n, repeat('x', 99) AS long")
    page = result._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert '<td style="text-align: right">1500</td>' in page
    assert f'<span title="{"x" * 99}">' in page
    assert isinstance(result, Result)


def test_findings_of_one_run_without_a_selection(house: Warehouse, only_rules: Callable[..., None]) -> None:
    only_rules("launch_bound", "low_gpu_use")
    one = house.check("b", passed=True)
    assert {row["run_id"] for row in one.rows()} <= {"b"}
    assert one.provenance.runs == ("b@v1",)
    assert house.check(["a", "b"]).provenance.runs == ("a@v1", "b@v1")


def test_a_comparison_prints_its_verdict(house: Warehouse) -> None:
    compared = house.diff("a", "b")
    assert repr(compared) == "<Diff base: a; head: b>"
    change = compared.changes()
    assert str(compared).splitlines()[0] == change.line == repr(change).splitlines()[0]
    assert len(repr(change).splitlines()) <= 12
    assert change.line.split(",")[0] in compared._repr_html_()
