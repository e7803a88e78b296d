"""A full disk and a refused one: a clear error with a remedy, and an unchanged warehouse."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from storage_sources import commit, context, processes, seen, staged
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.clean import clean
from tracewarehouse.storage.model import Changes
from tracewarehouse.storage.objects import disk_error, disk_errors
from tracewarehouse.storage.store import Store

STEP_BYTES = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this machine lets us mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False).returncode
    except FileNotFoundError:
        done = 1
    if done:
        pytest.skip("no small file system can be mounted here: needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def publish_more(store: Store) -> None:
    """Replaces rank 0 and adds ranks 1 and 2, packed."""
    with disk_errors(store.folder), store.staging() as folder:
        sources = store.commit([staged(folder, rank, content="b") for rank in (0, 1, 2)])
    store.publish("run", Changes(sources=sources, replace=True))


def test_a_disk_that_is_full_at_any_step_leaves_the_run_as_it_was(small_disk: Path) -> None:
    store = Store.open_or_create(small_disk / "warehouse")
    store.publish("run", Changes(sources=(commit(store, 0),)))
    filler = small_disk / "filler"
    refused = 0
    for free in range(0, 50 * STEP_BYTES, STEP_BYTES):
        fill(filler, free)
        try:
            publish_more(store)
        except WarehouseError as error:
            refused += 1
            assert error.message == f"{store.folder}: no space left to write"
            assert error.hint is not None
        else:
            break
        assert Store.open(store.folder).verify() == []
        assert seen(store) == {0: ["a"] * 40}
        filler.unlink()
        assert clean(store, -1).versions == 0
    assert refused > 5
    assert seen(store) == {rank: ["b"] * 40 for rank in (0, 1, 2)}
    assert store.verify() == []


def fill(filler: Path, free: int) -> None:
    """Leaves that many bytes free."""
    disk = os.statvfs(filler.parent)
    filler.write_bytes(b"\0" * max(disk.f_bavail * disk.f_frsize - free, 0))


def limited(root: str, reported: str) -> None:
    """The same without a mount: no file of this process may grow past 1 KB."""
    store = Store.open(Path(root))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
    try:
        store.relabel("run", {"long": os.urandom(4096).hex()})
    except WarehouseError as error:
        Path(reported).write_text(f"{error.message}\n{error.hint}")


def test_a_file_that_may_not_grow_is_reported_and_publishes_nothing(tmp_path: Path) -> None:
    store = Store.open_or_create(tmp_path / "warehouse")
    store.publish("run", Changes(sources=(commit(store, 0),)))
    processes(limited, [(str(store.folder), str(tmp_path / "reported"))])
    assert (tmp_path / "reported").read_text().splitlines() == [
        f"{store.folder}: no space left to write",
        "free some space and retry; published runs are not affected",
    ]
    assert store.versions("run") == (1,)
    assert list((store.folder / "_tw" / "staging").iterdir()) == []


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_other_user(act: Callable[[Path], Any], root: str, reported: Any) -> None:
    """Root may write anywhere, so change to another user first, who may be unable to read the checkout."""
    for name in ("commits", "publish"):  # imported on use
        import_module(f"tracewarehouse.storage.{name}")
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    try:
        reported.send(str(act(Path(root))))
    except WarehouseError as error:
        reported.send(f"{error.message}\n{error.hint}")


def said_to_other_user(act: Callable[[Path], Any], root: Path) -> str:
    """The result of an act, or its error, in a process without privileges."""
    reading, writing = context().Pipe(duplex=False)
    child = context().Process(target=as_other_user, args=(act, str(root), writing))
    child.start()
    writing.close()  # the child has the only other end: if it dies, there is nothing to wait for
    said: str = reading.recv()
    child.join(60)
    return said


def relabel(root: Path) -> None:
    Store.open(root).relabel("run", {"a": "b"})


def read(root: Path) -> dict[int, int]:
    return {rank: len(rows) for rank, rows in seen(Store.open(root)).items()}


def test_a_read_only_warehouse_can_be_read(shared_folder: Path) -> None:
    store = Store.open_or_create(shared_folder / "warehouse")
    store.publish("run", Changes(sources=(commit(store, 0),)))
    for path in [store.folder, *store.folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert said_to_other_user(read, store.folder) == "{0: 40}"
        message, hint = said_to_other_user(relabel, store.folder).splitlines()
    finally:
        for path in [store.folder, *store.folder.rglob("*")]:
            path.chmod(0o755)
    assert message.startswith(str(store.folder / "_tw" / "staging"))
    assert message.endswith("permission denied")
    assert hint == "check its owner and permissions"
    assert store.versions("run") == (1,)


def test_a_read_only_folder_is_refused(shared_folder: Path) -> None:
    shared_folder.chmod(0o555)
    try:
        message, _ = said_to_other_user(Store.open_or_create, shared_folder / "warehouse").splitlines()
    finally:
        shared_folder.chmod(0o755)
    assert message == f"{shared_folder / 'warehouse'}: permission denied"


def test_a_read_only_file_system_is_named() -> None:
    """As for a mount; `chmod` would not change it."""
    error = disk_error("warehouse", OSError(errno.EROFS, "Read-only file system", "warehouse/_tw/staging"))
    assert error.message == "warehouse/_tw/staging: read-only file system"
    assert error.hint == "use a warehouse on a writable disk"


MODES = {"cannot be written": 0o555, "cannot be entered": 0o000}


def loses_permission(root: Path, at: str, mode: int) -> str:
    """Publishes more; a folder loses its permissions before a step. Returns what the call says."""
    folder = root / at

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event in ("open", "os.rename", "os.link", "os.mkdir") and str(root) in str(arguments[:2]):
            done += 1
            if done == step and folder.exists():
                folder.chmod(mode)

    steps = int((root / "step").read_text())
    step, done = steps, 0
    sys.addaudithook(watch)
    try:
        publish_more(Store.open(root))
    except WarehouseError as error:
        return f"refused: {error.message}"
    return "published" if done >= step else "done before"


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize(
    "at", ["_tw/staging", "_tw/versions/run", "_tw/commits/run", "_tw/index/runs", "data/events/run"]
)
def test_a_folder_that_loses_its_permissions_at_any_step(shared_folder: Path, at: str, mode: int) -> None:
    said: list[str] = []
    for step in range(1, 200, 5):
        root = shared_folder / f"wh{step}"
        store = Store.open_or_create(root)
        store.publish("run", Changes(sources=(commit(store, 0),)))
        (root / "step").write_text(str(step))
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "65534:65534", str(root)], check=True)
        said.append(said_to_other_user(partial(loses_permission, at=at, mode=mode), root))
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)
        (root / "step").unlink()
        found = seen(store)
        assert found in ({0: ["a"] * 40}, {rank: ["b"] * 40 for rank in (0, 1, 2)}), (step, said[-1])
        assert found != {0: ["a"] * 40} or said[-1].startswith("refused: "), (step, said[-1])
        assert store.verify() == [], step
        publish_more(store)
        assert seen(store) == {rank: ["b"] * 40 for rank in (0, 1, 2)} and store.verify() == []
        if said[-1] == "done before":
            break
    # A version is published although its index entry cannot be written.
    assert "_tw/index" in at or [each for each in said if "permission denied" in each]
    assert said[-1] == "done before"
