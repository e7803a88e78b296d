"""Object stores: the interface that storage needs, and objects as files under a folder of a local disk."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfile
from threading import Thread
from typing import Protocol

from msgspec import Struct

from tracewarehouse import hints
from tracewarehouse.errors import StoreUnavailable, TwError, WarehouseError
from tracewarehouse.storage.layout import OWN_NAMES, STAGING, WAREHOUSE
from tracewarehouse.storage.model import TableFile
from tracewarehouse.temp_folders import file_time


class Entry(Struct, frozen=True):
    """A stored object: its key, its size, and when it was written by the clock of the store.

    `etag` changes with the content; "" on a local disk.
    """

    key: str
    bytes: int
    modified: datetime
    etag: str = ""


class Objects(Protocol):
    """A store of objects. A key is a relative path; an object appears complete or not at all."""

    @property
    def url(self) -> str:
        """Where the store is, without credentials."""

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """The bytes of an object from `start` up to `end`; raises FileNotFoundError."""

    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of an object from each start up to its end; raises FileNotFoundError."""
        return [self.get_range(key, start, end) for start, end in ranges]

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Each key with the content of its object, None if there is none; in the order of the keys."""
        for key in keys:
            try:
                yield key, self.get(key)
            except FileNotFoundError:
                yield key, None

    def download(self, key: str, path: Path) -> None:
        """Writes the content of an object to a local file; raises FileNotFoundError."""

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Write each object, replacing an older one."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object unless the key exists; True if this call wrote it."""

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Move finished local files to their keys."""

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """All objects whose key starts with `prefix` and is greater than `after`, by key."""

    def folders(self, prefix: str) -> list[str]:
        """The names directly under a prefix that ends with `/` and that have objects below them, sorted."""

    def names(self, folder: str) -> list[str]:
        """The names of the objects directly in a folder, sorted; none if it does not exist."""
        prefix = f"{folder}/"
        found = (entry.key.removeprefix(prefix) for entry in self.walk(prefix))
        return [name for name in found if "/" not in name]

    def stat(self, key: str) -> Entry | None:
        """Size and time of an object, None if there is none."""

    def stat_many(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Each key with its `stat`; in the order of the keys."""
        return ((key, self.stat(key)) for key in keys)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing keys are ignored."""

    def describe(self, key: str) -> str:
        """The full name of an object for messages; makes no request."""

    def clock(self) -> datetime:
        """The current time by the clock of the store."""

    def prepare(self) -> None:
        """Checks that a new warehouse can be created here; raises WarehouseError."""

    def check_conditions(self) -> None:
        """Checks that `put_if_absent` can be relied on; raises WarehouseError."""

    def absent(self, error: OSError) -> TwError:
        """The error of a place without a warehouse, when `error` was raised by reading its identity."""

    read_only: bool = False

    def check_writable(self) -> None:
        """Raises WarehouseError if the objects cannot be changed from here."""
        if self.read_only:
            raise WarehouseError(f"{self.url} was opened with read_only")

    @property
    def is_shared(self) -> bool:
        """Whether other processes see the objects."""
        return True

    @property
    def is_listable(self) -> bool:
        """Whether `walk` and `folders` work; else the index has all that can be known."""
        return True


class ColumnCopies(Struct, frozen=True):
    """The columns that a query names, and copies of files with only these: key → path.

    The copies are in a folder that lasts as long as the query.
    """

    names: frozenset[str]
    folder: Path
    copies: dict[str, Path] = {}


# Concurrent requests to write a file or folder to the disk.
_SYNCS = 4


class LocalObjects(Objects):
    """Objects as files under a root: written to staging, synced, renamed; then folders are synced."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def url(self) -> str:
        """The root folder."""
        return str(self.root)

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.root / key

    @property
    def folder(self) -> Path:
        """The root folder."""
        return self.root

    def budget(self) -> None:
        """None: the files are not copies."""

    def for_now(self) -> AbstractContextManager[None]:
        """Does nothing."""
        return nullcontext()

    def check_writable(self) -> None:
        """Raises WarehouseError if the folder for unfinished files exists and refuses new ones."""
        super().check_writable()
        staging = self.root / STAGING
        if staging.is_dir() and not os.access(staging, os.W_OK | os.X_OK):
            raise disk_error(staging, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))

    def describe(self, key: str) -> str:
        """The path of the file."""
        return str(self.path(key))

    def clock(self) -> datetime:
        """The time of the file system, which a server may have; of this machine if nothing can be written."""
        with suppress(OSError):
            return datetime.fromtimestamp(file_time(self.root / STAGING), UTC)
        return datetime.now(UTC)

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Writes each file to staging and renames it; the folders are synced once for all."""
        for key, data in objects.items():
            self._rename(self._staged(data), key)
        self._sync_folders(objects)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes the file unless it exists: a hard link fails if the name exists."""
        staged = self._staged(data)
        try:
            won = self._link(staged, self.path(key))
        finally:
            staged.unlink()
        self._sync_folders([key])
        return won

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Syncs each file and renames it to its key, with the current time as its modification time."""
        for path in files.values():
            os.utime(path)
        _sync_all([(path, os.O_RDWR) for path in files.values()])
        for key, path in files.items():
            self._rename(path, key)
        self._sync_folders(files)

    def get(self, key: str) -> bytes:
        """The bytes of the file."""
        return self.path(key).read_bytes()

    def get_range(self, key: str, start: int, end: int) -> bytes:
        """A part of the file."""
        with self.path(key).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def download(self, key: str, path: Path) -> None:
        """Copies the file."""
        copyfile(self.path(key), path)

    def walk(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """The files below the folder of the prefix, by key."""
        folder, _, _ = prefix.rpartition("/")
        for key, file in self._files(folder):
            if key.startswith(prefix) and key > after:
                with suppress(FileNotFoundError):  # another process may delete it at any moment
                    yield _entry(key, file.stat())

    def _files(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(f"{self.root}/{folder}") as found:
            # A folder sorts as its name with a slash, as it does among the keys of an object store.
            listed = sorted((f"{one.name}/" if one.is_dir() else one.name, one) for one in found)
            for name, one in listed:
                key = f"{folder}/{name}" if folder else name
                if name.endswith("/"):
                    yield from self._files(key.removesuffix("/"))
                else:
                    yield key, one

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path(folder)) as found:
            return sorted(one.name for one in found if not one.is_dir())
        return []

    def folders(self, prefix: str) -> list[str]:
        """The names of the folders in a folder."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path(prefix)) as found:
            return sorted(one.name for one in found if one.is_dir())
        return []

    def times(self, folder: str) -> dict[str, tuple[int, int]]:
        """The names in a folder with time in ns of the last change, and size; that of a folder's names."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path(folder)) as found:
            stats = ((one.name, one.stat()) for one in found)
            return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats}
        return {}

    def stat(self, key: str) -> Entry | None:
        """Size and time of the last change."""
        try:
            return _entry(key, self.path(key).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def fetch(self, files: Iterable[TableFile], again: bool = False) -> dict[str, str]:
        """Nothing to do: the files are local."""
        return {}

    def copy_columns(self, files: Iterable[TableFile], columns: ColumnCopies) -> None:
        """Nothing to do: the files are local."""

    def copy(self, keys: Iterable[str]) -> None:
        """Nothing to do: the files are local."""

    def forget(self, key: str) -> None:
        """Nothing to do: the file is the original."""

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes each file, then folders that became empty."""
        folders = set()
        for key in keys:
            path = self.path(key)
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            # Empty folders upward, but none directly under the root.
            while len(folder.relative_to(self.root).parts) > 2:
                try:
                    folder.rmdir()
                except OSError:
                    break
                folder = folder.parent

    def prepare(self) -> None:
        """Creates the root and its staging folder, if the root holds no other files."""
        with disk_errors(self.root):
            if self.root.exists() and not self.root.is_dir():
                raise _is_file(self.root)
            present = [path.name for path in self.root.iterdir()] if self.root.exists() else []
            foreign = sorted(name for name in present if name not in OWN_NAMES and not name.startswith("."))
            if foreign:
                raise WarehouseError(
                    f"{self.root}: not a warehouse: the folder holds {foreign[0]}",
                    "select a new or empty folder with -w DIR or TW_WAREHOUSE",
                )
            (self.root / STAGING).mkdir(parents=True, exist_ok=True)
            _probe_link(self.root)

    def check_conditions(self) -> None:
        """Nothing to do: `prepare` found that the file system has hard links."""

    def absent(self, error: OSError) -> TwError:
        """The error of a file, of a folder with other files, or of a missing folder."""
        if self.root.exists() and not self.root.is_dir():
            return _is_file(self.root)
        return disk_error(self.root, error) if isinstance(error, NotADirectoryError) else _missing(self.root)

    def _staged(self, data: bytes) -> Path:
        """A synced file with the data in the staging folder."""
        path = self.root / STAGING / f"{secrets.token_hex(8)}.tmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise
        return path

    def _rename(self, path: Path, key: str) -> None:
        """Renames into a folder that another process may just have deleted because it was empty."""
        target = self.path(key)
        for last in (False, False, True):
            try:
                # mkdir also fails if another process deletes the folder while it checks for it.
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)
                return
            except (FileNotFoundError, FileExistsError):
                if last or not path.exists():
                    raise

    def _link(self, path: Path, target: Path) -> bool:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except FileExistsError:
            # A network file system may repeat a request that already succeeded.
            return path.stat().st_nlink > 1
        return True

    def _sync_folders(self, keys: Iterable[str]) -> None:
        """Syncs every folder between the root and the keys, each once."""
        folders = {self.root}
        for key in keys:
            folder = self.path(key).parent
            while folder not in folders:
                folders.add(folder)
                folder = folder.parent
        _sync_all([(folder, os.O_RDONLY) for folder in folders])


