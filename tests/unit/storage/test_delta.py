"""Delta tables, in place or copies, have the rows of each run exactly once, also after kills and races."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tracewarehouse
from cli_runner import TW, environment, process, tw
from object_store import BUCKET, Proxy
from tracewarehouse.errors import ParamError, WarehouseError
from tracewarehouse.formats.redact.rules import POLICY_FILE, policy_of
from tracewarehouse.ingest.secrets import SecretRemoval
from tracewarehouse.storage.delta import RUNS, DeltaLog, Snapshot, Target, added, tables

deltalake = pytest.importorskip("deltalake")

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"
HERE = Path(__file__)


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one run of four ranks and Delta logs; read-only."""
    warehouse = tmp_path_factory.mktemp("ingested") / "warehouse"
    wh = tracewarehouse.open(warehouse)
    wh.ingest(FIRST_STEPS, run="one")
    wh.export_delta()
    return warehouse


@pytest.fixture
def warehouse(ingested: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(ingested, tmp_path / "warehouse"))


def rows_of(table: Any, names: Sequence[str]) -> Counter[str]:
    """The rows of an Arrow table as texts, whatever the types of texts and the order of maps."""

    def plain(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], tuple):
            return sorted(value)
        return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value

    return Counter(str([plain(row[name]) for name in names]) for row in table.select(names).to_pylist())


def differences(warehouse: Path | str, lake: Path | str = "") -> list[str]:
    """The tables whose rows are not those of the warehouse, as Delta tables in place, or in a lake."""
    wh = tracewarehouse.open(warehouse)
    found = []
    for name in tables(wh.catalog):
        table = deltalake.DeltaTable(f"{lake}/{name}" if lake else f"{warehouse}/data/{name}")
        read = table.to_pyarrow_table()
        stored = wh.query(f"SELECT * FROM {name}", limits=None).table
        lacking = {"args"} if name == "events" and not lake else set()
        assert set(stored.column_names) - set(read.column_names) == lacking, name
        names = [one for one in stored.column_names if one not in lacking]
        if rows_of(read, names) != rows_of(stored, names):
            found.append(f"{name}: {read.num_rows} rows, not {stored.num_rows}")
    return found


def registered(warehouse: Path) -> dict[str, int]:
    """Run → version, of the runs in the Delta table `runs`; each has exactly the files of that version."""
    wh = tracewarehouse.open(warehouse)
    rows = deltalake.DeltaTable(f"{warehouse}/data/runs").to_pyarrow_table().to_pylist()
    found = {row["run_id"]: row["version"] for row in rows}
    assert len(found) == len(rows)
    for name, table in tables(wh.catalog).items():
        held = DeltaLog(wh.store.objects, f"data/{name}").read().files if table.is_stored else {}
        for run, number in found.items():
            paths = {f"data/{name}/{path}" for path in held.get(run, {}) if "/v-" not in path}
            wanted = {path for path in wh.store.get(run, number).paths if path.startswith(f"data/{name}/")}
            assert paths == wanted or table.is_built, (run, number, name)
    return found


def test_the_logs_name_the_stored_files_with_statistics(warehouse: Path) -> None:
    wh = tracewarehouse.open(warehouse)
    assert differences(warehouse) == []
    assert registered(warehouse) == {"one": 1}
    added = deltalake.DeltaTable(f"{warehouse}/data/kernels").get_add_actions(flatten=True)
    actions = pa.table(added).to_pydict()
    (file,) = wh.files("one", "kernels").rows()
    assert (actions["path"], actions["size_bytes"]) == ([file["key"].split("/", 2)[2]], [file["bytes"]])
    assert (actions["num_records"], actions["min.run_id"]) == ([file["rows"]], ["one"])
    assert (actions["min.rank"], actions["max.rank"]) == ([0], [3])
    kernels = pl.scan_delta(f"{warehouse}/data/kernels").filter(pl.col("rank") == 2)
    total = wh.query("SELECT sum(dur_ns)::BIGINT AS total FROM kernels WHERE rank = 2").rows()[0]["total"]
    assert kernels.select(pl.col("dur_ns").sum()).collect().item() == total
    for name in tables(wh.catalog):
        rows = wh.query(f"SELECT count(*) AS n FROM {name}").rows()[0]["n"]
        read = pl.scan_delta(f"{warehouse}/data/{name}").select(pl.len()).collect().item()
        assert read == rows, name
    # A column of JSON is text for pyarrow, and binary for the reader of Polars.
    events = pl.read_delta(f"{warehouse}/data/events", use_pyarrow=True)
    assert events.schema["shapes"] == pl.String
    assert [each.written for each in wh.export_delta()] == []
    assert tw("export", "delta", "-w", warehouse).out == "nothing to export\n"


