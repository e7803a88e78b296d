"""Runs `tw` for tests: as a process, on a terminal, or in this process."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from conftest import ROOT

TW = (sys.executable, "-W", "error", "-c", "from tracewarehouse.cli import main; main()")


@dataclass(frozen=True)
class CliResult:
    """Exit code and output of a call of `tw`."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on stderr."""
        return self.err.splitlines()


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for `tw` of this checkout, without settings of the caller."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("TW_", "_TW_", "COLUMNS"))}
    own = {"PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", "TW_AUTO_LABELS": "0"}
    return {**kept, **own, **(changes or {})}


def process(*args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> CliResult:
    """Runs `tw` as a process, which may take two minutes."""
    done = subprocess.run(
        [*TW, *map(str, args)],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    return CliResult(done.returncode, done.stdout, done.stderr)


def on_terminal(*args: str | Path, columns: int = 100, env: Mapping[str, str] | None = None) -> CliResult:
    """Runs `tw` on a terminal of this width; `out` has both stdout and stderr."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, columns))
    running = subprocess.Popen(
        [*TW, *map(str, args)], env=environment(env), stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    )
    os.close(slave)
    shown = b""
    with suppress(OSError):  # Linux raises it at the end of a terminal
        while part := os.read(master, 65_536):
            shown += part
    os.close(master)
    return CliResult(running.wait(), shown.decode().replace("\r\n", "\n"), "")


def tw(*args: str | Path) -> CliResult:
    """Runs `tw` in this process, to save the start of an interpreter."""
    from tracewarehouse.cli.app import run

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(arg) for arg in args])
        out.flush()
    assert isinstance(out.buffer, io.BytesIO)
    return CliResult(code, out.buffer.getvalue().decode(), err.getvalue())


def complete(line: str, warehouse: Path) -> list[str]:
    """What bash suggests at the end of `line`."""
    words = line.split(" ")
    settings = {
        "_TW_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "TW_WAREHOUSE": str(warehouse),
    }
    return [each.partition(",")[2] for each in process(env=settings).out.split()]
