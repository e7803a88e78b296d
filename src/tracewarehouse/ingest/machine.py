"""How many processes an ingest may use here, and how much memory each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# Below this a process takes longer to start than the work takes.
_WORTH_A_PROCESS_BYTES = 1 << 20
# Below this a thread more costs a sixth more processor time and saves none.
_WORTH_A_THREAD_BYTES = 48 << 20
_SHARE = 0.7
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def jobs(asked: int | None, paths: Iterable[Path]) -> int:
    """Processes for these files: as asked, else a core each where there is enough to do."""
    sizes = [path.stat().st_size for path in paths if path.exists()]
    if asked is None and sum(sizes) < 2 * _WORTH_A_PROCESS_BYTES:
        return 1
    return max(1, min(asked or cores(), len(sizes)))


def threads(jobs: int) -> int:
    """Threads for each of so many processes."""
    return max(1, cores() // jobs)


def threads_for(text_bytes: int, jobs: int) -> int:
    """DuckDB's threads for a file of so much text, in one of so many processes.

    Reading, making and writing tables have a thread each; more of them pay for large files alone.
    """
    return min(threads(jobs), max(1, text_bytes // _WORTH_A_THREAD_BYTES))


def memory_bytes(jobs: int) -> int:
    """What DuckDB may take in each of so many processes, at most."""
    return max(256 << 20, int(_total_bytes() * _SHARE / jobs))


def _total_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int(_CGROUP_LIMIT.read_text()))
    return total
