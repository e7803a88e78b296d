"""Simulated runs as Nsight Systems exports: every analysis equals that of the same run's Kineto traces."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import nsys_writer
import tracewarehouse as tw
from simulated import LAYOUTS, SMALL

Row = Mapping[str, Any]
# Columns that an export cannot carry, by analysis: they are null, or follow from ones that are.
# The list grows only with a line in the CHANGELOG.
NOT_CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    # Arguments of collectives: group, bytes and sequence; the instance and its state follow from the group.
    "collective_waits": ("process_group", "sequence", "bytes", "instance_id", "state"),
    "comm_by_group": ("process_group",),
    "stragglers": ("partial", "assumed"),
    # Input types and Python modules.
    "step_kernels": ("op_sig", "path_sig"),
    "window_kernels": ("op_sig", "path_sig"),
}
# These null where the export lacks the source; the others in NOT_CARRIED are derived.
NULL: Final = ("process_group", "sequence", "bytes")
ABSTAINING: Final = ("memory_by_op", "memory_curve", "memory_live", "memory_peak", "memory_pressure")
# About the file, not about what it recorded.
OF_THE_FILE: Final = ("quality",)
# An export does not name process groups: where ranks form several, collectives match across all of them.
BY_GROUP: Final = ("collective_waits", "comm_by_group", "slow_rank", "stragglers")
SEVERAL_GROUPS: Final = ("tensor", "pipeline", "sharded", "served", "graphs")
EVENT_IDS: Final = (
    "event_id", "kernel_id", "runtime_id", "op_id", "annotation_id", "call_id", "after_id", "before_id",
)  # fmt: skip
QUICK: Final = [("data", "3.25"), ("captured", "3.25"), ("tensor", "3.1"), ("queued", "2.7")]
SLOW: Final = [
    ("graphs", "3.25"), ("sharded", "3.1"), ("pipeline", "2.7"), ("old", "3.25"), ("experts", "3.25"),
    ("served", "2.7"),
]  # fmt: skip
CASES: Final = [*QUICK, *(pytest.param(*case, marks=pytest.mark.deep) for case in SLOW)]


def export(folder: Path, path: Path, generation: str) -> Path:
    """All ranks of a simulated job in one file; their correlation ids collide."""
    writer = nsys_writer.Writer(generation, call_chains=True, normalized=generation == "3.1")
    for trace in sorted(folder.glob("rank*.json.gz"), key=lambda each: int(each.name[4:].split(".")[0])):
        writer.add(nsys_writer.read_trace(gzip.decompress(trace.read_bytes())))
    writer.write(path)
    return path


def events(warehouse: tw.Warehouse) -> dict[tuple[int, int], tuple[Any, ...]]:
    """(rank, event_id) → what the event is."""
    sql = "SELECT rank, event_id, ts_ns, dur_ns, category, name, pid, tid FROM events"
    return {(row["rank"], row["event_id"]): tuple(row.values())[2:] for row in warehouse.query(sql).rows()}


def answers(warehouse: tw.Warehouse, name: str, known: Mapping[tuple[int, int], Any]) -> list[dict[str, Any]]:
    """The rows of an analysis; an event id is replaced by the event."""
    rows = []
    for found in warehouse.run(name).rows():
        row = dict(found)
        for column in EVENT_IDS:
            if row.get(column) is not None:
                row[column] = known[row["rank"], row[column]]
        rows.append(row)
    return rows


def comparable(name: str, rows: Iterable[Row]) -> list[Row]:
    """The rows that both formats record, without the columns that are not carried."""
    dropped = NOT_CARRIED.get(name, ())
    kept = [{key: value for key, value in row.items() if key not in dropped} for row in rows]
    if name == "annotation_breakdown":  # copies of annotations on the GPU
        kept = [row for row in kept if not row["on_gpu"]]
    if name == "name_summary":  # Python frames and allocations
        kept = [row for row in kept if row["category"] not in ("python_function", "cpu_instant_event")]
    if name in ("step_kernels", "window_kernels"):
        return summed(kept)
    return kept


def summed(rows: Iterable[Row]) -> list[Row]:
    """Counts and times per remaining key."""
    measures = ("count", "sum_ns", "exclusive_ns")
    total: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        key = tuple(value for name, value in row.items() if name not in measures)
        total.setdefault(key, Counter()).update({name: row[name] for name in measures if name in row})
    return sorted(({"key": key, **sums} for key, sums in total.items()), key=repr)


@pytest.mark.parametrize(("layout", "generation"), CASES)
def test_every_analysis_equals_that_of_the_kineto_traces(
    tmp_path: Path, layout: str, generation: str
) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS[layout]})
    kineto, nsys = tw.open(tmp_path / "kineto"), tw.open(tmp_path / "nsys")
    kineto.ingest(job, run="job")
    report = nsys.ingest(export(job, tmp_path / "report.sqlite", generation), run="job")
    assert {file.state for file in report.files} == {"intact"}
    known, read = events(kineto), events(nsys)
    for analysis in kineto.catalog.analyses():
        name = analysis.name
        if name in OF_THE_FILE or (name in BY_GROUP and layout in SEVERAL_GROUPS):
            continue
        expected, found = answers(kineto, name, known), answers(nsys, name, read)
        if name in ABSTAINING and expected:
            assert found == [] and "no memory events" in str(nsys.run(name).abstained), name
            continue
        for row in found:
            absent = [column for column in NOT_CARRIED.get(name, ()) if column in NULL]
            assert all(row[column] is None for column in absent), name
        assert comparable(name, found) == comparable(name, expected), name


def test_call_chain_copies_are_not_calls(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["one"]})
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(export(job, tmp_path / "report.sqlite", "3.25"), run="job")
    chains = "count(args ->> 'nsys.callchainId')"
    sql = f"SELECT count(*) AS calls, {chains} AS chains FROM events WHERE category = 'cuda_runtime'"
    (row,) = warehouse.query(sql).rows()
    assert row["calls"] == row["chains"] > 0
    (quality,) = warehouse.query("SELECT rows FROM data_quality WHERE rule = 'callchain_copy'").rows()
    assert quality["rows"] == row["calls"]


def test_a_stored_export_is_rebuilt_from_its_events(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["captured"]})
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(export(job, tmp_path / "report.sqlite", "3.25"), run="job")
    sql = "SELECT * FROM kernels ORDER BY ALL"
    before = warehouse.query(sql).rows()
    assert any(row["graph_id"] and row["grid_x"] for row in before)
    assert [file.state for file in warehouse.ingest(tmp_path / "report.sqlite", run="job").files] == [
        "same"
    ] * 2
    assert warehouse.query(sql).rows() == before


def test_ranks_of_both_formats_are_one_run(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["data"]})
    trace = nsys_writer.read_trace(gzip.decompress((job / "rank1.json.gz").read_bytes()))
    writer = nsys_writer.Writer()
    writer.add(trace)
    writer.write(job / "rank1.sqlite")
    (job / "rank1.json.gz").unlink()
    warehouse = tw.open(tmp_path / "warehouse")
    warehouse.ingest(job)
    found = warehouse.query("SELECT run_id, rank, source_format, clock FROM ranks ORDER BY rank").rows()
    assert [tuple(row.values())[:3] for row in found] == [("job", 0, "kineto"), ("job", 1, "nsys")]
    assert found[1]["clock"] == "utc"
