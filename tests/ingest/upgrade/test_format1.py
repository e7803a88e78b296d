"""Format-1 warehouses: refused by other commands than `tw upgrade` and `tw verify`, converted, resumed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tracewarehouse as tw
import warehouse_answers as answers
from cli_runner import tw as run_tw
from conftest import ROOT, deep
from format1_names import today
from storage_sources import context
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import SchemaVersionError, TwError
from tracewarehouse.ingest.upgrade.format1 import convert
from tracewarehouse.ingest.upgrade.stored_rank import READ, RebuildRanks, StoredRank, uid_of
from tracewarehouse.storage import Staged
from tracewarehouse.storage.format1 import Format1

WAREHOUSE = ROOT / "tests" / "data" / "warehouse-1"
ANSWERS = ROOT / "tests" / "data" / "warehouse-1-answers"
# A memory timeline has its own table, with columns for the fields of the file.
TIMELINE = "memory_timeline"
# The simulation that `good` comes from.
JOB: dict[str, Any] = {"ranks": 2, "steps": 3, "layers": 1, "hidden": 256, "sequence": 256}
JOB |= {"seed": 7, "stacks": False, "inputs": False}


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tw.Warehouse:
    root = tmp_path_factory.mktemp("converted") / "warehouse"
    shutil.copytree(WAREHOUSE, root)
    assert convert(root, Catalog.load(), "0.2").lines == (
        "good: 2 ranks converted",
        "odd: 4 ranks converted",
        "slow: 2 ranks converted",
        "timeline: 1 rank converted",
        "waits: 1 rank converted",
        "recorded results: 6 carried over",
        "acknowledgements: 1 carried over",
    )
    return tw.Warehouse(root)


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def tables(wh: tw.Warehouse, run: str, *names: str) -> dict[str, Any]:
    """The stored tables of these names; all without names."""
    stored = [table for table in answers.stored_tables(wh) if not names or table.name in names]
    return {table.name: plain(answers.rows_of(wh, run, table)) for table in stored}


@pytest.fixture(scope="module")
def odd(converted: tw.Warehouse) -> dict[str, Any]:
    """Every stored table of the run `odd`."""
    return tables(converted, "odd")


def test_every_stored_table_is_the_same(odd: dict[str, Any]) -> None:
    check_tables(today(answers.read(ANSWERS / "odd.tables.json.gz")), odd)


@pytest.mark.deep
@pytest.mark.parametrize("run", ["good", "slow"])
def test_every_stored_table_of_other_runs_is_the_same(converted: tw.Warehouse, run: str) -> None:
    check_tables(today(answers.read(ANSWERS / f"{run}.tables.json.gz")), tables(converted, run))


def check_tables(before: dict[str, Any], now: dict[str, Any]) -> None:
    """The same columns as before; the sizes of types have new rows."""
    for table, columns in before.items():
        if table == "dtypes":
            known = set(zip(*(now[table][name] for name in columns), strict=True))
            assert known >= set(zip(*columns.values(), strict=True))
        else:
            assert {name: now[table][name] for name in columns} == columns, table


def test_a_timeline_among_the_events_gets_its_own_table(converted: tw.Warehouse) -> None:
    before = answers.read(ANSWERS / "timeline.tables.json.gz")[TIMELINE]
    now = tables(converted, "timeline", TIMELINE, "events")
    assert {name: now[TIMELINE][name] for name in before} == before
    assert not any(now["events"].values())
    (source,) = converted.select("timeline").selected()[0].sources
    assert (source.format, source.format_version) == ("memory_timeline", 1)


def test_runs_are_as_they_were(converted: tw.Warehouse) -> None:
    before = today(answers.read(ANSWERS / "whole.json.gz"))
    now = plain(answers.answer(converted.runs))
    changed = {"version", "bytes", "tool_version", "schema_versions"}
    for name in before["runs"]["rows"].keys() - changed:
        assert now["rows"][name] == before["runs"]["rows"][name], name
    for run, columns in before["ranks"].items():
        ranks = plain(answers.columns(converted.info(run).ranks))
        assert {name: ranks[name] for name in columns} == columns, run


def test_pending_sources_stay_pending(converted: tw.Warehouse) -> None:
    (waiting,) = converted.store.pending_runs()["waits"]
    assert (waiting.source.rank, waiting.expected_ranks) == (0, 2)
    assert waiting.source.fills >= {"events", "steps"}


def test_histories_are_as_they_were(converted: tw.Warehouse) -> None:
    """By run: the removed one has other hardware, which is a separate series."""
    before = answers.read(ANSWERS / "whole.json.gz")["history"]
    for metric, answer in before.items():
        now = plain(answers.answer(lambda metric=metric: converted.history(metric).result))
        for name in answer["rows"].keys() - {"version", "definition", "line", "level"}:
            found, known = (
                dict(zip(rows["run_id"], rows[name], strict=True)) for rows in (now["rows"], answer["rows"])
            )
            assert found == known, (metric, name)


def test_derived_tables_are_kept(converted: tw.Warehouse) -> None:
    (selected,) = converted.select("good").selected()
    assert [rank.facts["critical_path"] for rank in selected.by_rank] == [True, True]
    assert not converted.select("good").run("critical_path_breakdown").abstained


def test_it_is_intact_and_clean_deletes_the_old_files(
    converted: tw.Warehouse, odd: dict[str, Any], tmp_path: Path
) -> None:
    wh = tw.Warehouse(shutil.copytree(converted.root, tmp_path / "warehouse"))
    assert wh.verify() == []
    with pytest.raises(SchemaVersionError, match="format 1"):
        wh.select("good@v1")
    assert wh.clean(-1).files > 50
    assert wh.verify() == []
    assert not [path for path in (wh.root / "_tw" / "units").rglob("*") if path.is_file()]
    assert {path.name for path in (wh.root / "_tw" / "runs" / "odd").iterdir()} == {"v000003.parquet"}
    assert tables(wh, "odd") == odd
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
    """A small warehouse: the pending run, the timeline, and the removed run with its results."""
    shutil.copytree(WAREHOUSE, root)
    for run in ("good", "odd", "slow"):
        for folder in (*root.glob(f"_tw/*/{run}"), *root.glob(f"*/*/{run}")):
            shutil.rmtree(folder, ignore_errors=True)
    return root


def convert_and_die(root: str, step: int) -> None:
    """Converts, and is killed just before change number `step` of the warehouse."""
    done = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in ("os.rename", "os.link", "os.mkdir") and root in str(arguments):
            done += 1
            if done > step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    convert(Path(root), Catalog.load(), "0.2")


@pytest.mark.parametrize("step", [2, 16, 30, 44, 54, *deep(9, 23, 37, 50)])
def test_it_resumes_after_a_kill(tmp_path: Path, step: int) -> None:
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
    assert [each.run for each in wh.selected()] == ["timeline"]
    assert [version.run for version in wh.store.kept()] == ["gone"]
    assert len(wh.store.recorded("step_summary", 1)) == 1
    assert len(wh.store.pending_runs()["waits"]) == 1
    assert len(list((root / "_tw" / "sources").rglob("*.json"))) == 2
    assert wh.select("timeline").query(f"SELECT count(*) AS n FROM {TIMELINE}").rows() == [{"n": 154}]


def test_every_source_has_a_row(converted: tw.Warehouse) -> None:
    sql = "SELECT run_id, rank, source_format, source_part, format_version, status FROM rank_sources"
    rows = converted.query(f"{sql} ORDER BY run_id, rank").rows()
    formats = {row["run_id"]: row["source_format"] for row in rows}
    assert formats == {"good": "kineto", "odd": "kineto", "slow": "kineto", "timeline": "memory_timeline"}
    before = today(answers.read(ANSWERS / "whole.json.gz"))["ranks"]["odd"]["status"]
    assert [row["status"] for row in rows if row["run_id"] == "odd"] == before
    assert {(row["source_part"], row["format_version"]) for row in rows} == {("", 1)}
    found = converted.query("SELECT DISTINCT source_format, header IS NULL AS lost FROM ranks").rows()
    assert {row["source_format"]: row["lost"] for row in found} == {"kineto": False, "memory_timeline": False}


def separate_events_of_rank_1(root: Path) -> Path:
    """Moves the events of rank 1 of `good` to a separate file, as in an unpacked run; returns the file."""
    path = root / "_tw" / "runs" / "good" / "v000002.parquet"
    table = pq.read_table(path)
    rows = table.column("files").to_pylist()
    old = next(file["path"] for file in json.loads(rows[1]) if file["table"] == "events")
    new = old.replace("/000000-", "/000001-")
    shutil.copy(root / old, root / new)
    rows[1] = rows[1].replace(old, new)
    at = table.schema.get_field_index("files")
    pq.write_table(
        table.set_column(at, table.schema.field(at), pa.array(rows, table.schema.field(at).type)), path
    )
    return root / new


def flip_a_byte(path: Path) -> str:
    """Damages the first page of a file; returns its key and the expected message."""
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    return f"{'/'.join(path.parts[-4:])}: checksum differs: the content changed"


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], Any]:
    """A converted warehouse with damaged files: its path, the faults, and the output of `tw upgrade`."""
    root = shutil.copytree(WAREHOUSE, tmp_path_factory.mktemp("damaged") / "warehouse")
    own = separate_events_of_rank_1(root)
    (derived,) = (root / "data" / "critical_path" / "good").iterdir()
    (packed,) = (root / "data" / "events" / "odd").iterdir()
    (waits,) = (root / "data" / "events" / "waits").iterdir()
    files = {"own": own, "derived": derived, "packed": packed, "waits": waits}
    faults = {name: flip_a_byte(path) for name, path in files.items()}
    return root, faults, run_tw("upgrade", "-w", root)


def test_damaged_ranks_do_not_affect_others(damaged: tuple[Path, dict[str, str], Any]) -> None:
    root, faults, said = damaged
    assert said.code == 4
    assert said.out.splitlines() == [
        "good: 1 of 2 ranks converted",
        "odd: 0 of 4 ranks converted",
        "slow: 2 ranks converted",
        "timeline: 1 rank converted",
        "waits: 0 of 1 ranks converted",
        f"run good rank 0: derived tables lost: {faults['derived']}; tw derive rebuilds them",
        "recorded results: 6 carried over",
        "acknowledgements: 1 carried over",
    ]
    lost = [("good", 1, "own"), *(("odd", rank, "packed") for rank in range(4)), ("waits", 0, "waits")]
    old = Format1(WAREHOUSE)
    for (run, rank, file), line in zip(lost, said.errors, strict=True):
        assert line.startswith(f"lost: run {run} rank {rank} is not converted: {faults[file]}; ingest ")
        newest = old.newest(run)
        read = newest.version.sources if newest else [one.source for one in old.pending(run)]
        trace = read[rank]
        assert line.endswith(f"; ingest {trace.facts['source_name']} again (sha256 {trace.digest})")


def test_undamaged_ranks_return_the_same_results(damaged: tuple[Path, dict[str, str], Any]) -> None:
    wh = tw.Warehouse(damaged[0])
    assert {each.run: each.ranks for each in wh.selected()} == {
        "good": (0,),
        "slow": (0, 1),
        "timeline": (0,),
    }
    assert wh.verify() == [] and wh.store.pending_runs() == {}
    before = today(answers.read(ANSWERS / "slow.tables.json.gz"))
    now = tables(wh, "slow")
    check_tables(before, now)
    kept = tables(wh, "good", "events")["events"]
    whole = answers.read(ANSWERS / "good.tables.json.gz")["events"]
    at = [place for place, rank in enumerate(whole["rank"]) if rank == 0]
    assert kept == {name: [cells[place] for place in at] for name, cells in whole.items()}


def test_clean_keeps_files_of_unconverted_ranks(
    damaged: tuple[Path, dict[str, str], Any], tmp_path: Path
) -> None:
    root, faults, _ = damaged
    wh = tw.Warehouse(shutil.copytree(root, tmp_path / "warehouse"))
    files = [wh.root / faults[name].partition(":")[0] for name in ("own", "packed", "waits")]
    results = set((wh.root / "results").glob("*/*/*/*.parquet"))
    assert wh.clean(-1).files > 20
    assert all(path.is_file() for path in files) and wh.verify() == []
    assert len(list((wh.root / "_tw" / "units").rglob("*.json"))) == 6
    # Results of both ranks of `good` do not belong to the remaining one, and are not lost either.
    assert set((wh.root / "results").glob("*/*/*/*.parquet")) == results
    assert wh.store.results_of(wh.store.present()) == {"slow": 2}
    tw.simulate(tmp_path / "good", **JOB, counters=True)
    wh.ingest(tmp_path / "good" / "rank1.json.gz", run="good")
    assert wh.store.results_of(wh.store.present()) == {"good": 2, "slow": 2}
    wh.clean(-1)
    assert [path.is_file() for path in files] == [False, True, True] and wh.verify() == []


def test_clean_deletes_files_of_a_run_that_was_removed_later(
    damaged: tuple[Path, dict[str, str], Any], tmp_path: Path
) -> None:
    wh = tw.Warehouse(shutil.copytree(damaged[0], tmp_path / "warehouse"))
    wh.remove("good")
    (record,) = (wh.root / "_tw" / "unconverted" / "good").iterdir()
    written = record.read_bytes()
    record.write_bytes(written.replace(b"rank1", b"rank7"))
    before = list((wh.root / "data").glob("*/good/*"))
    assert wh.clean(-1).skipped == ("good",) and before
    assert list((wh.root / "data").glob("*/good/*")) == before
    record.write_bytes(written)
    wh.clean(-1)
    assert not list((wh.root / "data").glob("*/good/*"))
    assert [path.name for path in (wh.root / "_tw" / "unconverted").iterdir()] == ["odd", "waits"]


def test_another_attempt_uses_a_restored_file(tmp_path: Path) -> None:
    root = small(tmp_path / "warehouse")
    (events,) = (root / "data" / "events" / "waits").iterdir()
    whole = events.read_bytes()
    flip_a_byte(events)
    child = context().Process(target=convert_and_die, args=(str(root), 30))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL and list((root / "_tw" / "unconverted").rglob("*.json"))
    events.write_bytes(whole)
    assert convert(root, Catalog.load(), "0.2").unconverted == ()
    assert len(tw.Warehouse(root).store.pending_runs()["waits"]) == 1
    assert not list((root / "_tw" / "unconverted").rglob("*.json"))


def failing(error: Exception) -> Callable[..., Staged]:
    """The build of a stored rank, which fails for rank 2 of `odd`."""
    build = StoredRank.build

    def fails(self: StoredRank, *given: Any) -> Staged:
        if (self.source.run, self.source.rank) == ("odd", 2):
            raise error
        return build(self, *given)

    return fails


def test_a_rank_that_cannot_be_built_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(WAREHOUSE, tmp_path / "warehouse"))
    monkeypatch.setattr(StoredRank, "build", failing(ValueError("no such thing")))
    report = convert(root, Catalog.load(), "0.2")
    assert "odd: 3 of 4 ranks converted" in report.lines and report.exit_code == 4
    (lost,) = report.unconverted
    assert (lost.run, lost.rank, lost.why) == ("odd", 2, "ValueError: no such thing")
    wh = tw.Warehouse(root)
    assert wh.select("odd").selected()[0].ranks == (0, 1, 3) and wh.verify() == []


def test_a_full_disk_loses_no_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(shutil.copytree(WAREHOUSE, tmp_path / "warehouse"))
    with monkeypatch.context() as patch:
        patch.setattr(StoredRank, "build", failing(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(TwError, match=r"run odd rank 0, 1, 2, 3: .*no space left"):
            convert(root, Catalog.load(), "0.2")
    assert Format1.is_at(root) and not (root / "_tw" / "unconverted").exists()
    assert convert(root, Catalog.load(), "0.2").exit_code == 0


def test_a_rank_keeps_its_time_unit(tmp_path: Path) -> None:
    wh = tw.open(tmp_path / "warehouse")
    trace = ROOT / "tests" / "data" / "torch-cpu" / "threads.json.gz"
    wh.ingest(trace, run="in-ns", time_unit="ns")
    (source,) = wh.selected()[0].sources
    files = {
        table: tuple(wh.store.path(file.path) for file in source.files if file.table == table)
        for table in READ
    }
    header = wh.store.headers([source])[source.name]
    task = RebuildRanks((StoredRank(source, header, files),), tmp_path / "staging", Catalog.load().folder)
    (staged,) = task.run(lambda *_: None)
    assert staged.facts["time_unit"] == "ns"
    assert staged.uid == source.uid != uid_of(Catalog.load(), replace(source, facts={}))
