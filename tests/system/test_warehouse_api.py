"""`Warehouse`: the Python API as notebooks use it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

import tracewarehouse as tw
from conftest import ROOT
from small_warehouse import START, kernel, small_catalog, store_run
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import (
    ParamError,
    QueryError,
    SchemaVersionError,
    TwError,
    UnknownName,
    WarehouseError,
)
from tracewarehouse.storage import layout
from tracewarehouse.storage.objects import LocalObjects
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

BOTH = {"start_ns": START + 7, "end_ns": START + 8}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return small_catalog(
        tmp_path / "sql", without=["tables/kernels.v2.sql", "analyses/gpu/doubled_time.v1.sql"]
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open_or_create(tmp_path / "it's [a] ware*house?")


@pytest.fixture
def wh(store: Store, catalog: Catalog) -> Warehouse:
    store_run(store, catalog, "a", labels={"commit": "3f2a"})
    store_run(store, catalog, "b", (0, 1, 2), labels={"commit": "77b1"}, **BOTH)
    return Warehouse(store.folder, catalog=catalog)


def test_an_analysis_returns_rows_contract_and_provenance(wh: Warehouse, catalog: Catalog) -> None:
    found = wh.analyze("kernel_time", least_ns="11ns")
    assert found.rows() == [
        {"run_id": "b", "rank": 2, "count": 2, "sum_ns": 72},
        {"run_id": "a", "rank": 1, "count": 2, "sum_ns": 51},
        {"run_id": "b", "rank": 1, "count": 2, "sum_ns": 51},
        {"run_id": "a", "rank": 0, "count": 1, "sum_ns": 20},
        {"run_id": "b", "rank": 0, "count": 1, "sum_ns": 20},
    ]
    provenance = found.provenance
    assert (provenance.analysis, provenance.version, provenance.runs) == ("kernel_time", 2, ("a@v1", "b@v1"))
    assert provenance.params == {"least_ns": 11, "word": None}
    assert provenance.tables == {"kernels": 1} and provenance.tool == tw.__version__
    assert provenance.effective_hash == catalog.effective_hash(catalog.get("kernel_time"))
    assert found.notices == () and found.skipped == ()
    again = wh.select(runs=provenance.runs).analyze(
        f"{provenance.analysis}@{provenance.version}", **provenance.params
    )
    assert again.table == found.table and again.provenance == found.provenance


def test_older_versions_are_selectable(wh: Warehouse) -> None:
    assert wh.select("a", 0).analyze("kernel_time@1").rows()[0]["count"] == 3
    assert wh.select("a", 0).analyze("kernel_time", version=1).provenance.version == 1


def test_select_returns_a_fixed_selection(wh: Warehouse, store: Store, catalog: Catalog) -> None:
    part = wh.select(runs=["@latest", "label:commit=3f2a"], ranks=[1])
    assert [(each.selector, each.ranks) for each in part.selected()] == [("a@v1", (1,)), ("b@v1", (1,))]
    assert part.analyze("kernel_time").provenance.ranks == {"a": [1], "b": [1]}
    store_run(
        store,
        catalog,
        "a",
        (1,),
        tables={"kernels@1": [kernel("a", 1, 0, "x", 7)]},
        content="z",
        replace=True,
    )
    assert part.select(runs="a").query("SELECT count(*) AS n FROM kernels").rows() == [{"n": 3}]
    assert wh.select("a", 1).query("SELECT count(*) AS n FROM kernels").rows() == [{"n": 1}]
    assert wh.select("a@v1", 1).query("SELECT count(*) AS n FROM kernels").rows() == [{"n": 3}]
    with pytest.raises(UnknownName):
        part.select(runs="c")
    with pytest.raises(UnknownName):
        wh.select(ranks=9)
    assert repr(part) == f"Warehouse({str(wh.root)!r}, runs=['a@v1', 'b@v1'])"


class Noted(LocalObjects):
    """The blobs of a folder, with a list of what was read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def get(self, key: str) -> bytes:
        data = super().get(key)
        self.read.append(key)
        return data


def test_a_name_or_prefix_reads_no_other_run(store: Store, catalog: Catalog) -> None:
    for run in ("night-1", "night-2", "night-2-late", "Day-one", "dayA"):
        store_run(store, catalog, run, (0,))
    store.relabel("night-2", {"commit": "3f2a"})
    wh = Warehouse(store.folder, catalog=catalog)
    wh.store.objects = noted = Noted(store.folder)
    for selector, opened in {
        "night-2": {"night-2"},
        "NIGHT-2": {"night-2"},
        "night-2@v1": {"night-2"},
        "night-2-": {"night-2-late"},
        "day": {"day-one", "daya"},  # the version has the spelling
    }.items():
        wh.store.forget()
        noted.read.clear()
        assert wh.select(selector).analyze("kernel_time").rows(), selector
        # The list of all runs is `_tw/index/list.json.gz`.
        assert {layout.run_of(key) for key in noted.read} - {None} == opened, selector


