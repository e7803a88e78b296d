"""Local copies of the data files of a remote warehouse: each is downloaded once, and checked.

A file stays as long as a process uses it, which its lease says: a folder with a lock and a list of keys.
Beyond the budget, the files that were not used for the longest time are deleted.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage import layout
from tracewarehouse.storage.column_copies import LARGE_BYTES, copy_columns
from tracewarehouse.storage.model import TableFile
from tracewarehouse.storage.objects import ColumnCopies, LocalObjects, Objects
from tracewarehouse.storage.parquet_file import content_fault, has_size
from tracewarehouse.temp_folders import cache_folder, is_unused, locked_folder

FOLDER, BUDGET = "TW_MIRROR", "TW_MIRROR_BYTES"
_MAX_BUDGET, _FREE_SHARE = 50 * 10**9, 0.2
# After an eviction, this share of the budget is used, so that not every download evicts.
_EVICT_TO = 0.9
_COPIED = (f"{layout.DATA}/", f"{layout.RESULTS}/")
_STORED = (*_COPIED, "_tw/", "inbox/")
_INCOMING, _IN_USE, _KEYS, _COLUMNS = "incoming", "in-use", "keys", "columns"
_DOWNLOADS = 16
# (process, mirror) → the folder of its lease, and the keys in it.
_leases: dict[tuple[int, Path], tuple[Path, set[str]]] = {}


def mirror_folder() -> Path:
    """The folder of all mirrors: TW_MIRROR, else in the user's cache."""
    named = os.environ.get(FOLDER)
    return Path(named).absolute() if named else cache_folder() / "mirror"


