"""Engines run tasks in other processes, on this machine or on a cluster of Ray or Spark.

The engine of this module has worker processes on this machine, where one that dies costs only its task.
Workers are started as commands, not by `multiprocessing`, which would import the caller's script again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tracewarehouse import hints, memory_limits, slim_imports
from tracewarehouse.engines.base import Engine as Engine
from tracewarehouse.engines.base import Failure as Failure
from tracewarehouse.engines.base import OnProgress as OnProgress
from tracewarehouse.engines.base import Task as Task
from tracewarehouse.engines.base import TaskProgress as TaskProgress
from tracewarehouse.engines.base import WorkerDied as WorkerDied
from tracewarehouse.engines.base import failure_of as failure_of
from tracewarehouse.engines.base import results_in_order as results_in_order
from tracewarehouse.errors import UnknownName

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_OUT_OF_MEMORY = hints.fill("likely out of memory; retry with {}", hints.option("jobs", 1))
_DIED = WorkerDied("the worker process died", _OUT_OF_MEMORY, transient=True)
_DIED_TWICE = WorkerDied("the worker process died twice", _OUT_OF_MEMORY, transient=True)


class LocalEngine:
    """Up to `jobs` worker processes. With one job or task, it runs in this process unless it `is_apart`."""

    name = "local"
    on_this_machine = True

    def __init__(self, jobs: int, is_apart: bool = False) -> None:
        self.slots, self._is_apart = jobs, is_apart
        self._idle: list[_Worker] = []

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the idle workers; busy ones are stopped when `run` ends."""
        while self._idle:
            self._idle.pop().stop()

    def run(
        self, tasks: Sequence[Task], progress: OnProgress, *, retry: bool = True
    ) -> Iterator[tuple[int, object]]:
        """See `Engine.run`."""
        if not self._is_apart and (self.slots == 1 or len(tasks) <= 1):
            for number, task in enumerate(tasks):
                try:
                    value = task.run(partial(progress, number))
                except Exception as error:
                    value = failure_of(error)
                yield number, value
            return
        lost: list[int] = []
        yield from self._run(tasks, range(len(tasks)), self.slots, progress, lost)
        lost.sort()
        if not retry:
            yield from ((number, _DIED) for number in lost)
            return
        again = [tasks[number] for number in lost]
        for index, value in self.run_alone(again, lambda index, *step: progress(lost[index], *step)):
            yield lost[index], value

    def run_alone(self, tasks: Sequence[Task], progress: OnProgress) -> Iterator[tuple[int, object]]:
        """See `Engine.run_alone`; each task runs in a worker process."""
        for number in range(len(tasks)):
            lost: list[int] = []
            yield from self._run(tasks, [number], 1, progress, lost)
            if lost:
                yield number, _DIED_TWICE

    def _run(
        self, tasks: Sequence[Task], numbers: Sequence[int], jobs: int, progress: OnProgress, lost: list[int]
    ) -> Iterator[tuple[int, object]]:
        from multiprocessing.connection import wait

        queue = deque(numbers)
        busy: dict[Connection, tuple[int, _Worker]] = {}
        try:
            while queue or busy:
                while queue and len(busy) < jobs:
                    worker = self._idle.pop() if self._idle else _Worker()
                    number = queue.popleft()
                    busy[worker.connection] = (number, worker)
                    worker.send(tasks[number])
                for connection in wait(list(busy)):
                    number, worker = busy[connection]  # type: ignore[index]
                    kind, value = worker.receive()
                    if kind == "progress":
                        progress(number, *value)  # type: ignore[misc]
                        continue
                    del busy[worker.connection]
                    if kind == "dead":
                        lost.append(number)
                        continue
                    self._idle.append(worker)
                    yield number, value
        finally:
            for _, worker in busy.values():
                worker.stop()


class _Worker:
    """A process that runs one task after the other and ends with its parent, however the parent ends."""

    def __init__(self) -> None:
        import subprocess
        from multiprocessing.connection import Pipe

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
        # A dead worker is noticed at the next `receive`.
        with suppress(OSError):
            self.connection.send(task)

    def receive(self) -> tuple[str, object]:
        """("progress", (done, total)), ("done", result), or ("dead", None)."""
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
    """The main loop of a worker: receive a task, run it, send its result."""
    from multiprocessing.connection import Connection

    # Ctrl-C reaches the whole process group; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory_limits.reuse_memory()
    slim_imports.install()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection = Connection(handle)
    with suppress(EOFError, OSError):
        while True:
            task: Task = connection.recv()
            try:
                value = task.run(lambda done, total: connection.send(("progress", (done, total))))
            except Exception as error:
                value = failure_of(error)
            connection.send(("done", value))


def _end_with_parent() -> None:
    # The parent holds the other end of stdin, which closes when the parent is gone.
    os.read(0, 1)
    os._exit(1)


# An engine, which stays open, or the name of one that is made for the call.
EngineOrName: TypeAlias = Engine | str
NAMES: Final = ("local", "ray", "spark")
# Below this number of events, sending tasks to other machines takes longer than the work: 10 million events
# are about 3 GB of JSON, some minutes of one core.
FEW_EVENTS: Final = 10_000_000
# Above it, one machine with 8 cores ingests for more than 5 minutes.
MANY_EVENTS: Final = 100_000_000


def engine(name: str = "local", *, address: str | None = None, jobs: int | None = None) -> Engine:
    """Makes an engine for the `engine` argument of `ingest`, `record`, `derive` and `on`; close it after use.

    Args:
        name: `local` (processes of this machine), or `ray` or `spark` (a cluster; extra of that name).
        address: The cluster: `auto` or HOST:PORT of Ray, a master of Spark such as `spark://HOST:PORT`
            (default: that of this process or of RAY_ADDRESS, else a new one on this machine).
        jobs: Maximum number of tasks at a time (default, local: one per core).

    Raises:
        UnknownName: There is no such engine.
        MissingExtra: The extra is not installed.
        EngineError: The cluster cannot be reached; raised later, when tasks run.

    Example:
        >>> with tw.engine(jobs=1) as engine:
        ...     wh.on(engine).kernel_summary()
    """
    if name not in NAMES:
        raise UnknownName("engine", name, NAMES)
    if name == "local":
        return LocalEngine(jobs or memory_limits.cores())
    from tracewarehouse.engines.clusters import RayEngine, SparkEngine

    return RayEngine(address, jobs) if name == "ray" else SparkEngine(address, jobs)


@contextmanager
def opened(chosen: EngineOrName, jobs: int | None = None) -> Iterator[Engine]:
    """The engine of a call: one that the caller made, which stays open, or a new one by name."""
    if not isinstance(chosen, str):
        yield chosen
        return
    made = engine(chosen, jobs=jobs)
    try:
        yield made
    finally:
        made.close()


def is_remote(chosen: EngineOrName | None) -> bool:
    """Whether tasks may run on other machines."""
    return chosen is not None and (chosen if isinstance(chosen, str) else chosen.name) != "local"


def advice(chosen: EngineOrName | None, events: int) -> str | None:
    """A notice if the other engine suits this number of events better."""
    if is_remote(chosen) and events < FEW_EVENTS:
        text = "{} events are few: below {} million, {} is faster"
        return hints.fill(text, f"{events:,}", FEW_EVENTS // 1_000_000, hints.option("engine", "local"))
    if not is_remote(chosen) and events >= MANY_EVENTS:
        text = "{} events are many: {} spreads them over machines"
        return hints.fill(text, f"{events:,}", hints.option("engine", "ray"))
    return None
