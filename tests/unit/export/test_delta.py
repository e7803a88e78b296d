"""Delta tables have the rows of each run exactly once, also after kills and races."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tracewarehouse
from cli_runner import TW, environment, process, tw
from object_store import BUCKET, Proxy

deltalake = pytest.importorskip("deltalake")

FIRST_STEPS = Path(__file__).parents[2] / "data" / "first-steps"
TABLES = ("kernels", "steps", "annotations", "runs", "ranks")


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with one run of four ranks; read-only."""
    warehouse = tmp_path_factory.mktemp("ingested") / "warehouse"
    assert tw("ingest", FIRST_STEPS, "--run", "one", "-w", warehouse).code == 0
    return warehouse


@pytest.fixture
def warehouse(ingested: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(ingested, tmp_path / "warehouse"))


def counts(lake: Path | str) -> dict[str, dict[str, int]]:
    """Table → run → rows."""
    found = {}
    for table in TABLES:
        runs = pl.read_delta(f"{lake}/{table}")["run_id"].to_list()
        found[table] = {run: runs.count(run) for run in set(runs)}
    return found


def stored(warehouse: Path) -> dict[str, dict[str, int]]:
    """The same of the warehouse."""
    wh = tracewarehouse.open(warehouse)
    sql = "SELECT run_id, count(*) AS n FROM {} GROUP BY 1"
    return {
        table: {row["run_id"]: row["n"] for row in wh.query(sql.format(table), limits=None).rows()}
        for table in TABLES
    }


def published(lake: Path) -> dict[str, tuple[int, list[str]]]:
    """Run → version and complete tables."""
    rows = deltalake.DeltaTable(str(lake / "tw_published")).to_pyarrow_table().to_pylist()
    assert len({row["run_id"] for row in rows}) == len(rows)
    return {row["run_id"]: (row["version"], json.loads(row["tables"])) for row in rows}


