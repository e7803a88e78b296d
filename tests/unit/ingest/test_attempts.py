"""Attempts in the inbox: which starts of a job its ranks belong to, and that none is refused for ever."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tracewarehouse
from cli_runner import tw
from tracewarehouse.errors import ParamError, UnknownName
from tracewarehouse.ingest import handler as handlers
from tracewarehouse.ingest.handler import attempt_keys, trace_handler
from tracewarehouse.ingest.stored import StoredRanks
from tracewarehouse.warehouse import Warehouse


class Recorded:
    """A stand-in for torch's profiler that recorded from a second on."""

    def __init__(self, at_s: int) -> None:
        self.at_s = at_s

    def export_chrome_trace(self, path: str) -> None:
        event = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": self.at_s * 10**6, "dur": 5 * 10**6}
        events = [{**event, "pid": 1, "tid": 1, "args": {"External id": os.getpid()}}]
        Path(path).write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if any(word in name for word in ("RANK", "WORLD", "SLURM", "OMPI", "PMI", "TORCHELASTIC")):
            monkeypatch.delenv(name)
    return tmp_path / "wh"


def record(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranks: Sequence[int],
    at_s: int,
    *,
    windows: int = 1,
    wait: bool = False,
    **environment: str,
) -> None:
    """One start of job `job`: each rank is a process that records windows of 5 s, 10 s apart."""
    with monkeypatch.context() as patched:
        for name, value in {"WORLD_SIZE": "4", **environment}.items():
            patched.setenv(name, value)
        for rank in ranks:
            patched.setenv("RANK", str(rank))
            handler = trace_handler(root, run="job", wait=wait, auto_labels=False)
            for window in range(windows):
                handler(Recorded(at_s + 10 * window))


def stored(root: Path) -> Mapping[str, Sequence[int]]:
    """Run → its ranks; the inbox is empty."""
    assert Warehouse(root).inbox().rows() == [] and not list((root / "inbox").iterdir())
    store = Warehouse(root).store
    return {version.run: version.ranks for run in store.runs() if (version := store.newest(run))}


def ingest(root: Path, run: str | None = None) -> None:
    report = Warehouse(root).ingest(inbox=True, run=run)
    assert not report.of("refused", "skipped"), report.files


@pytest.mark.parametrize("between", [False, True])
def test_a_restart_of_torchelastic_is_another_attempt(
    root: Path, monkeypatch: pytest.MonkeyPatch, between: bool
) -> None:
    elastic = {"TORCHELASTIC_RUN_ID": "abc"}
    record(root, monkeypatch, range(3), 1000, **elastic, TORCHELASTIC_RESTART_COUNT="0")
    if between:
        ingest(root)
    record(root, monkeypatch, range(4), 1060, windows=2, **elastic, TORCHELASTIC_RESTART_COUNT="1")
    ingest(root)
    assert stored(root) == {"job": (0, 1, 2), "job+1": (0, 1, 2, 3), "job+1~2": (0, 1, 2, 3)}
    spans = {row["run_id"]: dict(row["labels"]).get("span") for row in Warehouse(root).runs().rows()}
    assert spans == {"job": "1", "job+1": "1", "job+1~2": "2"}