def test_publishing_commands_keep_the_logs_up(warehouse: Path, tmp_path: Path) -> None:
    wh = tracewarehouse.open(warehouse)
    wh.ingest(FIRST_STEPS, run="two")
    assert (differences(warehouse), registered(warehouse)) == ([], {"one": 1, "two": 1})
    wh.label("two", {"team": "a"})
    assert (differences(warehouse), registered(warehouse)) == ([], {"one": 1, "two": 2})
    kernels = deltalake.DeltaTable(f"{warehouse}/data/kernels")
    assert kernels.transaction_version(f"tw:{wh.store.id}:two") == 1, "labels do not change the kernels"
    # A file cannot be registered for some of its ranks: it is compacted.
    wh.ingest(FIRST_STEPS / "rank1.json.gz", run="one", rank=0, replace=True)
    assert registered(warehouse)["one"] == 3
    assert differences(warehouse) == []
    wh.compact("one")
    assert (differences(warehouse), registered(warehouse)["one"]) == ([], 4)
    wh.derive("critical_path", "one")
    assert differences(warehouse) == []
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ntables = ["events", "flows"]\nolder_than = "0d"\nkeep = { every = 2 }\n')
    wh.expire(policy)
    assert differences(warehouse) == []
    registered(warehouse)
    wh.remove("two")  # expired and compacted in v3 and v4
    assert (differences(warehouse), registered(warehouse).keys()) == ([], {"one"})
    removed = deltalake.DeltaTable(f"{warehouse}/data/kernels")
    assert removed.transaction_version(f"tw:{wh.store.id}:two") == 5
    assert removed.vacuum(full=True, dry_run=True) == [], "the retention of the table is long"
    assert wh.verify() == []
    logs = len(list(warehouse.glob("data/*/_delta_log/*.json")))
    assert wh.clean(-1, keep_versions_s=-1).files > 0
    assert (differences(warehouse), wh.verify()) == ([], [])
    assert len(list(warehouse.glob("data/*/_delta_log/*.json"))) >= logs
    # Of copies, only what the logs name is left, and that of the version before the clean.
    assert len(list(warehouse.glob("data/runs/*/v-*.parquet"))) <= 2
    wh.ingest(FIRST_STEPS, run="two")
    assert differences(warehouse) == []


def recorded(warehouse: Path | str) -> dict[str, set[str]]:
    """The runs in each Delta table of recorded results, whose rows are those of the analysis now."""
    wh = tracewarehouse.open(warehouse)
    found = {}
    for name in ("kernel_summary", "stuck_collective", "mfu_run"):
        read = deltalake.DeltaTable(f"{warehouse}/results/{name}@1").to_pyarrow_table()
        found[name] = set(read.column("run_id").to_pylist())
        stored = wh.select(sorted(found[name])).analyze(name).table if found[name] else read
        assert rows_of(read, stored.column_names) == rows_of(stored, stored.column_names)
    return found


