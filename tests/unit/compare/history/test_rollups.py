"""A history has the same values over roll-ups as over the rows of all ranks, and reads fewer bytes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import sketch
import tracewarehouse as tw
from recorded_runs import recorded_runs
from tracewarehouse.compare.history import read as history_read
from tracewarehouse.compare.history import recorded as history_results
from tracewarehouse.compare.history.record import pack
from tracewarehouse.compare.history.recorded import can_roll_up, serves
from tracewarehouse.compare.metric.expression import parse_metric
from tracewarehouse.storage import results

FIRST_STEPS = Path(__file__).parents[3] / "data" / "first-steps"
ROLLED_UP = (
    "step_time",
    "kernel_summary.sum_ns[kind=communication]",
    "kernel_summary.count",
    "kernel_summary.max_ns",
    "kernel_summary.mean_ns[kind=communication]",
    "temporal_breakdown.idle_ns",
)
READ_IN_ROWS = ("temporal_breakdown.idle_ns[rank=1]", "step_summary.period_ns[step=11]")
ANALYSES = ("step_summary", "kernel_summary", "temporal_breakdown")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    """Two runs of four ranks with recorded results."""
    wh = tw.open(tmp_path_factory.mktemp("recorded") / "warehouse")
    for run in ("one", "two"):
        wh.ingest(FIRST_STEPS, run=run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys.modules["tracewarehouse.compare.history.record"], "_is_smaller", lambda rolled, rows: True
        )
        wh.record(analyses=ANALYSES)
    return wh


def values(wh: tw.Warehouse, metric: str) -> list[object]:
    return [row["value"] for row in tw.open(wh.root).history(metric).rows()]


def rollups(wh: tw.Warehouse) -> list[Path]:
    return sorted(Path(str(wh.root)).glob("results/*/*/*/*.rollup.parquet"))


@pytest.mark.deep
def test_values_are_equal_with_and_without_roll_ups(
    recorded: tw.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[set[str]] = []
    rows_sql = history_results._rows_sql

    def noted(metric: object, files: list[str], rolled: set[str], packed: object) -> str:
        read.append(set(rolled))
        return rows_sql(metric, files, rolled, packed)  # type: ignore[arg-type]

    monkeypatch.setattr(history_results, "_rows_sql", noted)
    with_rollups = {metric: values(recorded, metric) for metric in (*ROLLED_UP, *READ_IN_ROWS)}
    assert [len(each) for each in read] == [2] * len(ROLLED_UP) + [0] * len(READ_IN_ROWS)
    hidden = {path: path.with_suffix(".elsewhere") for path in rollups(recorded)}
    for path, elsewhere in hidden.items():
        path.rename(elsewhere)
    try:
        assert {metric: values(recorded, metric) for metric in with_rollups} == with_rollups
        assert None not in with_rollups["step_time"]
    finally:
        for path, elsewhere in hidden.items():
            elsewhere.rename(path)


def test_a_run_without_a_roll_up_and_a_damaged_one_are_read_in_rows(recorded: tw.Warehouse) -> None:
    metric = "kernel_summary.sum_ns[kind=communication]"
    before = values(recorded, metric)
    first, second = [path for path in rollups(recorded) if "kernel_summary@" in str(path)]
    kept = first.read_bytes(), second.read_bytes()
    first.unlink()
    assert values(recorded, metric) == before
    second.write_bytes(b"cut short")
    results._intact.clear()
    assert values(recorded, metric) == before
    key = second.relative_to(str(recorded.root)).as_posix()
    assert [(problem.run, problem.path) for problem in recorded.verify()] == [("two", key)]
    report = recorded.repair()
    assert [(step.key, step.is_loss) for step in report.steps] == [(key, False)]
    assert report.exit_code == 0 and not second.exists()
    aside = second.with_name(f"{second.name}.damaged")
    assert aside.read_bytes() == b"cut short"
    aside.unlink()
    first.write_bytes(kept[0])
    second.write_bytes(kept[1])


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])
    results._intact.clear()


def test_packs_change_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PACK_RESULTS", 2)
    wh = recorded_runs(tmp_path / "warehouse", [10, 20, 30, 40, 50])
    folder = tmp_path / "warehouse" / "results" / "step_summary@1"
    contract = wh.catalog.get("step_summary", kind="analysis")
    before = values(wh, "step_time")
    pack(wh.store, contract, 5)
    (packed,) = (folder / "packed").iterdir()
    assert values(wh, "step_time") == before == [10, 20, 30, 40, 50]
    pack(wh.store, contract, 5)
    assert list((folder / "packed").iterdir()) == [packed], "every result is in it"
    (one,) = (folder / "night-0001").rglob("*.parquet")
    damage(one)
    assert values(wh, "step_time") == before, "the pack has it"
    kept = packed.read_bytes()
    damage(packed)
    assert values(wh, "step_time") == [10, 30, 40, 50], "without the pack, the damaged result is left out"
    packed.write_bytes(kept)
    assert (folder / "night-0003").exists()
    wh.remove("night-0003")
    assert values(wh, "step_time") == [10, 20, 30, 50]
    wh.clean(-1, keep_versions_s=-1)
    assert not packed.exists() and not (folder / "night-0003").exists(), "it has rows of the removed run"
    pack(wh.store, contract, 5)
    assert len(list((folder / "packed").iterdir())) == 1
    assert values(wh, "step_time") == [10, 30, 50]


def test_results_beside_packs_are_found(
    recorded: tw.Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs have no rows of results with roll-ups: those are listed, and results of few other runs."""
    monkeypatch.setattr(results, "PACK_RESULTS", 2)
    wh = tw.open(Path(shutil.copytree(str(recorded.root), tmp_path / "copy")))
    metrics = ("step_time", "temporal_breakdown.idle_ns", "temporal_breakdown.idle_ns[rank=1]")
    before = {metric: values(wh, metric) for metric in metrics}
    for name in ANALYSES:
        pack(wh.store, wh.catalog.get(name, kind="analysis"), 2)
    assert len(list(tmp_path.glob("copy/results/*/packed/*"))) == len(ANALYSES)
    assert {metric: values(wh, metric) for metric in metrics} == before
    wh.ingest(FIRST_STEPS, run="three")
    assert {metric: values(wh, metric) for metric in metrics} == before, "the third is not recorded"
    wh.record("three", analyses=ANALYSES)
    assert {metric: values(wh, metric) for metric in metrics} == {
        metric: [*found, found[-1]] for metric, found in before.items()
    }
    monkeypatch.setattr(history_read, "FEW_RUNS", 0)
    assert [len(values(wh, metric)) for metric in metrics] == [3, 3, 3]


