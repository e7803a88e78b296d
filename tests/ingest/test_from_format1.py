"""A warehouse of format 1: refused but by `tw upgrade` and `tw verify`, converted, resumed after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import tracewarehouse as tw
import warehouse_answers as answers
from conftest import ROOT
from front_door import tw as run_tw
from storage_sources import context
from tracewarehouse.catalog import Catalog
from tracewarehouse.errors import SchemaVersionError
from tracewarehouse.ingest.from_format1 import convert

WAREHOUSE = ROOT / "tests" / "data" / "warehouse-1"
ANSWERS = ROOT / "tests" / "data" / "warehouse-1-answers"
# A memory timeline stands in a table of its own, with columns for what the file says.
TIMELINE = "memory_timeline"


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    root = tmp_path_factory.mktemp("converted") / "warehouse"
    shutil.copytree(WAREHOUSE, root)
    assert convert(root, Catalog.load(), "0.2") == (
        "good: 2 ranks converted",
        "odd: 4 ranks converted",
        "slow: 2 ranks converted",
        "timeline: 1 rank converted",
        "waits: 1 rank converted",
    )
    return tw.Warehouse(root)


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("run", ["good", "odd", "slow"])
def test_every_stored_table_is_the_same(converted: tw.Warehouse, run: str) -> None:
    before = answers.read(ANSWERS / f"{run}.tables.json.gz")
    now = plain(answers.tables(converted, run))
    for table, columns in before.items():
        assert {name: now[table][name] for name in columns} == columns, table


def test_a_timeline_that_hid_among_the_events_has_its_own_table(converted: tw.Warehouse) -> None:
    before = answers.read(ANSWERS / "timeline.tables.json.gz")[TIMELINE]
    now = plain(answers.tables(converted, "timeline"))
    assert {name: now[TIMELINE][name] for name in before} == before
    assert not any(now["events"].values())
    (source,) = converted.select("timeline").chosen()[0].sources
    assert (source.format, source.format_version) == ("memory_timeline", 1)


def test_runs_are_as_they_were(converted: tw.Warehouse) -> None:
    before = answers.read(ANSWERS / "whole.json.gz")
    now = plain(answers.told(converted.runs))
    changed = {"version", "bytes", "tool_version", "schema_versions"}
    for name in before["runs"]["rows"].keys() - changed:
        assert now["rows"][name] == before["runs"]["rows"][name], name
    for run, columns in before["ranks"].items():
        ranks = plain(answers.columns(converted.info(run).ranks))
        assert {name: ranks[name] for name in columns} == columns, run


def test_what_waited_waits(converted: tw.Warehouse) -> None:
    (waiting,) = converted.store.waiting_runs()["waits"]
    assert (waiting.source.rank, waiting.expected_ranks) == (0, 2)
    assert waiting.source.fills >= {"events", "steps"}


def test_histories_are_as_they_were(converted: tw.Warehouse) -> None:
    before = answers.read(ANSWERS / "whole.json.gz")["history"]
    for metric, answer in before.items():
        now = plain(answers.told(lambda metric=metric: converted.history(metric).result))
        for name in answer["rows"].keys() - {"version"}:
            assert now["rows"][name] == answer["rows"][name], (metric, name)


def test_what_was_derived_is_kept(converted: tw.Warehouse) -> None:
    (chosen,) = converted.select("good").chosen()
    assert [rank.facts["critical_path"] for rank in chosen.by_rank] == [True, True]
    assert not converted.select("good").run("critical_path_breakdown").abstained


def test_it_is_whole_and_clean_takes_what_is_left_of_the_old(converted: tw.Warehouse, tmp_path: Path) -> None:
    wh = tw.Warehouse(shutil.copytree(converted.root, tmp_path / "warehouse"))
    assert wh.verify() == []
    with pytest.raises(SchemaVersionError, match="format 1"):
        wh.select("good@v1")
    before = plain(answers.tables(wh, "odd"))
    assert wh.clean(-1).files > 50
    assert wh.verify() == []
    assert not [path for path in (wh.root / "_tw" / "units").rglob("*") if path.is_file()]
    assert {path.name for path in (wh.root / "_tw" / "runs" / "odd").iterdir()} == {"v000003.parquet"}
    assert plain(answers.tables(wh, "odd")) == before
    assert len(wh.store.recorded("step_summary", 1)) == 3
    assert len(list((wh.root / "results").rglob("*.parquet"))) == 6


def test_all_but_two_commands_refuse_and_name_the_remedy(tmp_path: Path) -> None:
    root = shutil.copytree(WAREHOUSE, tmp_path / "warehouse")
    trace = ROOT / "tests" / "data" / "first-steps"
    for words in (["runs"], ["info", "good"], ["show", "kernel_summary"], ["ingest", trace], ["clean"],
                  ["remove", "good"], ["query", "SELECT 1"], ["refresh"], ["record", "--all"]):  # fmt: skip
        said = run_tw(*words, "-w", root)
        assert said.code == 1, words
        assert "warehouse of format 1" in said.err and "tw upgrade" in said.err, words
    said = run_tw("verify", "-w", root)
    assert said.code == 0 and "format 1" in said.out and "tw upgrade" in said.out
    file = next((root / "data" / "kernels" / "good").iterdir())
    file.write_bytes(file.read_bytes()[:-1])
    assert run_tw("verify", "-w", root).code == 1


def small(root: Path) -> Path:
    """The run that waits, the timeline, and the removed run with its results: soon converted."""
    shutil.copytree(WAREHOUSE, root)
    for run in ("good", "odd", "slow"):
        for folder in (*root.glob(f"_tw/*/{run}"), *root.glob(f"*/*/{run}")):
            shutil.rmtree(folder, ignore_errors=True)
    return root


def convert_and_die(root: str, step: int) -> None:
    """Converts, and is killed just before its `step`-th change of the warehouse."""
    done = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in ("os.rename", "os.link", "os.mkdir") and root in str(arguments):
            done += 1
            if done > step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    convert(Path(root), Catalog.load(), "0.2")


@pytest.mark.parametrize("step", [2, 9, 16, 23, 30, 37, 44, 50, 54])
def test_it_goes_on_after_a_kill(tmp_path: Path, step: int) -> None:
    root = small(tmp_path / "warehouse")
    child = context().Process(target=convert_and_die, args=(str(root), step))
    child.start()
    child.join(120)
    assert child.exitcode in (-signal.SIGKILL, 0)
    if child.exitcode:
        with pytest.raises(SchemaVersionError, match="format 1"):
            tw.Warehouse(root).runs()
        committed = set((root / "_tw").glob("sources/*/*"))
        convert(root, Catalog.load(), "0.2")
        assert committed <= set((root / "_tw").glob("sources/*/*"))
    wh = tw.Warehouse(root)
    assert wh.verify() == []
    assert [each.run for each in wh.chosen()] == ["timeline"]
    assert [version.run for version in wh.store.kept()] == ["gone"]
    assert len(wh.store.recorded("step_summary", 1)) == 1
    assert len(wh.store.waiting_runs()["waits"]) == 1
    assert len(list((root / "_tw" / "sources").rglob("*.json"))) == 2
    assert wh.select("timeline").query(f"SELECT count(*) AS n FROM {TIMELINE}").rows() == [{"n": 154}]


def test_every_source_has_a_row(converted: tw.Warehouse) -> None:
    sql = "SELECT run_id, rank, source_format, source_part, format_version, status FROM rank_sources"
    rows = converted.query(f"{sql} ORDER BY run_id, rank").rows()
    formats = {row["run_id"]: row["source_format"] for row in rows}
    assert formats == {"good": "kineto", "odd": "kineto", "slow": "kineto", "timeline": "memory_timeline"}
    before = answers.read(ANSWERS / "whole.json.gz")["ranks"]["odd"]["status"]
    assert [row["status"] for row in rows if row["run_id"] == "odd"] == before
    assert {(row["source_part"], row["format_version"]) for row in rows} == {("", 1)}
    found = converted.query("SELECT DISTINCT source_format, header IS NULL AS lost FROM ranks").rows()
    assert {row["source_format"]: row["lost"] for row in found} == {"kineto": False, "memory_timeline": False}
