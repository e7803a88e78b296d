"""How many processes an ingest may use here, and how much memory each."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tracewarehouse.address_space import limit_bytes

# Below this a process takes longer to start than the work takes.
_WORTH_A_PROCESS_BYTES = 1 << 20
# What this process has open beside its workers, and what it has open for each of them while it starts one.
_OWN_FILES, _FILES_PER_PROCESS = 32, 2
_SHARE = 0.7
# A worker needs less, even for a trace of 1 GB: large traces spill to disk.
_PROCESS_BYTES = 700 << 20
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs(asked: int | None, paths: Iterable[Path]) -> int:
    """Processes for these files: as asked, else a core each where there is enough to do."""
    sizes = [path.stat().st_size for path in paths if path.exists()]
    if asked is None and sum(sizes) < 2 * _WORTH_A_PROCESS_BYTES:
        return 1
    wanted = asked or min(cores(), _processes_by_memory())
    return max(1, min(wanted, len(sizes), _processes_by_open_files()))


def threads(jobs: int) -> int:
    """Threads for each of so many processes."""
    return max(1, cores() // jobs)


def memory_bytes(jobs: int) -> int:
    """The memory limit of DuckDB in each of several processes."""
    share = int(_total_bytes() * _SHARE / jobs)
    limit = limit_bytes()
    return max(256 << 20, share if limit is None else min(share, limit // 2))


def _processes_by_memory() -> int:
    """As many processes as fit in memory."""
    return max(1, int(_total_bytes() * _SHARE) // _PROCESS_BYTES)


def _total_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    return total


def _processes_by_open_files() -> int:
    """As many processes as this one may have pipes to."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (most - _OWN_FILES) // _FILES_PER_PROCESS)
