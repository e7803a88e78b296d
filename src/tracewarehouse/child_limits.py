"""Limits that hold: a parent process watches the child that runs SQL of users, and kills it beyond them.

DuckDB counts neither the strings of a vector nor what a function allocates, and interrupts no function. The
child says on a pipe when a statement begins, with its limits, and when it has ended, so that nothing is
killed while it prints. The statements of one answer share the time. Only Linux shows the parent what the
child holds; elsewhere DuckDB's own limits remain.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple, NoReturn

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
    from tracewarehouse.memory_limits import half_bytes

    parent, sizes = _watched
    address, resident = _sizes(sizes)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = inf
    if memory_bytes is not None:
        most = (min(memory_bytes, half_bytes() or memory_bytes) + resident) * _MARGIN
        # Without a limit, `soft` is -1.
        resource.setrlimit(resource.RLIMIT_AS, (min(address + _BACKSTOP * memory_bytes, soft % 2**63), hard))
    os.write(parent, f"{most} {memory_bytes or 0} {timeout_s or inf} ".encode())
    try:
        yield
    finally:
        os.write(parent, b"0 0 0 ")
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def watch(child: int, messages: int, signals: Sequence[int]) -> Killed | None:
    """Waits until the child closes the pipe, or kills it in a statement that exceeds its limits.

    `signals` are those that were passed on to the child: it has ended soon after the first, or is killed.
    """
    most = memory_bytes = timeout_s = spent_s = began = until = 0.0
    with Path(f"/proc/{child}/statm").open("rb") as statm:
        while True:
            if select.select([messages], [], [], _INTERVAL_S if most else None)[0]:
                said = os.read(messages, select.PIPE_BUF).split()
                if not said:
                    return None
                spent_s = 0.0 if b"-1" in said else spent_s + (monotonic() - began if most else 0)
                began = monotonic()
                most, memory_bytes, timeout_s = map(float, said[-3:])
                until = began + timeout_s - spent_s + _GRACE_S
                continue
            until = min(until, monotonic() + _GRACE_S) if signals else until
            is_late = monotonic() > until
            if (is_late or _sizes(statm.fileno())[1] > most) and _kill(child, messages):
                by = (signals[0] if signals else "time") if is_late else "memory"
                return Killed(by, int(memory_bytes), timeout_s)


def _sizes(file: int) -> list[int]:
    """The address space of a process and what of it is in memory, in bytes; `file` is its `statm`."""
    pages = os.pread(file, select.PIPE_BUF, 0).split()[:2]
    return [int(each) * resource.getpagesize() for each in pages]


def _kill(child: int, messages: int) -> bool:
    """Kills the child, unless its statement has ended meanwhile: it may be printing."""
    os.kill(child, signal.SIGSTOP)
    os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    has_ended = bool(select.select([messages], [], [], 0)[0])
    os.kill(child, signal.SIGCONT if has_ended else signal.SIGKILL)
    return not has_ended