def test_unknown_names_and_invalid_values_are_errors(wh: Warehouse) -> None:
    with pytest.raises(UnknownName) as raised:
        wh.analyze("kernel_tim")
    assert raised.value.hint == "did you mean kernel_time?"
    with pytest.raises(UnknownName):
        wh.analyze("kernels")
    with pytest.raises(ParamError):
        wh.analyze("kernel_time", least_ns=-1)
    with pytest.raises(ParamError, match="has no parameter least"):
        wh.analyze("kernel_time", least=1)


def test_ranks_without_needed_data_are_skipped_with_reasons(
    wh: Warehouse, store: Store, catalog: Catalog
) -> None:
    store_run(store, catalog, "c", (0, 1), shapes=False)
    store_run(store, catalog, "d", (0,), tables={})
    found = wh.analyze("gemm_shapes")
    assert {row["run_id"] for row in found.rows()} == {"a", "b"}
    assert [(each.run_id, each.rank, each.reason) for each in found.skipped] == [
        ("c", 0, "no input shapes recorded"),
        ("c", 1, "no input shapes recorded"),
        ("d", 0, "requires 2 ranks, found 1"),
    ]
    assert len(wh.select("c").analyze("gemm_shapes")) == 0


def test_damage_and_gaps_are_notices(wh: Warehouse, store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "c", (1,), status="damaged")
    notices = wh.select("c").analyze("kernel_time").notices
    assert notices == (
        "1 rank has a damaged trace (c rank 1)",
        "c is incomplete: 1 of 2 ranks",
        "recording of c: usable with limits: rank 1: the file is damaged; lost events: 1 or more",
    )
    assert wh.select("a").query("SELECT 1").notices == ()
    store_run(store, catalog, "d", gpu_ns=1000, launch_known_ns=999)
    notices = wh.select("d").analyze("launch_time").notices
    assert notices == ("coverage: 99.9 % of GPU time is linked to its launch",)
    assert wh.select("d").analyze("kernel_time").notices == ()
    for name in ("e", "f", "g"):
        store_run(store, catalog, name, gpu_ns=1000, launch_known_ns=500)
    of_two = wh.select(["d", "e"]).analyze("launch_time").notices
    assert of_two == tuple(
        f"coverage of {run}: {share} % of GPU time is linked to its launch"
        for run, share in (("d", 99.9), ("e", 50.0))
    )
    assert (
        wh.select(["d", "e", "f", "g"]).analyze("launch_time").notices[3]
        == "coverage of 1 more run: below 100 %"
    )


def test_query_is_read_only(wh: Warehouse, tmp_path: Path) -> None:
    found = wh.query(
        "SELECT name, sum(dur_ns) AS s, '{\"a\": 1.10}'::JSON AS j FROM kernels GROUP BY name ORDER BY 1"
    )
    assert [row["name"] for row in found.rows()] == ["copy", "gemm", "it's relu"]
    assert [each.type for each in found.columns()] == ["VARCHAR", "HUGEINT", "JSON"]
    assert '"j": {"a": 1.10}' in "".join(found.json())
    assert found.provenance.sql is not None and found.contract is None
    for sql in (
        "DROP TABLE runs",
        f"COPY runs TO '{tmp_path}/x.csv'",
        "SELECT * FROM nowhere",
        "SELECT 1; SELECT 2",
    ):
        with pytest.raises(QueryError):
            wh.query(sql)
    with pytest.raises(QueryError):
        wh.query(f"SELECT * FROM glob('{tmp_path}/*')")
    kernels = [{"name": "not me"}]  # a caller's variable is never mistaken for a table
    assert wh.query("SELECT count(*) AS n FROM kernels").rows() != kernels


def test_scan_returns_the_selected_rows(wh: Warehouse, catalog: Catalog) -> None:
    import polars

    frame = wh.select("b", [0, 2]).scan("kernels")
    assert isinstance(frame, polars.LazyFrame)
    found = frame.group_by("run_id", "rank").agg(polars.col("dur_ns").sum()).sort("rank").collect()
    assert found.rows() == [("b", 0, 34), ("b", 2, 76)]
    assert wh.scan("counters").collect().schema["args"] == polars.String()
    assert wh.scan("counters").collect().height == 0
    assert wh.scan("ranks").collect()["rank"].to_list() == [0, 1, 0, 1, 2]
    assert "3f2a" in str(wh.scan("runs").collect()["labels"].to_list()[0])
    with pytest.raises(UnknownName):
        wh.scan("gemms")
    columns = [column.name for column in catalog.get("kernels").columns]
    assert wh.scan("kernels").collect_schema().names() == columns


