"""Tasks on a Ray cluster, or on a local one that lives as long as the engine.

A worker first compares its versions with those of the process that sent the task. Ray runs a task again if
its worker is lost, up to three times.
"""

from __future__ import annotations

import os
import pickle
import platform
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from tracewarehouse import hints
from tracewarehouse.contracts.catalog import Catalog
from tracewarehouse.engines.base import Failure, OnProgress, Task, WorkerDied, failure_of
from tracewarehouse.errors import EngineError, MissingExtra, Terminated, WorkerMismatch
from tracewarehouse.temp_folders import new_folder
from tracewarehouse.version import __version__


class Peer(Struct, frozen=True):
    """The versions that decide the rows of every table and analysis: equal on all machines of a call."""

    tracewarehouse: str
    contracts: str
    duckdb: str

    @classmethod
    def here(cls) -> Peer:
        """The versions of this process."""
        return cls(__version__, Catalog.load().digest[:12], version("duckdb"))

    def mismatch(self, driver: Peer) -> str | None:
        """How this worker differs from the process that sent a task; None if it does not."""
        mine, theirs = asdict(self), asdict(driver)
        different = [
            f"{name} {mine[name]} instead of {theirs[name]}" for name in mine if mine[name] != theirs[name]
        ]
        return f"worker on {platform.node()} has {', '.join(different)}" if different else None


_RETRIES = 3
# Ray puts sockets into its folder, whose paths may have 107 bytes.
_LONGEST_TEMP_DIR = 40
# Of a local cluster: results are small, or files.
_OBJECT_STORE_BYTES = 256 << 20
_LOCAL, _AUTO = "local", "auto"
_CONNECT_S = 5.0


class RayEngine:
    """Runs each task on one CPU of a Ray cluster.

    `address`: `auto` or HOST:PORT of a running cluster; without it, that in RAY_ADDRESS, or a new cluster on
    this machine with `jobs` workers, which ends with the engine. In a process that uses Ray already, its
    cluster.
    """

    name = "ray"

    def __init__(self, address: str | None = None, jobs: int | None = None) -> None:
        if find_spec("ray") is None:
            raise MissingExtra("the engine ray needs ray", "pip install 'tracewarehouse[ray]'")
        self._address, self._jobs = address or os.environ.get("RAY_ADDRESS") or _LOCAL, jobs
        self._folder: Path | None = None
        self._run: Any = None
        self._owned = False

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def slots(self) -> int:
        """The CPUs of the cluster, at most `jobs`."""
        cpus = max(1, int(self._started().cluster_resources().get("CPU", 1)))
        return min(cpus, self._jobs or cpus)

    def close(self) -> None:
        """Ends the cluster if this engine started it, and deletes its folder."""
        self._run = None
        if self._owned:
            self._owned = False
            import ray

            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def run(
        self, tasks: Sequence[Task], progress: OnProgress, *, retry: bool = True
    ) -> Iterator[tuple[int, object]]:
        """See `Engine.run`; tasks do not report their progress."""
        yield from self._run_some(tasks, 2 * self.slots if tasks else 1)

    def run_alone(self, tasks: Sequence[Task], progress: OnProgress) -> Iterator[tuple[int, object]]:
        """See `Engine.run_alone`."""
        yield from self._run_some(tasks, 1)

    def _run_some(self, tasks: Sequence[Task], at_once: int) -> Iterator[tuple[int, object]]:
        """At most `at_once` tasks are submitted at a time, so that a driver that ends leaves little work."""
        ray, here, waiting = self._started(), Peer.here(), list(range(len(tasks)))[::-1]
        submitted: dict[Any, int] = {}
        try:
            while waiting or submitted:
                while waiting and len(submitted) < at_once:
                    number = waiting.pop()
                    submitted[self._run.remote(here, pickle.dumps(tasks[number]))] = number
                (done, *_), _ = ray.wait(list(submitted), num_returns=1)
                yield submitted.pop(done), _result(ray, done)
        finally:
            for left in submitted:
                ray.cancel(left, force=True)

    def _started(self) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray

        if not ray.is_initialized():
            self._start(ray)
        if self._run is None:
            remote = ray.remote(num_cpus=1, max_retries=_RETRIES, retry_exceptions=False)
            self._run = remote(run_task)
        return ray

    def _start(self, ray: Any) -> None:
        settings: dict[str, Any] = {"address": self._address}
        if self._address == _LOCAL:
            settings |= {
                "num_cpus": self._jobs,
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE_BYTES,
            }
            if len(tempfile.gettempdir()) <= _LONGEST_TEMP_DIR:
                self._folder = new_folder()
                settings["_temp_dir"] = str(self._folder)
        else:
            _check_address(self._address)
        try:
            with _workers_environment(), _signal_handlers():
                ray.init(**settings, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise _unreachable(self._address, str(error).strip().partition("\n")[0]) from error
        self._owned = True


def _check_address(address: str) -> None:
    """Raises EngineError if nothing answers at HOST:PORT: Ray itself tries for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error


def _unreachable(address: str, what: str) -> EngineError:
    what = "no cluster runs on this machine" if address == _AUTO else what
    hint = hints.fill("start one with ray start --head, or leave out {}", hints.option("engine_address"))
    return EngineError(f"Ray at {address}: {what}", hint)


@contextmanager
def _signal_handlers() -> Iterator[None]:
    """Keeps the handler of SIGTERM, which Ray replaces by one that exits at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as error:
        raise Terminated from error
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _workers_environment() -> Iterator[None]:
    """Workers of a cluster that is started here import the modules that this process can import.

    They also run with its priority: by default, Ray gives way to all other processes of the machine.
    """
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    os.environ.setdefault("RAY_worker_niceness", "0")
    try:
        yield
    finally:
        for name in ("PYTHONPATH", "RAY_worker_niceness"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def run_task(driver: Peer, pickled: bytes) -> object:
    """Runs in a worker: the result of a task or a Failure; WorkerMismatch if versions differ."""
    if (what := Peer.here().mismatch(driver)) is not None:
        return _mismatch(what)
    task: Task = pickle.loads(pickled)
    try:
        return task.run(lambda *_: None)  # progress does not leave the worker
    except Exception as error:
        return failure_of(error)


def _mismatch(what: str) -> WorkerMismatch:
    return WorkerMismatch(what, "install the same versions on every node of the cluster")


def _result(ray: Any, done: Any) -> object:
    """What a task returned, or why there is nothing. Raises WorkerMismatch."""
    errors = ray.exceptions
    try:
        found: object = ray.get(done)
    except errors.OutOfMemoryError as error:
        return WorkerDied("the worker ran out of memory", _first_line(error), transient=True)
    except errors.WorkerCrashedError as error:
        message = f"the worker process died {_RETRIES + 1} times"
        hint = "likely out of memory; use nodes with more memory per CPU"
        return WorkerDied(message, hint, _first_line(error), transient=True)
    except (errors.NodeDiedError, errors.LocalRayletDiedError) as error:
        hint = "ray status lists the nodes; run it again when they are up"
        return WorkerDied("a node of the Ray cluster was lost", hint, _first_line(error), transient=True)
    except errors.RayError as error:
        return Failure(f"Ray: {_first_line(error)}", "tracewarehouse must be installed on every node")
    if isinstance(found, WorkerMismatch):
        raise _mismatch(found.message)
    return found


def _first_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2] or type(error).__name__
