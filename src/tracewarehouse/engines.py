"""Engines run tasks in other processes, on this machine or on a cluster of Ray or Spark.

Tasks are picklable, and each has one result or one failure. A task may run twice, even at the same time, when
a worker is lost: tasks that write commit under names that make a second commit harmless.

Worker processes on this machine are started as commands, not by `multiprocessing`, which would import the
caller's script again; one that dies costs only its task. A worker of a cluster first compares its versions
with those of the process that sent the task; the cluster runs a task again if its worker is lost, up to three
times.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from importlib.util import find_spec
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse import hints, limits, slim_imports
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.errors import (
    EngineError,
    MissingExtra,
    StoreUnavailable,
    Terminated,
    TwError,
    UnknownName,
    WorkerMismatch,
    is_interrupt,
)
from tracewarehouse.temp_folders import new_folder
from tracewarehouse.version import __version__

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.connection import Connection
    from pathlib import Path

# Called by a task with the work done and the total, in any unit.
TaskProgress = Callable[[int, int], None]
# Called by an engine with the number of a task, its work done and its total.
OnProgress = Callable[[int, int, int], None]


class Task(Protocol):
    """Work for one worker. The task and its result are picklable and small."""

    def run(self, progress: TaskProgress, /) -> object: ...


class TaskFailure(Struct, frozen=True):
    """Why a task has no result; `details` is a traceback for developers."""

    message: str
    hint: str | None = None
    details: str = ""


class StoreFailed(TaskFailure, frozen=True):
    """The task raised StoreUnavailable; `transient` if the store did not answer."""

    transient: bool = False


class WorkerDied(TaskFailure, frozen=True):
    """The worker process died while it ran the task."""


def results_in_order(engine: Engine, tasks: Sequence[Task]) -> list[object]:
    """The results of all tasks, in their order. Raises the error of the first task without one.

    That is a TwError, or StoreUnavailable. With more than one slot, a worker also runs a single task.
    """
    run = engine.run_alone if len(tasks) == 1 and engine.slots > 1 else engine.run
    results = [result for _, result in sorted(run(tasks, lambda *_: None), key=lambda item: item[0])]
    for result in results:
        if isinstance(result, StoreFailed):
            raise StoreUnavailable(result.message, result.hint, result.transient)
        if isinstance(result, TaskFailure):
            raise TwError(result.message, result.hint)
    return results


def task_failure(error: Exception) -> TaskFailure:
    """The failure of a task that raised an error, in its handler; an interrupt is raised again."""
    if isinstance(error, StoreUnavailable):
        return StoreFailed(error.message, error.hint, traceback.format_exc(), error.is_transient)
    if isinstance(error, TwError):
        return TaskFailure(error.message, error.hint, traceback.format_exc())
    if is_interrupt(error):
        raise KeyboardInterrupt from error
    if isinstance(error, MemoryError):
        message, hint = "out of memory", hints.fill("retry with {}", hints.option("jobs", 1))
    else:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        hint = hints.Hint(
            "internal error; please report it", "internal error; rerun with --debug and report it"
        )
        message = f"{type(error).__name__}: {reason}"
    return TaskFailure(message, hint, traceback.format_exc())


_OUT_OF_MEMORY = hints.fill("likely out of memory; retry with {}", hints.option("jobs", 1))
_DIED = WorkerDied("the worker process died", _OUT_OF_MEMORY)
_DIED_TWICE = WorkerDied("the worker process died twice", _OUT_OF_MEMORY)


class LocalEngine:
    """Up to `jobs` worker processes. With one job or task, it runs in this process unless it `is_apart`.

    `slots`: how many tasks run at a time; `on_this_machine`: whether all workers read its files.
    """

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
        """Yields the number of each task with its result or TaskFailure, once each, in order of completion.

        A task whose worker dies runs once more, alone: the memory of the other tasks may have caused it.
        Without `retry` it yields WorkerDied.
        """
        if not self._is_apart and (self.slots == 1 or len(tasks) <= 1):
            for number, task in enumerate(tasks):
                try:
                    value = task.run(partial(progress, number))
                except Exception as error:
                    value = task_failure(error)
                yield number, value
            return
        lost: list[int] = []
        yield from self._run(tasks, range(len(tasks)), self.slots, progress, lost)
        lost.sort()
        if not retry:
            yield from ((number, _DIED) for number in lost)
            return
        lost_tasks = [tasks[number] for number in lost]
        for index, value in self.run_alone(lost_tasks, lambda index, *step: progress(lost[index], *step)):
            yield lost[index], value

    def run_alone(self, tasks: Sequence[Task], progress: OnProgress) -> Iterator[tuple[int, object]]:
        """Like `run`, one task after the other, each in a worker process without any other task beside it."""
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
    limits.reuse_memory()
    slim_imports.install()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection = Connection(handle)
    with suppress(EOFError, OSError):
        while True:
            task: Task = connection.recv()
            try:
                value = task.run(lambda done, total: connection.send(("progress", (done, total))))
            except Exception as error:
                value = task_failure(error)
            connection.send(("done", value))


def _end_with_parent() -> None:
    # The parent holds the other end of stdin, which closes when the parent is gone.
    os.read(0, 1)
    os._exit(1)


class Peer(Struct, frozen=True):
    """The versions that decide the rows of every table and analysis: equal on all machines of a call."""

    tracewarehouse: str
    contracts: str
    duckdb: str

    @classmethod
    def here(cls) -> Peer:
        """The versions of this process."""
        from importlib.metadata import version

        return cls(__version__, Catalog.load().digest[:12], version("duckdb"))

    def mismatch(self, driver: Peer) -> str | None:
        """How this worker differs from the process that sent a task; None if it does not."""
        mine, theirs = asdict(self), asdict(driver)
        different = [
            f"{name} {mine[name]} instead of {theirs[name]}" for name in mine if mine[name] != theirs[name]
        ]
        return f"worker on {os.uname().nodename} has {', '.join(different)}" if different else None


def run_task(driver: Peer, pickled: bytes) -> object:
    """Runs in a worker: the result of a task or a TaskFailure; WorkerMismatch if versions differ."""
    if (difference := Peer.here().mismatch(driver)) is not None:
        return _mismatch(difference)
    task: Task = pickle.loads(pickled)
    try:
        return task.run(lambda *_: None)  # progress does not leave the worker
    except Exception as error:
        return task_failure(error)


def _mismatch(what: str) -> WorkerMismatch:
    return WorkerMismatch(what, "install the same versions on every node of the cluster")


_RETRIES = 3
_CONNECT_S = 5.0
_DIED_AGAIN = f"the worker process died {_RETRIES + 1} times"
_MORE_MEMORY = "likely out of memory; use nodes with more memory per CPU"


class ClusterEngine:
    """Runs each task on one CPU of a cluster; in a process that uses one already, on that.

    `address` selects a running cluster. Without it, a new one starts on this machine with `jobs` workers,
    and ends with the engine.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]  # modules of the extra

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        if not all(map(find_spec, self.needs)):
            hint = f"pip install 'tracewarehouse[{self.name}]'"
            raise MissingExtra(f"the engine {self.name} needs {' and '.join(self.needs)}", hint)
        self._address, self._jobs = address, jobs
        self._folder: Path | None = None
        self._owned = self._is_local = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def slots(self) -> int:
        """The CPUs of the cluster, at most `jobs`."""
        self._start()
        cpus = max(1, self._cpus())
        return min(cpus, self._jobs or cpus)

    @property
    def on_this_machine(self) -> bool:
        """Whether all workers read the files of this machine."""
        self._start()
        return self._is_local

    def close(self) -> None:
        """Ends the cluster if this engine started it, and deletes its folder."""
        if self._owned:
            self._owned = False
            self._stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def run(
        self, tasks: Sequence[Task], progress: OnProgress, *, retry: bool = True
    ) -> Iterator[tuple[int, object]]:
        """See `LocalEngine.run`; tasks do not report their progress."""
        yield from self._run_some(tasks, 2 * self.slots if tasks else 1)

    def run_alone(self, tasks: Sequence[Task], progress: OnProgress) -> Iterator[tuple[int, object]]:
        """See `LocalEngine.run_alone`."""
        yield from self._run_some(tasks, 1)

    def _run_some(self, tasks: Sequence[Task], at_once: int) -> Iterator[tuple[int, object]]:
        """At most `at_once` tasks are submitted at a time, so that a driver that ends leaves little work."""
        self._start()
        peer, waiting = Peer.here(), list(range(len(tasks)))[::-1]
        submitted: dict[Any, int] = {}
        try:
            while waiting or submitted:
                while waiting and len(submitted) < at_once:
                    number = waiting.pop()
                    submitted[self._submit(peer, pickle.dumps(tasks[number]))] = number
                done = self._first_done(submitted)
                result = self._result(done)
                if isinstance(result, WorkerMismatch):
                    raise _mismatch(result.message)
                yield submitted.pop(done), result
        finally:
            self._cancel(submitted)

    def _start(self) -> None:
        """Connects to the cluster, or starts one, at the first call."""
        raise NotImplementedError

    def _cpus(self) -> int:
        raise NotImplementedError

    def _stop(self) -> None:
        raise NotImplementedError

    def _submit(self, driver: Peer, pickled: bytes) -> Any:
        raise NotImplementedError

    def _first_done(self, submitted: Collection[Any]) -> Any:
        raise NotImplementedError

    def _result(self, done: Any) -> object:
        """What a task returned, or why there is nothing."""
        raise NotImplementedError

    def _cancel(self, submitted: Collection[Any]) -> None:
        raise NotImplementedError


