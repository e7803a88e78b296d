"""Processes and memory that an ingest may use.

A large file is built with little memory: its columns go to a file, and freed memory goes back to the system
between phases. A small file is built in little time, in memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tracewarehouse.limits import address_space_bytes, check_group, group_bytes
from tracewarehouse.limits import cores as cores

# For less trace text than this, starting a process takes longer than the work.
_WORTH_A_PROCESS_BYTES = 1 << 20
# The same for tables that are built or derived from stored events: that takes less time than reading text.
_REBUILT_PER_PROCESS_BYTES = 16 << 20
# Open files of this process without workers, and for each worker while it starts.
_OWN_FILES, _FILES_PER_PROCESS = 32, 2
_SHARE = 0.7
# A worker needs less, even for a trace of 1 GB: large traces spill to disk.
_PROCESS_BYTES = 700 << 20
# Columns of more text than this go to a file. The size of compressed text is usually overestimated.
IN_MEMORY_BYTES: Final = 96 << 20
# Peak memory of a process by bytes of text: with columns in memory, and in a file (small and large traces).
# Measured with 42 MB to 4.8 GB of text.
_IN_MEMORY: Final = (220 << 20, 4.2)
_IN_FILE: Final = ((250 << 20, 1.2), (480 << 20, 0.09))


def jobs(requested: int | None, paths: Iterable[Path], object_bytes: Iterable[int] = ()) -> int:
    """Number of processes for these files: as requested, else one per core if there is enough work.

    `object_bytes` are the sizes of further files, in an object store.
    """
    sizes = [*(path.stat().st_size for path in paths if path.exists()), *object_bytes]
    if requested is None and sum(sizes) < 2 * _WORTH_A_PROCESS_BYTES:
        return 1
    processes = requested or min(cores(), _processes_by_memory())
    # Each process has pipes to this one, whose number of open files is limited.
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        processes = min(processes, (most - _OWN_FILES) // _FILES_PER_PROCESS)
    return max(1, min(processes, len(sizes)))


def rebuild_jobs(text_bytes: Iterable[int]) -> int:
    """Number of processes that build or derive tables of stored ranks, by the size of their trace texts."""
    sizes = [*text_bytes]
    return max(1, min(cores(), len(sizes), 1 + sum(sizes) // _REBUILT_PER_PROCESS_BYTES))


def threads(jobs: int) -> int:
    """Threads per process."""
    return max(1, cores() // jobs)


def memory_bytes(jobs: int) -> int:
    """Memory limit of DuckDB in each process."""
    share = int(_total_bytes() * _SHARE / jobs)
    limit = address_space_bytes()
    return max(256 << 20, share if limit is None else min(share, limit // 2))


def _processes_by_memory() -> int:
    """Maximum number of processes that fit in memory."""
    return max(1, int(_total_bytes() * _SHARE) // _PROCESS_BYTES)


def _total_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = group_bytes()
    return total if limit is None else min(total, limit)


def is_large(text_bytes: int) -> bool:
    """Whether a source is built for low memory use rather than speed."""
    if text_bytes > IN_MEMORY_BYTES:
        return True
    limit = group_bytes()
    return limit is not None and _bytes(_IN_MEMORY, text_bytes) > limit


def check_memory(text_bytes: int) -> None:
    """Raises TwError if the control group of this process has too little memory for a source of this size."""
    check_group(min(_bytes(line, text_bytes) for line in _IN_FILE), f"{text_bytes >> 20} MiB of trace")


def _bytes(line: tuple[int, float], text_bytes: int) -> int:
    base, per_byte = line
    return base + int(per_byte * text_bytes)


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
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    return trim
