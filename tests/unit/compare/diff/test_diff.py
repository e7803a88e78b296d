"""Analyses compared between two runs: added and deleted names, values per step and rank, ranks separately."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

import sketch
import tracewarehouse as tw
from cli_runner import tw as call
from tracewarehouse.errors import ParamError, TwError

# Steps 1 and 2 of `a` and step 1 of both ranks of `b` are complete: events precede and follow them.
# Per step and rank a: gemm 1 of 20, relu 1/2 of 5; b: gemm 2 of 30, relu 1/2 of 3, add 1/2 of 4.
RUNS = """
    a 0 gpu  s7 warmup -100 10
    a 0 op   t1 warmup -100 10
    a 0 step t1 1 0 100
    a 0 call t1 cudaLaunchKernel 10 5 id=1
    a 0 gpu  s7 gemm 20 10 id=1
    a 0 call t1 cudaLaunchKernel 30 5 id=2
    a 0 gpu  s7 relu 40 10 id=2
    a 0 step t1 2 100 100
    a 0 call t1 cudaLaunchKernel 110 5 id=3
    a 0 gpu  s7 gemm 120 30 id=3
    a 0 op   t1 after 250 10
    a 0 gpu  s7 gemm 300 999

    b 0 gpu  s7 warmup -100 10
    b 0 op   t1 warmup -100 10
    b 0 step t1 1 0 100
    b 0 call t1 cudaLaunchKernel 10 5 id=1
    b 0 gpu  s7 gemm 20 10 id=1
    b 0 call t1 cudaLaunchKernel 30 5 id=2
    b 0 gpu  s7 gemm 40 20 id=2
    b 0 call t1 cudaLaunchKernel 50 5 id=3
    b 0 gpu  s7 relu 70 6 id=3
    b 0 op   t1 after 250 10
    b 0 gpu  s7 after 300 10
    b 1 gpu  s7 warmup -100 10
    b 1 op   t1 warmup -100 10
    b 1 step t1 1 0 100
    b 1 call t1 cudaLaunchKernel 10 5 id=1
    b 1 gpu  s7@1 gemm 20 10 id=1
    b 1 call t1 cudaLaunchKernel 30 5 id=2
    b 1 gpu  s7@1 gemm 40 20 id=2
    b 1 call t1 cudaLaunchKernel 50 5 id=3
    b 1 gpu  s7@1 add 70 8 id=3
    b 1 op   t1 after 250 10
    b 1 gpu  s7 after 300 10

    host 0 op t1 aten::mm 0 10
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with these runs."""
    folder = tmp_path_factory.mktemp("diff")
    sketch.write(RUNS.replace("    ", ""), folder / "traces")
    tw.open(folder / "warehouse").ingest(folder / "traces")
    return folder / "warehouse"


def kernels(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows if row["on_gpu"]}


def test_added_and_deleted_names_per_step_and_rank(house: Path) -> None:
    result = tw.open(house).diff("a", "b", min_effect=1).name_summary()
    found = {
        name: (row["base_count"], row["head_count"], row["base_sum_ns"], row["head_sum_ns"], row["change"])
        for name, row in kernels(result.rows()).items()
    }
    assert found == {
        "gemm": (1.0, 2.0, 20.0, 30.0, "increased"),
        "relu": (0.5, 0.5, 5.0, 3.0, "decreased"),
        "add": (0.0, 0.5, 0.0, 4.0, "added"),
    }
    assert result.notices == (
        "values are per step and rank: base has 2, head has 2",
        "rows are classified by sum_ns (change with measure=NAME)",
    )
    by_count = tw.open(house).diff("a", "b", measure="count", min_effect=1).name_summary()
    assert (kernels(by_count.rows())["relu"]["change"], len(by_count.notices)) == ("unchanged", 1)
    assert result.provenance.runs == ("a@v1", "b@v1")
    # The first step of `a` takes 50, the other 100: two steps do not show that the first is another one.
    assert tw.open(house).diff("a", "b").name_summary().notices == result.notices


def test_swapping_the_sides_swaps_the_signs(house: Path) -> None:
    wh = tw.open(house)
    there, back = (wh.diff(*runs).name_summary().rows() for runs in (("a", "b"), ("b", "a")))
    opposite = {"added": "deleted", "deleted": "added", "increased": "decreased", "decreased": "increased"}
    key = ("on_gpu", "category", "name")
    wanted = {
        tuple(row[name] for name in key): (-row["delta_sum_ns"], opposite.get(row["change"], row["change"]))
        for row in there
    }
    assert wanted == {tuple(row[name] for name in key): (row["delta_sum_ns"], row["change"]) for row in back}
    sizes = [abs(row["delta_sum_ns"]) for row in there]
    assert sizes == sorted(sizes, reverse=True), "what changed most comes first, whether it grew or shrank"


def test_another_measure_classifies_rows(house: Path) -> None:
    rows = kernels(tw.open(house).diff("a", "b", measure="sum_ns").name_summary().rows())
    assert {name: row["change"] for name, row in rows.items()} == {
        "gemm": "increased",
        "relu": "decreased",
        "add": "added",
    }
    with pytest.raises(ParamError, match="no measure name to compare"):
        tw.open(house).diff("a", "b", measure="name").name_summary()


def test_values_of_entire_recordings_are_per_step_or_second(house: Path) -> None:
    result = tw.open(house).diff("a", "b", all_steps=True).name_summary()
    gemm = kernels(result.rows())["gemm"]
    assert (gemm["base_count"], gemm["head_count"], gemm["base_sum_ns"]) == (1.5, 2.0, 519.5)
    assert gemm["change"] == "decreased"
    assert result.notices[0] == "values are per recorded step and rank: base has 2, head has 2"
    without = tw.open(house).diff("a", "host").op_summary()
    (mm,) = [row for row in without.rows() if row["name"] == "aten::mm"]
    assert (mm["base_count"], mm["head_count"]) == (0, 1e9 / 10)
    seconds = "values are per recorded second and rank: base has 0, head has 0"  # less than a millisecond
    assert without.notices[0] == seconds


def test_columns_that_cannot_be_combined_are_omitted(house: Path) -> None:
    row = next(row for row in tw.open(house).diff("a", "b").kernel_summary().rows() if row["name"] == "gemm")
    assert (row["base_min_ns"], row["head_min_ns"]) == (10.0, 10.0)
    assert (row["base_max_ns"], row["head_max_ns"]) == (999.0, 20.0)
    assert row["base_mean_ns"] == 1039 / 3
    assert not any("p50" in name or "std" in name for name in row)
    added = next(row for row in tw.open(house).diff("a", "b").kernel_summary().rows() if row["name"] == "add")
    assert (added["base_count"], added["base_min_ns"], added["base_mean_ns"]) == (0.0, None, None)


def test_an_analysis_with_a_row_per_run_has_one_row(house: Path) -> None:
    (row,) = tw.open(house).diff("a", "b").temporal_breakdown().rows()
    assert row["base_busy_ns"] == (10 + 10 + 10 + 30 + 999) / 2
    assert row["head_busy_ns"] == (10 + 36 + 10 + 10 + 38 + 10) / 2
    (step,) = tw.open(house).diff("a", "b").step_summary().rows()
    assert (step["base_host_ns"], step["head_host_ns"], step["change"]) == (100.0, 100.0, "unchanged")


def test_by_rank_compares_every_measure(house: Path) -> None:
    result = tw.open(house).diff("a", "b", by_rank=True).kernel_summary()
    assert {row["rank"] for row in result.rows()} == {0}
    assert result.notices[:2] == (
        "ignored, only in head: rank 1",
        "values are of this rank, per recorded step",
    )
    gemm = next(row for row in result.rows() if row["name"] == "gemm")
    assert (gemm["base_p50_ns"], gemm["head_p50_ns"], gemm["delta_p50_ns"]) == (30, 10, -20)
    assert (gemm["base_sum_ns"], gemm["head_sum_ns"], gemm["change"]) == (1039 / 2, 30.0, "decreased")


def test_invalid_comparisons_are_errors(house: Path) -> None:
    wh = tw.open(house)
    with pytest.raises(TwError, match="head has no data to compare: no GPU activities recorded"):
        wh.diff("a", "host").temporal_breakdown()
    with pytest.raises(ParamError, match="exactly one run per side"):
        wh.diff(["a", "b"], "b", by_rank=True).temporal_breakdown()
    with pytest.raises(ParamError, match="share no rank"):
        wh.diff("a", "host", by_rank=True).temporal_breakdown()
    with pytest.raises(ParamError, match="has no measure that can be combined over ranks"):
        wh.diff("a", "b").launch_stats()
    with pytest.raises(TwError, match="no complete step"):
        wh.diff("a", "host").step_summary()


def test_sets_of_runs_are_means_of_all_their_ranks(house: Path) -> None:
    rows = kernels(tw.open(house).diff("a", ["a", "b"], min_effect=1).name_summary().rows())
    assert (rows["gemm"]["head_count"], rows["gemm"]["head_sum_ns"]) == (6 / 4, 100 / 4)


def test_on_the_command_line(house: Path) -> None:
    done = call("diff", "a", "b", "name_summary", "-w", house)
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(done.out)) if row["on_gpu"] == "true"}
    assert done.code == 0
    assert rows["gemm"]["delta_count"] == "1.0"
    assert "values are per step and rank" in done.err
    top = call("diff", "a", "b", "name_summary", "--top", "2", "--measure", "sum_ns", "-f", "md", "-w", house)
    assert "more)" in top.out
    assert call("diff", "a", "b", "name_summary", "--all-steps", "-w", house).code == 0
    assert call("diff", "a", "nowhere", "name_summary", "-w", house).code == 1
    assert "kernel_summary" in call("diff", "--help-all").out


def test_numbers_of_steps_and_addresses_in_names_are_ignored() -> None:
    import duckdb

    from tracewarehouse.compare.diff.diff import compare, folded_names
    from tracewarehouse.contracts.catalog import Catalog

    contract = Catalog.load().get("name_summary", kind="analysis")
    comparison = compare(contract, by_rank=False, by_step=False, measure=None)
    assert comparison.classifier.name == "sum_ns"
    names = ["ProfilerStep#12", "train step 7", "<Model object at 0x7f3a52be>", "gemm_128x64", "conv_step2"]
    folded = duckdb.sql(f"SELECT {folded_names(comparison)['name']} FROM (SELECT unnest({names}) AS name)")
    assert [name for (name,) in folded.fetchall()] == [
        "ProfilerStep#N", "train step N", "<Model object at 0x…>", "gemm_128x64", "conv_stepN"
    ]  # fmt: skip
    assert folded_names(compare(contract, by_rank=True, by_step=False, measure=None)) == {}