# Ray puts sockets into its folder, whose paths may have 107 bytes.
_LONGEST_TEMP_DIR = 40
# Of a local cluster: results are small, or files.
_OBJECT_STORE_BYTES = 256 << 20
_LOCAL, _AUTO = "local", "auto"


class RayEngine(ClusterEngine):
    """Tasks of Ray. `address`: `auto` or HOST:PORT; without it, that in RAY_ADDRESS."""

    name = "ray"
    needs = ("ray",)
    _run: Any = None

    def _start(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        self._ray: Any = ray
        if not ray.is_initialized():
            self._connect(ray)
        if self._run is None:
            remote = ray.remote(num_cpus=1, max_retries=_RETRIES, retry_exceptions=False)
            self._run = remote(run_task)

    def _connect(self, ray: Any) -> None:
        address = self._address or os.environ.get("RAY_ADDRESS") or _LOCAL
        settings: dict[str, Any] = {"address": address}
        if address == _LOCAL:
            settings |= {
                "num_cpus": self._jobs,
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE_BYTES,
            }
            if len(tempfile.gettempdir()) <= _LONGEST_TEMP_DIR:
                self._folder = new_folder()
                settings["_temp_dir"] = str(self._folder)
        # By default, workers of Ray give way to all other processes of the machine.
        with _reached("Ray", address, "start one with ray start --head"), _workers(RAY_worker_niceness="0"):
            ray.init(**settings, log_to_driver=False, logging_level="ERROR")
        # Ray prints lost workers to stdout, where the results of a command go.
        ray._private.worker._worker_logs_enabled = False
        self._owned, self._is_local = True, address == _LOCAL

    def _cpus(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 1))

    def _stop(self) -> None:
        self._run = None
        self._ray.shutdown()

    def _submit(self, driver: Peer, pickled: bytes) -> Any:
        return self._run.remote(driver, pickled)

    def _first_done(self, submitted: Collection[Any]) -> Any:
        (done, *_), _ = self._ray.wait(list(submitted), num_returns=1)
        return done

    def _cancel(self, submitted: Collection[Any]) -> None:
        for task in submitted:
            self._ray.cancel(task, force=True)

    def _result(self, done: Any) -> object:
        errors = self._ray.exceptions
        try:
            return self._ray.get(done)
        except errors.OutOfMemoryError as error:
            return WorkerDied("the worker ran out of memory", _last_line(error))
        except errors.WorkerCrashedError as error:
            return WorkerDied(_DIED_AGAIN, _MORE_MEMORY, _last_line(error))
        except (errors.NodeDiedError, errors.LocalRayletDiedError) as error:
            hint = "ray status lists the nodes; run it again when they are up"
            return WorkerDied("a node of the Ray cluster was lost", hint, _last_line(error))
        except errors.RayError as error:
            return TaskFailure(f"Ray: {_last_line(error)}", "tracewarehouse must be installed on every node")