def test_runs_includes_pending_ones(wh: Warehouse, store: Store, catalog: Catalog) -> None:
    store_run(store, catalog, "c", (0,), expected_ranks=8)
    rows = {row["run_id"]: row for row in wh.runs().rows()}
    assert [(name, row["state"]) for name, row in rows.items()] == [
        ("a", "complete"),
        ("b", "complete"),
        ("c", "pending"),
    ]
    assert (rows["c"]["ranks_present"], rows["c"]["ranks_expected"]) == (1, 8)
    assert [row["run_id"] for row in wh.select("a").runs().rows()] == ["a"]


def test_info_has_tables_ranks_and_versions(wh: Warehouse) -> None:
    wh.label("a", {"who": "x"})
    found = wh.info("a")
    assert found.run["labels"] == {"commit": "3f2a", "who": "x"}
    assert [row["rank"] for row in found.ranks.rows()] == [0, 1]
    assert [(each.table, each.version, each.rows, each.files) for each in found.tables] == [
        ("kernels", 1, 6, 1)
    ]
    assert found.tables[0].bytes == found.run["bytes"]
    assert found.versions == (1, 2)
    with pytest.raises(UnknownName):
        wh.info("nowhere")


def test_a_label_is_set_and_removed(wh: Warehouse) -> None:
    wh.label("a", {"commit": None, "who": "x"})
    assert wh.runs().rows()[0]["labels"] == {"who": "x"}
    with pytest.raises(UnknownName):
        wh.label("nowhere", {"a": "b"})


def test_remove_combines_all_conditions(wh: Warehouse, store: Store, catalog: Catalog) -> None:
    now = time.time_ns()
    store_run(store, catalog, "young", (0,), labels={"commit": "3f2a"}, start_ns=now, end_ns=now)
    store_run(store, catalog, "waits", (0,), expected_ranks=2)
    would = wh.remove(where="label.commit=3f2a", older_than="1d", dry_run=True)
    assert [(each.run, each.ranks) for each in would] == [("a", 2)] and would[0].bytes > 0
    assert store.runs() == ("a", "b", "young")
    assert wh.remove(where="label.commit=3f2a", older_than="1d") == would
    assert store.runs() == ("b", "young")
    assert [each.run for each in wh.remove(["young", "waits"])] == ["young", "waits"]
    assert [row["run_id"] for row in wh.runs().rows()] == ["b"]
    assert wh.select("a@v1").query("SELECT count(*) AS n FROM kernels").rows() == [{"n": 6}]
    for wrong in ({}, {"runs": "a"}, {"older_than": "long"}, {"where": "commit=1"}):
        with pytest.raises(TwError):
            wh.remove(**wrong)


def test_results_are_written_to_parquet_with_metadata(wh: Warehouse, tmp_path: Path) -> None:
    path = wh.analyze("kernel_time").write(tmp_path / "x.parquet")
    schema = parquet.read_schema(str(path))
    assert schema.field("sum_ns").metadata[b"unit"] == b"ns"
    assert b'"runs": ["a@v1", "b@v1"]' in schema.metadata[b"tracewarehouse"]


def test_reading_a_missing_warehouse_is_an_error(tmp_path: Path) -> None:
    missing = tw.open(tmp_path / "nowhere")
    with pytest.raises(WarehouseError, match="no warehouse here"):
        missing.runs()
    with pytest.raises(WarehouseError):
        missing.select("a")
    assert not missing.root.exists()


def test_an_empty_warehouse_has_no_rows(tmp_path: Path, catalog: Catalog) -> None:
    wh = Warehouse(Store.open_or_create(tmp_path / "w").folder, catalog=catalog)
    assert len(wh.runs()) == len(wh.analyze("kernel_time")) == len(wh.analyze("findings")) == 0
    assert wh.scan("kernels").collect().height == 0


def test_an_older_version_without_the_table_cannot_be_rebuilt(store: Store, tmp_path: Path) -> None:
    catalog = small_catalog(tmp_path / "sql2")
    store_run(store, catalog, "a", (0,), tables={"kernels@1": [kernel("a", 0, 0, "gemm", 1)]})
    wh = Warehouse(store.folder, catalog=catalog)
    wh.label("a", {"k": "v"})
    with pytest.raises(SchemaVersionError, match="a@v1 does not have kernels@2"):
        wh.select("a@v1").query("FROM kernels")
    assert wh.select("a@v1").query("SELECT 1 AS one").rows() == [{"one": 1}]
    assert wh.select("a@v1").analyze("kernel_time").rows() == []


