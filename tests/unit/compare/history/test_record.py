"""Recorded results: content, reuse, damage, cleanup, and definitions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import asdict, replace

import sketch
import tracewarehouse as tw
from tracewarehouse.compare.history.record import RecordProgress
from tracewarehouse.compare.metric.expression import parse_metric
from tracewarehouse.compare.metric.values import measure
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.storage.codec import sealed
from tracewarehouse.storage.model import Changes, RankSource
from tracewarehouse.storage.results import Recorded

# Steps 1 and 2 of `a` and step 1 of both ranks of `b` are complete; `host` has no GPU and no step.
RUNS = """
    a 0 op   t1 before -100 10
    a 0 step t1 1 0 100
    a 0 op   t1 aten::mm 0 10
    a 0 step t1 2 100 120
    a 0 gpu  s7 gemm 210 20
    a 0 op   t1 after 500 10
    b 0 op   t1 before -100 10
    b 0 step t1 1 0 100
    b 0 gpu  s7 gemm 40 10
    b 0 op   t1 after 500 10
    b 1 op   t1 before -100 10
    b 1 step t1 1 0 130
    b 1 op   t1 aten::mm 0 30
    b 1 gpu  s7 gemm 40 40
    b 1 gpu  s7 ncclDevKernel_AllReduce 100 30
    b 1 op   t1 after 500 10
    host 0 op t1 aten::mm 0 10
"""
SOME = ("step_summary", "kernel_summary", "name_summary", "quality", "critical_path_breakdown")
METRICS = (
    "step_time",
    "step_summary.host_ns",
    "step_time[rank=0]",
    "kernel_summary.sum_ns",
    "kernel_summary.sum_ns[kind=communication]",
    "kernel_summary.min_ns[name=gemm]",
    "kernel_summary.mean_ns",
    "name_summary.sum_ns[name=aten::mm]",
    "name_summary.count[on_gpu=true]",
)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with these runs and `SOME` analyses recorded; tests only read it."""
    folder = tmp_path_factory.mktemp("record")
    sketch.write(RUNS.replace("    ", ""), folder / "traces")
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    wh.record(analyses=SOME)
    return folder / "warehouse"


@pytest.fixture
def warehouse(shared_path: Path, tmp_path: Path) -> tw.Warehouse:
    """A copy that a test can change."""
    return tw.open(shutil.copytree(shared_path, tmp_path / "warehouse"))


def files(wh: tw.Warehouse, analysis: str = "*") -> list[Path]:
    found = (wh.root / "results").glob(f"{analysis}@*/*/*/*.parquet")
    return sorted(path for path in found if ".rollup." not in path.name)


def other_content(wh: tw.Warehouse, run: str) -> tuple[RankSource, ...]:
    """The sources of a run, as if ingested from another file."""
    version = wh.store.newest(run)
    assert version is not None
    return tuple(replace(source, digest="other", attempt="other") for source in version.sources)


def metadata(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(pq.read_schema(path).metadata[b"tracewarehouse.recorded"])
    return content


def values(wh: tw.Warehouse, metric: str) -> dict[str, float | None]:
    return {row["run_id"]: row["value"] for row in wh.history(metric).rows()}


def test_a_recorded_result_has_its_provenance(shared_path: Path) -> None:
    wh = tw.open(shared_path)
    (path,) = (shared_path / "results" / "step_summary@1" / "b").rglob("*[0-9a-f].parquet")
    stored, result = pq.read_table(path), wh.select("b").step_summary()
    assert stored.to_pylist() == result.rows()
    about = json.loads(stored.schema.metadata[b"tracewarehouse"])
    assert about["provenance"] == json.loads(json.dumps(asdict(result.provenance)))
    assert about["contract"]["grain"] == ["run_id", "rank", "step"]
    assert metadata(path)["ranks"] == [0, 1]
    assert metadata(path)["complete"] == {"0": [1], "1": [1]}
    (path,) = (shared_path / "results" / "step_summary@1" / "host").rglob("*[0-9a-f].parquet")
    assert pq.read_table(path).num_rows == 0
    assert (metadata(path)["ranks"], metadata(path)["reason"]) == ([], "requires 1 step, found 0")


@pytest.mark.parametrize("text", METRICS)
def test_a_history_equals_a_new_measurement(shared_path: Path, text: str) -> None:
    wh = tw.open(shared_path)
    (now,) = measure(parse_metric(text, wh.catalog), wh.selection)
    history = wh.history(text)
    assert values(wh, text) == {each.run: each.value for each in now.runs}
    assert {row["run_id"]: row["reason"] for row in history.rows()} == {
        each.run: each.reason for each in now.runs
    }
    assert history.notices[0] == f"values are {now.per}"
    assert len(now.values) >= 1


def test_present_results_are_not_written_again(warehouse: tw.Warehouse) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(warehouse)}
    assert len(before) == 3 * len(SOME)
    seen: list[RecordProgress] = []
    done = warehouse.record(analyses=SOME, progress=seen.append)
    assert (done.written, done.present, done.failed, seen) == (0, 15, (), [])
    assert {path: path.stat().st_mtime_ns for path in files(warehouse)} == before
    files(warehouse, "quality")[0].unlink()
    done = warehouse.record(analyses=(*SOME, "temporal_breakdown"), progress=seen.append)
    assert (done.written, done.present) == (4, 14)
    assert [(step.done, step.total, step.analysis) for step in seen] == [
        (0, 4, "quality"),
        (1, 4, "temporal_breakdown"),
    ]
    assert warehouse.record("b", analyses="coverage").runs == ("b@v1",)