class SparkEngine(ClusterEngine):
    """Tasks of Spark, each a job of one row. `address`: a master such as `spark://HOST:PORT` or `yarn`."""

    name = "spark"
    needs = ("pyspark", "pandas")
    _session: Any = None

    def _start(self) -> None:
        if self._session is not None:
            return
        from concurrent.futures import ThreadPoolExecutor

        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        from pyspark.sql import SparkSession

        self._session = SparkSession.getActiveSession()
        if self._session is None:
            self._session = self._connect(SparkSession)
        self._is_local = self._session.sparkContext.master.startswith("local")
        self._group = token_hex(8)
        self._threads = ThreadPoolExecutor(2 * self.slots)

    def _connect(self, session: Any) -> Any:
        import subprocess

        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway

        if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
            raise EngineError("the engine spark needs Java", "install Java 17, or set JAVA_HOME")
        self._folder = new_folder()
        master = self._address or f"local[{self._jobs or '*'},{_RETRIES + 1}]"
        settings = {
            "spark.master": master,
            "spark.app.name": "tracewarehouse",
            "spark.task.maxFailures": str(_RETRIES + 1),
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self._folder),
            "spark.sql.warehouse.dir": str(self._folder),
        }
        if master.startswith("local"):
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        conf = SparkConf().setAll([*settings.items()])
        hint = "start one with start-master.sh"
        with _reached("Spark", master, hint), _workers(PYSPARK_PYTHON=sys.executable):
            # The JVM logs each lost worker. It ends with this process, and serves the next session.
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            gateway = SparkContext._gateway or launch_gateway(conf, quiet)
            session_of_context = session(SparkContext(gateway=gateway, conf=conf))
        self._owned = True
        return session_of_context

    def _cpus(self) -> int:
        return int(self._session.sparkContext.defaultParallelism)

    def _stop(self) -> None:
        self._session.stop()
        self._session = None

    def close(self) -> None:
        """See `ClusterEngine.close`."""
        if self._session is not None:
            self._threads.shutdown()
        super().close()
        self._session = None

    def _submit(self, driver: Peer, pickled: bytes) -> Future[Any]:
        return self._threads.submit(self._collected, pickle.dumps((driver, pickled)))

    def _collected(self, task: bytes) -> object:
        """Runs a job and waits for it, in a thread; Spark repeats its task."""
        self._session.sparkContext.setJobGroup(self._group, "tracewarehouse", interruptOnCancel=True)
        rows = self._session.createDataFrame([(task,)], "bytes binary").coalesce(1)
        ((result,),) = rows.mapInArrow(run_batches, "bytes binary").collect()
        return pickle.loads(result)

    def _first_done(self, submitted: Collection[Any]) -> Any:
        from concurrent.futures import FIRST_COMPLETED, wait

        return next(iter(wait(submitted, return_when=FIRST_COMPLETED).done))

    def _cancel(self, submitted: Collection[Any]) -> None:
        if [job for job in submitted if not job.cancel()]:
            self._session.sparkContext.cancelJobGroup(self._group)

    def _result(self, done: Any) -> object:
        try:
            return done.result()
        except Exception as error:  # of Py4J, with the text of Spark's
            message = str(error)
            if "Python worker exited unexpectedly" in message or "ExecutorLostFailure" in message:
                return WorkerDied(_DIED_AGAIN, _MORE_MEMORY, message)
            reason = message.partition("\n")[0]
            return TaskFailure(f"Spark: {reason}", "tracewarehouse must be installed on every node", message)


