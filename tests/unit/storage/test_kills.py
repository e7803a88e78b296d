"""After a kill at any moment the warehouse is intact: readers see before or after, and a retry completes."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from storage_sources import commit, context, seen, staged, versions_of
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.compact import compact
from tracewarehouse.storage.model import Changes
from tracewarehouse.storage.results import Recorded, write_result
from tracewarehouse.storage.store import Store

STEPS = {"os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.utime", "shutil.rmtree"}


def die_at(step: int, root: str) -> None:
    """Makes this process kill itself just before its `step`-th operation on the warehouse."""
    done = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if _changes(event, arguments) and any(root in os.fsdecode(one) for one in arguments if _is_path(one)):
            done += 1
            if done > step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _changes(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether the operation may change what lies on the disk."""
    return event in STEPS or (event == "open" and bool(arguments[2] & (os.O_CREAT | os.O_RDWR | os.O_WRONLY)))


def _is_path(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


def replace_and_add(store: Store, run: str) -> None:
    """Replaces rank 0 and adds rank 1, packed, in one call."""
    with store.staging() as folder:
        sources = store.commit([staged(folder, rank, run=run, content="b") for rank in (0, 1)])
    store.publish(run, Changes(sources=sources, labels={"by": "b"}, replace=True))


def complete_the_run(store: Store, run: str) -> None:
    """Adds the last of two expected ranks."""
    source = commit(store, 1, run=run)
    store.publish(run, Changes(sources=(source,), expected_ranks=2))


def take_out(store: Store, run: str) -> None:
    if store.newest(run):
        store.remove(run)
    clean(store, -1)


def record_and_take_out(store: Store, run: str) -> None:
    """Keeps two results, and removes the run without them."""
    version = store.newest(run)
    if version is None:
        return
    with store.staging() as folder:
        files = {}
        for requested in ("0" * 8, "1" * 8):
            recorded = Recorded("step_summary", 1, run, "f" * 16, requested, version.source)
            write_result(folder / requested, recorded, pa.table({"run_id": [run]}), {}, {})
            files[recorded] = folder / requested
        store.keep_results(files)
    store.remove(run, keep_results=True)
    clean(store, -1)
    assert len(store.recorded("step_summary", 1)) == 2 and len(store.kept()) == 1


def start_two_commits(store: Store, run: str) -> None:
    for rank in (0, 1):
        store.publish(run, Changes(sources=(commit(store, rank, run=run),)))


def compact_and_clean(store: Store, run: str) -> None:
    """Packs the files of two commits, and deletes those and their versions."""
    compact(store, run)
    clean(store, -1, keep_versions_s=-1)


def start_small(store: Store, run: str) -> None:
    store.publish(run, Changes(sources=(commit(store, 0, run=run),)))


def start_waiting(store: Store, run: str) -> None:
    store.publish(run, Changes(sources=(commit(store, 0, run=run),), expected_ranks=2))


def contents(store: Store, run: str) -> dict[int, set[str]]:
    if store.newest(run) is None:
        return {}
    return {rank: set(rows) for rank, rows in seen(store, run).items()}


A_ONLY = {0: {"a"}}
BOTH_A = {0: {"a"}, 1: {"a"}}
BOTH_B = {0: {"b"}, 1: {"b"}}
CASES = {
    "replace and add": (start_small, replace_and_add, A_ONLY, BOTH_B),
    "complete the run": (start_waiting, complete_the_run, {}, BOTH_A),
    "remove and clean": (start_small, take_out, A_ONLY, {}),
    "record, and remove but for that": (start_small, record_and_take_out, A_ONLY, {}),
    "compact and clean": (start_two_commits, compact_and_clean, BOTH_A, BOTH_A),
}
SLOW = {"compact and clean"}
LONG = {"record, and remove but for that"}  # every eighth step
Act = Callable[[Store, str], None]


def act_and_die(root: str, run: str, act: Act, step: int) -> None:
    store = Store.open(Path(root))
    die_at(step, root)
    act(store, run)


@pytest.mark.parametrize(
    ("case", "every"),
    [
        *((case, 4 + 4 * (case in LONG)) for case in CASES if case not in SLOW),
        *(pytest.param(case, 1, marks=pytest.mark.deep) for case in CASES),
    ],
)
def test_killed_before_each_step(tmp_path: Path, case: str, every: int) -> None:
    """Some of the steps; in the deep tests every single one."""
    start, act, before, after = CASES[case]
    for step in range(0, 200, every):
        store = Store.open_or_create(tmp_path / f"warehouse{step}")
        start(store, "run")
        child = context().Process(target=act_and_die, args=(str(store.folder), "run", act, step))
        child.start()
        child.join(60)
        assert contents(store, "run") in (before, after), f"step {step}"
        assert store.verify() == [], f"step {step}"
        act(store, "run")
        assert contents(store, "run") == after, f"step {step}"
        check_nothing_is_left(store)
        if child.exitcode == 0:
            break
    assert child.exitcode == 0
    assert step > 10, "too few steps were seen to be killed at"


def create_and_die(root: str, step: int) -> None:
    die_at(step, root)
    Store.open_or_create(Path(root))


def test_killed_before_every_step_of_its_creation(tmp_path: Path) -> None:
    for step in range(50):
        root = tmp_path / f"warehouse{step}"
        child = context().Process(target=create_and_die, args=(str(root), step))
        child.start()
        child.join(60)
        store = Store.open_or_create(root)
        start_small(store, "run")
        assert contents(store, "run") == A_ONLY, f"step {step}"
        check_nothing_is_left(store)
        if child.exitcode == 0:
            break
    assert child.exitcode == 0
    assert step > 5, "too few steps were seen to be killed at"


def act_and_die_writing(root: str, act: Act, limit: int) -> None:
    """Acts, and is killed in the middle of the first write past `limit` bytes of a file."""
    store = Store.open(Path(root))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    act(store, "run")


def label(store: Store, run: str) -> None:
    """Replaces rank 0 with a long label: the version is the longest of the files."""
    source = commit(store, 0, tables={})
    store.publish(
        run, Changes(sources=(source,), labels={"long": "".join(map(str, range(3000)))}, rebuilt=True)
    )


@pytest.mark.parametrize("limit", [0, 1, 20, 100, 400, 1000, 2000])
@pytest.mark.parametrize("act", [complete_the_run, label])
def test_killed_in_the_middle_of_a_write(tmp_path: Path, act: Act, limit: int) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    (start_waiting if act is complete_the_run else start_small)(store, "run")
    before = contents(store, "run")
    child = context().Process(target=act_and_die_writing, args=(str(store.folder), act, limit))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGXFSZ
    assert contents(store, "run") == before
    assert store.verify() == []
    act(store, "run")
    check_nothing_is_left(store)


def check_nothing_is_left(store: Store) -> None:
    """After a clean without grace period only published files are left."""
    clean(store, -1)
    assert store.verify() == []
    runs = [store.newest(run) for run in store.runs()]
    history = [version for run in store.runs() for version in versions_of(store, run)]
    assert None not in runs
    held = {file.path for version in history for source in version.sources for file in source.files}
    lying = {path.relative_to(store.folder).as_posix() for path in (store.folder / "data").rglob("*.parquet")}
    assert lying == held
    assert list((store.folder / "_tw" / "staging").iterdir()) == []


def act_forever(root: str, ready: str) -> None:
    """Adds ranks to one run, some as packed pairs, as fast as possible."""
    store = Store.open(Path(root))
    Path(ready).touch()
    for number in range(10_000):
        with store.staging() as folder:
            ranks = [staged(folder, rank, content=f"n{number}") for rank in (0, 1, 2)]
            sources = store.commit(ranks)
        store.publish("run", Changes(sources=sources, replace=True))
        if number % 5 == 4:
            clean(store, 3600)
        if number % 7 == 6:
            store.remove("run")


def kill_once(store: Store, folder: Path, chance: random.Random) -> None:
    """Starts a writer, kills it at a random moment, checks the warehouse, and repeats its work."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    child = context().Process(target=act_forever, args=(str(store.folder), str(ready)))
    child.start()
    while not ready.exists():
        time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.25))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert store.verify() == []
    left = contents(store, "run")
    assert left == {} or (set(left) == {0, 1, 2} and len({min(names) for names in left.values()}) == 1)
    with store.staging() as staging:
        sources = store.commit([staged(staging, rank, content="again") for rank in (0, 1, 2)])
    store.publish("run", Changes(sources=sources, replace=True))
    assert contents(store, "run") == {rank: {"again"} for rank in (0, 1, 2)}


def kill_many(tmp_path: Path, kills: int, seed: int) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    chance = random.Random(seed)
    for _ in range(kills):
        kill_once(store, tmp_path, chance)
    # What died in mid-write is still young; without grace it goes, and all else stays.
    clean(store, -1)
    assert store.verify() == []
    assert contents(store, "run") == {rank: {"again"} for rank in (0, 1, 2)}
    check_nothing_is_left(store)


@pytest.mark.deep
def test_twenty_kills_at_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 20, seed=1)


@pytest.mark.deep
def test_two_hundred_kills_at_random_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 200, seed=time.time_ns() % 1_000_000)
