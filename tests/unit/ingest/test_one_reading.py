"""Files are read once, built for a provisional rank, and built again only if that was wrong."""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import cli_runner
from ingesting import only, ranks_seen, seen, states, take, write
from tracewarehouse.engines import TaskProgress
from tracewarehouse.errors import TwError
from tracewarehouse.formats import registry
from tracewarehouse.formats.base import Part, Request
from tracewarehouse.formats.kineto import library
from tracewarehouse.formats.kineto.format import KinetoFile, KinetoFormat, KinetoSource
from tracewarehouse.ingest import build, pipeline, resources
from tracewarehouse.ingest.build import BuildRanks
from tracewarehouse.ingest.sources import RankCommit, Source
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.store import Store


def move_rank_to_end(path: Path, name: str) -> Path:
    """The same trace under another name, with the rank after the events."""
    trace = json.loads(path.read_text())
    rank = trace.pop("distributedInfo")
    other = path.with_name(name)
    other.write_text(json.dumps({**trace, "distributedInfo": rank}))
    path.unlink()
    return other


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """File name, run and rank of each build in this process."""
    calls: list[tuple[str, str, int]] = []
    facts = build._Group._facts

    def record(self: build._Group, source: Source, *more: object) -> object:
        calls.append((source.file.path.name, source.target.run, source.target.rank))
        return facts(self, source, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(build._Group, "_facts", record)
    return calls


def test_a_rank_after_the_events_is_built_again_if_there_are_other_files(
    tmp_path: Path, built: list[tuple[str, str, int]]
) -> None:
    first, second = write(tmp_path / "job", range(2), kernels=4)
    move_rank_to_end(second, "b.json")
    move_rank_to_end(first, "a.json")
    report = take(tmp_path / "wh", tmp_path / "job")
    assert [(file.path.name, file.run, file.rank, file.state) for file in report.files] == [
        ("a.json", "a", 0, "intact"),
        ("b.json", "b", 1, "intact"),
    ]
    assert built == [("a.json", "a", 0), ("b.json", "b", 1)]
    assert Store.open(tmp_path / "wh").verify() == []


def test_a_single_file_with_its_rank_at_the_end_is_built_once(
    tmp_path: Path, built: list[tuple[str, str, int]]
) -> None:
    (path,) = write(tmp_path / "job", [5])
    file = only(take(tmp_path / "wh", move_rank_to_end(path, "trace.json")))
    assert (file.run, file.rank, file.state) == ("trace", 5, "intact")
    assert built == [("trace.json", "trace", 5)]
    assert only(take(tmp_path / "wh", path.with_name("trace.json"))).state == "same"
    assert len(built) == 1


def test_a_build_for_a_wrong_rank_is_never_published(
    tmp_path: Path, built: list[tuple[str, str, int]]
) -> None:
    for path in write(tmp_path / "job", range(2), kernels=4):
        name = f"rank0.169412820{path.stem[-1]}545.pt.trace.json"
        if path.stem == "rank0":
            path.rename(path.with_name(name))
        else:
            # They look like two windows of rank 0, but the end of the second one specifies rank 1.
            move_rank_to_end(path, name)
    report = take(tmp_path / "wh", tmp_path / "job")
    assert [(file.run, file.rank, file.state) for file in report.files] == [
        ("job", 0, "intact"),
        ("job", 1, "intact"),
    ]
    assert [(run, rank) for _, run, rank in built] == [("job~1", 0), ("job", 0), ("job", 1)]
    store = Store.open(tmp_path / "wh")
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1)}
    assert seen(tmp_path / "wh", "SELECT rank, count(*) FROM kernels GROUP BY rank ORDER BY rank") == [
        (0, 4),
        (1, 4),
    ]
    assert len(store.unpublished("job~1")) == 1
    assert clean(store, grace_s=0).files > 0
    assert store.unpublished("job~1") == ()
    assert store.verify() == []


