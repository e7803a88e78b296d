"""Runs stored by an earlier release are readable unchanged, and only `tw upgrade` rebuilds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tracewarehouse as tw
from conftest import ROOT, deep
from ingesting import files_under
from later_release import edit, newer_sql
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import SchemaVersionError
from tracewarehouse.ingest import rebuild as upgrading
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

TRACES = ROOT / "tests" / "data" / "first-steps"
REBUILT = "wh.upgrade() rebuilds the newest version of each run"
NULLS = "SELECT run_id, count(*) AS kernels, count(wave) AS waves FROM kernels GROUP BY ALL ORDER BY ALL"


def ingest(wh: Warehouse, run: str, *ranks: int) -> None:
    report = wh.ingest(*(TRACES / f"rank{rank}.json.gz" for rank in ranks), run=run, jobs=1)
    assert {file.state for file in report.files} == {"intact"}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with two runs and recorded results; read-only."""
    wh = tw.open(tmp_path_factory.mktemp("old") / "warehouse")
    ingest(wh, "a", 0, 1)
    ingest(wh, "b", 0, 1)
    wh.record(analyses=["step_summary", "kernel_summary"])
    return wh.root


@pytest.fixture
def house(stored: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(stored, tmp_path / "warehouse"))


@pytest.fixture
def sql(tmp_path: Path) -> Path:
    return newer_sql(tmp_path)


@pytest.fixture
def later(house: Path, sql: Path) -> Warehouse:
    """The warehouse as a later release opens it: with kernels@2."""
    return Warehouse(house, catalog=Catalog.load(sql))


@pytest.mark.deep
def test_every_analysis_reads_stored_tables_and_writes_nothing(stored: Path, sql: Path) -> None:
    before = Warehouse(stored, read_only=True)
    now = Warehouse(stored, catalog=Catalog.load(sql), read_only=True)
    files = files_under(stored)
    for contract in before.catalog.analyses():
        old, new = before.analyze(contract.name), now.analyze(contract.name)
        assert new.table.equals(old.table), contract.name
        assert (new.notices, new.skipped) == (old.notices, old.skipped)
        assert new.provenance == old.provenance
    now.diff("a", "b").changes()
    now.check()
    now.report("a").html()
    "".join(now.export_trace("a", rank=0).chunks)
    assert files_under(stored) == files


