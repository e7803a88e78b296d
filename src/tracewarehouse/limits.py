"""What this process and its children may use: cores, memory, time.

Beyond the limit on the address space (`ulimit -v`), libraries crash; beyond that of the control group, the
system kills the process. Both are checked first.

Limits of SQL of users hold: a parent process watches the child that runs it, and kills it beyond them. DuckDB
counts neither the strings of a vector nor what a function allocates, and interrupts no function. The child
says on a pipe when a statement begins, with its limits, and when it has ended, so that nothing is killed
while it prints. The statements of one answer share the time. Only Linux shows the parent what the child
holds; elsewhere DuckDB's own limits remain.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, NoReturn

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
    limits: list[int] = []
    with suppress(OSError):
        for path in _limit_files(_MEMBERSHIP.read_text(), _MOUNTED):
            with suppress(OSError, ValueError):
                limits.append(int(path.read_text()))
    return min((limit for limit in limits if limit < _NO_LIMIT_BYTES), default=None)


def half_bytes(wanted: int | None = None) -> int | None:
    """What DuckDB may use, which knows only the machine: at most half of these limits, or `wanted`."""
    halves = [limit // 2 for limit in (address_space_bytes(), group_bytes()) if limit is not None]
    return min([*halves, *([] if wanted is None else [wanted])], default=None)


@cache
def _limit_files(membership: str, root: Path) -> tuple[Path, ...]:
    """Where limits may be: those of the group and of the groups above it that are visible here."""
    files: list[Path] = []
    for line in membership.splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mounted, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            mounted, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        folder = mounted / group.strip("/")
        files += (above / name for above in (folder, *folder.parents) if above.is_relative_to(mounted))
    return tuple(files)


def check_settings() -> None:
    """Raises TwError with the size needed if a limit is too low for every command."""
    limit = address_space_bytes()
    if limit is not None and limit < NEEDED_ADDRESS_BYTES:
        raise TwError(
            f"the address space is limited to {limit >> 20} MiB, {NEEDED_ADDRESS_BYTES >> 20} MiB are needed",
            f"raise the limit: ulimit -v {NEEDED_ADDRESS_BYTES >> 10}",
        )
    check_group(NEEDED_BYTES, "")


def check_group(needed_bytes: int, what: str) -> None:
    """Raises TwError if the control group allows less than `what` needs; "" is every command."""
    limit_bytes = group_bytes()
    if limit_bytes is not None and limit_bytes < needed_bytes:
        needed = f"{needed_bytes >> 20} MiB are needed" + (f" for {what}" if what else "")
        raise TwError(
            f"memory is limited to {limit_bytes >> 20} MiB by the control group, {needed}",
            f"raise the memory limit of the container or job to {needed_bytes >> 20} MiB or more",
        )


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# Between two looks at the child, and for DuckDB to end a statement by itself.
_INTERVAL_S, _GRACE_S = 0.02, 1.0
_MARGIN = 1.2
# A backstop for what allocates faster than the parent looks: on the address space, in memory limits.
_BACKSTOP = 4
_NEXT = b"0 0 -1 "  # what a child says before another answer
# The pipe to the parent that watches this process, and the file with the sizes of this process.
_watched: tuple[int, int] | None = None


class Killed(NamedTuple):
    """Why a child was killed: `memory`, `time`, or the signal that it did not end after; and its limits."""

    by: str | int
    memory_bytes: int
    timeout_s: float


def run_limited(work: Callable[[], NoReturn]) -> int | Killed:
    """Calls `work` in a child process; returns its exit code, or why it was killed.

    Without /proc, and where this process has threads already, `work` runs in this process.
    """
    if not can_watch() or threading.active_count() > 1:
        work()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, there is no exit code
    signal.signal(signal.SIGUSR1, signal.default_int_handler)
    messages, parent = os.pipe()
    if not (child := os.fork()):
        os.close(messages)
        import ctypes

        be_watched(parent)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with its parent
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both
        work()
    os.close(parent)
    signals: list[int] = []

    def pass_on(number: int, _frame: object) -> None:
        if number not in signals:  # a second one would interrupt the end of the command
            signals.append(number)
            os.kill(child, signal.SIGUSR1 if number == signal.SIGINT else number)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    killed = watch(child, messages, signals)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return killed or (code if code >= 0 else 128 - code)


def can_watch() -> bool:
    """Whether a parent can see what its child holds."""
    return os.access("/proc/self/statm", os.R_OK)


def be_watched(parent: int) -> None:
    """From now on this process says on the pipe `parent` when a statement begins and when it has ended."""
    global _watched
    _watched = parent, os.open("/proc/self/statm", os.O_RDONLY)


def begin_answer() -> None:
    """The statements that follow have the time of another answer."""
    if _watched is not None:
        os.write(_watched[0], _NEXT)


@contextmanager
def limited(memory_bytes: int | None, timeout_s: float | None) -> Iterator[None]:
    """If a parent watches this process, it kills it if the block takes longer or needs more memory."""
    if _watched is None:
        yield
        return
    parent, sizes = _watched
    address, resident = _sizes(sizes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most_bytes = inf
    if memory_bytes is not None:
        most_bytes = ((half_bytes(memory_bytes) or 0) + resident) * _MARGIN
        # Without a limit, `soft` is -1.
        resource.setrlimit(resource.RLIMIT_AS, (min(address + _BACKSTOP * memory_bytes, soft % 2**63), hard))
    os.write(parent, f"{most_bytes} {memory_bytes or 0} {timeout_s or inf} ".encode())
    try:
        yield
    finally:
        os.write(parent, b"0 0 0 ")
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def watch(child: int, messages: int, signals: Sequence[int]) -> Killed | None:
    """Waits until the child closes the pipe, or kills it in a statement that exceeds its limits.

    `signals` are those that were passed on to the child: it has ended soon after the first, or is killed.
    """
    most_bytes = memory_bytes = timeout_s = spent_s = began = deadline = 0.0
    with Path(f"/proc/{child}/statm").open("rb") as statm:
        while True:
            if select.select([messages], [], [], _INTERVAL_S if most_bytes else None)[0]:
                words = os.read(messages, select.PIPE_BUF).split()
                if not words:
                    return None
                spent_s = 0.0 if b"-1" in words else spent_s + (monotonic() - began if most_bytes else 0)
                began = monotonic()
                most_bytes, memory_bytes, timeout_s = map(float, words[-3:])
                deadline = began + timeout_s - spent_s + _GRACE_S
                continue
            deadline = min(deadline, monotonic() + _GRACE_S) if signals else deadline
            is_late = monotonic() > deadline
            if (is_late or _sizes(statm.fileno())[1] > most_bytes) and _kill(child, messages):
                by = (signals[0] if signals else "time") if is_late else "memory"
                return Killed(by, int(memory_bytes), timeout_s)


def _sizes(file: int) -> list[int]:
    """The address space of a process and what of it is in memory, in bytes; `file` is its `statm`."""
    pages = os.pread(file, select.PIPE_BUF, 0).split()[:2]
    return [int(page) * resource.getpagesize() for page in pages]


def _kill(child: int, messages: int) -> bool:
    """Kills the child, unless its statement has ended meanwhile: it may be printing."""
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    has_ended = bool(select.select([messages], [], [], 0)[0])
    os.kill(child, signal.SIGCONT if has_ended else signal.SIGKILL)
    return not has_ended
