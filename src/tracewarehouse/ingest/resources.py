"""Processes and memory that an ingest may use.

A large file is built with little memory: its columns go to a file, and freed memory goes back to the system
between phases. A small file is built in little time: in memory, and without huge pages.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

# For less trace text than this, starting a process takes longer than the work.
_WORTH_A_PROCESS_BYTES = 1 << 20
# Open files of this process without workers, and for each worker while it starts.
_OWN_FILES, _FILES_PER_PROCESS = 32, 2
_SHARE = 0.7
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Columns of more text than this go to a file. The size of compressed text is usually overestimated.
IN_MEMORY_BYTES: Final = 96 << 20
_SET_DISABLED: Final = 41  # PR_SET_THP_DISABLE
_GET_DISABLED: Final = 42  # PR_GET_THP_DISABLE
_lock: Final = Lock()
# Number of contexts that disable huge pages: the setting belongs to the process, not to a thread.
_users = 0


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs(requested: int | None, paths: Iterable[Path]) -> int:
    """Number of processes for these files: as requested, else one per core if there is enough work."""
    sizes = [path.stat().st_size for path in paths if path.exists()]
    if requested is None and sum(sizes) < 2 * _WORTH_A_PROCESS_BYTES:
        return 1
    return max(1, min(requested or cores(), len(sizes), _processes_by_open_files()))


def threads(jobs: int) -> int:
    """Threads per process."""
    return max(1, cores() // jobs)


def memory_bytes(jobs: int) -> int:
    """Memory limit of DuckDB in each process."""
    return max(256 << 20, int(_total_bytes() * _SHARE / jobs))


def _total_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    return total


def _processes_by_open_files() -> int:
    """Maximum number of processes that this one can have pipes to."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (most - _OWN_FILES) // _FILES_PER_PROCESS)


def is_large(text_bytes: int) -> bool:
    """Whether a source is built for low memory use rather than speed."""
    return text_bytes > IN_MEMORY_BYTES


@contextmanager
def system_allocator() -> Iterator[None]:
    """Arrow allocates from the system in this context: its own allocators keep freed memory."""
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        release_memory()


def release_memory() -> None:
    """Returns freed memory to the system if the C library supports it."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    return found


@contextmanager
def no_huge_pages() -> Iterator[None]:
    """The process gets no further huge pages in this context, if the system supports it.

    A short ingest allocates much memory once and writes to little of each huge page: Arrow's allocator opens
    one for each size and thread. Zeroing them took a third of the CPU time of a 55 MB file on a virtual
    machine, whose host allocates the memory only then.
    """
    prctl = _prctl()
    if prctl is None or (not _users and prctl(_GET_DISABLED, 0, 0, 0, 0) != 0):
        yield
        return
    _count(prctl, 1)
    try:
        yield
    finally:
        _count(prctl, -1)


def _count(prctl: Callable[..., int], more: int) -> None:
    global _users
    with _lock:
        _users += more
        prctl(_SET_DISABLED, int(_users > 0), 0, 0, 0)


@cache
def _prctl() -> Callable[..., int] | None:
    function = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only
    if function is not None:
        function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return function