COMMANDS = [
    ["query", NULLS],
    *deep(
        (["show", "kernel_summary"],),
        (["history", "step_time"],),
        (["shell", "--run", "a", "--", "-c", "FROM kernels LIMIT 1"],),
    ),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_later_release_writes_nothing(stored: Path, sql: Path, command: list[str]) -> None:
    (sql.parent / "src").symlink_to(ROOT / "src")
    files = files_under(stored)
    done = subprocess.run(
        [sys.executable, "-m", "tracewarehouse", command[0], "-w", str(stored), *command[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(sql.parent / "src")},
    )
    assert done.returncode == 0, done.stderr
    assert files_under(stored) == files


def test_a_history_remains_one_series(later: Warehouse) -> None:
    ingest(later, "c", 0, 1)
    assert later.store.newest("c").summary.tables["kernels"] == (2,)  # type: ignore[union-attr]
    later.record(analyses=["step_summary", "kernel_summary"])
    for metric in ("step_time", "kernel_summary.sum_ns"):
        (series,) = later.history(metric).series
        assert [point.run for point in series.points] == ["a", "b", "c"]


def test_a_consumer_of_the_new_column_excludes_old_runs(later: Warehouse) -> None:
    with pytest.raises(SchemaVersionError, match="a@v1, b@v1 do not have kernels@2") as none:
        later.analyze("waves")
    assert none.value.hint == REBUILT
    ingest(later, "c", 0)
    found = later.analyze("waves")
    assert {row["run_id"] for row in found.rows()} == {"c"}
    assert found.notices[0] == f"excluded a, b, stored without kernels@2: {REBUILT}"
    assert found.provenance.runs == ("c@v1",)


def test_ranks_of_one_run_are_not_mixed(later: Warehouse) -> None:
    ingest(tw.open(later.root), "mixed", 0)
    ingest(later, "mixed", 1)
    with pytest.raises(SchemaVersionError, match="mixed@v2 does not have kernels@2"):
        later.select("mixed").analyze("waves")
    assert len(later.select("mixed", 1).analyze("waves")) == 1
    assert {row["rank"] for row in later.select("mixed").analyze("kernel_summary").rows()} == {0, 1}


def test_the_column_is_null_in_user_sql(later: Warehouse) -> None:
    ingest(later, "c", 0)
    found = later.query(NULLS)
    assert [(row["run_id"], row["waves"]) for row in found.rows()] == [("a", 0), ("b", 0), ("c", 0)]
    assert all(row["kernels"] for row in found.rows())
    assert found.notices[0] == f"kernels.wave is null in a, b, stored without it: {REBUILT}"
    assert not any("wave" in each for each in later.query("SELECT count(*) FROM kernels").notices)
    assert later.scan("kernels").collect()["wave"].null_count() == sum(row["kernels"] for row in found.rows())


def test_the_column_is_null_in_the_shell(later: Warehouse) -> None:
    from tracewarehouse.duck import engine

    ingest(later, "c", 0)
    with later.shell_file() as path, engine.connect(database=path, read_only=True) as con:
        assert len(con.execute(NULLS).fetchall()) == 3
        assert con.execute("SELECT count(DISTINCT run_id) FROM kernel_summary").fetchone() == (3,)


def test_upgrade_rebuilds_only_what_is_outdated(later: Warehouse) -> None:
    before = later.store.newest("a")
    assert before is not None
    assert later.upgrade().lines == ("kernels@2 was rebuilt for a", "kernels@2 was rebuilt for b")
    after = later.store.newest("a")
    assert after is not None and after.summary.tables == {**before.summary.tables, "kernels": (2,)}
    for table in before.summary.tables.keys() - {"kernels"}:
        assert after.scan_plan(table, 1) == before.scan_plan(table, 1)
    assert len(later.analyze("waves")) == 4 and later.verify() == []
    assert later.upgrade().lines == ()
    assert len(tw.open(later.root).select("a@v1").analyze("kernel_summary")) > 0


@pytest.mark.deep
def test_an_upgrade_resumes_after_a_kill(later: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Store, "publish", killed)
        later.upgrade()
    built: list[object] = []
    build = upgrading.built
    monkeypatch.setattr(upgrading, "built", lambda tasks: built.extend(tasks) or build(tasks))
    assert len(later.upgrade().lines) == 2
    assert {task.source.run for task in built} == {"b"}  # type: ignore[attr-defined]
    assert len(later.analyze("waves")) == 4 and later.verify() == []


@pytest.fixture
def redefined(house: Path, tmp_path: Path) -> Warehouse:
    """The warehouse as opened by a release with another definition of `steps`."""
    sql = Path(shutil.copytree(ROOT / "sql", tmp_path / "sql"))
    edit(sql / "tables" / "steps.v1.sql", "definition = 1", "definition = 2")
    return Warehouse(house, catalog=Catalog.load(sql))


def test_rows_of_an_earlier_definition_have_a_notice(redefined: Warehouse) -> None:
    notice = f"steps@1 of a, b was built by an earlier definition: {REBUILT}"
    assert redefined.analyze("step_summary").notices[0] == notice
    assert redefined.query("SELECT count(*) FROM steps").notices[0] == notice
    assert notice not in redefined.analyze("kernel_summary").notices
    failed = redefined.record("a", analyses="step_summary").failed
    assert [each.reason for each in failed] == [notice.replace("a, b", "a")]


@pytest.mark.deep
def test_upgrade_rebuilds_and_records_redefined_tables_again(redefined: Warehouse) -> None:
    assert redefined.upgrade().lines == (
        "steps@1 was rebuilt for a",
        "steps@1 was rebuilt for b",
        "a: recorded 1 result again",
        "b: recorded 1 result again",
    )
    version = redefined.store.newest("a")
    assert version is not None
    assert {source.definitions["steps"] for source in version.sources} == {2}
    assert len(version.scan_plan("steps", 1)) == 2 and redefined.verify() == []  # a file for each rank
    assert redefined.upgrade().lines == ()
    (series,) = redefined.history("step_time").series
    assert [point.number for point in series.points] == [2, 2]


@pytest.mark.deep
def test_a_history_continues_if_another_definition_has_the_same_rows(redefined: Warehouse) -> None:
    redefined.remove("a", keep_results=True)
    redefined.upgrade()
    (series,) = redefined.history("step_time").series
    assert [point.name for point in series.points] == ["a@v1", "b"]