def test_a_result_depends_on_content_not_on_labels(warehouse: tw.Warehouse) -> None:
    warehouse.store.relabel("a", {"branch": "main"})
    assert warehouse.record(analyses=SOME).written == 0
    warehouse.store.publish("a", Changes(sources=other_content(warehouse, "a"), replace=True))
    history = warehouse.history("step_time")
    assert values(warehouse, "step_time") == {"b": 115.0, "host": None}
    assert "1 of 3 runs is not recorded (a@v3): wh.record()" in history.notices
    assert history.missing == ("a@v3",)
    warehouse.record(analyses="step_summary")
    assert values(warehouse, "step_time")["a"] == 110.0
    assert len(files(warehouse, "step_summary")) == 4, "the result of the version before is still there"


def test_a_derived_table_changes_the_result(warehouse: tw.Warehouse) -> None:
    (why,) = {row["reason"] for row in warehouse.history("critical_path_breakdown.path_ns", "a").rows()}
    assert why == "critical_path is not derived"
    warehouse.derive("critical_path", "a")
    assert warehouse.record(analyses=SOME).written == 1
    (path,) = [
        path
        for path in files(warehouse, "critical_path_breakdown")
        if metadata(path)["ranks"] and "/a/" in str(path)
    ]
    assert pq.read_table(path).num_rows > 0


def test_damaged_results_are_detected_and_recomputed(warehouse: tw.Warehouse) -> None:
    assert warehouse.verify() == []
    flipped, truncated, other, missing_file = (
        files(warehouse, "kernel_summary")[0],
        *files(warehouse, "step_summary"),
    )
    data = bytearray(flipped.read_bytes())
    data[60] ^= 0xFF
    flipped.write_bytes(data)
    truncated.write_bytes(truncated.read_bytes()[:-20])
    other = Path(shutil.copy(missing_file, other))
    missing_file.unlink()
    problems = {problem.path: problem.what for problem in warehouse.verify()}
    assert set(problems) == {
        path.relative_to(warehouse.root).as_posix() for path in (flipped, truncated, other, missing_file)
    }
    missing = problems.pop(missing_file.relative_to(warehouse.root).as_posix())
    assert "recorded result missing" in missing
    assert all("damaged result" in what for what in problems.values())
    for path in Path(str(warehouse.root)).rglob("*.rollup.parquet"):
        path.unlink()
    with pytest.raises(TwError, match="recorded results cannot be read") as error:
        warehouse.history("step_time")
    assert "wh.verify()" in (error.value.hint or "")
    for path in (flipped, truncated, other):
        path.unlink()
    assert warehouse.record(analyses=SOME).written == 4
    assert warehouse.verify() == []


def test_clean_keeps_results_of_kept_versions(warehouse: tw.Warehouse) -> None:
    before = files(warehouse)
    assert warehouse.clean(-1).files == 0
    warehouse.store.remove("b")
    warehouse.clean(3600)
    assert files(warehouse) == before, "an older version stays readable for a while, and so do its results"
    warehouse.clean(-1)
    assert files(warehouse) == [path for path in before if path.parent.parent.name != "b"]


