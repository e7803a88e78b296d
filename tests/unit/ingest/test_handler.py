"""The trace handler and the inbox: what a training job spools and what the inbox lists."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
from pathlib import Path

import pytest

from tracewarehouse.errors import ParamError
from tracewarehouse.ingest import inbox
from tracewarehouse.ingest.handler import ProcessRank, process_rank, trace_handler


class FakeProfiler:
    """A stand-in for torch's profiler: writes a trace, gzipped according to the suffix."""

    def __init__(self, trace: dict[str, object] | None = None) -> None:
        self.trace = trace or {
            "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]
        }

    def export_chrome_trace(self, path: str) -> None:
        assert path.endswith(".gz")
        with gzip.open(path, "wt") as file:
            json.dump(self.trace, file)


class FullDisk:
    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, ProcessRank(3, 8)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "16"}, ProcessRank(5, 16)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "7"}, ProcessRank(0, 2)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, ProcessRank(2, 4)),
        ({"LOCAL_RANK": "2"}, ProcessRank(2, None)),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "4"}, ProcessRank(2, 4)),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"}, ProcessRank(None, 8)),
        ({"RANK": "none"}, ProcessRank(None, None)),
        ({}, ProcessRank(None, None)),
    ],
)
def test_the_launcher_sets_rank_and_world_size(environment: dict[str, str], place: ProcessRank) -> None:
    assert process_rank(environment) == place


def clear(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if any(word in name for word in ("RANK", "WORLD", "SLURM", "OMPI", "PMI")):
            monkeypatch.delenv(name)


def test_windows_and_ranks_are_separate_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear(monkeypatch)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        handler = trace_handler(tmp_path / "wh", run="job", labels={"commit": "3f2a"})
        handler(FakeProfiler())
        handler(FakeProfiler())
    files = inbox.spooled_files(tmp_path / "wh")
    assert [path.name.split(".")[:2] for path in files] == [
        ["rank0of2", "span1"],
        ["rank0of2", "span2"],
        ["rank1of2", "span1"],
        ["rank1of2", "span2"],
    ]
    notes = [inbox.spool_note(path) for path in files]
    assert [(note.run, note.window_number, note.world_size, note.labels["commit"]) for note in notes] == [
        ("job", window, 2, "3f2a") for _ in "01" for window in (1, 2)
    ]
    assert notes[0].process == notes[1].process != notes[2].process == notes[3].process
    assert json.loads(gzip.decompress(files[0].read_bytes()))["traceEvents"]


def test_without_a_launcher_the_name_is_host_and_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clear(monkeypatch)
    trace_handler(tmp_path, run="job")(FakeProfiler())
    (file,) = inbox.spooled_files(tmp_path)
    assert file.name.startswith(f"{socket.gethostname()}_{os.getpid()}.span1.")


def test_a_failure_is_a_warning_and_leaves_no_file(tmp_path: Path) -> None:
    handler = trace_handler(tmp_path, run="job")
    with pytest.warns(RuntimeWarning, match="window 1 not stored: .*No space left"):
        handler(FullDisk())
    assert list((tmp_path / "inbox").iterdir()) == []
    handler(FakeProfiler())
    assert "span2" in inbox.spooled_files(tmp_path)[0].name


def test_an_invalid_run_name_fails_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(ParamError):
        trace_handler(tmp_path, run="/")
    assert list(tmp_path.iterdir()) == []


def test_a_copied_file_belongs_to_the_run_of_its_folder(tmp_path: Path) -> None:
    path = inbox.inbox_folder(tmp_path) / "job" / "rank0.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    inbox.note_path(path).write_text("half a no")
    assert inbox.spool_note(path) == inbox.SpoolNote("job")


def test_unfinished_files_are_skipped_and_old_notes_removed(tmp_path: Path) -> None:
    folder = inbox.inbox_folder(tmp_path) / "job"
    folder.mkdir(parents=True)
    (folder / ".0123.json.gz").touch()
    for name, age_s in (("fresh.tw", 0), ("old.tw", 7200)):
        (folder / name).touch()
        os.utime(folder / name, (time.time() - age_s,) * 2)
    assert inbox.spooled_files(tmp_path) == []
    assert sorted(path.name for path in folder.iterdir()) == [".0123.json.gz", "fresh.tw"]


def test_a_warehouse_without_an_inbox_has_no_spooled_files(tmp_path: Path) -> None:
    assert inbox.spooled_files(tmp_path) == []


@pytest.mark.parametrize(
    "error", [RuntimeError("Trace is already saved."), AssertionError(), ValueError("x")]
)
def test_no_failure_reaches_the_training(tmp_path: Path, error: Exception) -> None:
    class Profiler:
        def export_chrome_trace(self, path: str) -> None:
            raise error

    text = {RuntimeError: "also=", AssertionError: "not stored: AssertionError", ValueError: "not stored: x"}
    with pytest.warns(RuntimeWarning, match=text[type(error)]) as warned:
        trace_handler(tmp_path, run="job")(Profiler())
    assert len(warned) == 1 and inbox.spooled_files(tmp_path) == []


def test_a_name_that_changes_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="run @a/b is stored as a-b"):
        trace_handler(tmp_path, run="@a/b")(FakeProfiler())
    assert [path.parent.name for path in inbox.spooled_files(tmp_path)] == ["a-b"]


@pytest.mark.parametrize("has_links", [True, False])
def test_tensorboard_gets_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:  # as on another disk
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(18, "other device")))
    handler = trace_handler(tmp_path / "wh", run="job", also=tmp_path / "runs" / "tb")
    handler(FakeProfiler())
    (spooled,) = inbox.spooled_files(tmp_path / "wh")
    (beside,) = (tmp_path / "runs" / "tb").iterdir()
    assert beside.name.startswith(f"{socket.gethostname()}_{os.getpid()}.")
    assert beside.name.endswith(".pt.trace.json.gz")
    assert beside.read_bytes() == spooled.read_bytes()
    assert beside.samefile(spooled) == has_links


def test_a_folder_for_tensorboard_that_cannot_be_written_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    handler = trace_handler(tmp_path / "wh", run="job", also=tmp_path / "file" / "tb")
    with pytest.warns(RuntimeWarning, match="window 1 not written to"):
        handler(FakeProfiler())
    assert len(inbox.spooled_files(tmp_path / "wh")) == 1


def test_empty_folders_and_old_unfinished_exports_do_not_stay(tmp_path: Path) -> None:
    trace_handler(tmp_path, run="job")(FakeProfiler())
    (file,) = inbox.spooled_files(tmp_path)
    for name, age_s in ((".new.json.gz", 0), (".old.json.gz", 7200)):
        (tmp_path / "inbox" / name).touch()
        os.utime(tmp_path / "inbox" / name, (time.time() - age_s,) * 2)
    inbox.remove(file)
    assert inbox.spooled_files(tmp_path) == []
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == [".new.json.gz"]
