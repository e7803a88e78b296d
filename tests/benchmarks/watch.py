"""Runs a command and measures wall and CPU time, and the memory of all its processes."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO

_EVERY_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Watched:
    """A finished command: exit code, output, seconds, and peak memory of its process tree."""

    code: int
    out: str
    err: str
    seconds: float
    cpu_s: float
    peak_bytes: int


def watch(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Watched:
    """Runs a command until it ends.

    CPU time includes that of finished children. Memory is resident memory, sampled and summed over
    the process tree (shared memory counts for each process), and at least that of the largest process.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=dict(env), cwd=cwd)
        ended, peak = threading.Event(), [0]
        sampler = threading.Thread(target=_sample, args=(process.pid, ended, peak))
        sampler.start()
        _, status, used = os.wait4(process.pid, 0)
        seconds = perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        sampler.join()
        texts = [_text(each) for each in (out, err)]
    most = max(peak[0], used.ru_maxrss * 1024)
    return Watched(process.returncode, *texts, seconds, used.ru_utime + used.ru_stime, most)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def _sample(pid: int, ended: threading.Event, peak: list[int]) -> None:
    while not ended.wait(_EVERY_S):
        peak[0] = max(peak[0], sum(_resident(each) for each in _tree(pid)))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in _read(thread / "children").split():
                yield from _tree(int(child))


def _resident(pid: int) -> int:
    fields = _read(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * _PAGE if fields else 0


def _read(path: Path) -> str:
    """A file of /proc; empty if the process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""
