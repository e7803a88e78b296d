"""Temporary folders: those of killed processes are deleted, those of live processes stay."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cli_runner import environment
from ingesting import take, write
from storage_sources import context
from tracewarehouse import temp_folders
from tracewarehouse.ingest.secrets import scan_traces
from tracewarehouse.storage import Store
from tracewarehouse.storage.clean import clean
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
from tracewarehouse.storage import Store
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
        warehouse.derive("blame", "run")


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
