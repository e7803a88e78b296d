"""Objects as files under a folder of a local disk."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tracewarehouse import hints
from tracewarehouse.errors import WarehouseError
from tracewarehouse.storage.layout import STAGING
from tracewarehouse.storage.objects import Entry


class LocalObjects:
    """Objects as files under a root: written aside, fsynced once, renamed, folders fsynced."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.root / key

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Writes each file aside and renames it; the folders are fsynced once for all."""
        for key, data in objects.items():
            self._rename(self._aside(data), key)
        self._sync_folders(objects)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """`link` is the one step that can lose: it fails where the name exists."""
        aside = self._aside(data)
        try:
            won = self._link(aside, self.path(key))
        finally:
            aside.unlink()
        self._sync_folders([key])
        return won

    def adopt(self, files: Mapping[str, Path]) -> None:
        """Fsyncs each file once, then renames it to its key; from now on it counts as young."""
        for key, path in files.items():
            os.utime(path)
            _sync(path, os.O_RDWR)
            self._rename(path, key)
        self._sync_folders(files)

    def get(self, key: str) -> bytes:
        """The bytes of the file."""
        return self.path(key).read_bytes()

    def list(self, folder: str) -> Iterator[str]:
        """Names in the folder."""
        with suppress(FileNotFoundError, NotADirectoryError):
            yield from [path.name for path in self.path(folder).iterdir()]

    def stat(self, key: str) -> Entry | None:
        """Size and time of the last change."""
        try:
            found = self.path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Entry(found.st_size, found.st_mtime)

    def delete(self, keys: Iterable[str]) -> None:
        """Unlinks each file, then folders that became empty."""
        folders = set()
        for key in keys:
            path = self.path(key)
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            self._prune(folder)

    def _aside(self, data: bytes) -> Path:
        """The data in a file of its own under the staging folder, fsynced."""
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
        """Renames into a folder that another process may just have taken away as empty."""
        target = self.path(key)
        for last in (False, False, True):
            try:
                # It says that a folder exists that another process removes before it can look what it is.
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
            # A network file system may repeat a request that had already won.
            return path.stat().st_nlink > 1
        return True

    def _sync_folders(self, keys: Iterable[str]) -> None:
        """Fsyncs every folder between the root and the keys, each once, deepest first."""
        folders = {self.root}
        for key in keys:
            folder = self.path(key).parent
            while folder not in folders:
                folders.add(folder)
                folder = folder.parent
        for folder in sorted(folders, key=lambda path: -len(path.parts)):
            _sync(folder, os.O_RDONLY)

    def _prune(self, folder: Path) -> None:
        """Takes away empty folders upwards, short of the root's own."""
        while len(folder.relative_to(self.root).parts) > 2:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Turns an OSError of the block into a WarehouseError that names the place and a remedy."""
    try:
        yield
    except OSError as error:
        raise disk_error(root, error) from error


def disk_error(root: Path, error: OSError) -> WarehouseError:
    """The WarehouseError for what the operating system refused."""
    place = error.filename if isinstance(error.filename, str) else str(root)
    if error.errno in _FULL:
        return WarehouseError(
            f"{root}: no space left to write", "free some space and repeat; what is published stays whole"
        )
    if error.errno in _REFUSED:
        return WarehouseError(f"{place}: may not be written or read", "check its owner and permissions")
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return WarehouseError(f"{place}: a file is in the way of a folder", "move it away and repeat")
    return WarehouseError(
        f"{place}: {error.strerror or error}", hints.fill("{} lists damaged files", hints.call("verify"))
    )
