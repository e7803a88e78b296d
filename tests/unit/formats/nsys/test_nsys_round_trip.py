"""Simulated runs as Nsight Systems exports: every analysis equals that of the same run's Kineto traces."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nsys_writer
import tracewarehouse as tw
from analysis_rows import SAMPLE, differing
from simulated import LAYOUTS, SMALL

# Columns that an export cannot carry, by analysis: they are null, or follow from ones that are.
# The list grows only with a line in the CHANGELOG.
NOT_CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    # Arguments of collectives: group, bytes and sequence; the instance and its state follow from the group.
    "collective_waits": ("process_group", "group_source", "sequence", "bytes", "instance_id", "state"),
    "comm_by_group": ("process_group",),
    "stragglers": ("partial", "assumed"),
    # The process group of the collective that costs most.
    "exposed_comm": ("observation", "culprit"),
    # Blocks per multiprocessor and occupancy.
    "gpu_utilization": ("sm_efficiency", "occupancy"),
    # Input types and Python modules.
    "step_kernels": ("op_sig", "path_sig", "module_path", "work_unit", "work"),
    "window_kernels": ("op_sig", "path_sig", "module_path", "work_unit", "work"),
}
# These null where the export lacks the source; the others in NOT_CARRIED are derived.
NULL: Final = ("process_group", "sequence", "bytes", "sm_efficiency", "occupancy")
# Analyses that be skipped, and the reason.
ABSTAINING: Final = (
    dict.fromkeys(
        ("memory_by_op", "memory_curve", "memory_live", "memory_peak", "memory_pressure"), "no memory events"
    )
    | {"node_summary": "no host name recorded", "source_summary": "no Python stacks recorded"}
    | dict.fromkeys(
        (
            "alltoall_imbalance",
            "bandwidth_by_size",
            "collective_bandwidth",
            "slow_links",
            "slow_network",
            "unbalanced_experts",
        ),
        "no message sizes",
    )
)
# About the file, not about what it recorded.
OF_THE_FILE: Final = ("quality", "recording")
# From input shapes and types, Python frames and the nesting of host events, of which an export has less.
OF_INPUTS: Final = (
    "fusible_chain", "key_averages", "low_roofline_hot_ops", "mfu", "mfu_run", "misaligned_gemm",
    "module_siblings", "module_summary", "op_work_summary", "roofline", "what_if",
)  # fmt: skip
# An export does not name process groups: where ranks form several, collectives match across all of them.
BY_GROUP: Final = (
    "collective_waits",
    "comm_by_group",
    "gpu_timeline",
    "slow_rank",
    "stragglers",
    "wait_matrix",
)
# Nor does it say how large a group is: a rank may be missing, so that nothing is transfer for certain.
OF_GROUP_SIZE: Final = (
    "exposed_comm",
    "gpu_timeline",
    "slow_collectives",
    "slow_rank",
    "step_account",
    "window_account",
)
SEVERAL_GROUPS: Final = ("tensor", "pipeline", "sharded", "served", "graphs")
QUICK: Final = ("tensor", "3.1")
SLOW: Final = [
    QUICK, ("queued", "2.7"), ("data", "3.25"), ("captured", "3.25"), ("graphs", "3.25"),
    ("sharded", "3.1"), ("pipeline", "2.7"), ("experts", "3.25"),
]  # fmt: skip


def export(folder: Path, path: Path, generation: str) -> Path:
    """All ranks of a simulated job in one file; their correlation ids collide."""
    writer = nsys_writer.Writer(generation, call_chains=True, normalized=generation == "3.1")
    for trace in sorted(folder.glob("rank*.json.gz"), key=lambda each: int(each.name[4:].split(".")[0])):
        writer.add(nsys_writer.read_trace(gzip.decompress(trace.read_bytes())))
    writer.write(path)
    return path


def without_window(folder: Path, traces: Path) -> Path:
    """The traces, which do not say when the profiler's window ended: an export does not."""
    traces.mkdir()
    for path in folder.glob("rank*.json.gz"):
        text = gzip.decompress(path.read_bytes()).replace(b"Record Window End", b"a mark")
        (traces / path.name).write_bytes(gzip.compress(text, 1))
    return traces


def test_a_sample_of_analyses_equals_that_of_the_kineto_traces(tmp_path: Path) -> None:
    equal_kineto(tmp_path, *QUICK, SAMPLE)


@pytest.mark.deep
@pytest.mark.parametrize(("layout", "generation"), SLOW)
def test_every_analysis_equals_that_of_the_kineto_traces(
    tmp_path: Path, layout: str, generation: str
) -> None:
    equal_kineto(tmp_path, layout, generation)


def equal_kineto(tmp_path: Path, layout: str, generation: str, names: tuple[str, ...] | None = None) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS[layout]})
    kineto, nsys = tw.open(tmp_path / "kineto"), tw.open(tmp_path / "nsys")
    kineto.ingest(without_window(job, tmp_path / "traces"), run="job")
    report = nsys.ingest(export(job, tmp_path / "report.sqlite", generation), run="job")
    assert {file.state for file in report.files} == {"intact"}
    differ = differing(kineto, nsys, abstaining=ABSTAINING, not_carried=NOT_CARRIED, null=NULL, names=names)
    by_group = BY_GROUP if layout in SEVERAL_GROUPS else ()
    assert sorted(set(differ) - {*OF_THE_FILE, *OF_INPUTS, *OF_GROUP_SIZE, *by_group}) == []


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


def parquet_folder(database: Path, folder: Path) -> Path:
    """The tables of an export as nsys writes them with `--type parquetdir`."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as con:
        names = [name for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            cursor = con.execute(f"SELECT * FROM {name}")
            columns = [column for column, *_ in cursor.description]
            rows = [dict(zip(columns, row, strict=True)) for row in cursor]
            pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


def stored(warehouse: tw.Warehouse) -> dict[str, list[dict[str, object]]]:
    return {
        name: warehouse.query(f"FROM {name} ORDER BY ALL").rows()
        for name in ("events", "kernels", "counters")
    }


def test_a_folder_of_parquet_files_gives_the_same_rows(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["captured"]})
    sqlite, parquet = tw.open(tmp_path / "sqlite"), tw.open(tmp_path / "parquet")
    database = export(job, tmp_path / "report.sqlite", "3.25")
    sqlite.ingest(database, run="job")
    folder = parquet_folder(database, tmp_path / "exports" / "report_pqtdir")
    report = parquet.ingest(folder, run="job")
    assert {file.state for file in report.files} == {"intact"}
    assert stored(parquet) == stored(sqlite)
    facts = "SELECT rank, source_format, source_part, source_schema, clock FROM ranks ORDER BY rank"
    assert parquet.query(facts).rows() == sqlite.query(facts).rows()
    assert sqlite.info("job").untested == ()
    assert parquet.info("job").untested == ("Nsight Systems: folders of Parquet files",)
    assert {file.state for file in parquet.ingest(folder.parent, run="job").files} == {"same"}


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    job = tmp_path / "job"
    tw.simulate(job, **{**SMALL, **LAYOUTS["one"]})
    folder = parquet_folder(export(job, tmp_path / "report.sqlite", "3.25"), tmp_path / "pqtdir")
    kernels = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernels.write_bytes(kernels.read_bytes()[:-20])
    [outcome] = tw.open(tmp_path / "warehouse").ingest(folder, run="job").files
    assert outcome.state == "refused" and "cannot be read" in (outcome.reason or "")