def _entry(key: str, found: os.stat_result) -> Entry:
    return Entry(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _sync_all(paths: Sequence[tuple[Path, int]]) -> None:
    """Syncs files or folders side by side: file systems write concurrent requests together."""
    left, failed = iter(paths), list[OSError]()

    def sync() -> None:
        for path, flags in left:
            try:
                handle = os.open(path, flags)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
            except OSError as error:
                failed.append(error)

    threads = [Thread(target=sync) for _ in range(min(len(paths), _SYNCS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _is_file(root: Path) -> WarehouseError:
    return WarehouseError(
        f"{root}: a file, not a warehouse",
        hints.Hint("name a folder", "select a folder with -w DIR or TW_WAREHOUSE"),
    )


def _missing(root: Path) -> WarehouseError:
    if (root / "inbox").is_dir():
        return WarehouseError(
            f"{root}: no runs yet, only traces of training jobs in the inbox", hints.ingest_inbox()
        )
    if root.exists():
        return WarehouseError(
            f"{root}: not a warehouse: the folder has no {WAREHOUSE}",
            hints.Hint("open the folder of a warehouse", "select the warehouse with -w DIR or TW_WAREHOUSE"),
        )
    return WarehouseError(
        f"{root}: no warehouse here",
        hints.Hint(
            "wh.ingest(PATH) creates one",
            "tw ingest PATH creates one; select another with -w DIR or TW_WAREHOUSE",
        ),
    )


def _probe_link(root: Path) -> None:
    """Raises WarehouseError if the file system lacks hard links, which publishing needs."""
    first = root / STAGING / f"probe-{secrets.token_hex(8)}"
    second = first.with_suffix(".link")
    first.touch()
    try:
        os.link(first, second)
    except OSError as error:
        raise WarehouseError(
            f"{root}: this file system refuses hard links ({error.strerror})",
            "put the warehouse on a local disk, NFS or Lustre",
        ) from error
    finally:
        first.unlink()
        second.unlink(missing_ok=True)


def is_removed(error: OSError) -> bool:
    """Whether a file of a call that is not finished is gone: only `tw clean` deletes those of others."""
    return error.errno == errno.ENOENT and f"{STAGING}/" in str(error)


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_TOO_MANY_FILES = {errno.EMFILE, errno.ENFILE}
_REFUSED = {errno.EACCES, errno.EPERM}


@contextmanager
def disk_errors(root: Path | str) -> Iterator[None]:
    """Turns an OSError of the block, but StoreUnavailable, into a WarehouseError with place and remedy."""
    try:
        yield
    except StoreUnavailable:
        raise
    except OSError as error:
        raise disk_error(root, error) from error


def disk_error(root: Path | str, error: OSError) -> WarehouseError:
    """The WarehouseError for an error of the operating system."""
    place = error.filename if isinstance(error.filename, str) else str(root)
    if is_removed(error):
        return WarehouseError(f"{root}: removed by tw clean of another process", "run it again")
    if error.errno in _FULL:
        return WarehouseError(
            f"{root}: no space left to write", "free some space and retry; published runs are not affected"
        )
    if error.errno == errno.EROFS:
        return WarehouseError(f"{place}: read-only file system", "use a warehouse on a writable disk")
    if error.errno in _REFUSED:
        return WarehouseError(f"{place}: permission denied", "check its owner and permissions")
    if error.errno in _TOO_MANY_FILES:
        return WarehouseError(
            f"{place}: too many open files",
            hints.fill("raise the limit (ulimit -n 1024), or use {}", hints.option("jobs", 1)),
        )
    if error.errno == errno.EISDIR:
        place = error.filename2 if isinstance(error.filename2, str) else place  # the target of a rename
        return WarehouseError(f"{place}: expected a file, found a folder", "move it away and retry")
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return WarehouseError(f"{place}: expected a folder, found a file", "move it away and retry")
    return WarehouseError(
        f"{place}: {error.strerror or error}", hints.fill("{} lists damaged files", hints.call("verify"))
    )