def test_the_same_content_is_not_built_again(tmp_path: Path, built: list[tuple[str, str, int]]) -> None:
    write(tmp_path / "job", range(3))
    take(tmp_path / "wh", tmp_path / "job")
    before = len(built)
    assert set(states(take(tmp_path / "wh", tmp_path / "job")).values()) == {"same"}
    assert (before, len(built)) == (3, 3)


def test_a_call_reuses_commits_of_an_interrupted_one(
    tmp_path: Path, built: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "job", range(3))

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "publish", broken)
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path / "wh", tmp_path / "job")
    assert ranks_seen(tmp_path / "wh") == {}
    report = take(tmp_path / "wh", tmp_path / "job")
    assert set(states(report).values()) == {"intact"}
    assert [file.content.events for file in report.files if file.content] == [10, 10, 10]
    assert len(built) == 3
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1, 2)}


def test_commits_for_ranks_that_only_the_end_shows_are_reused(
    tmp_path: Path, built: list[tuple[str, str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, name in zip(write(tmp_path / "job", (1, 2)), ("b", "a"), strict=True):
        move_rank_to_end(path, f"host_{name}.16941282{path.stem[-1]}0545.pt.trace.json")

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "publish", broken)
        with pytest.raises(KeyboardInterrupt):
            take(tmp_path / "wh", tmp_path / "job", run="job")
    before = len(built)
    report = take(tmp_path / "wh", tmp_path / "job", run="job")
    assert [(file.rank, file.state, file.content and file.content.events) for file in report.files] == [
        (2, "intact", 10),
        (1, "intact", 10),
    ]
    assert (before, len(built)) == (2, 2)
    assert ranks_seen(tmp_path / "wh") == {"job": (1, 2)}


def test_a_commit_is_reused_only_for_its_spelling_of_the_run(tmp_path: Path) -> None:
    write(tmp_path / "job")
    for run in ("Job", "job"):
        (file,) = take(tmp_path / "wh", tmp_path / "job", run=run, expect_ranks=2).files
        assert (file.run, file.state) == (run, "pending")
    assert only(take(tmp_path / "wh", tmp_path / "job", run="Job")).state == "intact"
    assert ranks_seen(tmp_path / "wh") == {"Job": (0,)}


def test_strict_commits_nothing_before_all_files_are_known(tmp_path: Path) -> None:
    write(tmp_path / "job", range(3))
    bad = tmp_path / "job" / "rank3.json"
    bad.write_text("[{]")
    assert take(tmp_path / "wh", tmp_path / "job", strict=True).exit_code == 1
    assert Store.open(tmp_path / "wh").unpublished("job") == ()
    assert not list((tmp_path / "wh").rglob("*.parquet"))
    bad.unlink()
    assert take(tmp_path / "wh", tmp_path / "job", strict=True).exit_code == 0
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 1, 2)}


def test_columns_in_a_file_give_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job", kernels=30)
    take(tmp_path / "memory", tmp_path / "job")
    monkeypatch.setattr(resources, "IN_MEMORY_BYTES", 0)
    take(tmp_path / "file", tmp_path / "job")
    for table in ("events", "kernels"):
        assert seen(tmp_path / "file", f"FROM {table}") == seen(tmp_path / "memory", f"FROM {table}")


def test_a_requested_time_unit_stays_until_another_is_requested(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "job")
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        event |= {name: 1000 * event[name] for name in ("ts", "dur") if name in event}
    path.write_text(json.dumps(trace))

    def lengths(**options: object) -> tuple[str, set[object]]:
        report = take(tmp_path / "wh", tmp_path / "job", **options)
        return only(report).state, {row[0] for row in seen(tmp_path / "wh", "SELECT dur_ns FROM kernels")}

    assert lengths() == ("intact", {30_000})
    assert lengths(time_unit="ns") == ("intact", {30})
    assert lengths() == ("same", {30})
    assert lengths(time_unit="us") == ("intact", {30_000})


class Deadly(KinetoFormat):
    """Kineto with files that kill the process that reads them, as an out-of-memory error would."""

    def open(self, path: Path) -> KinetoFile:
        return DeadlyFile(path)


