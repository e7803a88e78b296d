"""Runs stored before some tables existed: `tw check` and `tw report` skip what needs them, by name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw
from cli_runner import process
from older_release import ADDED, without_tables
from simulated import SMALL
from tracewarehouse.errors import SchemaVersionError

UPGRADE = "stored without op_work, needs tw upgrade"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one run twice: as this release stores it, and without the newest tables."""
    folder = tmp_path_factory.mktemp("added")
    tw.simulate(folder / "run", ranks=2, tensor=2, **SMALL)
    wh = tw.open(folder / "warehouse")
    for run in ("now", "old"):
        wh.ingest(folder / "run", run=run, jobs=1)
    without_tables(wh, "old")
    version = wh.store.newest("old")
    assert version is not None and not version.summary.tables.keys() & set(ADDED)
    return wh.root


def findings(wh: tw.Warehouse, run: str) -> list[dict[str, object]]:
    return [
        {name: value for name, value in row.items() if name not in ("run_id", "evidence")}
        for row in wh.check(run, passed=True).rows()
    ]


WITH_WORK = {"fusible_chain", "low_roofline_hot_ops", "misaligned_gemm", "slow_elementwise"}


def test_check_skips_rules_by_name(stored: Path, only_rules: Callable[..., None]) -> None:
    done = cli_runner.tw("check", "old", "-w", stored)
    assert done.code == 0, done.err
    skipped = [line for line in done.errors if "needs tw upgrade" in line]
    assert skipped == [f"skipped 2 of 2 ranks: {UPGRADE}: {', '.join(sorted(WITH_WORK))}"]
    assert "flight" not in done.err and "snapshot" not in done.err  # an upgrade would not add them
    only_rules(*WITH_WORK)
    assert "needs" not in cli_runner.tw("check", "now", "-w", stored).err


@pytest.mark.deep
def test_all_other_rules_have_the_same_rows(stored: Path) -> None:
    wh = tw.open(stored)
    now = [row for row in findings(wh, "now") if row["rule"] not in WITH_WORK]
    old = findings(wh, "old")
    assert {row["rule"] for row in old} == {row["rule"] for row in now}
    texts = [[str(row).replace("now", "run").replace("old", "run") for row in rows] for rows in (now, old)]
    assert texts[0] == texts[1] and len(old) > len(wh.catalog.rules()) / 2


@pytest.mark.deep
def test_a_check_of_both_runs_skips_the_rules_for_one(stored: Path) -> None:
    found = tw.open(stored).check(["now", "old"], passed=True)
    work = {row["run_id"] for row in found.rows() if row["rule"] == "misaligned_gemm"}
    assert work == {"now"}
    skipped = {each.run_id for each in found.skipped if "needs" in each.reason}
    assert skipped == {"old"}


@pytest.mark.deep
def test_the_report_names_what_is_skipped(stored: Path, tmp_path: Path) -> None:
    pages = {}
    for run in ("now", "old"):
        done = process("report", run, "-w", stored, "-o", tmp_path / f"{run}.html")
        assert done.code == 0, done.err
        pages[run] = (tmp_path / f"{run}.html").read_text(encoding="utf-8")
    sections = {run: re.findall(r'<section[^>]* id="(\w+)"', text) for run, text in pages.items()}
    assert [each for each in sections["now"] if each not in ("modules", "work")] == sections["old"]
    assert f"{UPGRADE.capitalize()}: op_work_summary." in pages["old"]
    modules = "Stored without kernel_modules, modules, op_work, needs tw upgrade: module_summary."
    assert modules in pages["old"]
    assert "needs tw upgrade" not in pages["now"]


@pytest.mark.deep
def test_a_comparison_with_an_old_run_has_the_same_breakdown(stored: Path, tmp_path: Path) -> None:
    done = process("diff", "old", "now", "-w", stored)
    assert done.code == 0, done.err
    assert process("report", "old", "now", "-w", stored, "-o", tmp_path / "both.html").code == 0


def test_analyses_that_only_count_with_the_table_answer_without_it(stored: Path) -> None:
    wh = tw.open(stored)
    notice = "old was stored without op_work: wh.upgrade() rebuilds the newest version of each run"
    for name, column in (("quality", "rule"), ("key_averages", "name")):
        now, old = (wh.select(run).analyze(name) for run in ("now", "old"))
        assert notice in old.notices and notice not in now.notices
        kept = [row[column] for row in now.rows() if row[column] != "over_peak"]
        assert [row[column] for row in old.rows()] == kept and kept
    assert {row["flops"] for row in wh.select("old").key_averages().rows()} == {None}


def test_sql_reads_an_absent_table_as_empty_with_a_notice(stored: Path) -> None:
    wh = tw.open(stored)
    rows = "SELECT run_id, count(*) AS n FROM op_work GROUP BY run_id"
    for query in (wh.query, wh.query):
        both, old = query(rows), wh.select("old").query(rows)
        assert [row["run_id"] for row in both.rows()] == ["now"] and old.rows() == []
        for found in (both, old):
            assert found.notices[0].startswith("old was stored without op_work: wh.upgrade()")
    assert wh.select("old").query("SELECT modules FROM ranks").rows() == [{"modules": True}] * 2
    assert len(wh.select("old").query("SHOW TABLES")) > 50
    with pytest.raises(SchemaVersionError, match=r"old@v[23] does not have op_work@1"):
        wh.select("old").scan("op_work")


def test_naming_such_an_analysis_is_an_error(stored: Path) -> None:
    with pytest.raises(SchemaVersionError, match=r"old@v[23] does not have op_work@1"):
        tw.open(stored).select("old").analyze("mfu")


def test_an_upgrade_builds_the_tables(stored: Path, tmp_path: Path) -> None:
    wh = tw.open(shutil.copytree(stored, tmp_path / "warehouse"))
    wh.upgrade()
    wh = tw.open(wh.root)
    for name in ("low_roofline_hot_ops", "misaligned_gemm", "mfu"):
        old, now = (wh.select(run).analyze(name) for run in ("old", "now"))
        assert not old.skipped and not old.notices
        assert [row | {"run_id": "now"} for row in old.rows()] == now.rows(), name
        assert now.rows(), name


@pytest.mark.deep
def test_after_an_upgrade_no_rule_is_skipped(stored: Path, tmp_path: Path) -> None:
    wh = tw.open(shutil.copytree(stored, tmp_path / "warehouse"))
    wh.upgrade()
    assert findings(tw.open(wh.root), "old") != findings(tw.open(stored), "old")
    assert "needs" not in process("check", "old", "-w", wh.root).err
