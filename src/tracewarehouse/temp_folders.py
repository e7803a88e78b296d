"""Temporary folders that are deleted even if the process is killed: each holds a file that it locks.

A process has one folder `tw-…` under the system's temporary folder, created on first use. It deletes its own
at exit, and those of other processes whose lock is free.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "tw-"
LOCK = ".lock"
CACHE = "TW_CACHE"
# Another machine, which may not see a lock, sees by the time of a folder that it is in use.
RENEW_S, LEASE_S = 60.0, 900.0
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 50, 0.001
# Process id → its folder and the open lock file: a forked child has its own.
_own: dict[int, tuple[Path, int]] = {}


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new empty folder in the folder of this process, deleted afterwards."""
    folder = new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_folder() -> Path:
    """A new empty folder in the folder of this process, deleted when the process ends."""
    folder = _process_folder() / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def locked_folder(folder: Path) -> Iterator[Path]:
    """Creates a folder, and holds its lock until the folder is deleted."""
    folder.mkdir(parents=True)
    handle = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


@contextmanager
def leased_folder(folder: Path) -> Iterator[Path]:
    """A locked folder whose time is renewed as long as it is in use."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW_S):
            with suppress(OSError):
                os.utime(folder)

    with locked_folder(folder):
        threading.Thread(target=renew, daemon=True).start()
        try:
            yield folder
        finally:
            ended.set()


def lease_start(folder: Path, now: float) -> float | None:
    """When a running call locked its folder; None if it has ended or may have; `now` is the file system's."""
    with suppress(OSError):
        lock, renewed_at = (folder / LOCK).stat(), folder.stat().st_mtime
        is_locked = is_held(folder)
        # A lock without the name of a machine is of a process that was killed as it wrote it.
        is_leased = is_locked is None and lock.st_size > 0 and now - max(lock.st_mtime, renewed_at) < LEASE_S
        if is_locked or is_leased:
            return lock.st_mtime
    return None


def file_time(folder: Path) -> float:
    """The time, since the epoch, that the file system of a folder gives a new file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{secrets.token_hex(8)}.tmp"
    path.touch()
    try:
        return path.stat().st_mtime
    finally:
        path.unlink(missing_ok=True)


def _lock(folder: Path) -> int:
    """Creates and locks the lock file of a folder; the lock is held until the handle is closed."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, _machine())
            break
        except BlockingIOError:  # another process looks whether the lock is free
            time.sleep(_LOCK_PAUSE_S)
        except OSError:  # a file system without locks: the folder is deleted by age
            break
    return handle


def _machine() -> bytes:
    """The name of this machine: on a shared file system a lock may not be seen by others."""
    return os.uname().nodename.encode()


def is_held(folder: Path) -> bool | None:
    """Whether a process holds the lock of the folder; None if that cannot be known on this machine."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        name = os.read(handle, 256)  # the beginning of it if the process was killed as it wrote it
        return False if name and _machine().startswith(name) else None
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)


def is_unused(folder: Path) -> bool:
    """Whether no process holds the lock of the folder; False if that cannot be known on this machine."""
    return is_held(folder) is False


def delete_unused(parent: Path | None = None) -> int:
    """Deletes temporary folders of this user whose process has ended; returns their number.

    They are in `parent`, by default the system's folder for temporary files.
    """
    deleted = 0
    with suppress(OSError):
        for path in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
            with suppress(OSError):
                if path.is_dir() and path.stat().st_uid == os.getuid() and is_unused(path):
                    shutil.rmtree(path, ignore_errors=True)
                    deleted += 1
    return deleted


def _process_folder() -> Path:
    own = _own.get(os.getpid())
    if own is None or not own[0].is_dir():
        delete_unused()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        own = folder, _lock(folder)
        _own[os.getpid()] = own
        atexit.register(_delete_own, os.getpid())
    return own[0]


def _delete_own(process: int) -> None:
    """Deletes the folder of this process, not that of the process it was forked from."""
    if process == os.getpid() and (own := _own.pop(process, None)) is not None:
        shutil.rmtree(own[0], ignore_errors=True)
        os.close(own[1])
        delete_unused()


def cache_folder() -> Path:
    """TW_CACHE, else the user's cache folder of this tool; raises RuntimeError without a home folder."""
    if variable := os.environ.get(CACHE):
        return Path(variable).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("tracewarehouse", appauthor=False)