def run_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs in a worker of Spark: Arrow batches of tasks in, their results out."""
    for batch in batches:
        results = [run_task(*pickle.loads(pickled)) for pickled in batch.column(0).to_pylist()]
        yield batch.from_pydict({"bytes": [pickle.dumps(result) for result in results]})


@contextmanager
def _reached(cluster: str, address: str, how_to_start: str) -> Iterator[None]:
    """Raises EngineError if nothing answers at HOST:PORT, which clusters try for minutes, or none starts.

    Keeps the handlers of signals: that of Ray for SIGTERM exits at once, that of Spark ends every job.
    """
    import socket

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if host and port.isdecimal():
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
        # Clusters print messages to stdout, where the results of a command go.
        with redirect_stdout(sys.stderr):
            yield
    except SystemExit as error:
        raise Terminated from error
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        problem = "no cluster runs on this machine" if address == _AUTO else reason
        hint = hints.fill("{}, or leave out {}", how_to_start, hints.option("engine_address"))
        raise EngineError(f"{cluster} at {address}: {problem}", hint) from error
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextmanager
def _workers(**environment: str) -> Iterator[None]:
    """Workers of a cluster that is started here import the modules that this process can import."""
    previous = dict(os.environ)
    path = os.pathsep.join(path for path in sys.path if path)
    os.environ.update({**environment, **previous, "PYTHONPATH": path})
    try:
        yield
    finally:
        for name in ("PYTHONPATH", *environment):
            os.environ.pop(name, None)
            if name in previous:
                os.environ[name] = previous[name]


def _last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


# It runs tasks, at most `slots` at a time. Use it as a context manager, or call `close`.
Engine: TypeAlias = LocalEngine | ClusterEngine
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
        return LocalEngine(jobs or limits.cores())
    return RayEngine(address, jobs) if name == "ray" else SparkEngine(address, jobs)


@contextmanager
def opened(chosen: EngineOrName, jobs: int | None = None) -> Iterator[Engine]:
    """The engine of a call: one that the caller made, which stays open, or a new one by name."""
    if not isinstance(chosen, str):
        yield chosen
        return
    engine_of_call = engine(chosen, jobs=jobs)
    try:
        yield engine_of_call
    finally:
        engine_of_call.close()


def is_remote(chosen: EngineOrName | None) -> bool:
    """Whether tasks may run on other machines."""
    return chosen is not None and (chosen if isinstance(chosen, str) else chosen.name) != "local"


def advice(chosen: EngineOrName | None, events: int) -> str | None:
    """A notice if the other engine suits this number of events better."""
    if is_remote(chosen) and events < FEW_EVENTS:
        template = "{} events are few: below {} million, {} is faster"
        return hints.fill(template, f"{events:,}", FEW_EVENTS // 1_000_000, hints.option("engine", "local"))
    if not is_remote(chosen) and events >= MANY_EVENTS:
        template = "{} events are many: {} spreads them over machines"
        return hints.fill(template, f"{events:,}", hints.option("engine", "ray"))
    return None