def over_runs(warehouse: Path | str) -> set[str]:
    """The worst runs in the Delta table of an analysis over runs."""
    read = deltalake.DeltaTable(f"{warehouse}/data/kernel_fleet").to_pyarrow_table()
    return set(read.column("worst_run").to_pylist())


def test_recorded_results_are_tables_of_the_newest_versions(warehouse: Path) -> None:
    wh = tracewarehouse.open(warehouse)
    names = ["kernel_summary", "stuck_collective", "mfu_run"]
    assert wh.record("one", analyses=names).written == 3
    assert (recorded(warehouse)["kernel_summary"], over_runs(warehouse)) == ({"one"}, {"one"})
    wh.ingest(FIRST_STEPS, run="two", labels={"model": "other"})
    assert recorded(warehouse)["kernel_summary"] == {"one"}
    wh.record("two", analyses=names[:1])
    assert (recorded(warehouse)["kernel_summary"], over_runs(warehouse)) == ({"one", "two"}, {"one", "two"})
    wh.ingest(FIRST_STEPS / "rank1.json.gz", run="one", rank=0, replace=True)
    assert recorded(warehouse) == {"kernel_summary": {"two"}, "stuck_collective": set(), "mfu_run": set()}
    wh.label("two", {"team": "a"})
    assert recorded(warehouse)["kernel_summary"] == {"two"}
    wh.clean(-1, keep_versions_s=-1)
    wh.remove("two")
    assert recorded(warehouse)["kernel_summary"] == set()
    wh.clean(-1, keep_versions_s=-1)
    assert over_runs(warehouse) == {"one", "two"}, "of the last record"
    wh.record(analyses=names)
    assert (recorded(warehouse)["kernel_summary"], over_runs(warehouse)) == ({"one"}, {"one"})
    assert (wh.verify(), differences(warehouse)) == ([], [])


def test_the_next_record_completes_a_killed_one(warehouse: Path) -> None:
    given = ["record", "--all", "--analysis", "kernel_summary", "-w", str(warehouse)]
    done = subprocess.run([sys.executable, "-c", KILLED, "1", *given], env=environment(), check=False)
    assert done.returncode == -signal.SIGKILL
    assert (over_runs(warehouse), list(warehouse.glob("results/*@1/_delta_log"))) == (set(), [])
    wh = tracewarehouse.open(warehouse)
    assert wh.record(analyses=["kernel_summary", "stuck_collective", "mfu_run"]).present == 1
    assert (recorded(warehouse)["kernel_summary"], over_runs(warehouse)) == ({"one"}, {"one"})


def test_a_checkpoint_replaces_the_commits_before_it(warehouse: Path) -> None:
    wh = tracewarehouse.open(warehouse)
    for at in range(25):
        wh.label("one", {"turn": str(at)})
    log = warehouse / "data/runs/_delta_log"
    number = json.loads((log / "_last_checkpoint").read_text())["version"]
    assert number == 19
    for at in range(1, number):  # the first one says that there is a log
        (log / f"{at:020d}.json").unlink()
    assert (differences(warehouse), registered(warehouse)) == ([], {"one": 26})
    assert deltalake.DeltaTable(str(log.parent)).transaction_version(f"tw:{wh.store.id}:one") == 26
    assert pl.read_delta(str(log.parent), use_pyarrow=True).height == 1
    wh.remove("one")
    assert (differences(warehouse), registered(warehouse)) == ([], {})


def test_a_warehouse_without_logs_gets_none(ingested: Path, tmp_path: Path) -> None:
    wh = tracewarehouse.open(tmp_path / "warehouse")
    wh.ingest(FIRST_STEPS, run="one")
    wh.label("one", {"a": "b"})
    wh.clean(-1)
    assert list(tmp_path.rglob("_delta_log")) == []
    with pytest.raises(ParamError, match="in place"):
        wh.export_delta(tables=["kernels"])
    with pytest.raises(ParamError, match="not a run name"):
        wh.ingest(FIRST_STEPS, run="_delta_log")


