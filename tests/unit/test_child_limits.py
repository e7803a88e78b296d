"""A parent that watches a child: it kills it within a statement that exceeds its limits, and only there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli_runner import environment

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="has no /proc")
MB = 1 << 20
SCRIPT = """
import os, signal, time
from mmap import mmap
from tracewarehouse.limits import begin_answer, limited, run_limited
def work():
    {}
    os._exit(7)
print(run_limited(work))
"""
HOLD = f"held = [bytearray({MB}) for _ in range(150)]; time.sleep(0.3)"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


CASES = {
    "memory": (
        f"with limited({50 * MB}, None): {HOLD}",
        f"Killed(by='memory', memory_bytes={50 * MB}, timeout_s=inf)",
    ),
    # Each alone is short enough.
    "time of several statements": (
        "\n    ".join(f"with limited(None, 0.1): time.sleep({seconds})" for seconds in (0.8, 0.9)),
        "Killed(by='time', memory_bytes=0, timeout_s=0.1)",
    ),
    "time of several answers": (
        "\n    begin_answer()\n    ".join(
            f"with limited(None, 0.1): time.sleep({seconds})" for seconds in (0.8, 0.9)
        ),
        "7",
    ),
    "backstop": (
        f"with limited({50 * MB}, None):\n        try: mmap(-1, {400 * MB})\n"
        "        except OSError: os._exit(3)",
        "3",
    ),
    "nothing after the statement": (
        f"with limited({50 * MB}, 0.1): pass\n    time.sleep(1.2); {HOLD}; mmap(-1, {400 * MB})",
        "7",
    ),
    "no limits": (f"with limited(None, None): {HOLD}", "7"),
    "crash": ("os.kill(os.getpid(), signal.SIGSEGV)", "139"),
}


@pytest.mark.parametrize(("body", "ended"), CASES.values(), ids=CASES)
def test_a_child_ends_within_its_limits(body: str, ended: str) -> None:
    assert run(SCRIPT.format(body)) == ended


def test_a_child_is_not_killed_once_its_statement_has_ended() -> None:
    code = """
import os, time
from tracewarehouse.limits import _kill
for says in (b"", b"0 0 0 "):
    messages, parent = os.pipe()
    if not (child := os.fork()):
        time.sleep(0.3)
        os._exit(5)
    os.write(parent, says)
    print(_kill(child, messages), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code) == "True -9\nFalse 5"


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = SCRIPT.format(f"os.kill(os.getppid(), signal.SIGKILL); time.sleep(0.5); open({str(done)!r}, 'w')")
    parent = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True)
    # The child held the pipes that were read to the end.
    assert parent.returncode == -9 and not done.exists()


def test_a_process_with_threads_is_not_forked() -> None:
    body = "print(os.getpid() == started); os._exit(0)"
    code = SCRIPT.format(body).replace("print(run", "import threading; started = os.getpid()\nprint(run")
    assert run(code) == "False\n0"
    thread = "threading.Thread(target=time.sleep, args=(1,), daemon=True).start()"
    assert run(code.replace("started =", f"{thread}; started =")) == "True"
