"""Renames from format 1: they lead to current names and cover everything that format 1 stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracewarehouse as tw
from conftest import ROOT
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.ingest.upgrade.format1 import convert
from tracewarehouse.storage import renames, request_hash
from tracewarehouse.storage.format1 import Format1
from tracewarehouse.storage.parquet_file import sha256

WAREHOUSE = ROOT / "tests" / "data" / "warehouse-1"
CONTRACTS = {contract.name: contract for contract in Catalog.load().contracts.values()}


def columns_of(name: str) -> set[str]:
    return {column.name for column in CONTRACTS[name].columns}


def test_each_name_leads_to_a_current_name() -> None:
    assert set(renames.TABLES.values()) <= CONTRACTS.keys() and not renames.TABLES.keys() & CONTRACTS.keys()
    for name, columns in renames.COLUMNS.items():
        assert set(columns.values()) <= columns_of(name), name
        assert not set(columns) & columns_of(name), name
    for name, column in renames.VALUES:
        assert column in columns_of(name), (name, column)
    for name in renames.DEFINITIONS:
        assert (CONTRACTS[name].kind, CONTRACTS[name].version) == ("analysis", 1), name


@pytest.mark.parametrize("folder", sorted(path.name for path in (WAREHOUSE / "data").iterdir()))
def test_every_stored_column_has_a_current_name(folder: str) -> None:
    for path in (WAREHOUSE / "data" / folder).rglob("*.parquet"):
        rows = renames.renamed_rows(folder, pq.ParquetFile(path).read())
        assert set(rows.column_names) <= columns_of(folder), path.name


def test_rows() -> None:
    rows = pa.table({"state": ["linked", "missing", None], "gpu_rows": [1, 2, 3], "api": ["linked", "", "x"]})
    assert renames.renamed_rows("launch_summary", rows).to_pydict() == {
        "state": ["known", "missing", None], "gpu_activities": [1, 2, 3], "api": ["linked", "", "x"],
    }  # fmt: skip
    assert renames.renamed_rows("runtime", rows) is not None
    assert renames.renamed_rows("runtime", rows).equals(rows)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("step_summary.period_ns", "step_summary.period_ns"),
        ("coverage.linked", "coverage.launch_known"),
        ("step_account.part_ns[part=idle_sync]", "step_account.category_ns[category=idle_sync]"),
        ("launch_summary.gpu_rows[known=true,state=linked]",
         "launch_summary.gpu_activities[recognized=true,state=known]"),
        ("quality.rows[rank=0,rule=open_bracket]", "quality.rows[rank=0,rule=unpaired_begin_end]"),
        ("kernel_summary.sum_ns[name=f<a=1,b>(x, y)]", "kernel_summary.sum_ns[name=f<a=1,b>(x, y)]"),
        ("no metric", "no metric"),
    ],
)  # fmt: skip
def test_metrics_of_acknowledgements(old: str, new: str) -> None:
    assert renames.renamed_metric(old) == new


def test_what_is_not_carried_over_is_reported(tmp_path: Path) -> None:
    """Results of another definition, results and acknowledgements of a content that is no longer stored."""
    root = Path(shutil.copytree(WAREHOUSE, tmp_path / "warehouse"))
    result = next((root / "results" / "step_summary@1" / "good").iterdir())
    other, gone = result.name.split("-"), result.name.split("-")
    other[0], gone[2] = "0" * 16, "1" * 16
    shutil.copy(result, result.with_name("-".join(other)))
    shutil.copy(result, result.with_name("-".join(gone)))
    acknowledged = next((root / "_tw" / "acknowledged").iterdir())
    said = {**json.loads(acknowledged.read_bytes()), "source": "1" * 16}
    acknowledged.with_name("0123456789abcdef.json").write_text(json.dumps(said))
    assert convert(root, Catalog.load(), "0.2").lines[5:] == (
        "recorded results: 7 carried over",
        "recorded results of step_summary keep their old definition, a separate series",
        "recorded results: 1 not carried over, their versions of runs are no longer stored",
        "acknowledgements: 1 carried over",
        "acknowledgements: 1 not carried over, their versions of runs are no longer stored",
    )
    wh = tw.Warehouse(root)
    assert wh.verify() == []
    # The removed run has other hardware.
    series = [
        [dot.run for dot in line.points]
        for line in wh.history("step_time").series
        if line.definition == CONTRACTS_HASH
    ]
    assert series == [["good", "slow"], ["gone"]]


def test_results_of_derived_tables_are_carried_over(tmp_path: Path) -> None:
    """Their request has checksums of the derived tables, which are stored in new files."""
    root = Path(shutil.copytree(WAREHOUSE, tmp_path / "warehouse"))
    write_result_of_format_1(root, "critical_path_breakdown", "good")
    report = convert(root, Catalog.load(), "0.2")
    assert "recorded results: 7 carried over" in report.lines
    wh = tw.Warehouse(root)
    assert wh.derive("critical_path", "good").version is None
    recorded = wh.record("good", analyses=["critical_path_breakdown"])
    assert (recorded.written, recorded.present) == (0, 1)
    (line,) = wh.history("critical_path_breakdown.segments[category=host]").series
    assert [dot.value for dot in line.points] == [7.0]


def write_result_of_format_1(root: Path, analysis: str, run: str) -> None:
    """A recorded result with a row, as format 1 stored it."""
    old = Format1(root).newest(run)
    assert old is not None
    tables = {"critical_edges", "critical_nodes", "critical_path"}
    files = [(one.rank, file.table, file.sha256) for one in old.version.sources for file in one.files]
    said = {
        "analysis": analysis, "version": 1, "run": run, "effective": renames.DEFINITIONS[analysis],
        "asked": request_hash({}, (file for file in files if file[1] in tables)), "source": old.source,
        "run_id": run, "number": 2, "ranks": [0, 1], "reason": None, "complete": {},
    }  # fmt: skip
    row = {"run_id": [run], "rank": [0], "scope": ["step 2"], "category": ["host"], "parts": [7]}
    folder = root / "results" / f"{analysis}@1" / run
    folder.mkdir(parents=True)
    table = pa.table(row).replace_schema_metadata({"tracewarehouse.recorded": json.dumps(said)})
    pq.write_table(table, folder / "new.parquet")
    name = "-".join(said[key] for key in ("effective", "asked", "source"))
    (folder / "new.parquet").rename(folder / f"{name}-{sha256(folder / 'new.parquet')[:16]}.parquet")


CONTRACTS_HASH = Catalog.load().effective_hash(CONTRACTS["step_summary"])[:16]
