"""Recorded results: what is written, what of it still holds, and what becomes of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketch
import tracewarehouse as tw
from tracewarehouse.errors import TwError, UnknownName
from tracewarehouse.history import Step
from tracewarehouse.metric import measure, parse_metric
from tracewarehouse.storage import Changes, RankSource, Recorded
from tracewarehouse.storage.codec import sealed

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
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with those runs, `SOME` of the analyses recorded; only to be read."""
    folder = tmp_path_factory.mktemp("record")
    sketch.write(RUNS.replace("    ", ""), folder / "traces")
    wh = tw.open(folder / "warehouse")
    wh.ingest(folder / "traces", jobs=1)
    wh.record(analyses=SOME)
    return folder / "warehouse"


@pytest.fixture
def house(made: Path, tmp_path: Path) -> tw.Warehouse:
    """A copy of it that a test may change."""
    return tw.open(shutil.copytree(made, tmp_path / "warehouse"))


def files(wh: tw.Warehouse, analysis: str = "*") -> list[Path]:
    return sorted((wh.root / "results").glob(f"{analysis}@*/*/*/*.parquet"))


def other_content(wh: tw.Warehouse, run: str) -> tuple[RankSource, ...]:
    """The sources of a run, as if read from another file."""
    version = wh.store.newest(run)
    assert version is not None
    return tuple(replace(source, digest="other", attempt="other") for source in version.sources)


def told(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pq.read_schema(path).metadata[b"tracewarehouse.recorded"])
    return found


def values(wh: tw.Warehouse, metric: str) -> dict[str, float | None]:
    return {row["run_id"]: row["value"] for row in wh.history(metric).rows()}


def test_what_is_recorded_is_the_result_with_its_provenance(made: Path) -> None:
    wh = tw.open(made)
    (path,) = (made / "results" / "step_summary@1" / "b").rglob("*.parquet")
    kept, asked = pq.read_table(path), wh.select("b").step_summary()
    assert kept.to_pylist() == asked.rows()
    said = json.loads(kept.schema.metadata[b"tracewarehouse"])
    assert said["provenance"] == json.loads(json.dumps(vars(asked.provenance)))
    assert said["contract"]["grain"] == ["run_id", "rank", "step"]
    assert told(path)["ranks"] == [0, 1]
    assert told(path)["complete"] == {"0": [1], "1": [1]}
    (path,) = (made / "results" / "step_summary@1" / "host").rglob("*.parquet")
    assert pq.read_table(path).num_rows == 0
    assert (told(path)["ranks"], told(path)["reason"]) == ([], "0 steps, needs 1")


@pytest.mark.parametrize("text", METRICS)
def test_a_history_says_what_asking_now_would_say(made: Path, text: str) -> None:
    wh = tw.open(made)
    (now,) = measure(parse_metric(text, wh.catalog), wh)
    found = wh.history(text)
    assert values(wh, text) == {each.run: each.value for each in now.runs}
    assert {row["run_id"]: row["reason"] for row in found.rows()} == {
        each.run: each.reason for each in now.runs
    }
    assert found.notices[0] == f"values are {now.per}"
    assert len(now.values) >= 1


def test_what_is_there_is_not_written_again(house: tw.Warehouse) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(house)}
    assert len(before) == 3 * len(SOME)
    seen: list[Step] = []
    done = house.record(analyses=SOME, progress=seen.append)
    assert (done.written, done.present, done.failed, seen) == (0, 15, (), [])
    assert {path: path.stat().st_mtime_ns for path in files(house)} == before
    files(house, "quality")[0].unlink()
    done = house.record(analyses=(*SOME, "temporal_breakdown"), progress=seen.append)
    assert (done.written, done.present) == (4, 14)
    assert [(step.done, step.total, step.analysis) for step in seen] == [
        (0, 4, "quality"),
        (1, 4, "temporal_breakdown"),
    ]
    assert house.record("b", analyses="coverage").runs == ("b@v1",)


def test_labels_do_not_matter_and_content_does(house: tw.Warehouse) -> None:
    house.store.relabel("a", {"branch": "main"})
    assert house.record(analyses=SOME).written == 0
    house.store.publish("a", Changes(sources=other_content(house, "a"), replace=True))
    found = house.history("step_time")
    assert values(house, "step_time") == {"b": 115.0, "host": None}
    assert "1 of 3 runs is not recorded (a@v3): tw record --all" in found.notices
    assert found.missing == ("a@v3",)
    house.record(analyses="step_summary")
    assert values(house, "step_time")["a"] == 110.0
    assert len(files(house, "step_summary")) == 4, "the result of the version before is still there"


def test_a_derived_table_makes_another_result(house: tw.Warehouse) -> None:
    (why,) = {row["reason"] for row in house.history("critical_path_breakdown.path_ns", "a").rows()}
    assert why == "not derived: tw derive critical_path a"
    house.derive("critical_path", "a")
    assert house.record(analyses=SOME).written == 1
    (path,) = [
        path for path in files(house, "critical_path_breakdown") if told(path)["ranks"] and "/a/" in str(path)
    ]
    assert pq.read_table(path).num_rows > 0