def test_results_can_outlive_their_run(warehouse: tw.Warehouse) -> None:
    warehouse.store.relabel("b", {"branch": "main"})
    warehouse.remove("b", keep_results=True)
    warehouse.clean(-1)
    assert not list((warehouse.root / "data").glob("*/b/*"))
    assert len([path for path in files(warehouse) if path.parent.parent.name == "b"]) == len(SOME)
    assert warehouse.verify() == []
    rows = {row["run_id"]: (row["value"], row["stored"]) for row in warehouse.history("step_time").rows()}
    assert rows == {"a": (110.0, True), "b": (115.0, False), "host": (None, True)}
    assert values(warehouse, "name_summary.sum_ns[name=aten::mm]")["b"] == 15.0
    assert [
        row["run_id"] for row in warehouse.history("step_time", "b", where="label.branch=main").rows()
    ] == ["b"]
    warehouse.remove("b")
    warehouse.clean(-1)
    assert set(values(warehouse, "step_time")) == {"a", "host"}
    with pytest.raises(UnknownName):
        warehouse.remove("b")


def test_a_run_name_can_be_used_again(warehouse: tw.Warehouse) -> None:
    before, other = warehouse.store.get("b", 1).sources, other_content(warehouse, "b")
    warehouse.store.remove("b", keep_results=True)
    warehouse.store.publish("b", Changes(sources=other))
    warehouse.record(analyses="step_summary")
    rows = warehouse.history("step_time", "b").rows()
    assert [(row["value"], row["stored"], row["version"]) for row in rows] == [
        (115.0, False, 1),
        (115.0, True, 3),
    ]
    warehouse.store.remove("b")
    warehouse.store.publish("b", Changes(sources=before))
    rows = warehouse.history("step_time", "b").rows()
    assert [(row["stored"], row["version"]) for row in rows] == [(True, 5)], (
        "a run that came back is listed once"
    )


def test_a_failure_does_not_stop_other_results(warehouse: tw.Warehouse) -> None:
    for path in (warehouse.root / "data" / "kernels" / "b").iterdir():
        path.write_bytes(b"damaged")
    done = warehouse.record(analyses=("temporal_breakdown", "queue_length"))
    assert {(each.run, each.analysis) for each in done.failed} == {("b@v1", "temporal_breakdown@1")}
    assert done.written == 5
    assert "b" not in values(warehouse, "temporal_breakdown.busy_ns")


def test_another_definition_is_another_series(warehouse: tw.Warehouse) -> None:
    (path,) = [path for path in files(warehouse, "step_summary") if path.parent.parent.name == "a"]
    stored = pq.read_table(path)
    about = metadata(path) | {"effective": "0" * 16}
    del about["checksum"]
    schema = stored.schema.with_metadata({"tracewarehouse.recorded": sealed(about)})
    other = Recorded(**{name: about[name] for name in Recorded.__struct_fields__})
    pq.write_table(pa.Table.from_arrays(stored.columns, schema=schema), warehouse.root / "other.parquet")
    warehouse.store.keep_results({other: warehouse.root / "other.parquet"})
    assert {row["definition"] for row in warehouse.history("step_time").rows()} == {
        metadata(path)["effective"]
    }
    name = path.relative_to(warehouse.root).as_posix()
    path.unlink()
    assert [(one.path, "missing" in one.what) for one in warehouse.verify()] == [(name, True)]
    history = warehouse.history("step_time")
    rows = {(row["definition"] == "0" * 16, row["run_id"]): row["value"] for row in history.rows()}
    assert rows == {(True, "a"): 110.0, (False, "b"): 115.0, (False, "host"): None}
    assert any(
        "with a different definition of step_summary@1 (a@v1), shown as" in notice
        for notice in history.notices
    )


def test_only_summaries_are_recorded_by_default(tmp_path: Path) -> None:
    analyses = tw.open(tmp_path).catalog.analyses()
    others = {contract.name for contract in analyses if not contract.is_summary}
    assert others >= {"idle_intervals", "launch_stats", "queue_length", "memory_curve", "timeline"}
    assert not others & {"step_summary", "kernel_summary", "stragglers", "quality", "exposed_comm"}