def test_rows_are_those_of_the_warehouse(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    cli = tw("publish", "delta", lake, "-w", warehouse)
    assert cli.out == f"published one@v1: {', '.join(TABLES)}\n", cli.err
    assert counts(lake) == stored(warehouse)
    assert published(lake) == {"one": (1, sorted(TABLES))}
    order = ["rank", "event_id"]
    copy = pl.read_delta(str(lake / "kernels")).sort(order)
    original = tracewarehouse.open(warehouse).scan("kernels").collect().sort(order)
    for name in ("dur_ns", "name", "kind", "stream"):
        assert copy[name].cast(pl.String).to_list() == original[name].cast(pl.String).to_list(), name
    schema: dict[str, Any] = dict(pl.read_delta(str(lake / "runs")).schema)
    assert schema["ingested_at"] == pl.Datetime("us", "UTC")
    catalog = tracewarehouse.open(warehouse).catalog
    for table in TABLES:
        copied = dict(pl.read_delta(str(lake / table)).schema)
        texts = [each.name for each in catalog.get(table).columns if each.type in ("VARCHAR", "JSON")]
        assert {copied[name] for name in texts} == {pl.String}, table


def test_a_version_is_written_once_and_replaced_by_the_next(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wh = tracewarehouse.open(warehouse)
    wh.export_delta(lake)
    before = {table: deltalake.DeltaTable(str(lake / table)).version() for table in (*TABLES, "tw_published")}
    assert [each.written for each in wh.export_delta(lake, "one")] == [()]
    assert before == {table: deltalake.DeltaTable(str(lake / table)).version() for table in before}
    wh.label("one", {"team": "a"})
    assert tw("publish", "delta", lake, "-w", warehouse, "--tables", "runs,kernels").code == 0
    assert counts(lake) == stored(warehouse)
    assert "team" in pl.read_delta(str(lake / "runs"))["labels"][0]
    assert published(lake) == {"one": (2, ["kernels", "runs"])}
    wh.export_delta(lake)
    assert published(lake) == {"one": (2, sorted(TABLES))}


@pytest.mark.deep
def test_rows_of_a_removed_run_are_deleted(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wh = tracewarehouse.open(warehouse)
    wh.ingest(FIRST_STEPS, run="two")
    wh.export_delta(lake)
    assert set(counts(lake)["kernels"]) == {"one", "two"}
    wh.remove("two")
    (done,) = [each for each in wh.export_delta(lake) if each.removed]
    assert (done.run, done.written) == ("two", (*TABLES, "tw_published"))
    assert counts(lake) == stored(warehouse)
    assert set(published(lake)) == {"one"}
    assert tw("publish", "delta", lake, "two", "-w", warehouse).out == "nothing to publish\n"
    wh.ingest(FIRST_STEPS, run="two")
    wh.export_delta(lake)
    assert counts(lake) == stored(warehouse)


def test_errors_name_what_is_wrong(warehouse: Path, tmp_path: Path) -> None:
    cli = tw("publish", "delta", tmp_path, "-w", warehouse, "--tables", "kernel")
    assert cli.code != 0 and "kernels" in cli.err
    cli = tw("publish", "delta", tmp_path, "other", "-w", warehouse)
    assert cli.code != 0 and "other" in cli.err
    (tmp_path / "file").write_text("x")
    cli = tw("publish", "delta", tmp_path / "file", "-w", warehouse)
    assert (cli.code, "Traceback" in cli.err) == (1, False), cli.err
    for name in ("a[1]", "a%20b", "a\udcff"):
        cli = tw("publish", "delta", tmp_path / name, "-w", warehouse)
        assert (cli.code, "deltalake cannot write to a path with" in cli.err) == (1, True), cli.err
    assert not list(tmp_path.glob("a*"))
    assert tw("publish", "delta", tmp_path / "50%, more", "-w", warehouse).code == 0


@pytest.mark.deep
def test_tables_in_an_object_store(s3: Proxy, warehouse: Path, tmp_path: Path) -> None:
    """In processes: deltalake blocks the threads of the server in this one while it waits."""
    lake = f"s3://{BUCKET}/lake"
    publish = ("publish", "delta", lake, "-w", warehouse)
    for printed in (f"published one@v1: {', '.join(TABLES)}\n", "nothing to publish\n"):
        done = process(*publish, env=s3.environment)
        assert (done.code, done.out) == (0, printed), done.err
    assert remote_counts(s3, lake) == stored(warehouse)

    started = [_start(s3, publish) for _ in range(3)]
    tracewarehouse.open(warehouse).ingest(FIRST_STEPS, run="two")
    started += [_start(s3, publish) for _ in range(3)]
    time.sleep(2)
    started[-1].kill()
    assert [each.wait(240) for each in started][:-1] == [0] * 5
    assert remote_counts(s3, lake) == stored(warehouse)

    s3.ignore_conditions = True
    done = process(*publish, env=s3.environment)
    assert done.code == 1 and "ignores If-None-Match" in done.err
    s3.reset()
    s3.refuses = lambda request: 403 if request.kind == "GET" and "_delta_log" in request.path else None
    done = process(*publish, env=s3.environment)
    assert done.code == 1 and "Traceback" not in done.err, done.err


def _start(s3: Proxy, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*TW, *map(str, command)], env=environment(s3.environment))


def remote_counts(s3: Proxy, lake: str) -> dict[str, dict[str, int]]:
    """The counts of a lake in a store, read by Polars in another process."""
    code = "import sys, json; from test_delta import counts; print(json.dumps(counts(sys.argv[1])))"
    env = environment({**s3.environment, "AWS_ALLOW_HTTP": "true"})
    env["PYTHONPATH"] += (
        f":{Path(__file__).parent}:{Path(__file__).parents[2]}:{Path(__file__).parents[2] / 'support'}"
    )
    done = subprocess.run([sys.executable, "-c", code, lake], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


@pytest.mark.deep
def test_three_processes_and_kills_publish_every_row_once(warehouse: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wh = tracewarehouse.open(warehouse)
    for at in range(5):
        wh.ingest(FIRST_STEPS, run=f"run{at}")
    code = "from tracewarehouse.cli import main; main()"
    command = [sys.executable, "-c", code, "publish", "delta", str(lake), "-w", str(warehouse)]
    chance = random.Random(5)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment({}), stdout=subprocess.DEVNULL)

    for at in range(4):
        started = [start() for _ in range(3)]
        time.sleep(chance.uniform(0.6, 4))
        os.kill(started[at % 3].pid, signal.SIGKILL)
        codes = [each.wait(240) for each in started]
        assert codes.count(0) >= 2, codes
        assert counts(lake) == stored(warehouse), at
        wh.label(f"run{at}", {"turn": str(at)})
        wh.label("one", {"turn": str(at)})
    started = [start() for _ in range(3)]
    assert [each.wait(240) for each in started] == [0, 0, 0]
    assert counts(lake) == stored(warehouse)
    assert {run: number for run, (number, _) in published(lake).items()} == {
        row["run_id"]: row["version"] for row in wh.runs().rows()
    }
