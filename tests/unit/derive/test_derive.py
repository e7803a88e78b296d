"""Derived tables in the warehouse: stored with the others, computed once, removed with their source."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import cli_runner
import sketch
import tracewarehouse as tw
from conftest import ROOT
from ingesting import files_under
from later_release import newer
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.warehouse import Warehouse

__all__ = ["newer"]  # a fixture


def lines(rank: int, steps: int = 4) -> str:
    """A rank with several steps, each with a launch, an annotation enclosing it, and a GPU activity."""
    text = []
    for n in range(steps):
        at = n * 1000
        text += [
            f"job {rank} step t1 {n} {at} 1000",
            f"job {rank} ann t1 forward {at + 100} 300",
            f"job {rank} op t1 aten::mm {at + 150} 100",
            f"job {rank} call t1 cudaLaunchKernel {at + 160} 20 id={n + 1}",
            f"job {rank} gpu s7 gemm {at + 200} {600 + 10 * rank} id={n + 1}",
        ]
    return "\n".join(text) + "\n"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three ranks and four steps, the first and last of them partial, and its traces."""
    folder = tmp_path_factory.mktemp("derive")
    sketch.write("".join(lines(rank) for rank in range(3)), folder / "traces")
    tw.open(folder / "wh").ingest(folder / "traces" / "job")
    return folder


@pytest.fixture
def wh(shared: Path, tmp_path: Path) -> Warehouse:
    """A copy that a test may change."""
    shutil.copytree(shared, tmp_path, dirs_exist_ok=True)
    return tw.open(tmp_path / "wh")


def scopes(warehouse: Warehouse, run: str = "job") -> dict[int, list[str]]:
    rows = warehouse.select(runs=run).critical_path_breakdown().rows()
    ranks = {row["rank"] for row in rows}
    return {rank: sorted({row["scope"] for row in rows if row["rank"] == rank}) for rank in sorted(ranks)}


def test_each_complete_step_of_each_rank_by_default(wh: Warehouse) -> None:
    done = wh.derive("critical_path", "job")
    assert done.version == 2 and done.notices == ()
    assert done.scopes == dict.fromkeys(range(3), ("step 1", "step 2"))
    assert scopes(wh) == {rank: ["step 1", "step 2"] for rank in range(3)}
    assert {row["critical_path"] for row in wh.query("SELECT critical_path FROM ranks").rows()} == {True}
    assert wh.verify() == []


def test_deriving_again_writes_nothing(wh: Warehouse) -> None:
    wh.derive("critical_path", "job")
    files = files_under(wh.root)
    again = wh.derive("critical_path", "job")
    part = wh.derive("critical_path", "job", steps=2, ranks=1)
    assert again.version is None and again.scopes == dict.fromkeys(range(3), ("step 1", "step 2"))
    assert part.version is None and part.scopes == {1: ("step 2",)}
    assert files_under(wh.root) == files


@pytest.mark.deep
def test_derived_scopes_are_kept_when_others_are_added(wh: Warehouse) -> None:
    wh.derive("critical_path", "job", steps=[1], ranks=[0, 1])
    before = wh.select(ranks=0).critical_path_breakdown().rows()
    done = wh.derive("critical_path", "job", annotations="forward#3", ranks=0)
    assert done.scopes == {0: ("annotation forward#3",)} and done.version == 3
    assert scopes(wh) == {0: ["annotation forward#3", "step 1"], 1: ["step 1"]}
    after = wh.select(ranks=0).critical_path_breakdown().rows()
    assert [row for row in after if row["scope"] == "step 1"] == before
    whole = wh.derive("critical_path", "job", entire_trace=True, ranks=0)
    assert whole.scopes == {0: ("trace",)}
    assert scopes(wh)[0] == ["annotation forward#3", "step 1", "trace"]


def test_ranks_without_a_path_are_skipped_with_a_remedy(wh: Warehouse) -> None:
    skipped = wh.critical_path_breakdown().skipped
    assert [each.reason for each in skipped] == ["critical_path is not derived"] * 3
    wh.derive("critical_path", "job", ranks=[2])
    assert [each.rank for each in wh.critical_path_breakdown().skipped] == [0, 1]
    assert scopes(wh) == {2: ["step 1", "step 2"]}
    shell = wh.query("SELECT DISTINCT rank FROM critical_path").rows()
    assert shell == [{"rank": 2}]


@pytest.mark.deep
def test_older_versions_and_removal(wh: Warehouse) -> None:
    wh.derive("critical_path", "job")
    assert len(wh.select(runs="job@v1").critical_path_breakdown().skipped) == 3
    assert wh.select(runs="job@v1").query("SELECT count(*) AS n FROM critical_edges").rows() == [{"n": 0}]
    assert scopes(wh, "job@v2") == {rank: ["step 1", "step 2"] for rank in range(3)}
    wh.clean(grace_s=0)
    assert wh.verify() == [] and scopes(wh) == {rank: ["step 1", "step 2"] for rank in range(3)}
    wh.remove("job")
    wh.clean(grace_s=0)
    assert wh.verify() == []
    assert not list((wh.root / "data").rglob("*critical*.parquet"))


@pytest.mark.deep
def test_reingesting_the_same_trace_keeps_derived_tables(wh: Warehouse, tmp_path: Path) -> None:
    wh.derive("critical_path", "job")
    report = wh.ingest(tmp_path / "traces" / "job")
    assert {file.state for file in report.files} == {"same"}
    assert scopes(wh) == {rank: ["step 1", "step 2"] for rank in range(3)}


