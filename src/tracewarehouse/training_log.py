"""The verdict on a trace for the log of a training, which another process computes.

`python -m tracewarehouse.training_log TRACE` prints it to stderr, and deletes the trace with its two folders:
the trace handler starts it with a link that it made for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from tracewarehouse.errors import TwError


def verdict(path: str | os.PathLike[str]) -> str:
    """Returns what `tw check` says first about a trace file or a folder, as lines for a log.

    A separate process ingests the traces into the cache, the same content once; this one needs no memory for
    it.

    Returns:
        What the recording can carry, the most severe finding, and the command that opens the evidence.

    Raises:
        TwError: The traces cannot be read.

    Example:
        >>> print(tw.verdict("traces"))
        recording: sound
        ...
    """
    command = [sys.executable, "-m", "tracewarehouse", "check", os.path.abspath(path), "--brief"]  # noqa: PTH100
    nothing = subprocess.DEVNULL
    finished = subprocess.run(command, stdin=nothing, capture_output=True, text=True, env=_environment())
    if finished.returncode == 0:
        return finished.stdout.rstrip("\n")
    lines = [line for line in finished.stderr.splitlines() if not line.startswith("note: ")]
    hint = next((line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")), None)
    raise TwError(lines[0].removeprefix("tw: ") if lines else f"no verdict: code {finished.returncode}", hint)


def start(trace: Path) -> None:
    """Starts the process that prints the verdict on a trace and deletes it; the caller need not wait."""
    # No caller keeps it: subprocess notices its end when the next one starts.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        in_background([__name__, str(trace)])


def in_background(command: Sequence[str], log: BinaryIO | None = None) -> subprocess.Popen[bytes]:
    """Starts a module with its arguments; neither Ctrl-C nor the end of this process ends it.

    What it says goes to the log, by default to the stderr of this process.
    """
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.DEVNULL,
        stdout=log or subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    """That of a process that imports what this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def main(trace: Path) -> None:
    """Prints the verdict, or why there is none in one line."""
    os.nice(10)
    try:
        text = verdict(trace)
    except Exception as error:
        text = f"trace of {trace.parent.name} not checked: {' '.join(str(error).split())}"
    finally:
        shutil.rmtree(trace.parent.parent, ignore_errors=True)
    with suppress(OSError):  # the log was closed meanwhile
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