# Ends the process before its n-th commit to a log.
KILLED = """
import os, signal, sys
from tracewarehouse.storage.objects import LocalObjects
left, put = [int(sys.argv.pop(1))], LocalObjects.put_if_absent

def killed(self, key, data):
    left[0] -= "_delta_log" in key
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(self, key, data)

LocalObjects.put_if_absent = killed
from tracewarehouse.cli import main
main()
"""


def killed(number: int, *command: str | Path) -> None:
    """A command that is killed before its n-th commit to a log."""
    run = [sys.executable, "-c", KILLED, str(number), *map(str, command)]
    done = subprocess.run(run, env=environment({}), capture_output=True, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr


@pytest.mark.parametrize("number", [1, 2, 9, 17])
def test_the_next_command_completes_a_killed_one(warehouse: Path, number: int) -> None:
    again = ("--run", "one", "--rank", "0", "--replace", "-w", warehouse)
    killed(number, "ingest", FIRST_STEPS / f"rank{1 + number % 3}.json.gz", *again)
    before = registered(warehouse)
    assert before.get("one") in (None, 1, 3), "the row goes before the files change"
    wh = tracewarehouse.open(warehouse)
    wh.ingest(FIRST_STEPS, run="two")
    assert differences(warehouse) == []
    killed(number, "remove", "one", "-w", warehouse)
    registered(warehouse)
    wh.clean(-1, keep_versions_s=-1)
    assert (differences(warehouse), set(registered(warehouse))) == ([], {"two"})


def test_a_call_that_another_overtook_writes_no_row() -> None:
    """The other one began with version 3, and was killed before it changed the other tables."""
    row = added("one/v-a.parquet", 1, 1, "one")
    first, later = (Target("one", "app", number, lambda _: {"one/v-a.parquet": row}) for number in (2, 3))
    state = Snapshot()
    for action in first.changes(RUNS, state):
        state.apply(action)
    assert (list(state.files["one"]), state.version("app")) == (["one/v-a.parquet"], 2)
    for action in later.begin(state):
        state.apply(action)
    assert state.files["one"] == {}
    assert (first.changes(RUNS, state), first.begin(state), later.begin(state)) == ([], [], [])
    assert [*later.changes(RUNS, state)[0]] == ["add"]


def test_a_purge_leaves_no_former_name_in_logs(warehouse: Path) -> None:
    wh = tracewarehouse.open(warehouse)
    wh.ingest(FIRST_STEPS, run="two")
    wh.remove("one")
    SecretRemoval(wh.store, wh.catalog, policy_of(wh.store.folder_with(POLICY_FILE))).purge(["two"], ["one"])
    assert registered(warehouse) == {"two": 1}
    assert differences(warehouse) == []
    assert [path for path in warehouse.rglob("*.json") if '"one' in path.read_text()] == []


@pytest.mark.deep
def test_kills_leave_no_run_without_its_files(warehouse: Path) -> None:
    chance = random.Random(7)
    for at in range(60):
        run = f"run{at % 5}"
        command = chance.choice(("ingest", "replace", "label", "remove", "compact"))
        if command in ("ingest", "replace"):
            rank = chance.randrange(4)
            killed(
                chance.randrange(1, 40),
                *(
                    "ingest",
                    FIRST_STEPS / f"rank{chance.randrange(4)}.json.gz",
                    "--run",
                    run,
                    "--rank",
                    str(rank),
                ),
                *("--replace", "-w", warehouse),
            )
        elif run in tracewarehouse.open(warehouse).store.runs():
            rest = {"label": ("x=y",), "remove": (), "compact": ()}[command]
            killed(chance.randrange(1, 30), command, run, *rest, "-w", warehouse)
        registered(warehouse)
    tracewarehouse.open(warehouse).label("one", {"end": "x"})
    assert differences(warehouse) == []


def test_two_writers_at_once(warehouse: Path) -> None:
    commands = [
        ("ingest", FIRST_STEPS, "--run", "two", "-w", warehouse),
        ("ingest", FIRST_STEPS / "rank2.json.gz", "--run", "one", "--rank", "4", "-w", warehouse),
        ("label", "one", "a=b", "-w", warehouse),
    ]
    started = [_start({}, command) for command in commands]
    assert [each.wait(240) for each in started] == [0, 0, 0]
    assert differences(warehouse) == []
    assert registered(warehouse) == {"one": 3, "two": 1}


def _start(variables: dict[str, str], command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*TW, *map(str, command)], env=environment(variables), stdout=subprocess.DEVNULL)