def test_every_few_recorded_runs_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PACK_RESULTS", 2)
    wh = tw.open(tmp_path / "warehouse")
    packed = []
    for run in "abcd":
        wh.ingest(*sketch.write(f"{run} 0 gpu s7 gemm 0 10", tmp_path), run=run)
        wh.record(run, analyses=["kernel_summary"])
        packed.append(
            [results.pack_size(str(path)) for path in tmp_path.glob("warehouse/results/*/packed/*")]
        )
    assert packed == [[], [2], [2], [2, 2]]
    assert values(wh, "kernel_summary.sum_ns") == [10**9] * 4, "per second"


def test_packs_of_two_calls_at_once_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "PACK_RESULTS", 2)
    wh = recorded_runs(tmp_path / "warehouse", [10, 20, 30])
    keys = wh.store.recorded("step_summary", 1).values()
    for some in (sorted(keys)[:2], sorted(keys)[1:]):
        with wh.store.staging() as staging:
            paths = {key: wh.store.path(key) for key in some}
            results.write_pack(wh.store.objects, staging, "results/step_summary@1", paths)
    assert values(wh, "step_time") == [10, 20, 30]


def test_the_statistics_are_those_of_the_ranks(recorded: tw.Warehouse) -> None:
    path = next(path for path in rollups(recorded) if "kernel_summary@" in str(path) and "/one/" in str(path))
    rows = recorded.select("one").analyze("kernel_summary").rows()
    for row in pq.read_table(path).to_pylist():
        of_key = [each for each in rows if (each["kind"], each["name"]) == (row["kind"], row["name"])]
        sums = sorted(each["sum_ns"] for each in of_key)
        assert (row["rows"], row["sum_ns_n"], row["sum_ns_sum"]) == (len(sums), len(sums), sum(sums))
        assert (row["sum_ns_min"], row["sum_ns_max"]) == (sums[0], sums[-1])
        assert row["sum_ns_p50"] == sums[(len(sums) + 1) // 2 - 1]
        assert row["sum_ns_max_rank"] == min(each["rank"] for each in of_key if each["sum_ns"] == sums[-1])
        assert row["sum_ns_min_rank"] == min(each["rank"] for each in of_key if each["sum_ns"] == sums[0])
    types = {str(field.type) for field in pq.read_schema(path) if field.name.startswith("sum_ns_")}
    assert types <= {"int64", "int32"}


def test_clean_deletes_roll_ups_with_their_results(recorded: tw.Warehouse, tmp_path: Path) -> None:
    root = Path(shutil.copytree(str(recorded.root), tmp_path / "copy"))
    wh = tw.open(root)
    assert len(rollups(wh)) == 2 * len(ANALYSES)
    wh.remove("two")
    wh.clean(-1)
    assert {path.parts[-3] for path in rollups(wh)} == {"one"}
    assert wh.verify() == []


def test_which_metrics_are_served(recorded: tw.Warehouse) -> None:
    catalog = recorded.catalog
    assert all(serves(parse_metric(metric, catalog)) for metric in ROLLED_UP)
    assert not any(serves(parse_metric(metric, catalog)) for metric in READ_IN_ROWS)
    per_run = [each for each in catalog.analyses() if "rank" not in each.grain]
    assert per_run and not any(map(can_roll_up, per_run))
