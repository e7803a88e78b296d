"""Faults during ingest: kills at any time, concurrent processes, dying workers, inboxes."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from test_handler import clear

from ingesting import ranks_seen, seen, start, states, take, write
from processes import children
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.ingest import inbox
from tracewarehouse.ingest.handler import trace_handler
from tracewarehouse.ingest.outcome import Options, Progress
from tracewarehouse.ingest.pipeline import ingest
from tracewarehouse.storage.store import Store

RANKS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces large enough that a kill hits every stage."""
    place = tmp_path_factory.mktemp("traces") / "job"
    write(place, range(RANKS), kernels=100)
    return place


@pytest.fixture(scope="module")
def duration(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds that a process needs to ingest the folder."""
    began = time.monotonic()
    process = start(tmp_path_factory.mktemp("measure") / "wh", [folder], jobs=2)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return time.monotonic() - began


def kill_once(root: Path, folder: Path, after_s: float) -> None:
    process = start(root, [folder], jobs=2)
    time.sleep(after_s)
    process.kill()
    process.communicate(timeout=60)
    if (root / "_tw" / "warehouse.json").exists():
        assert Store.open(root).verify() == []
        assert ranks_seen(root) in ({}, {"job": tuple(range(RANKS))})
    report = take(root, folder)
    assert report.exit_code == 0
    assert set(states(report).values()) <= {"intact", "same"}
    assert Store.open(root).verify() == []
    assert ranks_seen(root) == {"job": tuple(range(RANKS))}
    assert seen(root, "SELECT count(*), count(DISTINCT (rank, event_id)) FROM kernels") == [(200, 200)]


def kills(tmp_path: Path, folder: Path, duration: float, count: int) -> None:
    lane_times = random.Random(7)
    for number in range(count):
        kill_once(tmp_path / str(number), folder, lane_times.uniform(0, duration))


@pytest.mark.deep
def test_8_kills(tmp_path: Path, folder: Path, duration: float) -> None:
    kills(tmp_path, folder, duration, 8)


@pytest.mark.deep
def test_200_kills(tmp_path: Path, folder: Path, duration: float) -> None:
    kills(tmp_path, folder, duration, 200)


@pytest.mark.deep
@pytest.mark.parametrize("expect_ranks", [None, 8])
def test_8_processes_ingest_8_ranks_of_a_new_run(tmp_path: Path, expect_ranks: int | None) -> None:
    files = write(tmp_path / "job", range(8), kernels=20)
    processes = [start(tmp_path / "wh", [path], expect_ranks=expect_ranks) for path in files]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode in (0, 4) if expect_ranks else process.returncode == 0, errors
    assert ranks_seen(tmp_path / "wh") == {"job": tuple(range(8))}
    store = Store.open(tmp_path / "wh")
    version = store.newest("job")
    assert version is not None and version.number == (1 if expect_ranks else 8)
    assert store.verify() == []
    assert seen(tmp_path / "wh", "SELECT rank, count(*) FROM kernels GROUP BY rank ORDER BY rank") == [
        (rank, 20) for rank in range(8)
    ]


@pytest.mark.deep
def test_4_processes_ingest_the_same_folder(tmp_path: Path) -> None:
    write(tmp_path / "job", range(4), kernels=20)
    processes = [start(tmp_path / "wh", [tmp_path / "job"]) for _ in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    version = Store.open(tmp_path / "wh").newest("job")
    assert version is not None and (version.number, version.ranks) == (1, (0, 1, 2, 3))
    assert seen(tmp_path / "wh", "SELECT count(*) FROM kernels") == [(80,)]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_dying_worker_loses_no_rank(tmp_path: Path) -> None:
    write(tmp_path / "job", range(4), kernels=300)
    store = Store.open_or_create(tmp_path / "wh")
    killed: list[int] = []

    def kill_one(progress: Progress) -> None:
        # The children file lists those of the main thread, which started the workers.
        if progress.stage in ("read", "tables") and not killed:
            killed.extend(children(os.getpid())[:1])
            os.kill(killed[0], signal.SIGKILL)

    report = ingest(store, Catalog.load(), [tmp_path / "job"], Options(jobs=2), kill_one)
    assert killed
    assert report.exit_code == 0
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1, 2, 3)}


class Recorder:
    """A stand-in for torch's profiler."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def export_chrome_trace(self, path: str) -> None:
        import gzip

        Path(path).write_bytes(gzip.compress(self.trace.read_bytes()))


def spool(
    root: Path, traces: list[Path], windows: int, monkeypatch: pytest.MonkeyPatch, wait: bool = False
) -> None:
    clear(monkeypatch)
    monkeypatch.setenv("WORLD_SIZE", str(len(traces)))
    for rank, trace in enumerate(traces):
        monkeypatch.setenv("RANK", str(rank))
        handler = trace_handler(root, run="train", labels={"commit": "3f2a"}, wait=wait)
        for _ in range(windows):
            handler(Recorder(trace))


def test_spooled_traces_are_ingested_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool(tmp_path / "wh", write(tmp_path / "t", range(2)), 2, monkeypatch)
    report = take(tmp_path / "wh", inbox=True)
    assert report.exit_code == 0
    assert ranks_seen(tmp_path / "wh") == {"train": (0, 1), "train~2": (0, 1)}
    store = Store.open(tmp_path / "wh")
    labels = [version.labels for run in store.runs() if (version := store.newest(run))]
    assert labels == [{"commit": "3f2a", "span": "1"}, {"commit": "3f2a", "span": "2"}]
    assert list((tmp_path / "wh" / "inbox").iterdir()) == []
    assert take(tmp_path / "wh", inbox=True).files == ()


def test_a_waiting_handler_stores_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool(tmp_path / "wh", write(tmp_path / "t", range(2)), 1, monkeypatch, wait=True)
    assert ranks_seen(tmp_path / "wh") == {"train": (0, 1)}
    assert inbox.spooled_files(tmp_path / "wh") == []


def test_traces_that_cannot_be_stored_stay_in_the_inbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "wh" / "inbox" / "train"
    spool(tmp_path / "wh", write(tmp_path / "t"), 1, monkeypatch)
    (folder / "rank1.json").write_text("<html>")
    report = take(tmp_path / "wh", inbox=True)
    assert (sorted(states(report).values()), report.exit_code) == (["intact", "refused"], 4)
    assert [path.name for path in folder.iterdir()] == ["rank1.json"]
    # A restarted job with the same name has other content.
    spool(tmp_path / "wh", write(tmp_path / "t2", mark="again"), 1, monkeypatch)
    assert sorted(states(take(tmp_path / "wh", inbox=True)).values()) == ["intact", "refused"]
    assert ranks_seen(tmp_path / "wh") == {"train": (0,), "train+1": (0,)}
    assert [path.name for path in inbox.spooled_files(tmp_path / "wh")] == ["rank1.json"]


@pytest.mark.deep
def test_two_processes_store_one_inbox_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool(tmp_path / "wh", write(tmp_path / "t", range(6), kernels=50), 1, monkeypatch)
    processes = [start(tmp_path / "wh", [], inbox=True) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert ranks_seen(tmp_path / "wh") == {"train": tuple(range(6))}
    assert seen(tmp_path / "wh", "SELECT count(*) FROM kernels") == [(300,)]
    assert list((tmp_path / "wh" / "inbox").iterdir()) == []


def test_a_killed_process_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool(tmp_path / "wh", write(tmp_path / "t", range(3), kernels=100), 1, monkeypatch)
    for after_s in (0.4, 0.8, 1.2):
        process = start(tmp_path / "wh", [], inbox=True)
        time.sleep(after_s)
        process.kill()
        process.communicate(timeout=60)
    report = take(tmp_path / "wh", inbox=True)
    assert report.exit_code == 0
    assert ranks_seen(tmp_path / "wh") == {"train": (0, 1, 2)}
    assert seen(tmp_path / "wh", "SELECT count(*) FROM kernels") == [(300,)]