def remote_differences(s3: Proxy, *places: str) -> list[str]:
    """In another process: deltalake blocks the threads of the server in this one while it waits."""
    code = (
        "import sys, json; from test_delta import differences; print(json.dumps(differences(*sys.argv[1:])))"
    )
    env = environment({**s3.environment, "AWS_ALLOW_HTTP": "true"})
    env["PYTHONPATH"] += f":{HERE.parent}:{HERE.parents[2]}:{HERE.parents[2] / 'support'}"
    done = subprocess.run([sys.executable, "-c", code, *places], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.deep
def test_tables_in_an_object_store(s3: Proxy, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/in-place"

    def run(*command: str | Path) -> str:
        done = process(*command, "-w", url, env=s3.environment)
        assert done.code == 0, done.err
        return done.out

    run("ingest", FIRST_STEPS, "--run", "one")
    looked = [each for each in s3.requests if "_delta_log" in each.path]
    assert [each.kind for each in looked] == ["HEAD"], "one look for logs"
    run("export", "delta")
    assert remote_differences(s3, url) == []
    run("ingest", FIRST_STEPS / "rank1.json.gz", "--run", "one", "--rank", "0", "--replace")
    run("ingest", FIRST_STEPS, "--run", "two")
    assert remote_differences(s3, url) == []
    commands = [("label", "one", "a=b", "-w", url), ("remove", "two", "-w", url)]
    started = [_start(s3.environment, command) for command in commands]
    assert [each.wait(240) for each in started] == [0, 0]
    run("clean", "--grace", "0s")
    assert remote_differences(s3, url) == []
    assert run("verify").startswith("OK")


# Copies


def test_copies_have_every_table_once(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wh = tracewarehouse.open(warehouse)
    cli = tw("export", "delta", lake, "-w", warehouse)
    assert cli.out == "exported one@v1\n", cli.err
    assert differences(warehouse, lake) == []
    assert pl.read_delta(f"{lake}/events").schema["args"] == pl.String
    before = {name: deltalake.DeltaTable(f"{lake}/{name}").version() for name in tables(wh.catalog)}
    assert wh.export_delta(lake, "one")[0].written == ()
    assert before == {name: deltalake.DeltaTable(f"{lake}/{name}").version() for name in before}
    wh.ingest(FIRST_STEPS, run="two")
    wh.label("one", {"team": "a"})
    assert {each.run for each in wh.export_delta(lake) if each.written} == {"one", "two"}
    assert differences(warehouse, lake) == []
    wh.remove("two")
    (done,) = [each for each in wh.export_delta(lake) if each.removed]
    assert done.run == "two" and "kernels" in done.written
    assert differences(warehouse, lake) == []
    assert tw("export", "delta", lake, "two", "-w", warehouse).out == "nothing to export\n"


def test_copies_have_the_recorded_results(warehouse: Path, tmp_path: Path) -> None:
    lake, wh = tmp_path / "lake", tracewarehouse.open(warehouse)
    wh.record("one", analyses=["kernel_summary"])
    wh.export_delta(lake)
    table = lake / "results" / "kernel_summary@1"
    rows = pl.read_delta(str(table), use_pyarrow=True)
    assert rows.height == len(wh.select("one").analyze("kernel_summary").rows())
    wh.ingest(FIRST_STEPS, run="two")
    wh.record("two", analyses=["kernel_summary"])
    kept = {path: path.stat().st_mtime_ns for path in table.rglob("*.parquet")}
    wh.export_delta(lake, "two", tables=["steps"])
    assert set(pl.read_delta(str(table), use_pyarrow=True)["run_id"]) == {"one", "two"}
    assert kept == {path: path.stat().st_mtime_ns for path in kept}, "only what is new is copied"
    number = deltalake.DeltaTable(str(table)).version()
    wh.export_delta(lake)
    assert deltalake.DeltaTable(str(table)).version() == number
    wh.remove("two")
    wh.export_delta(lake)
    assert pl.read_delta(str(table), use_pyarrow=True).equals(rows)


def test_copies_of_some_tables(warehouse: Path, tmp_path: Path) -> None:
    wh = tracewarehouse.open(warehouse)
    wh.export_delta(tmp_path, tables=["kernels"])
    assert {path.parent.name for path in tmp_path.glob("*/_delta_log")} == {"kernels", "runs"}
    wh.label("one", {"a": "b"})
    wh.export_delta(tmp_path, tables=["steps"])
    app = f"tw:{wh.store.id}:one"
    for name in ("kernels", "steps", "runs"):
        assert deltalake.DeltaTable(f"{tmp_path}/{name}").transaction_version(app) == 2


def test_errors_name_what_is_wrong(warehouse: Path, tmp_path: Path) -> None:
    cli = tw("export", "delta", tmp_path, "-w", warehouse, "--tables", "kernel")
    assert cli.code != 0 and "kernels" in cli.err
    cli = tw("export", "delta", tmp_path, "other", "-w", warehouse)
    assert cli.code != 0 and "other" in cli.err
    (tmp_path / "file").write_text("x")
    cli = tw("export", "delta", tmp_path / "file", "-w", warehouse)
    assert (cli.code, "Traceback" in cli.err) == (1, False), cli.err
    rows = pl.DataFrame({"run_id": ["one"], "rank": [0]})
    deltalake.write_deltalake(tmp_path / "lake/runs", rows, partition_by=["run_id"])
    with pytest.raises(WarehouseError, match="another program"):
        tracewarehouse.open(warehouse).export_delta(tmp_path / "lake")


@pytest.mark.deep
def test_copies_in_an_object_store(s3: Proxy, warehouse: Path) -> None:
    lake = f"s3://{BUCKET}/lake"
    command = ("export", "delta", lake, "-w", warehouse)
    done = process(*command, env=s3.environment)
    assert (done.code, done.out) == (0, "exported one@v1\n"), done.err
    tracewarehouse.open(warehouse).ingest(FIRST_STEPS, run="two")
    started = [_start(s3.environment, command) for _ in range(4)]
    time.sleep(2)
    started[-1].kill()
    assert [each.wait(240) for each in started][:-1] == [0] * 3
    assert remote_differences(s3, str(warehouse), lake) == []
    s3.ignore_conditions = True
    done = process(*command, env=s3.environment)
    assert done.code == 1 and "ignores If-None-Match" in done.err


@pytest.mark.deep
def test_three_processes_and_kills_copy_every_row_once(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wh = tracewarehouse.open(warehouse)
    for at in range(3):
        wh.ingest(FIRST_STEPS, run=f"run{at}")
    command = ("export", "delta", lake, "-w", warehouse)
    chance = random.Random(5)
    for at in range(3):
        started = [_start({}, command) for _ in range(3)]
        time.sleep(chance.uniform(0.6, 4))
        os.kill(started[at % 3].pid, signal.SIGKILL)
        assert [each.wait(240) for each in started].count(0) >= 2
        assert differences(warehouse, lake) == [], at
        wh.label(f"run{at}", {"turn": str(at)})
        wh.label("one", {"turn": str(at)})
    assert tw(*command).code == 0
    assert differences(warehouse, lake) == []
