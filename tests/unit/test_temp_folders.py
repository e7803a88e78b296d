"""Temporary folders: those of killed processes are deleted, those of live processes stay."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cli_runner import TW, environment
from ingesting import take, write
from storage_sources import commit, context, staged
from storage_sources import seen as rows_seen
from tracewarehouse import temp_folders
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.ingest.secrets import scan_traces
from tracewarehouse.storage import clean as clean_module
from tracewarehouse.storage import commits, objects
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.model import Changes, Published, RankSource
from tracewarehouse.storage.store import Store
from tracewarehouse.warehouse import Warehouse

HOLD = """
import sys, time
from tracewarehouse.temp_folders import new_folder
(new_folder() / "big").write_bytes(b"x")
print("ready", flush=True)
time.sleep(60)
"""
STAGE = """
import sys, time
from pathlib import Path
from tracewarehouse.storage.store import Store
with Store.open(Path(sys.argv[1])).staging() as folder:
    (folder / "half.parquet").write_bytes(b"x")
    print("ready", flush=True)
    time.sleep(60)
"""


def start(script: str, temp: Path, *args: str) -> subprocess.Popen[str]:
    """A process that holds a folder until it is killed."""
    command = [sys.executable, "-c", script, *args]
    process = subprocess.Popen(
        command, env=environment({"TMPDIR": str(temp)}), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_folders_of_killed_processes_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive = start(HOLD, tmp_path), start(HOLD, tmp_path)
    (tmp_path / "tw-of-someone-else").mkdir()
    try:
        kill(dead)
        assert len(list(tmp_path.iterdir())) == 3
        assert temp_folders.delete_unused() == 1
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        kill(alive)
    assert temp_folders.delete_unused() == 1
    assert [path.name for path in tmp_path.iterdir()] == ["tw-of-someone-else"]


def test_a_process_deletes_its_folder(tmp_path: Path) -> None:
    script = HOLD.replace("time.sleep(60)", "")
    process = start(script, tmp_path)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []


def test_clean_deletes_the_staging_folder_of_a_killed_process_at_once(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "wh")
    dead, alive = (start(STAGE, tmp_path, str(store.folder)) for _ in range(2))
    try:
        kill(dead)
        assert clean(store).files == 1
        assert len(list((store.folder / "_tw" / "staging").iterdir())) == 1
    finally:
        kill(alive)
    clean(store)
    assert list((store.folder / "_tw" / "staging").iterdir()) == []


def use_temporary_folders(root: str, traces: str, temp: str, ready: str) -> None:
    """Runs commands that need temporary folders, over and over."""
    tempfile.tempdir = temp
    warehouse = Warehouse(root)
    temp_folders.new_folder()
    Path(ready).touch()
    while True:
        warehouse.query("SELECT name, sum(dur_ns) FROM kernels GROUP BY name")
        scan_traces([traces])
        with warehouse.select(runs="run").shell_file():
            pass
        warehouse.label("run", {"at": str(time.time_ns())})
        warehouse.derive("wait_attribution", "run")


def kill_many(folder: Path, kills: int, seed: int) -> None:
    """After each kill, the next process deletes what was left."""
    temp = folder / "temp"
    temp.mkdir()
    write(folder / "run", range(2))
    take(folder / "wh", folder / "run", jobs=1)
    chance, ready, left = random.Random(seed), folder / "ready", 0
    for _ in range(kills):
        ready.unlink(missing_ok=True)
        places = (folder / "wh", folder / "run", temp, ready)
        child = context().Process(target=use_temporary_folders, args=tuple(map(str, places)))
        child.start()
        while not ready.exists():
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.5))
        child.kill()
        child.join()
        left += len(list(temp.glob("tw-*")))
        script = "from tracewarehouse.temp_folders import new_folder; new_folder()"
        subprocess.run([sys.executable, "-c", script], env=environment({"TMPDIR": str(temp)}), check=True)
        assert list(temp.glob("*")) == []
        assert Warehouse(folder / "wh").verify() == []
    assert left >= kills
    store, staging = Store.open(folder / "wh"), folder / "wh" / "_tw" / "staging"
    clean(store)
    # A kill may leave a file that was to be renamed next; only its age shows that no process will.
    assert {path.suffix for path in staging.iterdir()} <= {".tmp"}
    clean(store, grace_s=0)
    assert list(staging.iterdir()) == []


def test_a_few_kills_at_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 3, seed=1)


@pytest.mark.deep
def test_fifty_kills_at_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 50, seed=time.time_ns() % 1_000_000)


# Clean beside calls that run


def staged_and_committed(store: Store) -> Iterator[tuple[Path, RankSource]]:
    """A call that has staged one file and committed another, and publishes nothing yet."""
    with store.staging() as folder:
        (folder / "half.parquet").write_bytes(b"x")
        yield folder, commit(store, 7)


def test_clean_without_grace_deletes_nothing_of_a_call_that_runs(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "wh")
    for _ in staged_and_committed(store):
        before = sorted(store.folder.rglob("*"))
        assert clean(store, grace_s=0).files == 0
        assert sorted(store.folder.rglob("*")) == before
    left = {path.name for path in (store.folder / "data").rglob("*.parquet")}
    time.sleep(0.02)  # the time of a file is that of the last tick
    assert clean(store, grace_s=0).files > len(left) > 0


def test_a_clock_that_is_ahead_deletes_nothing_of_a_call_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=2)

    store = Store.open_or_create(tmp_path / "wh")
    for module in (objects, commits):
        monkeypatch.setattr(module, "datetime", Ahead)
    source = commit(store, 3)  # by a call that has ended
    for folder, other in staged_and_committed(store):
        assert clean(store).files == 0
        assert (folder / "half.parquet").exists()
        assert not store.missing_files([source, other])


def test_a_running_call_keeps_what_it_found_left(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "wh")
    left = commit(store, 0)
    time.sleep(0.02)  # the time of a file is that of the last tick
    with store.staging():
        assert store.unpublished("run") == (left,)
        time.sleep(0.02)
        clean(Store.open(store.folder), grace_s=0)
        store.publish("run", Changes(sources=(left,)))
    assert store.verify() == []
    assert set(rows_seen(store)) == {0}


def test_a_call_uses_nothing_left_while_a_clean_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open_or_create(tmp_path / "wh")
    left = commit(store, 0)
    found = []

    def plan_then_look(*given: object) -> clean_module.Plan:
        planned = plan(*given)  # type: ignore[arg-type]
        other = Store.open(store.folder)
        with other.staging() as folder:
            found.extend([*other.unpublished("run"), *other.commit([staged(folder, 0)])])
        return planned

    plan = clean_module.plan
    monkeypatch.setattr(clean_module, "plan", plan_then_look)
    time.sleep(0.02)
    assert clean(store, grace_s=0).files == 1 + len(left.files)
    (new,) = found
    assert new.name != left.name
    store.publish("run", Changes(sources=(new,)))
    assert store.verify() == []
    assert set(rows_seen(store)) == {0}


def ingest_what_was_left(warehouse: Warehouse, folder: Path) -> None:
    write(folder / "job", range(2), mark="j")
    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(Store, "publish", mock.Mock(side_effect=KeyboardInterrupt))
        warehouse.ingest(folder / "job", jobs=1)
    assert len(warehouse.store.unpublished("job")) == 2
    time.sleep(0.02)
    report = warehouse.ingest(folder / "job", jobs=1)
    assert [file.state for file in report.files] == ["intact"] * 2


def compact_it(warehouse: Warehouse, folder: Path) -> None:
    for rank in range(2):
        warehouse.ingest(folder / "run" / f"rank{rank}.json", run="parts", jobs=1, replace=True)
    assert warehouse.compact("parts")[0].version == 3


def expire_events(warehouse: Warehouse, folder: Path) -> None:
    policy = folder / "policy.toml"
    policy.write_text('[[rule]]\ntables = ["events"]\nolder_than = "0s"\n')
    assert warehouse.expire(policy)[0].version == 2


def redact_it(warehouse: Warehouse, folder: Path) -> None:
    (warehouse.store.folder / "_tw" / "redact.toml").write_text(
        '[[pattern]]\nname = "op"\npattern = "aten::k[0-9]"\n'
    )
    assert warehouse.remove_secrets().lines


@pytest.mark.parametrize(
    "act",
    [
        ingest_what_was_left,
        compact_it,
        expire_events,
        redact_it,
        lambda warehouse, _: warehouse.derive("critical_path", "run", entire_trace=True),
    ],
    ids=["ingest", "compact", "expire", "redact", "derive"],
)
def test_clean_spares_what_a_call_is_to_publish(
    act: Callable[[Warehouse, Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "run", range(2))
    warehouse = Warehouse(tmp_path / "wh")
    warehouse.ingest(tmp_path / "run", jobs=1)
    publish, cleaned = Store.publish, []

    def clean_first(self: Store, *given: Any) -> Published:
        time.sleep(0.02)
        cleaned.append(clean(Store.open(self.folder), grace_s=0))
        return publish(self, *given)

    monkeypatch.setattr(Store, "publish", clean_first)
    act(warehouse, tmp_path)
    assert cleaned
    assert Store.open(tmp_path / "wh").verify() == []


def test_a_lease_of_another_machine_counts_as_long_as_it_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temp_folders, "RENEW_S", 0.01)
    store = Store.open_or_create(tmp_path / "wh")
    with store.staging() as folder:
        lock = folder / temp_folders.LOCK
        lock.write_text("another machine")
        # Its lock is not seen here: the file is another one than that which the process has locked.
        lock.rename(folder / "seen there")
        lock.write_text("another machine")
        long_ago = time.time() - 10 * temp_folders.LEASE_S
        os.utime(lock, (long_ago, long_ago))
        os.utime(folder / "seen there", (long_ago, long_ago))
        os.utime(folder, (long_ago, long_ago))
        wait_for(lambda: folder.stat().st_mtime > long_ago + 1)
        clean(store, grace_s=0)
        assert folder.exists()
    folder.mkdir()
    lock.write_text("another machine")
    for path in (lock, folder):
        os.utime(path, (long_ago, long_ago))
    clean(store, grace_s=0)
    assert not folder.exists()


def wait_for(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_call_whose_files_were_removed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job", range(2))
    staging = tmp_path / "wh" / "_tw" / "staging"
    Store.open_or_create(tmp_path / "wh")
    added = RankFiles.staged

    def remove(self: RankFiles, run: str) -> object:
        shutil.rmtree(staging)
        return added(self, run)

    monkeypatch.setattr(RankFiles, "staged", remove)
    report = take(tmp_path / "wh", tmp_path / "job", jobs=1)
    for file in report.files:
        assert file.reason is not None and file.reason.endswith("removed by tw clean of another process")
        assert file.hint == "run it again"


# An ingest that waits when its tables are written, and again when they are committed.
INGEST = """
import sys, time
from pathlib import Path
from tracewarehouse.cli import main
from tracewarehouse.ingest.parquet import RankFiles
from tracewarehouse.storage.store import Store
place = Path(sys.argv.pop(1))
def paused(name, function):
    def wait(*args):
        found = function(*args)
        (place / name).touch()
        while not (place / f"{name}-go").exists():
            time.sleep(0.01)
        return found
    return wait
