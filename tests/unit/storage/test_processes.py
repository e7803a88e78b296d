"""Many real processes on one warehouse at once: no change is lost, duplicated or visible in part."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from storage_sources import commit, context, processes, seen, staged, versions_of
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.model import Changes, RunVersion
from tracewarehouse.storage.store import Store

WRITERS = 8


def race(root: str, writer: int, rounds: int, reported: str, together: Any) -> None:
    """Tries to be the first to put each of the same objects; returns which ones it wrote."""
    store = Store.open(Path(root))
    text = f"writer {writer}".encode()
    won = []
    for number in range(rounds):
        together.wait(60)
        if store.objects.put_if_absent(f"race/v{number:06d}", text):
            won.append(number)
    Path(reported).write_text(" ".join(map(str, won)))


@pytest.mark.deep
def test_of_eight_that_put_the_same_object_one_wins(tmp_path: Path) -> None:
    rounds = 200
    store = Store.open_or_create(tmp_path / "warehouse")
    reported = [tmp_path / f"reported-{writer}" for writer in range(WRITERS)]
    together = context().Barrier(WRITERS)
    processes(
        race, [(str(store.folder), one, rounds, str(reported[one]), together) for one in range(WRITERS)]
    )
    won = [[int(number) for number in path.read_text().split()] for path in reported]
    assert sorted(sum(won, [])) == list(range(rounds))
    for writer, numbers in enumerate(won):
        assert {store.objects.get(f"race/v{number:06d}") for number in numbers} <= {
            f"writer {writer}".encode()
        }
    assert list((store.folder / "_tw" / "staging").iterdir()) == []


def relabel(root: str, writer: int, rounds: int) -> None:
    store = Store.open(Path(root))
    for number in range(rounds):
        assert store.relabel("run", {f"w{writer}-{number}": "set"}).version is not None


def test_changes_of_eight_writers_are_all_kept(tmp_path: Path) -> None:
    rounds = 25
    store = Store.open_or_create(tmp_path / "warehouse")
    store.publish("run", Changes(sources=(commit(store, 0),)))
    processes(relabel, [(str(store.folder), writer, rounds) for writer in range(WRITERS)])
    assert store.versions("run") == tuple(range(1, 2 + WRITERS * rounds))
    sizes = [len(version.labels) for version in versions_of(store)]
    assert sizes == list(range(WRITERS * rounds + 1))


def bring(root: str, run: str, rank: int, expected: int | None) -> None:
    store = Store.open_or_create(Path(root))
    source = commit(store, rank, run=run)
    done = store.publish(run, Changes(sources=(source,), labels={f"r{rank}": "x"}, expected_ranks=expected))
    assert done.outcome[source.name] in (("added", "pending") if expected else ("added",))


@pytest.mark.parametrize("expected", [None, WRITERS], ids=["as they come", "expect-ranks"])
def test_eight_processes_add_eight_ranks_to_new_runs(tmp_path: Path, expected: int | None) -> None:
    root = tmp_path / "warehouse"
    runs = [f"run{number}" for number in range(5)]
    processes(bring_all, [(str(root), runs, rank, expected) for rank in range(WRITERS)])
    store = Store.open(root)
    assert store.runs() == tuple(runs)
    for run in runs:
        assert seen(store, run) == {rank: ["a"] * 40 for rank in range(WRITERS)}
        assert seen(store, run, "kernels") == {rank: ["a"] * 12 for rank in range(WRITERS)}
        assert len(store.versions(run)) == (WRITERS if expected is None else 1)
        assert versions_of(store, run)[-1].labels == {f"r{rank}": "x" for rank in range(WRITERS)}
    assert store.pending_runs() == {}
    assert store.verify() == []


def bring_all(root: str, runs: list[str], rank: int, expected: int | None) -> None:
    for run in runs:
        bring(root, run, rank, expected)


def spell(root: str, run: str, reported: str) -> None:
    store = Store.open(Path(root))
    source = commit(store, 0, run=run)
    try:
        store.publish(run, Changes(sources=(source,)))
    except Exception as error:
        Path(reported).write_text(type(error).__name__)
    else:
        Path(reported).write_text("published")


def test_two_spellings_of_a_name_cannot_both_be_created(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    spellings = ["name", "Name", "NAME", "nAme", "naMe", "namE", "NAme", "naME"]
    reported = [tmp_path / f"reported-{number}" for number in range(WRITERS)]
    processes(
        spell, [(str(store.folder), run, str(path)) for run, path in zip(spellings, reported, strict=True)]
    )
    outcome = {run: path.read_text() for run, path in zip(spellings, reported, strict=True)}
    (winner,) = store.runs()
    assert outcome == {run: "published" if run == winner else "RunExists" for run in spellings}


def swap(root: str, writer: int, rounds: int) -> None:
    """Replaces ranks 0 and 1 together, repeatedly, with its own content."""
    store = Store.open(Path(root))
    for number in range(rounds):
        with store.staging() as folder:
            ranks = [staged(folder, rank, content=f"w{writer}n{number}") for rank in (0, 1)]
            sources = store.commit(ranks)
        store.publish("run", Changes(sources=sources, replace=True))


def whole(store: Store, version: RunVersion) -> bool:
    """Whether both ranks come from one call and every file is there in full."""
    for source in version.sources:
        assert all(store.path(file.path).stat().st_size == file.bytes for file in source.files)
    return len({source.digest.removesuffix(f"-{source.rank}") for source in version.sources}) == 1


def test_a_reader_sees_complete_versions_only_and_never_an_older_one(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    swap(str(store.folder), 9, 1)
    started = [context().Process(target=swap, args=(str(store.folder), writer, 10)) for writer in range(4)]
    for process in started:
        process.start()
    numbers = []
    while any(process.is_alive() for process in started):
        version = store.newest("run")
        assert version is not None
        assert version.ranks == (0, 1)
        assert whole(store, version)
        numbers.append(version.number)
    assert [process.exitcode for process in started] == [0] * 4
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 5, "the reader saw too few versions"
    assert store.versions("run") == tuple(range(1, 42))
    assert store.verify() == []


def keep_cleaning(root: str, stop: str) -> None:
    """Deletes old orphans in folders that others write to, and with them empty folders."""
    store = Store.open(Path(root))
    while not Path(stop).exists():
        for run in ("a", "b"):
            orphan = store.path(f"data/events/{run}/000000-0-0.parquet")
            orphan.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                orphan.touch()
                os.utime(orphan, (0, 0))
        assert clean(store, 3600).files <= 2


def test_cleaning_beside_writers_deletes_none_of_their_files(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    stop = tmp_path / "stop"
    cleaner = context().Process(target=keep_cleaning, args=(str(store.folder), str(stop)))
    cleaner.start()
    processes(bring_all, [(str(store.folder), ["a", "b"], rank, None) for rank in range(4)])
    stop.touch()
    cleaner.join(60)
    assert cleaner.exitcode == 0
    assert store.verify() == []
    assert set(seen(store, "a")) == set(seen(store, "b")) == {0, 1, 2, 3}


def commit_while_folders_go(root: str) -> None:
    """Commits while each empty folder is deleted just before a file is moved into it."""
    store = Store.open(Path(root))
    taken: set[str] = set()

    def take(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.rename" and os.fspath(arguments[1]).startswith(root):
            folder = os.path.dirname(arguments[1])  # noqa: PTH120
            if folder not in taken:
                taken.add(folder)
                os.rmdir(folder)  # noqa: PTH106

    sys.addaudithook(take)
    source = commit(store, 0)
    assert len(taken) == 3
    store.publish("run", Changes(sources=(source,)))


def test_a_folder_that_a_clean_deletes_is_created_again(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    processes(commit_while_folders_go, [(str(store.folder),)])
    assert set(seen(store)) == {0}
    assert store.verify() == []