def test_replacing_the_trace_removes_derived_tables(wh: Warehouse, tmp_path: Path) -> None:
    wh.derive("critical_path", "job")
    sketch.write(lines(1, steps=5), tmp_path / "other")
    wh.ingest(tmp_path / "other" / "job", run="job", replace=True)
    assert [each.rank for each in wh.critical_path_breakdown().skipped] == [1]
    assert wh.query("SELECT DISTINCT rank FROM critical_nodes ORDER BY rank").rows() == [
        {"rank": 0},
        {"rank": 2},
    ]


@pytest.mark.deep
def test_upgrade_keeps_derived_tables(wh: Warehouse, newer: Any) -> None:
    wh.derive("critical_path", "job")
    later = Warehouse(wh.root, catalog=newer)
    assert later.upgrade().lines == ("runtime@2 was rebuilt for job",)
    assert scopes(later) == {rank: ["step 1", "step 2"] for rank in range(3)}
    assert later.derive("critical_path", "job").version is None
    assert later.verify() == []


@pytest.mark.deep
def test_outdated_derived_tables_are_derived_again(wh: Warehouse, tmp_path: Path) -> None:
    wh.derive("critical_path", "job", steps=1)
    sql = Path(shutil.copytree(ROOT / "sql", tmp_path / "sql"))
    starts = sql / "derived" / "critical_start_dependencies.v1.sql"
    starts.write_text(starts.read_text().replace("default = 30000", "default = 10"))
    other = Warehouse(wh.root, catalog=Catalog.read(sql))
    done = other.derive("critical_path", "job", steps=2)
    assert done.version == 3
    assert scopes(other) == {rank: ["step 1", "step 2"] for rank in range(3)}
    assert other.derive("critical_path", "job", steps=[1, 2]).version is None
    assert other.verify() == []


def test_a_scope_missing_on_all_ranks_is_an_error_on_some_a_notice(wh: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="step: 9"):
        wh.derive("critical_path", "job", steps=9)
    with pytest.raises(UnknownName, match="annotation: backward#0"):
        wh.derive("critical_path", "job", annotations="backward")
    with pytest.raises(UnknownName, match="derivation"):
        wh.derive("shortest_path", "job")
    with pytest.raises(ParamError, match="applies to the run"):
        wh.derive("critical_path", "job@v1")
    with pytest.raises(ParamError, match="without a name"):
        wh.derive("critical_path", "job", annotations="#1")
    sketch.write(lines(3, steps=6), tmp_path / "more")
    wh.ingest(tmp_path / "more" / "job", run="job")
    done = wh.derive("critical_path", "job", steps=5)
    assert done.notices == ("job rank 0-2: no step 5",)
    assert done.scopes == {0: (), 1: (), 2: (), 3: ("step 5",)}


def test_an_annotation_may_have_a_number_sign_in_its_name(tmp_path: Path) -> None:
    text = "".join(
        f"job 0 ann t1 Optimizer.step#SGD.step {at} 50\njob 0 op t1 mm {at} 9\n" for at in (0, 100)
    )
    sketch.write(text, tmp_path)
    warehouse = tw.open(tmp_path / "wh")
    warehouse.ingest(tmp_path / "job")
    done = warehouse.derive(
        "critical_path", "job", annotations=["Optimizer.step#SGD.step", "Optimizer.step#SGD.step#1"]
    )
    assert done.scopes == {
        0: ("annotation Optimizer.step#SGD.step#0", "annotation Optimizer.step#SGD.step#1")
    }


def test_without_steps_the_entire_trace_is_derived(tmp_path: Path) -> None:
    text = "job 0 op t1 mm 10 90\njob 1 gpu s7 gemm 50 20\njob 2 count Power 1 0\n"
    sketch.write(text, tmp_path)
    warehouse = tw.open(tmp_path / "wh")
    warehouse.ingest(tmp_path / "job")
    assert warehouse.derive("critical_path", "job").scopes == {0: ("trace",), 1: ("trace",), 2: ()}
    rows = warehouse.critical_path_breakdown().rows()
    found = {(row["rank"], row["category"]): row["path_ns"] for row in rows}
    assert found == {(0, "host"): 90, (0, "host_gap"): 0, (1, "computation"): 20, (1, "unknown_wait"): 0}


def test_show_prints_how_to_derive(wh: Warehouse) -> None:
    done = cli_runner.tw("show", "critical_path_breakdown", "-w", wh.root)
    assert done.code == 0
    assert done.errors[:1] == ["skipped 3 of 3 ranks: critical_path is not derived"]
    assert done.errors[-1] == "hint: tw derive critical_path job"


def test_on_the_command_line(wh: Warehouse) -> None:
    root = str(wh.root)
    first = cli_runner.tw("derive", "critical_path", "job", "--rank", "0-1", "--step", "1", "-w", root)
    assert (first.code, first.out, first.err) == (0, "job@v2: 2 ranks, 1 scope\n", "")
    again = cli_runner.tw("derive", "critical_path", "job", "--rank", "0-1", "--step", "1", "-w", root)
    assert again.out == "job: already derived: 2 ranks, 1 scope\n"
    bad = cli_runner.tw("derive", "critical_path", "job", "--step", "77", "-w", root)
    assert bad.code == 1 and "77" in bad.err
    shown = cli_runner.tw("show", "critical_path_breakdown", "-w", root, "--rank", "0", "--format", "csv")
    assert shown.out.splitlines()[1] == "job,0,step 1,host_gap,2,900,0.9,0,true"