class Mirror:
    """The local folder of a remote warehouse: copies of its files, and what is made only on this machine."""

    def __init__(self, objects: Objects, warehouse_id: str) -> None:
        self.objects = objects
        self.folder = mirror_folder() / warehouse_id

    def path(self, key: str) -> Path:
        """The path of the copy of an object, which is downloaded if needed."""
        path = self.folder / key
        if key.startswith(_COPIED) and key.endswith(".parquet"):
            self._lease([key])
            if not path.exists():
                self._download(key)
        elif key.startswith(_STORED):
            self._download(key)
        return path

    def fetch(self, files: Iterable[TableFile], again: bool = False) -> dict[str, str]:
        """Downloads the files that are missing, many at once; key → problem of those that are damaged."""
        wanted = {file.path: file for file in files}
        self._lease(wanted)
        missing = [
            file for file in wanted.values() if again or not has_size(self.folder / file.path, file.bytes)
        ]
        if not missing:
            return {}
        needed, budget = sum(file.bytes for file in wanted.values()), self.budget()
        if needed > budget:
            raise WarehouseError(
                f"these runs need {needed / 1e9:.1f} GB of local copies; {budget / 1e9:.1f} GB are allowed",
                f"select fewer runs or ranks, or set {BUDGET}",
            )
        self._evict(sum(file.bytes for file in missing if file.bytes > 0))
        problems = self._download_all([(file.path, file) for file in missing])
        found = {file.path: what for file, what in zip(missing, problems, strict=True)}
        return {key: what for key, what in found.items() if what is not None}

    def copy_columns(self, files: Iterable[TableFile], columns: ColumnCopies) -> None:
        """Fetches these columns of large files that are not here, unless they are most of the file."""
        from concurrent.futures import ThreadPoolExecutor

        def act(file: TableFile) -> None:
            with suppress(FileNotFoundError):  # `fetch` says so
                copy_columns(self.objects, file, columns, self.folder / _COLUMNS / file.path)

        large = {file.path: file for file in files if file.bytes > LARGE_BYTES}
        missing = [file for file in large.values() if not has_size(self.folder / file.path, file.bytes)]
        most_bytes = sum(file.bytes for file in missing) // 2
        if missing and self.objects.is_listable and most_bytes <= self.budget():
            self._lease([f"{_COLUMNS}/{file.path}" for file in missing])
            self._evict(most_bytes)
            with ThreadPoolExecutor(_DOWNLOADS) as pool:
                list(pool.map(act, missing))  # raises errors

    def copy(self, keys: Iterable[str]) -> None:
        """Downloads the recorded results that are missing, many at once."""
        keys = tuple(keys)
        self._lease(keys)
        self._download_all([(key, None) for key in keys if not (self.folder / key).exists()])

    def _download_all(self, wanted: Sequence[tuple[str, TableFile | None]]) -> list[str | None]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_DOWNLOADS) as pool:
            return list(pool.map(lambda one: self._download(*one), wanted))

    def forget(self, key: str) -> None:
        """Deletes the copy of a damaged file: the next reader downloads it again."""
        if key.startswith(_COPIED):
            (self.folder / key).unlink(missing_ok=True)

    def _download(self, key: str, file: TableFile | None = None) -> str | None:
        """Downloads an object, a second time if it is not as its version says; returns its problem."""
        target = self.folder / key
        part = self.folder / _INCOMING / f"{secrets.token_hex(8)}.part"
        what: str | None = None
        for folder in (target.parent, part.parent):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            for _ in range(2):
                self.objects.download(key, part)
                what = None if file is None else content_fault(part, file.bytes, file.sha256)
                if what is None:
                    part.replace(target)
                    break
        except FileNotFoundError:
            target.unlink(missing_ok=True)
            return "file missing"
        finally:
            part.unlink(missing_ok=True)
        return what

    # Leases and eviction

    def _lease(self, keys: Iterable[str]) -> None:
        """Keeps the copies of these keys from being deleted while this process runs."""
        folder, known = self._own_lease()
        new = [key for key in keys if key not in known]
        if not new:
            return
        with self._lock(fcntl.LOCK_SH), (folder / _KEYS).open("a", encoding="utf-8") as file:
            file.writelines(f"{key}\n" for key in new)
        known.update(new)
        for key in new:
            with suppress(OSError):
                os.utime(self.folder / key)  # the time of the last use

    @contextmanager
    def for_now(self) -> Iterator[None]:
        """Copies that are used for the first time in this context may be deleted after it."""
        folder, known = self._own_lease()
        before = frozenset(known)
        try:
            yield
        finally:
            with self._lock(fcntl.LOCK_EX):
                known.intersection_update(before)
                (folder / _KEYS).write_text("".join(f"{key}\n" for key in known), encoding="utf-8")

    def _own_lease(self) -> tuple[Path, set[str]]:
        own = os.getpid(), self.folder
        if own not in _leases:
            held = ExitStack()
            folder = held.enter_context(locked_folder(self.folder / _IN_USE / secrets.token_hex(8)))
            _leases[own] = folder, set()
            atexit.register(_end_lease, own, held)
        return _leases[own]

    @contextmanager
    def _lock(self, how: int) -> Iterator[None]:
        """Between a look at the leases and a deletion, no process adds to its lease."""
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)

    def budget(self) -> int:
        """The limit on the copies, in bytes; raises WarehouseError for an invalid TW_MIRROR_BYTES."""
        named = os.environ.get(BUDGET)
        if not named:
            free = shutil.disk_usage(_existing(self.folder)).free
            return min(_MAX_BUDGET, int(free * _FREE_SHARE))
        if not named.isdecimal():
            raise WarehouseError(
                f"{BUDGET}={named} is not a number of bytes", "set it to 20000000000 for 20 GB"
            )
        return int(named)

    def _evict(self, new_bytes: int) -> None:
        """Deletes the copies that were not used for the longest time, until new ones fit the budget."""
        found = sorted(self._copies())
        total, budget = sum(size for _, size, _ in found), self.budget() - new_bytes
        if total <= budget:
            return
        with self._lock(fcntl.LOCK_EX):
            used = self._used()
            for _, size, path in found:
                if total > budget * _EVICT_TO and path.relative_to(self.folder).as_posix() not in used:
                    path.unlink(missing_ok=True)
                    total -= size

    def _copies(self) -> Iterator[tuple[float, int, Path]]:
        for top in (*_COPIED, _COLUMNS):
            for path in (self.folder / top).rglob("*.parquet"):
                with suppress(FileNotFoundError):
                    found = path.stat()
                    yield found.st_mtime, found.st_blocks * 512, path  # without holes

    def _used(self) -> set[str]:
        """The keys in the leases of running processes; deletes those of others."""
        used: set[str] = set()
        for lease in (self.folder / _IN_USE).iterdir():
            if is_unused(lease):
                shutil.rmtree(lease, ignore_errors=True)
                continue
            with suppress(OSError):
                used.update((lease / _KEYS).read_text(encoding="utf-8").splitlines())
        return used


def _existing(folder: Path) -> Path:
    """The folder, or the parent that exists."""
    return folder if folder.exists() else _existing(folder.parent)


def _end_lease(own: tuple[int, Path], held: ExitStack) -> None:
    if own[0] == os.getpid() and own in _leases:
        del _leases[own]
        held.close()


# Files of a warehouse on this machine: its data files, read by path, and a folder for its own use.
LocalFiles: TypeAlias = LocalObjects | Mirror