def test_a_restarted_rank_that_was_missing_before_is_of_the_restart(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = {"SLURM_JOB_ID": "7"}
    record(root, monkeypatch, [0, 1, 2], 1000, **slurm)
    record(root, monkeypatch, [3], 1001, **slurm, SLURM_RESTART_COUNT="1")
    ingest(root)
    assert stored(root) == {"job": (0, 1, 2), "job+1": (3,)}


def test_without_keys_recordings_that_overlap_are_one_attempt(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(4):  # as with mpirun: processes that know nothing of each other
        record(root, monkeypatch, [rank], 1000 + rank, windows=2)
    ingest(root)
    record(root, monkeypatch, [0, 1], 2000)
    record(root, monkeypatch, [2, 3], 2001)
    ingest(root)
    assert stored(root) == dict.fromkeys(("job", "job+1", "job~2"), (0, 1, 2, 3))


def test_a_disjoint_window_of_a_missing_rank_is_another_attempt(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(root, monkeypatch, [0, 1, 2], 1000)
    ingest(root)
    record(root, monkeypatch, [3], 1060)
    ingest(root)
    assert stored(root) == {"job": (0, 1, 2), "job+1": (3,)}


def test_the_windows_of_a_process_stay_in_its_attempt(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(root, monkeypatch, [0], 1000)  # died before its second window
    handler = trace_handler(root, run="job", auto_labels=False)
    monkeypatch.setenv("RANK", "0")
    for window in range(3):
        handler(Recorded(2000 + 10 * window))
        ingest(root)
    assert stored(root) == dict.fromkeys(("job", "job+1", "job+1~2", "job+1~3"), (0,))


def test_handlers_that_wait_start_the_next_attempt(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at_s in (1000, 2000, 3000):
        record(root, monkeypatch, [0, 1], at_s, wait=True)
    assert stored(root) == dict.fromkeys(("job", "job+1", "job+2"), (0, 1))
    assert {row["tool_version"] for row in Warehouse(root).runs().rows()} == {tracewarehouse.__version__}


def test_starts_that_are_stored_at_the_same_time_are_not_mixed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(root, monkeypatch, [0], 1000, SLURM_JOB_ID="7")
    ingest(root)
    record(root, monkeypatch, [1], 1001, SLURM_JOB_ID="8")
    with monkeypatch.context() as patched:
        patched.setattr(StoredRanks, "attempts", lambda *_: [])  # as before the other one was stored
        (file,) = Warehouse(root).ingest(inbox=True).files
    assert (file.state, file.reason) == ("refused", "another start of the job was stored at the same time")
    ingest(root)
    assert stored(root) == {"job": (0,), "job+1": (1,)}


def test_a_trace_that_a_killed_ingest_left_is_stored_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(root, monkeypatch, [0, 1], 1000)
    left = {path: path.read_bytes() for path in (root / "inbox" / "job").iterdir()}
    ingest(root)
    for path, data in left.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    report = Warehouse(root).ingest(inbox=True)
    assert {file.state for file in report.files} == {"same"}
    assert stored(root) == {"job": (0, 1)}


def test_a_run_named_on_ingest_is_the_job(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(root, monkeypatch, [0], 1000)
    cli = tw("ingest", "--inbox", "--run", "first", "-w", root)
    assert cli.code == 0, cli.err
    record(root, monkeypatch, [0], 1000)
    ingest(root, run="second")
    assert stored(root) == {"first": (0,), "second": (0,)}
    record(root, monkeypatch, [0], 1000)
    other = root / "inbox" / "other"
    other.mkdir()
    (other / "rank0.json.gz").write_bytes(next((root / "inbox" / "job").glob("*.gz")).read_bytes())
    with pytest.raises(ParamError, match="traces of 2 runs: job, other"):
        ingest(root, run="third")


def test_the_inbox_is_listed_and_discarded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(root, monkeypatch, [0, 1], 1000)
    (row,) = json.loads(tw("inbox", "list", "-w", root, "--json").out)["result"]
    assert (row["run"], row["files"]) == ("job", 2) and row["bytes"] > 0
    with pytest.raises(UnknownName, match="unknown run in the inbox: jop"):
        Warehouse(root).discard("jop")
    cli = tw("inbox", "discard", "job", "-w", root)
    assert (cli.code, cli.out) == (0, "discarded 2 traces of 1 run\n")
    assert not list((root / "inbox").iterdir())


def test_a_folder_outside_of_the_inbox_has_no_attempts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at_s, name in ((1000, "a"), (2000, "b")):
        folder = root.parent / name / "job"
        folder.mkdir(parents=True)
        Recorded(at_s).export_chrome_trace(str(folder / "rank0.json.gz"))
    assert Warehouse(root).ingest(root.parent / "a").exit_code == 0
    (file,) = Warehouse(root).ingest(root.parent / "b").files
    assert (file.state, file.run) == ("refused", "job")
    assert file.reason and "already exists with different content" in file.reason


def test_keys_of_attempts() -> None:
    assert attempt_keys({"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "2"}) == {}
    first, second = ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": count} for count in "01")
    assert attempt_keys(first) == attempt_keys({"SLURM_JOB_ID": "7"}) != attempt_keys(second)
    environment = {**first, "TORCHELASTIC_RUN_ID": "abc"}
    assert list(attempt_keys(environment, "x")) == ["shared", "torchelastic", "slurm"]
    assert handlers._shared_value() is None