RankFiles.staged = paused("staged", RankFiles.staged)
Store.commit = paused("committed", Store.commit)
main()
"""


@pytest.mark.parametrize("options", [("--grace", "0s"), ("--grace", "0s", "+2d"), ("+2d",)])
def test_tw_clean_of_another_process_spares_a_live_ingest(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Also by a clock that is two days ahead."""
    *words, last = options
    clock = ["faketime", "-f", last] if last == "+2d" else []
    if clock and shutil.which("faketime") is None:
        pytest.skip("faketime is not installed")
    write(tmp_path / "job", range(3))
    warehouse = tmp_path / "wh"
    Store.open_or_create(warehouse)
    command = [sys.executable, "-c", INGEST, str(tmp_path), "ingest", str(tmp_path / "job")]
    command += ["-w", str(warehouse), "--min-age", "0", "--jobs", "1"]
    cleaning = [*clock, *TW, "clean", "-w", str(warehouse), *(words if clock else options)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as running:
        for name in ("staged", "committed"):
            wait_for((tmp_path / name).exists)
            done = subprocess.run(cleaning, env=environment(), capture_output=True, text=True, check=False)
            (tmp_path / f"{name}-go").touch()
            assert done.returncode == 0, done.stderr
        assert running.stderr is not None
        said = running.stderr.read()
        assert running.wait() == 0, said
    assert Warehouse(warehouse).selected()[0].ranks == (0, 1, 2)
    assert Warehouse(warehouse).verify() == []
