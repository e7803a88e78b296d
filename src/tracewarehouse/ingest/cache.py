"""The cache of traces: a command that is given trace files stores them here first, the same content once.

An entry is a warehouse, `traces/KEY` in the user's cache folder. The key is a hash of the files, of the names
that decide run and rank, and of what decides the tables. Beside it, `KEY.lock` is held by the processes that
use the entry, and lists its files once it is complete: what a killed process left, or an entry that lost a
file, is made again. Above 5 GiB, entries that no process uses are deleted, the least recently used first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any, Final

from tracewarehouse.errors import WarehouseError
from tracewarehouse.formats.file_text import files_of
from tracewarehouse.formats.redact.rules import POLICY_VARIABLE
from tracewarehouse.ingest.naming import split_path
from tracewarehouse.ingest.survey import discover
from tracewarehouse.storage.layout import DATA
from tracewarehouse.temp_folders import CACHE, cache_folder
from tracewarehouse.version import __version__

_LIMIT_BYTES: Final = 5 << 30
# Lock file → its handle, open until this process ends.
_handles: dict[Path, int] = {}


def cached(
    paths: Sequence[str | PathLike[str]],
    settings: Sequence[object],
    fill: Callable[[Path], Sequence[str]],
    base: Path | None = None,
) -> tuple[Path, list[str]]:
    """The warehouse with files and folders, and the notes of its ingest: `fill` stores them in a new folder.

    `settings` are what else decides the tables. The folder begins with what is in `base`, an entry that this
    process uses. Other processes that need the entry wait meanwhile. Raises what `fill` raises, and
    WarehouseError if no folder can be written.
    """
    place, notes = _place()
    folder = place / _key(paths, [__version__, *settings])
    lock = folder.with_suffix(".lock")
    _handles[lock] = handle = _handles.get(lock) or os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    _lock(handle, fcntl.LOCK_SH)
    while (facts := _complete(handle, folder)) is None:
        _lock(handle, fcntl.LOCK_EX)
        if _complete(handle, folder) is None:
            _fill(handle, folder, fill, base)
            _evict(place)
        _lock(handle, fcntl.LOCK_SH)
    os.utime(lock)  # the time of the last use
    return folder, [*notes, *facts["notes"]]


def _place() -> tuple[Path, list[str]]:
    """The folder of all entries, and a note if it is not in the user's cache, which cannot be written."""
    try:
        place = cache_folder() / "traces"
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return place, []
    except (OSError, RuntimeError) as error:
        why = f"the cache cannot be written ({error})"
    place = Path(tempfile.gettempdir(), f"tracewarehouse-{os.getuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():  # anyone may have made it
        raise WarehouseError(f"{why}, and {place} is of another user", f"set {CACHE} to a folder of yours")
    return place, [f"note: {why}: using {place}; {CACHE} names another folder"]


def _key(paths: Sequence[str | PathLike[str]], settings: Sequence[object]) -> str:
    """The same for the same content in jobs and files of the same names, wherever they are."""
    files, _ = discover(paths)
    jobs = [os.path.abspath(split_path(file.path.absolute()).job) for file in files]  # noqa: PTH100
    above = Path(os.path.commonpath(jobs)).parent if jobs else Path()
    hashed = [*map(str, settings), _content(Path(os.environ.get(POLICY_VARIABLE, "")))]
    for path, named in ((file.path, file.named) for file in files):
        for part in files_of(path):
            hashed += [os.path.relpath(part, above), str(named), _content(part)]
    return hashlib.blake2b(json.dumps(hashed).encode(), digest_size=8).hexdigest()


def _content(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:  # ingest says what cannot be read
        return hashlib.file_digest(file, "blake2b").hexdigest()
    return ""


def _lock(handle: int, how: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, how)


def _complete(handle: int, folder: Path) -> Mapping[str, Any] | None:
    """What is noted about a complete entry, with all its files; None for any other."""
    try:
        facts: dict[str, Any] = json.loads(os.pread(handle, os.fstat(handle).st_size, 0))
        sizes = {name: (folder / name).stat().st_size for name in facts["files"]}
    except (OSError, ValueError):
        return None
    return facts if sizes == facts["files"] else None


def _fill(handle: int, folder: Path, fill: Callable[[Path], Sequence[str]], base: Path | None) -> None:
    _empty(handle, folder)
    try:
        if base is not None:
            shutil.copytree(base, folder, copy_function=os.link)  # files of a warehouse never change
        notes = list(fill(folder))
    except BaseException:
        _empty(handle, folder)
        raise
    files = (path for path in (folder / DATA).rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    facts = {"files": sizes, "bytes": sum(sizes.values()), "notes": notes}
    os.pwrite(handle, json.dumps(facts).encode(), 0)


def _empty(handle: int, folder: Path) -> None:
    """Deletes an entry; first the note that it is complete."""
    os.ftruncate(handle, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _evict(place: Path) -> None:
    """Deletes what is not complete, and the least recently used entries beyond the limit."""
    total = 0
    for lock in sorted(place.glob("*.lock"), key=lambda lock: lock.stat().st_mtime, reverse=True):
        handle, size = os.open(lock, os.O_RDWR), 0
        with suppress(ValueError):
            size = json.loads(lock.read_bytes())["bytes"]
        total += size
        if not size or total > _LIMIT_BYTES:
            _delete_unused(handle, lock.with_suffix(""))
        os.close(handle)


def forget(folder: Path) -> None:
    """Deletes an entry that this process does not need anymore, unless another one uses it."""
    handle = _handles.pop(folder.with_suffix(".lock"))
    _delete_unused(handle, folder)
    os.close(handle)


def _delete_unused(handle: int, folder: Path) -> None:
    with suppress(OSError):  # in use, or a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(handle, folder)
