"""Ranks that wait for others are stored one by one, and published together by the last one or a seal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cli_runner
import tracewarehouse as tw
from simulated import SMALL
from tracewarehouse.errors import MissingRanks, UnknownName
from tracewarehouse.storage import layout
from tracewarehouse.warehouse import Warehouse


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """One file per rank of a job with four ranks."""
    folder = tmp_path_factory.mktemp("traces") / "job"
    tw.simulate(folder, ranks=4, seed=3, **{**SMALL, "layers": 1})
    return tuple(sorted(path for path in folder.iterdir() if "rank" in path.name))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another trace of rank 1."""
    folder = tmp_path_factory.mktemp("other") / "job"
    tw.simulate(folder, ranks=4, seed=4, **{**SMALL, "layers": 1})
    return sorted(path for path in folder.iterdir() if "rank" in path.name)[1]


@pytest.fixture
def wh(tmp_path: Path) -> Warehouse:
    return tw.open(tmp_path / "warehouse")


def push(wh: Warehouse, *paths: Path, expect_ranks: int = 9, **options: object) -> int:
    report = wh.ingest(*paths, run="job", jobs=1, expect_ranks=expect_ranks, **options)  # type: ignore[arg-type]
    return report.exit_code


def published(wh: Warehouse) -> list[dict[str, object]]:
    return [row for row in wh.runs().rows() if row["state"] != "pending"]


def test_waiting_ranks_appear_together(wh: Warehouse, traces: tuple[Path, ...], tmp_path: Path) -> None:
    for rank, path in enumerate(traces):
        assert push(wh, path, labels={f"rank{rank}": "yes"}) == 4
        assert published(wh) == []
    done = wh.seal("job", expect_ranks=4, labels={"team": "a"})
    assert (done.version, done.written, done.ranks, done.exit_code) == (1, True, (0, 1, 2, 3), 0)
    labels = {**{f"rank{rank}": "yes" for rank in range(4)}, "team": "a"}
    (row,) = wh.runs().rows()
    assert (row["labels"], row["state"], row["ranks_expected"]) == (labels, "complete", 4)
    whole = tw.open(tmp_path / "whole")
    whole.ingest(*traces, run="job", jobs=1)
    for analysis in ("stragglers", "kernel_summary", "quality"):
        assert wh.analyze(analysis).rows() == whole.analyze(analysis).rows()
    again = wh.seal("job")
    assert (again.version, again.written) == (1, False)
    assert wh.verify() == []