COUNTED = """-- /// tw
-- kind = "analysis"
-- name = "gpu_activities"
-- version = 1
-- summary = "GPU activities."
-- requires = ["kernels@2"]
-- grain = ["run_id", "rank"]
-- [columns]
-- run_id = { type = "VARCHAR", doc = "The run." }
-- rank = { type = "INTEGER", doc = "The rank." }
-- rows = { type = "BIGINT", unit = "count", doc = "GPU activities." }
-- [changes]
-- 1 = "Made."
-- ///
SELECT run_id, rank, count(*) AS rows FROM kernels GROUP BY run_id, rank
"""


@pytest.mark.deep
def test_an_upgrade_rebuilds_a_table_of_another_version(tmp_path: Path) -> None:
    steps = ROOT / "tests" / "data" / "first-steps"
    tw.open(tmp_path / "w").ingest(steps / "rank0.json.gz", steps / "rank1.json.gz", jobs=1)
    shutil.copytree(ROOT / "sql", tmp_path / "sql")
    older = tmp_path / "sql" / "tables" / "kernels.v1.sql"
    text = re.sub(r"(-- version +=) 1", r"\1 2", older.read_text())
    newer = text.replace("-- [changes]\n", '-- [changes]\n-- 2 = "As before."\n')
    older.with_name("kernels.v2.sql").write_text(newer)
    (tmp_path / "sql" / "analyses" / "gpu").mkdir(parents=True, exist_ok=True)
    (tmp_path / "sql" / "analyses" / "gpu" / "gpu_activities.v1.sql").write_text(COUNTED)
    wh = Warehouse(tmp_path / "w", catalog=Catalog.read(tmp_path / "sql"))
    with pytest.raises(SchemaVersionError, match="first-steps@v1 does not have kernels@2"):
        wh.select("first-steps", 1).analyze("gpu_activities")
    assert wh.upgrade().lines == ("kernels@2 was rebuilt for first-steps",)
    found = wh.select("first-steps", 1).analyze("gpu_activities")
    assert found.provenance.runs == ("first-steps@v2",) and found.provenance.tables == {"kernels": 2}
    held = {(each.table, each.version): each.rows for each in wh.info("first-steps").tables}
    count = sum(row["rows"] for row in wh.analyze("gpu_activities").rows())
    assert held["kernels", 1] == held["kernels", 2] == count
    assert wh.verify() == []
    assert tw.open(tmp_path / "w").query("SELECT count(*) AS n FROM kernels").rows() == [
        {"n": held["kernels", 1]}
    ]
    assert wh.upgrade().lines == ()


def test_verify_and_clean(wh: Warehouse) -> None:
    assert wh.verify() == []
    wh.remove("a")
    assert wh.clean(grace_s=0).files > 0
    with pytest.raises(UnknownName):
        wh.select("a@v1")


def test_the_package_is_light_to_import() -> None:
    code = (
        "import sys, tracewarehouse as tw; tw.open; tw.__version__;"
        "heavy = {'duckdb', 'pyarrow', 'polars', 'click', 'rich', 'msgspec', 'tracewarehouse.warehouse'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tw.nonsense  # type: ignore[attr-defined]


def test_ingest_takes_paths_and_lists_of_paths(tmp_path: Path) -> None:
    source = ROOT / "tests" / "data" / "first-steps" / "rank0.json.gz"
    one, two = tw.open(tmp_path / "one"), tw.open(tmp_path / "two")
    reports = one.ingest([source], run="a", jobs=1), two.ingest(str(source), run="a", jobs=1)
    assert [len(each.stored) for each in reports] == [1, 1]
    with pytest.raises(ParamError, match="int is not a path") as raised:
        one.ingest([source, 3])  # type: ignore[list-item]
    assert "wh.ingest(" in str(raised.value.hint)


def test_a_with_statement_closes_the_connections(wh: Warehouse) -> None:
    with wh as opened:
        assert opened is wh and len(opened.analyze("kernel_time")) and opened.selection.pool._idle
    assert not wh.selection.pool._idle
    assert len(wh.analyze("kernel_time"))


def test_read_only_refuses_what_writes(wh: Warehouse, catalog: Catalog) -> None:
    reader = Warehouse(wh.root, catalog=catalog, read_only=True)
    assert reader.runs().rows() == wh.runs().rows() and len(reader.analyze("kernel_time"))
    for write in (
        lambda: reader.label("a", {"b": "c"}),
        lambda: reader.remove("a", dry_run=True),
        reader.clean,
    ):
        with pytest.raises(WarehouseError, match="read_only"):
            write()
