"""The local engine: results, failures, and the cost of a worker that dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from processes import children
from tracewarehouse.engines import LocalEngine, TaskFailure, TaskProgress
from tracewarehouse.errors import TwError


@dataclass(frozen=True)
class Square:
    number: int

    def run(self, progress: TaskProgress) -> object:
        progress(self.number, 10)
        return self.number * self.number, os.getpid()


@dataclass(frozen=True)
class Fails:
    error: Exception

    def run(self, progress: TaskProgress) -> object:
        raise self.error


@dataclass(frozen=True)
class Dies:
    """Kills its own process, as the kernel does when memory runs out; at most `times` times."""

    folder: Path
    times: int

    def run(self, progress: TaskProgress) -> object:
        died = len(list(self.folder.iterdir()))
        if died < self.times:
            (self.folder / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"


def test_every_task_yields_its_result() -> None:
    reported: list[tuple[int, int, int]] = []
    with LocalEngine(2) as engine:
        results = dict(engine.run([Square(n) for n in range(7)], lambda *event: reported.append(event)))
        more = dict(engine.run([Square(n) for n in range(2)], lambda *event: None))
    squares = {number: value[0] for number, value in results.items()}  # type: ignore[index]
    pids = {value[1] for value in (*results.values(), *more.values())}  # type: ignore[index]
    assert squares == {n: n * n for n in range(7)}
    assert sorted(reported) == [(n, n, 10) for n in range(7)]
    assert os.getpid() not in pids
    assert len(pids) == 2


def test_one_job_runs_in_this_process() -> None:
    with LocalEngine(1) as engine:
        results = dict(engine.run([Square(2), Square(3)], lambda *event: None))
    assert results == {0: (4, os.getpid()), 1: (9, os.getpid())}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_stops_no_other(jobs: int) -> None:
    tasks = [Fails(TwError("no", "try")), Fails(ValueError("odd")), Square(3)]
    with LocalEngine(jobs) as engine:
        results = dict(engine.run(tasks, lambda *event: None))
    known, unknown = results[0], results[1]
    assert isinstance(known, TaskFailure) and (known.message, known.hint) == ("no", "try")
    assert isinstance(unknown, TaskFailure) and unknown.message == "ValueError: odd"
    assert "Traceback" in unknown.details
    assert results[2][0] == 9  # type: ignore[index]


def test_a_worker_that_dies_costs_only_its_task(tmp_path: Path) -> None:
    (tmp_path / "once").mkdir()
    (tmp_path / "always").mkdir()
    tasks = [Dies(tmp_path / "once", 1), Dies(tmp_path / "always", 99), *(Square(n) for n in range(5))]
    with LocalEngine(2) as engine:
        results = dict(engine.run(tasks, lambda *event: None))
    assert results[0] == "alive"
    failure = results[1]
    assert isinstance(failure, TaskFailure) and failure.message == "the worker process died twice"
    assert len(list((tmp_path / "always").iterdir())) == 2
    assert [results[n + 2][0] for n in range(5)] == [0, 1, 4, 9, 16]  # type: ignore[index]


SCRIPT = """
# No guard for __main__: a person's script has none, and it must not run twice.
import sys, time
from dataclasses import dataclass
from tracewarehouse.engines import LocalEngine
print("once", flush=True)
import test_local
with LocalEngine(2) as engine:
    list(engine.run([test_local.Sleeps(0), test_local.Sleeps(float(sys.argv[1]))], lambda *event: None))
"""


@dataclass(frozen=True)
class Sleeps:
    seconds: float

    def run(self, progress: TaskProgress) -> object:
        time.sleep(self.seconds)
        return None


def start(tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    command = [sys.executable, str(script), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True)


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    output, _ = start(tmp_path, 0).communicate(timeout=60)
    assert output == "once\n"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_end_with_a_killed_parent(tmp_path: Path) -> None:
    with start(tmp_path, 300) as parent:
        deadline = time.monotonic() + 60
        while len(engine := children(parent.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        parent.kill()
        parent.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in engine) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert engine and not any(Path(f"/proc/{pid}").exists() for pid in engine)
