"""Work in processes of their own: one that dies costs only what it was working on.

Workers are started by command and not by `multiprocessing`, which would run the caller's script again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Protocol

from tracewarehouse import hints
from tracewarehouse.errors import TwError, is_interrupt
from tracewarehouse.slim_imports import block_pandas

Tell = Callable[[int, int], None]
Told = Callable[[int, int, int], None]


class Task(Protocol):
    """Something to be done, in this process or another: it and its result can be pickled."""

    def run(self, tell: Tell) -> object: ...


@dataclass(frozen=True)
class Failure:
    """Why a task gave nothing; `details` is for developers.

    `passing`: it was the disk, the memory or the process, and the same task may succeed another time.
    """

    message: str
    hint: str | None = None
    details: str = ""
    passing: bool = False


@dataclass(frozen=True)
class Died(Failure):
    """The worker process ended in the middle of the task."""


_MEMORY = hints.fill("likely out of memory; retry with {}", hints.option("jobs", 1))
_DIED = Died("the worker process died", _MEMORY, passing=True)
_DIED_TWICE = Died("the worker process died twice", _MEMORY, passing=True)


class Workers:
    """Up to `jobs` processes; with one job the tasks run in this process."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._idle: list[_Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.stop()

    def run(self, tasks: Sequence[Task], told: Told, *, retry: bool = True) -> Iterator[tuple[int, object]]:
        """Each task's number with its result or Failure, as they finish.

        `told(number, done, total)` is called as tasks report how far they are. A task whose worker dies is
        tried once more when it is alone: what killed it may have been the memory of the others. Without
        `retry` it gives Died.
        """
        if self.jobs == 1 or len(tasks) <= 1:
            for number, task in enumerate(tasks):
                yield number, attempt(task, _telling(told, number))
            return
        lost: list[int] = []
        yield from self._run(tasks, range(len(tasks)), self.jobs, told, lost)
        if not retry:
            yield from ((number, _DIED) for number in sorted(lost))
            return
        again = [tasks[number] for number in sorted(lost)]
        for number, value in self.run_alone(again, lambda index, *step: told(sorted(lost)[index], *step)):
            yield sorted(lost)[number], value

    def run_alone(self, tasks: Sequence[Task], told: Told) -> Iterator[tuple[int, object]]:
        """Like `run`, for tasks whose worker died: each in a process, and no other task beside it."""
        for number in range(len(tasks)):
            lost: list[int] = []
            yield from self._run(tasks, [number], 1, told, lost)
            if lost:
                yield number, _DIED_TWICE

    def _run(
        self, tasks: Sequence[Task], numbers: Sequence[int], jobs: int, told: Told, lost: list[int]
    ) -> Iterator[tuple[int, object]]:
        queue, busy = deque(numbers), dict[Connection, tuple[int, _Worker]]()
        try:
            while queue or busy:
                while queue and len(busy) < jobs:
                    worker = self._idle.pop() if self._idle else _Worker()
                    number = queue.popleft()
                    busy[worker.connection] = (number, worker)
                    worker.send(tasks[number])
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    number, worker = busy[connection]
                    kind, value = worker.receive()
                    if kind == "told":
                        told(number, *value)  # type: ignore[misc]
                        continue
                    del busy[connection]
                    if kind == "dead":
                        lost.append(number)
                        continue
                    self._idle.append(worker)
                    yield number, value
        finally:
            for _, worker in busy.values():
                worker.stop()


def _telling(told: Told, number: int) -> Tell:
    return lambda done, total: told(number, done, total)


def attempt(task: Task, tell: Tell) -> object:
    """The task's result, or a Failure for whatever it raised."""
    try:
        return task.run(tell)
    except TwError as error:
        return Failure(error.message, error.hint, traceback.format_exc(), _is_passing(error.__cause__))
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = hints.Hint(
            "internal error; please report it", "internal error; rerun with --debug and report it"
        )
        return Failure(f"{type(error).__name__}: {reason}", hint, traceback.format_exc(), _is_passing(error))


def _is_passing(error: BaseException | None) -> bool:
    return isinstance(error, OSError | MemoryError)


class _Worker:
    """A process that runs tasks one after the other; it ends with this process, however that ends."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import serve; serve({theirs.fileno()})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        theirs.close()

    def send(self, task: Task) -> None:
        # A worker that is already dead is noticed at the next receive.
        with suppress(OSError):
            self.connection.send(task)

    def receive(self) -> tuple[str, object]:
        """("told", …), ("done", result), or ("dead", None)."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self.stop()
            return "dead", None
        return kind, value

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()
        if self._process.stdin:
            self._process.stdin.close()


def serve(handle: int) -> None:
    """A worker's life: take a task, do it, send what came of it."""
    # Ctrl-C reaches the whole group: the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    block_pandas()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection = Connection(handle)
    with suppress(EOFError, OSError):
        while True:
            task: Task = connection.recv()
            value = attempt(task, lambda done, total: connection.send(("told", (done, total))))
            connection.send(("done", value))


def _end_with_parent() -> None:
    # The parent holds the other end of stdin: it closes when the parent is gone.
    os.read(0, 1)
    os._exit(1)