def test_damage_is_found_and_mended(house: tw.Warehouse) -> None:
    assert house.verify() == []
    flipped, cut, other, gone = files(house, "kernel_summary")[0], *files(house, "step_summary")
    data = bytearray(flipped.read_bytes())
    data[60] ^= 0xFF
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-20])
    other = Path(shutil.copy(gone, other))
    gone.unlink()
    found = {problem.path: problem.what for problem in house.verify()}
    assert set(found) == {path.relative_to(house.root).as_posix() for path in (flipped, cut, other, gone)}
    missing = found.pop(gone.relative_to(house.root).as_posix())
    assert "recorded result missing" in missing
    assert all("damaged result" in what for what in found.values())
    with pytest.raises(TwError, match="recorded results cannot be read") as error:
        house.history("step_time")
    assert "tw verify" in (error.value.hint or "")
    for path in (flipped, cut, other):
        path.unlink()
    assert house.record(analyses=SOME).written == 4
    assert house.verify() == []


def test_clean_spares_what_a_kept_version_needs(house: tw.Warehouse) -> None:
    before = files(house)
    assert house.clean(-1).files == 0
    house.store.remove("b")
    house.clean(3600)
    assert files(house) == before, "an older version stays readable for a while, and so do its results"
    house.clean(-1)
    assert files(house) == [path for path in before if path.parent.parent.name != "b"]


def test_results_outlive_their_run(house: tw.Warehouse) -> None:
    house.store.relabel("b", {"branch": "main"})
    house.remove("b", keep_results=True)
    house.clean(-1)
    assert not list((house.root / "data").glob("*/b/*"))
    assert len([path for path in files(house) if path.parent.parent.name == "b"]) == len(SOME)
    assert house.verify() == []
    rows = {row["run_id"]: (row["value"], row["stored"]) for row in house.history("step_time").rows()}
    assert rows == {"a": (110.0, True), "b": (115.0, False), "host": (None, True)}
    assert values(house, "name_summary.sum_ns[name=aten::mm]")["b"] == 15.0
    assert [row["run_id"] for row in house.history("step_time", "b", where="label.branch=main").rows()] == [
        "b"
    ]
    house.remove("b")
    house.clean(-1)
    assert set(values(house, "step_time")) == {"a", "host"}
    with pytest.raises(UnknownName):
        house.remove("b")


def test_a_name_may_be_used_again(house: tw.Warehouse) -> None:
    before, other = house.store.get("b", 1).sources, other_content(house, "b")
    house.store.remove("b", keep_results=True)
    house.store.publish("b", Changes(sources=other))
    house.record(analyses="step_summary")
    rows = house.history("step_time", "b").rows()
    assert [(row["value"], row["stored"], row["version"]) for row in rows] == [
        (115.0, False, 1),
        (115.0, True, 3),
    ]
    house.store.remove("b")
    house.store.publish("b", Changes(sources=before))
    rows = house.history("step_time", "b").rows()
    assert [(row["stored"], row["version"]) for row in rows] == [(True, 5)], "what came back is told once"


def test_what_fails_stops_nothing_else(house: tw.Warehouse) -> None:
    for path in (house.root / "data" / "kernels" / "b").iterdir():
        path.write_bytes(b"damaged")
    done = house.record(analyses=("temporal_breakdown", "queue_length"))
    assert {(each.run, each.analysis) for each in done.failed} == {("b@v1", "temporal_breakdown@1")}
    assert done.written == 5
    assert "b" not in values(house, "temporal_breakdown.busy_ns")


def test_another_definition_is_another_line(house: tw.Warehouse) -> None:
    (path,) = [path for path in files(house, "step_summary") if path.parent.parent.name == "a"]
    kept = pq.read_table(path)
    said = told(path) | {"effective": "0" * 16}
    del said["checksum"]
    schema = kept.schema.with_metadata({"tracewarehouse.recorded": sealed(said)})
    other = Recorded(**{field.name: said[field.name] for field in fields(Recorded)})
    pq.write_table(pa.Table.from_arrays(kept.columns, schema=schema), house.root / "other.parquet")
    house.store.keep_results({other: house.root / "other.parquet"})
    assert {row["definition"] for row in house.history("step_time").rows()} == {told(path)["effective"]}
    place = path.relative_to(house.root).as_posix()
    path.unlink()
    assert [(one.path, "missing" in one.what) for one in house.verify()] == [(place, True)]
    found = house.history("step_time")
    rows = {(row["definition"] == "0" * 16, row["run_id"]): row["value"] for row in found.rows()}
    assert rows == {(True, "a"): 110.0, (False, "b"): 115.0, (False, "host"): None}
    assert any("under another definition of step_summary@1 only (a@v1)" in notice for notice in found.notices)
