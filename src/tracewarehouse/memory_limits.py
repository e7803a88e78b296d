"""The cores and memory of this process: reuse of freed memory, limits on address space and control group.

Beyond the limit on the address space (`ulimit -v`), libraries crash; beyond that of the control group, the
system kills the process. Both are checked first.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

from tracewarehouse.errors import TwError

# Measured with DuckDB and pyarrow on 2 cores: 2.5 GB fail at exit, 3 GB run every command.
NEEDED_ADDRESS_BYTES: Final = 3_000 << 20
# `tw show` needs 140 MiB, `tw report` on 42 MB of trace 260 MiB, in part for libraries.
NEEDED_BYTES: Final = 256 << 20

_MEMBERSHIP: Final = Path("/proc/self/cgroup")
_MOUNTED: Final = Path("/sys/fs/cgroup")
# Version 1 says so if there is no limit.
_NO_LIMIT_BYTES: Final = 1 << 60
# Options of mallopt: M_ARENA_MAX; M_MMAP_THRESHOLD (at its maximum), M_TRIM_THRESHOLD, M_TOP_PAD.
_ONE_ARENA: Final = (-8, 1)
_REUSE: Final = (_ONE_ARENA, (-3, 32 << 20), (-1, (1 << 31) - 1), (-2, 32 << 20))


class Limits(Struct, frozen=True):
    """What a query may use; None: no limit. DuckDB and the rows of the result count as memory.

    Args:
        max_rows: Rows of the result (default 100,000).
        timeout_s: Time (seconds, default 30).
        memory_bytes: Memory (bytes, default 1 GB).

    Example:
        >>> wh.query("SELECT * FROM kernels", tw.Limits(max_rows=None))
    """

    max_rows: int | None = 100_000
    timeout_s: float | None = 30.0
    memory_bytes: int | None = 1_000_000_000


NO_LIMITS: Final = Limits(None, None, None)


def reuse_memory() -> None:
    """Freed memory of this process is reused at once, by all threads and by Arrow (if imported later).

    By default each large array gets new pages from the system, which clears them, and returns them: a tenth
    of the CPU time of an ingest. Only for processes of this package; what they no longer need for long is
    returned with `malloc_trim`.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _set_malloc(_REUSE)


def share_memory() -> None:
    """What a thread frees is reused by all threads, which otherwise each keep their own free memory.

    A report of many ranks needs 20 to 30 MB less. Only for processes of this package.
    """
    _set_malloc([_ONE_ARENA])


def _set_malloc(options: Iterable[tuple[int, int]]) -> None:
    import ctypes

    if (set_option := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # glibc only
        for option, value in options:
            set_option(option, value)


def address_space_bytes() -> int | None:
    """The limit on the address space of this process, None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def group_bytes() -> int | None:
    """The lowest memory limit of the control groups that this process is in, None if there is none."""
    found: list[int] = []
    with suppress(OSError):
        for path in _limit_files(_MEMBERSHIP.read_text(), _MOUNTED):
            with suppress(OSError, ValueError):
                found.append(int(path.read_text()))
    return min((limit for limit in found if limit < _NO_LIMIT_BYTES), default=None)


def half_bytes() -> int | None:
    """What DuckDB may use, which knows the memory of the machine only: half of the lower limit."""
    limits = [limit for limit in (address_space_bytes(), group_bytes()) if limit is not None]
    return min(limits) // 2 if limits else None


@cache
def _limit_files(membership: str, root: Path) -> tuple[Path, ...]:
    """Where limits may be: those of the group and of the groups above it that are visible here."""
    found: list[Path] = []
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mounted, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            mounted, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = mounted / group.strip("/")
        found += (above / name for above in (folder, *folder.parents) if above.is_relative_to(mounted))
    return tuple(found)


def check_settings() -> None:
    """Raises TwError with the size needed if a limit is too low for every command."""
    found = address_space_bytes()
    if found is not None and found < NEEDED_ADDRESS_BYTES:
        raise TwError(
            f"the address space is limited to {found >> 20} MiB, {NEEDED_ADDRESS_BYTES >> 20} MiB are needed",
            f"raise the limit: ulimit -v {NEEDED_ADDRESS_BYTES >> 10}",
        )
    check_group(NEEDED_BYTES, "")


def check_group(needed_bytes: int, what: str) -> None:
    """Raises TwError if the control group allows less than `what` needs; "" is every command."""
    found = group_bytes()
    if found is not None and found < needed_bytes:
        needed = f"{needed_bytes >> 20} MiB are needed" + (f" for {what}" if what else "")
        raise TwError(
            f"memory is limited to {found >> 20} MiB by the control group, {needed}",
            f"raise the memory limit of the container or job to {needed_bytes >> 20} MiB or more",
        )


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