class DeadlyFile(KinetoFile):
    """Kills its process when it is read."""

    def read(self, part: Part, request: Request) -> KinetoSource:
        if "deadly" in self.path.read_text():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(part, request)


@pytest.fixture
def deadly() -> Iterator[None]:
    """Files that contain the word `deadly` kill their worker."""
    registry.register(Deadly())
    yield
    registry.unregister("kineto")


@pytest.mark.usefixtures("deadly")
@pytest.mark.deep
def test_a_file_that_kills_its_worker_does_not_affect_its_group(tmp_path: Path) -> None:
    files = write(tmp_path / "job", range(6))
    files[1].write_text(files[1].read_text().replace("aten::k0", "deadly"))
    report = take(tmp_path / "wh", tmp_path / "job", jobs=2)
    assert states(report) == {path.name: "refused" if path == files[1] else "intact" for path in files}
    assert report.of("refused")[0].reason == "the worker process died twice"
    assert ranks_seen(tmp_path / "wh") == {"job": (0, 2, 3, 4, 5)}


def test_a_report_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job", range(4), kernels=50)
    found: list[object] = []
    run = BuildRanks.run

    def record(self: BuildRanks, progress: TaskProgress) -> object:
        reports = run(self, progress)
        found.extend(reports)
        return reports

    monkeypatch.setattr(BuildRanks, "run", record)
    take(tmp_path / "wh", tmp_path / "job")
    assert len(found) == 4
    assert all(isinstance(one, RankCommit) and len(pickle.dumps(one)) < 2000 for one in found)


def test_a_full_disk_is_reported_for_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job", range(2))

    def full(*_: object, **__: object) -> None:
        raise TwError("the disk is full", "free some space")

    monkeypatch.setattr(Store, "commit", full)
    report = take(tmp_path / "wh", tmp_path / "job")
    assert {(file.state, file.reason) for file in report.files} == {("refused", "the disk is full")}
    assert ranks_seen(tmp_path / "wh") == {}


class Several(KinetoFormat):
    """A list of Kineto files: each is a part, with the rank in the list."""

    name = "several"

    def detect(self, path: Path, head: bytes) -> bool:
        return path.suffix == ".several"

    def open(self, path: Path) -> SeveralFile:  # type: ignore[override]
        return SeveralFile(path)


class SeveralFile(KinetoFile):
    """One part per line."""

    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(name, rank) for rank, name in enumerate(self.path.read_text().split()))

    def read(self, part: Part, request: Request) -> KinetoSource:
        return KinetoSource(self.path.with_name(part.name), request)


@pytest.fixture
def several() -> Iterator[None]:
    """A format whose files hold several ranks."""
    registry.register(Several())
    yield
    registry.unregister("several")


@pytest.mark.usefixtures("several")
def test_a_file_may_hold_several_ranks(tmp_path: Path) -> None:
    write(tmp_path / "job", range(3))
    (tmp_path / "job" / "all.several").write_text("rank0.json rank1.json rank2.json")
    report = take(tmp_path / "wh", tmp_path / "job" / "all.several")
    assert [(file.path.name, file.run, file.rank, file.state) for file in report.files] == [
        ("all.several", "all", rank, "intact") for rank in range(3)
    ]
    version = Store.open(tmp_path / "wh").newest("all")
    assert version is not None
    assert [(one.format, one.part) for one in version.sources] == [
        ("several", f"rank{rank}.json") for rank in range(3)
    ]
    again = take(tmp_path / "wh", tmp_path / "job" / "all.several")
    assert [file.state for file in again.files] == ["same"] * 3


def test_a_missing_native_scanner_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "job")
    line = ["ingest", "-w", str(tmp_path / "wh"), str(tmp_path / "job")]
    monkeypatch.setattr(library, "notice", lambda: "ingesting without the native scanner")
    assert "note: ingesting without the native scanner\n" in cli_runner.tw(*line).err
    monkeypatch.setattr(library, "notice", lambda: None)
    assert "native" not in cli_runner.tw(*line, "--time-unit", "ns").err