def test_missing_ranks_are_named(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    push(wh, traces[0], traces[2], expect_ranks=4)
    with pytest.raises(MissingRanks, match="run job: ranks 1, 3 of 4 missing; nothing was published"):
        wh.seal("job")
    assert published(wh) == []
    with pytest.raises(MissingRanks, match="rank 1 of 3 missing"):
        wh.seal("job", expect_ranks=3)
    assert wh.seal("job", expect_ranks=2).written
    push(wh, traces[1])
    done = wh.seal("job", allow_missing=True)
    assert (done.version, done.ranks, done.expected_ranks) == (2, (0, 1, 2), 9)


def test_the_last_rank_publishes_the_run(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    assert [push(wh, path, expect_ranks=4) for path in traces[:3]] == [4, 4, 4]
    assert published(wh) == []
    assert push(wh, traces[3], expect_ranks=4) == 0
    assert [row["ranks_present"] for row in wh.runs().rows()] == [4]


@pytest.mark.deep
def test_groups_of_ranks_count_once_they_are_complete(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    assert push(wh, traces[0], traces[3], expect_ranks=4) == 4
    assert push(wh, traces[1], traces[2], expect_ranks=4) == 0
    assert wh.seal("job").ranks == (0, 1, 2, 3)


@pytest.mark.deep
def test_a_repeated_push_is_stored_once(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    for _ in range(2):
        push(wh, traces[0])
    names = sorted(path.name for path in (wh.store.folder / layout.commits("job")).iterdir())
    assert len(names) == 2 and names[1] == names[0].replace(".json", ".wait.json")
    wh.seal("job", allow_missing=True)
    report = wh.ingest(traces[0], run="job", expect_ranks=9)
    assert [file.state for file in report.files] == ["same"]


def test_other_content_needs_replace(wh: Warehouse, traces: tuple[Path, ...], other: Path) -> None:
    push(wh, *traces)
    assert push(wh, other, rank=1) == 1
    assert wh.seal("job", expect_ranks=4).conflicts == ()
    assert push(wh, other, rank=1) == 1
    before = wh.select("job", 1).kernel_summary().rows()
    assert push(wh, other, rank=1, replace=True) == 4
    done = wh.seal("job", expect_ranks=4)
    assert (done.version, done.conflicts) == (2, ())
    assert wh.select("job", 1).kernel_summary().rows() != before
    # Neither the first trace nor the refused one comes back.
    assert not wh.seal("job").written
    assert wh.ingest(traces[1], run="job", replace=True).exit_code == 0
    assert not wh.seal("job").written
    assert wh.select("job", 1).kernel_summary().rows() == before


def test_a_removed_run_stays_removed(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    push(wh, *traces)
    wh.seal("job", allow_missing=True)
    push(wh, traces[0], replace=True)
    wh.remove("job")
    with pytest.raises(UnknownName):
        wh.seal("job")
    push(wh, traces[0])
    assert wh.seal("job", allow_missing=True).ranks == (0,)


@pytest.mark.deep
def test_waiting_ranks_can_be_removed(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    push(wh, traces[0])
    with pytest.raises(UnknownName) as caught:
        wh.select("job")
    assert caught.value.hint == (
        "pending: 1 of 9 ranks ingested; wh.ingest(PATH) adds the others,"
        ' wh.seal("job") publishes without them'
    )
    assert [(each.run, each.ranks) for each in wh.remove("job")] == [("job", 1)]
    with pytest.raises(UnknownName):
        wh.seal("job")
    wh.clean(grace_s=0)
    assert not list((wh.store.folder / "data").rglob("*.parquet"))


def test_clean_keeps_what_a_seal_may_publish(wh: Warehouse, traces: tuple[Path, ...]) -> None:
    push(wh, *traces[:3])
    wh.clean(grace_s=0)
    wh.seal("job", allow_missing=True)
    push(wh, traces[3])
    wh.clean(grace_s=0)
    assert wh.seal("job", expect_ranks=4).ranks == (0, 1, 2, 3)
    assert wh.verify() == []
    kernels = wh.kernel_summary().rows()
    wh.clean(grace_s=0)
    assert wh.kernel_summary().rows() == kernels


def test_the_commands(traces: tuple[Path, ...], tmp_path: Path) -> None:
    def call(*args: str | Path) -> cli_runner.CliResult:
        return cli_runner.tw(*args, "-w", tmp_path / "warehouse")

    done = call("ingest", traces[0], traces[1], "--run", "job", "--expect-ranks", "4", "--jobs", "1")
    assert done.code == 4 and "run job  pending 2/4" in done.out
    done = call("seal", "job", "--expect-ranks", "3")
    assert done.code == 1
    assert done.errors[0] == "tw: run job: rank 2 of 3 missing; nothing was published"
    assert "--allow-missing" in done.err
    done = call("seal", "job", "--allow-missing", "--label", "team=a")
    assert (done.code, done.out) == (0, "job@v1: ranks 0-1 of 4\n")
    done = call("seal", "job", "--allow-missing")
    assert (done.code, done.out) == (0, "job@v1: nothing to publish\n")
    done = call("ingest", traces[2], "--run", "job", "--expect-ranks", "4")
    assert done.code == 4 and "run job  pending 3/4" in done.out
    done = call("ingest", traces[3], "--run", "job", "--expect-ranks", "4")
    assert done.code == 0 and "run job  v2, ranks 0-3 of 4" in done.out
    done = call("seal", "unknown")
    assert done.code == 1 and "unknown run: unknown" in done.err
    assert call("ingest", traces[0], "--run", "waits", "--expect-ranks", "2").code == 4
    assert "tw: run waits: rank 1 of 2 missing; nothing was published" in call("seal", "waits").err


@pytest.mark.deep
def test_a_killed_call_is_found_again(wh: Warehouse, traces: tuple[Path, ...], tmp_path: Path) -> None:
    """Files without their commit are orphans; the next call stores the rank."""
    push(wh, traces[0])
    shutil.rmtree(wh.store.folder / layout.commits("job"))
    push(wh, traces[0])
    assert wh.seal("job", allow_missing=True).ranks == (0,)
    wh.clean(grace_s=0)
    assert wh.verify() == []
