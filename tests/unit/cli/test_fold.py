"""`--top`: the largest rows of each rank and device, and the others folded into one correct row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sketch
import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.cli.output import fold_below_top, ranking_groups
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.present.render.table import values
from tracewarehouse.result import Result

KERNELS = """
    a 0 gpu s7 gemm 0 100
    a 0 gpu s7 gemm 200 300
    a 0 gpu s7 relu 600 90
    a 0 gpu s7 copy 700 20
    a 0 gpu s7 copy 800 40
    a 0 gpu s7 "Memset (Device)" 900 0
    a 0 gpu s7@1 gemm 0 10
    a 0 gpu s7@1 relu 20 5
    a 1 gpu s7 gemm 0 7
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with these kernels."""
    folder = tmp_path_factory.mktemp("aggregate")
    sketch.write(KERNELS, folder / "traces")
    tw.open(folder / "warehouse").ingest(folder / "traces" / "a", run="a")
    return folder / "warehouse"


def topped(result: Result, count: int) -> list[tuple[object, ...]]:
    assert result.contract is not None
    return [tuple(row) for row in fold_below_top(result.contract, values(result.table), count)]


def test_the_other_rows_of_each_device_are_one_row(house: Path) -> None:
    rows = topped(tw.open(house).analyze("kernel_summary"), 1)
    # name, count, sum, min, p50, p95, p99, max, mean, std; kinds differ in the first folded row.
    assert rows[0][3:7] == ("computation", "gemm", 2, 400)
    assert rows[1] == ("a", 0, 0, None, "(3 more)", 4, 150, 0, None, None, None, 90, 37.5, None)
    assert [row[4] for row in rows[2:]] == ["gemm", "relu", "gemm"], "a rest of one row stays as it is"


def test_sums_do_not_depend_on_the_number_of_rows_shown(house: Path) -> None:
    result = tw.open(house).analyze("kernel_summary")
    at = [column.name for column in result.columns()].index("sum_ns")
    for count in range(6):
        assert sum(row[at] for row in topped(result, count)) == 572  # type: ignore[misc]


def test_a_null_in_one_row_leaves_the_folded_cell_empty(house: Path) -> None:
    contract = Catalog.load().get("kernel_summary")
    first = ("a", 0, 0, "computation", "k", 1, 10, 10, 10, 10, 10, 10, 10.0, None)
    unknown = ("a", 0, 0, "computation", "m", 1, None, 0, 0, 0, 0, 0, None, None)
    rest = fold_below_top(contract, [first, first, unknown], 0)[0]
    assert rest[3:8] == ("computation", "(3 more)", 3, None, 0)
    assert rest[12] is None


def test_ranking_groups_are_the_columns_before_the_measure() -> None:
    groups = {contract.name: ranking_groups(contract) for contract in Catalog.load().analyses()}
    assert groups["kernel_summary"] == ("run_id", "rank", "device")
    assert groups["coverage"] is None


def test_on_the_command_line(house: Path) -> None:
    cli = call("show", "kernel_summary", "--top", "1", "-f", "md", "-w", house)
    assert cli.code == 0
    assert "(3 more)" in cli.out
    assert len(cli.out.splitlines()) == 2 + 5
    cut = call("show", "kernel_summary", "--top", "1", "--limit", "2", "-f", "table", "-w", house)
    assert "more rows (use --limit N)" in cut.out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("coverage", "-f", "table"), "coverage@1 is not sorted by a measure"),
        (("kernel_summary", "--sort", "name"), "--top folds rows in the order of the analysis"),
    ],
)
def test_rows_without_an_order_of_size_are_not_folded(house: Path, args: tuple[str, ...], said: str) -> None:
    cli = call("show", *args, "--top", "1", "-w", house)
    assert cli.code == 2
    assert said in cli.err


def test_data_formats_are_folded_too(house: Path) -> None:
    rows = json.loads(call("show", "kernel_summary", "--top", "1", "-w", house, "-f", "json").out)
    assert [row["name"] for row in rows] == ["gemm", "(3 more)", "gemm", "relu", "gemm"]
    assert rows[1]["sum_ns"] == 150 and rows[1]["p50_ns"] is None


def test_conditions_sort_keys_and_columns_choose_from_the_rows(house: Path) -> None:
    shown = call(
        *("show", "kernel_summary", "-w", house, "-f", "csv", "--sort", "name,-sum_ns"),
        *("--where", "name <> 'copy'", "--where", "sum_ns > 7", "--columns", "name,sum_ns"),
    )
    assert shown.out.splitlines() == ["name,sum_ns", "gemm,400", "gemm,10", "relu,90"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--where", "kin = 1"), "not a condition: kin = 1"),
        (("--where", "true); DROP TABLE result; --"), "not a condition"),
        (("--where", "rank IN (SELECT 1 FROM read_csv('/etc/passwd'))"), "not a condition"),
        (("--sort", "sum"), "unknown column: sum"),
        (("--columns", "nam,rank"), "unknown column: nam"),
    ],
)
def test_a_wrong_condition_or_column_is_usage(house: Path, option: tuple[str, str], said: str) -> None:
    cli = call("show", "kernel_summary", *option, "-w", house)
    assert (cli.code, cli.out) == (2, "")
    assert said in cli.err
